"""What events of Debezium say of rows: values, keys, order, and what is refused before anything is written."""

from __future__ import annotations

import base64
import datetime as dt
import json
import random
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from change_events import Changes, Event, change, golden_events, sent
from tiers import sized

import hoodoo
from hoodoo.errors import ColumnError, DataError, OptionError, TooManyBadRows
from hoodoo.sources import Kafka, Limits, Placing
from hoodoo.sources.bad_messages import BadMessages
from hoodoo.sources.debezium import UNAVAILABLE
from hoodoo.sources.debezium_events import EventReader
from hoodoo.sources.debezium_messages import Messages
from hoodoo.sources.debezium_values import meant

ID = ("id", pa.int64())
LSN = ("_event_lsn", pa.int64())


def rows(events: Sequence[Event], *columns: tuple[str, pa.DataType], key: Sequence[str] = ("id",), **how: Any) -> Any:
    """(rows, what is bad) of events, by columns."""
    schema = pa.schema(columns).append(pa.field("_hoodie_is_deleted", pa.bool_()))
    placing = Placing(tuple((name,) for name in key), how.pop("placed_by", ()), how.pop("order_by", ()))
    source = Changes(events, **{name: how.pop(name) for name in ("truncate",) if name in how})
    planned = source.plan("", Limits())
    assert planned is not None
    [part] = source.read(planned, placing.noted_on(schema), how.pop("unknown", False))
    return part.rows, part.bad


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
    found, bad = rows(events, ID, ("v", kind))
    assert not len(bad), bad["detail"].to_pylist()
    result: list[Any] = found["v"].to_pylist()
    return result


# ---- values
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
    found, bad = rows(events, ID, ("v", kind))
    assert found["id"].to_pylist() == [0, 1, 2, 4]
    assert bad["place"].to_pylist() == ["0:3"] and bad["payload"].to_pylist() == [events[3][1]]
    assert "'v'" in bad["detail"][0].as_py()


# ---- messages
def test_what_is_no_event_is_set_aside_and_what_changes_no_row_is_passed_over() -> None:
    good = change("c", {"id": 1}, {"id": 1})
    nothing = [{"ts_ms": 1}, {"status": "BEGIN", "id": "7:1", "event_count": None}, {"op": "m", "message": {}}]
    strange = [b"no json", b"null", b"7", b'{"id": 2}', b'{"op": 7}', b'{"op": "x"}', b'{"op": "c", "after": null}']
    event = good[1] or b""
    strange += [event[:-1], event * 2, b'{"op": "c", "after": [1]}', b"", b'{"payload": ' + event + b', "schema": {}}']
    events = [good, *((b'{"id":9}', sent(one)) for one in nothing), *((b'{"id":9}', one) for one in strange)]
    found, bad = rows(events, ID)
    assert found["id"].to_pylist() == [1]
    assert sorted(bad["payload"].to_pylist()) == sorted(strange)


def test_events_with_schemas_and_without_may_follow_each_other() -> None:
    plain = [change("c", {"id": number}, {"id": number}) for number in range(6)]
    schema = {"type": "struct", "fields": []}
    other = {"type": "struct", "fields": [], "name": "other"}
    wrapped = {2: schema, 3: schema, 4: other}
    events = [
        (
            key if at != 3 else sent({"schema": schema, "payload": {"id": 3}}),
            sent({"schema": wrapped[at], "payload": json.loads(value or b"")}) if at in wrapped else value,
        )
        for at, (key, value) in enumerate(plain)
    ]
    turned = sent({"payload": json.loads(plain[5][1] or b""), "schema": None})
    found, bad = rows([*events[:5], (events[5][0], turned)], ID)
    assert (found["id"].to_pylist(), len(bad)) == ([0, 1, 2, 3, 4, 5], 0)


def test_a_delete_has_the_key_of_its_message_and_not_what_stands_before_it() -> None:
    before = {"id": 0, "name": "", "v": None}
    found, bad = rows([change("d", {"id": 7}, before=before, lsn=5)], ID, ("name", pa.string()), LSN)
    assert found.to_pylist() == [{"id": 7, "name": None, "_event_lsn": 5, "_hoodie_is_deleted": True}]
    wrapped = sent({"schema": {"type": "struct", "fields": []}, "payload": {"id": 8}})
    found, _ = rows([(wrapped, change("d", None, before=before)[1])], ID)
    assert found["id"].to_pylist() == [8] and not len(bad)
    found, bad = rows([(b"8", change("d", None, before=before)[1]), change("d", {"id": 9}, before=before)], ID)
    assert found["id"].to_pylist() == [9] and bad["place"].to_pylist() == ["0:0"]


