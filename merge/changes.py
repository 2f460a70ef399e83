"""Which version of a key wins, once for all: among changes, and over the rows of a base. Files and tables are not known
here.

With an ordering column the larger value wins and on a tie the later one; without, the later one. An unconditional
delete removes whatever came before it. Among logs this is Hudi's rule (docs/format.md 11.2, 11.3): changes are merged
among themselves first, and the result meets the base row. Nulls and NaN occur in foreign data only: null is the least
value, NaN the greatest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.hashing import hash64
from hoodoo.format.names import RECORD_KEY
from hoodoo.format.rows import compact, take
from hoodoo.merge.in_place import replaced


@dataclass(frozen=True)
class Changes:
    """What should become of some keys, in order of arrival. `rows` has the record key column; a delete's other columns
    are null
    but for the ordering column of an ordered one. `delete` and `unconditional` (a subset of it) are masks of len(rows).
    """

    rows: pa.Table
    delete: np.ndarray
    unconditional: np.ndarray
    columns: tuple[str, ...] | None = None  # of a partial update: the columns it sets; None: whole rows
    hashes: np.ndarray | None = None  # hash64 of the record keys, where whoever made the changes has them
    at: np.ndarray | None = None  # int64: rows of the base that have the keys, where all have one and it is known

    def __len__(self) -> int:
        return len(self.rows)

    def key_hashes(self) -> np.ndarray:
        return hash64(self.rows[RECORD_KEY]) if self.hashes is None else self.hashes

    def take(self, places: np.ndarray) -> Changes:
        hashes = None if self.hashes is None else self.hashes[places]
        at = None if self.at is None else self.at[places]
        return Changes(
            take(self.rows, places), self.delete[places], self.unconditional[places], self.columns, hashes, at
        )


@dataclass(frozen=True)
class Merged:
    """`rows`: base rows where they are, changed ones among them, deleted ones left out; then new ones. Of each change:
    `partner`, its base row or -1, and `won`, did it take effect.
    """

    rows: pa.Table
    partner: np.ndarray
    won: np.ndarray

    @property
    def found(self) -> np.ndarray:
        """Mask: had the change a base row?"""
        mask: np.ndarray = self.partner >= 0
        return mask


def upserts(rows: pa.Table) -> Changes:
    none = np.zeros(len(rows), bool)
    return Changes(rows, none, none)


def concat(parts: Sequence[Changes]) -> Changes:
    if len(parts) == 1:
        return parts[0]
    # what comes next walks every chunk
    rows = compact(pa.concat_tables([part.rows for part in parts]).unify_dictionaries())
    known = [part.at for part in parts if part.at is not None]
    return Changes(
        rows,
        np.concatenate([part.delete for part in parts]),
        np.concatenate([part.unconditional for part in parts]),
        at=np.concatenate(known) if len(known) == len(parts) else None,
    )


def repeated(codes: np.ndarray) -> np.ndarray:
    """Places of all values that occur more than once, in ascending order of place. `codes`: integers of any kind."""
    ordered = np.sort(codes)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    return np.flatnonzero(np.isin(codes, np.unique(twice))) if len(twice) else np.empty(0, np.int64)


def ranks(values: pa.ChunkedArray) -> np.ndarray:
    """Dense ranks of ordering values, int64: equal values share one, null is least, NaN greatest."""
    kind = values.type
    if pa.types.is_integer(kind) and not values.null_count:
        return values.to_numpy().astype(np.int64, copy=False)
    if pa.types.is_temporal(kind) and not values.null_count:
        return (
            values.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64()).to_numpy().astype(np.int64, copy=False)
        )
    found = pc.rank(values, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    return np.where(values.is_null().to_numpy(), -1, found) if values.null_count else found


def collapse(changes: Changes, order_by: str | None) -> Changes:
    """One change per key: the winner among `changes`, which stand in order of arrival."""
    suspects = repeated(changes.key_hashes() if changes.at is None else changes.at)
    if not len(suspects):
        return changes
    losers = suspects[_losers(changes, suspects, order_by)]
    if not len(losers):
        return changes
    keep = np.ones(len(changes), bool)
    keep[losers] = False
    return changes.take(np.flatnonzero(keep))


def _losers(changes: Changes, places: np.ndarray, order_by: str | None) -> np.ndarray:
    """Mask over `places`: a change of the same key beats this one. Where rows of the base are not known, keys are
    compared, not only their hashes.
    """
    key = dense_codes(changes.rows[RECORD_KEY].take(pa.array(places))) if changes.at is None else changes.at[places]
    rank = ranks(changes.rows[order_by].take(pa.array(places))) if order_by else np.zeros(len(places), np.int64)
    unconditional = changes.unconditional[places]
    epoch = _after_unconditional(key, unconditional)
    # an ordered delete of a key that is gone already
    nothing_left = changes.delete[places] & ~unconditional & (epoch > 0)
    least = np.iinfo(np.int64).min
    return losers(key, np.where(nothing_left, least, np.where(unconditional, least + 1, rank)), epoch)


def dense_codes(values: pa.ChunkedArray) -> np.ndarray:
    """int32 codes that are equal exactly where `values` are."""
    return pc.dictionary_encode(values).combine_chunks().indices.to_numpy()


def losers(key: np.ndarray, rank: np.ndarray, epoch: np.ndarray | None = None) -> np.ndarray:
    """Mask: another row with the same `key` code has a higher (epoch, rank), or the same and stands later."""
    order = np.arange(len(key))
    ranked = np.lexsort((order, rank, key) if epoch is None else (order, rank, epoch, key))
    last = np.append(key[ranked][1:] != key[ranked][:-1], True)
    lost = np.ones(len(key), bool)
    lost[ranked[last]] = False
    return lost


def _after_unconditional(key: np.ndarray, unconditional: np.ndarray) -> np.ndarray:
    """How many unconditional deletes of its key stand at or before each change: only the highest count is still in
    play.
    """
    if not unconditional.any():
        return np.zeros(len(key), np.int64)
    by_key = np.argsort(key, kind="stable")
    running = np.cumsum(unconditional[by_key])
    first = np.searchsorted(key[by_key], key[by_key], side="left")
    counts = np.empty(len(key), np.int64)
    counts[by_key] = running - (running - unconditional[by_key])[first]
    return counts


def beats(new: pa.ChunkedArray, old: pa.ChunkedArray) -> np.ndarray:
    """Mask: does each new ordering value win over the old one beside it? Ties win."""
    if not len(new):
        return np.zeros(0, bool)
    wins = pc.greater_equal(new, old)
    if pa.types.is_floating(new.type):
        wins = pc.or_kleene(wins, pc.is_nan(new))
    if wins.null_count:
        wins = pc.if_else(pc.is_null(old), True, pc.if_else(pc.is_null(new), False, wins))
    return wins.to_numpy(zero_copy_only=False) if isinstance(wins, pa.Array) else wins.to_numpy()


def places_among(values: pa.ChunkedArray, keys: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Where each of `values` stands in `keys`, no two of which are equal (int[n]); -1 for those that do not."""
    among = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    places: np.ndarray = pc.index_in(values, value_set=among).fill_null(-1).to_numpy()
    return places


