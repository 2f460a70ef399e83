"""Tables whose columns never changed are as they were; slots and checkpoints of earlier releases open; a table with a
thousand schemas opens as one with one.
"""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from slots import make_slot
from tiers import sized

import hoodoo
from hoodoo.format.avro.schema import create_avro_schema
from hoodoo.format.table_schema import TableSchema
from hoodoo.storage.store import digest
from hoodoo.timeline.layout import CHECKPOINTS, SLOTS
from hoodoo.timeline.properties import schema_history
from hoodoo.timeline.properties.schema_history import SchemaHistory
from hoodoo.timeline.slots.slot import Slot, encode_commit_file
from hoodoo.timeline.views import checkpoint
from hoodoo.timeline.views.view import View, apply

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("a", pa.int32(), nullable=False)])
WIDER = pa.schema([*SCHEMA, pa.field("n", pa.int32())])


def make(path: Path, **options: Any) -> hoodoo.Table:
    table = hoodoo.create(path, SCHEMA, key="id", compact_after_logs=None, clean_every=None, **options)
    table.upsert([{"id": 1, "a": 1}, {"id": 2, "a": 2}])
    table.upsert([{"id": 1, "a": 5}])
    return table


def test_slots_and_checkpoints_of_a_table_whose_columns_never_changed_say_nothing_new(tmp_path: Path) -> None:
    table = make(tmp_path / "t", checkpoint_every=2)
    table.compact()
    table.delete([{"id": 2}])
    table.maintenance.cluster()
    for path in (tmp_path / "t" / SLOTS).iterdir():
        said = json.loads(path.read_bytes())
        assert "columns" not in said.get("needs", ())
        assert not said.keys() & {"columns", "columns_before", "schema", "schema_before"}
        assert not any("schema" in file for file in said["files"])
    found = list((tmp_path / "t" / CHECKPOINTS).iterdir())
    assert found
    for path in found:
        whole = pq.read_table(pa.BufferReader(path.read_bytes()[:-32]))
        assert "schema" not in whole.column_names
        assert not json.loads(next(iter(whole.schema.metadata.values()))).keys() & {"columns", "schemas"}


