"""Kernels, which merge changes with stored rows.

The ordering columns come from the table's policy (merge/policy.py), which calls these functions.

With ordering columns, the larger value wins, and the later change wins a tie. Several columns are compared in order: a
later column decides between rows that are equal in all earlier columns. Without ordering columns, the later change
wins. An unconditional delete removes every earlier version. Log files are merged by Hudi's rule (docs/format.md 11.2,
11.3): changes are first merged with each other, and the result is merged with the base row. Ordering values can only be
null or NaN in data that other engines wrote. Null is the least value of a column and NaN the greatest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.hashing import hash64
from hoodoo.format.names import RECORD_KEY
from hoodoo.format.rows import compact, take_from_column, take_rows
from hoodoo.merge.replaced_values import replace_values


@dataclass(frozen=True)
class KeyedChanges:
    """Upserts and deletes in order of arrival.

    Attributes:
        rows: One row per change, with the record key column. In the row of a delete, all other columns are null, except
            the ordering columns of an ordered delete.
        delete: bool[n], True for deletes.
        unconditional: bool[n], True for deletes that win whatever the ordering values are.
        unset: For partial updates: column -> bool[n], True for changes that keep the stored value of the column. Their
            own value is ignored. Columns that all changes set are left out.
    """

    rows: pa.Table
    delete: np.ndarray
    unconditional: np.ndarray
    # columns that a partial update sets; None: complete rows, or rows with `unset`
    columns: tuple[str, ...] | None = None
    hashes: np.ndarray | None = None  # hash64 of the record keys, or None if not yet computed
    # int64[n]: position of each key in the base rows; None: unknown, or some keys are not in the base
    at: np.ndarray | None = None
    as_stored: frozenset[str] = frozenset()  # columns whose values are copied unchanged from the stored rows
    stale: int = 0  # number of changes that were dropped because the stored row wins
    mistaken: bool = False  # True if a hash collision matched a wrong stored key: discard these changes
    unset: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def key_hashes(self) -> np.ndarray:
        return hash64(self.rows[RECORD_KEY]) if self.hashes is None else self.hashes

    def hashes_at(self, positions: np.ndarray) -> np.ndarray:
        if self.hashes is not None:
            return self.hashes[positions]
        return hash64(self.rows[RECORD_KEY].take(pa.array(positions)))

    @property
    def partial(self) -> np.ndarray:
        """Mask of the changes that keep stored values."""
        partial = np.zeros(len(self), bool)
        for mask in self.unset.values():
            partial |= mask
        return partial

    def setting(self, name: str, chosen: np.ndarray) -> np.ndarray | None:
        """Find the changes that set a column.

        Returns None if all chosen changes set it.
        """
        mask = self.unset.get(name)
        return None if mask is None else np.flatnonzero(~mask[chosen])

    def take(self, positions: np.ndarray) -> KeyedChanges:
        hashes = None if self.hashes is None else self.hashes[positions]
        at = None if self.at is None else self.at[positions]
        return replace(
            self,
            rows=take_rows(self.rows, positions),
            delete=self.delete[positions],
            unconditional=self.unconditional[positions],
            hashes=hashes,
            at=at,
            unset={name: mask[positions] for name, mask in self.unset.items() if mask[positions].any()},
        )


@dataclass(frozen=True)
class MergeResult:
    """Result of a merge: the merged rows, and which changes took effect.

    Attributes:
        rows: The base rows in their order, with winning changes applied and without deleted rows, followed by new rows.
        partner: int64[n], the base position of each change's key, or -1 if the key is not in the base.
        won: bool[n], True for changes that took effect.
    """

    rows: pa.Table
    partner: np.ndarray
    won: np.ndarray

    @property
    def found(self) -> np.ndarray:
        mask: np.ndarray = self.partner >= 0
        return mask


def as_upserts(rows: pa.Table) -> KeyedChanges:
    no_deletes = np.zeros(len(rows), bool)
    return KeyedChanges(rows, no_deletes, no_deletes)


def concat_changes(parts: Sequence[KeyedChanges]) -> KeyedChanges:
    """Concatenate sets of changes in order of arrival.

    The result describes partial updates by `unset`, not by `columns`.
    """
    if len(parts) == 1:
        return replace(parts[0], columns=None, unset=_concat_unset_masks(parts))
    # later steps iterate over all chunks
    rows = compact(pa.concat_tables([part.rows for part in parts]).unify_dictionaries())
    positions = [part.at for part in parts if part.at is not None]
    return KeyedChanges(
        rows,
        np.concatenate([part.delete for part in parts]),
        np.concatenate([part.unconditional for part in parts]),
        at=np.concatenate(positions) if len(positions) == len(parts) else None,
        unset=_concat_unset_masks(parts),
    )


def extend_to_all_columns(changes: KeyedChanges, schema: pa.Schema) -> KeyedChanges:
    """Extend changes to all columns of the table.

    Columns that it does not set are null and marked in `unset`.
    """
    assert changes.columns is not None
    rows, all_changes = changes.rows, np.ones(len(changes), bool)
    names = rows.schema.names
    columns = [rows[field.name] if field.name in names else pa.nulls(len(rows), field.type) for field in schema]
    wide = pa.table([rows[RECORD_KEY], *columns], names=[RECORD_KEY, *schema.names])
    unset = {name: all_changes for name in schema.names if name not in changes.columns}
    return replace(changes, rows=wide, columns=None, unset=unset)


def _concat_unset_masks(parts: Sequence[KeyedChanges]) -> dict[str, np.ndarray]:
    if all(part.columns is None and not part.unset for part in parts):
        return {}

    def mask(part: KeyedChanges, name: str) -> np.ndarray:
        if part.columns is None:
            return part.unset.get(name, np.zeros(len(part), bool))
        return np.full(len(part), name not in part.columns)

    masks = {name: np.concatenate([mask(part, name) for part in parts]) for name in parts[0].rows.schema.names}
    return {name: column_mask for name, column_mask in masks.items() if column_mask.any()}


def repeated(codes: np.ndarray) -> np.ndarray:
    ordered = np.sort(codes)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(twice):
        return np.empty(0, np.int64)
    distinct = twice[np.append(True, twice[1:] != twice[:-1])]  # the values are sorted; np.unique would hash them
    return np.flatnonzero(np.isin(codes, distinct))


def rank_rows(rows: pa.Table, positions: np.ndarray, order_by: tuple[str, ...]) -> np.ndarray:
    """Rank rows by their ordering columns.

    Args:
        rows: Rows with the ordering columns.
        positions: int[n], positions in `rows`.
        order_by: The ordering columns, in the order of comparison. If empty, all ranks are 0.
    """
    if not order_by:
        return np.zeros(len(positions), np.int64)
    combined, *other_ranks = (_column_ranks(rows[name].take(pa.array(positions))) for name in order_by)
    for rank in other_ranks:
        (_, earlier), (_, current) = (np.unique(part, return_inverse=True) for part in (combined, rank))
        # both factors are at most the number of rows
        combined = earlier.astype(np.int64) * (current.max(initial=0) + 1) + current
    return combined


def _column_ranks(values: pa.ChunkedArray) -> np.ndarray:
    # Null has the least rank, NaN the greatest.
    kind = values.type
    if pa.types.is_integer(kind) and not values.null_count:
        return values.to_numpy().astype(np.int64, copy=False)
    if pa.types.is_temporal(kind) and not values.null_count:
        return (
            values.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64()).to_numpy().astype(np.int64, copy=False)
        )
    ranked = pc.rank(values, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    return np.where(values.is_null().to_numpy(), -1, ranked) if values.null_count else ranked


def keep_winning_changes(changes: KeyedChanges, order_by: tuple[str, ...]) -> KeyedChanges:
    """Keep only the winning change of each key.

    Partial updates of a key are combined. They must not have ordering columns.
    """
    suspects = repeated(changes.key_hashes() if changes.at is None else changes.at)
    if not len(suspects):
        return changes
    if changes.unset:
        assert not order_by, "partial updates with an ordering column are applied one after the other"
        return _combine_partial_updates(changes, suspects)
    losers = suspects[_losing_changes(changes, suspects, order_by)]
    if not len(losers):
        return changes
    keep = np.ones(len(changes), bool)
    keep[losers] = False
    return changes.take(np.flatnonzero(keep))


def _combine_partial_updates(changes: KeyedChanges, suspects: np.ndarray) -> KeyedChanges:
    # Values before the last complete row or delete of a key are ignored. `suspects` are the positions of changes whose
    # key may occur more than once.
    key = dense_codes(changes.rows[RECORD_KEY].take(pa.array(suspects))) if changes.at is None else changes.at[suspects]
    order = np.lexsort((suspects, key))
    rows, key = suspects[order], key[order]
    starts = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    ends = np.append(starts[1:], len(rows))
    last, index = rows[ends - 1], np.arange(len(rows))
    last_complete = np.maximum.reduceat(
        np.where(changes.partial[rows], -1, index), starts
    )  # per key; -1: no complete row
    counts = index >= np.repeat(last_complete, ends - starts)
    keep = np.ones(len(changes), bool)
    keep[rows] = False
    keep[last] = True
    kept = np.flatnonzero(keep)
    slots = np.searchsorted(kept, last)
    set_by_all = [name for name in changes.rows.schema.names if name not in changes.unset]
    folded, columns, unset = replace(changes, rows=changes.rows.select(set_by_all)).take(kept), {}, {}
    for name, mask in changes.unset.items():
        newest = np.maximum.reduceat(np.where(counts & ~mask[rows], index, -1), starts)
        positions, still_unset = kept.copy(), mask[kept]
        positions[slots] = np.where(newest < 0, last, rows[newest])
        still_unset[slots] = newest < 0
        columns[name] = take_from_column(changes.rows[name], positions)
        if still_unset.any():
            unset[name] = still_unset
    table = [columns[name] if name in columns else folded.rows[name] for name in changes.rows.schema.names]
    return replace(folded, rows=pa.table(table, schema=changes.rows.schema), unset=unset)


def _losing_changes(changes: KeyedChanges, positions: np.ndarray, order_by: tuple[str, ...]) -> np.ndarray:
    # If the base positions are unknown, the keys themselves are compared, not only their hashes.
    key = (
        dense_codes(changes.rows[RECORD_KEY].take(pa.array(positions))) if changes.at is None else changes.at[positions]
    )
    rank = rank_rows(changes.rows, positions, order_by)
    unconditional = changes.unconditional[positions]
    epoch = _count_unconditional_deletes(key, unconditional)
    # An ordered delete after an unconditional delete has no row to delete, so the unconditional delete wins.
    nothing_left = changes.delete[positions] & ~unconditional & (epoch > 0)
    least = np.iinfo(np.int64).min
    return find_replaced_rows(key, np.where(nothing_left, least, np.where(unconditional, least + 1, rank)), epoch)


def dense_codes(values: pa.ChunkedArray) -> np.ndarray:
    return pc.dictionary_encode(values).combine_chunks().indices.to_numpy()


def find_replaced_rows(key: np.ndarray, rank: np.ndarray, epoch: np.ndarray | None = None) -> np.ndarray:
    """Find the rows that another row with the same key replaces.

    Both rows have the same key. The row with the larger epoch wins. Among equal epochs, the larger rank wins, and the
    later row wins a tie.

    Args:
        key: A code for the key of each row.
        rank: The rank (int64) of each row by its ordering values.
        epoch: For each row, the number of unconditional deletes of its key up to this row. None: no such deletes.
    """
    order = np.arange(len(key))
    ranked = np.lexsort((order, rank, key) if epoch is None else (order, rank, epoch, key))
    last = np.append(key[ranked][1:] != key[ranked][:-1], True)
    lost = np.ones(len(key), bool)
    lost[ranked[last]] = False
    return lost


def _count_unconditional_deletes(key: np.ndarray, unconditional: np.ndarray) -> np.ndarray:
    # The number of unconditional deletes of the key up to a change is its epoch. Only a change with the highest epoch
    # of its key can win.
    if not unconditional.any():
        return np.zeros(len(key), np.int64)
    by_key = np.argsort(key, kind="stable")
    running = np.cumsum(unconditional[by_key])
    first = np.searchsorted(key[by_key], key[by_key], side="left")
    counts = np.empty(len(key), np.int64)
    counts[by_key] = running - (running - unconditional[by_key])[first]
    return counts


def find_winning_rows(new: pa.Table, old: pa.Table, order_by: tuple[str, ...]) -> np.ndarray:
    """Find the new rows that win over old rows.

    Old and new rows are at the same positions. Rows are compared by the ordering columns. The new row wins a tie.

    Args:
        new: Rows with the ordering columns.
        old: The same number of rows, with these columns and types.
        order_by: The ordering columns, at least one, in the order of comparison.
    """
    *before, last = order_by
    wins = _is_at_least(new[last], old[last])
    for name in reversed(before):
        above = _is_at_least(new[name], old[name])
        tied = above & _is_at_least(old[name], new[name])
        wins = np.where(tied, wins, above)
    return wins


def _is_at_least(new: pa.ChunkedArray, old: pa.ChunkedArray) -> np.ndarray:
    if not len(new):
        return np.zeros(0, bool)
    wins = pc.greater_equal(new, old)
    if pa.types.is_floating(new.type):
        wins = pc.or_kleene(wins, pc.is_nan(new))
    if wins.null_count:
        wins = pc.if_else(pc.is_null(old), True, pc.if_else(pc.is_null(new), False, wins))
    return wins.to_numpy(zero_copy_only=False) if isinstance(wins, pa.Array) else wins.to_numpy()


def find_indexes(values: pa.ChunkedArray, keys: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Find the index of each value in an array of unique values."""
    among = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    positions: np.ndarray = pc.index_in(values, value_set=among).fill_null(-1).to_numpy()
    return positions


