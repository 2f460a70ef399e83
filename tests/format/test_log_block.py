"""Log files: Hudi's own bytes from the format description, fastavro as second opinion, and damage of every kind."""

import datetime as dt
import decimal
import io
import json
import struct

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hudi_blocks import blocks

from hoodoo.errors import (
    ColumnError,
    CorruptTable,
    HoodooError,
    KeyValueError,
    OrderingError,
    SchemaError,
    UnsupportedTable,
)
from hoodoo.format.avro.schema import avro_schema, avro_text
from hoodoo.format.log import block as log_block
from hoodoo.format.log.block import (
    DataBlock,
    DeleteBlock,
    RollbackBlock,
    decode_log,
    decode_logs,
    encode_log,
    loggable_ordering,
)
from hoodoo.format.names import META_COLUMNS

INSTANT = "20260307162604102"
COLUMNS = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("tags", pa.list_(pa.string()))])
SCHEMA = pa.schema([*[(name, pa.string()) for name in META_COLUMNS], *COLUMNS])


def rows(count):
    keys = [f"k{i}" for i in range(count)]
    meta = [[INSTANT] * count, [f"{INSTANT}_0_{i}" for i in range(count)], keys, ["p=1"] * count, ["f-0"] * count]
    tags = [["a"] * (i % 3) if i % 4 else None for i in range(count)]
    return pa.table(
        [
            *map(pa.array, meta),
            pa.array(keys),
            pa.array(range(count), pa.int64()),
            pa.array(tags, pa.list_(pa.string())),
        ],
        schema=SCHEMA,
    )


def deletes(keys, *ordering):
    return DeleteBlock(INSTANT, pa.array(keys, pa.string()), pa.array(["p=1"] * len(keys)), ordering)


# ---------------------------------------------------------------- real bytes

SCHEMA_TEXT = "{" + "s" * 1707 + "}"
FILE_ID = "3e93c8a9-fda0-4e8a-91dc-b4ade7dab76d-0"


def framed(kind, header, content):
    return b"".join(log_block._framed(kind, log_block._entries(header), [content]))


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


WRAPPERS = [
    ("BooleanWrapper", "boolean"),
    ("IntWrapper", "int"),
    ("LongWrapper", "long"),
    ("FloatWrapper", "float"),
    ("DoubleWrapper", "double"),
    ("BytesWrapper", "bytes"),
    ("StringWrapper", "string"),
    ("DateWrapper", "int"),
    ("DecimalWrapper", {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}),
    ("TimeMicrosWrapper", {"type": "long", "logicalType": "time-micros"}),
    ("TimestampMicrosWrapper", "long"),
]
ITEM = {"type": "record", "name": "LocalDateWrapper", "fields": [{"name": "value", "type": "int"}]}
ARRAY = {"type": "array", "items": ["null", *[name for name, _ in WRAPPERS], ITEM]}
DELETE_LIST = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieDeleteRecordList",
        "namespace": "org.apache.hudi.avro.model",
        "fields": [
            {
                "name": "deleteRecordList",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "HoodieDeleteRecord",
                        "fields": [
                            {"name": "recordKey", "type": ["null", "string"], "default": None},
                            {"name": "partitionPath", "type": ["null", "string"], "default": None},
                            {
                                "name": "orderingVal",
                                "default": None,
                                "type": [
                                    "null",
                                    *[
                                        {"type": "record", "name": name, "fields": [{"name": "value", "type": kind}]}
                                        for name, kind in WRAPPERS
                                    ],
                                    {
                                        "type": "record",
                                        "name": "ArrayWrapper",
                                        "fields": [{"name": "wrappedValues", "type": ["null", ARRAY], "default": None}],
                                    },
                                ],
                            },
                        ],
                    },
                },
            }
        ],
    }
)


def java_deletes(records, instant=INSTANT):
    """A delete block as Java writes it; records are (key, partition, None or (wrapper, value))."""
    out = io.BytesIO()
    wrapped = [
        (
            k,
            p,
            w
            and (f"org.apache.hudi.avro.model.{w[0]}", {"value" if w[0] != "ArrayWrapper" else "wrappedValues": w[1]}),
        )
        for k, p, w in records
    ]
    fields = ("recordKey", "partitionPath", "orderingVal")
    fastavro.schemaless_writer(
        out, DELETE_LIST, {"deleteRecordList": [dict(zip(fields, record, strict=True)) for record in wrapped]}
    )
    return framed(1, {0: instant}, struct.pack(">ii", 3, len(out.getvalue())) + out.getvalue())


