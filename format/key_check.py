"""Check value of record keys, which is a keyed hash.

It distinguishes keys that have equal `hash64` values. An attacker can construct keys with equal XXH64, for every seed.
This hash is multilinear over 32-bit words. Without the secret, a collision in the upper 33 bits has a probability of
2^-33 (Lemire and Kaser 2014, "Strongly universal string hashing is fast").
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
import pyarrow as pa

from hoodoo.format.buffers import WordReader, chunks_of_column, offsets_and_bytes

SECRET_BYTES = 16
BITS = 33
"""Number of upper bits of a check that have the documented collision probability."""
_ROWS = 1 << 14
# Number of keys processed at a time, so that intermediate arrays fit into the cache.
_LONG = 1 << 12
# Keys with more bytes are processed one by one.
_LOW = np.uint64(0xFFFFFFFF)
_HIGH = np.uint64(32)


def compute_keyed_hashes(keys: pa.Array | pa.ChunkedArray, secret: bytes) -> np.ndarray:
    """Compute a keyed hash of each record key.

    Only its upper bits are used. `keys` are strings without nulls.
    """
    parts = [_checked(chunk, secret) for chunk in chunks_of_column(keys)]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint64), *parts])


def _checked(array: pa.Array, secret: bytes) -> np.ndarray:
    offsets, data = offsets_and_bytes(array)
    checks = np.empty(len(array), np.uint64)
    for first in range(0, len(array), _ROWS):
        part = slice(first, min(len(array), first + _ROWS))
        base, end = int(offsets[part.start]), int(offsets[part.stop])
        # padded, so that eight bytes can be read at every offset
        piece = np.concatenate([data[base:end], np.zeros(8, np.uint8)])
        starts = offsets[part] - base
        checks[part] = _piece(piece, starts, offsets[part.start + 1 : part.stop + 1] - base - starts, secret)
    return checks


def _piece(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, secret: bytes) -> np.ndarray:
    short = np.flatnonzero(sizes <= _LONG)
    longest = int(sizes[short].max(initial=0))
    factors = _derive_factors(secret, _round_up(longest // 4 + 4))
    checks = factors[:1] + factors[1] * sizes.astype(np.uint64)
    equal = len(short) == len(sizes) and longest == int(sizes.min(initial=0))
    order = short if equal else short[np.argsort(-sizes[short], kind="stable")]
    lengths, begins = sizes[order], starts if equal else starts[order]
    words = WordReader(data, begins)
    # number of keys with a word at this position
    left = np.searchsorted(-lengths, -np.arange(0, longest, 8), side="left")
    sums = np.zeros(len(order), np.uint64)
    for at, count in zip(range(0, longest, 8), left.tolist(), strict=True):
        word = (words if count == len(order) else WordReader(data, begins[:count])).at(at, "<u8")
        if (beyond := at + 8 - lengths[:count]).max() > 0:
            word = word & np.uint64(0xFFFFFFFFFFFFFFFF) >> (8 * np.maximum(beyond, 0)).astype(np.uint64)
        sums[:count] += (word & _LOW) * factors[2 + at // 4] + (word >> _HIGH) * factors[3 + at // 4]
    checks[order] += sums
    for row in np.flatnonzero(sizes > _LONG).tolist():
        checks[row : row + 1] += _long(data[starts[row] : starts[row] + sizes[row]], secret)
    return checks


def _long(key: np.ndarray, secret: bytes) -> np.ndarray:
    words = np.concatenate([key, np.zeros(-len(key) % 4, np.uint8)]).view("<u4").astype(np.uint64)
    total: np.ndarray = (words * _derive_factors(secret, _round_up(len(words) + 2))[2 : 2 + len(words)]).sum(
        keepdims=True
    )
    return total


def _round_up(count: int) -> int:
    # Few distinct lists of factors are computed then.
    return 1 << max(4, count - 1).bit_length()


@lru_cache(maxsize=64)
def _derive_factors(secret: bytes, count: int) -> np.ndarray:
    # Each list is a prefix of all longer lists.
    return np.frombuffer(hashlib.shake_256(secret).digest(8 * count), "<u8")


__all__ = ["BITS", "SECRET_BYTES", "compute_keyed_hashes"]
