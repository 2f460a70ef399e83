"""Hash function for record keys.

It is XXH64 with seed 42 of the UTF-8 bytes. The hash equals Spark SQL's `xxhash64(string)` and
`xxhash.xxh64_intdigest(bytes, 42)`, so that Spark can route rows by hash without Python. Specification:
github.com/Cyan4973/xxHash, doc/xxhash_spec.md.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import xxhash

from hoodoo.errors import KeyValueError
from hoodoo.format.buffers import WordReader, chunks_of_column, group_positions_by_value, offsets_and_bytes, padded

SEED = 42

_P1 = np.uint64(11400714785074694791)
_P2 = np.uint64(14029467366897019727)
_P3 = np.uint64(1609587929392839161)
_P4 = np.uint64(9650029242287828579)
_P5 = np.uint64(2870177450012600261)

_ROWS = 1 << 14
# Number of keys hashed at a time, so that intermediate arrays fit into the L2 cache.
_FEW, _LONG = 128, 256
# For fewer than 128 keys of one length, or keys of more than 256 bytes, hashing key by key in C is faster.


def hash64(keys: pa.Array | pa.ChunkedArray) -> np.ndarray:
    if keys.null_count:
        raise KeyValueError(f"Record key is null in {keys.null_count} of {len(keys)} rows. Fill or drop these rows.")
    parts = [_hash_array(chunk) for chunk in chunks_of_column(keys)]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint64), *parts])


def hash64_of_words(words: np.ndarray) -> np.ndarray:
    """Compute the hash of each integer.

    The hash covers the little-endian bytes, and equals Spark SQL's `xxhash64(int)` and `xxhash64(bigint)`.
    """
    width = words.dtype.itemsize
    data = padded(np.ascontiguousarray(words).view(np.uint8))
    starts = np.arange(len(words)) * width
    pieces = [starts[at : at + _ROWS] for at in range(0, len(words), _ROWS)]
    parts = [_hash_equal_lengths(WordReader(data, piece), len(piece), width) for piece in pieces]
    return np.concatenate([np.empty(0, np.uint64), *parts])


def _hash_array(array: pa.Array) -> np.ndarray:
    offsets, data = offsets_and_bytes(array)
    hashes = np.empty(len(array), np.uint64)
    data = padded(data)
    for length, rows in group_positions_by_value(np.diff(offsets)):
        if len(rows) < _FEW or length > _LONG:
            hashes[rows] = _one_by_one(data, offsets[rows], length)
            continue
        for first in range(0, len(rows), _ROWS):
            part = rows[first : first + _ROWS]
            hashes[part] = _hash_equal_lengths(WordReader(data, offsets[part]), len(part), length)
    return hashes


def _one_by_one(data: np.ndarray, starts: np.ndarray, length: int) -> list[int]:
    view = memoryview(data.data)
    return [xxhash.xxh64_intdigest(view[s : s + length], SEED) for s in starts.tolist()]


def _hash_equal_lengths(words: WordReader, keys: int, length: int) -> np.ndarray:
    with np.errstate(over="ignore"):
        acc = _hash_stripes(words, keys, length) + np.uint64(length)
        for at in range(length & ~31, length - 7, 8):
            acc = _rotl(acc ^ _round(np.uint64(0), words.at(at, "<u8")), 27) * _P1 + _P4
        at = length & ~7
        if length & 4:
            acc = _rotl(acc ^ (words.at(at, "<u4").astype(np.uint64) * _P1), 23) * _P2 + _P3
        for at in range(length & ~3, length):
            acc = _rotl(acc ^ (words.at(at, "u1").astype(np.uint64) * _P5), 11) * _P1
        return _avalanche(acc)


def _hash_stripes(words: WordReader, keys: int, length: int) -> np.ndarray:
    seed = np.uint64(SEED)
    if length < 32:
        return np.full(keys, seed + _P5)
    lanes = [np.full(keys, first) for first in (seed + _P1 + _P2, seed + _P2, seed, seed - _P1)]
    for at in range(0, length - 31, 32):
        lanes = [_round(lane, words.at(at + 8 * i, "<u8")) for i, lane in enumerate(lanes)]
    acc: np.ndarray = _rotl(lanes[0], 1) + _rotl(lanes[1], 7) + _rotl(lanes[2], 12) + _rotl(lanes[3], 18)
    for lane in lanes:
        acc = (acc ^ _round(np.uint64(0), lane)) * _P1 + _P4
    return acc


def _round(acc: np.ndarray | np.uint64, word: np.ndarray) -> np.ndarray:
    return _rotl(acc + word * _P2, 31) * _P1


def _rotl(x: np.ndarray, bits: int) -> np.ndarray:
    turned: np.ndarray = (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))
    return turned


def _avalanche(acc: np.ndarray) -> np.ndarray:
    acc = (acc ^ (acc >> np.uint64(33))) * _P2
    acc = (acc ^ (acc >> np.uint64(29))) * _P3
    acc ^= acc >> np.uint64(32)
    return acc
