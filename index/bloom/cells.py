"""Cells of an index entry, which map the hashes of record keys to rows of a base file.

Each sorted hash has a cell. The low bits of a cell are the position of the row, and the other bits are a check of the
key. Hash and check together identify the key, even if somebody chooses colliding keys (format/key_check). A row
position is therefore returned only for the key in that row.

The order of the rows has a digest. It shows whether an index entry, a base file and the logs on top of it match.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import xxhash

from hoodoo.format.key_check import check64


@dataclass(frozen=True)
class Cells:
    """Mapping from the key hashes of one base file to row positions.

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
        """The row position in the base file for each key hash, int64[n]."""
        return (self.values & self._row_mask).astype(np.int64)

    @property
    def _row_mask(self) -> np.uint64:
        return np.uint64((1 << self.bits) - 1)

    def find(self, keys: pa.Array | pa.ChunkedArray, hashes: np.ndarray) -> np.ndarray:
        """Return the row position of each key, int64[n], or -1 if no row has the key.

        Args:
            keys: Strings without nulls.
            hashes: uint64[n], the hash of each key, in the same order.
        """
        found = np.full(len(hashes), -1, np.int64)
        if not len(self) or not len(hashes):
            return found
        order = np.argsort(hashes)  # sorted lookups read each page of the array once
        wanted = hashes[order]
        first = np.searchsorted(self.hashes, wanted)
        there = np.flatnonzero(self.hashes[np.minimum(first, len(self) - 1)] == wanted)
        asked, at = order[there], first[there]
        checks = check64(keys.take(pa.array(asked)), self.secret) & ~self._row_mask
        while len(asked):  # once, unless keys share a hash
            values = self.values[at]
            same = (values & ~self._row_mask) == checks
            found[asked[same]] = (values[same] & self._row_mask).astype(np.int64)
            at += 1
            more = ~same & (at < len(self)) & (self.hashes[np.minimum(at, len(self) - 1)] == hashes[asked])
            asked, at, checks = asked[more], at[more], checks[more]
        return found


def make(hashes: np.ndarray, checks: np.ndarray, secret: bytes) -> Cells:
    """Create the cells of a base file. `hashes` and `checks` are uint64[n], for its keys in row order."""
    bits = max(1, (len(hashes) - 1).bit_length())
    order = np.argsort(hashes)
    values = (checks[order] & ~np.uint64((1 << bits) - 1)) | order.astype(np.uint64)
    return Cells(hashes[order], values, secret, bits, order_of(hashes))


def follow(before: Cells, dropped: np.ndarray, hashes: np.ndarray, checks: np.ndarray) -> Cells:
    """Create the cells of a rewritten base file from the cells of the older file, without hashing its keys again.

    The new file begins with the remaining rows of the older file, in the same order.

    Args:
        before: The cells of the older file.
        dropped: Positions of the rows of the older file that the new file leaves out.
        hashes: uint64[n], the key hashes of the rows added at the end, in row order.
        checks: uint64[n], the checks of these keys, with the secret of `before`.
    """
    stays = np.ones(len(before), bool)
    stays[dropped] = False
    position_after, rows = np.cumsum(stays) - 1, before.rows
    kept, count = stays[rows], int(stays.sum())
    bits = max(before.bits, (count + len(hashes) - 1).bit_length())
    mask = ~np.uint64((1 << bits) - 1)
    old = (before.values[kept] & mask) | position_after[rows[kept]].astype(np.uint64)
    sort = np.argsort(hashes)
    new = (checks[sort] & mask) | (count + sort).astype(np.uint64)
    at = np.searchsorted(before.hashes[kept], hashes[sort])
    in_rows = np.empty(len(before), np.uint64)
    in_rows[rows] = before.hashes
    order = order_of(np.concatenate([in_rows[stays], hashes]))
    return Cells(np.insert(before.hashes[kept], at, hashes[sort]), np.insert(old, at, new), before.secret, bits, order)


def order_of(hashes: np.ndarray) -> str:
    """Return a digest (32 hex digits) of key hashes in row order, which shows whether two files have the same row
    order.
    """
    return xxhash.xxh3_128_hexdigest(np.ascontiguousarray(hashes, "<u8").data)


__all__ = ["Cells", "follow", "make", "order_of"]
