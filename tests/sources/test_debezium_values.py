"""What a value of a Debezium event is in a column of a type."""

from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from change_events import ID, change, decoded, sent

from hoodoo.errors import ColumnError, OptionError
from hoodoo.sources.debezium_schemas import read_column_descriptions
from hoodoo.sources.debezium_values import convert_event_values


def values(kind: pa.DataType, *sent_values: Any, said: dict[str, Any] | None = None) -> list[Any]:
    """What a column of a type gets from values, with the field of a schema or without."""
    events = []
    for number, value in enumerate(sent_values):
        key, content = change("c", {"id": number}, {"id": number, "v": value})
        assert content
        if said is not None:
            fields = [{"type": "int64", "field": "id"}, {"field": "v", **said}]
            schema = {"type": "struct", "fields": [{"type": "struct", "fields": fields, "field": "after"}]}
            content = sent({"schema": schema, "payload": json.loads(content)})
        events.append((key, content))
    found, bad = decoded(events, ID, ("v", kind))
    assert not len(bad), bad["detail"].to_pylist()
    result: list[Any] = found["v"].to_pylist()
    return result


@pytest.mark.parametrize(
    ("kind", "value", "meant"),
    [
        (pa.date32(), -1, dt.date(1969, 12, 31)),
        (pa.timestamp("us"), 1_769_860_800_123_456, dt.datetime(2026, 1, 31, 12, 0, 0, 123456)),
        (pa.timestamp("ms"), 1_769_860_800_123, dt.datetime(2026, 1, 31, 12, 0, 0, 123000)),
        (pa.timestamp("us", "UTC"), "2026-01-31T10:00:00.5Z", dt.datetime(2026, 1, 31, 10, 0, 0, 500000, dt.UTC)),
        (pa.timestamp("us", "UTC"), "2026-01-31T10:00:00+02:00", dt.datetime(2026, 1, 31, 8, tzinfo=dt.UTC)),
        (pa.time64("us"), 86_399_999_999, dt.time(23, 59, 59, 999999)),
        (pa.decimal128(14, 4), "12.50", Decimal("12.5000")),
        (pa.decimal128(14, 4), {"scale": 1, "value": "Cw=="}, Decimal("1.1000")),
        (pa.decimal128(14, 4), 12.5, Decimal("12.5000")),
        (pa.string(), {"scale": 1, "value": "Cw=="}, "1.1"),
        (pa.float64(), "-Infinity", float("-inf")),
        (pa.float32(), 1.1, pa.scalar(1.1, pa.float32()).as_py()),
        (pa.binary(), "3q2+7w==", bytes.fromhex("deadbeef")),
        (pa.list_(pa.string()), ["x", None, "y z"], ["x", None, "y z"]),
        (pa.list_(pa.date32()), [0, 1], [dt.date(1970, 1, 1), dt.date(1970, 1, 2)]),
        (pa.struct([("x", pa.float64()), ("d", pa.date32())]), {"x": 1, "d": 1}, {"x": 1.0, "d": dt.date(1970, 1, 2)}),
        (pa.string(), '{"a": [1, null]}', '{"a": [1, null]}'),
        (pa.bool_(), True, True),
        (pa.int32(), -5, -5),
    ],
)
def test_a_value_is_what_its_column_says(kind: pa.DataType, value: Any, meant: Any) -> None:
    assert values(kind, None, value, None) == [None, meant, None]


@pytest.mark.parametrize(
    ("kind", "value", "said", "meant"),
    [
        (pa.timestamp("us"), 5, "org.apache.kafka.connect.data.Timestamp", dt.datetime(1970, 1, 1, 0, 0, 0, 5000)),
        (pa.timestamp("us"), 5, "io.debezium.time.Timestamp", dt.datetime(1970, 1, 1, 0, 0, 0, 5000)),
        (pa.timestamp("us"), 5, "io.debezium.time.MicroTimestamp", dt.datetime(1970, 1, 1, 0, 0, 0, 5)),
        (pa.timestamp("ms"), 5000, "io.debezium.time.MicroTimestamp", dt.datetime(1970, 1, 1, 0, 0, 0, 5000)),
        (pa.time64("us"), 5, "io.debezium.time.Time", dt.time(0, 0, 0, 5000)),
    ],
)
def test_a_schema_says_the_unit_of_a_time(kind: pa.DataType, value: int, said: str, meant: Any) -> None:
    assert values(kind, value, None, said={"type": "int64", "name": said}) == [meant, None]