def test_a_table_whose_columns_changed_is_refused_by_who_does_not_know_of_it(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    done = table.alter.add_column("n", pa.int32(), default=None)
    table.upsert([{"id": 3, "a": 3}])
    for seq in (done.cursor.seq, done.cursor.seq + 1):
        said = json.loads(encode_commit_file(table.handle.history.slot(seq)))
        assert said["v"] == 3 and "columns" in said["needs"]
    table.alter.move_column("n", first=True)
    assert table.handle.history.head().needs == {"columns", "order"}


def avro(schema: pa.Schema) -> str:
    return json.dumps(create_avro_schema("t", schema, False))


def foreign(view: View, schema: str, before: str = "") -> Slot:
    """Another engine's commit as an earlier release described it."""
    return make_slot(
        view.seq + 1,
        table=view.table,
        instant=str(view.seq),
        completed_at=view.completed_at + 1,
        schema=schema,
        schema_before=before,
    )


def test_columns_that_an_earlier_release_kept_as_avro_get_ids_and_take_no_null_as_before(tmp_path: Path) -> None:
    """Avro text says of no column that it takes no null: the columns of such a table took some."""
    table = make(tmp_path / "t")
    view = table.handle.history.head()
    after = apply(view, foreign(view, avro(WIDER), avro(SCHEMA)), "")
    config = table.handle.config.with_schemas(after.schemas)
    assert config.schema == pa.schema([(f.name, f.type) for f in WIDER]) and config.not_null == ("a",)
    assert config.columns.by_name["n"].id == 7 and config.columns.id == 2
    assert after.schemas.up_to(view.seq).newest == TableSchema.first(config.created.arrow)
    third = apply(after, foreign(after, avro(SCHEMA)), "")
    fourth = apply(third, foreign(third, avro(WIDER)), "")
    newest = fourth.schemas.newest
    assert newest is not None and (newest.id, newest.by_name["n"].id) == (4, 7)  # engines by name show its old values


def test_a_checkpoint_with_avro_text_opens_with_the_same_ids_as_the_slots(tmp_path: Path) -> None:
    view = make(tmp_path / "t").handle.history.head()
    data = checkpoint.encode(view)[:-32]
    whole = pq.read_table(pa.BufferReader(data))
    [(name, state)] = whole.schema.metadata.items()
    old = {**json.loads(state), "schemas": [[0, avro(SCHEMA)], [2, avro(WIDER)], [3, avro(SCHEMA)]]}
    sink = pa.BufferOutputStream()
    pq.write_table(whole.replace_schema_metadata({name: json.dumps(old).encode()}), sink)
    body = sink.getvalue().to_pybytes()
    found = checkpoint.decode(body + digest(body).encode(), "x").schemas
    want = (
        SchemaHistory()
        .add_schema_without_ids(2, avro(WIDER), avro(SCHEMA))
        .add_schema_without_ids(3, avro(SCHEMA), avro(WIDER))
    )
    assert found == want and [entry[:2] for entry in found.entries] == [(0, 1), (2, 2), (3, 3)]
    again = checkpoint.decode(checkpoint.encode(View(seq=4, schemas=found)), "y")
    assert again.schemas == found


@pytest.mark.parametrize("damage", ["text", "AAAA", "bnVsbA==", base64.b64encode(zlib.compress(b"{}")).decode()])
def test_schemas_that_cannot_be_unpacked_are_damage(damage: str) -> None:
    with pytest.raises(hoodoo.CorruptTable, match="Delete"):
        _ = SchemaHistory((), damage).entries


def of_schemas(count: int) -> View:
    columns = TableSchema.first(pa.schema([(f"c{n}", pa.int64()) for n in range(30)]))
    history = SchemaHistory()
    for seq in range(1, count):
        before = columns.to_json() if seq == 1 else {}
        columns = columns.with_columns((*columns.columns[1:], columns.columns[0]))
        history = history.after(seq, columns.to_json(), before)
    return View(seq=count, schemas=history, needs=frozenset({"columns"}))


def test_a_table_with_a_thousand_schemas_opens_with_as_little_parsing_as_one_with_two() -> None:
    work = {}
    for count in (2, 1000):
        data = checkpoint.encode(of_schemas(count))
        schema_history._parsed.cache_clear()
        view = checkpoint.decode(data, "x")
        assert len(view.schemas.entries) == count and view.schemas.newest is not None
        assert view.schemas.newest.id == count
        work[count] = schema_history._parsed.cache_info().misses, len(data)
    assert work[2][0] == work[1000][0] == 1
    assert work[1000][1] < 100 * 1000  # bytes a schema


@pytest.mark.both
def test_a_table_that_was_changed_many_times_reads_right_and_opens_by_parsing_few_schemas(tmp_path: Path) -> None:
    changes = sized(30, 1000)
    table = make(tmp_path / "t", type="copy_on_write", checkpoint_every=5)
    for number in range(changes):
        if number % 3 == 0:
            table.alter.add_column(f"n{number}", pa.int32(), default=number)
        elif number % 3 == 1:
            table.alter.move_column(f"n{number - 1}", first=True)
        else:
            table.alter.drop_column(f"n{number - 2}")
    table.upsert([{"id": 3, "a": 3}])
    schema_history._parsed.cache_clear()
    again = hoodoo.open(table.path)
    want = [{"id": 1, "a": 5}, {"id": 2, "a": 2}, {"id": 3, "a": 3}]
    names = ["id", "a"]
    assert again.scan(columns=names).to_arrow().sort_by("id").to_pylist() == want
    assert schema_history._parsed.cache_info().misses <= 8
    assert len(again.inspect.schemas()) == changes + 1
    assert again.inspect.schema_at(hoodoo.Cursor(again.cursor.table, 3)).names == ["id", "a"]
    assert again.verify().problems == []
