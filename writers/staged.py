"""A Spark DataFrame as rows to write. Its plan runs once: one job prepares rows in its tasks; small results come back
and are written in this process; large ones are staged as Arrow files, which two more jobs route and write. No other
shuffle.

Staged rows lie in `.hoodie/.hoodoo/staging/<nonce>/`, one record batch per partition path in order of key hash, so that
a routing task reads just its partition and its range of hashes. Only names and counts travel to the driver.
"""

from __future__ import annotations

import functools
import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.engine.spark import SparkEngine, dumps, ipc_bytes, ipc_table, loads, outcome, prepare_session, result
from hoodoo.engine.spark_types import arrow_schema_of
from hoodoo.errors import EngineError
from hoodoo.format.names import RECORD_KEY
from hoodoo.format.rows import compact, take
from hoodoo.index import index_of
from hoodoo.index.key_index import NOWHERE, Located
from hoodoo.merge.changes import Changes
from hoodoo.storage.store import Store
from hoodoo.timeline import keyset
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.layout import STAGING
from hoodoo.timeline.view import FileGroup, View
from hoodoo.writers.batch import STAGED_PARTITION, Batch, check_columns, one_row_per_key, prepare
from hoodoo.writers.homes import homes
from hoodoo.writers.operations import Context, InProcess, Source, WritePlan, groups_of, key_exists, rows_that_exist
from hoodoo.writers.route import (
    APPEND,
    NEW,
    REWRITE,
    Assignment,
    base_bytes,
    group_to_fill,
    needs_base,
    new_file_id,
    require_no_plan,
)

IN_PROCESS_BYTES = 64 << 20
"""Prepared batches up to this size are written in this process."""
_INLINE_BYTES = 1 << 20  # a task with less than this sends its rows back instead of staging them
_CHUNK_BYTES = 128 << 20  # rows a task holds before it stages them
_ROUTE_BYTES = 128 << 20  # rows one routing task takes
_PIECE_ROWS = 65_536  # new rows are routed in pieces of this size, so that file groups can be packed from whole pieces
# rows of one partition beyond this are staged in ranges of hashes, so that each routing task reads only its own
_CUT_BYTES = 32 << 20
_CUTS = 64  # a power of two, as the number of routing tasks of a partition is
_HASH_MAX = (1 << 64) - 1
_PARTITION, _HASH, _DELETE = STAGED_PARTITION, "_hoodoo_hash", "_hoodoo_delete"


@dataclass(frozen=True)
class Piece:
    """One record batch of a staged file: rows of one partition path. order: place of its rows among all rows of the
    DataFrame.
    """

    key: str
    number: int
    partition: str
    rows: int
    bytes: int
    order: tuple[int, int] = (0, 0)
    low: int = 0
    high: int = _HASH_MAX

    def read(self, store: Store) -> pa.Table:
        with store.open_input(self.key) as source:
            table = pa.Table.from_batches([pa.ipc.open_file(source).get_batch(self.number)])
        return table.set_column(
            table.schema.get_field_index(_PARTITION), _PARTITION, table[_PARTITION].dictionary_encode()
        )


def to_table(batch: Batch) -> pa.Table:
    """A batch as one Arrow table, for the way between tasks."""
    paths = pa.DictionaryArray.from_arrays(pa.array(batch.codes), pa.array(batch.partitions, pa.string()))
    return (
        batch.rows.append_column(_PARTITION, paths)
        .append_column(_HASH, pa.array(batch.hashes))
        .append_column(_DELETE, pa.array(batch.delete))
    )


def to_batch(table: pa.Table, unconditional: bool) -> Batch:
    """Inverse of `to_table`, for any concatenation of such tables."""
    paths = (
        table[_PARTITION].unify_dictionaries().combine_chunks()
        if len(table)
        else pa.array([], pa.string()).dictionary_encode()
    )
    rows = compact(table.drop_columns([_PARTITION, _HASH, _DELETE]))
    codes = paths.indices.to_numpy().astype(np.int32)
    return Batch(
        rows,
        table[_HASH].to_numpy(),
        paths.dictionary.to_pylist(),
        codes,
        table[_DELETE].to_numpy().astype(bool),
        unconditional,
    )


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


def new_folder() -> str:
    """A staging folder of its own for one write."""
    return f"{STAGING}{secrets.token_hex(16)}/"


