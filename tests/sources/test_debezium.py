"""What events of Debezium say of rows: keys, order, partitions, and what is refused before anything is written."""

from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from change_events import ID, LSN, Changes, Event, change, decoded, golden_events, sent

import hoodoo
from hoodoo.errors import ColumnError, DataError, OptionError
from hoodoo.sources import Kafka
from hoodoo.sources.bad_messages import BadMessages
from hoodoo.sources.debezium import UNAVAILABLE
from hoodoo.sources.debezium_events import EventReader
from hoodoo.sources.debezium_messages import KafkaConnectMessages
from hoodoo.sources.debezium_values import convert_event_values


# ---- messages
def test_what_is_no_event_is_set_aside_and_what_changes_no_row_is_passed_over() -> None:
    good = change("c", {"id": 1}, {"id": 1})
    nothing = [{"ts_ms": 1}, {"status": "BEGIN", "id": "7:1", "event_count": None}, {"op": "m", "message": {}}]
    strange = [b"no json", b"null", b"7", b'{"id": 2}', b'{"op": 7}', b'{"op": "x"}', b'{"op": "c", "after": null}']
    event = good[1] or b""
    strange += [event[:-1], event * 2, b'{"op": "c", "after": [1]}', b"", b'{"payload": ' + event + b', "schema": {}}']
    events = [good, *((b'{"id":9}', sent(one)) for one in nothing), *((b'{"id":9}', one) for one in strange)]
    found, bad = decoded(events, ID)
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
    found, bad = decoded([*events[:5], (events[5][0], turned)], ID)
    assert (found["id"].to_pylist(), len(bad)) == ([0, 1, 2, 3, 4, 5], 0)


def test_a_delete_has_the_key_of_its_message_and_not_what_stands_before_it() -> None:
    before = {"id": 0, "name": "", "v": None}
    found, bad = decoded([change("d", {"id": 7}, before=before, lsn=5)], ID, ("name", pa.string()), LSN)
    assert found.to_pylist() == [{"id": 7, "name": None, "_event_lsn": 5, "_hoodie_is_deleted": True}]
    wrapped = sent({"schema": {"type": "struct", "fields": []}, "payload": {"id": 8}})
    found, _ = decoded([(wrapped, change("d", None, before=before)[1])], ID)
    assert found["id"].to_pylist() == [8] and not len(bad)
    found, bad = decoded([(b"8", change("d", None, before=before)[1]), change("d", {"id": 9}, before=before)], ID)
    assert found["id"].to_pylist() == [9] and bad["place"].to_pylist() == ["0:0"]


def test_a_key_may_be_a_number_that_says_its_own_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hoodoo.sources.debezium.AT_ONCE", 2)

    def sent_as(number: int) -> dict[str, Any]:
        return {"scale": 0, "value": base64.b64encode(bytes([number])).decode()}

    events = [change("c", {"id": sent_as(number)}, {"id": sent_as(number)}) for number in (1, 2, 3)]
    events.append(change("d", {"id": sent_as(2)}))
    found, bad = decoded(events, ("id", pa.decimal128(10, 0)))
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
    some = KafkaConnectMessages(range(9), [None] * 9, payloads, payloads)
    assert reader._decode_together(some) is None
    [first] = reader.events(some, BadMessages("t", 0, str))
    again = reader._decode_together(some)
    assert again is not None
    for one in (first, again):
        assert convert_event_values(one.after["v"], schema["v"], None).to_pylist() == [Decimal("1.10")] * 9
    found, bad = decoded(
        [*events, change("c", {"id": 9}, {"id": 9, "v": {"scale": 9, "value": "Cw=="}})], ID, ("v", pa.decimal128(9, 2))
    )
    assert (len(found), bad["place"].to_pylist()) == (9, ["0:9"])


def test_changes_have_the_place_in_the_log_of_their_database() -> None:
    found, _ = decoded([change("c", {"id": 1}, {"id": 1}, lsn=22_351_432)], ID, LSN)
    assert found["_event_lsn"].to_pylist() == [22_351_432]
    places = [("mysql-bin.000009", 900, 1), ("mysql-bin.000010", 4, 0), ("mysql-bin.000010", 4, 2)]
    events = [
        change("c", {"id": at}, {"id": at}, None, None, "mysql", file=file, pos=pos, row=row)
        for at, (file, pos, row) in enumerate(places)
    ]
    found, _ = decoded(events, ID, ("_event_seq", pa.int64()))
    order = found["_event_seq"].to_pylist()
    assert order == sorted(order) and order[1] == (10 << 40) + (4 << 8)
    assert "_event_seq" not in decoded(events, ID)[0].column_names
    with pytest.raises(DataError, match="events of the connector 'mysql' do not contain"):
        decoded(events, ID, LSN)


def test_a_row_that_was_read_without_a_place_comes_before_all_changes() -> None:
    found, bad = decoded(
        [change("r", {"id": 1}, {"id": 1}, lsn=None), change("c", {"id": 2}, {"id": 2}, lsn=3)], ID, LSN
    )
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
    with pytest.raises(DataError, match=r"another key than the table: expected \['id', 'part'\], got \['id'\]"):
        decoded([event], ID, ("part", pa.string()), key=["id", "part"])
    with pytest.raises(DataError, match="Add a primary key to the source table"):
        decoded([change("c", None, {"id": 1})], ID)


def test_a_table_that_is_ordered_by_a_column_of_its_own_cannot_follow_deletes() -> None:
    with pytest.raises(ColumnError, match="ordered by 'ts', but delete events do not contain"):
        decoded([change("c", {"id": 1}, {"id": 1, "ts": 1})], ID, ("ts", pa.int64()), order_by=("ts",))


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_changes_are_taken_by_upserts_only(tmp_path: Path, operation: str) -> None:
    table = hoodoo.create(tmp_path / "t", {"id": "bigint"}, key="id")
    with pytest.raises(OptionError, match="The source returns changes of rows"):
        hoodoo.ingest(Changes([change("c", {"id": 1}, {"id": 1})]), table, operation=operation).run()


def test_a_table_emptied_by_the_database_stops_the_job_or_keeps_its_rows() -> None:
    events = [change("c", {"id": 1}, {"id": 1}), change("t", None)]
    with pytest.raises(DataError, match="was truncated"):
        decoded(events, ID)
    assert len(decoded(events, ID, truncate="ignore")[0]) == 1


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
        decoded([event], ID, PART, ("n", pa.int32()), placed_by=("part",))


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
    alone = [decoded([event], *columns, LSN, key=key, truncate="ignore")[0] for event in events if event[1] is not None]
    fast = pa.concat_tables([one for one in alone if len(one)], promote_options="permissive")
    monkeypatch.setattr(EventReader, "_decode_together", lambda self, some: None)
    careful = decoded(events, *columns, LSN, key=key, truncate="ignore")[0]
    assert str(fast.select(careful.column_names).to_pylist()) == str(careful.to_pylist())  # NaN is not equal to itself
