"""Log files: Hudi's own bytes from the format description, fastavro as second opinion, and damage of every kind."""

import io
import json
import struct

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hudi_blocks import blocks
from log_blocks import COLUMNS, INSTANT, SCHEMA, deletes, framed, parquet, rows

from hoodoo.errors import (
    ColumnError,
    SchemaError,
)
from hoodoo.format.avro.schema import avro_text
from hoodoo.format.log import block as log_block
from hoodoo.format.log.block import (
    DataBlock,
    DeleteBlock,
    RollbackBlock,
    decode_log,
    decode_logs,
    encode_log,
)
from hoodoo.format.names import META_COLUMNS

# ---------------------------------------------------------------- real bytes

SCHEMA_TEXT = "{" + "s" * 1707 + "}"
FILE_ID = "3e93c8a9-fda0-4e8a-91dc-b4ade7dab76d-0"


def test_the_frame_of_a_real_update_is_reproduced():
    content = struct.pack(">iii", 3, 1, 235) + b"\x02\x22" + INSTANT.encode() + b"r" * 216
    data = framed(3, {2: SCHEMA_TEXT, 0: INSTANT}, content)
    assert len(data) == 2035
    assert data[:34].hex(" ", 4) == (
        b"#HUDI#" + bytes.fromhex("00000000000007e5 00000001 00000003 00000002 00000002 000006ad")
    ).hex(" ", 4)
    assert data[1743:1751] == bytes.fromhex("00000000 00000011")
    assert data[1751:1768] == INSTANT.encode()
    assert data[1768:1788] == bytes.fromhex("00000000000000f7 00000003 00000001 000000eb")
    assert data[2023:] == bytes.fromhex("00000000 00000000000007eb")


def test_the_meta_columns_of_a_real_update_are_reproduced():
    one = pa.table(
        [[INSTANT], [f"{INSTANT}_0_1"], ["TXN-001"], ["region=us"], [FILE_ID], ["x"], [None], [None]], schema=SCHEMA
    )
    ((_, header, content),) = blocks(encode_log(INSTANT, "t", SCHEMA, one))
    parts = [
        b"\x22" + INSTANT.encode(),
        b"\x2a" + f"{INSTANT}_0_1".encode(),
        b"\x0eTXN-001",
        b"\x12region=us",
        b"\x4c" + FILE_ID.encode(),
    ]
    assert content[12:].startswith(b"".join(b"\x02" + part for part in parts))
    assert content[:12] == struct.pack(">iii", 3, 1, len(content) - 12)
    assert header == {2: avro_text("t", COLUMNS, meta=True), 0: INSTANT}


def test_a_real_delete_block_is_reproduced():
    block = DeleteBlock("", pa.array(["TXN-002"]), pa.array(["region=us"]))
    ((kind, header, content),) = blocks(encode_log("20260307162606034", "t", SCHEMA, None, [block]))
    assert kind == 1
    assert header[0] == "20260307162606034"
    assert content == bytes.fromhex("00000003 00000018 02 02 0e") + b"TXN-002" + b"\x02\x12region=us" + bytes.fromhex(
        "04 00 00"
    )
    whole = framed(1, {2: SCHEMA_TEXT, 0: "20260307162606034"}, content)
    assert whole[1776:1784] == bytes.fromhex("00000003 00000018")
    assert whole[-12:] == bytes.fromhex("00000000 0000000000000714")


def test_a_real_rollback_command_is_read():
    data = (
        b"#HUDI#"
        + bytes.fromhex("000000000000005b 00000001 00000000 00000003 00000000 00000011")
        + b"20250126040936578"
        + bytes.fromhex("00000003 00000001 30 00000001 00000011")
        + b"20250126040826878"
        + bytes.fromhex("0000000000000000 00000000 0000000000000061")
    )
    assert len(data) == 105
    assert decode_log(data) == [RollbackBlock("20250126040936578", "20250126040826878")]
    assert framed(0, {0: "20250126040936578", 3: "0", 1: "20250126040826878"}, b"") == data


# ---------------------------------------------------------------- round trips and the second opinion


