"""Schemas between Arrow and Avro, and the refusals that keep lossy types out of a table."""

import io
import json

import fastavro
import pyarrow as pa
import pytest

from hoodoo.errors import CorruptTable, SchemaError, UnsupportedTable
from hoodoo.format.avro.schema import (
    avro_text,
    convert_to_arrow_schema,
    create_avro_schema,
    decimal_size_in_bytes,
    normalize_schema,
)
from hoodoo.format.names import META_COLUMNS

UTC = pa.timestamp("us", "UTC")


def one(kind):
    return normalize_schema(pa.schema([pa.field("c", kind)])).field("c").type


STORED = {
    pa.bool_(): pa.bool_(),
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.int64(): pa.int64(),
    pa.float32(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.uuid(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.binary(16): pa.binary(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("us"),
    pa.time64("ns"): pa.time64("us"),
    pa.timestamp("s"): pa.timestamp("us"),
    pa.timestamp("ns", "Europe/Berlin"): UTC,
    pa.decimal128(38, 38): pa.decimal128(38, 38),
    pa.decimal32(5, 2): pa.decimal128(5, 2),
    pa.dictionary(pa.int8(), pa.large_string()): pa.string(),
    pa.dictionary(pa.int8(), pa.uint16()): pa.int32(),
    pa.large_list(pa.int8()): pa.list_(pa.int32()),
    pa.list_(pa.int16(), 3): pa.list_(pa.int32()),
    pa.list_view(pa.int16()): pa.list_(pa.int32()),
    pa.map_(pa.large_string(), pa.int8()): pa.map_(pa.string(), pa.int32()),
    pa.struct([pa.field("a", pa.int8(), nullable=False, metadata={"x": "y"})]): pa.struct([pa.field("a", pa.int32())]),
}


@pytest.mark.parametrize("given", STORED, ids=str)
def test_every_type_has_one_stored_form(given):
    assert one(given) == STORED[given]
    assert one(one(given)) == one(given)


def nested(depth):
    kind = pa.int32()
    for _ in range(depth):
        kind = pa.list_(kind)
    return kind


REFUSED = [
    pa.uint64(),
    pa.duration("s"),
    pa.float16(),
    pa.null(),
    pa.decimal256(40, 2),
    pa.decimal256(10, 2),
    pa.decimal128(10, -1),
    pa.decimal128(3, 5),
    pa.month_day_nano_interval(),
    pa.map_(pa.int32(), pa.int32()),
    pa.struct([]),
    pa.run_end_encoded(pa.int32(), pa.int64()),
    pa.dense_union([pa.field("a", pa.int32())]),
    pa.dictionary(pa.int8(), pa.uint64()),
    nested(64),
]


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: str(kind)[:30])
def test_a_type_that_would_lose_something_is_refused_by_name(kind):
    with pytest.raises(SchemaError, match="'c"):
        one(kind)


def test_a_nested_column_is_named_by_its_path():
    kind = pa.struct([pa.field("b", pa.list_(pa.map_(pa.string(), pa.struct([pa.field("d", pa.uint64())]))))])
    with pytest.raises(SchemaError) as caught:
        one(kind)
    assert caught.value.details["column"] == "c.b.item.value.d"


@pytest.mark.parametrize(
    "names",
    [
        ["a b"],
        ["1a"],
        [""],
        ["é"],
        ["a\n"],
        ["a", "A"],
        ["a", "a"],
        ["_hoodie_commit_time"],
        ["_hoodie_x"],
        ["_HOODIE_x"],
    ],
)
def test_names_that_some_engine_cannot_hold_are_refused(names):
    with pytest.raises(SchemaError):
        normalize_schema(pa.schema([pa.field(name, pa.int32()) for name in names]))
    if not names[0].lower().startswith("_hoodie"):
        with pytest.raises(SchemaError, match=r"s\."):
            normalize_schema(pa.schema([pa.field("s", pa.struct([pa.field(name, pa.int32()) for name in names]))]))


def test_everything_becomes_nullable_and_metadata_is_dropped():
    schema = normalize_schema(
        pa.schema([pa.field("a", pa.int8(), nullable=False, metadata={"k": "v"})], metadata={"x": "y"})
    )
    assert schema.metadata is None
    assert schema.field("a").nullable
    assert schema.field("a").metadata is None


RICH = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int32()),
        ("big", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("ok", pa.bool_()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", UTC),
        ("local", pa.timestamp("us")),
        ("clock", pa.time64("us")),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())),
        ("prices", pa.list_(pa.decimal128(38, 0))),
        ("attrs", pa.map_(pa.string(), pa.int64())),
        (
            "who",
            pa.struct([("name", pa.string()), ("paid", pa.decimal128(15, 3)), ("at", pa.struct([("x", pa.int32())]))]),
        ),
        ("legs", pa.list_(pa.struct([("fixed", pa.int32()), ("who", pa.struct([("name", pa.string())]))]))),
        ("by", pa.map_(pa.string(), pa.struct([("a", pa.list_(pa.list_(pa.int32())))]))),
    ]
)


