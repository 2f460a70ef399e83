"""Batches that lack columns, or bring new ones: `missing=`, defaults, `evolve=`, in whatever form they come."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import hoodoo

ITEM = pa.struct([("x", pa.int32()), ("y", pa.string())])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("part", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("a", pa.int32()),
        pa.field("must", pa.int32(), nullable=False),
        pa.field("s", ITEM),
        pa.field("l", pa.list_(ITEM)),
        pa.field("m", pa.map_(pa.string(), ITEM)),
    ]
)
FULL = {"id": 1, "part": "p", "ts": 1, "a": 1, "must": 1, "s": {"x": 1, "y": "y"}, "l": None, "m": None}


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(
        tmp_path / "t", SCHEMA, key="id", partition_by="part", order_by="ts", compact_after_logs=None, clean_every=None
    )


def arrow(rows: list[dict[str, Any]], **kinds: pa.DataType) -> pa.Table:
    known = {field.name: field.type for field in SCHEMA} | kinds
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.Table.from_pylist(rows, schema=pa.schema([(name, known[name]) for name in names]))


def one(table: hoodoo.Table, key: int = 1) -> dict[str, Any]:
    [row] = table.get([key]).to_pylist()
    return dict(row)


# ---------------------------------------------------------------- what a batch lacks


@pytest.mark.parametrize("name", ["id", "part", "ts", "must"])
def test_a_batch_never_lacks_a_column_that_finds_places_orders_or_must_be_there(table: hoodoo.Table, name: str) -> None:
    row = {key: value for key, value in FULL.items() if key != name}
    with pytest.raises(hoodoo.ColumnError) as refused:
        table.upsert(arrow([row]), missing="null")
    assert refused.value.details["column"] == name and 'missing="null"' not in refused.value.message


def test_a_batch_that_lacks_a_column_is_refused_and_told_how_to_say_null(table: hoodoo.Table) -> None:
    row = {key: value for key, value in FULL.items() if key != "a"}
    with pytest.raises(hoodoo.ColumnError, match='missing="null"'):
        table.upsert(arrow([row]))
    table.upsert(arrow([row]), missing="null")
    assert one(table) == FULL | {"a": None}


def test_a_column_that_is_filled_with_null_replaces_the_stored_value_as_rows_are_replaced_whole(
    table: hoodoo.Table,
) -> None:
    table.upsert(arrow([FULL]))
    table.upsert(arrow([{"id": 1, "part": "p", "ts": 2, "must": 2}]), missing="null")
    assert one(table) == FULL | {"ts": 2, "must": 2, "a": None, "s": None}


@pytest.mark.parametrize("write", ["upsert", "insert", "insert_overwrite"])
def test_every_write_fills_what_is_missing(table: hoodoo.Table, write: str) -> None:
    table.alter.add_column("n", pa.string(), default="none")
    getattr(table, write)(arrow([{"id": 1, "part": "p", "ts": 2, "must": 2}]), missing="null")
    assert one(table) == FULL | {"ts": 2, "must": 2, "a": None, "s": None, "n": "none"}


@pytest.mark.parametrize("chunked", [False, True])
def test_fields_that_a_batch_lacks_are_null_at_every_level_and_nothing_else_moves(
    table: hoodoo.Table, chunked: bool
) -> None:
    short = pa.struct([("y", pa.string())])
    rows = [
        FULL | {"id": 1, "s": {"y": "a"}, "l": [{"y": "b"}, None], "m": [("k", {"y": "c"}), ("z", None)]},
        FULL | {"id": 2, "s": None, "l": [], "m": []},
        FULL | {"id": 3, "s": {"y": None}, "l": None, "m": None},
        FULL | {"id": 4, "s": {"y": "d"}, "l": [{"y": "e"}], "m": [("q", {"y": "f"})]},
    ]
    batch = arrow(rows, s=short, l=pa.list_(short), m=pa.map_(pa.string(), short))
    if chunked:
        batch = pa.concat_tables([batch.slice(3), batch.slice(0, 1), batch.slice(1, 0), batch.slice(1, 2)])
    with pytest.raises(hoodoo.ColumnError) as refused:
        table.upsert(batch)
    assert refused.value.details["column"] in ("s.x", "l[].x", "m{}.x")
    table.upsert(batch, missing="null")
    assert one(table) == FULL | {
        "s": {"x": None, "y": "a"},
        "l": [{"x": None, "y": "b"}, None],
        "m": [("k", {"x": None, "y": "c"}), ("z", None)],
    }
    assert one(table, 2) == FULL | {"id": 2, "s": None, "l": [], "m": []}
    assert one(table, 3)["s"] == {"x": None, "y": None}
    assert one(table, 4)["l"] == [{"x": None, "y": "e"}] and one(table, 4)["m"] == [("q", {"x": None, "y": "f"})]


def test_two_fields_of_one_name_are_refused_and_neither_vanishes(tmp_path: Path) -> None:
    """With missing="null" one of them was written, and the other forgotten."""
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("s", ITEM)]), key="id")
    twice = pa.StructArray.from_arrays([pa.array([1], pa.int32()), pa.array([2], pa.int32())], ["x", "x"])
    with pytest.raises(hoodoo.ColumnError, match="'s'"):
        table.upsert(pa.table({"id": [1], "s": twice}), missing="null")


@pytest.mark.parametrize("argument", [{"missing": "nul"}, {"missing": None}, {"evolve": "yes"}, {"evolve": 1}], ids=str)
def test_arguments_that_mean_nothing_are_refused(table: hoodoo.Table, argument: dict[str, Any]) -> None:
    with pytest.raises(hoodoo.OptionError):
        table.upsert(arrow([FULL]), **argument)


FORMS: list[Callable[[list[dict[str, Any]]], Any]] = [
    lambda rows: rows,
    lambda rows: pd.DataFrame(rows),
    lambda rows: pl.DataFrame(rows),
    lambda rows: pa.Table.from_pylist(rows).to_reader(),
]


@pytest.mark.parametrize("form", range(len(FORMS)))
def test_rows_of_any_form_may_lack_columns_and_bring_new_ones(tmp_path: Path, form: int) -> None:
    schema = pa.schema([("id", pa.int64()), ("a", pa.int32()), ("t", pa.timestamp("us", "UTC"))])
    table = hoodoo.create(tmp_path / "t", schema, key="id", type="copy_on_write")
    table.alter.add_column("n", pa.string(), default="d")
    rows = [{"id": 1, "new": 1.5}, {"id": 2, "new": 2.5}]
    table.upsert(FORMS[form](rows), evolve=True, missing="null")
    found = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert found == [{"id": key, "a": None, "t": None, "n": "d", "new": key + 0.5} for key in (1, 2)]
    assert table.schema.field("new").type == pa.float64()


# ---------------------------------------------------------------- what a batch brings


def test_without_evolve_a_new_column_a_new_field_or_a_wider_value_is_refused(table: hoodoo.Table) -> None:
    wide = pa.struct([*ITEM, pa.field("z", pa.int32())])
    for row, kinds in (
        (FULL | {"new": 1}, {"new": pa.int32()}),
        (FULL | {"s": {"x": 1, "y": "y", "z": 1}}, {"s": wide}),
        (FULL | {"a": 2**40}, {"a": pa.int64()}),
    ):
        with pytest.raises(hoodoo.ColumnError):
            table.upsert(arrow([row], **kinds))
    assert len(table.inspect.schemas()) == 1


def test_evolve_adds_columns_and_fields_and_widens_in_one_write(table: hoodoo.Table) -> None:
    table.upsert(arrow([FULL]))
    wide = pa.struct([*ITEM, pa.field("z", pa.int32())])
    kinds = {"s": wide, "l": pa.list_(wide), "m": pa.map_(pa.string(), wide), "a": pa.int64(), "new": pa.date32()}
    full = {"x": 1, "y": "y", "z": 2}
    row = FULL | {"id": 2, "s": full, "l": [full], "m": [("k", full)], "a": 2**40, "new": dt.date(2026, 1, 1)}
    table.upsert(arrow([row], **kinds), evolve=True)
    assert one(table, 2) == row
    assert one(table) == FULL | {"s": {"x": 1, "y": "y", "z": None}, "new": None}
    table.upsert(arrow([FULL | {"id": 3}]))  # who knows nothing of new columns goes on
    assert one(table, 3)["new"] is None
    assert len(table.inspect.schemas()) == 2


def test_pythons_integers_widen_a_column_only_where_one_of_them_needs_it(table: hoodoo.Table) -> None:
    table.upsert([FULL | {"a": 5}], evolve=True)
    assert len(table.inspect.schemas()) == 1 and table.schema.field("a").type == pa.int32()
    table.upsert([FULL | {"id": 2, "a": 2**40}], evolve=True)
    assert table.schema.field("a").type == pa.int64() and one(table, 2)["a"] == 2**40


@pytest.mark.parametrize(
    ("row", "column"),
    [
        (FULL | {"a": "text"}, "a"),
        (FULL | {"a": True}, "a"),
        (FULL | {"s": {"x": 2**40, "y": "y"}}, "s"),
        (FULL | {"ts": 1.5}, "ts"),
        (FULL | {"part": 1}, "part"),
        (FULL | {"A": 1}, "A"),
        (FULL | {"s.z": 1}, "s.z"),
        (FULL | {"s": {"x": 1, "y": "y", "X": 1}}, "s.X"),
        (FULL | {"s": {"x": 1, "y": "y", "q.z": 1}}, "s.q.z"),
        (FULL | {"bad name": 1}, "bad name"),
    ],
    ids=str,
)
def test_what_is_not_exact_or_has_no_good_name_is_refused_with_evolve_too(
    table: hoodoo.Table, row: dict[str, Any], column: str
) -> None:
    """A batch's column called s.z was taken for a field of the struct s."""
    with pytest.raises((hoodoo.ColumnError, hoodoo.SchemaError)) as refused:
        table.upsert([row], evolve=True)
    assert str(refused.value.details["column"]).strip("'").startswith(column)
    assert len(table.inspect.schemas()) == 1 and table.scan().count() == 0


