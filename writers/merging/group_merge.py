"""Merge of source rows into one file group.

The code runs in the task that writes the file group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.names import RECORD_KEY
from hoodoo.format.rows import take_rows
from hoodoo.index.key_index import KeyIndex
from hoodoo.merge import kernels
from hoodoo.merge.kernels import KeyedChanges, as_upserts
from hoodoo.readers.lookup import look_up_in
from hoodoo.readers.slices import slices
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import FileGroup
from hoodoo.writers.batches.batch import require_values
from hoodoo.writers.merging.clauses import SOURCE, Clause, Kind, both, first_true_clause
from hoodoo.writers.merging.merge_routing import MergeRules
from hoodoo.writers.stored_rows import unconditional_deletes_of


@dataclass(frozen=True)
class MatchedRows:
    """Source rows that match stored rows.

    Attributes:
        rows: The source rows.
        keys: The record keys of the rows.
        hashes: The hashes of the record keys, as uint64[n].
    """

    rows: pa.Table
    keys: pa.Array
    hashes: np.ndarray


@dataclass(frozen=True)
class UnreadPartialUpdate:
    """Partial update without reading stored rows.

    Attributes:
        config: The configuration of the table.
        source: Returns the source rows.
        sets: The columns that the source rows set.
    """

    config: TableConfig
    source: Callable[[], MatchedRows]
    sets: tuple[str, ...]

    def __call__(self) -> KeyedChanges:
        matched = self.source()
        source_columns = set(matched.rows.schema.names)
        columns = [name for name in self.config.schema.names if name in source_columns]
        rows = matched.rows.select(columns).add_column(0, RECORD_KEY, matched.keys)
        require_values(rows, self.config, np.zeros(len(rows), bool))
        return replace(as_upserts(rows), hashes=matched.hashes, columns=self.sets)


@dataclass(frozen=True)
class GroupMerge:
    """Merge of source rows into one file group.

    The changes come from matched pairs, from stored rows without a source row, and from new rows.

    Attributes:
        store: The store of the table.
        index: The index of the table.
        rules: The rules of the merge.
        group: The file group.
        source: Returns the source rows that match rows of the file group. None if no source row matches.
        new: Returns the new rows to add to the file group. None if it gets no new rows.
        sets: The columns that a partial update sets. Empty if whole rows are written.
    """

    store: Store
    index: KeyIndex
    rules: MergeRules
    group: FileGroup
    source: Callable[[], MatchedRows] | None
    new: Callable[[], KeyedChanges] | None
    sets: tuple[str, ...]

    def __call__(self) -> KeyedChanges:
        changes, by_source = list[KeyedChanges](), self.rules.of_kind(Kind.NOT_MATCHED_BY_SOURCE)
        matched_source = self.source() if self.source else None
        stored = self._stored(matched_source, whole=bool(by_source))
        has_source = pa.repeat(pa.scalar(False), len(stored))
        if matched_source is not None:
            source = pc.index_in(stored[RECORD_KEY].combine_chunks(), value_set=matched_source.keys)
            has_source = source.is_valid()
            if not self.rules.compares and pc.sum(has_source).as_py() != len(matched_source.keys):
                return replace(as_upserts(stored.slice(0, 0)), mistaken=True)
            pairs, partner = stored.filter(has_source), take_rows(matched_source.rows, source.drop_null().to_numpy())
            matched = self.rules.of_kind(Kind.MATCHED)
            changes += self._apply_clauses(matched, pairs, both(partner, self._target(pairs)))
        if by_source:
            unmatched = stored.filter(pc.invert(has_source))
            changes += self._apply_clauses(by_source, unmatched, both(None, self._target(unmatched)))
        updates = [part for part in changes if not part.delete.any()]
        as_stored = frozenset(self._config.schema.names).intersection(*(part.as_stored for part in updates))
        new = self.new() if self.new else as_upserts(stored.slice(0, 0).select(self._names))
        parts = [part for part in (*changes, new) if len(part)]
        stale = sum(part.stale for part in changes)
        if not parts:
            return replace(new, stale=stale)
        merged = kernels.concat_changes([replace(part, rows=part.rows.select(self._names)) for part in parts])
        return replace(merged, as_stored=as_stored, stale=stale, columns=self.sets or None)

    @property
    def _config(self) -> TableConfig:
        return self.rules.config

    @cached_property
    def _columns_to_read(self) -> list[str]:
        names = self._config.schema.names
        if not self.sets:
            return names
        matched = self.rules.of_kind(Kind.MATCHED)
        needed = {name for clause in matched if clause.values for name in clause.values.needed_columns}
        return [name for name in names if name in needed]

    @property
    def _names(self) -> list[str]:
        return [RECORD_KEY, *self._columns_to_read]

    def _stored(self, matched_source: MatchedRows | None, whole: bool) -> pa.Table:
        schema = slices.schema_of(self._config, self._names)
        if whole or matched_source is None:
            return slices.read_file_slice(self.store, self._config, self.group, schema)
        return look_up_in(
            self.store, self._config, self.index, self.group, schema, matched_source.keys, matched_source.hashes
        )

    def _target(self, stored: pa.Table) -> pa.Table:
        return stored.select(self._columns_to_read)

    def _apply_clauses(self, clauses: Sequence[Clause], stored: pa.Table, seen: pa.Table) -> list[KeyedChanges]:
        # `seen` contains the columns that expressions use.
        chosen, changes = first_true_clause(clauses, seen), []
        for number, clause in enumerate(clauses):
            positions = np.flatnonzero(chosen == number)
            if not len(positions):
                continue
            stale = self._stale_pairs(stored, seen, positions) if clause.by_order else positions[:0]
            effective = pa.array(np.setdiff1d(positions, stale, assume_unique=True))
            rows = stored.take(effective)
            if clause.values is None:
                part = unconditional_deletes_of(rows, self._config)
            else:
                changed, as_stored = clause.values.changed(rows, seen.take(effective))
                part = self._drop_stale_updates(replace(as_upserts(changed), as_stored=as_stored), rows)
            changes.append(replace(part, stale=part.stale + len(stale)))
        return changes

    def _stale_pairs(self, stored: pa.Table, seen: pa.Table, positions: np.ndarray) -> np.ndarray:
        policy = self._config.merge_policy
        if not policy.order_by:
            return positions[:0]
        newer = pa.table({name: seen[f"{SOURCE}.{name}"].take(pa.array(positions)) for name in policy.order_by})
        return positions[~policy.mask_of_winning_rows(newer, stored.take(pa.array(positions)))]

    def _drop_stale_updates(self, changes: KeyedChanges, stored: pa.Table) -> KeyedChanges:
        policy = self._config.merge_policy
        if changes.as_stored.issuperset(policy.order_by) or not len(changes):
            return changes
        before = stored.take(pc.index_in(changes.rows[RECORD_KEY], value_set=stored[RECORD_KEY].combine_chunks()))
        wins = policy.mask_of_winning_rows(changes.rows, before)
        return replace(changes.take(np.flatnonzero(wins)), stale=int((~wins).sum()))


__all__ = ["GroupMerge", "MatchedRows", "UnreadPartialUpdate"]