def test_a_key_may_be_a_number_that_says_its_own_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hoodoo.sources.debezium.AT_ONCE", 2)

    def sent_as(number: int) -> dict[str, Any]:
        return {"scale": 0, "value": base64.b64encode(bytes([number])).decode()}

    events = [change("c", {"id": sent_as(number)}, {"id": sent_as(number)}) for number in (1, 2, 3)]
    events.append(change("d", {"id": sent_as(2)}))
    found, bad = rows(events, ("id", pa.decimal128(10, 0)))
    assert found["id"].to_pylist() == [1, 2, 3, 2] and not len(bad)


def test_numbers_that_say_their_own_scale_are_read_together_once_one_was_met() -> None:
    """Each block was read one by one, by a tenth of the speed."""
    events = [change("c", {"id": at}, {"id": at, "v": {"scale": 1, "value": "Cw=="}, "w": None}) for at in range(9)]
    schema = {
        "id": pa.field("id", pa.int64()),
        "v": pa.field("v", pa.decimal128(9, 2)),
        "w": pa.field("w", pa.string()),
    }
    reader = EventReader(schema, False, False)
    payloads = [value or b"" for _, value in events]
    some = Messages(range(9), [None] * 9, payloads, payloads)
    assert reader._together(some) is None
    [first] = reader.events(some, BadMessages("t", 0, str))
    again = reader._together(some)
    assert again is not None
    for one in (first, again):
        assert meant(one.after["v"], schema["v"], None).to_pylist() == [Decimal("1.10")] * 9
    found, bad = rows(
        [*events, change("c", {"id": 9}, {"id": 9, "v": {"scale": 9, "value": "Cw=="}})], ID, ("v", pa.decimal128(9, 2))
    )
    assert (len(found), bad["place"].to_pylist()) == (9, ["0:9"])


def test_changes_have_the_place_in_the_log_of_their_database() -> None:
    found, _ = rows([change("c", {"id": 1}, {"id": 1}, lsn=22_351_432)], ID, LSN)
    assert found["_event_lsn"].to_pylist() == [22_351_432]
    places = [("mysql-bin.000009", 900, 1), ("mysql-bin.000010", 4, 0), ("mysql-bin.000010", 4, 2)]
    events = [
        change("c", {"id": at}, {"id": at}, None, None, "mysql", file=file, pos=pos, row=row)
        for at, (file, pos, row) in enumerate(places)
    ]
    found, _ = rows(events, ID, ("_event_seq", pa.int64()))
    order = found["_event_seq"].to_pylist()
    assert order == sorted(order) and order[1] == (10 << 40) + (4 << 8)
    assert "_event_seq" not in rows(events, ID)[0].column_names
    with pytest.raises(DataError, match="events of the connector 'mysql' do not say"):
        rows(events, ID, LSN)


def test_a_row_that_was_read_without_a_place_comes_before_all_changes() -> None:
    found, bad = rows([change("r", {"id": 1}, {"id": 1}, lsn=None), change("c", {"id": 2}, {"id": 2}, lsn=3)], ID, LSN)
    assert found["_event_lsn"].to_pylist() == [0, 3] and not len(bad)


