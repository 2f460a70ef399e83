"""What events of Debezium say of rows when they are Avro: values by the schema, keys, order, and what is refused."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from change_events import ID, LSN, Changes, Event, decoded, golden_events
from connect_avro import as_avro
from registry_server import KnownSchemas, wire
from tiers import sized

from hoodoo.errors import ColumnError, DataError
from hoodoo.sources import Limits, Placing
from hoodoo.sources.debezium import UNAVAILABLE

KEY = {"type": "record", "name": "shop.Key", "fields": [{"name": "id", "type": "long"}]}
MICRO = 1_769_860_800_123_456


def envelope(kind: Any, key: Any = "long", **more: Any) -> dict[str, Any]:
    """The schema of events of a table with the columns `id` and `v`."""
    value = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": key}, {"name": "v", "type": kind}]}
    source = [{"name": "connector", "type": "string"}, {"name": "lsn", "type": ["null", "long"]}]
    fields = [
        {"name": "before", "type": ["null", value], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": {"type": "record", "name": "io.debezium.Source", "fields": source}},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ]
    return {"type": "record", "name": "Envelope", "namespace": "shop", "fields": fields} | more


def event(number: int, schema: Any, op: str, key: Any, after: Any = None, before: Any = None, lsn: Any = 1) -> Event:
    """A message: its schema has that number, and that of keys has 0."""
    source = {"connector": "postgresql", "lsn": lsn}
    content = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1}
    return None if key is None else wire(0, KEY, {"id": key}), wire(number, schema, content)


def rows(
    schemas: Sequence[Any], events: Sequence[Event], *columns: tuple[str, pa.DataType], **how: Any
) -> tuple[pa.Table, pa.Table]:
    """(rows, what is bad) of events, by columns."""
    return decoded(events, *columns, registry=KnownSchemas(KEY, *schemas), **how)


def connect(base: Any, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "connect.name": name, "connect.version": 1} | more


CONNECT, DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium."
DECIMAL = {"logicalType": "decimal", "scale": 2, "precision": 64, "connect.parameters": {"scale": "2"}}
VARIABLE = {
    "type": "record",
    "name": "io.debezium.data.VariableScaleDecimal",
    "connect.name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}
VALUES: list[tuple[Any, Any, pa.DataType, Any]] = [
    (connect("int", DEBEZIUM + "time.Date"), -1, pa.date32(), dt.date(1969, 12, 31)),
    (connect("int", CONNECT + "Date", logicalType="date"), dt.date(1970, 1, 2), pa.date32(), dt.date(1970, 1, 2)),
    (connect("long", DEBEZIUM + "time.MicroTimestamp"), 5, pa.timestamp("us"), dt.datetime(1970, 1, 1, 0, 0, 0, 5)),
    (connect("long", DEBEZIUM + "time.Timestamp"), 5, pa.timestamp("us"), dt.datetime(1970, 1, 1, 0, 0, 0, 5000)),
    (connect("long", DEBEZIUM + "time.NanoTimestamp"), 5000, pa.timestamp("us"), dt.datetime(1970, 1, 1, 0, 0, 0, 5)),
    (
        connect("long", CONNECT + "Timestamp", logicalType="timestamp-millis"),
        dt.datetime(1970, 1, 1, 0, 0, 0, 5000, dt.UTC),
        pa.timestamp("us"),
        dt.datetime(1970, 1, 1, 0, 0, 0, 5000),
    ),
    (
        {"type": "long", "logicalType": "timestamp-micros"},
        dt.datetime(1970, 1, 1, 0, 0, 0, 5, dt.UTC),
        pa.timestamp("us"),
        dt.datetime(1970, 1, 1, 0, 0, 0, 5),
    ),
    (connect("long", DEBEZIUM + "time.MicroTime"), 5, pa.time64("us"), dt.time(0, 0, 0, 5)),
    (connect("int", DEBEZIUM + "time.Time"), 5, pa.time64("us"), dt.time(0, 0, 0, 5000)),
    (
        connect("string", DEBEZIUM + "time.ZonedTimestamp"),
        "2026-01-31T10:00:00+02:00",
        pa.timestamp("us", "UTC"),
        dt.datetime(2026, 1, 31, 8, tzinfo=dt.UTC),
    ),
    (connect("bytes", CONNECT + "Decimal", **DECIMAL), Decimal("-12.50"), pa.decimal128(14, 4), Decimal("-12.5000")),
    (connect("bytes", CONNECT + "Decimal", **DECIMAL), Decimal("0.01"), pa.string(), "0.01"),
    ("string", "12.50", pa.decimal128(14, 4), Decimal("12.5000")),
    ("double", 12.5, pa.decimal128(14, 4), Decimal("12.5000")),
    (VARIABLE, {"scale": 1, "value": b"\x0b"}, pa.decimal128(14, 4), Decimal("1.1000")),
    (VARIABLE, {"scale": 1, "value": b"\xf5"}, pa.string(), "-1.1"),
    ("int", 5, pa.int64(), 5),
    ("int", 5, pa.float64(), 5.0),
    ("float", 0.5, pa.float64(), 0.5),
    ("double", float("-inf"), pa.float32(), float("-inf")),
    ("boolean", True, pa.bool_(), True),
    ("bytes", b"\xde\xad", pa.binary(), b"\xde\xad"),
    ("bytes", UNAVAILABLE.encode(), pa.binary(), UNAVAILABLE.encode()),
    ("string", "3q0=", pa.binary(), b"\xde\xad"),
    (connect("string", DEBEZIUM + "data.Json"), '{"a": 1}', pa.string(), '{"a": 1}'),
    ({"type": "array", "items": ["null", "string"]}, ["x", None], pa.list_(pa.string()), ["x", None]),
    (
        {"type": "array", "items": connect("int", DEBEZIUM + "time.Date")},
        [1],
        pa.list_(pa.date32()),
        [dt.date(1970, 1, 2)],
    ),
    (
        {
            "type": "record",
            "name": "Point",
            "fields": [{"name": "x", "type": "double"}, {"name": "w", "type": "bytes"}],
        },
        {"x": 0.5, "w": b"w"},
        pa.struct([("x", pa.float64()), ("w", pa.binary()), ("srid", pa.int32())]),
        {"x": 0.5, "w": b"w", "srid": None},
    ),
]


@pytest.mark.parametrize(("kind", "sent", "column", "meant"), VALUES, ids=range(len(VALUES)))
def test_a_value_is_what_its_schema_and_its_column_say(kind: Any, sent: Any, column: pa.DataType, meant: Any) -> None:
    schema = envelope(["null", kind])
    events = [event(1, schema, "c", at, {"id": at, "v": v}) for at, v in enumerate([None, sent, None])]
    found, bad = rows([schema], events, ID, ("v", column))
    assert not len(bad), bad["detail"].to_pylist()
    assert found["v"].to_pylist() == [None, meant, None] and found["v"].type == column


@pytest.mark.parametrize(
    ("kind", "sent", "column"),
    [
        ("int", 5, pa.string()),
        ("string", "5", pa.int64()),
        ("string", "x", pa.timestamp("us", "UTC")),
        ("boolean", True, pa.int32()),
        ("int", 1, pa.bool_()),
        ("long", 1 << 40, pa.int32()),
        ("double", 1.5, pa.int64()),
        ("bytes", b"x", pa.string()),
        ("bytes", b"x", pa.decimal128(4, 2)),
        ("string", "no base64!", pa.binary()),
        (connect("bytes", CONNECT + "Decimal", **DECIMAL), Decimal("123.45"), pa.decimal128(4, 2)),
        (connect("bytes", CONNECT + "Decimal", **DECIMAL), Decimal("1.25"), pa.decimal128(4, 1)),
        (VARIABLE, {"scale": 2_000_000_000, "value": b"\x0b"}, pa.string()),
        (VARIABLE, {"scale": -2_000_000_000, "value": b"\x0b"}, pa.decimal128(14, 4)),
        (VARIABLE, {"scale": 900_000, "value": b"\x0b"}, pa.string()),
        (connect("long", DEBEZIUM + "time.MicroTimestamp"), 1 << 62, pa.timestamp("ms", "UTC")),
        ({"type": "array", "items": "int"}, [1], pa.list_(pa.string())),
        ({"type": "array", "items": "int"}, [1], pa.int64()),
    ],
    ids=range(18),
)
def test_a_value_that_its_column_does_not_have_is_bad_alone(kind: Any, sent: Any, column: pa.DataType) -> None:
    schema = envelope(["null", kind])
    events = [event(1, schema, "c", at, {"id": at, "v": v}) for at, v in enumerate([None, sent, None])]
    found, bad = rows([schema], events, ID, ("v", column))
    assert found["id"].to_pylist() == [0, 2] and bad["place"].to_pylist() == ["0:1"]
    assert "Column 'v'" in bad["detail"][0].as_py() and bad["payload"][0].as_py() == events[1][1]


def test_events_are_rows_in_order_across_schemas() -> None:
    old, new = envelope(["null", "int"]), envelope(["null", "long"])
    events = [
        event(1, old, "c", 1, {"id": 1, "v": 1}, lsn=7),
        event(2, new, "u", 1, {"id": 1, "v": 1 << 33}, {"id": 1, "v": 1}, lsn=5),
        event(2, new, "d", 2, None, {"id": 0, "v": 0}, lsn=8),
        event(1, old, "r", 3, {"id": 3, "v": None}, lsn=None),
    ]
    found, bad = rows([old, new], events, ID, ("v", pa.int64()), LSN, order_by=("_event_lsn",))
    assert not len(bad) and found.select(["id", "v", "_event_lsn", "_hoodie_is_deleted"]).to_pylist() == [
        {"id": 1, "v": 1, "_event_lsn": 7, "_hoodie_is_deleted": False},
        {"id": 1, "v": 1 << 33, "_event_lsn": 5, "_hoodie_is_deleted": False},
        {"id": 2, "v": None, "_event_lsn": 8, "_hoodie_is_deleted": True},
        {"id": 3, "v": None, "_event_lsn": 0, "_hoodie_is_deleted": False},
    ]


def test_a_delete_whose_key_is_none_is_bad_alone() -> None:
    schema = envelope("int")
    events = [event(1, schema, "d", at, None, {"id": at, "v": 0}) for at in range(50)]
    for at, key in ((7, b"\0\0\0\0\0"), (20, b'{"id": 20}'), (30, b"\0\0\0\0\x63\x02")):
        events[at] = key, events[at][1]
    found, bad = rows([schema], events, ID, ("v", pa.int32()))
    assert bad["place"].to_pylist() == ["0:7", "0:20", "0:30"] and len(found) == 47
    assert found["id"].to_pylist() == [at for at in range(50) if at not in (7, 20, 30)]


def test_events_of_another_key_or_of_none_stop_the_job() -> None:
    schema = envelope("int")
    other = {"type": "record", "name": "K", "fields": [{"name": "order", "type": "long"}]}
    value = event(1, schema, "c", 1, {"id": 1, "v": 1})[1]
    with pytest.raises(DataError, match=r"another key than the table: expected \['id'\], got \['order'\]"):
        rows([schema, other], [(wire(2, other, {"order": 1}), value)], ID)
    with pytest.raises(DataError, match="Add a primary key"):
        rows([schema], [(None, value)], ID)


def test_a_truncate_stops_the_job_or_is_passed_over() -> None:
    schema = envelope("int")
    events = [event(1, schema, "t", None), event(1, schema, "c", 1, {"id": 1, "v": 1})]
    with pytest.raises(DataError, match="was truncated"):
        rows([schema], events, ID)
    assert rows([schema], events, ID, truncate="ignore")[0]["id"].to_pylist() == [1]


def test_what_changes_no_row_is_counted_and_what_is_no_event_is_bad() -> None:
    beat = {"type": "record", "name": "Heartbeat", "fields": [{"name": "ts_ms", "type": "long"}]}
    odd = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}]}
    message = {"type": "record", "name": "M", "fields": [{"name": "op", "type": "string"}]}
    schema = envelope("int")
    sent = [wire(2, beat, {"ts_ms": 1}), wire(3, odd, {"id": 1}), wire(4, message, {"op": "m"}), b'{"op": "c"}', b""]
    sent += [wire(1, schema, {"source": {"connector": "x", "lsn": 1}, "op": op, "after": None}) for op in ("c", "z")]
    events: list[Event] = [(wire(0, KEY, {"id": 1}), one) for one in sent]
    source = Changes(events, 100, "fail", KnownSchemas(KEY, schema, beat, odd, message))
    planned = source.plan("", Limits())
    assert planned
    [part] = source.read(planned, Placing((("id",),)).noted_on(pa.schema([ID])), False)
    assert part.skipped == 2 and len(part.rows) == 0
    assert dict(zip(part.bad["place"].to_pylist(), part.bad["detail"].to_pylist(), strict=True)) == {
        "0:3": "not an Avro message: it does not start with a zero byte and a schema id",
        "0:4": "not an Avro message: it does not start with a zero byte and a schema id",
        "0:1": "Message is not a change event, because it lacks the field op",
        "0:5": "no row after the change",
        "0:6": "it is not a change event: its op is 'z'",
    }


def test_new_columns_have_the_types_of_the_schema() -> None:
    for kind, sent, meant in (
        (connect("bytes", CONNECT + "Decimal", **DECIMAL), Decimal("1.25"), pa.decimal128(38, 2)),
        (connect("int", DEBEZIUM + "time.Date"), 5, pa.date32()),
        (connect("long", DEBEZIUM + "time.MicroTimestamp"), 5, pa.timestamp("us")),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "A", pa.string()),
        ("bytes", b"x", pa.binary()),
    ):
        schema = envelope(["null", kind])
        events = [event(1, schema, "c", 1, {"id": 1, "v": sent})]
        assert rows([schema], events, ID, unknown=True)[0].schema.field("v").type == meant
        assert rows([schema], events, ID)[0].column_names == ["id", "_hoodie_is_deleted"]


def test_a_map_is_refused_by_a_table_that_wants_one() -> None:
    schema = envelope({"type": "map", "values": "int"})
    with pytest.raises(ColumnError, match="cannot contain"):
        rows(
            [schema], [event(1, schema, "c", 1, {"id": 1, "v": {"a": 1}})], ID, ("v", pa.map_(pa.string(), pa.int32()))
        )


def test_an_hstore_is_a_map_of_texts() -> None:
    schema = envelope({"type": "map", "values": "string"})
    kind = pa.map_(pa.string(), pa.string())
    found, _ = rows([schema], [event(1, schema, "c", 1, {"id": 1, "v": {"a": "b"}})], ID, ("v", kind))
    assert found["v"].to_pylist() == [[("a", "b")]]


def test_a_row_that_leaves_its_partition_is_deleted_where_it_was() -> None:
    schema = envelope("string")
    events = [event(1, schema, "u", 1, {"id": 1, "v": "new"}, {"id": 1, "v": "old"})]
    found, _ = rows([schema], events, ID, ("v", pa.string()), placed_by=("v",))
    assert found.select(["v", "_hoodie_is_deleted"]).to_pylist() == [
        {"v": "old", "_hoodie_is_deleted": True},
        {"v": "new", "_hoodie_is_deleted": False},
    ]


@pytest.mark.parametrize("seed", range(sized(8, 200)))
def test_damaged_events_are_bad_and_others_are_rows(seed: int) -> None:
    at = random.Random(seed)
    registry, events = as_avro(golden_events("rich", "orders"))
    events = [one for one in events if one[1] is not None]
    damaged = set[int]()
    for _ in range(4):
        number = at.randrange(len(events))
        key, value = events[number]
        assert value is not None
        where = at.randrange(len(value))
        events[number] = key, value[:where] + at.randbytes(at.randrange(3)) + value[where + at.randrange(3) :]
        damaged.add(number)
    columns = pa.schema([ID, ("status", pa.string()), ("at", pa.timestamp("us")), ("tags", pa.list_(pa.string())), LSN])
    source = Changes(events, 1_000, "ignore", registry)
    planned = source.plan("", Limits())
    assert planned
    [part] = source.read(planned, Placing((("id",),), (), ("_event_lsn",)).noted_on(columns), False)
    places = {int(place.partition(":")[2]) for place in part.bad["place"].to_pylist()}
    sound = len([one for one in golden_events("rich", "orders") if one[1] is not None]) - len(damaged)
    assert len(places - damaged) <= 1, "the moment of the year 0"
    assert len(part.rows) >= sound - 1