def test_a_normalised_schema_survives_the_way_through_avro():
    assert normalize_schema(RICH) == RICH
    assert convert_to_arrow_schema(create_avro_schema("trips", RICH, meta=False)) == RICH
    with_meta = convert_to_arrow_schema(avro_text("trips", RICH, meta=True))
    assert with_meta.names == [*META_COLUMNS, *RICH.names]
    assert pa.schema(list(with_meta)[5:]) == RICH


def test_the_deepest_type_that_is_accepted_can_be_read_back():
    schema = normalize_schema(pa.schema([pa.field("c", nested(63)), pa.field("d", pa.list_(UTC))]))
    assert convert_to_arrow_schema(avro_text("deep", schema, meta=True)).field("c") == schema.field("c")


def test_an_independent_avro_library_accepts_the_schema():
    parsed = fastavro.parse_schema(create_avro_schema("trips", RICH, meta=True))
    fastavro.schemaless_writer(io.BytesIO(), parsed, {"id": "a", "legs": [{"fixed": 1}], "by": {"k": None}})


def test_the_text_is_hudis_to_the_letter():
    schema = pa.schema(
        [("id", pa.string()), ("price", pa.decimal128(10, 2)), ("at", UTC), ("who", pa.struct([("n", pa.int32())]))]
    )
    assert avro_text("v9-txns.mor", schema, meta=False) == (
        '{"type":"record","name":"v9__txns__mor_record","namespace":"hoodie.v9__txns__mor","fields":['
        '{"name":"id","type":["null","string"],"default":null},'
        '{"name":"price","type":["null",{"type":"fixed","name":"fixed","namespace":"hoodie.v9__txns__mor.v9__txns__mor_record.price",'
        '"size":5,"logicalType":"decimal","precision":10,"scale":2}],"default":null},'
        '{"name":"at","type":["null",{"type":"long","logicalType":"timestamp-micros"}],"default":null},'
        '{"name":"who","type":["null",{"type":"record","name":"who","namespace":"hoodie.v9__txns__mor.v9__txns__mor_record",'
        '"fields":[{"name":"n","type":["null","int"],"default":null}]}],"default":null}]}'
    )
    first = create_avro_schema("9t", schema, meta=True)["fields"][0]
    assert (
        json.dumps(first, separators=(",", ":"))
        == '{"name":"_hoodie_commit_time","type":["null","string"],"doc":"","default":null}'
    )
    assert create_avro_schema("9t", schema, meta=True)["name"] == "__t_record"


def test_a_decimal_takes_the_fewest_bytes():
    assert [decimal_size_in_bytes(p) for p in (1, 2, 3, 10, 15, 18, 19, 38)] == [1, 1, 2, 5, 7, 8, 9, 16]
    for precision in range(1, 39):
        size = decimal_size_in_bytes(precision)
        assert 10**precision - 1 < 1 << (8 * size - 1)
        assert size == 1 or 10**precision - 1 >= 1 << (8 * (size - 1) - 1)


def record(*fields):
    return {
        "type": "record",
        "name": "r",
        "namespace": "n.s",
        "fields": [{"name": name, "type": kind} for name, kind in fields],
    }


