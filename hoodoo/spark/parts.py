"""Parts of a read, one per Spark task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from hoodoo.engine.spark import BATCH_ROWS
from hoodoo.engine.spark_types import arrow_schema_of, schema_to_ddl
from hoodoo.errors import CorruptTable, SchemaError
from hoodoo.readers.cursor import Cursor
from hoodoo.readers.output import Rows
from hoodoo.readers.task import Task
from hoodoo.spark.source_options import CHANGES, INCREMENTAL, READ_OPTIMIZED, ReadOptions
from hoodoo.storage.store import Store
from hoodoo.table import Table


def start_read(table: Table, options: ReadOptions, until: int | None = None) -> Any:
    """Start the read that the Spark options describe.

    Args:
        table: The table.
        options: The read options.
        until: The slot at which the read ends, if it is already fixed. None (default): the slot in `options`.

    Returns:
        The read, as returned by the methods of the table.

    Raises:
        HoodooError: Any error that the table method raises.
    """
    columns = None if options.columns is None else list(options.columns)
    given = options.until if options.mode in (INCREMENTAL, CHANGES) else options.as_of
    end = given if until is None else Cursor(table.cursor.table, until)
    since = options.since or "earliest"
    if options.mode == INCREMENTAL:
        return table.incremental(
            since, end, columns=columns, where=options.where, meta=options.meta, deletes=options.deletes
        )
    if options.mode == CHANGES:
        return table.changes(since, end, columns=columns, where=options.where, versions=options.versions)
    return table.scan(
        columns, where=options.where, as_of=end, read_optimized=options.mode == READ_OPTIMIZED, meta=options.meta
    )


def get_read_schema(table: Table, options: ReadOptions) -> pa.Schema:
    """Return the schema of a Spark read.

    Args:
        table: The table.
        options: The read options. Positions in them are ignored.

    Returns:
        The schema.
    """
    return start_read(table, ReadOptions(**{**vars(options), "since": None, "until": None, "as_of": None})).schema


def require_schema(schema: pa.Schema, asked: str) -> None:
    """Check that Spark expects the columns of the read.

    Args:
        schema: The columns that the table returns.
        asked: The columns that Spark expects, as a DDL string.

    Raises:
        SchemaError: The columns differ.
    """
    if schema_to_ddl(schema) != asked:
        raise SchemaError(
            f"Spark expects the columns {asked}, but the table has {schema_to_ddl(schema)}. Load it again without "
            "schema(...), and choose columns with the option columns."
        )


def commits_to_keep_readable(table: Table, options: ReadOptions, until: int) -> tuple[int, ...]:
    """Return the commits that a read needs.

    Args:
        table: The table.
        options: The read options.
        until: The slot at which the read ends.

    Returns:
        The slots.
    """
    both = options.mode == CHANGES or options.mode == INCREMENTAL and options.deletes
    since = table.handle.slot_of(table.handle.history, options.since or "earliest", exclusive=True) if both else 0
    return (since, until) if since else (until,)


class ReadPart(InputPartition):
    """Part of a table read that one Spark task runs.

    Attributes:
        task: The read task, or None for an empty part.
        store: The store of the table.
        slots: The slots whose snapshots the read needs.
    """

    def __init__(self, task: Task | None, store: Store | None, slots: tuple[int, ...]) -> None:
        super().__init__(None)
        self.task, self.store, self.slots = task, store, slots


def split_read(rows: Rows, table: Table, slots: tuple[int, ...]) -> list[ReadPart]:
    """Split a table read into one part per Spark task.

    Args:
        rows: The table read.
        table: The table.
        slots: The slots whose snapshots the read needs.

    Returns:
        One Spark partition for each task of the read.
    """
    return [ReadPart(task, table.handle.store, slots) for task in rows.tasks()]


def read_part(part: InputPartition, schema: Any) -> Iterator[pa.RecordBatch]:
    """Read the rows of one Spark task.

    Args:
        part: The Spark partition. The placeholder that Spark creates for an empty read yields no rows.
        schema: The columns, as a Spark StructType.

    Yields:
        The next batch.

    Raises:
        SnapshotExpired: Cleaning deleted files of a snapshot that the read needs.
        CorruptTable: A file is damaged.
    """
    if not isinstance(part, ReadPart) or part.task is None or part.store is None:
        return  # placeholder that Spark creates for an empty read
    fitting = arrow_schema_of(schema)
    try:
        for rows in part.task.stream(BATCH_ROWS):
            yield from rows.cast(fitting).to_batches(BATCH_ROWS)
    except CorruptTable:
        history = Table(part.store).handle.history
        for slot in part.slots:
            history.require_readable(slot)
        raise
