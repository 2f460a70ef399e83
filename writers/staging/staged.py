"""A Spark DataFrame as rows to write. Its plan runs once: one job prepares rows in its tasks; small results come back
and are written in this process; large ones are staged as Arrow files, which two more jobs route and write. Only names
and counts travel to the driver.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from hoodoo.engine.spark import SparkEngine, dumps, ipc_bytes, ipc_table, loads, outcome, prepare_session, result
from hoodoo.engine.spark_types import arrow_schema_of
from hoodoo.format.names import IS_DELETED
from hoodoo.readers.predicate.checks import Check
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.bad_rows import BadRows, none_of, sifted, together
from hoodoo.writers.batches.batch import Batch, Terms, check_columns, one_row_per_key, prepare
from hoodoo.writers.batches.cast import require_fields_once
from hoodoo.writers.batches.evolution import of_schema
from hoodoo.writers.batches.partial_columns import asked, taken_of
from hoodoo.writers.batches.write_options import WriteOptions
from hoodoo.writers.context import Context
from hoodoo.writers.merging.merge import InMemory, SourceRows
from hoodoo.writers.merging.merge_source import MergeSource, source_rows
from hoodoo.writers.sources import InProcess, Prepared
from hoodoo.writers.staging.staged_files import (
    Piece,
    discard,
    marked_with_keys,
    new_folder,
    stage,
    to_batch,
    to_table,
    unmarked,
)
from hoodoo.writers.staging.staged_merge import MergeRowsStaged, StagedMerge
from hoodoo.writers.staging.staged_rows import StagedSource

IN_PROCESS_BYTES = 64 << 20
"""Prepared batches up to this size are written in this process."""
_INLINE_BYTES = 1 << 20  # a task with less than this sends its rows back instead of staging them
_CHUNK_BYTES = 128 << 20  # rows a task holds before it stages them


@contextmanager
def staged(
    context: Context, config: TableConfig, frame: Any, options: WriteOptions, checks: tuple[Check, ...]
) -> Iterator[tuple[Context, InProcess | StagedSource, BadRows]]:
    """Prepare `frame`, a Spark DataFrame: the context and source to write it with, and its bad rows. Its staging folder
    is gone afterwards.
    """
    if options.delete:
        frame = only(frame, (*config.key, *config.placing))
    schema = _schema_of(frame, config)
    if options.columns is not None:
        frame = only(frame, taken_of(schema, config, options.columns))
        schema = _schema_of(frame, config)
    evolution = of_schema(schema, config.columns) if options.evolve else None
    context, options = replace(context, evolution=evolution), replace(options, zone=zone_of(frame))
    wanted, checks = asked(schema, evolution.of(config) if evolution else config, options, checks)
    folder = new_folder()
    job = StagingJob.of(context.store, wanted, folder, schema, options, checks, config.columns.last)
    try:
        collected = _prepare_on_spark(job, frame)
        bad = together([one.bad for one in collected])
        if bytes_of(collected) <= IN_PROCESS_BYTES:
            yield context, fetched(job, collected), bad
        else:
            yield replace(context, engine=SparkEngine(frame.sparkSession)), all_staged(job, collected), bad
    finally:
        discard(context.store, folder)


def merge_schema(frame: Any, config: TableConfig) -> pa.Schema:
    """The columns of `frame`, a Spark DataFrame, as the source of a merge.

    Raises ColumnError for columns that no source can have, or lacks: no task need be started for it.
    """
    nothing = source_rows(_schema_of(frame, config).empty_table(), config)
    MergeSource.of(nothing, config)
    return nothing.schema


@contextmanager
def staged_for_merge(context: Context, config: TableConfig, frame: Any) -> Iterator[tuple[Context, SourceRows]]:
    """Take `frame`, a Spark DataFrame that `merge_schema` lets pass, for the source of a merge: the context and source
    to merge it with. Its staging folder is gone afterwards.
    """
    job = MergeStagingJob(context.store, config, new_folder(), _schema_of(frame, config), zone_of(frame))
    try:
        collected = _prepare_on_spark(job, frame)
        if bytes_of(collected) <= IN_PROCESS_BYTES:
            rows = [unmarked(part) for one in collected for part in one.tables(job.store)]
            rows.append(source_rows(job.schema.empty_table(), config))
            yield context, InMemory(MergeSource.of(pa.concat_tables(rows), config))
        else:
            source = StagedMerge(job.folder, _pieces(job.store, job.folder, collected), MergeRowsStaged(config))
            yield replace(context, engine=SparkEngine(frame.sparkSession)), source
    finally:
        discard(context.store, job.folder)


def _schema_of(frame: Any, config: TableConfig) -> pa.Schema:
    """The columns of `frame`, as Arrow has them; where it has none and no row, which says nothing of columns, as an
    empty list, those of the table.
    """
    is_nothing = not frame.columns and frame.isEmpty()
    return config.schema if is_nothing else arrow_schema_of(frame.schema)


class TaskJob(Protocol):
    """What tasks know that prepare and stage rows of a DataFrame."""

    @property
    def store(self) -> Store:
        """The store of the table."""

    @property
    def folder(self) -> str:
        """The folder in which rows are staged."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows that come in."""

    def table_of(self, rows: pa.Table) -> tuple[pa.Table, int, BadRows]:
        """Return what is staged of `rows`, how many of them were stale, and the bad ones."""

    def is_refused(self, bad: BadRows) -> bool:
        """Tell whether more rows are bad than may be, so that nobody need look at others."""


