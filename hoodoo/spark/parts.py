"""What a reader of Spark asks of a table, cut into the parts that its tasks read: for batch reads, streams and table
functions alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

import hoodoo
from hoodoo.engine.spark import BATCH_ROWS
from hoodoo.engine.spark_types import arrow_schema_of, spark_ddl
from hoodoo.errors import CorruptTable, SchemaError
from hoodoo.readers.cursor import Cursor, resolve
from hoodoo.readers.output import Rows
from hoodoo.readers.task import Task
from hoodoo.spark.options import CHANGES, INCREMENTAL, READ_OPTIMIZED, ReadOptions
from hoodoo.storage.store import Store


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
    """Columns of what `options` ask for, as the table has them now."""
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
