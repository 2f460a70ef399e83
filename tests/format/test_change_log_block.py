"""Change logs: fastavro as second opinion for every type and mode, the frames Hudi expects, and damage."""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hudi_blocks import blocks, change_records

from hoodoo.errors import CorruptTable, UnsupportedTable
from hoodoo.format.log import change_log_block
from hoodoo.format.log.block import encode_change_block, encode_log
from hoodoo.format.names import META_COLUMNS, change_log_name, is_change_log_path

UTC = dt.timezone.utc
INSTANT = "20260307162604102"
MODES = [change_log_block.DATA_BEFORE_AFTER, change_log_block.DATA_BEFORE, change_log_block.OP_KEY_ONLY]
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("bool", pa.bool_()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("raw", pa.binary()),
        ("list", pa.list_(pa.int64())),
        ("map", pa.map_(pa.string(), pa.int32())),
        ("place", pa.struct([("x", pa.float64()), ("in", pa.struct([("y", pa.int32()), ("d", pa.decimal128(5, 1))]))])),
    ]
)
FLAT = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("in", pa.struct([("a", pa.int64()), ("b", pa.string())]))])


def row(n: int) -> dict[str, Any]:
    values: dict[str, Any] = {
        "bool": n % 2 == 0,
        "i32": -n,
        "i64": n << 40,
        "f32": n / 2,
        "f64": n / 3,
        "price": Decimal(n) / 4,
        "day": dt.date(2026, 1, 1 + n % 28),
        "at": dt.datetime(2026, 1, 2, 3, 4, 5, n, UTC),
        "raw": bytes([n % 256, 0]),
        "list": [n, None] * (n % 3),
        "map": {"k": n, "none": None},
        "place": {"x": None, "in": {"y": n, "d": Decimal("-0.5")}} if n % 3 else {"x": 1.0, "in": None},
    }
    return {"id": f"k{n}"} | {
        name: None if (n + place) % 5 == 0 else value for place, (name, value) in enumerate(values.items())
    }


def table_of(mode: str, changes: list[tuple[str, Any, Any]], schema: pa.Schema = SCHEMA) -> pa.Table:
    """changes: (op, before, after)."""
    image = pa.struct(list(schema))
    kinds = {"op": pa.string(), "record_key": pa.string(), "before": image, "after": image}
    known = {
        "op": [op for op, _, _ in changes],
        "record_key": [(after or before)["id"] for _, before, after in changes],
        "before": [before for _, before, _ in changes],
        "after": [after for _, _, after in changes],
    }
    return pa.table({name: pa.array(known[name], kinds[name]) for name in change_log_block.columns_of(mode)})


def some(count: int) -> list[tuple[str, Any, Any]]:
    return [("iud"[n % 3], None if n % 3 == 0 else row(n), None if n % 3 == 2 else row(n + 1)) for n in range(count)]


def encoded(mode: str, changes: pa.Table, schema: pa.Schema = SCHEMA) -> bytes:
    return b"".join(change_log_block.encode_changes(INSTANT, "t", schema, mode, changes))


def flat(n: int) -> dict[str, Any]:
    return {"id": f"k{n}", "ts": n, "in": {"a": -n, "b": "x"} if n % 2 else None}


def flat_changes(count: int) -> list[tuple[str, Any, Any]]:
    return [("iud"[n % 3], None if n % 3 == 0 else flat(n), None if n % 3 == 2 else flat(n + 1)) for n in range(count)]


def written_by_fastavro(schema: str, records: list[dict[str, Any]]) -> bytes:
    parsed, content = fastavro.parse_schema(json.loads(schema)), b""
    for record in records:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, record)
        content += struct.pack(">i", len(stream.getvalue())) + stream.getvalue()
    return b"".join(encode_change_block(INSTANT, schema, len(records), content))


