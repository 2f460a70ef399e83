"""Avro messages as rows: fastavro, which knows nothing of columns, says what they are."""

from __future__ import annotations

import datetime as dt
import random
import struct
from collections.abc import Iterator, Sequence
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from registry_server import KnownSchemas, RegistryServer, wire
from tiers import sized

from hoodoo.errors import OptionError, SourceUnavailable, TooManyBadRows
from hoodoo.sources import SchemaRegistry
from hoodoo.sources.avro_messages import AvroDecoder
from hoodoo.sources.avro_schemas import AvroSchemas
from hoodoo.sources.bad_messages import BadMessages

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])
TRIP = {
    "type": "record",
    "name": "Trip",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "v", "type": ["null", "string"], "default": None}],
}


def record(*fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields], **more}


def decoded(
    schemas: Sequence[Any] | SchemaRegistry,
    messages: Sequence[bytes],
    columns: pa.Schema = COLUMNS,
    unknown: bool = False,
    most: int = 10_000,
) -> tuple[pa.Table, list[int], list[dict[str, Any]], set[str]]:
    """Rows, the number of the message of each, what is bad, and what was left out."""
    registry = schemas if isinstance(schemas, SchemaRegistry) else KnownSchemas(*schemas)
    decoder = AvroDecoder("topic", columns, unknown, AvroSchemas(registry))
    bad = BadMessages("topic", most, lambda number, _: str(number))
    parts = list(decoder.rows(list(enumerate(messages)), bad))
    rows = pa.concat_tables([rows for rows, _ in parts]) if parts else columns.empty_table()
    return rows, [number for _, numbers in parts for number in numbers], bad.found, decoder.left_out


def test_rows_of_several_schemas_come_in_the_order_of_their_messages() -> None:
    newer = record(("v", "string"), ("more", "double"), ("id", "int"))
    messages = [
        wire(0, TRIP, {"id": number}) if number % 3 else wire(1, newer, {"id": number, "v": "n", "more": 1.5})
        for number in range(100)
    ]
    rows, numbers, bad, left_out = decoded([TRIP, newer], messages)
    assert rows["id"].to_pylist() == numbers == list(range(100)) and not bad and left_out == {"more"}
    assert rows["v"].to_pylist() == [None if number % 3 else "n" for number in range(100)]
    rows, *_ = decoded([TRIP, newer], messages, unknown=True)
    assert rows.schema.field("more").type == pa.float64() and rows["more"].to_pylist()[:2] == [1.5, None]


LOGICAL = {
    "d": ({"type": "int", "logicalType": "date"}, pa.date32(), dt.date(2026, 2, 3)),
    "tm": ({"type": "int", "logicalType": "time-millis"}, pa.time64("us"), dt.time(1, 2, 3, 4000)),
    "tu": ({"type": "long", "logicalType": "time-micros"}, pa.time64("us"), dt.time(1, 2, 3, 4)),
    "ms": (
        {"type": "long", "logicalType": "timestamp-millis"},
        pa.timestamp("us", "UTC"),
        dt.datetime(2026, 2, 3, 4, 5, 6, 7000, dt.UTC),
    ),
    "us": (
        {"type": "long", "logicalType": "timestamp-micros"},
        pa.timestamp("us", "UTC"),
        dt.datetime(2026, 2, 3, 4, 5, 6, 7, dt.UTC),
    ),
    "lu": (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        pa.timestamp("us"),
        dt.datetime(2026, 2, 3, 4, 5, 6, 7),
    ),
    "dec": (
        {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
        pa.decimal128(20, 4),
        Decimal("-12.345"),
    ),
    "fix": (
        {"type": "fixed", "name": "F", "size": 6, "logicalType": "decimal", "precision": 12, "scale": 3},
        pa.decimal128(12, 3),
        Decimal("12.345"),
    ),
    "u": ({"type": "string", "logicalType": "uuid"}, pa.string(), "5a7ff3d2-3a2b-4f7e-8f3e-6ff1a8d5a001"),
    "e": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, pa.string(), "B"),
    "m": ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.int32()), [("k", 1)]),
    "l": ({"type": "array", "items": ["null", "string"]}, pa.list_(pa.string()), ["x", None]),
    "r": (record(("x", "int"), ("y", ["null", "string"])), pa.struct([("x", pa.int64())]), {"x": 5}),
}


