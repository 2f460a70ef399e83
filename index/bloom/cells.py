"""Cells of the index, which map key hashes to row positions.

Each sorted hash has a cell. The low bits of a cell are the position of the row, and the other bits are a check of the
key. Hash and check together identify the key, even if an attacker chooses colliding keys (format/key_check). A row
position is therefore only returned for the key of that row.

A digest of the row order shows whether an index entry matches a base file and its log files.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import xxhash

from hoodoo.format.key_check import compute_keyed_hashes


@dataclass(frozen=True)
class RowPositions:
    """Cells of the index, which map key hashes to row positions.

    Attributes:
        hashes: uint64[n], ascending.
        values: uint64[n], the cell of each hash.
        secret: The secret for the checks.
        bits: The number of low bits of a cell that contain the row position.
        order: Hex digest of the hashes in row order.
    """

    hashes: np.ndarray
    values: np.ndarray
    secret: bytes
    bits: int
    order: str

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def rows(self) -> np.ndarray:
        return (self.values & self._row_mask).astype(np.int64)

    @property
    def _row_mask(self) -> np.uint64:
        return np.uint64((1 << self.bits) - 1)

    def find(self, keys: pa.Array | pa.ChunkedArray, hashes: np.ndarray) -> np.ndarray:
        """Look up the row position of each key.

        It is -1 if no row has the key.

        Args:
            keys: Strings without nulls.
            hashes: uint64[n], the hash of each key, in the same order.
        """
        rows = np.full(len(hashes), -1, np.int64)
        if not len(self) or not len(hashes):
            return rows
        order = np.argsort(hashes)  # sorted lookups read each page of the array once
        sorted_hashes = hashes[order]
        first = np.searchsorted(self.hashes, sorted_hashes)
        present = np.flatnonzero(self.hashes[np.minimum(first, len(self) - 1)] == sorted_hashes)
        pending, at = order[present], first[present]
        checks = compute_keyed_hashes(keys.take(pa.array(pending)), self.secret) & ~self._row_mask
        while len(pending):  # one iteration, unless keys share a hash
            values = self.values[at]
            same = (values & ~self._row_mask) == checks
            rows[pending[same]] = (values[same] & self._row_mask).astype(np.int64)
            at += 1
            collided = ~same & (at < len(self)) & (self.hashes[np.minimum(at, len(self) - 1)] == hashes[pending])
            pending, at, checks = pending[collided], at[collided], checks[collided]
        return rows


def map_hashes_to_positions(hashes: np.ndarray, checks: np.ndarray, secret: bytes) -> RowPositions:
    bits = max(1, (len(hashes) - 1).bit_length())
    order = np.argsort(hashes)
    values = (checks[order] & ~np.uint64((1 << bits) - 1)) | order.astype(np.uint64)
    return RowPositions(hashes[order], values, secret, bits, order_of(hashes))


def update_positions(before: RowPositions, dropped: np.ndarray, hashes: np.ndarray, checks: np.ndarray) -> RowPositions:
    """Update the row positions of keys in a rewritten base file.

    The new file begins with the remaining rows of the older file, in the same order.

    Args:
        before: The cells of the older file.
        dropped: Positions of the rows of the older file that the new file leaves out.
        hashes: uint64[n], the key hashes of the rows added at the end, in row order.
        checks: uint64[n], the checks of these keys, with the secret of `before`.
    """
    remaining = np.ones(len(before), bool)
    remaining[dropped] = False
    position_after, rows = np.cumsum(remaining) - 1, before.rows
    kept, count = remaining[rows], int(remaining.sum())
    bits = max(before.bits, (count + len(hashes) - 1).bit_length())
    mask = ~np.uint64((1 << bits) - 1)
    old = (before.values[kept] & mask) | position_after[rows[kept]].astype(np.uint64)
    sort = np.argsort(hashes)
    new = (checks[sort] & mask) | (count + sort).astype(np.uint64)
    at = np.searchsorted(before.hashes[kept], hashes[sort])
    in_rows = np.empty(len(before), np.uint64)
    in_rows[rows] = before.hashes
    order = order_of(np.concatenate([in_rows[remaining], hashes]))
    return RowPositions(
        np.insert(before.hashes[kept], at, hashes[sort]), np.insert(old, at, new), before.secret, bits, order
    )


def order_of(hashes: np.ndarray) -> str:
    return xxhash.xxh3_128_hexdigest(np.ascontiguousarray(hashes, "<u8").data)


__all__ = ["RowPositions", "update_positions", "map_hashes_to_positions", "order_of"]