def test_schemas_of_other_writers_are_understood():
    fixed = {"type": "fixed", "name": "fx", "size": 4}
    avro = record(
        ("a", ["int", "null"]),
        ("b", {"type": "string", "avro.java.string": "String"}),
        ("c", ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}]),
        ("d", [{"type": "fixed", "name": "m", "size": 9, "logicalType": "decimal", "precision": 20}, "null"]),
        ("e", {"type": "long", "logicalType": "timestamp-millis"}),
        ("f", {"type": "long", "logicalType": "local-timestamp-micros"}),
        ("g", {"type": "enum", "name": "colour", "symbols": ["RED", "BLUE"]}),
        ("h", fixed),
        ("i", ["null", "fx"]),
        ("j", ["null", "n.s.colour"]),
        ("k", {"type": "array", "items": "double"}),
        ("l", {"type": "map", "values": ["null", "fx"], "avro.java.string": "String"}),
        ("m", {"type": "int", "logicalType": "time-millis"}),
        ("n", {"type": "string", "logicalType": "uuid"}),
    )
    expected = {
        "a": pa.int32(),
        "b": pa.string(),
        "c": pa.decimal128(12, 3),
        "d": pa.decimal128(20, 0),
        "e": pa.timestamp("ms", "UTC"),
        "f": pa.timestamp("us"),
        "g": pa.string(),
        "h": pa.binary(),
        "i": pa.binary(),
        "j": pa.string(),
        "k": pa.list_(pa.float64()),
        "l": pa.map_(pa.string(), pa.binary()),
        "m": pa.time32("ms"),
        "n": pa.string(),
    }
    assert convert_to_arrow_schema(avro) == pa.schema(list(expected.items()))
    assert convert_to_arrow_schema(json.dumps(avro)) == pa.schema(list(expected.items()))


DOUBLING = record(
    ("f0", {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int"}]}),
    *[
        (
            f"f{i}",
            {
                "type": "record",
                "name": f"R{i}",
                "fields": [{"name": "a", "type": f"R{i - 1}"}, {"name": "b", "type": f"R{i - 1}"}],
            },
        )
        for i in range(1, 40)
    ],
)


def deep(levels):
    kind = "int"
    for _ in range(levels):
        kind = {"type": "array", "items": kind}
    return kind


@pytest.mark.parametrize(
    "avro",
    [
        record(("a", "null")),
        record(("a", ["null", "int", "string"])),
        record(("a", ["int", "string"])),
        record(("a", ["null"])),
        record(("a", "unheard")),
        record(("a", {"type": "long", "logicalType": "timestamp-nanos"})),
        record(("a", {"type": "int", "logicalType": ["date"]})),
        record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 0})),
        record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": -1})),
        record(("a", ["null", "r"])),
        record(("a", deep(65))),
        record(),
        DOUBLING,
        '{"type":"record","name":"r","fields":[],"doc":"' + "x" * (1 << 20) + '"}',
        "string",
        {"type": "string"},
    ],
    ids=lambda avro: str(avro)[:60],
)
def test_what_hoodoo_does_not_know_is_refused(avro):
    with pytest.raises((UnsupportedTable, CorruptTable)):
        convert_to_arrow_schema(avro)


@pytest.mark.parametrize(
    "avro",
    [
        "{",
        "[" * 200_000,
        "7",
        "null",
        '{"type":"record"}',
        '{"type":"record","name":"r","fields":7}',
        '{"type":"record","name":"r","fields":[7]}',
        '{"type":"record","name":"r","fields":[{"name":"a","type":7}]}',
        record(("a", "int"), ("a", "int")),
        record(("a", {"type": "fixed", "name": "f", "size": -1})),
        record(("a", {"type": "fixed", "name": "f", "size": 1 << 60})),
        record(("a", {"type": "enum", "name": "f", "symbols": []})),
        record(("a", {"type": "array"})),
        record(("a", ["null", ["null", "int"]])),
        record(("a", 7), ("b", "[" * 100)),
        "[" * 900 + "]" * 900,
        '{"a":' * 900 + "1" + "}" * 900,
    ],
    ids=lambda avro: str(avro)[:60],
)
def test_what_is_no_avro_schema_is_refused_too(avro):
    with pytest.raises((CorruptTable, UnsupportedTable)):
        convert_to_arrow_schema(avro)
