"""Filters filled in bulk against pybloom-live's own scalar door."""

import pickle
import struct

import numpy as np
import pyarrow as pa
import pybloom_live
import pytest
import xxhash

from hoodoo.errors import CorruptTable
from hoodoo.format.hashing import hash64
from hoodoo.index.bloom import key_filter as bloom


def keys(count, prefix="trip"):
    return pa.array([f"{prefix}-{i}-é" for i in range(count)])


def test_a_filter_filled_in_bulk_equals_one_filled_by_add():
    names = keys(3000)
    bulk = bloom.build(hash64(names))
    single = bloom.KeyBloomFilter(3000, 0.001)
    for name in names.to_pylist():
        single.add(name, skip_check=True)
    assert isinstance(bulk, pybloom_live.BloomFilter)
    assert bulk.bitarray == single.bitarray
    assert (bulk.count, bulk.capacity, bulk.num_slices) == (single.count, single.capacity, single.num_slices)


@pytest.mark.parametrize("strangers", [1, 300, 20_000])
def test_scalar_and_vectorised_answers_agree(strangers):
    names = pa.concat_arrays([keys(2000 if strangers > 300 else 100), keys(strangers, "other")])
    small = bloom.build(hash64(keys(2000)), error_rate=0.05)
    answers = bloom.find_possible_hashes(small, hash64(names)).tolist()
    assert answers == [name in small for name in names.to_pylist()]


@pytest.mark.parametrize("error_rate", [0.1, 0.01, 0.001])
def test_no_stored_key_is_missed_and_the_error_rate_holds(error_rate):
    hashes = np.random.default_rng(1).integers(0, 1 << 64, 200_000, np.uint64)
    stored, strangers = hashes[:100_000], hashes[100_000:]
    built = bloom.build(stored, error_rate)
    assert bloom.find_possible_hashes(built, stored).all()
    assert bloom.find_possible_hashes(built, strangers).mean() < 1.3 * error_rate


def test_no_keys_give_a_filter_that_holds_nothing():
    empty = bloom.build(np.empty(0, np.uint64))
    assert not bloom.find_possible_hashes(empty, hash64(keys(100))).any()
    assert bloom.find_possible_hashes(empty, np.empty(0, np.uint64)).tolist() == []
    assert bloom.from_bytes(bloom.to_bytes(empty)).bitarray == empty.bitarray


@pytest.mark.parametrize("count", [1, 7, 1000])
def test_stored_bytes_come_back_as_the_same_filter(count):
    built = bloom.build(hash64(keys(count)))
    for again in (
        bloom.from_bytes(bloom.to_bytes(built)),
        bloom.from_bytes(memoryview(bloom.to_bytes(built))),
        pickle.loads(pickle.dumps(built)),
    ):
        assert again.bitarray == built.bitarray
        assert len(again) == count
        assert bloom.find_possible_hashes(again, hash64(keys(count))).all()
        assert "trip-0-é" in again


def test_copies_unions_and_further_keys_keep_the_hash():
    left, right = bloom.build(hash64(keys(500))), bloom.build(hash64(keys(500, "other")))
    both = left | right
    assert bloom.find_possible_hashes(both, hash64(keys(500))).all()
    assert bloom.find_possible_hashes(both, hash64(keys(500, "other"))).all()
    grown = left.copy()
    grown.add("late", skip_check=True)
    assert "late" in grown
    assert "late" not in left


def test_every_flipped_byte_and_every_cut_is_noticed():
    stored = bloom.to_bytes(bloom.build(hash64(keys(20))))
    for at in range(len(stored)):
        with pytest.raises(CorruptTable):
            bloom.from_bytes(stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :])
        with pytest.raises(CorruptTable):
            bloom.from_bytes(stored[:at])


def sealed(body):
    return body + struct.pack("<Q", xxhash.xxh64_intdigest(body))


def test_an_unknown_hash_is_refused_by_name():
    stored = bloom.to_bytes(bloom.build(hash64(keys(20))))
    other = stored[:-8].replace(bloom.HASH_NAME, b"xxh64-43-remix")
    with pytest.raises(CorruptTable, match="xxh64-43-remix"):
        bloom.from_bytes(sealed(other))


@pytest.mark.parametrize(
    "header",
    [
        (0.001, 10, 1 << 60, 1, 1),
        (0.001, 1 << 62, 8, 1, 1),
        (0.0, 1, 8, 1, 1),
        (float("nan"), 1, 8, 1, 1),
        (0.5, 1, 8, 0, 0),
    ],
)
def test_a_geometry_that_does_not_fit_its_bits_is_refused(header):
    body = b"HDBF" + bytes([len(bloom.HASH_NAME)]) + bloom.HASH_NAME + struct.pack("<dQQQQ", *header) + b"\0"
    with pytest.raises(CorruptTable):
        bloom.from_bytes(sealed(body))