UTC = pa.timestamp("us", "UTC")
MOMENT = 1_760_000_000_123_456
ORDERINGS = {
    "IntWrapper": (pa.array([1, -1, 1 << 30], pa.int32()), [1, -1, 1 << 30]),
    "LongWrapper": (pa.array([0, -1, 1 << 62], pa.int64()), [0, -1, 1 << 62]),
    "FloatWrapper": (pa.array([0.5, -0.0, 2.0], pa.float32()), [0.5, -0.0, 2.0]),
    "DoubleWrapper": (pa.array([0.1, -1e300, 2.0]), [0.1, -1e300, 2.0]),
    "StringWrapper": (pa.array(["", "é", "z" * 100]), ["", "é", "z" * 100]),
    "DateWrapper": (pa.array([0, -1, 20000], pa.int32()).view(pa.date32()), [0, -1, 20000]),
    "TimestampMicrosWrapper": (pa.array([0, -1, MOMENT], pa.int64()).view(UTC), [0, -1, MOMENT]),
    "DecimalWrapper": (
        pa.array([decimal.Decimal(x) for x in ("0.00", "-1.50", "9999999999999.99")], pa.decimal128(15, 2)),
        [decimal.Decimal(x) for x in ("0.00", "-1.50", "9999999999999.99")],
    ),
}


@pytest.mark.parametrize("wrapper", ORDERINGS)
def test_ordering_values_are_wrapped_as_java_wraps_them(wrapper):
    ordering, values = ORDERINGS[wrapper]
    keys = ["a", "", "é" * 40]
    ((_, _, content),) = blocks(encode_log(INSTANT, "t", SCHEMA, None, [deletes(keys, ordering)]))
    ((_, _, expected),) = blocks(java_deletes([(k, "p=1", (wrapper, v)) for k, v in zip(keys, values, strict=True)]))
    assert content == expected
    (back,) = decode_log(encode_log(INSTANT, "t", SCHEMA, None, [deletes(keys, ordering)]))
    assert back.keys.to_pylist() == keys
    assert back.ordering[0].cast(ordering.type) == ordering


def several_values(array):
    """A delete block with one record, of which `array` is the content of its ArrayWrapper."""
    avro = b"\x02\x02\x02a\x02\x02p\x18" + array + b"\x00"
    return framed(1, {0: INSTANT}, struct.pack(">ii", 3, len(avro)) + avro)


def test_several_ordering_values_have_the_bytes_that_hudi_gave_them():
    """`18 02 04 06 14 0a`, a double and `00`: a delete by marker of Apache Hudi 1.2 in a table that is ordered by a
    long, here 10, and a double.
    """
    golden = bytes.fromhex("02 04 06 14 0a") + struct.pack("<d", 1.5) + b"\x00"
    block = DeleteBlock(INSTANT, pa.array(["a"]), pa.array(["p"]), (pa.array([10], pa.int64()), pa.array([1.5])))
    data = encode_log(INSTANT, "t", SCHEMA, None, [block])
    assert list(blocks(data))[0][2] == list(blocks(several_values(golden)))[0][2]
    (back,) = decode_log(data)
    assert [values.to_pylist() for values in back.ordering] == [[10], [1.5]]
    assert [values.type for values in back.ordering] == [pa.int64(), pa.float64()]


@pytest.mark.parametrize("second", ORDERINGS)
@pytest.mark.parametrize("first", ORDERINGS)
def test_several_ordering_values_are_wrapped_as_java_wraps_them(first, second):
    """Times are LongWrappers in an array: Java compares another wrapper's content with a Long, and fails."""
    names, keys = (first, "LongWrapper", second), ["a", "", "é" * 40]
    ordering = [ORDERINGS[name][0] for name in names]
    rows_ = zip(*(ORDERINGS[name][1] for name in names), strict=True)
    wrappers = ["LongWrapper" if name == "TimestampMicrosWrapper" else name for name in names]
    values = [
        [(f"org.apache.hudi.avro.model.{name}", {"value": value}) for name, value in zip(wrappers, row, strict=True)]
        for row in rows_
    ]
    data = encode_log(INSTANT, "t", SCHEMA, None, [deletes(keys, *ordering)])
    expected = java_deletes([(key, "p=1", ("ArrayWrapper", row)) for key, row in zip(keys, values, strict=True)])
    assert list(blocks(data))[0][2] == list(blocks(expected))[0][2]
    (back,) = decode_log(data)
    assert back.keys.to_pylist() == keys
    assert [values.cast(kind.type) for values, kind in zip(back.ordering, ordering, strict=True)] == ordering


