"""Write of staged rows, from temporary Arrow files.

Tasks locate the rows, split them by file group and stage them again. The planner uses the results in the same way as
for a batch in memory.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
import pyarrow as pa

from hoodoo.format.rows import compact, take_rows
from hoodoo.index import index_of
from hoodoo.index.key_index import NOWHERE, LookupResult
from hoodoo.merge.kernels import KeyedChanges
from hoodoo.readers.predicate.checks import Check
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots import keyset
from hoodoo.timeline.views.view import FileGroup, View
from hoodoo.writers.batches.batch import Batch, BatchTerms, remove_duplicate_keys, require_checks
from hoodoo.writers.context import Context
from hoodoo.writers.routing.locate import find_files_by_key
from hoodoo.writers.routing.route import ChunkSlice, Mode, RoutedChunk, assign_rows
from hoodoo.writers.routing.sorting import positions_in_order
from hoodoo.writers.routing.split import split_by_file
from hoodoo.writers.routing.write_plan import WritePlan
from hoodoo.writers.sources import (
    KeyCountAndFirst,
    count_and_first_keys,
    file_groups_of_keys,
    key_exists_error,
    rows_that_exist,
    unchecked,
)
from hoodoo.writers.staging.staged_files import (
    CUTS,
    TemporaryRowFile,
    in_range,
    ranges,
    to_batch,
    to_table,
    write_batches,
)

_ROUTE_BYTES = 128 << 20  # bytes of rows for one routing task
_ROUTE_BYTES_HERE = 32 << 20  # bytes for a task in this process, which runs next to others and copies the rows
_PIECE_ROWS = 65_536  # maximum rows per piece of new rows, so that a writing task reads few unneeded rows


class ExistingKeys(StrEnum):
    """Handling of existing keys, such as replace or fail.

    An upsert replaces the stored rows. An insert raises an error, or keeps the stored rows. An overwrite does not
    search for keys, because it replaces all rows.
    """

    REPLACE = "replace"
    FAIL = "fail"
    KEEP = "keep"
    NONE = "none"


@dataclass(frozen=True)
class StagedPart:
    """Part of the staged rows, which one task reads.

    They belong to one partition and one range of key hashes.

    Attributes:
        partition: The partition path.
        low: The smallest hash.
        high: The largest hash.
        pieces: The pieces that contain such rows, in row order.
        groups: The file groups of the partition that may contain the rows' keys.
    """

    partition: str
    low: int
    high: int
    pieces: tuple[TemporaryRowFile, ...]
    groups: tuple[FileGroup, ...]

    @property
    def view(self) -> View:
        return View(partitions={self.partition: {group.file_id: group for group in self.groups}})

    def read(self, store: Store) -> pa.Table:
        return pa.concat_tables([in_range(piece.read(store), self.low, self.high) for piece in self.pieces])


@dataclass(frozen=True)
class RouteTask:
    """Task that routes staged rows to file groups."""

    store: Store
    config: TableConfig
    folder: str
    part: StagedPart
    terms: BatchTerms
    duplicates: str
    known: ExistingKeys
    checks: tuple[Check, ...] = ()  # checks that were set after the rows were prepared


@dataclass
class RouteResult:
    """Result of a route task: staged rows by file group."""

    chunks: list[RoutedChunk[TemporaryRowFile]] = field(default_factory=list)
    stale: int = 0
    inserted: tuple[keyset.Reference, ...] = ()
    updated: tuple[keyset.Reference, ...] = ()
    reads: frozenset[str] = frozenset()
    searched: frozenset[str] = frozenset()
    existing: KeyCountAndFirst | None = None  # keys that must not be in the table, but are; if set, nothing was staged


def run_route(task: RouteTask) -> RouteResult:
    batch = to_batch(task.part.read(task.store), task.terms).fitted(task.config)
    batch = remove_duplicate_keys(batch, task.config, task.duplicates)
    require_checks(batch.rows, task.config, batch.delete, task.checks)
    inserts = task.known in (ExistingKeys.FAIL, ExistingKeys.KEEP)
    located = find_files_by_key(
        task.store, task.config, index_of(task.store, shared=True), task.part.view, batch, compare_all=inserts
    )
    stale = batch.stale
    if inserts:
        exists = rows_that_exist(task.store, task.config, batch, located)
        if exists.any() and task.known is ExistingKeys.FAIL:
            return RouteResult(existing=count_and_first_keys(batch, exists))
        new_positions = np.flatnonzero(~exists)
        result = _split(task, batch.take(new_positions), located.take(new_positions), stale)
        existing_keys = _save(task, f"{secrets.token_hex(8)}.kept", batch.hashes[exists])
        return replace(result, updated=(*result.updated, *existing_keys), reads=file_groups_of_keys(located, exists))
    return _split(task, batch, located, stale)


def _split(task: RouteTask, batch: Batch, located: LookupResult, stale: int) -> RouteResult:
    table = to_table(batch)
    max_rows = max_rows_per_piece(table, task.config.options.target_file_bytes)
    chunks = [
        piece
        for chunk in split_by_file(batch, located, task.config, index_of(task.store, shared=True), part_of_more=True)
        for piece in (cut_into_pieces(chunk, batch.hashes, max_rows) if chunk.new else [chunk])
    ]
    pieces = write_batches(task.store, task.folder, [take_rows(table, chunk.source) for chunk in chunks])
    is_located = located.group != NOWHERE
    name = secrets.token_hex(8)
    return RouteResult(
        [chunk.at(replace(piece, partition=task.part.partition)) for chunk, piece in zip(chunks, pieces, strict=True)],
        stale,
        _save(task, f"{name}.in", batch.hashes),
        _save(task, f"{name}.up", batch.hashes[~batch.delete & is_located]),
        searched=located.searched,
    )


def cut_into_pieces(chunk: RoutedChunk[np.ndarray], hashes: np.ndarray, most: int) -> list[RoutedChunk[np.ndarray]]:
    positions = chunk.source[np.argsort(hashes[chunk.source], kind="stable")]
    edges = [*range(0, chunk.rows, most), chunk.rows]
    return [
        replace(
            chunk,
            source=positions[start:stop],
            rows=stop - start,
            bytes=chunk.bytes * stop // chunk.rows - chunk.bytes * start // chunk.rows,
        )
        for start, stop in zip(edges, edges[1:], strict=False)
    ]


def max_rows_per_piece(table: pa.Table, target: int) -> int:
    return max(1, min(_PIECE_ROWS, int(target * len(table) / max(1, table.nbytes))))


def _save(task: RouteTask, name: str, hashes: np.ndarray) -> tuple[keyset.Reference, ...]:
    return keyset.save_key_hashes(task.store, name, hashes, task.folder)


@dataclass(frozen=True)
class LoadStagedChanges:
    store: Store
    parts: tuple[ChunkSlice[TemporaryRowFile], ...]
    terms: BatchTerms
    sort: tuple[str, ...] = ()

    def __call__(self) -> KeyedChanges:
        tables = [part.source.read(self.store).slice(part.start, part.stop - part.start) for part in self.parts]
        batch = to_batch(pa.concat_tables(tables), self.terms)
        if self.sort:
            batch = batch.take(positions_in_order(batch.rows, self.sort))
        return KeyedChanges(
            batch.rows,
            batch.delete,
            batch.delete if batch.unconditional else np.zeros(len(batch), bool),
            hashes=batch.hashes,
        )


@dataclass(frozen=True)
class StagedRows:
    """Staged rows of a write, and the files they belong to.

    `sort` contains the columns by which the rows of a new file are sorted.
    """

    store: Store
    terms: BatchTerms
    sort: tuple[str, ...] = ()

    def sample(self, chunks: Sequence[RoutedChunk[TemporaryRowFile]], count: int) -> pa.Table:
        tables: list[pa.Table] = []
        for chunk in chunks:
            tables.append(chunk.source.read(self.store))
            if sum(map(len, tables)) >= count:
                break
        return compact(to_batch(pa.concat_tables(tables).slice(0, count), self.terms).rows)

    def load(self, mode: Mode, parts: Sequence[ChunkSlice[TemporaryRowFile]]) -> Callable[[], KeyedChanges]:
        return LoadStagedChanges(self.store, tuple(parts), self.terms, self.sort if mode == Mode.NEW else ())


@dataclass(frozen=True)
class StagedSource:
    folder: str
    pieces: list[TemporaryRowFile]
    terms: BatchTerms
    duplicates: str
    stale: int
    checked: tuple[Check, ...] = ()  # checks that the rows have already passed
    deletes: bool = True  # True if rows may be deletes

    def partitions_used(self) -> list[str]:
        return sorted({piece.partition for piece in self.pieces})

    def upsert(self, context: Context, view: View, config: TableConfig) -> WritePlan | None:
        return self._proposal(context, view, config, ExistingKeys.REPLACE)

    def insert(
        self, context: Context, view: View, config: TableConfig, existing: str, bulk: bool, sort: Sequence[str] = ()
    ) -> WritePlan | None:
        return self._proposal(context, view, config, ExistingKeys(existing), fill=not bulk, sort=tuple(sort))

    def into_new_groups(self, context: Context, view: View, config: TableConfig) -> WritePlan:
        return self._proposal(context, view, config, ExistingKeys.NONE, fill=False)

    def _proposal(
        self,
        context: Context,
        view: View,
        config: TableConfig,
        known: ExistingKeys,
        fill: bool = True,
        sort: tuple[str, ...] = (),
    ) -> WritePlan:
        results = context.engine.map(run_route, self._tasks(context, view, config, known))
        if existing := [result.existing for result in results if result.existing]:
            raise key_exists_error(existing)
        chunks = [chunk for result in results for chunk in result.chunks]
        rows = StagedRows(context.store, self.terms.fitted(config), sort)
        token = context.timeline.environment.token
        hashes = context.index.key_hashes
        return WritePlan(
            assign_rows(chunks, rows, view, config, token, fill),
            lambda: keyset.load(
                context.store, [reference for result in results for reference in result.inserted], hashes
            ),
            lambda: keyset.load(
                context.store, [reference for result in results for reference in result.updated], hashes
            ),
            reads=frozenset().union(*(result.reads for result in results)),
            searched=frozenset().union(*(result.searched for result in results)),
            stale=self.stale + sum(result.stale for result in results),
        )

    def _tasks(self, context: Context, view: View, config: TableConfig, known: ExistingKeys) -> list[RouteTask]:
        checks = () if self.terms.unconditional else unchecked(config, self.checked)
        searched_view = View() if known is ExistingKeys.NONE else view
        return [
            RouteTask(context.store, config, self.folder, part, self.terms, self.duplicates, known, checks)
            for part in divide_into_parts(self.pieces, searched_view, context)
        ]


def divide_into_parts(pieces: Sequence[TemporaryRowFile], view: View, context: Context) -> Iterator[StagedPart]:
    """Divide staged rows into one part per task.

    `view` is searched for the rows' keys.
    """
    max_bytes = _ROUTE_BYTES if context.engine.remote else _ROUTE_BYTES_HERE
    for partition in sorted({piece.partition for piece in pieces}):
        partition_pieces = sorted(
            (piece for piece in pieces if piece.partition == partition), key=lambda piece: piece.order
        )
        parts = max(1, math.ceil(sum(piece.bytes for piece in partition_pieces) / max_bytes))
        groups = tuple(view.groups([partition]))
        for low, high in ranges(min(CUTS, 1 << (parts - 1).bit_length())):
            if range_pieces := tuple(piece for piece in partition_pieces if piece.low <= high and low <= piece.high):
                yield StagedPart(partition, low, high, range_pieces, groups)
