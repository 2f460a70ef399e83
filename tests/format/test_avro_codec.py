"""The column-wise codec against fastavro, record by record, and against bytes that somebody damaged."""

import datetime as dt
import decimal
import io
import struct

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from damaged_bytes import damaged
from tiers import sized

from hoodoo.errors import CorruptTable, HoodooError, SchemaError
from hoodoo.format.avro.avro_type import parse_record
from hoodoo.format.avro.codec import decode_records, encode_records
from hoodoo.format.avro.schema import convert_to_arrow_schema, create_avro_schema

UTC = pa.timestamp("us", "UTC")
LONGS = [
    0,
    -1,
    1,
    63,
    64,
    -64,
    -65,
    8191,
    8192,
    1 << 20,
    -(1 << 27),
    1 << 34,
    1 << 41,
    1 << 48,
    1 << 55,
    -(1 << 55) - 1,
    1 << 62,
    (1 << 63) - 1,
    -(1 << 63),
]
INTS = [n for n in LONGS if -(1 << 31) <= n < 1 << 31] + [(1 << 31) - 1, -(1 << 31)]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def fastavro_records(table, avro=None, convert=lambda row: row):
    parsed = fastavro.parse_schema(avro or create_avro_schema("t", table.schema, False))
    out = []
    for row in table.to_pylist(maps_as_pydicts="strict"):
        one = io.BytesIO()
        fastavro.schemaless_writer(one, parsed, convert(row))
        out.append(one.getvalue())
    return out


def framed(records):
    return b"".join(struct.pack(">i", len(r)) + r for r in records)


FLAT = {
    "bool": ([True, False, True, True], pa.bool_()),
    "int": (INTS, pa.int32()),
    "long": (LONGS, pa.int64()),
    "small_long": (list(range(-64, 64)), pa.int64()),
    "float": ([0.0, -0.0, 1.5, 3e38, float("inf"), float("nan")], pa.float32()),
    "double": ([0.0, -1.5, 1e308, float("-inf"), float("nan")], pa.float64()),
    "string": (["", "a", "é", "😀" * 20, "x" * 63, "y" * 64, "z" * 70_000, "\0"], pa.string()),
    "binary": ([b"", b"\xff\xfe", b"z" * 130, bytes(range(256))], pa.binary()),
    "date": ([dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(2026, 2, 28), dt.date(9999, 12, 31)], pa.date32()),
    "utc": ([EPOCH, EPOCH - dt.timedelta(microseconds=1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC)], UTC),
    "local": ([dt.datetime(1969, 12, 31, 1), dt.datetime(2026, 11, 21, 9, 30, 0, 123456)], pa.timestamp("us")),
    "utc_ms": ([EPOCH, dt.datetime(2026, 11, 21, tzinfo=dt.UTC)], pa.timestamp("ms", "UTC")),
    "local_ms": ([dt.datetime(1970, 1, 1), dt.datetime(2026, 11, 21)], pa.timestamp("ms")),
    "time": ([dt.time(0), dt.time(23, 59, 59, 999999)], pa.time64("us")),
    "time_ms": ([dt.time(0), dt.time(23, 59, 59, 999000)], pa.time32("ms")),
    "decimal_1": ([decimal.Decimal(n) for n in range(-9, 10)], pa.decimal128(1, 0)),
    "decimal_10": (
        [decimal.Decimal(n).scaleb(-2) for n in (0, 1, -1, 255, -256, 9999999999, -9999999999)],
        pa.decimal128(10, 2),
    ),
    "decimal_19": (
        [decimal.Decimal(n) for n in (0, 1 << 62, -(1 << 62), 9223372036854775808, -9999999999999999999)],
        pa.decimal128(19, 0),
    ),
    "decimal_38": (
        [decimal.Decimal(n) for n in (0, -1, 1 << 64, -(1 << 64), 10**37 * 9, -(10**38) + 1)],
        pa.decimal128(38, 0),
    ),
}