@pytest.mark.parametrize("beside", [None, ["null", "int", "string"]], ids=["together", "by_value"])
@pytest.mark.parametrize("name", LOGICAL)
def test_a_value_is_what_its_schema_says(name: str, beside: Any) -> None:
    kind, column, value = LOGICAL[name]
    schema = {**record(("id", "long"), ("v", ["null", kind]), *([("o", beside)] if beside else [])), "name": "Top"}
    sent = {"m": {"k": 1}, "r": {"x": 5, "y": "z"}}.get(name, value)
    messages = [wire(0, schema, {"id": 1, "v": sent, "o": 3}), wire(0, schema, {"id": 2, "v": None, "o": "x"})]
    rows, _, bad, _ = decoded([schema], messages, pa.schema([("id", pa.int64()), ("v", column)]))
    assert rows["v"].to_pylist() == [value, None] and not bad


def test_a_union_of_several_types_is_read_as_what_the_column_is() -> None:
    moment = {"type": "long", "logicalType": "local-timestamp-micros"}
    schema = record(("id", "long"), ("v", ["null", "string", "int", moment]))
    sent = ["x", 5, None, dt.datetime(2026, 1, 1)]
    messages = [wire(0, schema, {"id": at, "v": value}) for at, value in enumerate(sent)]
    assert decoded([schema], messages)[0]["v"].to_pylist() == ["x", None]
    assert [one["place"] for one in decoded([schema], messages)[2]] == ["1", "3"]
    number = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    assert decoded([schema], messages, number)[0]["v"].to_pylist() == [5, None]
    rows, _, bad, left_out = decoded([schema], messages, pa.schema([("id", pa.int64())]), unknown=True)
    assert rows.column_names == ["id"] and len(rows) == 4 and left_out == {"v"} and not bad


def test_a_field_that_was_renamed_goes_where_its_old_name_is() -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "text", "type": "string", "aliases": ["w", "v"]}]
    schema = record() | {"fields": fields}
    messages = [wire(0, schema, {"id": 1, "text": "x"})]
    assert decoded([schema], messages)[0].to_pylist() == [{"id": 1, "v": "x"}]
    both = record() | {"fields": [*fields, {"name": "v", "type": "string"}]}
    rows, _, _, left_out = decoded([both], [wire(0, both, {"id": 1, "text": "x", "v": "y"})])
    assert rows.to_pylist() == [{"id": 1, "v": "y"}] and left_out == {"text"}


def test_values_that_do_not_fit_their_column_are_bad_alone() -> None:
    schema = record(("id", "long"), ("v", "long"))
    columns = pa.schema([("id", pa.int64()), ("v", pa.int32())])
    messages = [wire(0, schema, {"id": at, "v": 1 << 40 if at == 7 else at}) for at in range(20)]
    rows, _, bad, _ = decoded([schema], messages, columns)
    assert len(rows) == 19 and rows["v"].type == pa.int32()
    assert [(one["place"], one["payload"]) for one in bad] == [("7", messages[7])]
    assert "is not a valid int32" in bad[0]["detail"]


def test_a_number_in_a_column_of_text_is_bad_and_no_text() -> None:
    schema = record(("id", "long"), ("v", ["null", "long"]))
    rows, _, bad, _ = decoded([schema], [wire(0, schema, {"id": 1, "v": 5}), wire(0, schema, {"id": 2, "v": None})])
    assert rows.to_pylist() == [{"id": 2, "v": None}] and [one["place"] for one in bad] == ["0"]


def test_a_row_without_a_value_of_the_key_is_bad() -> None:
    schema = record(("id", ["null", "long"]), ("v", "string"))
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    messages = [wire(0, schema, {"id": None if at == 1 else at, "v": "x"}) for at in range(3)]
    rows, numbers, bad, _ = decoded([schema], messages, columns)
    assert numbers == [0, 2] and [(one["place"], one["reason"]) for one in bad] == [("1", "null_key")]


