"""Hudi's bloom filter of record keys.

Java writers that use the BLOOM index require the filter in every base file, even in a file without rows. hoodoo's own
index does not use it.

Format (docs/format.md, "Bloom filter"): base64 of big-endian `int32 -1, int32 hashes, byte 1 (murmur), int32
bits`, followed by the bits.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import CorruptTable, KeyValueError
from hoodoo.format.buffers import WordReader, chunks_of_column, group_positions_by_value, offsets_and_bytes, padded

FILTER_KEY = "org.apache.hudi.bloomfilter"
TYPE_KEY = "hoodie_bloom_filter_type_code"
MIN_KEY = "hoodie_min_record_key"
MAX_KEY = "hoodie_max_record_key"

_HEADER = struct.Struct(">iibi")
_VERSION, _MURMUR = -1, 1
_M = np.uint32(0x5BD1E995)
_ROWS = 1 << 13
# Number of keys hashed at a time, so that their words stay in the L2 cache.
_BITS_MAX = (1 << 31) - 1
# Maximum number of bits of a filter, because Java stores the size in an int.


_STRETCH = 1.25
# Maximum ratio of the keys in a filter to its planned keys. At this ratio, the error rate is 4e-3 instead of 1e-3.
_FULL = 1 - 2**-_STRETCH
# Share of set bits with `_STRETCH` times the planned keys. The planned keys set half of the bits. Deleted keys count
# too.


class FooterEntriesBuilder:
    """Builder of the footer entries for record keys: bloom filter and key range.

    The filter is sized for `capacity` keys.
    """

    def __init__(self, capacity: int, error_rate: float = 1e-3) -> None:
        self._bits, self._hashes = _filter_size(capacity, error_rate)
        self._flags = np.zeros(self._bits, np.uint8)
        self._extremes: list[tuple[str, str]] = []

    def add(self, keys: pa.Array | pa.ChunkedArray) -> None:
        if keys.null_count:
            raise KeyValueError(
                f"Record key is null in {keys.null_count} of {len(keys)} rows. Fill or drop these rows."
            )
        for chunk in chunks_of_column(keys):
            for _, positions in _bit_positions(chunk, self._hashes, self._bits):
                self._flags[positions] = 1
        if len(keys):
            extremes = pc.min_max(keys).as_py()
            self._extremes.append((extremes["min"], extremes["max"]))

    def entries(self) -> dict[str, str]:
        """Return the bloom filter and key range.

        Keys are compared by their UTF-8 bytes. A file without rows only has the two entries of the filter.
        """
        entries = {FILTER_KEY: _encoded(self._hashes, self._bits, self._flags), TYPE_KEY: "SIMPLE"}
        if not self._extremes:
            return entries
        least, greatest = zip(*self._extremes, strict=True)
        return entries | {MIN_KEY: min(least, key=str.encode), MAX_KEY: max(greatest, key=str.encode)}


def bloom_and_key_range(keys: pa.Array | pa.ChunkedArray, error_rate: float = 1e-3) -> dict[str, str]:
    builder = FooterEntriesBuilder(len(keys), error_rate)
    builder.add(keys)
    return builder.entries()


def has_room(keys: int, added: int) -> bool:
    return keys + added <= _STRETCH * keys


def add_keys_to_entries(entries: Mapping[str, str], added: pa.Array | pa.ChunkedArray) -> dict[str, str]:
    """Add record keys to existing footer entries.

    Returns {} if the filter is full or cannot be extended, so that it must be rebuilt.
    """
    if entries.get(TYPE_KEY) != "SIMPLE" or MIN_KEY not in entries:
        return {}
    if not len(added):
        return dict(entries)
    hashes, bits, data = _parse(entries[FILTER_KEY])
    flags = np.unpackbits(data, count=bits, bitorder="little")
    for chunk in chunks_of_column(added):
        for _, positions in _bit_positions(chunk, hashes, bits):
            flags[positions] = 1
    if flags.mean() > _FULL:
        return {}
    extremes = pc.min_max(added).as_py()
    least = min(entries[MIN_KEY], extremes["min"], key=str.encode)
    greatest = max(entries[MAX_KEY], extremes["max"], key=str.encode)
    return {FILTER_KEY: _encoded(hashes, bits, flags), TYPE_KEY: "SIMPLE", MIN_KEY: least, MAX_KEY: greatest}


def _encoded(hashes: int, bits: int, flags: np.ndarray) -> str:
    header = _HEADER.pack(_VERSION, hashes, _MURMUR, bits)
    return base64.b64encode(header + np.packbits(flags, bitorder="little").tobytes()).decode("ascii")


def find_possible_keys(encoded: str, keys: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Find the possible keys: those that a bloom filter may contain.

    Returns a mask of the keys. Raises CorruptTable if `encoded` is not a SIMPLE filter.
    """
    hashes, bits, data = _parse(encoded)
    parts = [np.empty(0, bool)]
    for chunk in chunks_of_column(keys):
        answer = np.empty(len(chunk), bool)
        for rows, positions in _bit_positions(chunk, hashes, bits):
            answer[rows] = ((data[positions >> 3] >> (positions & 7).astype(np.uint8)) & 1).all(axis=0)
        parts.append(answer)
    return np.concatenate(parts)