def discard(store: Store, folder: str) -> None:
    """Delete what was staged in `folder`."""
    for key, _ in list(store.list(folder)):
        store.delete(key)


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
            pieces += _stage(store, folder, ipc_table(last), (number, chunk_number - 1))
        batch = prepare(chunk, config, delete, duplicates)
        stale += batch.stale
        last = ipc_bytes(to_table(batch)) if len(batch) else b""
    if last and (pieces or len(last) > _INLINE_BYTES):
        pieces += _stage(store, folder, ipc_table(last), (number, 1 << 30))
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
    return _stage(store, folder, ipc_table(one.inline), (one.partition, 0)) if one.inline else []


def _stage(store: Store, folder: str, table: pa.Table, order: tuple[int, int]) -> list[Piece]:
    """Write `table` as one record batch per partition path, each in ascending order of hash. A retried task writes a
    file of its own.
    """
    batch = to_batch(table, False)
    ranked = np.lexsort((batch.hashes, batch.codes))
    codes, starts = np.unique(batch.codes[ranked], return_index=True)
    parts, marks = [], []
    for code, places in zip(codes.tolist(), np.split(ranked, starts[1:]), strict=True):
        part = take(table, places)
        for low, high in _ranges(_CUTS if part.nbytes > _CUT_BYTES else 1):
            cut = _in_range(part, low, high)
            if len(cut):
                parts.append(cut)
                marks.append({"partition": batch.partitions[code], "order": order, "low": low, "high": high})
    return [replace(piece, **mark) for piece, mark in zip(_write_batches(store, folder, parts), marks, strict=True)]


