"""Rows that were set aside before the columns changed: a replay finds their columns by ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo

STRUCT = pa.struct([("x", pa.int32()), ("y", pa.string())])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        ("a", pa.string()),
        ("b", pa.string()),
        ("n", pa.int64()),
        ("s", STRUCT),
        ("l", pa.list_(STRUCT)),
        ("m", pa.map_(pa.string(), STRUCT)),
    ]
)


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", SCHEMA, key="id", checks={"positive": "n > 0"})


def row(key: int, **values: Any) -> dict[str, Any]:
    inner = {"x": key, "y": "y"}
    return {"id": key, "a": "A", "b": "B", "n": -1, "s": inner, "l": [inner, None], "m": [("k", inner)]} | values


def set_aside(table: hoodoo.Table, *rows: dict[str, Any]) -> None:
    batch = pa.Table.from_pylist(list(rows), SCHEMA)
    assert table.upsert(batch, on_bad_rows="quarantine").quarantined == len(rows)


def replayed(table: hoodoo.Table, **how: Any) -> tuple[int, int]:
    table.set_checks({})
    done = table.quarantine().replay(**how)
    return done.replayed, done.bad


def found(table: hoodoo.Table) -> dict[int, dict[str, Any]]:
    return {one["id"]: one for one in table.scan().to_arrow().to_pylist()}


def test_two_columns_that_swapped_names_keep_their_own_values(table: hoodoo.Table) -> None:
    set_aside(table, row(1))
    swap = [hoodoo.RenameColumn("a", "c"), hoodoo.RenameColumn("b", "a"), hoodoo.RenameColumn("c", "b")]
    table.alter(swap, rewrite=True)
    assert replayed(table) == (1, 0)
    assert (found(table)[1]["a"], found(table)[1]["b"]) == ("B", "A")


def test_a_value_of_a_dropped_field_keeps_its_row_back(table: hoodoo.Table) -> None:
    set_aside(table, row(1), row(2, s=None, l=None, m=[]))
    changes = [hoodoo.RenameColumn(f"{path}.x", "z") for path in ("s", "l[]", "m{}")]
    table.alter([*changes, hoodoo.DropColumn("s.y")], rewrite=True)
    assert replayed(table) == (1, 1), "the first has a value for s.y"
    assert found(table)[2]["s"] is None and found(table)[2]["m"] == []


def test_renamed_fields_keep_their_values(table: hoodoo.Table) -> None:
    set_aside(table, row(1), row(2, s=None, l=[], m=None))
    table.alter([hoodoo.RenameColumn(f"{path}.x", "z") for path in ("s", "l[]", "m{}")], rewrite=True)
    assert replayed(table) == (2, 0)
    inner = {"z": 1, "y": "y"}
    one = found(table)[1]
    assert (one["s"], one["l"], one["m"]) == (inner, [inner, None], [("k", inner)])
    assert found(table)[2]["l"] == [] and found(table)[2]["m"] is None


def test_a_value_of_a_dropped_column_does_not_come_back_under_one_of_its_name(table: hoodoo.Table) -> None:
    set_aside(table, row(1, a="secret"), row(2, a=None))
    table.alter.drop_column("a")
    table.alter.add_column("a", pa.string(), default="new", rewrite=True)
    assert replayed(table) == (1, 1)
    assert found(table) == {2: row(2, a="new") | {"l": [{"x": 2, "y": "y"}, None]}}
    assert "dropped" in table.quarantine().replay().details[0]


def test_a_column_added_since_is_its_default_or_null_where_the_caller_says_so(table: hoodoo.Table) -> None:
    set_aside(table, row(1))
    table.alter.add_column("d", pa.int32(), default=7)
    table.alter.add_column("e", pa.int32())
    assert replayed(table) == (0, 1)
    assert "missing" in table.quarantine().replay().details[0]
    assert replayed(table, missing="null") == (1, 0)
    assert (found(table)[1]["d"], found(table)[1]["e"]) == (7, None)
    with pytest.raises(hoodoo.OptionError):
        table.quarantine().replay(missing="maybe")


def test_a_row_is_kept_once_also_where_columns_were_renamed_between_two_tries(table: hoodoo.Table) -> None:
    set_aside(table, row(1))
    table.alter.rename_column("b", "bb", rewrite=True)
    table.alter.rename_column("bb", "b", rewrite=True)
    set_aside(table, row(1))
    assert table.quarantine().count() == 1
    assert table.quarantine().original(table.quarantine().rows()["position"][0].as_py()).schema.metadata is None


def test_a_purge_looks_into_rows_of_older_columns(table: hoodoo.Table) -> None:
    set_aside(table, row(1), row(2))
    table.alter.drop_column("a")
    table.maintenance.purge(pa.table({"id": [1]}), older_than_hours=0)
    left = table.quarantine().rows()["position"].to_pylist()
    assert len(left) == 1 and table.quarantine().original(left[0])["id"].to_pylist() == [2]