@pytest.mark.parametrize(
    "message",
    [b"", b"\0", b"\0\0\0\0", b'{"id": 1}', b"\x01\0\0\0\0\x02\0", wire(0, TRIP, {"id": 1})[:-1]]
    + [
        wire(0, TRIP, {"id": 1}) + b"\0",
        wire(0, TRIP, {"id": 1, "v": "abc"})[:-1],
        b"\0\0\0\0\0",
        b"\0\xff\xff\xff\xff",
    ]
    + [b"\0\0\0\0\0" + b"\xff" * 12, b"\0\0\0\0\0\x02\x04", b"\0\0\0\0\0\x02\x02\x02\xff", b"\0\0\0\0\0\x02\x02\x03x"],
    ids=range(14),
)
def test_what_is_no_record_is_bad_alone(message: bytes) -> None:
    messages = [wire(0, TRIP, {"id": at, "v": "x"}) for at in range(9)]
    rows, numbers, bad, _ = decoded([TRIP], [*messages[:4], message, *messages[4:]])
    assert numbers == [0, 1, 2, 3, 5, 6, 7, 8, 9] and rows["id"].to_pylist() == list(range(9))
    assert [(one["place"], one["reason"], one["payload"]) for one in bad] == [("4", "decode", message)]


def test_a_record_has_to_end_with_its_message_also_where_its_last_field_is_not_wanted() -> None:
    sound, columns = wire(0, TRIP, {"id": 1, "v": "x"}), pa.schema([("id", pa.int64())])
    rows, _, bad, _ = decoded([TRIP], [sound, sound + b"x", sound[:-1]], columns)
    assert len(rows) == 1 and [one["place"] for one in bad] == ["1", "2"]


def test_types_that_are_read_by_value_and_others_have_names_that_do_not_meet() -> None:
    """A schema with a union of several types and several named ones was taken for none."""
    other = {"type": "record", "name": "O", "fields": [{"name": "x", "type": "int"}]}
    fixed = {"type": "fixed", "name": "F", "size": 1}
    schema = record(("id", "long"), ("o", ["null", other, fixed, "string"]), ("f", "F"), ("p", "O"), ("q", "O"))
    columns = pa.schema([("id", pa.int64()), ("f", pa.binary()), ("q", pa.struct([("x", pa.int32())]))])
    row = {"id": 1, "f": b"f", "q": {"x": 3}}
    rows, _, bad, _ = decoded([schema], [wire(0, schema, row | {"o": "x", "p": {"x": 2}})], columns)
    assert rows.to_pylist() == [row] and not bad


def test_a_decimal_in_a_union_of_several_types_is_bad_and_never_rounded() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    schema, plain_kind = (record(("id", "long"), ("v", ["null", "int", one])) for one in (kind, "bytes"))
    columns = pa.schema([("id", pa.int64()), ("v", pa.decimal128(38, 2))])
    messages = [wire(0, plain_kind, {"id": at, "v": v}) for at, v in enumerate([None, (1234567).to_bytes(4)])]
    rows, _, bad, _ = decoded([schema], messages, columns)
    assert rows["id"].to_pylist() == [0] and [one["place"] for one in bad] == ["1"]


def test_many_bad_messages_end_the_search() -> None:
    with pytest.raises(TooManyBadRows, match="too many bad rows: expected at most 50"):
        decoded([TRIP], [b"\0\0\0\0\0\xff"] * 5_000, most=50)


RECURSIVE = record(("id", "long"), ("next", ["null", "R"]))
DEEP: Any = "int"
for _ in range(100):
    DEEP = {"type": "array", "items": DEEP}
DOUBLING = record(("a", record(("x", "int")) | {"name": "N0"}))
for level in range(1, 40):
    DOUBLING = record(("a", DOUBLING | {"name": f"N{level}"}), ("b", f"N{level}"))


@pytest.mark.parametrize(
    "schema",
    ['"int"', '"null"', "[]", "{}", "7", "null", "{", '"' + "x" * (2 << 20) + '"', '["int", "string"]', "[" * 99_999]
    + [RECURSIVE, record(("id", DEEP)), DOUBLING, record(), record(("id", "long"), ("id", "int"))]
    + [record(("id", "long"), ("n", {"type": "array", "items": "null"}))]
    + [record(("id", "long"), ("n", {"type": "map", "values": record(("z", "null")) | {"name": "Z"}}))]
    + [record(("id", {"type": "fixed", "name": "F", "size": 0})), record(("id", {"type": "fixed", "name": "F"}))]
    + [record(("id", {"type": "fixed", "name": "F", "size": 1 << 40})), record(("id", "Nobody"))]
    + [record(("id", {"type": "enum", "name": "E", "symbols": []})), record(("id", [["int"]])), record(("id", []))]
    + [record(("id", {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}))]
    + [{"type": "record", "fields": []}, {"type": "record", "name": "R", "fields": [5]}, record((5, "int"))],
    ids=range(28),
)
def test_a_schema_by_which_no_row_can_be_read_sets_its_messages_aside(schema: Any) -> None:
    messages = [wire(0, TRIP, {"id": 5}), b"\0\0\0\0\x01" + b"\x02" * 5_000]
    rows, _, bad, _ = decoded([TRIP, schema], messages)
    assert rows["id"].to_pylist() == [5]
    assert [one["place"] for one in bad] == ["1"] and bad[0]["detail"].startswith("Messages of schema 1 cannot be read")


