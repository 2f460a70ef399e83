"""The check that tells keys of one hash apart: every byte counts, lengths too, and the secret decides."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
from colliding_keys import pair
from hypothesis import given
from hypothesis import strategies as st

from hoodoo.format.hashing import hash64
from hoodoo.format.key_check import BITS, _derive_factors, compute_keyed_hashes

SECRET = b"0123456789abcdef"


def scalar(key: str) -> int:
    """The sum as it is defined: a constant, the length, and each word of four bytes by its own factor."""
    data = key.encode()
    padded = data + bytes(-len(data) % 4)
    words = [int.from_bytes(padded[at : at + 4], "little") for at in range(0, len(padded), 4)]
    factors = [int(one) for one in _derive_factors(SECRET, 1 << max(4, (len(words) + 1).bit_length()))]
    return (factors[0] + factors[1] * len(data) + sum(a * b for a, b in zip(factors[2:], words, strict=False))) % 2**64


@given(st.lists(st.text(max_size=40) | st.text("ab", min_size=4_000, max_size=4_300), max_size=20), st.integers(0, 3))
def test_checks_of_a_column_are_those_of_its_keys(keys: list[str], first: int) -> None:
    column = pa.chunked_array([keys[:2], keys[2:]], pa.string()).slice(min(first, len(keys)))
    assert compute_keyed_hashes(column, SECRET).tolist() == [scalar(key) for key in column.to_pylist()]


@given(st.integers(0, 40), st.integers(0, 60))
def test_keys_of_one_length_have_the_checks_of_any_others(length: int, count: int) -> None:
    keys = [f"{i * 7919:0{length}d}"[-length:] if length else "" for i in range(count)]
    assert compute_keyed_hashes(pa.array(["another", *keys]).slice(1), SECRET).tolist() == [scalar(key) for key in keys]


def test_keys_that_share_a_hash_have_other_checks() -> None:
    keys = pa.array(pair(random.Random(3)))
    assert len(set(hash64(keys).tolist())) == 1
    upper = compute_keyed_hashes(keys, SECRET) >> np.uint64(64 - BITS)
    assert len(set(upper.tolist())) == 2
    assert (compute_keyed_hashes(keys, b"another secret!!") != compute_keyed_hashes(keys, SECRET)).all()


def test_a_key_and_the_same_with_zero_bytes_behind_are_two() -> None:
    keys = pa.array(["a", "a\0", "a\0\0\0\0", ""])
    assert len(set((compute_keyed_hashes(keys, SECRET) >> np.uint64(64 - BITS)).tolist())) == 4
