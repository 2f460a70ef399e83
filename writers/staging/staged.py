"""Staging of Spark DataFrames in temporary files.

A job evaluates the DataFrame once, and its tasks prepare the rows. Small results are sent to the driver and written in
this process. Large results are staged as Arrow files, and two more jobs route and write them. The driver then receives
only names and counts.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from hoodoo.engine.spark import (
    SparkEngine,
    dumps,
    ipc_bytes,
    ipc_table,
    loads,
    prepare_session,
    result,
    serialize_outcome,
)
from hoodoo.engine.spark_types import arrow_schema_of
from hoodoo.format.names import IS_DELETED
from hoodoo.readers.predicate.checks import Check
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.bad_rows import BadRows, no_bad_rows, separate_bad_rows, together
from hoodoo.writers.batches.batch import (
    Batch,
    BatchTerms,
    check_column_names,
    prepare_batch,
    remove_duplicate_keys,
)
from hoodoo.writers.batches.cast import require_fields_once
from hoodoo.writers.batches.evolution import find_changes_for_schema
from hoodoo.writers.batches.partial_columns import select_columns, taken_of
from hoodoo.writers.batches.write_options import WriteOptions
from hoodoo.writers.context import Context
from hoodoo.writers.merging.merge import MergeRowsInMemory, SourceRows
from hoodoo.writers.merging.merge_source import MergeSource, convert_source_columns
from hoodoo.writers.sources import InMemoryBatch, SparkPreparedRows
from hoodoo.writers.staging.staged_files import (
    TemporaryRowFile,
    discard,
    marked_with_keys,
    new_folder,
    stage,
    to_batch,
    to_table,
    without_staging_columns,
)
from hoodoo.writers.staging.staged_merge import MergeRowsStaged, StagedMerge
from hoodoo.writers.staging.staged_rows import StagedSource

IN_PROCESS_BYTES = 64 << 20
"""Maximum size of prepared rows that are written in this process."""
_INLINE_BYTES = 1 << 20  # a task with fewer bytes returns its rows instead of staging them
_CHUNK_BYTES = 128 << 20  # bytes of rows that a task holds before staging them


@contextmanager
def prepare_dataframe(
    context: Context, config: TableConfig, frame: Any, options: WriteOptions, checks: tuple[Check, ...]
) -> Iterator[tuple[Context, InMemoryBatch | StagedSource, BadRows]]:
    """Prepare a Spark DataFrame for a write.

    Deletes the staging folder at the end.
    """
    if options.delete:
        frame = select_dataframe_columns(frame, (*config.key, *config.partition_sources))
    schema = _frame_schema(frame, config)
    if options.columns is not None:
        frame = select_dataframe_columns(frame, taken_of(schema, config, options.columns))
        schema = _frame_schema(frame, config)
    evolution = find_changes_for_schema(schema, config.columns) if options.evolve else None
    context, options = replace(context, evolution=evolution), replace(options, zone=zone_of(frame))
    staging_config, checks = select_columns(schema, evolution.of(config) if evolution else config, options, checks)
    folder = new_folder()
    job = StagingJob.of(context.store, staging_config, folder, schema, options, checks, config.columns.last)
    try:
        collected = _prepare_on_spark(job, frame)
        bad = together([task_rows.bad for task_rows in collected])
        if prepared_size(collected) <= IN_PROCESS_BYTES:
            yield context, load_prepared_rows(job, collected), bad
        else:
            yield replace(context, engine=SparkEngine(frame.sparkSession)), all_staged(job, collected), bad
    finally:
        discard(context.store, folder)


def merge_schema(frame: Any, config: TableConfig) -> pa.Schema:
    """Return the schema of a merge source, after validation.

    The source is a Spark DataFrame. Raises ColumnError for an invalid or missing column, before any task starts.
    """
    empty = convert_source_columns(_frame_schema(frame, config).empty_table(), config)
    MergeSource.of(empty, config)
    return empty.schema


@contextmanager
def prepare_merge_dataframe(context: Context, config: TableConfig, frame: Any) -> Iterator[tuple[Context, SourceRows]]:
    """Prepare a Spark DataFrame for a merge.

    Call `merge_schema` first to validate the columns. Deletes the staging folder at the end.
    """
    job = MergeStagingJob(context.store, config, new_folder(), _frame_schema(frame, config), zone_of(frame))
    try:
        collected = _prepare_on_spark(job, frame)
        if prepared_size(collected) <= IN_PROCESS_BYTES:
            rows = [without_staging_columns(part) for task_rows in collected for part in task_rows.tables(job.store)]
            rows.append(convert_source_columns(job.schema.empty_table(), config))
            yield context, MergeRowsInMemory(MergeSource.of(pa.concat_tables(rows), config))
        else:
            source = StagedMerge(job.folder, _stage_all(job.store, job.folder, collected), MergeRowsStaged(config))
            yield replace(context, engine=SparkEngine(frame.sparkSession)), source
    finally:
        discard(context.store, job.folder)


def _frame_schema(frame: Any, config: TableConfig) -> pa.Schema:
    is_nothing = not frame.columns and frame.isEmpty()
    return config.schema if is_nothing else arrow_schema_of(frame.schema)


class TaskJob(Protocol):
    """Job whose Spark tasks prepare rows."""

    @property
    def store(self) -> Store: ...

    @property
    def folder(self) -> str: ...

    @property
    def schema(self) -> pa.Schema: ...

    def table_of(self, rows: pa.Table) -> tuple[pa.Table, int, BadRows]:
        """Prepare the rows of a task."""

    def has_too_many_bad_rows(self, bad: BadRows) -> bool: ...


@dataclass(frozen=True)
class MergeStagingJob:
    """Spark job that stages the rows of a merge.

    Attributes:
        store: The store of the table.
        config: The configuration of the table.
        folder: The staging folder.
        schema: The columns of the input rows.
        zone: The time zone of the Spark session.
    """

    store: Store
    config: TableConfig
    folder: str
    schema: pa.Schema
    zone: str

    def table_of(self, rows: pa.Table) -> tuple[pa.Table, int, BadRows]:
        sound = convert_source_columns(rows, self.config)
        keys = prepare_batch(sound, self.config, WriteOptions(delete=True, duplicates="each", zone=self.zone))
        return marked_with_keys(sound, keys), 0, no_bad_rows(0)

    def has_too_many_bad_rows(self, bad: BadRows) -> bool:
        return False


@dataclass(frozen=True)
class StagingJob:
    """Spark job that stages the rows of a write.

    Attributes:
        store: The store of the table.
        config: The table's configuration, with columns that the batch adds.
        folder: The staging folder.
        schema: The columns of the input rows.
        options: The options of the write.
        checks: The checks that the rows have to pass.
        terms: The terms of the prepared batch.
    """

    store: Store
    config: TableConfig
    folder: str
    schema: pa.Schema
    options: WriteOptions
    checks: tuple[Check, ...]
    terms: BatchTerms

    @classmethod
    def of(
        cls,
        store: Store,
        config: TableConfig,
        folder: str,
        schema: pa.Schema,
        options: WriteOptions,
        checks: tuple[Check, ...],
        settled: int,
    ) -> StagingJob:
        check_column_names(schema, config, options.delete, options.missing)
        for field in schema:
            require_fields_once(field.type, field.name)  # Spark cannot pass such structs to Python
        empty, _ = separate_bad_rows(schema.empty_table(), config, options, checks, settled)
        return cls(store, config, folder, schema, options, checks, empty.terms)

    def sifted(self, rows: pa.Table) -> tuple[Batch, BadRows]:
        return separate_bad_rows(rows, self.config, self.options, self.checks, self.terms.settled)

    def table_of(self, rows: pa.Table) -> tuple[pa.Table, int, BadRows]:
        batch, bad = self.sifted(rows)
        return to_table(batch), batch.stale, bad

    def has_too_many_bad_rows(self, bad: BadRows) -> bool:
        return bad.partial or (self.options.limits is not None and bad.count > self.options.limits.rows)


@dataclass(frozen=True)
class TaskRows:
    """Rows that a Spark task prepared.

    They are inline or in staged files. It also contains the number of stale rows, and the invalid rows.
    """

    partition: int
    inline: bytes
    pieces: list[TemporaryRowFile]
    stale: int
    bad: BadRows

    def tables(self, store: Store) -> list[pa.Table]:
        return [ipc_table(self.inline)] if self.inline else [piece.read(store) for piece in self.pieces]


def prepared_size(collected: Sequence[TaskRows]) -> int:
    return sum(len(task_rows.inline) for task_rows in collected) + sum(
        piece.bytes for task_rows in collected for piece in task_rows.pieces
    )


def load_prepared_rows(job: StagingJob, collected: Sequence[TaskRows]) -> InMemoryBatch:
    tables = [part for task_rows in collected for part in task_rows.tables(job.store)]
    if tables:
        batch = remove_duplicate_keys(to_batch(pa.concat_tables(tables), job.terms), job.config, job.options.duplicates)
    else:
        batch, _ = job.sifted(job.schema.empty_table())
    batch = replace(batch, stale=batch.stale + sum(task_rows.stale for task_rows in collected))
    return InMemoryBatch(batch, job.checks, together([task_rows.bad for task_rows in collected]))


def all_staged(job: StagingJob, collected: Sequence[TaskRows]) -> StagedSource:
    pieces = _stage_all(job.store, job.folder, collected)
    stale = sum(task_rows.stale for task_rows in collected)
    deletes = job.options.delete or IS_DELETED in job.schema.names
    return StagedSource(job.folder, pieces, job.terms, job.options.duplicates, stale, job.checks, deletes)


def collect_prepared_rows(job: StagingJob, collected: Sequence[TaskRows]) -> SparkPreparedRows:
    """Collect the rows that Spark tasks prepared.

    Small results are loaded into memory. Large results stay staged, so that each task of the write holds only the rows
    of some file groups.
    """
    bad = together([task_rows.bad for task_rows in collected])
    rows = (
        load_prepared_rows(job, collected)
        if prepared_size(collected) <= IN_PROCESS_BYTES
        else all_staged(job, collected)
    )
    return SparkPreparedRows(rows, bad)


def select_dataframe_columns(frame: Any, names: Sequence[str]) -> Any:
    """Select columns of a Spark DataFrame.

    If two names differ only in case, the columns are selected by index, because Spark cannot select them by name.
    """
    columns = frame.columns
    if len({name.lower() for name in columns if name.isascii()}) == len(columns):
        return frame.select(*(f"`{name}`" for name in columns if name in names))  # cheap with thousands of columns
    indexed = frame.toDF(*(f"c{index}" for index in range(len(columns))))
    indexes = [index for index, name in enumerate(columns) if name in names]
    return indexed.select(*(f"c{index}" for index in indexes)).toDF(*(columns[index] for index in indexes))


def zone_of(frame: Any) -> str:
    return str(frame.sparkSession.conf.get("spark.sql.session.timeZone"))


def _prepare_on_spark(job: TaskJob, frame: Any) -> list[TaskRows]:
    if not frame.columns:  # rows without columns raised an error earlier, so there are no rows
        return []
    prepare_session(frame.sparkSession)
    packed = dumps(functools.partial(prepare_task, job))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        work = loads(packed)
        yield pa.RecordBatch.from_pydict({"result": [serialize_outcome(lambda: work(batches))]})

    rows = frame.mapInArrow(run, "result binary").toArrow()["result"].to_pylist()
    return sorted((result(row) for row in rows), key=lambda task_rows: task_rows.partition)


def prepare_task(job: TaskJob, batches: Iterator[pa.RecordBatch]) -> TaskRows:
    """Prepare the rows of a Spark task.

    Large results are staged as files. Stops early if there are too many invalid rows.
    """
    from pyspark import TaskContext

    task_context = TaskContext.get()
    number = task_context.partitionId() if task_context else 0
    pieces: list[TemporaryRowFile] = []
    stale, last, bad = 0, b"", no_bad_rows(0)
    for chunk_number, chunk in enumerate(_chunks(batches, job.schema)):
        if last:
            pieces += stage(job.store, job.folder, ipc_table(last), (number, chunk_number - 1))
        rows, stale_rows, invalid = job.table_of(chunk)
        bad = together([bad, invalid])
        stale += stale_rows
        last = ipc_bytes(rows) if len(rows) else b""
        if job.has_too_many_bad_rows(bad):
            break
    if last and (pieces or len(last) > _INLINE_BYTES):
        pieces += stage(job.store, job.folder, ipc_table(last), (number, 1 << 30))
        last = b""
    return TaskRows(number, last, pieces, stale, bad)


def _chunks(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            pending.append(batch.cast(schema) if batch.schema != schema else batch)
            size += batch.nbytes
        if size > _CHUNK_BYTES:
            yield pa.Table.from_batches(pending)
            pending, size = [], 0
    if pending:
        yield pa.Table.from_batches(pending)


def _stage_all(store: Store, folder: str, collected: Sequence[TaskRows]) -> list[TemporaryRowFile]:
    return [piece for task_rows in collected for piece in (task_rows.pieces or _stage_inline(store, folder, task_rows))]


def _stage_inline(store: Store, folder: str, task_rows: TaskRows) -> list[TemporaryRowFile]:
    return stage(store, folder, ipc_table(task_rows.inline), (task_rows.partition, 0)) if task_rows.inline else []


__all__ = [
    "IN_PROCESS_BYTES",
    "TaskRows",
    "StagingJob",
    "all_staged",
    "prepared_size",
    "discard",
    "load_prepared_rows",
    "collect_prepared_rows",
    "merge_schema",
    "new_folder",
    "prepare_task",
    "prepare_dataframe",
    "prepare_merge_dataframe",
]