def test_a_field_that_can_only_be_null_is_none_for_the_column() -> None:
    schema = record(("id", "long"), ("v", "null"))
    assert decoded([schema], [wire(0, schema, {"id": 1, "v": None})])[0].to_pylist() == [{"id": 1, "v": None}]


def test_counts_of_arrays_that_lie_are_bad_and_take_no_time() -> None:
    schema = record(("id", "long"), ("l", {"type": "array", "items": "boolean"}))
    columns = pa.schema([("id", pa.int64()), ("l", pa.list_(pa.bool_()))])
    huge, minus = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    lies = [b"\0\0\0\0\0\x02" + count + b"\x01" * 20 for count in (huge, minus, b"\x7f", minus + huge)]
    sound = wire(0, schema, {"id": 3, "l": [True]})
    blocks = b"\0\0\0\0\0\x02" + b"\x03\x04\x01\x00" + b"\x00"  # two items by a count below 0, with their bytes
    rows, _, bad, _ = decoded([schema], [*lies, sound, blocks], columns)
    assert rows["l"].to_pylist() == [[True], [True, False]] and [one["place"] for one in bad] == ["0", "1", "2", "3"]


def test_a_decimal_of_more_digits_than_fit_is_bad_and_never_rounded() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}
    for beside in ("int", ["null", "int", "string"]):
        schema = record(("id", "long"), ("v", ["null", kind]), ("o", beside))
        columns = pa.schema([("id", pa.int64()), ("v", pa.decimal128(38, 2))])
        most, more = Decimal("9" * 36 + ".99"), Decimal("1" + "0" * 36 + ".00")
        sent = enumerate([most, more, most.copy_negate()])
        messages = [wire(0, schema, {"id": at, "v": value, "o": 1}) for at, value in sent]
        rows, _, bad, _ = decoded([schema], messages, columns)
        assert rows["v"].to_pylist() == [most, most.copy_negate()] and [one["place"] for one in bad] == ["1"]


def test_schemas_that_refer_to_others_are_read_with_them() -> None:
    class Referring(KnownSchemas):
        def schema(self, number: int) -> list[str]:
            return self.texts

    point = record(("x", "int")) | {"name": "geo.Point"}
    top = record(("id", "long"), ("p", ["null", "geo.Point"]), ("q", "geo.Point"))
    whole = record(("id", "long"), ("p", ["null", point]), ("q", "geo.Point"))
    columns = pa.schema([("id", pa.int64()), *((name, pa.struct([("x", pa.int32())])) for name in "pq")])
    row = {"id": 1, "p": {"x": 2}, "q": {"x": 3}}
    assert decoded(Referring(point, top), [wire(0, whole, row)], columns)[0].to_pylist() == [row]


# ---- random schemas
PRIMITIVES: list[tuple[Any, Any]] = [
    ("boolean", lambda at: at.random() < 0.5),
    ("int", lambda at: at.choice([0, -1, 2**31 - 1, -(2**31), at.randrange(1000)])),
    ("long", lambda at: at.choice([0, 2**63 - 1, -(2**63), at.randrange(10**6)])),
    ("float", lambda at: float(np.float32(at.uniform(-9, 9)))),
    ("double", lambda at: at.uniform(-9, 9)),
    ("string", lambda at: at.choice(["", "x", "ü" * 9, "y" * 200])),
    ("bytes", lambda at: at.randbytes(at.randrange(5))),
]


