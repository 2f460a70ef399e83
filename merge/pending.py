"""Pending changes, which are merged with batches of base rows."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.hashing import hash64
from hoodoo.format.names import RECORD_KEY
from hoodoo.merge.kernels import KeyedChanges, apply_changes_by_position, find_winning_rows

_FEW = 100_000  # up to this number of keys, comparing key strings costs half as much as hashing a batch


class StreamingMerge:
    """Streaming merge of changes with batches of base rows.

    Attributes:
        changes: The changes.
        found: bool[n], True for changes whose key was in a base row read so far.
        won: bool[n], True for changes that have not lost against a base row so far.
    """

    def __init__(self, changes: KeyedChanges, order_by: tuple[str, ...], rows: np.ndarray | None = None) -> None:
        """Prepare changes for the merge.

        Args:
            changes: Changes, one per key.
            order_by: The ordering columns, or empty.
            rows: int64[n], the base position of each change's key, or -1 for a new key. None: positions are unknown,
                so keys are compared.
        """
        self.changes, self._order_by = changes, order_by
        self._by_row = None if rows is None else np.argsort(rows)
        self._rows = np.empty(0, np.int64) if self._by_row is None or rows is None else rows[self._by_row]
        self.found, self.won = np.zeros(len(changes), bool), np.ones(len(changes), bool)
        self._keys = changes.rows[RECORD_KEY].combine_chunks() if len(changes) else pa.array([], pa.string())
        self._order = changes.rows.select(order_by).combine_chunks()

    def mask_of_kept_rows(self, base: pa.Table) -> np.ndarray:
        mask = np.ones(len(base), bool)
        mask[self.find_changed_rows(base)[0]] = False
        return mask

    @property
    def needed_columns(self) -> tuple[str, ...]:
        key = (RECORD_KEY,) if self._by_row is None else ()
        return (*key, *self._order_by)

    def find_changed_rows(
        self, base: pa.Table, start: int = 0, count: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the rows of a batch that change.

        Args:
            base: The batch, with `needed_columns`.
            start: The position of its first row in the base file. Only used if positions are known.
            count: The number of its rows. Default: the number of rows of `base`.

        Returns:
            The positions in the batch of the rows that a change replaces or deletes, ascending, and the position of
            each row's change in `changes`.
        """
        if self._by_row is None:
            rows, partner = self._match_keys(base[RECORD_KEY])
        else:
            end = start + (len(base) if count is None else count)
            begin, stop = np.searchsorted(self._rows, [start, end])
            rows, partner = self._rows[begin:stop] - start, self._by_row[begin:stop]
        self.found[partner] = True
        if self._order_by and len(rows):
            incoming, stored = self._order.take(pa.array(partner)), base.select(self._order_by).take(pa.array(rows))
            wins = find_winning_rows(incoming, stored, self._order_by) | self.changes.unconditional[partner]
            self.won[partner[~wins]] = False
            rows, partner = rows[wins], partner[wins]
        return rows, partner

    def applied(self, base: pa.Table) -> pa.Table:
        """Apply changes to the next base rows."""
        rows, partner = self.find_changed_rows(base)
        return apply_changes_by_position(
            base, self.changes.take(partner), rows, ()
        )  # losing changes are already removed

    @cached_property
    def _distinct_hashes(self) -> pa.Array | None:
        # Key strings are used for few keys, because it is faster, and if two keys have the same hash.
        if len(self.changes) <= _FEW:
            return None
        hashes = pa.array(self.changes.key_hashes())
        return hashes if len(hashes.unique()) == len(hashes) else None

    def _match_keys(self, keys: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
        # Rows with a matching hash are verified by comparing keys.
        if self._distinct_hashes is None:
            change = pc.index_in(keys, value_set=self._keys).fill_null(-1).to_numpy()
            rows = np.flatnonzero(change >= 0)
            return rows, change[rows]
        change = (
            pc.index_in(pa.array(hash64(keys)), value_set=self._distinct_hashes)
            .fill_null(-1)
            .to_numpy(zero_copy_only=False)
        )
        rows = np.flatnonzero(change >= 0)
        if not len(rows):
            return rows, rows
        same = pc.equal(
            keys.take(pa.array(rows)), pa.chunked_array([self._keys.take(pa.array(change[rows]))])
        ).to_numpy()
        return rows[same], change[rows][same]

    def live(self) -> np.ndarray:
        return self.won & ~self.changes.delete
