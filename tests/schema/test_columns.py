"""Columns with ids: as JSON and back, numbered as Apache Hudi numbers them, and matched to what engines by name say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoodoo.format.table_schema import FIELD_ID, Column, TableSchema, assign_column_ids

LEAVES = [
    pa.bool_(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.time64("us"),
    pa.time32("ms"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ms", "UTC"),
    pa.timestamp("us"),
    pa.timestamp("ms"),
    pa.decimal128(38, 10),
    pa.decimal128(1, 0),
]
kinds = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(lambda many: pa.struct([(f"f{n}", k) for n, k in enumerate(many)]))
        | inner.map(pa.list_)
        | inner.map(lambda kind: pa.map_(pa.string(), kind))
    ),
    max_leaves=6,
)
schemas = st.lists(kinds, min_size=1, max_size=4).map(
    lambda many: pa.schema([(f"c{n}", kind) for n, kind in enumerate(many)])
)


@given(schemas)
def test_a_schema_is_the_same_after_json_and_as_arrow(schema: pa.Schema) -> None:
    first = TableSchema.first(schema, ["c0"])
    assert TableSchema.from_json(first.to_json()) == first
    assert first.arrow == schema
    assert first.columns[0].required and sorted(first.by_id) == list(range(5, first.last + 1))


@given(schemas)
def test_every_field_of_a_file_carries_its_id_and_no_two_the_same(schema: pa.Schema) -> None:
    first = TableSchema.first(schema)
    found: list[int] = []

    def look(field: pa.Field) -> None:
        found.append(int(field.metadata[FIELD_ID]))
        if pa.types.is_struct(field.type):
            [look(one) for one in field.type]
        elif pa.types.is_list(field.type):
            look(field.type.value_field)
        elif pa.types.is_map(field.type):
            look(field.type.key_field), look(field.type.item_field)

    for field in first.arrow_fields_with_ids.values():
        look(field)
    assert len(set(found)) == len(found) and set(first.by_id) <= set(found)


def test_columns_are_numbered_from_5_in_order_and_then_level_by_level() -> None:
    inner = pa.struct([("x", pa.int32()), ("deep", pa.struct([("z", pa.int32())]))])
    schema = pa.schema([("a", inner), ("b", pa.list_(inner)), ("m", pa.map_(pa.string(), pa.int32()))])
    first = TableSchema.first(schema)
    names = {number: column.name for number, column in first.by_id.items()}
    assert [names[number] for number in range(5, first.last + 1)] == [
        *("a", "b", "m"),
        *("x", "deep", "item", "key", "value"),
        *("z", "x", "deep"),
        "z",
    ]


def test_a_default_of_null_is_another_thing_than_no_default() -> None:
    column = Column(5, "a", pa.int32())
    assert "default" not in column.to_json()
    with_null = replace(column, has_default=True)
    assert with_null.to_json()["default"] is None and Column.from_json(with_null.to_json()) == with_null


@pytest.mark.parametrize(
    "said",
    [
        None,
        [],
        "text",
        {},
        {"id": 1, "max": 5},
        {"id": True, "max": 5, "columns": []},
        {"id": 1, "max": 5.0, "columns": []},
        {"id": 1, "max": 5, "columns": [{"id": 5, "name": "a", "type": "int8"}]},
        {"id": 1, "max": 5, "columns": [{"id": 5, "name": "a", "type": "decimal(100,2)"}]},
        {"id": 1, "max": 5, "columns": [{"id": 5, "name": "a", "type": 7}]},
        {"id": 1, "max": 5, "columns": [{"id": 5, "name": 5, "type": "int"}]},
        {"id": 1, "max": 5, "columns": [{"id": "5", "name": "a", "type": "int"}]},
        {"id": 1, "max": 5, "columns": [{"id": 6, "name": "a", "type": "int"}]},
        {"id": 1, "max": 5, "columns": [{"id": 4, "name": "a", "type": "int"}]},
        {"id": 1, "max": 6, "columns": [{"id": 5, "name": "a", "type": "int"}, {"id": 5, "name": "b", "type": "int"}]},
        {"id": 1, "max": 6, "columns": [{"id": 5, "name": "a", "type": "int"}, {"id": 6, "name": "a", "type": "int"}]},
        {
            "id": 1,
            "max": 7,
            "columns": [
                {
                    "id": 5,
                    "name": "s",
                    "fields": [{"id": 6, "name": "a", "type": "int"}, {"id": 7, "name": "a", "type": "int"}],
                }
            ],
        },
        {"id": 1, "max": 5, "columns": [{"id": 5, "name": "a", "fields": 7}]},
        {"id": 1, "max": 6, "columns": [{"id": 5, "name": "m", "value": {"id": 6, "name": "v", "type": "int"}}]},
        {"id": 1, "max": 5, "columns": 7},
    ],
    ids=lambda said: str(said)[-60:],
)
def test_json_that_is_no_schema_is_refused(said: Any) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        TableSchema.from_json(said)


# ---------------------------------------------------------------- by name, as other engines go

FIRST = TableSchema.first(
    pa.schema([("a", pa.int32()), ("b", pa.string()), ("s", pa.struct([("x", pa.int32()), ("y", pa.int32())]))])
)


def ids(schema: TableSchema) -> dict[str, int]:
    return {column.name: column.id for column in schema.columns}


def test_names_keep_their_ids_in_any_order_and_new_ones_get_new_ids() -> None:
    said = pa.schema([("new", pa.int32()), ("s", FIRST.arrow.field("s").type), ("a", pa.int64())])
    after = assign_column_ids(FIRST, said)
    assert ids(after) == {"new": FIRST.last + 1, "s": 7, "a": 5}
    assert after.arrow == said and (after.id, after.last) == (2, FIRST.last + 1)


def test_a_name_that_comes_back_has_its_old_id_as_engines_by_name_show_its_old_values() -> None:
    dropped = assign_column_ids(FIRST, pa.schema([("b", pa.string())]))
    back = assign_column_ids(dropped, pa.schema([("b", pa.string()), ("a", pa.int32())]), [dropped, FIRST])
    assert ids(back) == {"b": 6, "a": 5} and back.last == FIRST.last


def test_a_field_of_a_struct_that_comes_back_has_its_old_id() -> None:
    less = assign_column_ids(FIRST, pa.schema([("s", pa.struct([("y", pa.int32())]))]))
    back = assign_column_ids(less, FIRST.arrow, [less, FIRST])
    assert back.columns == FIRST.columns


def test_a_name_that_became_a_struct_is_another_column() -> None:
    after = assign_column_ids(FIRST, pa.schema([("a", pa.struct([("x", pa.int32())]))]), [FIRST])
    assert ids(after)["a"] == FIRST.last + 1 and after.by_name["a"].children[0].id == FIRST.last + 2


def test_a_column_that_is_gone_keeps_its_name_from_no_other_level() -> None:
    after = assign_column_ids(FIRST, pa.schema([("x", pa.int32()), ("s", pa.struct([("a", pa.int32())]))]), [FIRST])
    assert ids(after)["x"] > FIRST.last and after.by_name["s"].children[0].id > FIRST.last