def a_type(at: random.Random, depth: int = 0) -> tuple[Any, Any]:
    """A type, and what makes a value of it."""
    kind = at.randrange(5 if depth > 2 else 11)
    if kind < 4:
        return at.choice(PRIMITIVES)
    if kind == 4:
        size, name = at.randrange(1, 9), f"N{at.getrandbits(60)}"
        return {"type": "fixed", "name": name, "size": size}, lambda at: at.randbytes(size)
    inner, make = a_type(at, depth + 1)
    if kind == 5:
        return {"type": "array", "items": inner}, lambda at: [make(at) for _ in range(at.randrange(4))]
    if kind == 6:
        return {"type": "map", "values": inner}, lambda at: {f"k{one}": make(at) for one in range(at.randrange(4))}
    if kind == 7:
        others = [a_type(at, depth + 1) for _ in range(at.randrange(1, 4))]
        fields = {f"f{one}": of for one, of in enumerate(others)}
        kinds = [{"name": name, "type": of[0]} for name, of in fields.items()]
        return (
            {"type": "record", "name": f"N{at.getrandbits(60)}", "fields": kinds},
            lambda at: {name: of[1](at) for name, of in fields.items()},
        )
    if isinstance(inner, list) or depth == 0 and kind == 10:
        return ["null", "int", "string"], lambda at: at.choice([None, 1, "x"])
    union = ["null", inner] if kind == 8 else [inner, "null"]
    return union, lambda at: None if at.random() < 0.3 else make(at)


def plain(value: Any) -> Any:
    """A value of Arrow as fastavro has it."""
    if isinstance(value, list) and value and all(isinstance(one, tuple) for one in value):
        return {key: plain(one) for key, one in value}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return value


@pytest.mark.parametrize("seed", range(sized(12, 300)))
def test_rows_are_what_fastavro_reads(seed: int) -> None:
    at = random.Random(seed)
    makes = list[dict[str, Any]]()
    schemas = list[dict[str, Any]]()
    for version in range(3):
        types = {f"c{version}_{one}": a_type(at) for one in range(at.randrange(1, 6))}
        schemas.append(record(("id", "long"), *((name, kind) for name, (kind, _) in types.items())) | {"name": "Top"})
        makes.append({name: make for name, (_, make) in types.items()})
    messages, wanted, damaged = list[bytes](), dict[int, dict[str, Any]](), set[int]()
    for number in range(60):
        which = at.randrange(3)
        value = {"id": number} | {name: make(at) for name, make in makes[which].items()}
        message = wire(which, schemas[which], value)
        if at.random() < 0.1:
            damaged.add(number)
            cut = at.randrange(5, len(message))
            message = message[:cut] + (b"" if at.random() < 0.5 else at.randbytes(len(message) - cut))
        messages.append(message)
        stream = BytesIO(message[5:])
        try:
            found = fastavro.schemaless_reader(stream, fastavro.parse_schema(schemas[which]), None)
        except Exception:
            continue
        if stream.tell() == len(message) - 5:
            wanted[number] = found
    rows, numbers, bad, left_out = decoded(schemas, messages, pa.schema([("id", pa.int64())]), unknown=True)
    assert {int(one["place"]) for one in bad} | set(numbers) == set(range(60))
    for row, number in zip(rows.to_pylist(), numbers, strict=True):
        for name, value in wanted[number].items():
            if name not in left_out:
                assert same(plain(row[name]), value), (name, row[name], value)
    # damage can make what fastavro takes, and Avro does not: an int of 64 bits, a boolean that is 7
    assert set(wanted) - set(numbers) <= damaged and len(numbers) > 40


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float):
        return bool(struct.pack(">d", found) == struct.pack(">d", wanted) or (found != found and wanted != wanted))
    if isinstance(wanted, dict):
        return len(found) == len(wanted) and all(same(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return bool(found == wanted and type(found) is type(wanted))


# ---- the registry
@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


def test_each_schema_is_asked_for_once_also_one_that_is_not_there(server: RegistryServer) -> None:
    number = server.put(TRIP)
    messages = [wire(number, TRIP, {"id": 1}), wire(99, TRIP, {"id": 2})] * 10
    rows, _, bad, _ = decoded(SchemaRegistry(server.url), messages)
    assert len(rows) == len(bad) == 10 and sorted(server.asked) == ["/schemas/ids/1000", "/schemas/ids/99"]
    assert "does not have schema 99" in bad[0]["detail"]


@pytest.mark.parametrize(("status", "kind"), [(503, SourceUnavailable), (401, OptionError), (200, OptionError)])
def test_a_registry_that_fails_sets_no_message_aside(
    server: RegistryServer, status: int, kind: type[Exception]
) -> None:
    server.instead = lambda path: (status, b"", {})
    with pytest.raises(kind):
        decoded(SchemaRegistry(server.url), [wire(1, TRIP, {"id": 1})])
