"""Bitmaps of rows in log headers, bit for bit those that Apache Hudi writes and reads."""

from __future__ import annotations

import base64
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoodoo.errors import CorruptTable
from hoodoo.format.position_bitmap import decode_positions, encode_positions

RUNS = "AQAAAAAAAAAAAAAAOzAAAAEAAAMAAQAAAAMA"
"""Rows 0 to 3 as Hudi 1.2 wrote them, in a container of runs."""


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([0], "AQAAAAAAAAAAAAAAOjAAAAEAAAAAAAAAEAAAAAAA"),
        ([0, 1], "AQAAAAAAAAAAAAAAOjAAAAEAAAAAAAEAEAAAAAAAAQA="),
    ],
)
def test_bitmaps_are_those_that_apache_hudi_wrote(rows: list[int], text: str) -> None:
    assert encode_positions(np.array(rows)) == text
    assert decode_positions(text).tolist() == rows


def test_runs_are_read() -> None:
    assert decode_positions(RUNS).tolist() == [0, 1, 2, 3]


@given(st.sets(st.integers(0, (1 << 32) - 1), max_size=200) | st.sets(st.integers(0, 300_000), max_size=200))
def test_rows_come_back_as_they_went(rows: set[int]) -> None:
    values = np.array(sorted(rows), np.int64)
    assert decode_positions(encode_positions(values)).tolist() == values.tolist()


@pytest.mark.parametrize("count", [4095, 4096, 4097, 65_536, 200_000])
def test_dense_rows_come_back_as_they_went(count: int) -> None:
    rows = np.sort(np.random.default_rng(count).choice(250_000, count, replace=False))
    assert (decode_positions(encode_positions(rows)) == rows).all()


def test_damaged_bitmaps_are_refused_or_give_rows_in_order() -> None:
    rng = random.Random(1)
    for text in (encode_positions(np.arange(0, 5000, 3)), encode_positions(np.arange(5000)), RUNS):
        data = base64.b64decode(text)
        for _ in range(300):
            wrong = bytearray(data)
            wrong[rng.randrange(len(wrong))] ^= 1 << rng.randrange(8)
            cut = bytes(wrong[: rng.choice([len(wrong), rng.randrange(len(wrong))])])
            try:
                found = decode_positions(base64.b64encode(cut).decode())
            except CorruptTable:
                continue
            assert (np.diff(found) > 0).all()
    with pytest.raises(CorruptTable, match="positions"):
        decode_positions("no base64")