def test_a_schema_says_what_a_new_column_is(tmp_path: Path) -> None:
    """Without it bytes of a decimal were text, and moments numbers."""
    epoch = dt.datetime(1970, 1, 1)
    kinds = {
        "price": ("bytes", "org.apache.kafka.connect.data.Decimal", "BBo=", Decimal("10.50")),
        "at": ("int64", "io.debezium.time.MicroTimestamp", 5, epoch.replace(microsecond=5)),
        "day": ("int32", "io.debezium.time.Date", 1, dt.date(1970, 1, 2)),
        "zoned": ("string", "io.debezium.time.ZonedTimestamp", "1970-01-01T00:00:00Z", epoch.replace(tzinfo=dt.UTC)),
        "t": ("int32", "io.debezium.time.Time", 5, dt.time(0, 0, 0, 5000)),
        "raw": ("bytes", None, "3q0=", bytes.fromhex("dead")),
        "small": ("int16", None, 5, 5),
    }
    fields: list[dict[str, Any]] = [{"type": "int64", "field": "id"}]
    for name, (kind, meaning, _, _) in kinds.items():
        fields.append({"type": kind, "name": meaning, "parameters": {"scale": "2"}, "field": name})
    schema = {"type": "struct", "fields": [{"type": "struct", "fields": fields, "field": "after"}]}
    _, content = change("c", {"id": 1}, {"id": 1, **{name: sent_as for name, (_, _, sent_as, _) in kinds.items()}})
    event = (b'{"id":1}', sent({"schema": schema, "payload": json.loads(content or b"")}))
    table = hoodoo.create(tmp_path / "t", {"id": "bigint"}, key="id")
    hoodoo.ingest(Changes([event]), table, new_columns="add").run()
    assert table.scan().to_arrow().to_pylist() == [{"id": 1} | {name: meant for name, (*_, meant) in kinds.items()}]


def test_a_table_may_call_columns_by_other_names(tmp_path: Path) -> None:
    schema = pa.schema([("Order Id", pa.int64()), ("The Part", pa.string()), ("Note!", pa.string())])
    table = hoodoo.create(tmp_path / "t", schema, key="Order Id", partition_by="The Part", rename="snake")
    rows_sent = [{"Order Id": number, "The Part": "a", "Note!": "n"} for number in (1, 2)]
    events = [change("c", {"Order Id": one["Order Id"]}, one) for one in rows_sent]
    events.append(change("d", {"Order Id": 1}, None, rows_sent[0]))
    hoodoo.ingest(Changes(events, 2), table).run()
    assert table.scan().to_arrow().to_pylist() == [{"order_id": 2, "the_part": "a", "note": "n"}]


# ---- what cannot be followed
def test_the_key_of_messages_has_to_be_that_of_the_table() -> None:
    event = change("c", {"id": 1}, {"id": 1, "part": "a"})
    with pytest.raises(DataError, match=r"messages have the key \['id'\] and the table has \['id', 'part'\]"):
        rows([event], ID, ("part", pa.string()), key=["id", "part"])
    with pytest.raises(DataError, match="The source table needs a primary key"):
        rows([change("c", None, {"id": 1})], ID)


def test_a_table_that_is_ordered_by_a_column_of_its_own_cannot_follow_deletes() -> None:
    with pytest.raises(ColumnError, match="ordered by 'ts', and an event of a delete does not say"):
        rows([change("c", {"id": 1}, {"id": 1, "ts": 1})], ID, ("ts", pa.int64()), order_by=("ts",))


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_changes_are_taken_by_upserts_only(tmp_path: Path, operation: str) -> None:
    table = hoodoo.create(tmp_path / "t", {"id": "bigint"}, key="id")
    with pytest.raises(OptionError, match="The source brings changes of rows"):
        hoodoo.ingest(Changes([change("c", {"id": 1}, {"id": 1})]), table, operation=operation).run()


def test_a_table_emptied_by_the_database_stops_the_job_or_keeps_its_rows() -> None:
    events = [change("c", {"id": 1}, {"id": 1}), change("t", None)]
    with pytest.raises(DataError, match="was truncated"):
        rows(events, ID)
    assert len(rows(events, ID, truncate="ignore")[0]) == 1


# ---- partitions
PART = ("part", pa.string())


@pytest.mark.parametrize(
    "event",
    [
        change("d", {"id": 1}, before={"id": 1, "part": "", "n": 0}),
        change("d", {"id": 1}, before={"id": 1, "part": None, "n": None}),
        change("u", {"id": 1}, {"id": 1, "part": "b", "n": 1}),
    ],
)
def test_a_partition_that_events_do_not_say_is_refused(event: Event) -> None:
    with pytest.raises(DataError, match="REPLICA IDENTITY FULL"):
        rows([event], ID, PART, ("n", pa.int32()), placed_by=("part",))


