"""The column hash against the C library, which Spark's xxhash64 equals; and the sieve, which never holds back a value that is there."""

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from hoodoo.errors import KeyValueError
from hoodoo.format.hashing import Sieve, hash64


def scalar(keys):
    return [xxhash.xxh64_intdigest(k.encode(), 42) for k in keys]


def mixed_keys(count, longest, seed=1):
    rng = np.random.default_rng(seed)
    points = rng.choice([ord("a"), ord("0"), 0x7F, 0xE9, 0x4E2D, 0x1F600], size=(count, longest))
    return ["".join(map(chr, row[:n])) for row, n in zip(points.tolist(), rng.integers(0, longest + 1, count).tolist(), strict=True)]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_every_key_hashes_as_the_c_library_hashes_it(kind):
    keys = mixed_keys(20_000, 40) + [""]
    assert hash64(pa.array(keys, kind)).tolist() == scalar(keys)


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 7, 8, 9, 12, 15, 16, 31, 32, 33, 36, 63, 64, 100, 255, 256, 257, 5000])
def test_every_length_takes_the_right_steps(length):
    keys = [f"{i:0{length}d}"[-length:] if length else "" for i in range(300)]
    assert hash64(pa.array(keys)).tolist() == scalar(keys)


def test_slices_and_chunks_hash_like_the_whole():
    keys = mixed_keys(1000, 20)
    array = pa.array(keys)
    assert hash64(array.slice(17, 500)).tolist() == scalar(keys[17:517])
    chunked = pa.chunked_array([array.slice(3, 10), array.slice(0, 0), array.slice(500)])
    assert hash64(chunked).tolist() == scalar(keys[3:13] + keys[500:])


def test_no_keys_give_no_hashes():
    for empty in (pa.array([], pa.string()), pa.chunked_array([], pa.string()), pa.array(["a"]).slice(1)):
        assert hash64(empty).tolist() == []
        assert hash64(empty).dtype == np.uint64


def test_sparks_documented_value_follows_from_ours():
    # Spark SQL documents xxhash64('Spark', array(123), 2) = 5602566077635097486: each argument is hashed with the hash before as its seed.
    first = int(hash64(pa.array(["Spark"]))[0])
    second = xxhash.xxh64_intdigest((123).to_bytes(4, "little"), first)
    assert xxhash.xxh64_intdigest((2).to_bytes(4, "little"), second) == 5602566077635097486


def test_a_null_key_is_refused():
    with pytest.raises(KeyValueError, match="1 of 2"):
        hash64(pa.array(["a", None]))


@pytest.mark.parametrize("longest", [0, 3, 7, 9, 40])
def test_a_sieve_lets_every_value_through_that_is_among_its_own_however_the_arrays_are_cut(longest):
    keys = mixed_keys(3000, longest) + ["", "a"]
    sieve = Sieve(pa.array(keys[::3]))
    wanted = set(keys[::3])
    whole = pa.array(keys)
    for asked in (whole, whole.slice(7, 900), whole.slice(2999), pa.array(keys, pa.large_string()), pa.chunked_array([whole.slice(5), whole.slice(0, 0), whole.slice(0, 5)])):
        passed = sieve.may_hold(asked)
        assert all(passed[place] for place, key in enumerate(asked.to_pylist()) if key in wanted)


def test_a_sieve_holds_back_nearly_all_values_that_are_not_among_its_own():
    sieve = Sieve(pa.array([f"key-{i:09d}" for i in range(5000)]))
    assert sieve.may_hold(pa.array([f"key-{i:09d}" for i in range(5000, 55000)])).mean() < 0.02
    assert not sieve.may_hold(pa.array(["short", "key-0000000001", "xey-000000001"])).any()
    assert Sieve(pa.array([], pa.string())).may_hold(pa.array(["", "a"])).tolist() == [False, False]