def apply_changes(base: pa.Table, changes: KeyedChanges, order_by: tuple[str, ...]) -> MergeResult:
    """Apply changes to base rows with unique keys."""
    change = find_indexes(base[RECORD_KEY], changes.rows[RECORD_KEY])  # for each base row
    rows = np.flatnonzero(change >= 0)
    partner = np.full(len(changes), -1, np.int64)
    partner[change[rows]] = rows
    won = _winning_changes(base, changes, partner, order_by)
    return MergeResult(_apply_winners(base, changes, partner, won), partner, won)


def _winning_changes(
    base: pa.Table, changes: KeyedChanges, positions: np.ndarray, order_by: tuple[str, ...]
) -> np.ndarray:
    won = np.ones(len(changes), bool)
    matched = np.flatnonzero(positions >= 0)
    if order_by and len(matched):
        names = list(order_by)
        new, old = (
            changes.rows.select(names).take(pa.array(matched)),
            base.select(names).take(pa.array(positions[matched])),
        )
        won[matched] = find_winning_rows(new, old, order_by) | changes.unconditional[matched]
    return won


def _apply_winners(base: pa.Table, changes: KeyedChanges, positions: np.ndarray, won: np.ndarray) -> pa.Table:
    names, incoming = base.schema.names, changes.rows.select(base.schema.names)
    updating = np.flatnonzero(won & (positions >= 0) & ~changes.delete)
    deleted = positions[won & (positions >= 0) & changes.delete]
    inserted = np.flatnonzero((positions < 0) & ~changes.delete)
    if len(updating):
        masks = {name: changes.unset.get(name) for name in names}
        new = take_rows(incoming.select([name for name, mask in masks.items() if mask is None]), updating)
        columns = []
        for name, mask in masks.items():
            setting = updating if mask is None else updating[~mask[updating]]
            values = new[name] if mask is None else take_from_column(incoming[name], setting)
            columns.append(replace_values(base[name], positions[setting], values) if len(setting) else None)
        updated = [old if column is None else column for old, column in zip(base.columns, columns, strict=True)]
        base = pa.table(updated, schema=base.schema)
    if len(deleted):
        remaining = np.ones(len(base), bool)
        remaining[deleted] = False
        base = base.filter(pa.array(remaining))
    if not len(inserted):
        return base
    return pa.concat_tables([base, take_rows(incoming, inserted).cast(base.schema)]).unify_dictionaries()