LISTS = [[], [1], None, [None, 2, None], list(range(100))]
NESTED = {
    "list": (LISTS, pa.list_(pa.int64())),
    "list_text": ([["a", None, ""], [], None, ["é"]], pa.list_(pa.string())),
    "list_list": ([[[1], [], None], [], None, [[2, None]]], pa.list_(pa.list_(pa.int32()))),
    "map": ([{"a": 1, "": None}, {}, None], pa.map_(pa.string(), pa.int64())),
    "struct": ([{"x": 1, "y": "a"}, None, {"x": None, "y": None}], pa.struct([("x", pa.int32()), ("y", pa.string())])),
    "deep": (
        [[{"m": {"k": [decimal.Decimal("1.50"), None]}, "t": EPOCH}], None, [None, {"m": None, "t": None}], []],
        pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.decimal128(10, 2)))), ("t", UTC)])),
    ),
    "times": (
        [
            {"d": dt.date(2026, 1, 1), "c": dt.time(1, 2), "b": True, "f": 1.5, "r": b"\0"},
            None,
            {"d": None, "c": None, "b": None, "f": None, "r": None},
        ],
        pa.struct(
            [("d", pa.date32()), ("c", pa.time64("us")), ("b", pa.bool_()), ("f", pa.float32()), ("r", pa.binary())]
        ),
    ),
}


def variants(values, kind):
    """The values plain, with nulls, only null, none at all, sliced, chunked, and as slices with
    nulls that hide bytes.
    """
    with_nulls = pa.array([None, *[v for value in values for v in (value, None)]], kind)
    hidden = pa.array(values * 2, kind)
    hidden = (
        pa.Array.from_buffers(
            kind, len(hidden), [pa.array([i % 3 != 1 for i in range(len(hidden))]).buffers()[1], *hidden.buffers()[1:]]
        )
        if not pa.types.is_nested(kind)
        else hidden
    )
    yield pa.array(values, kind)
    yield with_nulls
    yield pa.nulls(3, kind)
    yield pa.array([], kind)
    yield with_nulls.slice(1, len(values))
    yield hidden.slice(1)
    yield pa.chunked_array([with_nulls.slice(2), pa.array([], kind), hidden.slice(0, 2), with_nulls.slice(1, 1)])
    yield pa.chunked_array([], kind)


@pytest.mark.parametrize("case", [*FLAT, *NESTED])
def test_bytes_equal_fastavros_and_come_back_as_the_same_column(case):
    values, kind = (FLAT | NESTED)[case]
    for column in variants(values, kind):
        table = pa.table({"c": column})
        data, offsets = encode_records(table, table.schema)
        records = fastavro_records(table)
        assert data.tobytes() == framed(records)
        assert offsets.tolist() == [0, *np.cumsum([len(r) + 4 for r in records]).tolist()]
        back = decode_records(data, len(table), create_avro_schema("t", table.schema, False))
        back.validate(full=True)
        assert same(back, table)


def same(a, b):
    return a.schema == b.schema and repr(a.to_pylist()) == repr(b.to_pylist())


def wide(rows, seed=0):
    """Every flat type with random values and nulls, two nested columns in between."""
    rng = np.random.default_rng(seed)

    def column(values, kind):
        picked = [values[i] if rng.random() > 0.2 else None for i in rng.integers(0, len(values), rows)]
        return pa.array(picked, kind)

    flat = {name: column(*case) for name, case in FLAT.items()}
    flat["string"] = column([*"abc", "é" * 30, ""], pa.string())
    return pa.table(
        {
            **flat,
            "tags": column(*NESTED["list_text"]),
            "deep": column(*NESTED["deep"]),
            "last": column(LONGS, pa.int64()),
        }
    )


def test_many_columns_and_rows_make_the_same_records_as_fastavro():
    table = wide(500)
    table = pa.concat_tables([table.slice(0, 123), table.slice(123)])
    data, _ = encode_records(table, table.schema)
    assert data.tobytes() == framed(fastavro_records(table))
    assert same(decode_records(data.tobytes(), len(table), create_avro_schema("t", table.schema, False)), table)


def test_batches_join_without_a_seam(monkeypatch):
    table = wide(300)
    whole, offsets = encode_records(table, table.schema)
    for module in ("encode", "decode"):
        monkeypatch.setattr(f"hoodoo.format.avro.{module}._ROWS", 37)
        monkeypatch.setattr(f"hoodoo.format.avro.{module}._BYTES", 900)
    pieces, piece_offsets = encode_records(table, table.schema)
    assert pieces.tobytes() == whole.tobytes()
    assert piece_offsets.tolist() == offsets.tolist()
    assert same(decode_records(whole, 300, create_avro_schema("t", table.schema, False)), table)


def test_only_the_columns_asked_for_are_returned_in_the_order_asked():
    table = wide(50)
    data, _ = encode_records(table, table.schema)
    avro = create_avro_schema("t", table.schema, False)
    picked = decode_records(data, 50, avro, ["last", "string", "not_there", "int"])
    assert same(picked, table.select(["last", "string", "int"]))
    assert decode_records(data, 50, avro, []).num_columns == 0
    assert decode_records(data, 50, avro, ["int"]).column("int").to_pylist() == table["int"].to_pylist()


