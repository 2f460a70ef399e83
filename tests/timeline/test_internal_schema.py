"""Hudi's internal schema, as commits of Apache Hudi 1.2.0 carry it: ids by path, and what they say of columns that were
renamed, dropped and added again.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from slots import make_slot

from hoodoo.errors import UnsupportedTable
from hoodoo.format.avro.schema import create_avro_schema
from hoodoo.format.table_schema import TableSchema, assign_column_ids
from hoodoo.timeline.hudi.external_columns import ExternalColumnHistory
from hoodoo.timeline.hudi.internal_schema import apply_hudi_schema, assign_hudi_column_ids, ids_by_path
from hoodoo.timeline.slots.slot import DataFile, Slot
from hoodoo.timeline.views.view import View, apply

META = ",".join(
    f'{{"id":{n},"name":"{name}","optional":true,"type":"string","doc":""}}'
    for n, name in enumerate(
        (
            "_hoodie_commit_time",
            "_hoodie_commit_seqno",
            "_hoodie_record_key",
            "_hoodie_partition_path",
            "_hoodie_file_name",
        )
    )
)
CREATED = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("l", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())]))),
        ("m", pa.map_(pa.string(), pa.struct([("v", pa.int32())]))),
        ("dt", pa.date32()),
        ("d", pa.decimal128(10, 2)),
    ]
)
# what an ALTER TABLE wrote that renamed m.value.v, after others that added w and l.element.z
ALTERED = (
    '{"max_column_id":18,"version_id":20261122185240680,"type":"record","fields":['
    + META
    + ',{"id":5,"name":"id","optional":true,"type":"string"},{"id":6,"name":"ts","optional":true,"type":"long"},'
    '{"id":7,"name":"l","optional":true,"type":{"type":"array","element_id":11,"element":{"type":"record","fields":['
    '{"id":12,"name":"x","optional":true,"type":"int"},{"id":13,"name":"y","optional":true,"type":"string"},'
    '{"id":18,"name":"z","optional":true,"type":"int"}]},"element_optional":true}},'
    '{"id":8,"name":"m","optional":true,"type":{"type":"map","key_id":14,"key":"string","value_id":15,"value":'
    '{"type":"record","fields":[{"id":16,"name":"vv","optional":true,"type":"int"}]},"value_optional":true}},'
    '{"id":9,"name":"dt","optional":true,"type":"date"},'
    '{"id":10,"name":"d","optional":true,"type":"decimal_fixed(10, 2)[5]"},'
    '{"id":17,"name":"w","optional":true,"type":"int"}]}'
)


def flat(*columns: str) -> pa.Schema:
    return pa.schema([(name, pa.int32()) for name in columns])


def said(**ids: int) -> dict[tuple[str, ...], int]:
    return {(name,): number for name, number in ids.items()}


def ids_of(schema: TableSchema) -> dict[str, int]:
    return {column.name: column.id for column in schema.columns}


def test_ids_stand_by_the_path_of_each_column_and_meta_columns_have_none() -> None:
    assert ids_by_path(ALTERED) == {
        ("id",): 5,
        ("ts",): 6,
        ("l",): 7,
        ("l", "item"): 11,
        ("l", "item", "x"): 12,
        ("l", "item", "y"): 13,
        ("l", "item", "z"): 18,
        ("m",): 8,
        ("m", "key"): 14,
        ("m", "value"): 15,
        ("m", "value", "vv"): 16,
        ("dt",): 9,
        ("d",): 10,
        ("w",): 17,
    }


def test_hudi_numbers_a_table_to_the_bottom_of_one_column_before_the_next() -> None:
    """Ours are numbered level by level; taken for Hudi's, the field of the map would have been another column."""
    theirs = {number for _, number in assign_hudi_column_ids(TableSchema.first(CREATED))}
    assert theirs == set(range(5, 17))
    schema = TableSchema.first(CREATED)
    pairs = dict(assign_hudi_column_ids(schema))
    named = {schema.parent_and_name[own][1]: number for own, number in pairs.items()}
    assert [named[name] for name in ("x", "y", "v")] == [12, 13, 16]


def test_a_field_that_was_renamed_keeps_its_id_at_any_depth_and_a_new_one_gets_the_next() -> None:
    before = TableSchema.first(CREATED)
    now = CREATED.set(2, pa.field("l", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string()), ("z", pa.int32())]))))
    now = now.set(3, pa.field("m", pa.map_(pa.string(), pa.struct([("vv", pa.int32())])))).append(
        pa.field("w", pa.int32())
    )
    after = apply_hudi_schema(before, now, ids_by_path(ALTERED))
    assert after.arrow == now
    fields = {before.parent_and_name[number][1]: number for number in before.by_id}
    assert {after.parent_and_name[number][1]: number for number in after.by_id}["vv"] == fields["v"]
    assert sorted(after.by_id.keys() - before.by_id.keys()) == [before.last + 1, before.last + 2]


