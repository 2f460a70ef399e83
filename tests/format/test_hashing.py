"""The column hash against the C library, which Spark's xxhash64 equals."""

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from hoodoo.errors import KeyValueError
from hoodoo.format.hashing import hash64


def scalar(keys):
    return [xxhash.xxh64_intdigest(k.encode(), 42) for k in keys]


def mixed_keys(count, longest, seed=1):
    rng = np.random.default_rng(seed)
    points = rng.choice([ord("a"), ord("0"), 0x7F, 0xE9, 0x4E2D, 0x1F600], size=(count, longest))
    return [
        "".join(map(chr, row[:n]))
        for row, n in zip(points.tolist(), rng.integers(0, longest + 1, count).tolist(), strict=True)
    ]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_every_key_hashes_as_the_c_library_hashes_it(kind):
    keys = mixed_keys(20_000, 40) + [""]
    assert hash64(pa.array(keys, kind)).tolist() == scalar(keys)


@pytest.mark.parametrize(
    "length", [0, 1, 3, 4, 5, 7, 8, 9, 12, 15, 16, 31, 32, 33, 36, 63, 64, 100, 255, 256, 257, 5000]
)
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
    # Spark SQL documents xxhash64('Spark', array(123), 2) = 5602566077635097486: each argument is hashed with the hash
    # before as its seed.
    first = int(hash64(pa.array(["Spark"]))[0])
    second = xxhash.xxh64_intdigest((123).to_bytes(4, "little"), first)
    assert xxhash.xxh64_intdigest((2).to_bytes(4, "little"), second) == 5602566077635097486


def test_a_null_key_is_refused():
    with pytest.raises(KeyValueError, match="1 of 2"):
        hash64(pa.array(["a", None]))
