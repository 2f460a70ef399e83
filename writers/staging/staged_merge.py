"""Merge of staged rows, from temporary Arrow files.

Each task routes the rows of one partition in one range of key hashes, and stages the routed rows again. The driver
receives only names and counts.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from hoodoo.format.rows import compact, take_rows
from hoodoo.index import index_of
from hoodoo.index.key_index import KeyIndex
from hoodoo.merge.kernels import KeyedChanges
from hoodoo.merge.modes import MergeMode
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots import keyset
from hoodoo.timeline.views.view import View
from hoodoo.writers.batches.batch import BatchTerms
from hoodoo.writers.batches.partial_columns import names_of
from hoodoo.writers.context import Context
from hoodoo.writers.merging.group_merge import MatchedRows
from hoodoo.writers.merging.merge import plan_merge
from hoodoo.writers.merging.merge_routing import MergeRules, match_source_rows
from hoodoo.writers.merging.merge_source import MergeSource
from hoodoo.writers.merging.partial_upsert import PartialUpsert, as_merge_source, convert_to_merge_rules, one_per_key
from hoodoo.writers.routing.route import ChunkSlice, Mode, RoutedChunk
from hoodoo.writers.routing.write_plan import WritePlan
from hoodoo.writers.sources import KeyCountAndFirst, key_not_found_error
from hoodoo.writers.staging.staged_files import (
    HASH,
    KEY,
    TemporaryRowFile,
    marked_with_keys,
    to_batch,
    to_table,
    without_staging_columns,
    write_batches,
)
from hoodoo.writers.staging.staged_rows import (
    StagedPart,
    StagedRows,
    StagedSource,
    cut_into_pieces,
    divide_into_parts,
    max_rows_per_piece,
)


class StagedReading(Protocol):
    """Conversion of staged rows to a merge source."""

    def source(
        self, store: Store, index: KeyIndex, view: View, config: TableConfig, rows: pa.Table
    ) -> tuple[MergeSource, int]:
        """Convert staged rows to a merge source.

        Also returns the number of stale rows.

        Args:
            store: The store of the table.
            index: The index of the table.
            view: The view to plan on, with at least the partitions of the rows.
            config: The table's configuration at `view`.
            rows: Staged rows. They must include all rows of their keys.

        Raises:
            DataError: The rows cannot be merged with the table.
        """


@dataclass(frozen=True)
class MergeRowsStaged:
    """Staged rows that are ready for a merge.

    Attributes:
        config: The table's configuration when the rows were staged.
    """

    config: TableConfig

    def source(
        self, store: Store, index: KeyIndex, view: View, config: TableConfig, rows: pa.Table
    ) -> tuple[MergeSource, int]:
        merge_source = MergeSource.of(without_staging_columns(rows), self.config)
        return MergeSource(merge_source.rows, merge_source.keys.fitted(config)), 0


@dataclass(frozen=True)
class MatchTask:
    """Task that matches source rows with stored rows."""

    store: Store
    rules: MergeRules
    folder: str
    part: StagedPart
    reading: StagedReading


@dataclass
class MergeRouted:
    met: list[RoutedChunk[TemporaryRowFile]] = field(default_factory=list)
    new: list[RoutedChunk[TemporaryRowFile]] = field(default_factory=list)
    stale: int = 0
    inserted: tuple[keyset.Reference, ...] = ()
    updated: tuple[keyset.Reference, ...] = ()
    reads: frozenset[str] = frozenset()
    searched: frozenset[str] = frozenset()
    unknown: KeyCountAndFirst | None = None  # required keys that the table does not have; if set, nothing was staged


def run_merge(task: MatchTask) -> MergeRouted:
    index, view, rows = index_of(task.store, shared=True), task.part.view, task.part.read(task.store)
    source, stale = task.reading.source(task.store, index, view, task.rules.config, rows)
    routing = match_source_rows(task.store, index, view, task.rules, source, part_of_more=True)
    if routing.unknown:
        return MergeRouted(unknown=routing.unknown)
    keyed_source = marked_with_keys(source.rows, source.keys)
    new_rows = to_table(routing.inserts)
    max_rows = max_rows_per_piece(new_rows, task.rules.config.options.target_file_bytes)
    pieces = [piece for chunk in routing.new for piece in cut_into_pieces(chunk, routing.inserts.hashes, max_rows)]
    name = secrets.token_hex(8)
    return MergeRouted(
        _staged(task, routing.met, keyed_source),
        _staged(task, pieces, new_rows),
        stale,
        keyset.save_key_hashes(task.store, f"{name}.in", source.keys.hashes, task.folder),
        keyset.save_key_hashes(task.store, f"{name}.up", source.keys.hashes[routing.there], task.folder),
        routing.reads,
        routing.searched,
    )


def _staged(
    task: MatchTask, chunks: Sequence[RoutedChunk[np.ndarray]], rows: pa.Table
) -> list[RoutedChunk[TemporaryRowFile]]:
    pieces = write_batches(task.store, task.folder, [take_rows(rows, chunk.source) for chunk in chunks])
    return [chunk.at(piece) for chunk, piece in zip(chunks, pieces, strict=True)]


@dataclass(frozen=True)
class StagedMerge:
    """Merge of staged rows, from temporary Arrow files.

    Attributes:
        folder: The staging folder.
        pieces: The staged rows.
        reading: Conversion of the staged rows to the source of a merge.
    """

    folder: str
    pieces: Sequence[TemporaryRowFile]
    reading: StagedReading

    def plan(self, context: Context, view: View, rules: MergeRules) -> WritePlan:
        tasks = [
            MatchTask(context.store, rules, self.folder, part, self.reading)
            for part in divide_into_parts(self.pieces, view, context)
        ]
        results = context.engine.map(run_merge, tasks)
        if unknown := [result.unknown for result in results if result.unknown]:
            raise key_not_found_error(unknown)
        met = [chunk for result in results for chunk in result.met]
        new = [chunk for result in results for chunk in result.new]
        hashes = context.index.key_hashes
        written = WritePlan(
            inserted=lambda: keyset.load(
                context.store, [reference for result in results for reference in result.inserted], hashes
            ),
            updated=lambda: keyset.load(
                context.store, [reference for result in results for reference in result.updated], hashes
            ),
            reads=frozenset().union(*(result.reads for result in results)),
            searched=frozenset().union(*(result.searched for result in results)),
            stale=sum(result.stale for result in results),
        )
        return plan_merge(context, view, rules, met, new, _StagedMergeRows(context.store, rules.config), written)


@dataclass(frozen=True)
class _StagedMergeRows:
    store: Store
    config: TableConfig

    def sample(self, new: Sequence[RoutedChunk[TemporaryRowFile]], count: int) -> pa.Table:
        return self._new.sample(new, count)

    def met(self, parts: Sequence[ChunkSlice[TemporaryRowFile]]) -> Callable[[], MatchedRows]:
        return _LoadMatchedRows(self.store, tuple(parts))

    def new(self, mode: Mode, parts: Sequence[ChunkSlice[TemporaryRowFile]]) -> Callable[[], KeyedChanges]:
        return self._new.load(mode, parts)

    @property
    def _new(self) -> StagedRows:
        return StagedRows(self.store, BatchTerms.of(self.config.schema, self.config, delete=False))


@dataclass(frozen=True)
class _LoadMatchedRows:
    store: Store
    parts: tuple[ChunkSlice[TemporaryRowFile], ...]

    def __call__(self) -> MatchedRows:
        rows = pa.concat_tables(
            [part.source.read(self.store).slice(part.start, part.stop - part.start) for part in self.parts]
        )
        return MatchedRows(compact(without_staging_columns(rows)), rows[KEY].combine_chunks(), rows[HASH].to_numpy())


@dataclass(frozen=True)
class PartialRowsStaged:
    rows: StagedSource

    def plan(self, context: Context, view: View, config: TableConfig, how: PartialUpsert) -> WritePlan:
        rows, reading = self.rows, _StagedPartialReading(self.rows.terms, how.mode)
        rules = convert_to_merge_rules(names_of(rows.terms, config), config, how, rows.deletes, rows.deletes)
        plan = StagedMerge(rows.folder, rows.pieces, reading).plan(context, view, rules)
        return replace(plan, stale=plan.stale + rows.stale)


@dataclass(frozen=True)
class _StagedPartialReading:
    terms: BatchTerms
    mode: MergeMode

    def source(
        self, store: Store, index: KeyIndex, view: View, config: TableConfig, rows: pa.Table
    ) -> tuple[MergeSource, int]:
        merge_rows = one_per_key(store, index, to_batch(rows, self.terms), view, config, self.mode)
        return as_merge_source(merge_rows), merge_rows.batch.stale


__all__ = ["MergeRowsStaged", "PartialRowsStaged", "StagedMerge", "StagedReading"]