def test_rows_and_deletes_come_back_in_their_order():
    first, second, third = decode_log(
        encode_log(INSTANT, "t", SCHEMA, rows(10), [deletes(["a", "é"]), deletes(["b"], pa.array([7], pa.int64()))])
    )
    assert isinstance(first, DataBlock)
    assert (first.instant, first.partial) == (INSTANT, False)
    assert first.rows.equals(rows(10))
    assert (second.keys.to_pylist(), second.partitions.to_pylist(), second.ordering) == (
        ["a", "é"],
        ["p=1", "p=1"],
        (),
    )
    assert (third.keys.to_pylist(), third.ordering) == (["b"], (pa.array([7], pa.int64()),))
    assert third.instant == INSTANT


def test_several_logs_decoded_together_hold_what_each_holds_alone_and_in_the_same_order(monkeypatch):
    """Rows that follow each other come as one block; what lies between deletes, is large, or has another schema keeps
    its place.
    """
    other = pa.schema([*SCHEMA, ("more", pa.int64())])
    wider = rows(7).append_column("more", pa.array(range(7), pa.int64()))
    monkeypatch.setattr(log_block, "_SMALL", len(encode_log(INSTANT, "t", SCHEMA, rows(60))))
    logs = [
        encode_log(INSTANT, "t", SCHEMA, rows(3)),
        encode_log(INSTANT, "t", SCHEMA, rows(4)),
        encode_log(INSTANT, "t", SCHEMA, None, [deletes(["k1"])]),
        encode_log(INSTANT, "t", SCHEMA, rows(5), [deletes(["k2"])]),
        encode_log(INSTANT, "t", SCHEMA, rows(200)),
        encode_log(INSTANT, "t", SCHEMA, rows(1)),
        encode_log(INSTANT, "t", other, wider),
        encode_log(INSTANT, "t", SCHEMA, rows(2)),
        encode_log(INSTANT, "t", SCHEMA, rows(6)),
    ]
    alone = [block for log in logs for block in decode_log(log)]
    together = decode_logs(logs)
    assert [len(block.rows) if isinstance(block, DataBlock) else block.keys.to_pylist() for block in together] == [
        7,
        ["k1"],
        5,
        ["k2"],
        200,
        1,
        7,
        8,
    ]

    def rows_of(blocks):
        return [
            row
            for block in blocks
            for row in (block.rows.to_pylist() if isinstance(block, DataBlock) else block.keys.to_pylist())
        ]

    assert rows_of(together) == rows_of(alone)


def test_a_file_without_rows_or_deletes_has_no_such_block():
    assert encode_log(INSTANT, "t", SCHEMA, None) == b""
    assert encode_log(INSTANT, "t", SCHEMA, rows(0), [deletes([])]) == b""
    assert [type(b) for b in decode_log(encode_log(INSTANT, "t", SCHEMA, rows(1)))] == [DataBlock]
    assert decode_log(b"") == []


def test_only_the_columns_asked_for_are_read():
    data = encode_log(INSTANT, "t", SCHEMA, rows(5))
    (block,) = decode_log(memoryview(data), columns=["ts", "_hoodie_record_key", "new_column"])
    assert block.rows.equals(rows(5).select(["ts", "_hoodie_record_key"]))


def test_fastavro_reads_the_rows():
    table = rows(20)
    ((_, header, content),) = blocks(encode_log(INSTANT, "t", SCHEMA, table))
    parsed, at, found = fastavro.parse_schema(json.loads(header[2])), 8, []
    for _ in range(20):
        (size,) = struct.unpack_from(">i", content, at)
        found.append(fastavro.schemaless_reader(io.BytesIO(content[at + 4 : at + 4 + size]), parsed, None))
        at += 4 + size
    assert found == table.to_pylist()


def test_a_schema_without_the_meta_columns_is_refused():
    with pytest.raises(SchemaError):
        encode_log(INSTANT, "t", COLUMNS, None)


def test_chunked_and_sliced_deletes_are_the_same_deletes():
    plain = deletes(["a", "b", "c", "d"], pa.array([1, 2, 3, 4], pa.int64()))
    keys = pa.chunked_array([pa.array(["x", "a", "b"]).slice(1), ["c", "d"]])
    other = DeleteBlock(
        INSTANT,
        keys,
        plain.partitions.dictionary_encode(),
        (pa.chunked_array([pa.array([0, 1], pa.int64()).slice(1), [2, 3, 4]]),),
    )
    assert encode_log(INSTANT, "t", SCHEMA, None, [plain]) == encode_log(INSTANT, "t", SCHEMA, None, [other])


