"""Columns of a file as those asked for: nested ones rebuilt by ids, of slices too, as plain Python does it."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from column_model import Col, cast, edited, paths, shown, some
from tiers import sized

from hoodoo.errors import UnsupportedTable
from hoodoo.format.resolve import NO_CHANGES, map_columns
from hoodoo.format.table_schema import Column, TableSchema


def column(one: Col) -> Column:
    """A model's column as ours, with the same ids; keys of maps get ids of their own."""
    inner = tuple(map(column, one.children))
    if one.kind == "map":
        inner = (Column(one.id + 5000, "key", pa.string()), *inner)
    return Column(one.id, one.name, one.kind, inner)


def schema(number: int, *columns: Col) -> TableSchema:
    return TableSchema(number, tuple(map(column, columns)), 10_000)


LEAF = Col(12, "x", pa.int32())
STRUCT = (
    LEAF,
    Col(13, "y", pa.string()),
    Col(14, "deep", "struct", (Col(15, "z", pa.float32()), Col(16, "w", pa.int64()))),
)
SHAPES = [
    Col(10, "c", "struct", STRUCT),
    Col(10, "c", "list", (Col(11, "item", "struct", STRUCT),)),
    Col(10, "c", "map", (Col(11, "value", "struct", STRUCT),)),
    Col(10, "c", "list", (Col(11, "item", "list", (Col(17, "item", "struct", STRUCT),)),)),
    Col(10, "c", "map", (Col(11, "value", "map", (Col(17, "value", pa.float32()),)),)),
    Col(10, "c", "list", (Col(11, "item", pa.int32()),)),
]


def changed(rng: random.Random, columns: tuple[Col, ...]) -> tuple[Col, ...]:
    """`columns` after a few changes at random levels."""
    from dataclasses import replace

    for number in range(rng.randint(1, 4)):
        _, one, around = rng.choice(paths(columns))
        how = rng.choice(["rename", "drop", "add", "widen", "reorder"])
        in_struct = around is None or around.kind == "struct"
        beside = columns if around is None else next(c for _, c, _ in paths(columns) if c.id == around.id).children
        if how == "rename" and in_struct:
            columns = edited(columns, one.id, replace(one, name=f"r{number}"))
        elif how == "drop" and in_struct and len(beside) > 1:
            columns = edited(columns, one.id, None)
        elif how == "add" and one.kind == "struct":
            new = Col(100 + number, rng.choice(["x", "y", "n"]) + str(number), rng.choice([pa.int32(), pa.string()]))
            columns = edited(columns, one.id, replace(one, children=(new, *one.children)))
        elif how == "reorder" and one.kind == "struct":
            columns = edited(columns, one.id, replace(one, children=one.children[::-1]))
        elif how == "widen" and one.kind in (pa.int32(), pa.float32()):
            columns = edited(columns, one.id, replace(one, kind=pa.float64()))
    return columns


CASES, SEEDS = 20, sized(3, 100)


@pytest.mark.both
@pytest.mark.parametrize("case", range(CASES))
def test_nested_values_are_rebuilt_as_plain_python_does_it(case: int) -> None:
    for seed in range(case * SEEDS, (case + 1) * SEEDS):
        assert_rebuilt(random.Random(seed))


def assert_rebuilt(rng: random.Random) -> None:
    one = rng.choice(SHAPES)
    values = [some(rng, one) for _ in range(rng.randint(0, 30))]
    whole = pa.array([shown(value, one) for value in values], one.arrow)
    begin, end = sorted((rng.randint(0, len(values)), rng.randint(0, len(values))))
    cut = rng.randint(begin, end)
    chunks = pa.chunked_array([whole.slice(begin, cut - begin), whole.slice(cut, end - cut)], one.arrow)
    for _ in range(3):
        after = changed(rng, (one,))
        resolution = map_columns(schema(1, one), schema(2, *after))
        asked = [pa.field(c.name, c.arrow) for c in after]
        found = resolution.to_requested_columns(pa.table({"c": chunks}), asked)
        found.validate(full=True)
        for new in after:
            want = [None] * (end - begin) if new.id != one.id else [cast(v, one, new) for v in values[begin:end]]
            assert found[new.name].to_pylist() == [shown(value, new) for value in want]


# ---------------------------------------------------------------- flat columns

FILE = TableSchema(1, (Column(5, "a", pa.int32()), Column(6, "b", pa.string()), Column(7, "c", pa.float32())), 9)


def asked(*columns: Column) -> TableSchema:
    return TableSchema(2, columns, 9)


def test_the_same_columns_in_any_order_cost_nothing() -> None:
    found = map_columns(FILE, asked(*FILE.columns[::-1]))
    assert found.changes_nothing and found.name_of("a") == "a"
    stats = {"a": [1, 2, 0]}
    assert found.convert_statistics(stats, 3) is stats
    rows = pa.table({"a": pa.array([1], pa.int32())})
    assert found.to_requested_columns(rows, [pa.field("a", pa.int32())])["a"].chunk(0).buffers()[1].address == (
        rows["a"].chunk(0).buffers()[1].address
    )