@pytest.mark.parametrize("number", ["12.50", "-0.01", "0.00", "99999999999999999999.99"])
def test_a_schema_says_the_scale_of_a_decimal_in_bytes(number: str) -> None:
    unscaled = int(Decimal(number).scaleb(2))
    content = base64.b64encode(unscaled.to_bytes(12, "big", signed=True)).decode()
    said = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
    assert values(pa.decimal128(30, 4), content, said=said) == [Decimal(number)]
    assert values(pa.string(), content, said=said) == [number]


@pytest.mark.parametrize(
    ("kind", "sent_as"),
    [
        (pa.timestamp("us", "UTC"), ("infinity", "-infinity")),
        (pa.timestamp("us"), (9_223_372_036_825_200_000, -9_223_372_036_832_400_000)),
        (pa.timestamp("ms"), (9_223_372_036_825_200, -9_223_372_036_832_400)),
    ],
)
def test_infinity_is_the_last_moment_that_a_table_holds(kind: pa.DataType, sent_as: tuple[Any, Any]) -> None:
    last, first, _ = values(kind, *sent_as, None)
    assert (last.year, last.month, last.second) == (9999, 12, 59)
    assert first.replace(tzinfo=None) == dt.datetime(1, 1, 1)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int32(), "5"),
        (pa.int32(), 5.5),
        (pa.int32(), 1 << 40),
        (pa.string(), 5),
        (pa.bool_(), 1),
        (pa.float64(), "much"),
        (pa.timestamp("ms", "UTC"), "yesterday"),
        (pa.timestamp("us", "UTC"), 5),
        (pa.decimal128(4, 2), "12.505"),
        (pa.binary(), "no base64!"),
        (pa.list_(pa.int32()), [1, "x"]),
    ],
)
def test_a_value_that_is_none_of_its_column_is_known_by_its_message(kind: pa.DataType, value: Any) -> None:
    events = [change("c", {"id": number}, {"id": number, "v": None}) for number in range(5)]
    events[3] = change("c", {"id": 3}, {"id": 3, "v": value})
    found, bad = decoded(events, ID, ("v", kind))
    assert found["id"].to_pylist() == [0, 1, 2, 4]
    assert bad["place"].to_pylist() == ["0:3"] and bad["payload"].to_pylist() == [events[3][1]]
    assert "'v'" in bad["detail"][0].as_py()


@pytest.mark.parametrize(
    ("kind", "number", "wanted"),
    [
        (pa.timestamp("us"), 1_769_860_800_123, None),
        (pa.timestamp("us"), -1_769_860_800_123, None),
        (pa.timestamp("us"), 1_769_860_800_123_456, dt.datetime(2026, 1, 31, 12, 0, 0, 123456)),
        (pa.timestamp("us"), 253_402_300_799_999, None),  # the end of the year 9999, an open end: it became 1978
        (pa.timestamp("us"), 253_402_300_800_000, dt.datetime(1978, 1, 11, 21, 31, 40, 800000)),
        (pa.timestamp("ms"), 253_402_214_400_000, dt.datetime(9999, 12, 31)),
        (pa.timestamp("us"), 0, dt.datetime(1970, 1, 1)),
        (pa.time64("us"), 43_201_000, None),
        (pa.time64("us"), 43_201_000_000, dt.time(12, 0, 1)),
        (pa.time64("us"), 0, dt.time(0)),
    ],
)
def test_a_time_without_a_schema_that_may_be_milliseconds_is_bad(kind: pa.DataType, number: int, wanted: Any) -> None:
    found, bad = decoded([change("c", {"id": 1}, {"id": 1, "v": number})], ID, ("v", kind))
    if wanted is None:
        assert not len(found) and "the event has no schema: expected milliseconds" in bad["detail"][0].as_py()
    else:
        assert found["v"].to_pylist() == [wanted]