def test_no_block_outgrows_the_limit(monkeypatch):
    monkeypatch.setattr(log_block, "BLOCK_MAX", 1000)
    monkeypatch.setattr("hoodoo.format.log.delete._ROWS", 70)
    keys = [f"key-{i}" for i in range(200)]
    data = encode_log(INSTANT, "t", SCHEMA, rows(100), [deletes(keys, pa.array(range(200), pa.int64()))])
    assert all(len(content) <= 1000 + 20 for _, _, content in blocks(data))
    found = decode_log(data)
    assert pa.concat_tables([b.rows for b in found if isinstance(b, DataBlock)]).equals(rows(100))
    assert [k for b in found if isinstance(b, DeleteBlock) for k in b.keys.to_pylist()] == keys
    assert [v for b in found if isinstance(b, DeleteBlock) for v in b.ordering[0].to_pylist()] == list(range(200))
    monkeypatch.setattr(log_block, "BLOCK_MAX", 10)
    assert sum(len(b.rows) for b in decode_log(encode_log(INSTANT, "t", SCHEMA, rows(7)))) == 7


# ---------------------------------------------------------------- blocks that only others write


def test_a_row_that_no_reader_would_take_is_not_written(monkeypatch):
    """A row of more than 1 GiB was acknowledged, and its block refused by every read as longer than may be read."""
    monkeypatch.setattr(log_block, "BLOCK_READ_MAX", 1000)
    wide = rows(3).set_column(5, "id", pa.array(["a", "b" * 1000, "c"]))
    with pytest.raises(ColumnError, match="at most 1000 bytes, got 1[0-9]{3}"):
        encode_log(INSTANT, "t", SCHEMA, wide)
    assert encode_log(INSTANT, "t", SCHEMA, rows(3))


def test_a_parquet_block_is_read_under_its_schema():
    table = rows(9)
    older = table.set_column(6, "ts", table["ts"].cast(pa.int32())).drop_columns("id")
    data = framed(5, {0: INSTANT, 2: avro_text("t", COLUMNS, True)}, parquet(older))
    (block,) = decode_log(data)
    assert block.rows.equals(table.drop_columns("id"))
    (block,) = decode_log(data, columns=["ts", "id", "_hoodie_record_key"])
    assert block.rows.equals(table.select(["ts", "_hoodie_record_key"]))


def test_partial_updates_are_marked():
    ((_, header, content),) = blocks(encode_log(INSTANT, "t", SCHEMA, rows(2)))
    (block,) = decode_log(framed(3, header | {7: "true"}, content))
    assert block.partial


def test_change_data_is_left_out():
    assert [
        type(b) for b in decode_log(framed(6, {0: INSTANT}, b"whatever") + encode_log(INSTANT, "t", SCHEMA, rows(1)))
    ] == [DataBlock]


def test_a_partial_block_has_the_meta_columns_and_those_that_it_sets():
    schema = pa.schema(
        [
            *(pa.field(name, pa.string()) for name in META_COLUMNS),
            ("id", pa.string()),
            ("n", pa.int64()),
            ("v", pa.float64()),
        ]
    )
    meta = {name: [f"{name} {row}" for row in range(40)] for name in META_COLUMNS}
    rows = pa.table(
        meta | {"v": [row / 2 for row in range(40)]}, schema=pa.schema([*list(schema)[:5], schema.field("v")])
    )
    at = np.arange(40)
    for in_parquet, kind in ((False, 3), (True, 5)):
        some = DataBlock("20260101000000000", rows, True, at)
        data = encode_log("20260101000000000", "t", schema, None, (), None, "20250101000000000", in_parquet, [some])
        (frame,) = log_block._frames(memoryview(data), True)
        assert (frame.kind, frame.header[7], frame.header[8]) == (kind, "true", "20250101000000000")
        fields = json.loads(frame.header[2])["fields"]
        assert [field["name"] for field in fields] == [*META_COLUMNS, "v"]
        assert fields[-1] == {"name": "v", "type": ["null", "double"], "default": None}
        (read,) = decode_log(data, positions=True)
        assert isinstance(read, DataBlock) and read.partial and read.rows.to_pylist() == rows.to_pylist()
        assert read.positions is not None and read.positions.tolist() == at.tolist()
        (narrow,) = decode_log(data, ["n", "_hoodie_record_key"])
        assert isinstance(narrow, DataBlock) and narrow.rows.schema.names == ["_hoodie_record_key"]