def apply_changes_by_position(
    base: pa.Table, changes: KeyedChanges, positions: np.ndarray, order_by: tuple[str, ...]
) -> pa.Table:
    """Apply changes to base rows by row position.

    The rows of `base` keep their order. New rows are at the end.

    Args:
        base: One row per key.
        changes: Changes, one per key.
        positions: int64[n], the position of each change in `base`, or -1 for a new row.
        order_by: The ordering columns, or empty.
    """
    return _apply_winners(base, changes, positions, _winning_changes(base, changes, positions, order_by))


def set_columns(base: pa.Table, changes: KeyedChanges, order_by: tuple[str, ...]) -> pa.Table:
    """Set some columns of base rows.

    With ordering columns, a row only changes if the update has the larger ordering value. An update that does not set
    all ordering columns wins, because it is later. Keys that are not in `base` become new rows.
    """
    names = changes.columns or ()
    change = find_indexes(base[RECORD_KEY], changes.rows[RECORD_KEY])
    rows = np.flatnonzero(change >= 0)
    new_keys = np.ones(len(changes), bool)
    new_keys[change[rows]] = False
    if order_by and set(order_by) <= set(names) and len(rows):
        new, old = changes.rows.select(order_by), base.select(order_by)
        rows = rows[find_winning_rows(new.take(pa.array(change[rows])), old.take(pa.array(rows)), order_by)]
    source = np.arange(len(base))
    source[rows] = len(base) + change[rows]
    both = pa.concat_tables([base, changes.rows.select(base.schema.names)]).unify_dictionaries()
    changed, changed_names = take_rows(both, source), set(names)
    columns = zip(base.schema.names, base.columns, changed.columns, strict=True)
    merged = pa.table([new if name in changed_names else old for name, old, new in columns], names=base.schema.names)
    return pa.concat_tables([merged, both.slice(len(base)).filter(pa.array(new_keys))]) if new_keys.any() else merged
