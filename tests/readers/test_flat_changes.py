"""`to_pandas` of changes has a column for each field of `before` and `after`; other forms keep the structs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import hoodoo

NAMES = ["id", "op", "instant", "before_id", "after"]


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    """A table whose columns are named like those of changes, with an insert, an update and a delete."""
    schema = pa.schema([(name, pa.int64()) for name in NAMES] + [("spot", pa.struct([("x", pa.int64())]))])
    made = hoodoo.create(tmp_path / "t", schema, key="id")
    row = {**dict.fromkeys(NAMES, 5), "spot": {"x": 1}}
    made.insert([{**row, "id": 1}, {**row, "id": 2}])
    made.upsert([{**row, "id": 1, "op": 6}, {**row, "id": 3}])
    made.delete([2])
    return made


def test_the_columns_are_flat_and_their_names_unambiguous(table: hoodoo.Table) -> None:
    changes = table.changes(2)
    assert changes.to_arrow().column_names == ["op", "instant", "before", "after"]
    frame = changes.to_pandas().sort_values("op")
    images = [f"{image}_{name}" for image in ("before", "after") for name in (*NAMES, "spot")]
    assert list(frame.columns) == ["op", "instant", *images]
    assert list(frame["op"]) == ["d", "i", "u"]
    assert frame["before_id"].fillna(0).tolist() == [2, 0, 1]
    assert frame["after_id"].fillna(0).tolist() == [0, 3, 1]
    assert frame["after_before_id"].fillna(0).tolist() == [0, 5, 5]
    assert frame["after_spot"].tolist() == [None, {"x": 1}, {"x": 1}]
    assert (frame["before_op"].iloc[2], frame["after_op"].iloc[2]) == (5, 6)


def test_a_diff_and_no_changes_are_flat_too(table: hoodoo.Table) -> None:
    assert list(table.changes(2, columns=["id"], versions="diff").to_pandas().columns) == [
        "op",
        "before_id",
        "after_id",
    ]
    empty = table.changes("latest", columns=["id"]).to_pandas()
    assert (len(empty), list(empty.columns)) == (0, ["op", "instant", "before_id", "after_id"])


def test_original_names_may_have_dots(tmp_path: Path) -> None:
    rows = pa.table({"Order.ID": [1], "a.b": [2]})
    made = hoodoo.create(tmp_path / "t", rows, key="Order.ID", rename="snake")
    made.insert(rows)
    frame = made.changes("earliest", names="original").to_pandas()
    assert list(frame.columns)[2:] == ["before_Order.ID", "before_a.b", "after_Order.ID", "after_a.b"]
