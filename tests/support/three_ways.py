"""One call on copies of one table, with its rows as Arrow, as a small DataFrame, as one that is staged, and by
`df.write`: what each way gave, in words that can be compared.

As a plugin of pytest (`-p three_ways`) it does so with every write of the tests that run, and fails where the ways
differ: `tests/spark/test_three_ways.py` runs tests of other folders that way.
"""

from __future__ import annotations

import functools
import inspect
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import hoodoo
from hoodoo.engine.session import is_spark_dataframe
from hoodoo.engine.spark import dumps, loads, result, serialize_outcome
from hoodoo.engine.spark_types import arrow_schema_of
from hoodoo.engine.task_pickling import TaskDeserializer, serialize_tasks
from hoodoo.spark.write import HoodooWriter, plan_write
from hoodoo.writers.batches.cast import cast_column
from hoodoo.writers.batches.input import to_arrow
from hoodoo.writers.batches.value_validation import validate_columns
from hoodoo.writers.staging import staged

WRITES = ("upsert", "insert", "delete", "insert_overwrite")
COUNTS = (
    "inserted",
    "updated",
    "deleted",
    "stale",
    "exact",
    "files",
    "skipped",
    "quarantined",
    "reasons",
    "rows_rewritten",
)
DIFFERS = {"retries", "bytes_written", "waited_seconds", "cursor", "instant"}
"""What a result says of time, place and bytes, which no two writes have in common."""


class TasksHere:
    """Spark's engine without Spark: tasks and what they give are pickled as they are on the way."""

    remote, threads = True, 64

    def __init__(self, spark: Any) -> None:
        pass

    def map(self, task: Any, items: Sequence[Any], at_once: int | None = None, waiting: bool = False) -> list[Any]:
        common, parts = serialize_tasks(task, list(items))
        done = [serialize_outcome(functools.partial(TaskDeserializer(common).run, part)) for part in parts]
        return [result(one) for one in done]


@contextmanager
def all_staged(engine: Any = None) -> Iterator[None]:
    """Every DataFrame takes the way of a large one, an empty one too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staged, "IN_PROCESS_BYTES", -1)
        if engine:
            patch.setattr(staged, "SparkEngine", engine)
        yield


@contextmanager
def prepared_once() -> Iterator[None]:
    """What tasks made of the first DataFrame they give for the next as well, which is the same one."""
    done: list[bytes] = []
    prepare = staged._prepare_on_spark

    def prepared(*arguments: Any) -> Any:
        if not done:
            done.append(serialize_outcome(lambda: prepare(*arguments)))
        return result(done[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staged, "_prepare_on_spark", prepared)
        yield


def written(table: hoodoo.Table, rows: pa.Table, write: str, how: dict[str, Any]) -> None:
    """By `df.write`, without Spark around it."""
    how = dict(how)
    if isinstance(limits := how.get("on_bad_rows"), hoodoo.BadRowLimits):
        how |= {"on_bad_rows": "quarantine", "max_bad_rows": limits.rows, "max_bad_share": limits.share}
    if how.pop("bulk", False):
        write = "bulk_insert"
    options = {
        name: str(value).lower() if value is True or value is False else str(value) for name, value in how.items()
    }
    if "transaction" in how:
        options["transaction"] = "{}:{}".format(*how["transaction"])
    given = {"path": table.path, "operation": write, **options}
    one = loads(dumps(HoodooWriter(plan_write(given, from_arrow_schema(rows.schema), False))))
    try:
        one.commit([loads(dumps(one.write(iter(rows.to_batches()))))])
    except BaseException:
        one.abort([])
        raise


def told(path: Path, call: Callable[[hoodoo.Table], Any]) -> dict[str, Any]:
    """What `call` makes of the table at `path`: its result or error, and the rows, columns and bad rows afterwards."""
    table = hoodoo.open(path)
    try:
        done = call(table)
        said: dict[str, Any] = {} if done is None else {name: getattr(done, name) for name in COUNTS}
    except hoodoo.HoodooError as problem:
        said = {"error": problem.code, "text": problem.message.replace(str(path), "PATH")}
        said["details"] = {name: str(value).replace(str(path), "PATH") for name, value in problem.details.items()}
    table = hoodoo.open(path)
    assert not list(table.handle.store.list(".hoodie/.hoodoo/staging/"))
    rows = table.scan().to_arrow()
    aside = table.quarantine()
    bad = aside.rows().to_pylist() if Path(f"{path}__quarantine").exists() else []
    told_of_bad = [{name: one[name] for name in ("position", "reason", "detail", "payload")} for one in bad]
    return said | {
        "rows": sorted(map(repr, rows.to_pylist())),
        "schema": table.schema,
        "bad": sorted(map(repr, told_of_bad)),
    }


def copies(path: Path, names: Sequence[str], into: Path | None = None) -> list[Path]:
    """Of the table at `path` and what is set aside of it, each under the table's own name in a folder of its own."""
    made = []
    for name in names:
        copy = (into or path.parent) / f"{path.name}-{name}" / path.name
        shutil.rmtree(copy.parent, ignore_errors=True)
        for suffix in ("", "__quarantine"):
            if Path(f"{path}{suffix}").exists():
                shutil.copytree(f"{path}{suffix}", f"{copy}{suffix}", symlinks=True)
        made.append(copy)
    return made


