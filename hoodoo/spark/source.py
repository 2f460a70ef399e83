"""The Spark data source `hoodoo`: batch reads here, streams and writes next door; and `register`, which makes them
known to a session.

Spark creates the source, plans with it and runs its tasks in different processes, so that all of it pickles. The
snapshot is fixed when a DataFrame is loaded or a view is created: all that is made of it sees the same rows. Knows
options and Spark, not how rows are found.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

import hoodoo
from hoodoo.engine.session import require_session
from hoodoo.engine.spark import BATCH_ROWS, prepare_session, reduced_with_code
from hoodoo.engine.spark_types import arrow_schema_of, require_readable, spark_ddl
from hoodoo.errors import CorruptTable, EngineError, HoodooError, SchemaError
from hoodoo.readers.output import Rows, Task
from hoodoo.readers.positions import Cursor, resolve
from hoodoo.spark.options import CHANGES, INCREMENTAL, READ_OPTIMIZED, ReadOptions
from hoodoo.storage.store import Store

_OLDEST = (4, 2)  # of PySpark: streams that limit themselves
_registered: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def register(spark: SparkSession) -> None:
    """Make the data source `hoodoo` and the table functions `hoodoo_timeline` and `hoodoo_changes` known to `spark`, a
    classic or Connect session.

    A second time does nothing. hoodoo's code travels with it; what hoodoo depends on must be installed where Spark runs
    Python. Raises EngineError.
    """
    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < _OLDEST:
        raise EngineError(
            f"The data source needs PySpark {'.'.join(map(str, _OLDEST))} or later, this is "
            f"{pyspark.__version__}. hoodoo.open(path) works with it."
        )
    require_session(spark)
    if spark in _registered:
        return
    from hoodoo.spark import tables as spark_tables

    prepare_session(spark)
    spark.dataSource.register(HoodooSource)
    spark_tables.register(spark)
    _registered.add(spark)


class HoodooSource(DataSource):
    """What `format("hoodoo")` stands for."""

    def __init__(self, options: MutableMapping[str, str], fixed: int | None = None) -> None:
        super().__init__(options)
        self.fixed = fixed

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced_with_code("hoodoo.spark.source", "HoodooSource", (dict(self.options), self.fixed))

    @classmethod
    def name(cls) -> str:
        return "hoodoo"

    def schema(self) -> str:
        """Called once, by load() or CREATE VIEW: fixes the snapshot as well, as far as this is no stream, which is not
        known here.
        """
        options = ReadOptions.of(self.options, None)
        table = options.open()
        with suppress(
            HoodooError
        ):  # a stream goes on from its checkpoint, whatever has become of where it once started
            self.fixed = rows_of(table, options).cursor.seq
        schema = schema_of(table, options)
        require_readable(schema)
        return spark_ddl(schema)

    def reader(self, schema: Any) -> HoodooReader:
        options = ReadOptions.of(self.options)
        table = options.open()
        rows = rows_of(table, options, self.fixed)
        require_schema(rows.schema, spark_ddl(arrow_schema_of(schema)))
        return HoodooReader(parts_of(rows, table, slots_read(table, options, rows.cursor.seq)), schema)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        from hoodoo.spark.stream import HoodooStream

        return HoodooStream(ReadOptions.of(self.options, True), schema)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        from hoodoo.spark.write import HoodooWriter, planned

        return HoodooWriter(planned(self.options, schema, overwrite))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        raise EngineError(
            'writeStream.format("hoodoo") is not there: use writeStream.foreachBatch(table.sink("name")), which '
            "commits each batch exactly once."
        )


def rows_of(table: hoodoo.Table, options: ReadOptions, until: int | None = None) -> Any:
    """What `options` ask of `table`, up to slot `until` where that is fixed already."""
    columns = None if options.columns is None else list(options.columns)
    given = options.until if options.mode in (INCREMENTAL, CHANGES) else options.as_of
    end = given if until is None else Cursor(table.cursor.table, until)
    since = options.since or "earliest"
    if options.mode == INCREMENTAL:
        return table.incremental(since, end, columns, options.where, options.meta, options.deletes)
    if options.mode == CHANGES:
        return table.changes(since, end, columns, options.where, options.versions)
    return table.scan(columns, options.where, end, options.mode == READ_OPTIMIZED, options.meta)


def schema_of(table: hoodoo.Table, options: ReadOptions) -> pa.Schema:
    """Columns of what `options` ask for; no position decides them."""
    return rows_of(table, ReadOptions(**{**vars(options), "since": None, "until": None, "as_of": None})).schema


def require_schema(schema: pa.Schema, asked: str) -> None:
    """Raise SchemaError unless Spark expects what the table gives. asked: as DDL text."""
    if spark_ddl(schema) != asked:
        raise SchemaError(
            f"Spark expects the columns {asked}; the table gives {spark_ddl(schema)}. Load it again without a "
            "schema of yours; the option columns chooses."
        )


def slots_read(table: hoodoo.Table, options: ReadOptions, until: int) -> tuple[int, ...]:
    """The snapshots that have to be readable."""
    both = options.mode == CHANGES or options.mode == INCREMENTAL and options.deletes
    since = resolve(table.handle.history, options.since or "earliest", exclusive=True) if both else 0
    return (since, until) if since else (until,)


class Part(InputPartition):
    """One task of a read: what to read, and which snapshots it reads from."""

    def __init__(self, task: Task | None, store: Store | None, slots: tuple[int, ...]) -> None:
        super().__init__(None)
        self.task, self.store, self.slots = task, store, slots


def parts_of(rows: Rows, table: hoodoo.Table, slots: tuple[int, ...]) -> list[Part]:
    return [Part(task, table.handle.store, slots) for task in rows.tasks()]


def read(part: InputPartition, schema: Any) -> Iterator[pa.RecordBatch]:
    """The rows of `part`, in the types that Spark has for them. Raises SnapshotExpired where a clean took its files."""
    if not isinstance(part, Part) or part.task is None or part.store is None:
        return  # what Spark makes up where there is nothing to read
    fitting = arrow_schema_of(schema)
    try:
        for rows in part.task.stream(BATCH_ROWS):
            yield from rows.cast(fitting).to_batches(BATCH_ROWS)
    except CorruptTable:
        history = hoodoo.Table(part.store).handle.history
        for slot in part.slots:
            history.require_readable(slot)
        raise


class HoodooReader(DataSourceReader):
    """A batch read: one Spark task per file slice."""

    def __init__(self, parts: list[Part], schema: Any) -> None:
        self.parts, self.schema = parts, schema

    def __reduce__(self) -> tuple[Any, ...]:
        return HoodooReader, ([], self.schema)  # tasks get the reader, and of the parts each its own

    def partitions(self) -> list[InputPartition]:
        return [*self.parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(partition, self.schema)