def test_a_column_is_found_by_its_id_and_one_of_the_same_name_is_not_opened() -> None:
    found = map_columns(FILE, asked(Column(6, "a", pa.string()), Column(8, "b", pa.string())))
    assert found.name_of("a") == "b" and found.name_of("b") is None
    assert found.names_of(["a", "b", "_hoodie_record_key"]) == ["b", "_hoodie_record_key"]
    rows = pa.table({"b": ["x"], "a": pa.array([1], pa.int32())})
    assert found.to_requested_columns(rows, [pa.field("a", pa.string()), pa.field("b", pa.string())]).to_pylist() == [
        {"a": "x", "b": None}
    ]


def test_statistics_follow_ids_and_an_absent_column_is_null_in_every_row() -> None:
    found = map_columns(
        FILE, asked(Column(5, "b", pa.string()), Column(8, "a", pa.int32()), Column(7, "z", pa.float64()))
    )
    stats = found.convert_statistics({"a": [1, 20, 1], "b": ["x", "y", 0], "c": [0.10000000149011612, 0.5, 2]}, 4)
    assert {name: stats[name] for name in ("a", "b", "z")} == {
        "b": [None, None, 1],
        "a": [None, None, 4],
        "z": [0.1, 0.5, 2],
    }


def test_names_that_a_partial_update_sets_are_those_asked_for_and_columns_that_are_gone_are_left_out() -> None:
    """A column that was dropped was still said to be set, under a name that the table has no more."""
    found = map_columns(FILE, asked(Column(6, "a", pa.string()), Column(7, "c", pa.float32())))
    assert found.asked(["a", "b", "c", "_hoodie_record_key"]) == ["a", "c", "_hoodie_record_key"]
    assert map_columns(FILE, asked(FILE.columns[2])).asked(["a", "b", "c"]) == ["c"]


def test_rows_without_any_column_asked_for_keep_their_number() -> None:
    found = map_columns(FILE, asked(Column(8, "n", pa.int32())))
    assert (
        found.to_requested_columns(pa.table({"": pa.nulls(3)}), [pa.field("n", pa.int32())]).to_pylist()
        == [{"n": None}] * 3
    )
    assert len(NO_CHANGES.to_requested_columns(pa.table({"a": [1, 2]}), [])) in (0, 2)


@pytest.mark.parametrize(
    "column",
    [
        Column(5, "a", pa.bool_()),
        Column(6, "b", pa.date32()),
        Column(5, "a", "struct", (Column(8, "x", pa.int32()),)),
        Column(5, "a", "list", (Column(8, "item", pa.int32()),)),
    ],
    ids=str,
)
def test_a_type_that_old_values_have_no_meaning_in_is_refused_by_the_name_of_the_column(column: Column) -> None:
    other = next(one for one in FILE.columns if one.id not in (5, 6))
    found = map_columns(FILE, asked(column, other))
    for ask in (found.name_of, lambda name: found.names_of([other.name, name])):
        with pytest.raises(UnsupportedTable) as refused:
            ask(column.name)
        assert refused.value.details["column"] == column.name
    assert found.names_of([other.name]) == [other.name], "it stands in the way of no other column"
    assert column.name not in found.convert_statistics({column.name: [1, 2, 0]}, 5)


def test_a_value_that_does_not_fit_a_narrower_type_is_refused_by_the_name_of_its_column_not_as_damage() -> None:
    found = map_columns(
        TableSchema(2, (Column(5, "a", pa.int64()),), 9), TableSchema(3, (Column(5, "z", pa.int32()),), 9)
    )
    fits, not_ = (pa.table({"a": pa.array([value], pa.int64())}) for value in (7, 2**40))
    assert found.to_requested_columns(fits, [pa.field("z", pa.int32())]).to_pylist() == [{"z": 7}]
    with pytest.raises(UnsupportedTable) as refused:
        found.to_requested_columns(not_, [pa.field("z", pa.int32())])
    assert refused.value.details["column"] == "z"


def test_a_field_that_stood_in_another_struct_is_not_taken_for_this_one() -> None:
    """Ids are unique in a table, and a field is never moved: what claims to have been is not believed."""
    x: Any = Column(8, "x", pa.int32())
    file = TableSchema(1, (Column(5, "s", "struct", (x,)), Column(6, "t", "struct", (Column(9, "y", pa.int32()),))), 9)
    moved = TableSchema(2, (Column(6, "t", "struct", (x,)),), 9)
    found = map_columns(file, moved)
    rows = pa.table({"s": [{"x": 1}], "t": [{"y": 2}]}, schema=file.arrow)
    assert found.to_requested_columns(rows.select(["t"]), list(moved.arrow)).to_pylist() == [{"t": {"x": None}}]