def _filter_size(keys: int, error_rate: float) -> tuple[int, int]:
    # As in Hudi, the sizes are `ceil(n * -ln(p) / ln(2)^2)` and `ceil(ln(2) * bits / n)`.
    n = max(keys, 1)
    bits = min(math.ceil(n * -math.log(error_rate) / math.log(2) ** 2), _BITS_MAX)
    return bits, math.ceil(math.log(2) * bits / n)


def _parse(encoded: str) -> tuple[int, int, np.ndarray]:
    try:
        raw = base64.b64decode(encoded, validate=True)
        version, hashes, kind, bits = _HEADER.unpack_from(raw)
    except (binascii.Error, struct.error, ValueError) as e:
        raise CorruptTable(
            f"Bloom filter in the footer of a base file is damaged: {e}. Restore the file from a backup."
        ) from e
    data = np.frombuffer(raw, np.uint8, offset=_HEADER.size)
    if version != _VERSION or kind != _MURMUR or not 0 < hashes <= 1 << 10 or bits <= 0 or len(data) != (bits + 7) // 8:
        raise CorruptTable(
            f"Bloom filter in the footer of a base file is not a valid SIMPLE filter: it has {hashes} hashes and "
            f"{bits} bits in {len(data)} bytes. Restore the file from a backup."
        )
    return hashes, bits, data


def _bit_positions(array: pa.Array, hashes: int, bits: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    # Each hash is the seed of the next hash: `abs(murmur2(key, previous)) % bits`, as in Hadoop's HashFunction.
    offsets, data = offsets_and_bytes(array)
    lengths = np.diff(offsets)
    data = padded(data)
    for words, group in group_positions_by_value(lengths >> 2):
        for first in range(0, len(group), _ROWS):
            rows = group[first : first + _ROWS]
            murmur = _Murmur(data, offsets[rows], lengths[rows], words)
            seed, bit_positions = np.zeros(len(rows), np.uint32), np.empty((hashes, len(rows)), np.int64)
            for i in range(hashes):
                seed = murmur(seed)
                bit_positions[i] = _remainder(np.abs(seed.view(np.int32)).view(np.uint32), np.uint32(bits))
            yield rows, bit_positions


def _remainder(numbers: np.ndarray, divisor: np.uint32) -> np.ndarray:
    # numpy vectorizes division but not remainders.
    rest: np.ndarray = numbers - numbers // divisor * divisor
    return rest


class _Murmur:
    """Hadoop's 32-bit MurmurHash2.

    All keys have the same number of 4-byte words. The parts that do not depend on the seed are computed once. The bytes
    of the tail are sign-extended.
    """

    def __init__(self, data: np.ndarray, starts: np.ndarray, lengths: np.ndarray, words: int) -> None:
        word = WordReader(data, starts)
        self._lengths = lengths.astype(np.uint32)
        self._blocks = [_mixed(word.at(4 * i, "<u4")) for i in range(words)]
        self._tailed = np.flatnonzero(lengths & 3)
        rest = (lengths & 3)[self._tailed]
        tail = np.zeros(len(rest), np.uint32)
        for i in range(3):
            has = rest > i
            byte = data[starts[self._tailed[has]] + 4 * words + i].view(np.int8).astype(np.int32).view(np.uint32)
            tail[has] ^= byte << np.uint32(8 * i)
        self._tail = tail

    def __call__(self, seed: np.ndarray) -> np.ndarray:
        h = seed ^ self._lengths
        for block in self._blocks:
            h *= _M
            h ^= block
        h[self._tailed] = (h[self._tailed] ^ self._tail) * _M
        h ^= h >> np.uint32(13)
        h *= _M
        return h ^ (h >> np.uint32(15))


def _mixed(word: np.ndarray) -> np.ndarray:
    word = word * _M
    word ^= word >> np.uint32(24)
    return word * _M
