"""Hudi's footer filter against a key-by-key transcription of Hadoop's MurmurHash2."""

import base64
import math
import struct

import numpy as np
import pyarrow as pa
import pytest

from hoodoo.errors import CorruptTable, KeyValueError
from hoodoo.format.parquet import hudi_bloom


def murmur(data: bytes, seed: int) -> int:
    def signed(b):
        return b - 256 if b > 127 else b

    m, n = 0x5BD1E995, len(data)
    h = (seed ^ n) & 0xFFFFFFFF
    for i in range(0, n & ~3, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & 0xFFFFFFFF
        k = (k ^ k >> 24) * m & 0xFFFFFFFF
        h = h * m & 0xFFFFFFFF ^ k
    left = n & 3
    if left:
        if left >= 3:
            h ^= signed(data[(n & ~3) + 2]) << 16 & 0xFFFFFFFF
        if left >= 2:
            h ^= signed(data[(n & ~3) + 1]) << 8 & 0xFFFFFFFF
        h ^= signed(data[n & ~3]) & 0xFFFFFFFF
        h = h * m & 0xFFFFFFFF
    h = (h ^ h >> 13) * m & 0xFFFFFFFF
    return h ^ h >> 15


def scalar_filter(keys, error_rate):
    n = max(len(keys), 1)
    bits = math.ceil(n * -math.log(error_rate) / math.log(2) ** 2)
    hashes = math.ceil(math.log(2) * bits / n)
    out = bytearray((bits + 7) // 8)
    for key in keys:
        seed = 0
        for _ in range(hashes):
            seed = murmur(key.encode(), seed)
            signed = seed - (1 << 32) if seed >> 31 else seed
            p = abs(signed) % bits
            out[p >> 3] |= 1 << (p & 7)
    return base64.b64encode(struct.pack(">iibi", -1, hashes, 1, bits) + bytes(out)).decode()


def footer_filter(keys, error_rate=1e-3):
    return hudi_bloom.bloom_and_key_range(keys, error_rate)[hudi_bloom.FILTER_KEY]


ALPHABETS = {"ascii": "abc-0189", "latin": "éüñ", "cyrillic": "жшы", "cjk": "中文字", "astral": "😀𝒳"}


@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize("error_rate", [1e-3, 1e-9])
def test_the_filter_equals_hadoops_for_keys_of_any_length(alphabet, error_rate):
    rng = np.random.default_rng(7)
    letters = ALPHABETS[alphabet]
    keys = ["".join(rng.choice(list(letters), n)) for n in list(range(45)) * 4]
    assert footer_filter(pa.array(keys), error_rate) == scalar_filter(keys, error_rate)


@pytest.mark.parametrize("length", [1, 3, 4, 7, 36, 37])
def test_keys_of_one_length_give_hadoops_filter(length):
    keys = [f"{i * 7919:0{length}d}"[-length:] for i in range(300)]
    array = pa.array(["first", *keys]).slice(1)
    assert footer_filter(array) == scalar_filter(keys, 1e-3)


def test_mixed_scripts_in_slices_and_chunks_give_the_same_filter():
    keys = [f"{i}{'é' * (i % 5)}{'😀' * (i % 3)}" for i in range(500)]
    array = pa.array(["before", *keys, "after"]).slice(1, 500)
    chunked = pa.chunked_array([array.slice(0, 100), array.slice(100, 0), array.slice(100).cast(pa.string())])
    expected = scalar_filter(keys, 1e-3)
    assert footer_filter(array) == expected
    assert footer_filter(chunked) == expected
    assert footer_filter(array.cast(pa.large_string())) == expected


def test_the_header_of_hudis_default_size_is_reproduced():
    encoded = footer_filter(pa.array([str(i) for i in range(60_000)]), 1e-9)
    assert base64.b64decode(encoded)[:13].hex() == "ffffffff0000001e0100277d3e"


def test_stored_keys_are_found_and_few_others_are():
    keys = pa.array([f"trip-{i}" for i in range(20_000)])
    encoded = footer_filter(keys)
    assert hudi_bloom.find_possible_keys(encoded, keys).all()
    strangers = pa.chunked_array([[f"none-{i}" for i in range(20_000)], []], pa.string())
    assert hudi_bloom.find_possible_keys(encoded, strangers).mean() < 0.003


def test_no_rows_give_an_empty_filter_and_no_key_range():
    entries = hudi_bloom.bloom_and_key_range(pa.array([], pa.string()))
    assert set(entries) == {"org.apache.hudi.bloomfilter", "hoodie_bloom_filter_type_code"}
    assert entries["org.apache.hudi.bloomfilter"] == scalar_filter([], 1e-3)
    assert not hudi_bloom.find_possible_keys(entries["org.apache.hudi.bloomfilter"], pa.array(["a", "", "é"])).any()


def test_the_key_range_is_in_the_order_of_utf8_bytes():
    entries = hudi_bloom.bloom_and_key_range(pa.array(["b", "\uffee", "😀", "Z", "é"]))
    assert (entries["hoodie_min_record_key"], entries["hoodie_max_record_key"]) == ("Z", "😀")
    assert entries["hoodie_bloom_filter_type_code"] == "SIMPLE"


@pytest.mark.parametrize(
    "damage", ["", "!!!!", "AAAA", base64.b64encode(struct.pack(">iibi", -1, 10, 1, 800) + b"\0" * 99).decode()]
)
def test_a_damaged_filter_is_refused(damage):
    with pytest.raises(CorruptTable):
        hudi_bloom.find_possible_keys(damage, pa.array(["a"]))


def test_a_null_key_is_refused():
    with pytest.raises(KeyValueError):
        footer_filter(pa.array(["a", None]))


def test_a_filter_with_keys_on_top_holds_old_and_new_until_it_is_too_full() -> None:
    old, new = pa.array([f"key-{n}" for n in range(1000)]), pa.array(["added-1", "zz-é", "key-0"])
    entries = hudi_bloom.bloom_and_key_range(old)
    more = hudi_bloom.add_keys_to_entries(entries, new)
    assert hudi_bloom.find_possible_keys(more[hudi_bloom.FILTER_KEY], pa.concat_arrays([old, new])).all()
    assert (more[hudi_bloom.MIN_KEY], more[hudi_bloom.MAX_KEY]) == ("added-1", "zz-é")
    strangers = pa.array([f"other-{n}" for n in range(20_000)])
    assert hudi_bloom.find_possible_keys(more[hudi_bloom.FILTER_KEY], strangers).mean() < 5e-3
    assert hudi_bloom.add_keys_to_entries(entries, old.slice(0, 0)) == entries
    many = pa.array([f"more-{n}" for n in range(300)])
    assert hudi_bloom.add_keys_to_entries(entries, many.slice(0, 200)) != {}
    assert hudi_bloom.add_keys_to_entries(entries, many) == {}
    assert hudi_bloom.has_room(len(old), 200) and not hudi_bloom.has_room(len(old), len(many))
    assert hudi_bloom.add_keys_to_entries(hudi_bloom.bloom_and_key_range(old.slice(0, 0)), new) == {}