def merge(base: pa.Table, changes: Changes, order_by: str | None) -> Merged:
    """`base` (one row per key) with `changes` (one per key) applied; columns follow `base`."""
    place = places_among(base[RECORD_KEY], changes.rows[RECORD_KEY])
    rows = np.flatnonzero(place >= 0)
    partner = np.full(len(changes), -1, np.int64)
    partner[place[rows]] = rows
    won = _won(base, changes, partner, order_by)
    return Merged(_placed(base, changes, partner, won), partner, won)


def _won(base: pa.Table, changes: Changes, places: np.ndarray, order_by: str | None) -> np.ndarray:
    """Mask: does each change take effect over the row of `base` at its place? One without a row there (-1) does."""
    won = np.ones(len(changes), bool)
    here = np.flatnonzero(places >= 0)
    if order_by and len(here):
        new, old = changes.rows[order_by].take(pa.array(here)), base[order_by].take(pa.array(places[here]))
        won[here] = beats(new, old) | changes.unconditional[here]
    return won


def _placed(base: pa.Table, changes: Changes, places: np.ndarray, won: np.ndarray) -> pa.Table:
    """`base` with the changes that won at their places, those that delete left out, and those of no row (-1) behind."""
    names, incoming = base.schema.names, changes.rows.select(base.schema.names)
    set_ = np.flatnonzero(won & (places >= 0) & ~changes.delete)
    gone = places[won & (places >= 0) & changes.delete]
    fresh = np.flatnonzero((places < 0) & ~changes.delete)
    if len(set_):
        new = take(incoming, set_)
        columns = [replaced(base[name], places[set_], new[name]) for name in names]
        found = [old if column is None else column for old, column in zip(base.columns, columns, strict=True)]
        base = pa.table(found, schema=base.schema)
    if len(gone):
        stays = np.ones(len(base), bool)
        stays[gone] = False
        base = base.filter(pa.array(stays))
    if not len(fresh):
        return base
    return pa.concat_tables([base, take(incoming, fresh).cast(base.schema)]).unify_dictionaries()


def merge_by_row(base: pa.Table, changes: Changes, places: np.ndarray, order_by: str | None) -> pa.Table:
    """As `merge`, where it is known which row of `base` each change has: no key is looked at, and the rows of `base`
    stay where they are. places: of each change that row, -1 where it has none here; such changes become rows at the
    end.
    """
    return _placed(base, changes, places, _won(base, changes, places, order_by))


def overlay(base: pa.Table, changes: Changes, order_by: str | None) -> pa.Table:
    """`base` with a partial update applied: of each row it finds and beats, only the columns that it sets change.

    Where it does not set the ordering column it comes later and wins. Keys that are not in `base` become rows of their
    own.
    """
    names = changes.columns or ()
    place = places_among(base[RECORD_KEY], changes.rows[RECORD_KEY])
    rows = np.flatnonzero(place >= 0)
    fresh = np.ones(len(changes), bool)
    fresh[place[rows]] = False
    if order_by and order_by in names and len(rows):
        rows = rows[beats(changes.rows[order_by].take(pa.array(place[rows])), base[order_by].take(pa.array(rows)))]
    source = np.arange(len(base))
    source[rows] = len(base) + place[rows]
    both = pa.concat_tables([base, changes.rows.select(base.schema.names)]).unify_dictionaries()
    changed, set_here = take(both, source), set(names)
    columns = zip(base.schema.names, base.columns, changed.columns, strict=True)
    merged = pa.table([new if name in set_here else old for name, old, new in columns], names=base.schema.names)
    return pa.concat_tables([merged, both.slice(len(base)).filter(pa.array(fresh))]) if fresh.any() else merged