def test_deletes_with_several_values_of_any_kind_are_told_apart():
    def several(*pairs):
        named = [pair and (f"org.apache.hudi.avro.model.{pair[0]}", {"value": pair[1]}) for pair in pairs]
        return "ArrayWrapper", named

    zero = ("IntWrapper", 0)
    data = java_deletes(
        [
            ("a", "p", several(zero, zero)),
            ("b", "p", zero),
            ("c", "p", several(("LongWrapper", 7), None)),
            ("d", "p", several(("IntWrapper", 9), ("IntWrapper", 3))),
            ("e", "p", several(("LocalDateWrapper", 2), ("BooleanWrapper", True))),
            ("f", "p", several(("LongWrapper", 8), None)),
            ("g", "p", None),
            ("h", "p", ("LongWrapper", 5)),
        ]
    )
    found = [(block.keys.to_pylist(), [values.to_pylist() for values in block.ordering]) for block in decode_log(data)]
    assert found == [
        (["a", "d"], [[0, 9], [0, 3]]),  # zeroes in an array are values
        (["b"], []),
        (["c", "f"], [[7, 8], [None, None]]),
        (["e"], [[dt.date(1970, 1, 3)], [True]]),
        (["g"], []),
        (["h"], [[5]]),
    ]


def test_an_array_of_ordering_values_may_come_in_pieces_that_say_their_size():
    (one,) = decode_log(several_values(b"\x02\x02\x06\x14\x01\x04\x06\x16\x00"))
    assert [values.to_pylist() for values in one.ordering] == [[10], [11]]


