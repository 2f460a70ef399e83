"""Each column gets the encoding that costs least for its values, as far as a sample can tell."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hoodoo.format.parquet import base_file, encodings

ROWS = 131_072
RNG = np.random.default_rng(5)


def texts(different: int, rows: int = ROWS, length: int = 12) -> pa.Array:
    return pa.array([f"{number:0{length}d}" for number in RNG.integers(0, different, rows)])


def chosen(values: pa.Array) -> str:
    found = encodings.choose(pa.table({"x": values}))
    return "dictionary" if found.dictionary else found.others.get("x", "PLAIN")


def test_words_that_a_sample_hardly_repeats_get_a_dictionary_as_the_row_group_repeats_them() -> None:
    words = texts(5_000)
    assert len(words.take(pa.array(np.arange(0, ROWS, 64))).unique()) > 0.8 * 2048  # most of a sample differ
    assert chosen(words) == "dictionary"


@pytest.mark.parametrize(
    ("values", "encoding"),
    [
        (texts(10**9), "DELTA_LENGTH_BYTE_ARRAY"),
        (texts(60_000), "DELTA_LENGTH_BYTE_ARRAY"),  # each about twice
        (texts(3, rows=5), "DELTA_LENGTH_BYTE_ARRAY"),
        (texts(3, rows=50), "dictionary"),
        (texts(2_000, length=1_000), "DELTA_LENGTH_BYTE_ARRAY"),  # 2 MB of values: no dictionary page holds them
        (pa.array([None] * 100, pa.string()), "dictionary"),
        (pa.array([None, "a", None, "b"] * 10_000), "dictionary"),
        (pa.array(RNG.integers(0, 1 << 62, ROWS)), "PLAIN"),
        (pa.array(RNG.integers(0, 1 << 30, ROWS)), "DELTA_BINARY_PACKED"),
        (pa.array(RNG.integers(-(1 << 31), 1 << 31, ROWS), pa.int32()), "PLAIN"),
        (pa.array([-(1 << 63), (1 << 63) - 1]), "PLAIN"),
        (pa.array([None, None], pa.int64()), "DELTA_BINARY_PACKED"),
        (pa.array(RNG.integers(0, 20_000, ROWS).astype("datetime64[D]")), "DELTA_BINARY_PACKED"),
        (pa.array(RNG.random(ROWS)), "PLAIN"),
        (pa.array(RNG.integers(0, 5_000, ROWS) / 100), "dictionary"),
        (pa.array([True, False] * 100), "PLAIN"),
        (pa.array([[1], [2]] * 100), "PLAIN"),
    ],
    ids=lambda one: one if isinstance(one, str) else f"{len(one)} {one.type}",
)
def test_the_values_choose_the_encoding(values: pa.Array, encoding: str) -> None:
    assert chosen(values) == encoding


def test_what_is_said_to_have_no_better_encoding_than_plain_is_left_plain() -> None:
    assert encodings.choose(pa.table({"x": texts(10**9)}), plain=("x",)) == ([], {})


@pytest.mark.parametrize("different", [300, 3_000, 20_000])
def test_the_number_of_different_values_is_told_from_a_sample_within_a_fifth(different: int) -> None:
    found = len(np.unique(RNG.integers(0, different, 2048)))
    assert abs(encodings._estimate_distinct(found, 2048) - different) < different / 5


def test_a_base_file_has_the_encodings_that_were_chosen_and_reads_back_equal() -> None:
    rows = pa.table(
        {
            "id": texts(10**9),
            "word": texts(50),
            "note": pa.array([None if n % 3 else f"{n}" for n in range(ROWS)]),
            "ts": pa.array(RNG.integers(0, 10**9, ROWS)),
        }
    )
    with_meta = base_file.with_meta(rows, "20260101000000000", 0, rows["id"].combine_chunks(), "p", "f.parquet")
    data = base_file.encode_base_file(with_meta, "zstd", ROWS).data
    group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    used = {group.column(at).path_in_schema: group.column(at).encodings for at in range(group.num_columns)}
    assert "DELTA_LENGTH_BYTE_ARRAY" in used["id"] and "DELTA_LENGTH_BYTE_ARRAY" in used["_hoodie_record_key"]
    assert "DELTA_LENGTH_BYTE_ARRAY" in used["note"] and "RLE_DICTIONARY" in used["word"]
    assert set(used["_hoodie_commit_seqno"]) == {"PLAIN", "RLE"}
    assert base_file.read_base_file(pa.BufferReader(data), "f", rows.schema).equals(rows)