def test_a_row_that_leaves_its_partition_is_deleted_there(tmp_path: Path) -> None:
    schema = pa.schema([ID, PART, ("n", pa.int32()), LSN])
    table = hoodoo.create(tmp_path / "t", schema, key="id", partition_by="part", order_by="_event_lsn")
    olds = [{"id": number, "part": "a", "n": 1} for number in (1, 2, 3)]
    events = [change("c", {"id": one["id"]}, one, lsn=1) for one in olds]
    events += [
        change("u", {"id": 1}, {"id": 1, "part": "b", "n": 2}, olds[0], lsn=2),
        change("u", {"id": 2}, {"id": 2, "part": "a", "n": 3}, olds[1], lsn=3),
        change("d", {"id": 3}, None, olds[2], lsn=4),
    ]
    for at_once in (1, 6):
        hoodoo.ingest(Changes(events, at_once), table, name=str(at_once)).run()
        assert sorted((one["id"], one["part"], one["n"]) for one in table.scan().to_arrow().to_pylist()) == [
            (1, "b", 2),
            (2, "a", 3),
        ]


def test_a_partition_that_is_made_of_a_column_is_told_by_that_column(tmp_path: Path) -> None:
    schema = pa.schema([ID, ("day", pa.date32()), ("note", pa.string()), LSN])
    table = hoodoo.create(
        tmp_path / "t", schema, key="id", partition_by=hoodoo.month("day"), order_by="_event_lsn", clean_every=None
    )
    olds = [{"id": number, "day": 20_000, "note": "n"} for number in (1, 2, 3)]
    events = [change("c", {"id": one["id"]}, one, lsn=1) for one in olds]
    events += [
        change("u", {"id": 1}, {**olds[0], "day": 20_001, "note": UNAVAILABLE}, olds[0], lsn=2),
        change("u", {"id": 2}, {**olds[1], "day": 20_100}, olds[1], lsn=3),
        change("d", {"id": 3}, None, olds[2], lsn=4),
    ]
    for at_once in (1, 6):
        assert hoodoo.ingest(Changes(events, at_once), table, name=str(at_once)).run().bad == 0
        found = {one["id"]: (one["day"].month, one["note"]) for one in table.scan().to_arrow().to_pylist()}
        assert found == {1: (10, "n"), 2: (1, "n")}


