"""Key filter, which is a bloom filter of record keys.

A filter is a BloomFilter of pybloom-live with its sizing, bits and scalar `key in filter`, but with another hash. The
hash is XXH64 with seed 42, mixed again for each slice. It is computed for a whole column at once, whereas the hash of
pybloom-live is computed key by key. A filter may return false positives; the sorted hashes of the index entry give the
exact answer.

Stored bytes, little-endian: `HDBF`, one byte with the length of the hash name, the hash name, the output of
`BloomFilter.tofile`, and XXH64 of all previous bytes. An unknown hash name is an error, because another hash would
silently miss keys.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import xxhash
from bitarray import bitarray
from pybloom_live import BloomFilter

from hoodoo.errors import CorruptTable
from hoodoo.format.hashing import SEED

HASH_NAME = b"xxh64-42-remix"

_MAGIC = b"HDBF"
_HEADER = struct.Struct(BloomFilter.FILE_FMT)
_DIGEST = struct.Struct("<Q")
_STEP, _MULTIPLIER = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
_U64 = (1 << 64) - 1
_REBUILD = "Run maintenance.salvage() (hoodoo salvage) to rebuild the index."
_ROWS = 1 << 16
# Number of hashes mixed at a time, so that the intermediate arrays fit into the CPU cache.
_FEW = 512
# Up to this number of hashes, all slices are checked at once. Checking slice by slice pays only for more hashes.


class KeyBloomFilter(BloomFilter):  # type: ignore[misc]  # pybloom-live has no type hints
    """Bloom filter with XXH64 hashes."""

    def _setup(self, error_rate: float, num_slices: int, bits_per_slice: int, capacity: int, count: int) -> None:
        super()._setup(error_rate, num_slices, bits_per_slice, capacity, count)
        self.make_hashes = self._bit_positions

    def _bit_positions(self, key: Any) -> Iterator[int]:
        digest = xxhash.xxh64_intdigest(str(key).encode(), SEED)
        for i in range(self.num_slices):
            x = (digest + i * _STEP) & _U64
            x = ((x ^ (x >> 32)) * _MULTIPLIER) & _U64
            yield ((x >> 32) * self.bits_per_slice) >> 32

    def copy(self) -> KeyBloomFilter:
        return _with_bits(
            self.error_rate, self.num_slices, self.bits_per_slice, self.capacity, self.count, self.bitarray.copy()
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return from_bytes, (to_bytes(self),)


def build(hashes: np.ndarray, error_rate: float = 0.001) -> KeyBloomFilter:
    empty = KeyBloomFilter(max(len(hashes), 1), error_rate)
    width = empty.bits_per_slice
    flags = np.zeros(empty.num_bits, np.uint8)
    for i in range(empty.num_slices):
        piece = flags[i * width : (i + 1) * width]
        for first in range(0, len(hashes), _ROWS):
            piece[_slice_positions(hashes[first : first + _ROWS], i, width)] = 1
    bits = _bits(np.packbits(flags, bitorder="little").tobytes(), empty.num_bits)
    return _with_bits(error_rate, empty.num_slices, width, empty.capacity, len(hashes), bits)


def find_possible_hashes(bloom: KeyBloomFilter, hashes: np.ndarray) -> np.ndarray:
    """Find the possible hashes: those that a bloom filter may contain.

    Returns a mask of the hashes. A hash whose bit is unset in one slice is not looked up in the next slice.
    """
    bits = np.frombuffer(bloom.bitarray, np.uint8)
    answer = np.zeros(len(hashes), bool)
    for first in range(0, len(hashes), _ROWS):
        part = hashes[first : first + _ROWS]
        answer[first + _filter_by_slices(bloom, bits, part)] = True
    return answer


def _filter_by_slices(bloom: KeyBloomFilter, bits: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    alive, slices, width = np.arange(len(hashes)), np.arange(bloom.num_slices), bloom.bits_per_slice
    while len(slices) and len(alive):
        checked = slices[: 1 if len(alive) > _FEW else None]
        bit_positions = _slice_positions(hashes, checked[:, None], width) + checked[:, None] * width
        kept = np.flatnonzero(((bits[bit_positions >> 3] >> (bit_positions & 7).astype(np.uint8)) & 1).all(axis=0))
        alive, hashes, slices = alive[kept], hashes[kept], slices[len(checked) :]
    return alive


def _slice_positions(hashes: np.ndarray, i: int | np.ndarray, width: int) -> np.ndarray:
    # The position is the upper half of a 64-bit mix, scaled to the width. If `i` is an int64[m, 1] array of slices, the
    # result is int64[m, n].
    x = hashes + np.atleast_1d(i).astype(np.uint64) * np.uint64(_STEP)
    x ^= x >> np.uint64(32)
    x *= np.uint64(_MULTIPLIER)
    x >>= np.uint64(32)
    x *= np.uint64(width)
    x >>= np.uint64(32)
    return x.view(np.int64)


def to_bytes(bloom: KeyBloomFilter) -> bytes:
    header = _HEADER.pack(bloom.error_rate, bloom.num_slices, bloom.bits_per_slice, bloom.capacity, bloom.count)
    body = b"".join((_MAGIC, bytes([len(HASH_NAME)]), HASH_NAME, header, bloom.bitarray.tobytes()))
    return body + _DIGEST.pack(xxhash.xxh64_intdigest(body))


def from_bytes(data: bytes | memoryview) -> KeyBloomFilter:
    body, digest = bytes(data[: -_DIGEST.size]), bytes(data[-_DIGEST.size :])
    if (
        not body.startswith(_MAGIC)
        or len(body) < len(_MAGIC) + 1
        or _DIGEST.pack(xxhash.xxh64_intdigest(body)) != digest
    ):
        raise CorruptTable(
            f"Bloom filter of {len(data)} bytes is damaged: its first bytes or its digest are wrong. {_REBUILD}"
        )
    start = len(_MAGIC) + 1
    name, rest = body[start : start + body[len(_MAGIC)]], body[start + body[len(_MAGIC)] :]
    if name != HASH_NAME:
        raise CorruptTable(
            f"Bloom filter uses an unknown hash: expected {HASH_NAME!r}, got {name!r}. Upgrade hoodoo, or run "
            "maintenance.salvage() (hoodoo salvage) to rebuild the index."
        )
    return _parse(rest)


def _parse(rest: bytes) -> KeyBloomFilter:
    if len(rest) < _HEADER.size:
        raise CorruptTable(f"Bloom filter is damaged: it ends inside its header. {_REBUILD}")
    error_rate, slices, width, capacity, count = _HEADER.unpack_from(rest)
    plausible = 0 < slices <= 1 << 10 and 0 < width < 1 << 32 and len(rest) - _HEADER.size == (slices * width + 7) // 8
    if not plausible or not 0 < error_rate < 1 or capacity == 0:
        raise CorruptTable(
            f"Bloom filter is damaged: its header records {slices} slices of {width} bits for {capacity} keys, which "
            f"does not match its size. {_REBUILD}"
        )
    return _with_bits(error_rate, slices, width, capacity, count, _bits(rest[_HEADER.size :], slices * width))


def _with_bits(error_rate: float, slices: int, width: int, capacity: int, count: int, bits: bitarray) -> KeyBloomFilter:
    bloom = KeyBloomFilter.__new__(KeyBloomFilter)
    bloom._setup(error_rate, slices, width, capacity, count)
    bloom.bitarray = bits
    return bloom


def _bits(data: bytes, count: int) -> bitarray:
    bits = bitarray(endian="little")
    bits.frombytes(data)
    del bits[count:]  # remove the padding of the last byte
    return bits
