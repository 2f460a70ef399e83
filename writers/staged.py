"""A Spark DataFrame as rows to write. Its plan runs once: one job prepares rows in its tasks; small results come back
and are written in this process; large ones are staged as Arrow files, which two more jobs route and write. Only names
and counts travel to the driver.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from hoodoo.engine.spark import SparkEngine, dumps, ipc_bytes, ipc_table, loads, outcome, prepare_session, result
from hoodoo.engine.spark_types import arrow_schema_of
from hoodoo.storage.store import Store
from hoodoo.timeline.config import TableConfig
from hoodoo.writers.batch import check_columns, one_row_per_key, prepare
from hoodoo.writers.operations import Context, InProcess, Source
from hoodoo.writers.staged_rows import Staged
from hoodoo.writers.staging import Piece, discard, new_folder, stage, to_batch, to_table

IN_PROCESS_BYTES = 64 << 20
"""Prepared batches up to this size are written in this process."""
_INLINE_BYTES = 1 << 20  # a task with less than this sends its rows back instead of staging them
_CHUNK_BYTES = 128 << 20  # rows a task holds before it stages them


@contextmanager
def staged(
    context: Context, config: TableConfig, frame: Any, delete: bool, duplicates: str
) -> Iterator[tuple[Context, Source]]:
    """The context and source to write `frame` (a Spark DataFrame) with. Its staging folder is gone afterwards."""
    folder = new_folder()
    spark = frame.sparkSession
    try:
        collected = _prepare_on_spark(context.store, config, frame, folder, delete, duplicates)
        if bytes_of(collected) <= IN_PROCESS_BYTES:
            yield context, fetched(context.store, config, collected, delete, duplicates)
        else:
            pieces = [piece for one in collected for piece in (one.pieces or _stage_inline(context.store, folder, one))]
            stale = sum(one.stale for one in collected)
            yield replace(context, engine=SparkEngine(spark)), Staged(folder, pieces, delete, duplicates, stale)
    finally:
        discard(context.store, folder)


@dataclass(frozen=True)
class Collected:
    """What a preparing task gives: its rows, or where they are."""

    partition: int
    inline: bytes
    pieces: list[Piece]
    stale: int

    def tables(self, store: Store) -> list[pa.Table]:
        return [ipc_table(self.inline)] if self.inline else [piece.read(store) for piece in self.pieces]


def bytes_of(collected: Sequence[Collected]) -> int:
    """How much was prepared, sent back or staged."""
    return sum(len(one.inline) for one in collected) + sum(piece.bytes for one in collected for piece in one.pieces)


def fetched(
    store: Store, config: TableConfig, collected: Sequence[Collected], delete: bool, duplicates: str
) -> InProcess:
    """What tasks prepared, as one batch in this process."""
    tables = [part for one in collected for part in one.tables(store)]
    batch = to_batch(pa.concat_tables(tables), delete) if tables else prepare(config.schema.empty_table(), config)
    batch = one_row_per_key(batch, config, duplicates)
    return InProcess(replace(batch, stale=batch.stale + sum(one.stale for one in collected)))


def _prepare_on_spark(
    store: Store, config: TableConfig, frame: Any, folder: str, delete: bool, duplicates: str
) -> list[Collected]:
    schema = arrow_schema_of(frame.schema)
    check_columns(schema, config, delete)
    if delete:
        frame = frame.select(*dict.fromkeys((*config.key, *config.partition_by)))
        schema = arrow_schema_of(frame.schema)
    prepare_session(frame.sparkSession)
    packed = dumps(functools.partial(prepare_task, store, config, folder, schema, delete, duplicates))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        work = loads(packed)
        yield pa.RecordBatch.from_pydict({"result": [outcome(lambda: work(batches))]})

    rows = frame.mapInArrow(run, "result binary").toArrow()["result"].to_pylist()
    return sorted((result(row) for row in rows), key=lambda one: one.partition)


def prepare_task(
    store: Store,
    config: TableConfig,
    folder: str,
    schema: pa.Schema,
    delete: bool,
    duplicates: str,
    batches: Iterator[pa.RecordBatch],
) -> Collected:
    """Prepare this task's rows, chunk by chunk, and stage them unless they are few."""
    from pyspark import TaskContext

    here = TaskContext.get()
    number = here.partitionId() if here else 0
    pieces: list[Piece] = []
    stale, last = 0, b""
    for chunk_number, chunk in enumerate(_chunks(batches, schema)):
        if last:
            pieces += stage(store, folder, ipc_table(last), (number, chunk_number - 1))
        batch = prepare(chunk, config, delete, duplicates)
        stale += batch.stale
        last = ipc_bytes(to_table(batch)) if len(batch) else b""
    if last and (pieces or len(last) > _INLINE_BYTES):
        pieces += stage(store, folder, ipc_table(last), (number, 1 << 30))
        last = b""
    return Collected(number, last, pieces, stale)


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


def _stage_inline(store: Store, folder: str, one: Collected) -> list[Piece]:
    return stage(store, folder, ipc_table(one.inline), (one.partition, 0)) if one.inline else []


__all__ = ["IN_PROCESS_BYTES", "Collected", "bytes_of", "discard", "fetched", "new_folder", "prepare_task", "staged"]
