"""Rows that weigh more than one Arrow array may hold are taken and put together in chunks, and are the same rows.

The limit is lowered, and once the real one is passed by a column whose chunks are all the same 4 MB of text.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from hoodoo.format import rows
from hoodoo.format.rows import compact, take_from_column, take_rows


@pytest.fixture
def chunked() -> pa.Table:
    rng = np.random.default_rng(3)
    texts = ["x" * int(n) for n in rng.integers(0, 40, 300)]
    table = pa.table(
        {
            "n": pa.array(range(300)),
            "text": pa.array(texts),
            "lists": pa.array([[text, None] for text in texts]),
            "code": pa.array(texts).dictionary_encode(),
        }
    )
    return pa.concat_tables([table.slice(start, 7) for start in range(0, 300, 7)])


@pytest.mark.parametrize("limit", [1, 500, 4000, 1 << 30])
@pytest.mark.parametrize("order", ["ascending", "descending and unsigned", "permuted", "repeated", "none", "one"])
def test_heavy_rows_are_taken_in_their_order_however_small_the_pieces(
    chunked: pa.Table, monkeypatch: pytest.MonkeyPatch, limit: int, order: str
) -> None:
    monkeypatch.setattr(rows, "WHOLE_BYTES", limit)
    rng = np.random.default_rng(4)
    places = {
        "ascending": np.arange(0, 300, 3),
        "descending and unsigned": np.arange(299, 0, -3).astype(np.uint64),
        "permuted": rng.permutation(300),
        "repeated": rng.integers(0, 300, 400),
        "none": np.empty(0, np.int64),
        "one": np.array([299]),
    }[order]
    assert take_rows(chunked, places).to_pylist() == chunked.combine_chunks().take(pa.array(places)).to_pylist()
    assert take_from_column(chunked["text"], places).to_pylist() == chunked["text"].take(pa.array(places)).to_pylist()


@pytest.mark.parametrize("limit", [1, 4000, 1 << 30])
def test_rows_are_joined_into_chunks_of_the_weight_that_is_allowed(
    chunked: pa.Table, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(rows, "WHOLE_BYTES", limit)
    joined = compact(chunked)
    assert joined.to_pylist() == chunked.to_pylist()
    assert all(batch.nbytes <= limit or batch.num_rows <= 7 for batch in joined.to_batches())
    if limit > chunked.nbytes:
        assert len(joined.to_batches()) == 1


def test_rows_beyond_two_gigabytes_are_taken_where_arrow_alone_overflows() -> None:
    """A batch of 2.3 GB of text died of "offset overflow while concatenating arrays"."""
    one = pa.array(["x" * (4 << 20)])
    table = pa.table({"n": pa.array(range(560)), "text": pa.chunked_array([one] * 560)})
    with pytest.raises(pa.ArrowInvalid, match="offset overflow"):
        table.take(pa.array([5, 3]))
    assert len(take_rows(table, np.empty(0, np.int64))) == 0
    found = take_rows(table, np.array([559, 3, 3]))
    assert found["n"].to_pylist() == [559, 3, 3]
    assert [len(text.as_py()) for text in found["text"]] == [4 << 20] * 3


def test_texts_in_the_same_memory_are_taken_once_and_parts_of_it_are_not_mistaken_for_each_other() -> None:
    texts = pa.array(["a", None, "c", "d", "e"])
    one, two = texts.slice(0, 4), texts.slice(1, 4)
    table = pa.table({"k": one, "again": one, "later": two, "n": [1, 2, 3, 4]})
    found = take_rows(table, np.array([3, 1, 1]))
    assert found.to_pydict() == {
        "k": ["d", None, None],
        "again": ["d", None, None],
        "later": ["e", "c", "c"],
        "n": [4, 2, 2],
    }
    addresses = [[part.buffers()[2].address for part in found[name].chunks] for name in ("k", "again", "later")]
    assert addresses[0] == addresses[1] != addresses[2]
