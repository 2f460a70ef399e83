"""Codec for Avro's variable-length integers (varint).

An integer is in zigzag encoding, with seven bits in each byte, low bits first.
Source: Avro specification, "Primitive Types", binary encoding.
"""

from __future__ import annotations

import numpy as np

LENGTH_MAX = 10
"""Number of bytes of the longest encoded integer (64 bits)."""

_U64 = np.uint64
_ALL_STOPS = _U64(0x8080808080808080)


def encode_zigzag(values: np.ndarray) -> np.ndarray:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def decode_zigzag(coded: np.ndarray) -> np.ndarray:
    return (coded >> _U64(1)).view(np.int64) ^ -(coded & _U64(1)).view(np.int64)


def encode_varints(coded: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Encode integers with variable length.

    The integers are in zigzag encoding. Returns the bytes and lengths. The first `lengths[i]` bytes of row i are used.
    w is the largest length.
    """
    lengths = _lengths(coded)
    longest = int(lengths.max(initial=1))
    if longest > 8:
        return _encoded_long(coded, lengths, longest), lengths
    continued = _ALL_STOPS & ((_U64(1) << (_U64(8) * (lengths - 1).view(np.uint64))) - _U64(1))
    return (_spread_to_bytes(coded) | continued).view(np.uint8).reshape(-1, 8)[:, :longest], lengths


def _lengths(coded: np.ndarray) -> np.ndarray:
    lengths = np.ones(len(coded), np.int64)
    largest = int(coded.max(initial=0))
    for bits in range(7, largest.bit_length(), 7):
        lengths += coded >= _U64(1 << bits)
    return lengths


def _encoded_long(coded: np.ndarray, lengths: np.ndarray, longest: int) -> np.ndarray:
    out = np.empty((len(coded), longest), np.uint8)
    for i in range(longest):
        seven = ((coded >> _U64(7 * i)) & _U64(0x7F)).astype(np.uint8)
        out[:, i] = seven | ((lengths > i + 1).astype(np.uint8) << 7)
    return out


def _spread_to_bytes(x: np.ndarray) -> np.ndarray:
    x = (x & _U64(0x000000000FFFFFFF)) | ((x & _U64(0x00FFFFFFF0000000)) << _U64(4))
    x = (x & _U64(0x00003FFF00003FFF)) | ((x & _U64(0x0FFFC0000FFFC000)) << _U64(2))
    return (x & _U64(0x007F007F007F007F)) | ((x & _U64(0x3F803F803F803F80)) << _U64(1))


def _join_from_bytes(x: np.ndarray) -> np.ndarray:
    # The top bit of each byte must be 0.
    x = (x & _U64(0x007F007F007F007F)) | ((x & _U64(0x7F007F007F007F00)) >> _U64(1))
    x = (x & _U64(0x00003FFF00003FFF)) | ((x & _U64(0x3FFF00003FFF0000)) >> _U64(2))
    return (x & _U64(0x000000000FFFFFFF)) | ((x & _U64(0x0FFFFFFF00000000)) >> _U64(4))


def decode_varints(words: np.ndarray, data: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Decode variable-length integers.

    Returns the integers at the positions `at`, and their lengths. The lengths are in bytes (int64[n]). `words` is the
    view of eight bytes at every position of `data`. Ten bytes must be readable at each position. A number that does not
    end within 64 bits has the length LENGTH_MAX + 1, and its value is meaningless.
    """
    word = words[at]
    stops = ~word & _ALL_STOPS
    lowest = stops & (_U64(0) - stops)  # the top bit of the last byte
    mask = (lowest << _U64(1)) - _U64(1)  # that byte and all lower bytes; all eight bytes if none of them is the last
    numbers = _join_from_bytes(word & mask & ~_ALL_STOPS)
    exponents = (lowest.astype(np.float64).view(np.int64) >> 52) - 1023  # exact: powers of two, 8 * length - 1
    lengths = (exponents + 1) >> 3
    long = np.flatnonzero(stops == 0)
    if len(long):
        numbers[long], lengths[long] = _add_high_bytes(numbers[long], data, at[long] + 8)
    return numbers, lengths


def _add_high_bytes(numbers: np.ndarray, data: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    ninth, tenth = data[at].astype(np.uint64), data[at + 1].astype(np.uint64)
    ten = ninth >= 0x80
    numbers = numbers | ((ninth & _U64(0x7F)) << _U64(56)) | np.where(ten, tenth << _U64(63), _U64(0))
    return numbers, np.where(~ten, 9, np.where(tenth <= 1, LENGTH_MAX, LENGTH_MAX + 1))