def test_a_decimal_wrapper_has_javas_shortest_bytes():
    # fastavro is no oracle here: it spends a byte more than Java's BigInteger on -128 and its like.
    digits = [0, 1, -1, 127, 128, -128, -129, 255, 256, 1 << 63, -(1 << 63), -(1 << 63) - 1, 10**30 - 1, -(10**30) + 1]
    values = [decimal.Decimal(n).scaleb(-15, decimal.Context(prec=40)) for n in digits]
    ((_, _, content),) = blocks(
        encode_log(INSTANT, "t", SCHEMA, None, [deletes(["k"] * len(digits), pa.array(values, pa.decimal128(30, 15)))])
    )
    shortest = [n.to_bytes((n if n >= 0 else ~n).bit_length() // 8 + 1, "big", signed=True) for n in digits]
    records = b"".join(b"\x02\x02k\x02\x06p=1\x12" + bytes([2 * len(number)]) + number for number in shortest)
    assert content[8:] == bytes([2 * len(digits)]) + records + b"\0"


def test_a_local_timestamp_is_wrapped_like_an_instant():
    naive = deletes(["a"], pa.array([MOMENT], pa.timestamp("us")))
    zoned = deletes(["a"], pa.array([MOMENT], UTC))
    assert encode_log(INSTANT, "t", SCHEMA, None, [naive]) == encode_log(INSTANT, "t", SCHEMA, None, [zoned])


def test_unconditional_deletes_are_told_from_ordered_ones_whatever_the_mix():
    data = java_deletes(
        [
            ("a", "p", None),
            ("b", None, ("IntWrapper", 0)),
            ("c", "p", ("IntWrapper", 5)),
            ("d", "p", ("LongWrapper", 0)),
            ("e", "p", ("BooleanWrapper", True)),
            ("f", "p", ("BytesWrapper", b"\xff")),
            ("g", "p", ("TimeMicrosWrapper", dt.time(1))),
        ]
    )
    found = {tuple(b.keys.to_pylist()): b.ordering for b in decode_log(data)}
    assert found.pop(("a",)) == ()
    assert found.pop(("b",)) == ()
    assert {keys: values.to_pylist() for keys, (values,) in found.items()} == {
        ("c",): [5],
        ("d",): [0],
        ("e",): [True],
        ("f",): [b"\xff"],
        ("g",): [dt.time(1)],
    }
    assert found[("c",)][0].type == pa.int32()
    assert [b.partitions.to_pylist() for b in decode_log(data)][:2] == [["p"], [""]]
    mixed = decode_log(
        java_deletes([("a", "p", ("IntWrapper", 0)), ("b", "p", ("IntWrapper", 3)), ("c", "p", ("IntWrapper", 0))])
    )
    assert [(b.keys.to_pylist(), [values.to_pylist() for values in b.ordering]) for b in mixed] == [
        (["a", "c"], []),
        (["b"], [[3]]),
    ]


def test_long_texts_and_several_list_blocks_are_read():
    record = b"\x02\x80\x02" + b"k" * 128 + b"\x00\x00"
    avro = (
        b"\x02"
        + record
        + b"\x01"
        + bytes([2 * 67 % 128 | 128, 2 * 67 // 128])
        + record.replace(b"\x00\x00", b"\x02\x02p\x04\x12")
        + b"\x00"
    )
    one, two = decode_log(framed(1, {0: INSTANT}, struct.pack(">ii", 3, len(avro)) + avro))
    assert (one.keys.to_pylist(), one.partitions.to_pylist(), one.ordering) == (["k" * 128], [""], ())
    assert (two.keys.to_pylist(), two.partitions.to_pylist(), two.ordering[0].to_pylist()) == (["k" * 128], ["p"], [9])


def test_only_verified_types_may_be_logged_as_ordering():
    assert all(map(loggable_ordering, (pa.int32(), pa.int64(), pa.string(), UTC, pa.timestamp("us"))))
    others = (
        pa.float32(),
        pa.float64(),
        pa.date32(),
        pa.decimal128(10, 2),
        pa.bool_(),
        pa.timestamp("ns"),
        pa.large_string(),
        pa.time64("us"),
    )
    assert not any(map(loggable_ordering, others))


@pytest.mark.parametrize(
    "ordering",
    [
        pa.array([1, None], pa.int64()),
        pa.array([1], pa.int64()),
        pa.array([1, 2], pa.uint8()),
        pa.array([10**20] * 2, pa.decimal128(38, 2)),
    ],
)
def test_an_ordering_value_that_no_wrapper_holds_is_refused(ordering):
    with pytest.raises(OrderingError):
        encode_log(INSTANT, "t", SCHEMA, None, [deletes(["a", "b"], ordering)])


def test_a_delete_without_a_key_is_refused():
    with pytest.raises(KeyValueError):
        encode_log(INSTANT, "t", SCHEMA, None, [deletes(["a", None])])


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
    with pytest.raises(ColumnError, match="takes 1[0-9]{3} bytes"):
        encode_log(INSTANT, "t", SCHEMA, wide)
    assert encode_log(INSTANT, "t", SCHEMA, rows(3))


def parquet(table):
    sink = io.BytesIO()
    pq.write_table(table, sink, use_compliant_nested_type=False)
    return sink.getvalue()


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


AVRO = json.dumps(avro_schema("t", COLUMNS, True))


@pytest.mark.parametrize(
    "data",
    [
        framed(4, {0: INSTANT}, b"hfile"),
        framed(9, {0: INSTANT}, b""),
        framed(0, {0: INSTANT, 3: "1", 1: INSTANT}, b""),
        framed(1, {0: INSTANT}, struct.pack(">ii", 2, 0)),
        framed(1, {0: INSTANT}, struct.pack(">ii", 1, 0)),
        framed(3, {0: INSTANT, 2: AVRO}, struct.pack(">ii", 1, 0)),
    ],
    ids=[
        "hfile",
        "unknown type",
        "unknown command",
        "delete version 2",
        "delete version 1",
        "data version 1",
    ],
)
def test_what_hoodoo_does_not_read_is_refused_as_unsupported(data):
    for strict in (True, False):
        with pytest.raises(UnsupportedTable):
            decode_log(data, strict=strict)


def test_a_block_beyond_the_callers_limit_is_refused():
    data = encode_log(INSTANT, "t", SCHEMA, rows(100))
    with pytest.raises(UnsupportedTable, match="longer than"):
        decode_log(data, max_block=500)


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize(
    "data",
    [
        framed(2, {0: INSTANT}, b""),
        framed(3, {0: INSTANT, 2: AVRO}, b"\0\0"),
        framed(3, {0: INSTANT, 2: AVRO}, struct.pack(">ii", 3, 1)),
        framed(3, {0: INSTANT}, struct.pack(">ii", 3, 0)),
        framed(3, {2: AVRO}, struct.pack(">ii", 3, 0)),
        framed(3, {0: INSTANT, 2: "{"}, struct.pack(">ii", 3, 0)),
        framed(5, {0: INSTANT, 2: AVRO}, b"PAR1 is not all"),
        framed(5, {0: INSTANT, 2: AVRO}, parquet(rows(2).set_column(6, "ts", pa.array(["x", "y"])))),
        framed(1, {0: INSTANT}, b"\0"),
        framed(1, {0: INSTANT}, struct.pack(">ii", 7, 0)),
        framed(1, {0: INSTANT}, struct.pack(">ii", 3, 9)),
        framed(1, {0: INSTANT}, struct.pack(">ii", 3, 1) + b"\x02"),
        framed(1, {0: INSTANT}, struct.pack(">ii", 3, 2) + b"\x00\x00"),
        framed(1, {0: INSTANT}, struct.pack(">ii", 3, 10) + b"\xfe" + b"\xff" * 8 + b"\x01"),
        framed(1, {0: INSTANT}, struct.pack(">ii", 3, 5) + b"\x02\x00\x00\x00\x00"),
        framed(0, {0: INSTANT, 3: "0"}, b""),
        java_deletes([("a", "p", ("ArrayWrapper", []))]),
        java_deletes([("a", "p", ("ArrayWrapper", None))]),
        several_values(b"\x02\x04\x06\x14\x1a\x14\x00"),
        several_values(b"\x02\x04\x06\x14"),
    ],
)
def test_a_sound_frame_around_nonsense_is_corrupt(data):
    with pytest.raises(CorruptTable):
        decode_log(data)


def keys_of(found):
    return [b.keys.to_pylist() if isinstance(b, DeleteBlock) else b.rows["id"].to_pylist() for b in found]


ONE, TWO, THREE = (
    encode_log(INSTANT, "t", SCHEMA, rows(3)),
    encode_log(INSTANT, "t", SCHEMA, None, [deletes(["a", "b"])]),
    encode_log(INSTANT, "t", SCHEMA, rows(2)),
)
SOUND = [["k0", "k1", "k2"], ["a", "b"], ["k0", "k1"]]


@pytest.mark.parametrize("kept", range(0, len(TWO), 7))
def test_a_torn_tail_loses_only_itself(kept):
    data = ONE + TWO[:kept]
    assert keys_of(decode_log(data, strict=False)) == SOUND[:1]
    if kept:
        with pytest.raises(CorruptTable, match=f"byte {len(ONE)} "):
            decode_log(data)


@pytest.mark.parametrize("kept", [1, 5, 13, 20, 100, len(TWO) - 1])
def test_a_torn_block_between_two_others_loses_only_itself(kept):
    data = ONE + TWO[:kept] + THREE
    assert keys_of(decode_log(data, strict=False)) == [SOUND[0], SOUND[2]]
    with pytest.raises(CorruptTable):
        decode_log(data)


def test_garbage_before_and_between_blocks_is_passed_over():
    noise = b"\0noise #HUDI" + b"#HUDI#" * 3
    data = noise + ONE + noise * 1000 + TWO + b"#HUDI" + THREE + noise
    assert keys_of(decode_log(data, strict=False)) == SOUND
    far = ONE + b"x" * ((1 << 20) - len(ONE) - 3) + TWO  # the magic lies across the window of the search
    assert keys_of(decode_log(far, strict=False)) == SOUND[:2]


def test_a_wrong_back_pointer_is_damage():
    data = ONE[:-1] + bytes([ONE[-1] ^ 1]) + THREE
    assert keys_of(decode_log(data, strict=False)) == SOUND[2:]
    with pytest.raises(CorruptTable):
        decode_log(data)


@pytest.mark.parametrize("strict", [True, False])
def test_no_mutation_does_worse_than_a_table_error(strict):
    ordered = [deletes(["x", "y"], ORDERINGS[name][0].slice(0, 2)) for name in ORDERINGS]
    small = pa.schema([*[(name, pa.string()) for name in META_COLUMNS], ("id", pa.string())])
    data = encode_log(INSTANT, "t", small, rows(5).select(small.names), ordered) + framed(
        5, {0: INSTANT, 2: AVRO}, parquet(rows(3))
    )
    rng = np.random.default_rng(int(strict))
    refused = 0
    for _ in range(1500):
        mutated = bytearray(data)
        for at in rng.integers(0, len(data), rng.integers(1, 4)):
            mutated[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.integers(0, 256)])
        if rng.random() < 0.1:
            del mutated[rng.integers(0, len(data)) :]
        try:
            for block in decode_log(bytes(mutated), strict=strict):
                if isinstance(block, DataBlock):
                    block.rows.validate(full=True)
        except HoodooError as e:
            assert isinstance(e, (CorruptTable, UnsupportedTable)), e
            refused += 1
    assert refused > 100


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
    for parquet, kind in ((False, 3), (True, 5)):
        some = DataBlock("20260101000000000", rows, True, at)
        data = encode_log("20260101000000000", "t", schema, None, (), None, "20250101000000000", parquet, [some])
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
