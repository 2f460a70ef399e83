"""Keys that share a hash: real ones of XXH64, made by running its last step backwards; and a hash of few values in
place of the one in use, whatever that is.
"""

from __future__ import annotations

import random
import struct
import sys

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from hoodoo.format import hashing

_M = (1 << 64) - 1
_P1, _P2, _P4, _P5 = 11400714785074694791, 14029467366897019727, 9650029242287828579, 2870177450012600261
_LETTERS = b"abcdefghijklmnopqrstuvwxyz0123456789"


def _left(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (64 - bits))) & _M


def _round(word: int) -> int:
    return (_left((word * _P2) & _M, 31) * _P1) & _M


def _word_of(rounded: int) -> int:
    """Inverse of `_round`."""
    return (_left((rounded * pow(_P1, -1, 1 << 64)) & _M, 64 - 31) * pow(_P2, -1, 1 << 64)) & _M


def _step(state: int, word: int) -> int:
    return (_left(state ^ _round(word), 27) * _P1 + _P4) & _M


def pair(rng: random.Random) -> tuple[str, str]:
    """Two keys of 16 ASCII characters with equal XXH64 (seed 42): the second word makes up for what the first did."""
    start = (42 + _P5 + 16) & _M
    first, last = struct.unpack("<QQ", one := bytes(rng.choice(_LETTERS) for _ in range(16)))
    target = _step(start, first) ^ _round(last)
    while True:
        begin = bytes(rng.choice(_LETTERS) for _ in range(8))
        end = struct.pack("<Q", _word_of(target ^ _step(start, struct.unpack("<Q", begin)[0])))
        if all(32 <= character < 127 for character in end):
            assert xxhash.xxh64_intdigest(one, 42) == xxhash.xxh64_intdigest(begin + end, 42)
            return one.decode(), (begin + end).decode()


def few_hashes(patch: pytest.MonkeyPatch, values: int) -> None:
    """Let keys have one of `values` hashes only, wherever this process hashes them."""
    real = hashing.hash64

    def narrow(keys: pa.Array | pa.ChunkedArray) -> np.ndarray:
        return real(keys) % np.uint64(values)

    for name, module in list(sys.modules.items()):
        if name.startswith("hoodoo.") and getattr(module, "hash64", None) is real:
            patch.setattr(module, "hash64", narrow)