def test_a_table_of_another_shape_is_refused():
    with pytest.raises(SchemaError, match="'a'"):
        encode_records(pa.table({"b": [1]}), pa.schema([("a", pa.int64())]))
    with pytest.raises(SchemaError, match="'a'"):
        encode_records(pa.table({"a": [1]}), pa.schema([("a", pa.int32())]))
    with pytest.raises(SchemaError):
        encode_records(pa.table({"a": pa.array([1], pa.uint64())}), pa.schema([("a", pa.uint64())]))


# ---------------------------------------------------------------- what Java writes

JAVA = {
    "type": "record",
    "name": "r",
    "namespace": "n",
    "fields": [
        {"name": "id", "type": {"type": "string", "avro.java.string": "String"}},
        {"name": "n", "type": ["int", "null"]},
        {"name": "ok", "type": "boolean"},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}]},
        {
            "name": "wide",
            "type": [
                {"type": "fixed", "name": "w", "size": 16, "logicalType": "decimal", "precision": 12, "scale": 2},
                "null",
            ],
        },
        {"name": "colour", "type": ["null", {"type": "enum", "name": "colour", "symbols": ["RED", "GREEN"]}]},
        {"name": "hash", "type": {"type": "fixed", "name": "h", "size": 3}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "colours", "type": {"type": "array", "items": "colour"}},
        {
            "name": "prices",
            "type": {
                "type": "map",
                "values": [{"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 1}, "null"],
            },
        },
        {
            "name": "inner",
            "type": [
                {
                    "type": "record",
                    "name": "i",
                    "fields": [
                        {"name": "h", "type": "h"},
                        {"name": "d", "type": {"type": "int", "logicalType": "date"}},
                    ],
                },
                "null",
            ],
        },
    ],
}


def java_rows(count):
    rng = np.random.default_rng(5)
    for i in range(count):
        yield {
            "id": f"k{i}",
            "n": None if i % 3 == 0 else i,
            "ok": bool(i % 2),
            "price": None
            if i % 5 == 0
            else decimal.Decimal(int(rng.integers(-(1 << 62), 1 << 62)) >> int(rng.integers(0, 62))).scaleb(-15),
            "wide": None if i % 7 == 0 else decimal.Decimal(int(rng.integers(-(10**11), 10**11))).scaleb(-2),
            "colour": [None, "RED", "GREEN"][i % 3],
            "hash": bytes([i % 256, 0, 255]),
            "at": EPOCH + dt.timedelta(milliseconds=i),
            "colours": ["GREEN", "RED"][: i % 3],
            "prices": {"a": decimal.Decimal(-i).scaleb(-1), "b": None},
            "inner": None if i % 4 == 0 else {"h": b"abc", "d": dt.date(2026, 1, 1)},
        }


def test_records_of_other_writers_are_read_as_fastavro_reads_them():
    rows = list(java_rows(300))
    parsed, records = fastavro.parse_schema(JAVA), []
    for row in rows:
        one = io.BytesIO()
        fastavro.schemaless_writer(one, parsed, row)
        records.append(one.getvalue())
    table = decode_records(framed(records), len(rows), JAVA)
    table.validate(full=True)
    assert table.schema == convert_to_arrow_schema(JAVA)
    assert table.to_pylist(maps_as_pydicts="strict") == rows
    assert decode_records(framed(records), len(rows), JAVA, ["at", "id"]).to_pylist() == [
        {"at": r["at"], "id": r["id"]} for r in rows
    ]


