"""Change events of the quarantine are decoded again, and change what they would have changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from change_events import ID, LSN, Changes, Event, change, sent
from registry_server import KnownSchemas, wire

import hoodoo
from hoodoo.sources.debezium import UNAVAILABLE
from hoodoo.table.quarantine.target import open_quarantine

COLUMNS = pa.schema([ID, ("v", pa.int32()), ("note", pa.string()), LSN])
BIG = 5_000_000_000


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", COLUMNS, key="id", order_by="_event_lsn")


def row(op: str, number: int, v: Any, note: Any, lsn: int) -> Event:
    return change(op, {"id": number}, {"id": number, "v": v, "note": note}, lsn=lsn)


def gone(number: int, lsn: int) -> Event:
    return change("d", {"id": number}, before={"id": number, "v": 0, "note": ""}, lsn=lsn)


def take(table: hoodoo.Table, *events: Event, at_once: int = 1_000, name: str = "job", **how: Any) -> Any:
    return hoodoo.ingest(
        Changes(events, at_once), table, name=name, on_bad_rows=hoodoo.BadRowLimits(share=1), **how
    ).run()


def stored(table: hoodoo.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(one.values()) for one in table.scan(["id", "v", "note", "_event_lsn"]).to_arrow().to_pylist())


@pytest.mark.parametrize("at_once", [1, 1_000])
def test_an_event_is_replayed_with_its_own_order_once_its_column_is_wider(table: hoodoo.Table, at_once: int) -> None:
    events = [row("c", 1, 1, "a", 1), row("u", 1, BIG, "b", 2), row("c", 2, BIG, "c", 3), row("c", 3, BIG, "d", 4)]
    assert take(table, *events, row("u", 3, 7, "e", 5), at_once=at_once).bad == 3
    assert table.quarantine().replay().bad == 3
    table.alter.widen_column("v", "bigint")
    done = table.quarantine().replay()
    assert (done.replayed, done.bad, table.quarantine().count()) == (3, 0, 0)
    assert stored(table) == [(1, BIG, "b", 2), (2, BIG, "c", 3), (3, 7, "e", 5)]


def test_a_delete_is_replayed_by_the_key_of_its_message(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.string()), LSN]), key="id", order_by="_event_lsn")
    number, text = change("d", {"id": 1}, before={"id": 1}, lsn=2), sent({"id": "1"})
    take(table, change("c", {"id": "1"}, {"id": "1"}, lsn=1), (b"{" + (text or b""), number[1]))
    [position] = table.quarantine().rows()["position"].to_pylist()
    [kept] = table.quarantine().original(position).to_pylist()
    assert kept["key"] == '{{"id":"1"}' and json.loads(kept["payload"])["op"] == "d"
    assert table.quarantine().replay().bad == 1 and table.count() == 1


def test_a_delete_is_replayed_once_its_position_in_the_log_is_not_needed(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", pa.schema([ID, LSN]), key="id")
    inserts = [change("c", {"id": one}, {"id": one}, lsn=one) for one in (1, 2)]
    assert take(table, *inserts, change("d", {"id": 1}, before={"id": 1}, lsn=None)).bad == 1
    table.alter.drop_column("_event_lsn")
    assert table.quarantine().replay(overwrite=True).replayed == 1 and table.scan().to_arrow()["id"].to_pylist() == [2]


@pytest.mark.parametrize("at_once", [1, 1_000])
def test_an_event_whose_row_was_deleted_later_does_not_bring_the_row_back(table: hoodoo.Table, at_once: int) -> None:
    events = [row("c", 1, 1, "a", 1), row("u", 1, BIG, "b", 2), gone(1, 3), row("c", 2, BIG, "c", 4), gone(2, 5)]
    assert take(table, *events, at_once=at_once).bad == 2
    table.alter.widen_column("v", "bigint")
    table.quarantine().replay()
    assert table.count() == 0 and table.quarantine().count() == 0


def test_a_row_that_came_again_after_its_delete_waits_and_is_replayed(table: hoodoo.Table) -> None:
    take(table, row("c", 1, 1, "a", 1), gone(1, 2), row("c", 1, BIG, "b", 3))
    assert table.quarantine().count() == 1
    table.alter.widen_column("v", "bigint")
    assert table.quarantine().replay().replayed == 1 and stored(table) == [(1, BIG, "b", 3)]


def test_values_that_were_not_sent_are_never_replayed_as_values(tmp_path: Path) -> None:
    """The placeholder was written into the table."""
    checks = {"positive": "v > 0"}
    table = hoodoo.create(tmp_path / "t", COLUMNS, key="id", order_by="_event_lsn", checks=checks)
    lacking = change("u", {"id": 2}, {"id": 2, "v": -1}, lsn=5)
    events = [row("c", 1, 1, "a", 1), row("c", 2, 1, "b", 2), row("u", 3, 1, UNAVAILABLE, 3)]
    assert take(table, *events, row("u", 1, -1, UNAVAILABLE, 4), lacking).bad == 3
    assert table.quarantine().replay().bad == 3
    table.set_checks({})
    done = table.quarantine().replay()
    assert (done.replayed, done.bad) == (2, 1) and "'note' was not sent" in done.details[0]
    assert stored(table) == [(1, -1, "a", 4), (2, -1, "b", 5)]
    take(table, row("c", 3, 1, "c", 2), name="other")
    assert table.quarantine().replay().replayed == 1 and stored(table)[2] == (3, 1, "c", 3)


def test_an_avro_event_is_replayed_without_a_registry(table: hoodoo.Table) -> None:
    image = [{"name": "id", "type": "long"}, {"name": "v", "type": "long"}]
    value = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "after", "type": ["null", {"type": "record", "name": "Value", "fields": image}]},
            {
                "name": "source",
                "type": {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": "long"}]},
            },
            {"name": "op", "type": "string"},
        ],
    }
    key = {"type": "record", "name": "Key", "fields": image[:1]}
    event = {"after": {"id": 1, "v": BIG}, "source": {"lsn": 1}, "op": "c"}
    source = Changes([(wire(0, key, {"id": 1}), wire(1, value, event))], registry=KnownSchemas(key, value))
    assert hoodoo.ingest(source, table, name="job", on_bad_rows=hoodoo.BadRowLimits(share=1)).run().bad == 1
    table.alter.widen_column("v", "bigint")
    assert table.quarantine().replay().replayed == 1 and stored(table) == [(1, BIG, None, 1)]


def test_times_of_unknown_unit_are_replayed_with_a_unit(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", pa.schema([ID, ("at", pa.timestamp("us"))]), key="id")
    take(table, change("c", {"id": 1}, {"id": 1, "at": 1_769_860_800_123}))
    [refused] = table.quarantine().rows()["detail"].to_pylist()
    assert "Pass time_unit= to the source (--time-unit)" in refused
    assert table.quarantine().replay().bad == 1 and table.quarantine().replay(time_unit={"at": "ms"}).replayed == 1
    assert str(table.scan().to_arrow()["at"][0]) == "2026-01-31 12:00:00.123000"


def test_without_an_order_an_event_replaces_a_row_only_if_told(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", pa.schema([ID, ("v", pa.int32())]), key="id")
    events = [change("c", {"id": one}, {"id": one, "v": BIG}) for one in (1, 2)]
    take(table, *events, change("u", {"id": 1}, {"id": 1, "v": 7}))
    table.alter.widen_column("v", "bigint")
    with pytest.raises(hoodoo.OptionError, match="no order_by"):
        table.quarantine().replay()
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "v": 7}]
    assert table.quarantine().replay(overwrite=True).replayed == 2
    assert {one["v"] for one in table.scan().to_arrow().to_pylist()} == {BIG}


def test_a_purge_finds_the_events_of_a_key(table: hoodoo.Table) -> None:
    take(table, row("c", 1, 1, "a", 1), row("u", 1, BIG, "b", 2), row("c", 2, BIG, "c", 3))
    table.maintenance.purge([{"id": 1}], older_than_hours=0)
    left = table.quarantine().rows().to_pylist()
    assert len(left) == 1 and sent({"id": 2}) in left[0]["payload"]


def test_a_row_of_an_older_version_whose_value_was_not_sent_is_not_replayed(table: hoodoo.Table) -> None:
    """Older versions stored the row as JSON, with the placeholder as its value."""
    assert take(table, row("u", 1, 1, UNAVAILABLE, 2)).bad == 1
    held = open_quarantine(table)
    assert held is not None
    rows = held.scan().to_arrow().select(held.schema.names)
    older = json.dumps({"id": 1, "v": 1, "note": UNAVAILABLE, "_event_lsn": 2}).encode()
    held.upsert(rows.set_column(rows.column_names.index("payload"), "payload", pa.array([older], pa.binary())))
    done = table.quarantine().replay()
    assert (done.replayed, done.bad) == (0, 1) and "was not sent" in done.details[0] and table.count() == 0