def test_names_that_were_swapped_are_two_columns_that_stay_what_they_are() -> None:
    before = TableSchema.first(flat("a", "b"))
    assert ids_of(apply_hudi_schema(before, flat("b", "a"), said(b=5, a=6))) == {"b": 5, "a": 6}


def test_a_name_that_was_dropped_and_added_is_another_column() -> None:
    before = TableSchema.first(flat("a", "b"))
    dropped = apply_hudi_schema(before, flat("b"), said(b=6))
    added = apply_hudi_schema(dropped, flat("b", "a"), said(b=6, a=7))
    assert ids_of(added) == {"b": 6, "a": 7}


def test_hudis_ids_are_known_again_after_a_commit_without_them_and_survive_json() -> None:
    """A writer without the flag drops the internal schema; the next ALTER numbers the columns as they stand."""
    first = apply_hudi_schema(TableSchema.first(flat("a", "b", "c")), flat("b", "c"), said(b=6, c=7))
    by_name = assign_column_ids(first, flat("b", "c"))
    assert TableSchema.from_json(json.loads(json.dumps(by_name.to_json()))).hudi == ()
    again = apply_hudi_schema(by_name, flat("bb", "c"), said(bb=5, c=6))
    assert ids_of(again) == {"bb": 6, "c": 7}
    assert TableSchema.from_json(json.loads(json.dumps(again.to_json()))) == again


def test_a_name_that_comes_back_is_not_the_column_that_was_renamed_from_it() -> None:
    """b was renamed to bb; then Spark added a column b. It got the id of bb, so that the table had one id twice and
    could not be opened any more.
    """
    born = TableSchema.first(flat("a", "b"))
    renamed = apply_hudi_schema(born, flat("a", "bb"), said(a=5, bb=6))
    after = assign_column_ids(renamed, flat("a", "bb", "b"), [renamed, born])
    assert ids_of(after) == {"a": 5, "bb": 6, "b": 7}


def commit(seq: int, instant: str, action: str = "commit", operation: str = "UPSERT") -> Slot:
    path = f"f{seq}-0_0-0-0_{instant}.parquet"
    files = (DataFile(path, "", f"f{seq}-0", "base", 1, "", 1),) if action == "commit" else ()
    return make_slot(seq, operation=operation, files=files, instant=instant, action=action)


def record(schema: pa.Schema) -> dict[str, Any]:
    return {"extraMetadata": {"schema": json.dumps(create_avro_schema("t", schema, meta=False))}}


def test_a_change_by_a_commit_that_began_before_a_clean_counts() -> None:
    """What said the columns last was taken to be the newest slot, a clean, too: a column that Spark added meanwhile was
    missing until its next commit.
    """
    view = apply(
        apply(View(), commit(1, "20260101000000000"), ""), commit(2, "20260101000000009", "clean", "CLEAN"), ""
    )
    columns = ExternalColumnHistory(TableSchema.first(flat("a")), view)
    slot = columns.add_commit(commit(3, "20260101000000005"), record(flat("a", "n")))
    assert columns.now and columns.now.arrow == flat("a", "n")
    assert (slot.columns["id"], slot.files[0].schema) == (2, 2)


def test_a_commit_that_overlapped_a_change_counts_no_more_and_its_files_have_the_columns_that_it_knew() -> None:
    """Its files were taken to have the columns of now: an int was looked for in a file that has text."""
    columns = ExternalColumnHistory(TableSchema.first(flat("a")), View())
    columns.add_commit(commit(1, "20260101000000009"), record(pa.schema([("a", pa.string())])))
    slot = columns.add_commit(commit(2, "20260101000000005"), record(flat("a")))
    assert columns.now and columns.now.arrow == pa.schema([("a", pa.string())])
    assert (slot.columns, slot.files[0].schema) == ({}, 0)
    assert columns.add_commit(commit(3, "20260101000000010"), record(columns.now.arrow)).files[0].schema == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"fields": 3}',
        '{"fields": [{"id": "5", "name": "a", "type": "int"}]}',
        '{"fields": [{"id": 5, "name": "a", "type": {"type": "union"}}]}',
        '{"fields": [{"id": 5, "name": "a", "type": "int"}, {"id": 5, "name": "b", "type": "int"}]}',
        '{"fields": ' + "[" * 100_000,
    ],
)
def test_what_is_no_internal_schema_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedTable, match="latest_schema"):
        ids_by_path(text)
