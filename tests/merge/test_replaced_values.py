"""New values at some places of a column: the column that a list of Python values would be, or the news that nothing
differs.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hoodoo.merge.replaced_values import replace_values

VALUES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [1, 2, -128, 127],
    pa.int64(): [1, 2, -(1 << 63), (1 << 63) - 1],
    pa.float32(): [0.5, -1.0, 3.0, 2.0**100],
    pa.float64(): [0.1, -1.0, 3.0, 1e300],
    pa.bool_(): [True, False],
    pa.string(): ["", "a", "é" * 50, "a long text " * 20],
    pa.binary(): [b"", b"\x00\xff", b"x"],
    pa.date32(): [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2026, 1, 1)],
    pa.timestamp("us", "UTC"): [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(1960, 1, 1, tzinfo=dt.UTC)],
    pa.decimal128(20, 3): [Decimal("1.250"), Decimal("-99999999999999999.999")],
    pa.list_(pa.int64()): [[], [1, None], [3]],
    pa.struct([("x", pa.int64()), ("y", pa.string())]): [{"x": 1, "y": None}, {"x": None, "y": "b"}],
}


@pytest.mark.parametrize("kind", VALUES, ids=str)
@pytest.mark.parametrize("nulls", [False, True], ids=["no nulls", "nulls"])
def test_it_is_the_column_that_a_list_of_values_would_be(kind: pa.DataType, nulls: bool) -> None:
    rng = np.random.default_rng(5)
    choice = VALUES[kind] + [None] * nulls
    for _ in range(30):
        old = [choice[n] for n in rng.integers(0, len(choice), rng.integers(1, 60))]
        at = np.sort(rng.choice(len(old), rng.integers(1, len(old) + 1), replace=False))
        new = [choice[n] for n in rng.integers(0, len(choice), len(at))]
        want = list(old)
        for place, value in zip(at.tolist(), new, strict=True):
            want[place] = value
        cut = len(old) // 2
        column = pa.chunked_array([pa.array(old[:cut], kind), pa.array(old[cut:], kind)], kind)
        found = replace_values(column, at, pa.chunked_array([pa.array(new, kind)], kind))
        assert (column if found is None else found).to_pylist() == want
        if not pa.types.is_nested(kind):
            assert (found is None) == (want == old)


def test_dictionaries_take_texts_and_dictionaries_and_keep_no_value_that_no_row_has() -> None:
    text = pa.dictionary(pa.int32(), pa.string())
    column = pa.chunked_array(
        [pa.array(["a", "b", None]).dictionary_encode(), pa.array(["secret"]).dictionary_encode()]
    )
    at = np.array([1, 3])
    for new in (pa.array(["c", None]), pa.array(["c", None]).dictionary_encode()):
        found = replace_values(column, at, pa.chunked_array([new]))
        assert found is not None and found.type == text
        assert found.to_pylist() == ["a", "c", None, None]
        assert found.combine_chunks().dictionary.to_pylist() == ["a", "c"]
    assert replace_values(column, at, pa.chunked_array([pa.array(["b", "secret"])])) is None


def test_floats_are_compared_by_their_bits() -> None:
    def floats(*values: float | None) -> pa.ChunkedArray:
        return pa.chunked_array([pa.array(values, pa.float64())])

    assert replace_values(floats(0.0, 1.0), np.array([0]), floats(-0.0)) is not None
    assert replace_values(floats(0.0, None), np.array([0]), floats(-0.0)) is not None
    assert replace_values(floats(float("nan"), 1.0), np.array([0]), floats(float("nan"))) is None