@pytest.mark.parametrize("mode", MODES)
def test_fastavro_reads_the_changes_that_were_written_of_every_type(mode: str) -> None:
    changes = some(60)
    records = change_records(encoded(mode, table_of(mode, changes)))
    for record, (op, before, after) in zip(records, changes, strict=True):
        known = {"op": op, "ts_ms": INSTANT, "record_key": (after or before)["id"], "before": before, "after": after}
        assert record == {name: known[name] for name in record}
    fields = {
        change_log_block.DATA_BEFORE_AFTER: ["op", "ts_ms", "before", "after"],
        change_log_block.DATA_BEFORE: ["op", "record_key", "before"],
    }
    assert list(records[0]) == fields.get(mode, ["op", "record_key"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [0, 1, 200])
def test_changes_of_every_type_come_back_as_they_were(mode: str, count: int) -> None:
    changes = table_of(mode, some(count))
    (block,) = change_log_block.decode_changes(encoded(mode, changes))
    assert (block.instant, block.mode) == (INSTANT, mode)
    assert block.rows.schema == changes.schema
    assert block.rows.to_pylist() == changes.to_pylist()
    block.rows.validate(full=True)


@pytest.mark.parametrize("mode", MODES)
def test_another_avro_writer_makes_the_same_bytes_of_the_same_changes(mode: str) -> None:
    changes = table_of(mode, flat_changes(9), FLAT)
    records = [{"ts_ms": INSTANT} | one for one in changes.to_pylist()]
    data = written_by_fastavro(change_log_block.change_log_schema("t", FLAT, mode), records)
    assert data == encoded(mode, changes, FLAT)


def test_the_records_are_named_as_hudi_names_them() -> None:
    both = json.loads(change_log_block.change_log_schema("t", FLAT, change_log_block.DATA_BEFORE_AFTER))
    keys = json.loads(change_log_block.change_log_schema("t", FLAT, change_log_block.OP_KEY_ONLY))
    assert (both["name"], both["namespace"], keys["name"]) == ("CDC", "hoodie.t", "Record")
    before, after = both["fields"][2:]
    assert (before["type"][1]["name"], after["type"][1]) == ("t_record", "hoodie.t.t_record")
    assert [field["name"] for field in before["type"][1]["fields"]] == FLAT.names  # no meta columns


def test_many_changes_become_several_blocks_none_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log_block, "BLOCK_MAX", 2000)
    changes = table_of(change_log_block.DATA_BEFORE_AFTER, flat_changes(300), FLAT)
    data = encoded(change_log_block.DATA_BEFORE_AFTER, changes, FLAT)
    found = list(blocks(data))
    assert len(found) > 3
    assert max(len(content) for _, _, content in found) <= 2008
    assert (
        pa.concat_tables([block.rows for block in change_log_block.decode_changes(data)]).to_pylist()
        == changes.to_pylist()
    )
    assert len(change_records(data)) == 300


def test_a_log_without_changes_is_one_block_without_records() -> None:
    for mode in MODES:
        ((kind, header, content),) = blocks(encoded(mode, table_of(mode, [])))
        assert (kind, content, header[0]) == (6, bytes.fromhex("00000003 00000000"), INSTANT)


