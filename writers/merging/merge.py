"""Plan of SQL MERGE INTO.

The plan assigns source rows to file groups. The task of each file group then applies the clauses to its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from hoodoo.arguments import ApplicationVersion
from hoodoo.format.names import RECORD_KEY
from hoodoo.format.rows import take_rows
from hoodoo.merge.kernels import KeyedChanges
from hoodoo.timeline.commits.conflicts import RowDependencies
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import FileGroup, View
from hoodoo.writers.batches.batch import Batch
from hoodoo.writers.committed import Committed
from hoodoo.writers.context import Context
from hoodoo.writers.merging.clauses import Clause, Kind
from hoodoo.writers.merging.group_merge import GroupMerge, MatchedRows, UnreadPartialUpdate
from hoodoo.writers.merging.merge_routing import MergeRules, match_source_rows
from hoodoo.writers.merging.merge_source import MergeSource
from hoodoo.writers.operations import commit_write
from hoodoo.writers.routing.route import ChunkSlice, GroupAssignment, Mode, RoutedChunk, assign_rows
from hoodoo.writers.routing.split import BatchRows, Positions
from hoodoo.writers.routing.write_plan import WritePlan
from hoodoo.writers.sources import key_not_found_error

S = TypeVar("S")


class SourceRows(Protocol):
    """Source rows of a merge."""

    def plan(self, context: Context, view: View, rules: MergeRules) -> WritePlan:
        """Plan the changes of a merge.

        Args:
            context: The context of the write.
            view: The view to plan on.
            rules: The rules of the merge.

        Raises:
            KeyNotFound: A key is missing in `view`, and the rules require it.
            DataError: A new row is invalid.
        """


def merge(
    context: Context,
    source: SourceRows,
    clauses: Callable[[TableConfig], Sequence[Clause]],
    transaction: ApplicationVersion | None = None,
) -> Committed:
    def propose(view: View, config: TableConfig, compares: bool = False) -> WritePlan:
        return source.plan(context, view, MergeRules(config, tuple(clauses(config)), compares=compares))

    return commit_write(context, "UPSERT", propose, transaction, comparing=partial(propose, compares=True))


@dataclass(frozen=True)
class MergeRowsInMemory:
    source: MergeSource

    def plan(self, context: Context, view: View, rules: MergeRules) -> WritePlan:
        return plan_in_memory(context, view, rules, replace(self.source, keys=self.source.keys.fitted(rules.config)))


def plan_in_memory(context: Context, view: View, rules: MergeRules, source: MergeSource) -> WritePlan:
    routing = match_source_rows(context.store, context.index, view, rules, source)
    if routing.unknown:
        raise key_not_found_error([routing.unknown])
    hashes = source.keys.hashes
    written = WritePlan(
        inserted=lambda: np.unique(hashes),
        updated=lambda: np.unique(hashes[routing.there]),
        reads=routing.reads,
        searched=routing.searched,
    )
    return plan_merge(context, view, rules, routing.met, routing.new, _RowsInMemory(source, routing.inserts), written)


class MergeRows(Protocol[S]):
    """Source rows of a planned merge."""

    def sample(self, new: Sequence[RoutedChunk[S]], count: int) -> pa.Table:
        """Select some new rows to estimate file sizes."""

    def met(self, parts: Sequence[ChunkSlice[S]]) -> Callable[[], MatchedRows]:
        """Return a function that loads matched source rows."""

    def new(self, mode: Mode, parts: Sequence[ChunkSlice[S]]) -> Callable[[], KeyedChanges]: ...


@dataclass(frozen=True)
class _RowsInMemory:
    source: MergeSource
    inserts: Batch

    def sample(self, new: Sequence[RoutedChunk[Positions]], count: int) -> pa.Table:
        return BatchRows(self.inserts).sample(new, count)

    def met(self, parts: Sequence[ChunkSlice[Positions]]) -> Callable[[], MatchedRows]:
        return _SelectMatchedRows(self.source, np.concatenate([part.source[part.start : part.stop] for part in parts]))

    def new(self, mode: Mode, parts: Sequence[ChunkSlice[Positions]]) -> Callable[[], KeyedChanges]:
        return BatchRows(self.inserts).load(mode, parts)


@dataclass(frozen=True)
class _SelectMatchedRows:
    # Selecting the rows only when the task of a file group runs saves memory.

    source: MergeSource
    positions: Positions

    def __call__(self) -> MatchedRows:
        keys = self.source.keys.rows[RECORD_KEY].take(pa.array(self.positions)).combine_chunks()
        return MatchedRows(take_rows(self.source.rows, self.positions), keys, self.source.keys.hashes[self.positions])


def plan_merge(
    context: Context,
    view: View,
    rules: MergeRules,
    met: Iterable[RoutedChunk[S]],
    new: Iterable[RoutedChunk[S]],
    rows: MergeRows[S],
    written: WritePlan,
) -> WritePlan:
    """Plan a merge as tasks.

    Args:
        context: The context of the write.
        view: The view to plan on.
        rules: The rules of the merge.
        met: Chunks of source rows, by the file group of the matching stored rows.
        new: Chunks of new rows, by destination.
        rows: Access to the rows of the chunks.
        written: The part of the plan that routing has determined.
    """
    chunks: list[RoutedChunk[_GroupChunk[S]]] = []
    for chunk in met:
        chunks.append(chunk.at(_GroupChunk(chunk.source, view.group(chunk.partition, chunk.file_id))))
    by_source = bool(rules.of_kind(Kind.NOT_MATCHED_BY_SOURCE))
    if by_source:
        matched_groups = {chunk.file_id for chunk in chunks}
        unmatched = [group for group in view.groups() if group.file_id not in matched_groups]
        chunks += [
            RoutedChunk(_GroupChunk[S](None, group), group.partition, 0, 0, group.file_id) for group in unmatched
        ]
    read = frozenset(chunk.file_id for chunk in chunks)
    chunks += [chunk.at(_GroupChunk(chunk.source)) for chunk in new]
    parts = _MergeTaskLoader(context, rules, rows)
    assignments = assign_rows(chunks, parts, view, rules.config, context.timeline.environment.token)
    return replace(
        written,
        assignments=[_mark_from_stored(assignment) for assignment in assignments],
        exclusive=by_source,
        derived=RowDependencies(read, lambda file: False) if read else None,
    )


def _mark_from_stored(assignment: GroupAssignment) -> GroupAssignment:
    return replace(assignment, from_stored=assignment.group is not None)


@dataclass(frozen=True)
class _GroupChunk(Generic[S]):
    """Chunk of source rows that match one file group."""

    rows: S | None
    group: FileGroup | None = None


@dataclass(frozen=True)
class _MergeTaskLoader(Generic[S]):
    context: Context
    rules: MergeRules
    rows: MergeRows[S]

    def sample(self, chunks: Sequence[RoutedChunk[_GroupChunk[S]]], count: int) -> pa.Table:
        return self.rows.sample(
            [chunk.at(chunk.source.rows) for chunk in chunks if chunk.source.rows is not None], count
        )

    def load(self, mode: Mode, parts: Sequence[ChunkSlice[_GroupChunk[S]]]) -> Callable[[], KeyedChanges]:
        group = next((part.source.group for part in parts if part.source.group), None)
        matched = _rows_of(part for part in parts if part.source.group)
        new_parts = _rows_of(part for part in parts if not part.source.group)
        new = self.rows.new(mode, new_parts) if new_parts else None
        if group is None:
            assert new is not None
            return new
        source = self.rows.met(matched) if matched else None
        partial = self.rules.partial if mode == Mode.APPEND else None
        if source and partial and not partial.reads:
            return UnreadPartialUpdate(self.rules.config, source, partial.sets)
        sets = partial.sets if partial else ()
        return GroupMerge(self.context.store, self.context.index, self.rules, group, source, new, sets)


def _rows_of(parts: Iterable[ChunkSlice[_GroupChunk[S]]]) -> list[ChunkSlice[S]]:
    return [ChunkSlice(part.source.rows, part.start, part.stop) for part in parts if part.source.rows is not None]


__all__ = ["MergeRowsInMemory", "MergeRows", "SourceRows", "merge", "plan_in_memory", "plan_merge"]
