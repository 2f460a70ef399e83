"""Table functions for SQL: `hoodoo_timeline` and `hoodoo_changes`.

Each function runs as one task, so read large ranges through the data source instead. The timeline always has the same
columns, so `hoodoo_timeline` is an Arrow table function. The columns of changes depend on the table, and Spark only
supports dynamic columns for plain table functions. So `hoodoo_changes` is a plain table function. It is slower, but
queries can use `after.fare` instead of parsing JSON.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from hoodoo.engine.spark_types import schema_to_ddl
from hoodoo.errors import OptionError
from hoodoo.spark.parts import ReadPart, commits_to_keep_readable, read_part, split_read, start_read
from hoodoo.spark.source_options import CHANGES, ReadOptions
from hoodoo.timeline.timeline_listing import Entry

_TIMELINE = pa.schema([(field.name, pa.int64() if field.type == "int" else pa.string()) for field in fields(Entry)])


def register(spark: Any) -> None:
    """Register hoodoo's SQL table functions.

    Args:
        spark: The session, classic or Connect.
    """
    remote = type(spark).__module__.startswith("pyspark.sql.connect")
    functions: Any = importlib.import_module("pyspark.sql.connect.functions" if remote else "pyspark.sql.functions")
    spark.udtf.register("hoodoo_timeline", functions.arrow_udtf(_Timeline, returnType=schema_to_ddl(_TIMELINE)))
    spark.udtf.register("hoodoo_changes", functions.udtf(_Changes, useArrow=True))


class _Timeline:
    """SQL table function `hoodoo_timeline(path)`."""

    def rows(
        self, path: pa.Array, endpoint: pa.Array | None = None, region: pa.Array | None = None
    ) -> Iterator[pa.Table]:
        given = {"path": path, "endpoint": endpoint, "region": region}
        options = ReadOptions.parse({name: value[0].as_py() for name, value in given.items() if value is not None})
        yield options.open().inspect.timeline().to_arrow().cast(_TIMELINE)

    eval = rows  # the method name that Spark expects


@dataclass
class _Range(AnalyzeResult):
    """Columns and partitions of a `hoodoo_changes` call."""

    parts: tuple[ReadPart, ...] = ()


class _Changes:
    """SQL table function `hoodoo_changes(path, since)`.

    Named arguments are `until`, `columns`, `where` and `versions`.
    """

    def __init__(self, found: _Range) -> None:
        self.found = found

    @staticmethod
    def analyze(
        path: AnalyzeArgument,
        since: AnalyzeArgument,
        until: AnalyzeArgument | None = None,
        columns: AnalyzeArgument | None = None,
        where: AnalyzeArgument | None = None,
        versions: AnalyzeArgument | None = None,
        endpoint: AnalyzeArgument | None = None,
        region: AnalyzeArgument | None = None,
    ) -> _Range:
        given = {
            "path": path,
            "since": since,
            "until": until,
            "columns": columns,
            "where": where,
            "versions": versions,
            "endpoint": endpoint,
            "region": region,
        }
        texts = {name: _text(name, argument) for name, argument in given.items() if argument is not None}
        options = ReadOptions.parse({"mode": CHANGES, **texts})
        table = options.open()
        rows = start_read(table, options)
        parts = split_read(rows, table, commits_to_keep_readable(table, options, rows.cursor.seq))
        return _Range(from_arrow_schema(rows.schema, prefer_timestamp_ntz=True), parts=tuple(parts))

    def rows(self, *_: Any, **__: Any) -> Iterator[tuple[Any, ...]]:
        for part in self.found.parts:
            for batch in read_part(part, self.found.schema):
                yield from zip(*(column.to_pylist(maps_as_pydicts="strict") for column in batch.columns), strict=True)

    eval = rows  # the method name that Spark expects


def _text(name: str, argument: AnalyzeArgument) -> str:
    if not isinstance(argument.value, str):
        raise OptionError(f"hoodoo_changes needs {name} as a constant string.", option=name)
    return argument.value