def test_a_field_in_which_a_batch_has_only_nulls_is_no_news(table: hoodoo.Table) -> None:
    """Of a struct with nothing but nulls in a field nobody knows the type: a batch that the table takes was refused
    with evolve=True.
    """
    row = FULL | {"s": {"x": None, "y": None}, "l": [], "m": None}
    table.upsert([row], evolve=True)
    table.upsert([row | {"id": 2}])
    assert one(table) == row and len(table.inspect.schemas()) == 1


def test_a_column_of_another_kind_is_refused_though_it_has_the_name(table: hoodoo.Table) -> None:
    with pytest.raises(hoodoo.ColumnError):
        table.upsert([FULL | {"s": 1}], evolve=True)
    with pytest.raises(hoodoo.ColumnError):
        table.upsert([FULL | {"a": {"x": 1}}], evolve=True)
    assert len(table.inspect.schemas()) == 1


def test_a_wider_nested_value_is_refused_rather_than_made_null(table: hoodoo.Table) -> None:
    table.upsert(arrow([FULL]))
    with pytest.raises(hoodoo.HoodooError):
        table.upsert([FULL | {"l": [{"x": 2**40, "y": ""}]}], evolve=True)
    assert one(table) == FULL


def test_a_name_that_files_still_hold_is_not_added_by_a_batch(table: hoodoo.Table) -> None:
    table.upsert(arrow([FULL]))
    table.alter.drop_column("a")
    with pytest.raises(hoodoo.RewriteNeeded):
        table.upsert(arrow([FULL | {"id": 2, "a": 7}]), evolve=True)
    assert "a" not in one(table)
    table.alter.add_column("a", pa.int32(), rewrite=True)
    table.upsert(arrow([FULL | {"id": 2, "a": 7}]), evolve=True)
    assert (one(table)["a"], one(table, 2)["a"]) == (None, 7)