@dataclass(frozen=True)
class MergeStagingJob:
    """What the tasks know that stage the source of a merge.

    Attributes:
        store: The store of the table.
        config: The configuration of the table.
        folder: The folder in which rows are staged.
        schema: The columns of the rows that come in.
        zone: The time zone of the session.
    """

    store: Store
    config: TableConfig
    folder: str
    schema: pa.Schema
    zone: str

    def table_of(self, rows: pa.Table) -> tuple[pa.Table, int, BadRows]:
        """See `TaskJob`."""
        sound = source_rows(rows, self.config)
        keys = prepare(sound, self.config, WriteOptions(delete=True, duplicates="each", zone=self.zone))
        return marked_with_keys(sound, keys), 0, none_of(0)

    def is_refused(self, bad: BadRows) -> bool:
        """See `TaskJob`."""
        return False


@dataclass(frozen=True)
class StagingJob:
    """What the tasks of a write know.

    Attributes:
        store: The store of the table.
        config: The configuration of the table, as the batch wants it.
        folder: The folder in which rows are staged.
        schema: The columns of the rows that come in.
        options: How the batch is to be prepared.
        checks: What the rows have to fulfil.
        terms: The terms of the batch that the rows become.
    """

    store: Store
    config: TableConfig
    folder: str
    schema: pa.Schema
    options: WriteOptions
    checks: tuple[Check, ...]
    terms: Terms

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
        """settled: the largest id of a column that the table has by now. Raises what its columns alone give cause for,
        which no task need be started for.
        """
        check_columns(schema, config, options.delete, options.missing)
        for field in schema:
            require_fields_once(field.type, field.name)  # Spark hands no such structs to Python
        nothing, _ = sifted(schema.empty_table(), config, options, checks, settled)
        return cls(store, config, folder, schema, options, checks, nothing.terms)

    def sifted(self, rows: pa.Table) -> tuple[Batch, BadRows]:
        """The batch of the good ones among `rows`, some of those that come in, and the bad ones."""
        return sifted(rows, self.config, self.options, self.checks, self.terms.settled)

    def table_of(self, rows: pa.Table) -> tuple[pa.Table, int, BadRows]:
        """See `TaskJob`."""
        batch, bad = self.sifted(rows)
        return to_table(batch), batch.stale, bad

    def is_refused(self, bad: BadRows) -> bool:
        """See `TaskJob`."""
        return bad.partial or (self.options.limits is not None and bad.count > self.options.limits.rows)


@dataclass(frozen=True)
class TaskRows:
    """What a preparing task returns: its rows, or where they are staged, and the rows that were held back."""

    partition: int
    inline: bytes
    pieces: list[Piece]
    stale: int
    bad: BadRows

    def tables(self, store: Store) -> list[pa.Table]:
        return [ipc_table(self.inline)] if self.inline else [piece.read(store) for piece in self.pieces]


def bytes_of(collected: Sequence[TaskRows]) -> int:
    """How much was prepared, sent back or staged."""
    return sum(len(one.inline) for one in collected) + sum(piece.bytes for one in collected for piece in one.pieces)


def fetched(job: StagingJob, collected: Sequence[TaskRows]) -> InProcess:
    """What tasks prepared, as one batch in this process."""
    tables = [part for one in collected for part in one.tables(job.store)]
    if tables:
        batch = one_row_per_key(to_batch(pa.concat_tables(tables), job.terms), job.config, job.options.duplicates)
    else:
        batch, _ = job.sifted(job.schema.empty_table())
    batch = replace(batch, stale=batch.stale + sum(one.stale for one in collected))
    return InProcess(batch, job.checks, together([one.bad for one in collected]))