def test_blocks_with_a_byte_size_and_several_blocks_are_read():
    avro = {"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "array", "items": "int"}}]}
    record = b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x00"  # two items in 2 bytes, then one item, then the end
    assert decode_records(framed([record]), 1, avro)["a"].to_pylist() == [[1, 2, 3]]


def test_times_beyond_pythons_years_survive_in_nested_columns():
    kind = pa.list_(UTC)
    column = pa.array([[(1 << 62), None, -(1 << 62)]], pa.list_(pa.int64())).cast(kind)
    table = pa.table({"c": column})
    data, _ = encode_records(table, table.schema)
    back = decode_records(data, 1, create_avro_schema("t", table.schema, False))
    assert back["c"].cast(pa.list_(pa.int64())).to_pylist() == [[1 << 62, None, -(1 << 62)]]


# ---------------------------------------------------------------- bytes that are not to be trusted


def one_field(kind):
    return {"type": "record", "name": "r", "fields": [{"name": "c", "type": kind}]}


DAMAGED = {
    "branch 2": (["null", "int"], b"\x04\x00"),
    "branch -1": (["null", "int"], b"\x01\x00"),
    "neither 0 nor 1": (["null", "int"], b""),
    "int cut": ("int", b"\x80"),
    "int of 33 bits": ("int", b"\x80\x80\x80\x80\x20"),
    "int that does not end": ("long", b"\xff" * 12),
    "int of 65 bits": ("long", b"\xff" * 9 + b"\x02"),
    "double cut": ("double", b"\0" * 7),
    "float cut": ("float", b"\0" * 3),
    "boolean 2": ("boolean", b"\x02"),
    "boolean missing": ("boolean", b""),
    "negative length": ("string", b"\x01"),
    "length past the end": ("string", b"\x08abc"),
    "huge length": ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    "not utf-8": ("string", b"\x04\xc3\x28"),
    "surrogate": ("string", b"\x06\xed\xa0\x80"),
    "nested not utf-8": ({"type": "array", "items": "string"}, b"\x02\x04\xc3\x28\x00"),
    "bytes after the record": ("int", b"\x02\x02"),
    "decimal of no bytes": ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 0}, b"\x00"),
    "decimal of 17 bytes": (
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 0},
        b"\x22" + b"\0" * 17,
    ),
    "decimal beyond its digits": ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0}, b"\x02\x7f"),
    "nested decimal beyond its digits": (
        {"type": "array", "items": {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0}},
        b"\x02\x02\x7f\x00",
    ),
    "time past midnight": ({"type": "long", "logicalType": "time-micros"}, b"\x80\x80\x80\x80\x80\x40"),
    "nested time past midnight": (
        {"type": "array", "items": {"type": "int", "logicalType": "time-millis"}},
        b"\x02\x80\x80\x80\x80\x08\x00",
    ),
    "symbol 2": ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, b"\x04"),
    "symbol -1": ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, b"\x01"),
    "nested symbol 2": ({"type": "array", "items": {"type": "enum", "name": "e", "symbols": ["A"]}}, b"\x02\x04\x00"),
    "fixed cut": ({"type": "fixed", "name": "f", "size": 4}, b"abc"),
    "array of 2^62": ({"type": "array", "items": "boolean"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00"),
    "array without end": ({"type": "array", "items": "int"}, b"\x02\x02"),
    "nested int of 33 bits": ({"type": "array", "items": "int"}, b"\x02\x80\x80\x80\x80\x20\x00"),
    "map with a huge key": ({"type": "map", "values": "int"}, b"\x02\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_record_that_is_not_what_its_schema_says_is_corrupt(case):
    kind, record = DAMAGED[case]
    with pytest.raises(CorruptTable):
        decode_records(framed([record]), 1, one_field(kind))
    assert parse_record(one_field(kind)).kind == "record"


def test_a_value_may_not_reach_into_the_next_record():
    for kind in ("string", {"type": "array", "items": "boolean"}):
        with pytest.raises(CorruptTable):
            decode_records(framed([b"\x06a", b"\x00\x00\x00\x00"]), 2, one_field(kind))


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"", 1),
        (b"\0\0\0", 1),
        (b"\0\0\0\x05a", 1),
        (b"\xff\xff\xff\xff", 1),
        (framed([b"\x02", b"\x02"]), 1),
        (framed([b"\x02"]), 2),
        (b"", -1),
        (framed([b"\x02"]), 1 << 62),
        (b"\x7f\xff\xff\xff" * 4, 2),
    ],
)
def test_lengths_that_do_not_fill_the_block_are_corrupt(data, count):
    with pytest.raises(CorruptTable):
        decode_records(data, count, one_field("int"))


@pytest.mark.both
@pytest.mark.parametrize("columns", [None, ["int", "last"]])
def test_no_mutation_does_worse_than_corrupt_table(columns):
    table = wide(12, seed=3)
    data = bytearray(encode_records(table, table.schema)[0])
    avro = create_avro_schema("t", table.schema, False)
    rng = np.random.default_rng(9)
    refused, count = 0, sized(400, 1500)
    for _ in range(count):
        try:
            decode_records(damaged(data, rng), 12, avro, columns).validate(full=True)
        except HoodooError as e:
            assert isinstance(e, CorruptTable)
            refused += 1
    assert count / 30 < refused < count