def _ranges(count: int) -> list[tuple[int, int]]:
    """All 64-bit hashes in `count` equal ranges, both ends included."""
    edges = [(1 << 64) * i // count for i in range(count + 1)]
    return [(low, high - 1) for low, high in zip(edges, edges[1:], strict=False)]


def _write_batches(store: Store, folder: str, parts: Sequence[pa.Table]) -> list[Piece]:
    if not parts:
        return []
    key = folder + secrets.token_hex(16)
    plain = [
        part.set_column(part.schema.get_field_index(_PARTITION), _PARTITION, part[_PARTITION].cast(pa.string()))
        for part in parts
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, plain[0].schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        for part in plain:
            writer.write_batch(_one_batch(part))
    store.put_if_absent(key, sink.getvalue(), durable=False)
    return [Piece(key, number, "", len(part), part.nbytes) for number, part in enumerate(plain)]


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise EngineError(
            f"{len(table)} rows that belong together take more than 2 GiB of text, which one staged batch cannot hold. "
            "Write the DataFrame in several parts."
        )
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _read(store: Store, pieces: Sequence[Piece]) -> pa.Table:
    return pa.concat_tables([piece.read(store) for piece in pieces])


@dataclass(frozen=True)
class RouteTask:
    """Rows of one partition path in one range of hashes: dedupe, locate, split by file group, stage again."""

    store: Store
    config: TableConfig
    folder: str
    partition: str
    low: int
    high: int
    pieces: tuple[Piece, ...]
    groups: tuple[FileGroup, ...]
    unconditional: bool
    duplicates: str
    # '' upsert; 'fail' or 'keep': insert, by what to do with keys that exist; 'place': do not look at what is there
    insert: str


@dataclass(frozen=True)
class Routed:
    """Rows for one known file group (by file id), or a piece of new rows ('')."""

    partition: str
    file_id: str
    piece: Piece
    needs_base: bool


@dataclass
class RouteResult:
    routed: list[Routed] = field(default_factory=list)
    stale: int = 0
    inserted: tuple[keyset.Reference, ...] = ()
    updated: tuple[keyset.Reference, ...] = ()
    reads: frozenset[str] = frozenset()
    searched: frozenset[str] = frozenset()


def run_route(task: RouteTask) -> RouteResult:
    """Route the rows of `task`. Raises KeyExists, DuplicateKeys."""
    ranges = [_in_range(piece.read(task.store), task.low, task.high) for piece in task.pieces]
    batch = one_row_per_key(to_batch(pa.concat_tables(ranges), task.unconditional), task.config, task.duplicates)
    view = View(partitions={task.partition: {group.file_id: group for group in task.groups}})
    inserts = task.insert in ("fail", "keep")
    located = homes(task.store, task.config, index_of(task.store), view, batch, compare_all=inserts)
    stale = batch.stale
    if inserts:
        there = rows_that_exist(task.store, task.config, batch, located)
        if there.any() and task.insert == "fail":
            raise key_exists(batch.rows[RECORD_KEY].filter(pa.array(there)))
        left = np.flatnonzero(~there)
        result = _split(task, batch.take(left), located.take(left), stale)
        kept = _save(task, f"{secrets.token_hex(8)}.kept", batch.hashes[there])
        return replace(result, updated=(*result.updated, *kept), reads=groups_of(located, there))
    return _split(task, batch, located, stale)


def _in_range(table: pa.Table, low: int, high: int) -> pa.Table:
    hashes = table[_HASH].to_numpy()
    start, end = (
        np.searchsorted(hashes, np.array([low], np.uint64))[0],
        np.searchsorted(hashes, np.array([high], np.uint64), side="right")[0],
    )
    return table.slice(int(start), int(end - start))


def _split(task: RouteTask, batch: Batch, located: Located, stale: int) -> RouteResult:
    table, parts, marks = to_table(batch), [], []
    fresh = np.flatnonzero((located.group == NOWHERE) & ~batch.delete)
    at_once = _piece_rows(table, task.config.options.target_file_bytes)
    for start in range(0, len(fresh), at_once):
        parts.append(take(table, fresh[start : start + at_once]))
        marks.append(("", False))
    for number in np.unique(located.group[located.group != NOWHERE]).tolist():
        places = np.flatnonzero(located.group == number)
        parts.append(take(table, places))
        marks.append((located.groups[number].file_id, needs_base(batch, located, places, task.config)))
    pieces = _write_batches(task.store, task.folder, parts)
    at_home = located.group != NOWHERE
    name = secrets.token_hex(8)
    return RouteResult(
        [
            Routed(task.partition, file_id, replace(piece, partition=task.partition), base)
            for (file_id, base), piece in zip(marks, pieces, strict=True)
        ],
        stale,
        _save(task, f"{name}.in", batch.hashes),
        _save(task, f"{name}.up", batch.hashes[~batch.delete & at_home]),
        searched=located.searched,
    )


def _piece_rows(table: pa.Table, target: int) -> int:
    """Rows of a piece: fewer where rows are so large that a file would hold fewer."""
    return max(1, min(_PIECE_ROWS, int(target * len(table) / max(1, table.nbytes))))


def _save(task: RouteTask, name: str, hashes: np.ndarray) -> tuple[keyset.Reference, ...]:
    return keyset.save(task.store, name, hashes, task.folder)


@dataclass(frozen=True)
class StagedRows:
    """The changes of one assignment, read from staging where its task runs."""

    store: Store
    pieces: tuple[Piece, ...]
    unconditional: bool
    by_key: bool = False

    def __call__(self) -> Changes:
        batch = to_batch(_read(self.store, self.pieces), self.unconditional)
        if self.by_key:
            batch = batch.take(pc.sort_indices(batch.rows[RECORD_KEY]).to_numpy())
        return Changes(
            batch.rows,
            batch.delete,
            batch.delete if self.unconditional else np.zeros(len(batch), bool),
            hashes=batch.hashes,
        )


@dataclass(frozen=True)
class Staged:
    """Prepared rows in staging; a Source that routes on Spark."""

    folder: str
    pieces: list[Piece]
    unconditional: bool
    duplicates: str
    stale: int

    def partitions_used(self) -> list[str]:
        return sorted({piece.partition for piece in self.pieces})

    def upsert(self, context: Context, view: View, config: TableConfig) -> WritePlan | None:
        return self._proposal(context, view, config, "")

    def insert(self, context: Context, view: View, config: TableConfig, existing: str, bulk: bool) -> WritePlan | None:
        return self._proposal(context, view, config, existing, fill=not bulk)

    def place(self, context: Context, view: View, config: TableConfig) -> WritePlan:
        return self._proposal(context, replace(view, partitions={}), config, "place", fill=False)

    def _proposal(self, context: Context, view: View, config: TableConfig, insert: str, fill: bool = True) -> WritePlan:
        results = context.engine.map(run_route, self._tasks(context, view, config, insert))
        assignments = self._assignments(
            context, view, config, [routed for one in results for routed in one.routed], fill
        )
        entries = context.index.key_hashes
        return WritePlan(
            assignments,
            lambda: keyset.load(context.store, [reference for one in results for reference in one.inserted], entries),
            lambda: keyset.load(context.store, [reference for one in results for reference in one.updated], entries),
            reads=frozenset().union(*(one.reads for one in results)),
            searched=frozenset().union(*(one.searched for one in results)),
            stale=self.stale + sum(one.stale for one in results),
        )

    def _tasks(self, context: Context, view: View, config: TableConfig, insert: str) -> list[RouteTask]:
        tasks = []
        for partition in self.partitions_used():
            mine = tuple(
                sorted((piece for piece in self.pieces if piece.partition == partition), key=lambda piece: piece.order)
            )
            parts = max(1, math.ceil(sum(piece.bytes for piece in mine) / _ROUTE_BYTES))
            groups = tuple(view.groups([partition]))
            for low, high in _ranges(min(_CUTS, 1 << (parts - 1).bit_length())):
                own = tuple(piece for piece in mine if piece.low <= high and low <= piece.high)
                if own:
                    rows = (partition, low, high, own, groups)
                    tasks.append(
                        RouteTask(
                            context.store, config, self.folder, *rows, self.unconditional, self.duplicates, insert
                        )
                    )
        return tasks

    def _assignments(
        self, context: Context, view: View, config: TableConfig, routed: list[Routed], fill: bool
    ) -> list[Assignment]:
        planned = view.planned_ids()
        homes: dict[str, list[Routed]] = {}
        fresh: dict[str, list[Piece]] = {}
        for one in routed:
            if one.file_id:
                homes.setdefault(one.file_id, []).append(one)
            else:
                fresh.setdefault(one.partition, []).append(one.piece)
        found: dict[str, Assignment] = {}
        for file_id, parts in homes.items():
            mode = APPEND if config.merge_on_read and not any(part.needs_base for part in parts) else REWRITE
            found[file_id] = self._assign(
                context,
                mode,
                view.group(parts[0].partition, file_id),
                parts[0].partition,
                file_id,
                [part.piece for part in parts],
                0,
            )
        rewritten = {assignment.file_id for assignment in found.values() if assignment.mode == REWRITE}
        for partition, pieces in fresh.items():
            left, size = list(pieces), _bytes_per_row(view, partition, pieces)
            target = config.options.target_file_bytes
            group = (
                group_to_fill(view, partition, sum(piece.rows for piece in left) * size, config, planned, rewritten)
                if fill
                else None
            )
            if group:
                taken = _take(left, max(1.0, (target - base_bytes(group)) / size))
                own = [part.piece for part in homes.get(group.file_id, [])]
                found[group.file_id] = self._assign(
                    context, REWRITE, group, partition, group.file_id, own + taken, sum(piece.rows for piece in taken)
                )
            while left:
                taken = _take(left, target / size)
                file_id = new_file_id(context.timeline.environment.token)
                found[file_id] = self._assign(
                    context, NEW, None, partition, file_id, taken, sum(piece.rows for piece in taken)
                )
        require_no_plan(found.values(), planned)
        return list(found.values())

    def _assign(
        self,
        context: Context,
        mode: str,
        group: FileGroup | None,
        partition: str,
        file_id: str,
        pieces: list[Piece],
        inserts: int,
    ) -> Assignment:
        load: Callable[[], Changes] = StagedRows(context.store, tuple(pieces), self.unconditional, by_key=mode == NEW)
        return Assignment(mode, partition, file_id, group, load, sum(piece.rows for piece in pieces), inserts)


def _take(pieces: list[Piece], rows: float) -> list[Piece]:
    """Remove and return whole pieces from the front, at least one, up to about `rows` rows."""
    count, held = 1, pieces[0].rows
    while count < len(pieces) and held + pieces[count].rows / 2 <= rows:
        held += pieces[count].rows
        count += 1
    taken, pieces[:] = pieces[:count], pieces[count:]
    return taken


def _bytes_per_row(view: View, partition: str, pieces: Sequence[Piece]) -> float:
    """As the partition's base files have it, else half of what the rows take in memory."""
    files = [group.base.file for group in view.groups([partition]) if group.base and group.base.file.rows]
    if files:
        return max(1.0, sum(file.size for file in files) / sum(file.rows for file in files))
    return max(1.0, 0.5 * sum(piece.bytes for piece in pieces) / sum(piece.rows for piece in pieces))