def all_staged(job: StagingJob, collected: Sequence[TaskRows]) -> StagedSource:
    """What tasks prepared, with all of it staged."""
    pieces = _pieces(job.store, job.folder, collected)
    stale = sum(one.stale for one in collected)
    deletes = job.options.delete or IS_DELETED in job.schema.names
    return StagedSource(job.folder, pieces, job.terms, job.options.duplicates, stale, job.checks, deletes)


def gathered(job: StagingJob, collected: Sequence[TaskRows]) -> Prepared:
    """What tasks prepared, for a write in this process: in memory, or, where it is large, staged, so that each task of
    the write holds the rows of some file groups only.
    """
    bad = together([one.bad for one in collected])
    rows = fetched(job, collected) if bytes_of(collected) <= IN_PROCESS_BYTES else all_staged(job, collected)
    return Prepared(rows, bad)


def only(frame: Any, names: Sequence[str]) -> Any:
    """`frame` with the columns of these names, each as often as it is there. By number where two may differ in nothing
    but case: by name Spark takes neither of them.
    """
    there = frame.columns
    if len({name.lower() for name in there if name.isascii()}) == len(there):
        return frame.select(*(f"`{name}`" for name in there if name in names))  # cheap with thousands of columns
    numbered = frame.toDF(*(f"c{number}" for number in range(len(there))))
    numbers = [number for number, name in enumerate(there) if name in names]
    return numbered.select(*(f"c{number}" for number in numbers)).toDF(*(there[number] for number in numbers))


def zone_of(frame: Any) -> str:
    """Return the time zone of the session of a Spark DataFrame."""
    return str(frame.sparkSession.conf.get("spark.sql.session.timeZone"))


def _prepare_on_spark(job: TaskJob, frame: Any) -> list[TaskRows]:
    if not frame.columns:  # no rows either, or they had been refused
        return []
    prepare_session(frame.sparkSession)
    packed = dumps(functools.partial(prepare_task, job))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        work = loads(packed)
        yield pa.RecordBatch.from_pydict({"result": [outcome(lambda: work(batches))]})

    rows = frame.mapInArrow(run, "result binary").toArrow()["result"].to_pylist()
    return sorted((result(row) for row in rows), key=lambda one: one.partition)


def prepare_task(job: TaskJob, batches: Iterator[pa.RecordBatch]) -> TaskRows:
    """Prepare this task's rows, chunk by chunk, and stage them unless they are few. Once more are bad than may be, no
    further row is looked at.
    """
    from pyspark import TaskContext

    here = TaskContext.get()
    number = here.partitionId() if here else 0
    pieces: list[Piece] = []
    stale, last, bad = 0, b"", none_of(0)
    for chunk_number, chunk in enumerate(_chunks(batches, job.schema)):
        if last:
            pieces += stage(job.store, job.folder, ipc_table(last), (number, chunk_number - 1))
        rows, lost, held_back = job.table_of(chunk)
        bad = together([bad, held_back])
        stale += lost
        last = ipc_bytes(rows) if len(rows) else b""
        if job.is_refused(bad):
            break
    if last and (pieces or len(last) > _INLINE_BYTES):
        pieces += stage(job.store, job.folder, ipc_table(last), (number, 1 << 30))
        last = b""
    return TaskRows(number, last, pieces, stale, bad)


def _chunks(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch.cast(schema) if batch.schema != schema else batch)
            size += batch.nbytes
        if size > _CHUNK_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _pieces(store: Store, folder: str, collected: Sequence[TaskRows]) -> list[Piece]:
    """What tasks prepared, all of it staged."""
    return [piece for one in collected for piece in (one.pieces or _stage_inline(store, folder, one))]


def _stage_inline(store: Store, folder: str, one: TaskRows) -> list[Piece]:
    return stage(store, folder, ipc_table(one.inline), (one.partition, 0)) if one.inline else []


__all__ = [
    "IN_PROCESS_BYTES",
    "TaskRows",
    "StagingJob",
    "all_staged",
    "bytes_of",
    "discard",
    "fetched",
    "gathered",
    "merge_schema",
    "new_folder",
    "prepare_task",
    "staged",
    "staged_for_merge",
]
