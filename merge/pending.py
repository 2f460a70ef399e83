"""Changes that wait in memory for base rows which go by in batches."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.hashing import hash64
from hoodoo.format.names import RECORD_KEY
from hoodoo.merge.changes import Changes, beats

_FEW = 100_000  # of so many keys a look-up costs half of what the hashes of a batch do


class PendingChanges:
    """Changes in memory, one per key. Of each: `found`, did a base row seen so far have its key, and `won`, did it
    not lose to that row.

    rows: of each change the base row (int64) that has its key, -1 if none has; None where that is not known, and keys
    are compared.
    """

    def __init__(self, changes: Changes, order_by: str | None, rows: np.ndarray | None = None) -> None:
        self.changes, self._order_by = changes, order_by
        self._by_row = None if rows is None else np.argsort(rows)
        self._rows = np.empty(0, np.int64) if self._by_row is None or rows is None else rows[self._by_row]
        self.found, self.won = np.zeros(len(changes), bool), np.ones(len(changes), bool)
        self._keys = changes.rows[RECORD_KEY].combine_chunks() if len(changes) else pa.array([], pa.string())
        self._order = changes.rows[order_by].combine_chunks() if order_by else None

    def stays(self, base: pa.Table) -> np.ndarray:
        """Mask over base rows: no change replaces or deletes them."""
        mask = np.ones(len(base), bool)
        mask[self.meet(base)[0]] = False
        return mask

    @property
    def needed_columns(self) -> tuple[str, ...]:
        """Columns of the base without which changes cannot meet it."""
        key = (RECORD_KEY,) if self._by_row is None else ()
        return (*key, self._order_by) if self._order_by else key

    def meet(self, base: pa.Table, start: int = 0, count: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Base rows that a change replaces or deletes, ascending, and the change of each. start: the number of the
        first row of `base`, count: how many there are, where rows are known.
        """
        if self._by_row is None:
            rows, partner = self._partners(base[RECORD_KEY])
        else:
            end = start + (len(base) if count is None else count)
            begin, stop = np.searchsorted(self._rows, [start, end])
            rows, partner = self._rows[begin:stop] - start, self._by_row[begin:stop]
        self.found[partner] = True
        if self._order is not None and self._order_by and len(rows):
            incoming = pa.chunked_array([self._order.take(pa.array(partner))])
            wins = beats(incoming, base[self._order_by].take(pa.array(rows))) | self.changes.unconditional[partner]
            self.won[partner[~wins]] = False
            rows, partner = rows[wins], partner[wins]
        return rows, partner

    @cached_property
    def _hashes(self) -> pa.Array | None:
        """Of the changed keys, where there are so many that numbers are found faster than texts; None too where two of
        them share one.
        """
        if len(self.changes) <= _FEW:
            return None
        hashes = pa.array(self.changes.key_hashes())
        return hashes if len(hashes.unique()) == len(hashes) else None

    def _partners(self, keys: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
        """(base rows, the change of each one's key). Where hashes find candidates, keys decide."""
        if self._hashes is None:
            place = pc.index_in(keys, value_set=self._keys).fill_null(-1).to_numpy()
            rows = np.flatnonzero(place >= 0)
            return rows, place[rows]
        place = pc.index_in(pa.array(hash64(keys)), value_set=self._hashes).fill_null(-1).to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(place >= 0)
        if not len(rows):
            return rows, rows
        same = pc.equal(
            keys.take(pa.array(rows)), pa.chunked_array([self._keys.take(pa.array(place[rows]))])
        ).to_numpy()
        return rows[same], place[rows][same]

    def live(self) -> np.ndarray:
        return self.won & ~self.changes.delete
