"""Commits a merge: plans where the rows of its source go, wherever these lie, and lets each file group's task carry out
the clauses on the pairs that meet there.
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
from hoodoo.format.rows import take
from hoodoo.merge.kernels import KeyedChanges
from hoodoo.timeline.commits.conflicts import Derived
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import FileGroup, View
from hoodoo.writers.batches.batch import Batch
from hoodoo.writers.context import Context
from hoodoo.writers.merging.clauses import Clause, Kind
from hoodoo.writers.merging.meeting import Meeting, MetRows, Unread
from hoodoo.writers.merging.merge_routing import MergeRules, routed
from hoodoo.writers.merging.merge_source import MergeSource
from hoodoo.writers.operations import Committed, commit
from hoodoo.writers.routing.route import Assignment, Chunk, ChunkSlice, Mode, plan
from hoodoo.writers.routing.split import BatchRows, Positions
from hoodoo.writers.routing.write_plan import WritePlan
from hoodoo.writers.sources import key_not_found

S = TypeVar("S")


class SourceRows(Protocol):
    """The source of a merge, wherever its rows lie."""

    def plan(self, context: Context, view: View, rules: MergeRules) -> WritePlan:
        """Return what the merge writes on `view`.

        Args:
            context: What the write works with.
            view: The view to plan on.
            rules: What the merge does.

        Raises:
            KeyNotFound: A key is not in `view`, and must be.
            DataError: A new row does not fit the table.
        """


def merge(
    context: Context,
    source: SourceRows,
    clauses: Callable[[TableConfig], Sequence[Clause]],
    transaction: ApplicationVersion | None = None,
) -> Committed:
    """Carry out a merge.

    Args:
        context: What the write works with.
        source: The rows that meet stored ones.
        clauses: The clauses in their order, read anew for the columns that the table has at each attempt.
        transaction: Application name and version.
    """

    def propose(view: View, config: TableConfig, compares: bool = False) -> WritePlan:
        return source.plan(context, view, MergeRules(config, tuple(clauses(config)), compares=compares))

    return commit(context, "UPSERT", propose, transaction, comparing=partial(propose, compares=True))


@dataclass(frozen=True)
class InMemory:
    """The source of a merge in this process."""

    source: MergeSource

    def plan(self, context: Context, view: View, rules: MergeRules) -> WritePlan:
        """See `SourceRows`."""
        return plan_in_memory(context, view, rules, replace(self.source, keys=self.source.keys.fitted(rules.config)))


def plan_in_memory(context: Context, view: View, rules: MergeRules, source: MergeSource) -> WritePlan:
    """Return what a merge writes on `view`.

    Args:
        context: What the write works with.
        view: The view to plan on.
        rules: What the merge does.
        source: The rows that meet stored ones, their keys under the columns of the rules' configuration.

    Raises:
        KeyNotFound: A key is not in `view`, and must be.
        DataError: A new row does not fit the table.
    """
    found = routed(context.store, context.index, view, rules, source)
    if found.unknown:
        raise key_not_found([found.unknown])
    hashes = source.keys.hashes
    written = WritePlan(
        inserted=lambda: np.unique(hashes),
        updated=lambda: np.unique(hashes[found.there]),
        reads=found.reads,
        searched=found.searched,
    )
    return planned(context, view, rules, found.met, found.new, _RowsInMemory(source, found.inserts), written)


class MergeRows(Protocol[S]):
    """Gives the rows of a routed source, wherever they lie."""

    def sample(self, new: Sequence[Chunk[S]], count: int) -> pa.Table:
        """Return `count` of the new rows in these chunks, as `ChunkRows` does."""

    def met(self, parts: Sequence[ChunkSlice[S]]) -> Callable[[], MetRows]:
        """Return what gives the source rows in `parts` where the task runs that writes there."""

    def new(self, mode: Mode, parts: Sequence[ChunkSlice[S]]) -> Callable[[], KeyedChanges]:
        """Return what gives the new rows in `parts` where the task runs that writes them."""


@dataclass(frozen=True)
class _RowsInMemory:
    source: MergeSource
    inserts: Batch

    def sample(self, new: Sequence[Chunk[Positions]], count: int) -> pa.Table:
        return BatchRows(self.inserts).sample(new, count)

    def met(self, parts: Sequence[ChunkSlice[Positions]]) -> Callable[[], MetRows]:
        return _MetInMemory(self.source, np.concatenate([part.source[part.start : part.stop] for part in parts]))

    def new(self, mode: Mode, parts: Sequence[ChunkSlice[Positions]]) -> Callable[[], KeyedChanges]:
        return BatchRows(self.inserts).load(mode, parts)


@dataclass(frozen=True)
class _MetInMemory:
    """Takes rows of a source in this process when their task runs, and not before."""

    source: MergeSource
    positions: Positions

    def __call__(self) -> MetRows:
        keys = self.source.keys.rows[RECORD_KEY].take(pa.array(self.positions)).combine_chunks()
        return MetRows(take(self.source.rows, self.positions), keys, self.source.keys.hashes[self.positions])


def planned(
    context: Context,
    view: View,
    rules: MergeRules,
    met: Iterable[Chunk[S]],
    new: Iterable[Chunk[S]],
    rows: MergeRows[S],
    written: WritePlan,
) -> WritePlan:
    """Return the plan of a merge whose source was routed.

    Args:
        context: What the write works with.
        view: The view to plan on.
        rules: What the merge does.
        met: Source rows by the file group of their stored rows.
        new: New rows by where they go.
        rows: Gives the rows of these chunks.
        written: The plan as far as routing knows it.
    """
    chunks: list[Chunk[_Part[S]]] = []
    for chunk in met:
        chunks.append(chunk.at(_Part(chunk.source, view.group(chunk.partition, chunk.file_id))))
    by_source = bool(rules.of_kind(Kind.NOT_MATCHED_BY_SOURCE))
    if by_source:
        known = {chunk.file_id for chunk in chunks}
        others = [group for group in view.groups() if group.file_id not in known]
        chunks += [Chunk(_Part[S](None, group), group.partition, 0, 0, group.file_id) for group in others]
    read = frozenset(chunk.file_id for chunk in chunks)
    chunks += [chunk.at(_Part(chunk.source)) for chunk in new]
    given = _Parts(context, rules, rows)
    assignments = plan(chunks, given, view, rules.config, context.timeline.environment.token)
    return replace(
        written,
        assignments=[_made_of_stored(one) for one in assignments],
        exclusive=by_source,
        derived=Derived(read, lambda file: False) if read else None,
    )


def _made_of_stored(one: Assignment) -> Assignment:
    return replace(one, from_stored=one.group is not None)


@dataclass(frozen=True)
class _Part(Generic[S]):
    """Rows of a chunk.

    Attributes:
        rows: What finds them. None: no source row meets a row of `group`.
        group: The file group whose stored rows they meet. None: they are new rows.
    """

    rows: S | None
    group: FileGroup | None = None


@dataclass(frozen=True)
class _Parts(Generic[S]):
    """Gives the changes of a file group, for the planner."""

    context: Context
    rules: MergeRules
    rows: MergeRows[S]

    def sample(self, chunks: Sequence[Chunk[_Part[S]]], count: int) -> pa.Table:
        """See `ChunkRows`."""
        return self.rows.sample(
            [chunk.at(chunk.source.rows) for chunk in chunks if chunk.source.rows is not None], count
        )

    def load(self, mode: Mode, parts: Sequence[ChunkSlice[_Part[S]]]) -> Callable[[], KeyedChanges]:
        """See `ChunkRows`."""
        group = next((part.source.group for part in parts if part.source.group), None)
        met = _rows_of(part for part in parts if part.source.group)
        fresh = _rows_of(part for part in parts if not part.source.group)
        new = self.rows.new(mode, fresh) if fresh else None
        if group is None:
            assert new is not None
            return new
        source = self.rows.met(met) if met else None
        partial = self.rules.partial if mode == Mode.APPEND else None
        if source and partial and not partial.reads:
            return Unread(self.rules.config, source, partial.sets)
        sets = partial.sets if partial else ()
        return Meeting(self.context.store, self.context.index, self.rules, group, source, new, sets)


def _rows_of(parts: Iterable[ChunkSlice[_Part[S]]]) -> list[ChunkSlice[S]]:
    return [ChunkSlice(part.source.rows, part.start, part.stop) for part in parts if part.source.rows is not None]


__all__ = ["InMemory", "MergeRows", "SourceRows", "merge", "plan_in_memory", "planned"]
