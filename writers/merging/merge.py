"""Commits a merge: finds the stored rows of the source's keys, and lets each file group's task carry out the clauses on
the pairs that meet there. New rows are made first, as the planner has to know how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.names import RECORD_KEY
from hoodoo.format.rows import take
from hoodoo.index.key_index import KeyIndex, Located
from hoodoo.merge import kernels
from hoodoo.merge.kernels import KeyedChanges, upserts
from hoodoo.readers.lookup import look_up_in
from hoodoo.readers.predicate import checks
from hoodoo.readers.slices import slices
from hoodoo.storage.store import Store
from hoodoo.timeline.commits.conflicts import Derived
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import FileGroup, View
from hoodoo.writers.batches.batch import Batch, prepare, require_values
from hoodoo.writers.batches.column_alignment import NULL
from hoodoo.writers.batches.write_options import WriteOptions
from hoodoo.writers.context import Context
from hoodoo.writers.merging.clauses import SOURCE, Clause, Kind, both, first_that_means
from hoodoo.writers.operations import Committed, commit
from hoodoo.writers.routing.locate import locate_by_key
from hoodoo.writers.routing.route import Chunk, ChunkSlice, Mode, plan
from hoodoo.writers.routing.split import BatchRows, split
from hoodoo.writers.routing.write_plan import WritePlan
from hoodoo.writers.sources import groups_of, key_not_found, rows_that_exist, some_of
from hoodoo.writers.stored_rows import deletes_of


class NewKeys(StrEnum):
    """What becomes of source rows whose key the table does not have."""

    INSERT = "insert"
    FAIL = "fail"
    IGNORE = "ignore"


@dataclass(frozen=True)
class MergeSource:
    """The source of a merge.

    Attributes:
        rows: The rows as they came, one per key.
        keys: Their keys, in the same order.
    """

    rows: pa.Table
    keys: Batch


@dataclass(frozen=True)
class PartialUpdate:
    """What an upsert of some columns logs.

    Attributes:
        sets: The columns that stored rows get from those of the source.
        reads: True if stored rows have to be read for that.
    """

    sets: tuple[str, ...]
    reads: bool


def merge(
    context: Context,
    source: MergeSource,
    clauses: Callable[[TableConfig], Sequence[Clause]],
    transaction: tuple[str, int] | None = None,
) -> Committed:
    """Carry out a merge.

    Args:
        context: What the write works with.
        source: The rows that meet stored ones.
        clauses: The clauses in their order, read anew for the columns that the table has at each attempt.
        transaction: Application name and version.
    """

    def propose(view: View, config: TableConfig) -> WritePlan:
        fitted = replace(source, keys=source.keys.fitted(config))
        return proposed(context, fitted, view, config, clauses(config))

    return commit(context, "UPSERT", propose, transaction)


def proposed(
    context: Context,
    source: MergeSource,
    view: View,
    config: TableConfig,
    clauses: Sequence[Clause],
    new_keys: NewKeys = NewKeys.INSERT,
    partial: PartialUpdate | None = None,
) -> WritePlan:
    """Return what a merge writes on `view`.

    Args:
        context: What the write works with.
        source: The rows that meet stored ones, their keys under the columns of `config`.
        view: The view to plan on.
        config: The table's configuration at that view.
        clauses: The clauses in their order.
        new_keys: FAIL refuses keys that `view` does not have; else clauses say what becomes of them.
        partial: What logs get of stored rows that the clauses change; nothing is deleted then. None: whole rows.

    Raises:
        KeyNotFound: A key is not in `view`, and `new_keys` is FAIL.
    """
    return _Proposal(context, source, view, config, clauses, new_keys, partial).plan()


@dataclass(frozen=True)
class _Rows:
    """Rows of a chunk: positions in the source, or in the new rows. group: the one whose stored rows they meet."""

    positions: np.ndarray
    new: bool = False
    group: FileGroup | None = None


class _Proposal:
    """The plan of one attempt."""

    def __init__(
        self,
        context: Context,
        source: MergeSource,
        view: View,
        config: TableConfig,
        clauses: Sequence[Clause],
        new_keys: NewKeys,
        partial: PartialUpdate | None,
    ) -> None:
        self.context, self.source, self.view, self.config = context, source, view, config
        self.new_keys, self.partial = new_keys, partial
        self.clauses = {kind: [clause for clause in clauses if clause.kind is kind] for kind in Kind}

    def plan(self) -> WritePlan:
        """Return what the merge writes."""
        context, view, config, keys = self.context, self.view, self.config, self.source.keys
        located = locate_by_key(context.store, config, context.index, view, keys, compare_all=True)
        there = rows_that_exist(context.store, config, keys, located)
        if self.new_keys is NewKeys.FAIL and (unknown := ~there & ~keys.delete).any():
            raise key_not_found(some_of(keys, unknown))
        inserts, which = self._inserts(keys, np.flatnonzero(~there))
        by_source, matched = self.clauses[Kind.NOT_MATCHED_BY_SOURCE], self.clauses[Kind.MATCHED]
        met = self._met(located, there) if matched or by_source else []
        new = split(inserts, located.take(which), config, context.index) if len(inserts) else []
        chunks = [*met, *(chunk.at(_Rows(chunk.source, new=True)) for chunk in new)]
        rows = _MergeRows(
            context, config, self.source.rows, keys, inserts, tuple(matched), tuple(by_source), self.partial
        )
        assignments = plan(chunks, rows, view, config, context.timeline.environment.token)
        read = frozenset(chunk.file_id for chunk in met)
        return WritePlan(
            [replace(one, from_stored=one.group is not None) for one in assignments],
            inserted=lambda: np.unique(keys.hashes),
            updated=lambda: np.unique(keys.hashes[there]),
            reads=groups_of(located, there),
            searched=located.searched,
            exclusive=bool(by_source),
            derived=Derived(read, lambda file: False) if met else None,
        )

    def _met(self, located: Located, there: np.ndarray) -> list[Chunk[_Rows]]:
        """Source rows by the file group of their stored rows; with a clause for others, every file group."""
        chunks: dict[str, Chunk[_Rows]] = {}
        for number in np.unique(located.group[there]).tolist():
            group, positions = located.groups[number], np.flatnonzero(there & (located.group == number))
            rows = _Rows(positions, group=group)
            chunks[group.file_id] = Chunk(rows, group.partition, len(positions), 0, group.file_id)
        if self.clauses[Kind.NOT_MATCHED_BY_SOURCE]:
            for group in self.view.groups():
                rows = _Rows(np.zeros(0, np.int64), group=group)
                chunks.setdefault(group.file_id, Chunk(rows, group.partition, 0, 0, group.file_id))
        return list(chunks.values())

    def _inserts(self, keys: Batch, fresh: np.ndarray) -> tuple[Batch, np.ndarray]:
        """The new rows, and the position in the source of each."""
        clauses, config = self.clauses[Kind.NOT_MATCHED], self.config
        seen = both(take(self.source.rows, fresh), None)
        chosen = first_that_means(clauses, seen)
        found, positions = [], []
        for index, clause in enumerate(clauses):
            mine = np.flatnonzero(chosen == index)
            if not len(mine):
                continue
            assert clause.values is not None
            named = take(keys.rows.select(dict.fromkeys((*config.key, *config.partition_by))), fresh[mine])
            values = clause.values.values(named, seen.take(pa.array(mine)))
            columns = {name: named[name] for name in named.schema.names} | values
            found.append(pa.table({name: columns[name] for name in config.schema.names if name in columns}))
            positions.append(fresh[mine])
        options = WriteOptions(missing=NULL)
        batches = [prepare(rows, config, options, checks.of(config)) for rows in found]
        if not batches:
            return keys.take(fresh[:0]), fresh[:0]
        return _together(batches), np.concatenate(positions)


def _together(batches: Sequence[Batch]) -> Batch:
    """The rows of several batches as one."""
    partitions = list(dict.fromkeys(partition for batch in batches for partition in batch.partitions))
    index = {partition: code for code, partition in enumerate(partitions)}
    codes = [np.array([index[name] for name in batch.partitions], np.int32)[batch.codes] for batch in batches]
    return replace(
        batches[0],
        rows=pa.concat_tables([batch.rows for batch in batches]),
        hashes=np.concatenate([batch.hashes for batch in batches]),
        partitions=partitions,
        codes=np.concatenate(codes),
        delete=np.concatenate([batch.delete for batch in batches]),
    )


@dataclass(frozen=True)
class _MergeRows:
    """Gives the changes of a file group: of pairs that meet there, of its other rows, and new rows."""

    context: Context
    config: TableConfig
    rows: pa.Table
    keys: Batch
    inserts: Batch
    matched: tuple[Clause, ...]
    by_source: tuple[Clause, ...]
    partial: PartialUpdate | None

    def sample(self, chunks: Sequence[Chunk[_Rows]], count: int) -> pa.Table:
        """See `ChunkRows`."""
        return BatchRows(self.inserts).sample([chunk.at(chunk.source.positions) for chunk in chunks], count)

    def load(self, mode: Mode, parts: Sequence[ChunkSlice[_Rows]]) -> Callable[[], KeyedChanges]:
        """See `ChunkRows`."""
        cut = [(part.source, part.source.positions[part.start : part.stop]) for part in parts]
        nothing = [np.zeros(0, np.int64)]
        new = np.concatenate([positions for rows, positions in cut if rows.new] or nothing)
        met = np.concatenate([positions for rows, positions in cut if not rows.new] or nothing)
        groups = [rows.group for rows, _ in cut if rows.group is not None]
        inserts = upserts(take(self.inserts.rows, new))
        if not groups:
            return _Given(inserts)
        partial = self.partial if mode == Mode.APPEND else None
        if partial and not partial.reads:
            return _Unread(self.config, take(self.keys.rows, met), self.keys.hashes[met], partial.sets)
        return _Meeting(
            self.context.store,
            self.context.index,
            self.config,
            groups[0],
            take(self.rows, met),
            self.keys.rows[RECORD_KEY].take(pa.array(met)).combine_chunks(),
            self.keys.hashes[met],
            inserts,
            self.matched,
            self.by_source,
            partial.sets if partial else (),
        )


@dataclass(frozen=True)
class _Given:
    """Gives changes that are there; it pickles."""

    changes: KeyedChanges

    def __call__(self) -> KeyedChanges:
        return self.changes


@dataclass(frozen=True)
class _Unread:
    """Gives what source rows set in stored rows that need not be read."""

    config: TableConfig
    rows: pa.Table
    hashes: np.ndarray
    sets: tuple[str, ...]

    def __call__(self) -> KeyedChanges:
        require_values(self.rows, self.config, np.zeros(len(self.rows), bool))
        return replace(upserts(self.rows), hashes=self.hashes, columns=self.sets)


@dataclass(frozen=True)
class _Meeting:
    """Source rows meet the stored rows of one file group, where the task runs.

    sets: of a partial update the columns that it sets; empty where whole rows are written.
    """

    store: Store
    index: KeyIndex
    config: TableConfig
    group: FileGroup
    rows: pa.Table
    keys: pa.Array
    hashes: np.ndarray
    inserts: KeyedChanges
    matched: tuple[Clause, ...]
    by_source: tuple[Clause, ...]
    sets: tuple[str, ...]

    def __call__(self) -> KeyedChanges:
        stored = self._stored()
        source = pc.index_in(stored[RECORD_KEY], value_set=self.keys)
        meets = source.is_valid()
        pairs, partner = stored.filter(meets), take(self.rows, source.drop_null().to_numpy())
        found = [*self._carried_out(self.matched, pairs, both(partner, self._target(pairs)))]
        if self.by_source:
            others = stored.filter(pc.invert(meets))
            found += self._carried_out(self.by_source, others, both(None, self._target(others)))
        updates = [part for part in found if not part.delete.any()]
        as_stored = frozenset(self.config.schema.names).intersection(*(part.as_stored for part in updates))
        parts = [part for part in (*found, self.inserts) if len(part)]
        if not parts:
            return replace(self.inserts, stale=sum(part.stale for part in found))
        whole = kernels.concat([replace(part, rows=part.rows.select(self._names)) for part in parts])
        stale = sum(part.stale for part in found)
        return replace(whole, as_stored=as_stored, stale=stale, columns=self.sets or None)

    @cached_property
    def _columns(self) -> list[str]:
        """The columns to read of stored rows: all that are written, and those that clauses look at."""
        names = self.config.schema.names
        if not self.sets:
            return names
        needed = {name for clause in self.matched if clause.values for name in clause.values.needed_columns}
        return [name for name in names if name in needed]

    @property
    def _names(self) -> list[str]:
        return [RECORD_KEY, *self._columns]

    def _stored(self) -> pa.Table:
        schema = slices.schema_of(self.config, self._names)
        if self.by_source:
            return slices.read_slice(self.store, self.config, self.group, schema)
        return look_up_in(self.store, self.config, self.index, self.group, schema, self.keys, self.hashes)

    def _target(self, stored: pa.Table) -> pa.Table:
        return stored.select(self._columns)

    def _carried_out(self, clauses: Sequence[Clause], stored: pa.Table, seen: pa.Table) -> list[KeyedChanges]:
        """What becomes of stored rows by clauses that see `seen` of them."""
        chosen, found = first_that_means(clauses, seen), []
        for number, clause in enumerate(clauses):
            mine = np.flatnonzero(chosen == number)
            if not len(mine):
                continue
            stale = self._stale(stored, seen, mine) if clause.by_order else mine[:0]
            meant = pa.array(np.setdiff1d(mine, stale, assume_unique=True))
            rows = stored.take(meant)
            if clause.values is None:
                part = deletes_of(rows, self.config)
            else:
                changed, as_stored = clause.values.changed(rows, seen.take(meant))
                part = self._winning(replace(upserts(changed), as_stored=as_stored), rows)
            found.append(replace(part, stale=part.stale + len(stale)))
        return found

    def _stale(self, stored: pa.Table, seen: pa.Table, positions: np.ndarray) -> np.ndarray:
        """Those of the positions of pairs at which the source row loses to the stored row by the ordering column."""
        policy = self.config.merge_policy
        if policy.order_by is None:
            return positions[:0]
        newer = seen[f"{SOURCE}.{policy.order_by}"].take(pa.array(positions))
        return positions[~policy.wins(pa.table({policy.order_by: newer}), stored.take(pa.array(positions)))]

    def _winning(self, changes: KeyedChanges, stored: pa.Table) -> KeyedChanges:
        """The changes that do not lose to the stored rows by the ordering column, where they set it."""
        policy = self.config.merge_policy
        if policy.order_by is None or policy.order_by in changes.as_stored or not len(changes):
            return changes
        before = stored.take(pc.index_in(changes.rows[RECORD_KEY], value_set=stored[RECORD_KEY].combine_chunks()))
        wins = policy.wins(changes.rows, before)
        return replace(changes.take(np.flatnonzero(wins)), stale=int((~wins).sum()))


__all__ = ["MergeSource", "NewKeys", "PartialUpdate", "merge", "proposed"]