@pytest.mark.parametrize("unit", ["ms", {"v": "ms", "w": "ms"}, {"": "us", "v": "ms", "w": "ms"}])
def test_the_unit_of_times_without_a_schema_can_be_set(unit: Any) -> None:
    at, clock = 1_769_860_800_123, 43_201_000
    events = [change("c", {"id": 1}, {"id": 1, "v": [at], "w": clock})]
    columns = (ID, ("v", pa.list_(pa.timestamp("us"))), ("w", pa.time64("us")))
    found, _ = decoded(events, *columns, time_unit=unit)
    assert found["v"].to_pylist() == [[dt.datetime(2026, 1, 31, 12, 0, 0, 123000)]]
    assert found["w"].to_pylist() == [dt.time(12, 0, 1)]


def test_the_unit_of_a_schema_counts_before_one_that_is_set() -> None:
    fields = [{"field": "id", "type": "int64"}, {"field": "v", "type": "int64", "name": "io.debezium.time.Timestamp"}]
    after = {"field": "after", "type": "struct", "fields": fields}
    key, content = change("c", {"id": 1}, {"id": 1, "v": 1_769_860_800_123})
    value = sent({"schema": {"type": "struct", "fields": [after]}, "payload": json.loads(content or b"")})
    found, _ = decoded([(key, value)], ID, ("v", pa.timestamp("us")), time_unit="us")
    assert found["v"].to_pylist() == [dt.datetime(2026, 1, 31, 12, 0, 0, 123000)]


def test_a_unit_that_is_not_one_or_of_another_column_is_refused() -> None:
    for unit in ("s", {"v": 1}, 5):
        with pytest.raises(OptionError, match="time_unit is not valid: expected 'ms', 'us' or 'ns'"):
            decoded([], ID, time_unit=unit)
    for columns in ((ID,), (ID, ("v", pa.string()))):
        with pytest.raises(ColumnError, match="Column 'v' cannot have a time_unit"):
            decoded([change("c", {"id": 1}, {"id": 1})], *columns, time_unit={"v": "ms"})


def test_items_of_lists_are_what_their_schema_says() -> None:
    items = {"type": "int64", "name": "io.debezium.time.Timestamp", "optional": True}
    [said] = read_column_descriptions({"fields": [{"field": "v", "type": "array", "items": items}]}).values()  # type: ignore[union-attr]
    field = pa.field("v", pa.list_(pa.timestamp("us")))
    assert convert_event_values(pa.array([[1_769_860_800_123]]), field, said).to_pylist() == [
        [dt.datetime(2026, 1, 31, 12, 0, 0, 123000)]
    ]


def test_an_infinite_date_is_the_last_or_the_first_day_that_a_table_holds() -> None:
    days = [-622_191_234, -625_821_272, 20_000, None]
    found, _ = decoded([change("c", {"id": 1}, {"id": 1, "v": one}) for one in days], ID, ("v", pa.date32()))
    assert found["v"].to_pylist() == [dt.date(9999, 12, 31), dt.date(1, 1, 1), dt.date(2024, 10, 4), None]


@pytest.mark.parametrize("meaning", ["", "io.debezium.data.Bits"])
def test_bytes_are_bad_in_a_string_column_and_never_base64(meaning: str) -> None:
    """Values of bit(9), tsvector and pg_lsn were stored in base64."""
    named = {"name": meaning, "parameters": {"length": "9"}} if meaning else {}
    said = {"type": "bytes", **named}
    assert values(pa.binary(), "/wE=", None, said=said) == [b"\xff\x01", None]
    with pytest.raises(AssertionError, match="bytes, but the column is not binary"):
        values(pa.string(), "/wE=", said=said)
    assert values(pa.string(), None, said=said) == [None]