def frame_of(spark: Any, rows: pa.Table) -> Any:
    """A DataFrame of one partition with the names of `rows`, whatever they are."""
    if not rows.num_columns:
        return spark.createDataFrame([], "a int").select()
    arrays, texts = [], []
    for place, column in enumerate(rows.columns):
        text = f"c{place}"
        if pa.types.is_struct(column.type) and len({field.name for field in column.type}) < column.type.num_fields:
            numbered = [(f"f{at}", field.type) for at, field in enumerate(column.type)]
            inner = ", ".join(f"'{field.name}', {text}.f{at}" for at, field in enumerate(column.type))
            column, text = column.cast(pa.struct(numbered)), f"named_struct({inner})"  # Spark takes it from SQL only
        arrays.append(column)
        texts.append(text)
    frame = spark.createDataFrame(pa.table(arrays, names=[f"c{place}" for place in range(len(arrays))]))
    return frame.selectExpr(*texts).toDF(*rows.column_names).coalesce(1)


def agreed(path: Path, frame: Any, rows: pa.Table, write: str, how: dict[str, Any], engine: Any = None) -> None:
    """Fail unless every way gives what Arrow gives. frame: with these rows; engine: runs the tasks of staged batches in
    Spark's place.
    """
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        _agreed(path, Path(folder), frame, rows, write, how, engine)


def _agreed(path: Path, folder: Path, frame: Any, rows: pa.Table, write: str, how: dict[str, Any], engine: Any) -> None:
    arrow, small, large, by_format = copies(path, ("arrow", "small", "staged", "format"), folder)
    want = told(arrow, lambda table: getattr(table, write)(rows, **how))
    with prepared_once():
        require_same("small", told(small, lambda table: getattr(table, write)(frame, **how)), want)
        with all_staged(engine):
            require_same("staged", told(large, lambda table: getattr(table, write)(frame, **how)), want)
    if write != "insert_overwrite" and "sort_by" not in how and rows.num_columns and want.get("error") != "OPTION":
        counts = dict.fromkeys(COUNTS)  # which Spark passes on to nobody
        found = told(by_format, lambda table: written(table, rows, write, how))
        require_same("df.write", found | counts, want | counts)


def require_same(way: str, found: dict[str, Any], want: dict[str, Any]) -> None:
    """Fail where `way` gave something else than Arrow, and say what."""
    differ = {name: (found.get(name), want.get(name)) for name in {*found, *want} if found.get(name) != want.get(name)}
    assert not differ, f"{way} | Arrow: {differ}"


assert {one.name for one in fields(hoodoo.WriteResult) if one.name[0] != "_"} == {*COUNTS} | DIFFERS


# ---------------------------------------------------------------- as a plugin

compared: Counter[str] = Counter()
"""Writes that were compared, by test."""
_MOST = 6  # of one test


@pytest.fixture(autouse=True)
def every_write_three_ways(request: pytest.FixtureRequest, spark: Any) -> Iterator[None]:
    """But those of a test that patches what it calls, as that would happen several times."""
    with pytest.MonkeyPatch.context() as patch:
        for name in WRITES if "monkeypatch" not in request.fixturenames else ():
            patch.setattr(hoodoo.Table, name, _compared(getattr(hoodoo.Table, name), name, spark, request.node.nodeid))
        yield


def _compared(original: Callable[..., Any], name: str, spark: Any, test: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def write(self: hoodoo.Table, data: Any, *given: Any, **named: Any) -> Any:
        if compared[test] >= _MOST or not Path(self.path).exists() or is_spark_dataframe(data):
            return original(self, data, *given, **named)
        try:
            rows = to_arrow(data, self.handle.config.schema)
        except hoodoo.HoodooError:
            return original(self, data, *given, **named)
        narrow = _narrow(rows, self)
        frame = _same_frame(spark, narrow)
        if frame is not None:
            how = inspect.signature(original).bind(self, data, *given, **named).arguments
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(hoodoo.Table, name, original)
                agreed(Path(self.path), frame, narrow, name, {key: how[key] for key in list(how)[2:]}, TasksHere)
            compared[test] += 1
        return original(self, rows, *given, **named)

    return write


def _narrow(rows: pa.Table, table: hoodoo.Table) -> pa.Table:
    """`rows` with the table's types where every value survives: a DataFrame widens a column by its type alone."""
    for at, field in enumerate(rows.schema):
        if rows.schema.names.count(field.name) == 1 and field.name in table.schema.names and len(rows):
            try:
                fitting = cast_column(
                    validate_columns(rows, [field.name], [])[field.name], table.schema.field(field.name)
                )
                rows = rows.set_column(at, field.name, fitting)
            except (hoodoo.HoodooError, pa.ArrowException):
                continue  # so that all ways are refused
    return rows


def _same_frame(spark: Any, rows: pa.Table) -> Any:
    """A DataFrame of `rows`; None where Spark has other types for them, or Arrow no values."""
    try:
        rows.validate(full=True)
        frame = frame_of(spark, rows)
        same = arrow_schema_of(frame.schema).types == rows.schema.types
    except Exception:  # whatever Spark says of a type
        return None
    return frame if same else None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"{compared.total()} writes of {len(compared)} tests were compared")