def test_deletes_need_only_keys_whatever_columns_came_and_went(table: hoodoo.Table) -> None:
    table.upsert(arrow([FULL, FULL | {"id": 2}]))
    table.alter([hoodoo.AddColumn("n", pa.int32()), hoodoo.DropColumn("a")])
    table.delete([{"id": 1, "part": "p"}])
    flagged = {k: v for k, v in FULL.items() if k != "a"} | {"id": 2, "ts": 9, "_hoodie_is_deleted": True}
    table.upsert(arrow([flagged], _hoodie_is_deleted=pa.bool_()), missing="null", evolve=True)
    assert table.scan().count() == 0


def test_a_handle_that_has_not_looked_for_long_writes_by_the_columns_that_there_are(table: hoodoo.Table) -> None:
    old = hoodoo.open(table.path)
    table.upsert(arrow([FULL]))
    table.alter([hoodoo.RenameColumn("a", "b"), hoodoo.AddColumn("n", pa.int32(), default=4)], rewrite=True)
    renamed = {"b" if k == "a" else k: v for k, v in FULL.items()}
    old.upsert(arrow([renamed | {"id": 2}], b=pa.int32()))
    assert one(table, 2) == renamed | {"id": 2, "n": 4}
    with pytest.raises(hoodoo.ColumnError, match="'a'"):
        old.upsert(arrow([FULL | {"id": 3}]), missing="null")


def test_a_handle_that_has_not_looked_for_long_takes_no_name_for_what_it_meant_then(tmp_path: Path) -> None:
    """Names in a batch were those of the handle's last look: after two columns had swapped theirs, their values did."""
    schema = pa.schema([("id", pa.int64()), ("a", pa.int32()), ("b", pa.int32())])
    table = hoodoo.create(tmp_path / "t", schema, key="id", type="copy_on_write")
    table.upsert([{"id": 1, "a": 1, "b": -1}])
    old = hoodoo.open(table.path)
    steps = [("a", "spare"), ("b", "a"), ("spare", "b")]
    table.alter([hoodoo.RenameColumn(*step) for step in steps], rewrite=True)
    old.upsert([{"id": 2, "a": -2, "b": 2}])
    assert [(row["a"], row["b"]) for row in (one(table), one(table, 2))] == [(-1, 1), (-2, 2)]


def test_a_new_column_with_nulls_only_is_refused_for_want_of_a_type(table: hoodoo.Table) -> None:
    with pytest.raises(hoodoo.ColumnError, match="its type is unknown"):
        table.upsert([FULL | {"new": None}], evolve=True)


def test_a_sink_passes_its_arguments_on(table: hoodoo.Table) -> None:
    sink = table.sink("s", missing="null", evolve=True)
    sink(arrow([{"id": 1, "part": "p", "ts": 2, "must": 2, "new": 5}], new=pa.int32()), 0)
    seq = table.cursor.seq
    sink(arrow([{"id": 1, "part": "p", "ts": 2, "must": 2, "other": 5}], other=pa.int32()), 0)  # a repeated batch
    assert one(table)["new"] == 5 and table.cursor.seq == seq and "other" not in one(table)