def test_images_without_lists_and_maps_are_read_without_a_call_per_row(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = table_of(change_log_block.DATA_BEFORE_AFTER, flat_changes(90), FLAT)
    data = encoded(change_log_block.DATA_BEFORE_AFTER, changes, FLAT)
    monkeypatch.setattr(fastavro, "schemaless_reader", None)
    (block,) = change_log_block.decode_changes(data)
    assert block.rows.to_pylist() == changes.to_pylist()


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize("mode", MODES)
def test_a_log_that_is_cut_short_or_changed_is_corrupt_or_reads_as_changes(mode: str) -> None:
    data = encoded(mode, table_of(mode, flat_changes(6), FLAT), FLAT)
    for end in range(1, len(data)):
        with pytest.raises(CorruptTable):
            list(change_log_block.decode_changes(data[:end]))
    rng = np.random.default_rng(1)
    for at in rng.integers(0, len(data), 400).tolist():
        hurt = bytearray(data)
        hurt[at] ^= 1 << int(rng.integers(0, 8))
        try:
            for block in change_log_block.decode_changes(bytes(hurt)):
                block.rows.validate(full=True)
        except (CorruptTable, UnsupportedTable):
            continue


@pytest.mark.parametrize(
    "wrong",
    [
        ("x", flat(1), flat(1)),
        (None, flat(1), flat(1)),
        ("i", flat(1), flat(1)),
        ("u", None, flat(1)),
        ("d", flat(1), flat(1)),
        ("u", flat(1), None),
    ],
    ids=[
        "no such operation",
        "no operation",
        "insert over a row",
        "update of nothing",
        "delete with a row after",
        "update to nothing",
    ],
)
def test_a_change_that_cannot_be_is_corrupt(wrong: tuple[Any, Any, Any]) -> None:
    changes = table_of(change_log_block.DATA_BEFORE_AFTER, [*flat_changes(3), wrong], FLAT)
    with pytest.raises(CorruptTable, match=INSTANT):
        list(change_log_block.decode_changes(encoded(change_log_block.DATA_BEFORE_AFTER, changes, FLAT)))


def test_a_change_without_its_key_is_corrupt() -> None:
    changes = pa.table({"op": ["d"], "record_key": pa.array([None], pa.string())})
    with pytest.raises(CorruptTable, match="without a row image or a key"):
        list(change_log_block.decode_changes(encoded(change_log_block.OP_KEY_ONLY, changes)))


def test_blocks_that_are_no_change_data_and_fields_of_no_mode_are_refused() -> None:
    schema = pa.schema([*[(name, pa.string()) for name in META_COLUMNS], *FLAT])
    with pytest.raises(CorruptTable, match="block of type 3"):
        list(
            change_log_block.decode_changes(
                encode_log(INSTANT, "t", schema, pa.Table.from_pylist([{name: "x" for name in META_COLUMNS}], schema))
            )
        )
    other = {
        "type": "record",
        "name": "CDC",
        "fields": [{"name": "op", "type": ["null", "string"]}, {"name": "more", "type": ["null", "string"]}],
    }
    with pytest.raises(UnsupportedTable, match="op, more"):
        list(change_log_block.decode_changes(written_by_fastavro(json.dumps(other), [{"op": "i", "more": ""}])))


# ---------------------------------------------------------------- names and properties


def test_the_name_of_a_change_log_says_what_it_is() -> None:
    name = change_log_name("3e93c8a9-fda0-4e8a-91dc-b4ade7dab76d-0", INSTANT)
    assert name == f".3e93c8a9-fda0-4e8a-91dc-b4ade7dab76d-0_{INSTANT}.log.1_0-0-0.cdc"
    assert is_change_log_path(f"p=1/{name}")
    assert not is_change_log_path(name.removesuffix(".cdc"))


def test_properties_say_whether_and_how_changes_are_logged() -> None:
    mode = "hoodie.table.cdc.supplemental.logging.mode"
    assert (
        change_log_block.change_log_mode({})
        == change_log_block.change_log_mode({"hoodie.table.cdc.enabled": "false", mode: "DATA_BEFORE"})
        == ""
    )
    assert change_log_block.change_log_mode({"hoodie.table.cdc.enabled": "true"}) == "DATA_BEFORE_AFTER"
    assert change_log_block.change_log_mode({"hoodie.table.cdc.enabled": "TRUE", mode: "op_key_only"}) == "OP_KEY_ONLY"
    with pytest.raises(UnsupportedTable, match="DATA_AFTER"):
        change_log_block.change_log_mode({"hoodie.table.cdc.enabled": "true", mode: "DATA_AFTER"})