# ---- values that were not sent
@pytest.fixture
def notes(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(
        tmp_path / "t", pa.schema([ID, ("note", pa.string()), ("n", pa.int32()), LSN]), key="id", order_by="_event_lsn"
    )


def note(op: str, number: int, text: str, n: int, lsn: int) -> Event:
    return change(op, {"id": number}, {"id": number, "note": text, "n": n}, lsn=lsn)


def test_a_value_that_was_not_sent_is_that_of_an_earlier_event_or_of_the_table(notes: hoodoo.Table) -> None:
    events = [note("c", 1, "one", 1, 1), note("u", 1, UNAVAILABLE, 2, 2), note("c", 2, "two", 1, 3)]
    hoodoo.ingest(Changes(events), notes, name="first").run()
    hoodoo.ingest(Changes([note("u", 2, UNAVAILABLE, 3, 4)]), notes, name="second").run()
    found = {one["id"]: (one["note"], one["n"]) for one in notes.scan().to_arrow().to_pylist()}
    assert found == {1: ("one", 2), 2: ("two", 3)}


def test_a_value_that_nobody_has_sets_its_row_aside_and_no_other(notes: hoodoo.Table) -> None:
    """Until then such a row failed the batch, and with it the job."""
    events = [
        note("u", 1, UNAVAILABLE, 1, 1),  # nobody has its note
        note("c", 2, "two", 1, 2),
        note("u", 3, UNAVAILABLE, 1, 3),  # a later event has
        note("u", 3, "three", 2, 4),
        note("c", 4, "four", 1, 5),
        change("d", {"id": 4}, before={"id": 4, "note": None, "n": None}, lsn=6),
        note("u", 4, UNAVAILABLE, 2, 7),  # it was deleted in between
        note("u", 5, UNAVAILABLE, 1, 8),  # deleted behind it
        change("d", {"id": 5}, before={"id": 5, "note": None, "n": None}, lsn=9),
    ]
    report = hoodoo.ingest(Changes(events), notes).run()
    found = {one["id"]: one["note"] for one in notes.scan().to_arrow().to_pylist()}
    assert found == {2: "two", 3: "three"} and report.bad == 2
    aside = notes.quarantine().rows().to_pylist()
    assert {one["reason"] for one in aside} == {"unavailable"}
    assert sorted(json.loads(one["payload"])["id"] for one in aside) == [1, 4]
    assert "Column 'note' was not sent for the key" in aside[0]["detail"]
    again = hoodoo.ingest(Changes(events), notes, name="again").run()
    assert again.bad == 2 and len(notes.quarantine().rows()) == 4


def test_other_bad_rows_of_such_a_batch_are_set_aside_too(tmp_path: Path) -> None:
    schema = pa.schema([ID, ("note", pa.string()), ("n", pa.int32()), LSN])
    table = hoodoo.create(tmp_path / "t", schema, key="id", order_by="_event_lsn", checks={"positive": "n > 0"})
    events = [note("c", 1, "one", 1, 1), note("u", 1, UNAVAILABLE, 2, 2), note("c", 2, "two", -1, 3)]
    assert hoodoo.ingest(Changes(events), table).run().bad == 1
    assert [(one["id"], one["note"]) for one in table.scan().to_arrow().to_pylist()] == [(1, "one")]
    with pytest.raises(TooManyBadRows):
        hoodoo.ingest(Changes([note("u", 9, UNAVAILABLE, 1, 9)]), table, name="strict", max_bad_rows=0).run()


def test_a_transformation_sees_what_stands_for_a_value_and_the_stored_one_is_kept(notes: hoodoo.Table) -> None:
    seen = list[str]()

    def doubled(batch: pa.Table) -> pa.Table:
        seen.extend(batch["note"].to_pylist())
        twice = pa.array([2 * one for one in batch["n"].to_pylist()], pa.int32())
        return batch.set_column(batch.column_names.index("n"), "n", twice)

    events = [note("c", 1, "one", 1, 1), note("u", 1, UNAVAILABLE, 2, 2)]
    hoodoo.ingest(Changes(events, 1), notes, transform=doubled).run()
    assert seen == ["one", UNAVAILABLE]
    assert notes.scan(["note", "n"]).to_arrow().to_pylist() == [{"note": "one", "n": 4}]


def test_a_batch_may_bring_a_new_column_and_lack_a_value(notes: hoodoo.Table) -> None:
    more = {"id": 1, "note": UNAVAILABLE, "n": 2, "extra": "x"}
    events = [note("c", 1, "one", 1, 1), change("u", {"id": 1}, more, lsn=2)]
    hoodoo.ingest(Changes(events, 1), notes, new_columns="add").run()
    assert notes.scan(["note", "n", "extra"]).to_arrow().to_pylist() == [{"note": "one", "n": 2, "extra": "x"}]


# ---- the topic
@pytest.mark.parametrize(
    "wrong", [{"format": "debezium"}, {"truncate": "empty"}, {"before": "none"}, {"unavailable": ""}]
)
def test_a_wrong_argument_of_a_topic_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError) as refused:
        Kafka("broker:9092", "t", **wrong)
    assert refused.value.details["option"] == next(iter(wrong))


@pytest.mark.parametrize("run", ["plain", "rich"])
@pytest.mark.parametrize("name", ["orders", "lines", "toast"])
def test_the_careful_way_reads_what_the_fast_way_reads(monkeypatch: pytest.MonkeyPatch, run: str, name: str) -> None:
    """Whether a neighbour is refused must not change what an event says."""
    lists = {"tags": pa.list_(pa.string()), "ia": pa.list_(pa.int32())}
    columns = {
        "orders": [
            ID,
            ("weight", pa.float32()),
            ("at", pa.timestamp("us")),
            ("tags", lists["tags"]),
            ("raw", pa.binary()),
        ],
        "lines": [("order_id", pa.int64()), ("line", pa.int32()), ("price", pa.decimal128(38, 6)), ("qty", pa.int32())],
        "toast": [ID, ("j", pa.string()), ("ia", lists["ia"]), ("x", pa.int64())],
    }[name]
    key = ["order_id", "line"] if name == "lines" else ["id"]
    events = golden_events(run, name)
    alone = [rows([event], *columns, LSN, key=key, truncate="ignore")[0] for event in events if event[1] is not None]
    fast = pa.concat_tables([one for one in alone if len(one)], promote_options="permissive")
    monkeypatch.setattr(EventReader, "_together", lambda self, some: None)
    careful = rows(events, *columns, LSN, key=key, truncate="ignore")[0]
    assert str(fast.select(careful.column_names).to_pylist()) == str(careful.to_pylist())  # NaN is not equal to itself


# ---- damage
_PIECES = [b"{", b"}", b"\n", b"\r\n", b'"', b"[", b",", b"null", b"\\", b"\x00", b"\xb4", b"}{"]
_VALUES = [None, True, -1, 1 << 70, 1.5, "", "NaN", [], [None], {}, {"scale": "x", "value": 3}, "\ud800", "infinity"]


def broken(content: bytes, rng: random.Random) -> bytes:
    """Bytes of which some are others, or JSON of which some value is another one."""
    if rng.random() < 0.5:
        event = json.loads(content)
        holder: Any = event
        while True:
            name = rng.choice(list(holder))
            if not isinstance(holder[name], dict) or not holder[name] or rng.random() < 0.2:
                break
            holder = holder[name]
        if rng.random() < 0.3:
            del holder[name]
        else:
            holder[name] = rng.choice(_VALUES)
        return json.dumps(event, separators=(",", ":")).encode()
    at = rng.randrange(len(content))
    return content[:at] + rng.choice(_PIECES) + content[at + rng.randrange(4) :]


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("name", ["orders", "lines"])
def test_a_broken_event_is_a_row_or_set_aside_and_changes_no_other(name: str, unknown: bool) -> None:
    """Some text that is no JSON, and bytes that are no UTF-8, pass Arrow's reader: this ended in errors of Python."""
    rng = random.Random(11)
    columns = {
        "orders": [
            ID,
            ("weight", pa.float32()),
            ("at", pa.timestamp("us")),
            ("doc", pa.string()),
            ("raw", pa.binary()),
        ],
        "lines": [
            ("order_id", pa.int64()),
            ("line", pa.int32()),
            ("price", pa.decimal128(38, 6)),
            ("sku", pa.string()),
        ],
    }[name]
    key = ["order_id", "line"] if name == "lines" else ["id"]
    events = [one for one in golden_events("plain", name) if one[1] and one[0]]
    names = [*(column for column, _ in columns), LSN[0], "_hoodie_is_deleted"]
    whole = [str(one) for one in rows(events, *columns, LSN, key=key)[0].select(names).to_pylist()]
    for _ in range(sized(60, 2_000)):
        at = rng.randrange(len(events))
        damaged = [*events[:at], (events[at][0], broken(events[at][1] or b"", rng)), *events[at + 1 :]]
        try:
            found, bad = rows(damaged, *columns, LSN, key=key, unknown=unknown)
        except DataError:  # such as a delete by now, of a message without a key
            continue
        assert set(bad["place"].to_pylist()) <= {f"0:{at}"}
        others = [str(one) for one in found.slice(0, at).select(names).to_pylist()]
        behind = len(whole) - at - 1
        others += [str(one) for one in found.slice(len(found) - behind).select(names).to_pylist()]
        assert others == whole[:at] + whole[at + 1 :]


DEEP = {
    "open lists": "[" * 200_000,
    "lists": "[" * 20_000 + "]" * 20_000,
    "objects": '{"a":' * 20_000 + "1" + "}" * 20_000,
}


@pytest.mark.parametrize("deep", DEEP)
@pytest.mark.parametrize("where", ["after", "source", "key"])
def test_an_event_that_is_nested_too_deeply_takes_no_process_down(deep: str, where: str) -> None:
    key, sound = change("c", {"id": 1}, {"id": 1, "v": "x"})
    assert sound
    value = b',"u":' + DEEP[deep].encode()
    at = {"after": b'"v":"x"', "source": b'"lsn":1'}.get(where, b"nowhere")
    other = b'{"id":1' + value + b"}" if where == "key" else key
    found, bad = rows([(key, sound), (other, sound.replace(at, at + value))], ID, ("v", pa.string()))
    assert len(found) + len(bad) == 2 and found["v"].to_pylist()[0] == "x"
    assert len(bad) == (where != "key")
