"""Changes of PostgreSQL win in the order of their commits, whatever the order of their LSNs is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from change_events import ID, LSN, Changes, Event, change

import hoodoo
from hoodoo.errors import ColumnError

COLUMNS = pa.schema([ID, ("v", pa.string()), LSN])


def event(op: str, number: int, value: str | None, commit: int | None, lsn: int) -> Event:
    """A change, the end of the last commit before its transaction, and its LSN."""
    sequence = f'[{"null" if commit is None else f"{chr(34)}{commit}{chr(34)}"},"{lsn}"]'
    after = None if op == "d" else {"id": number, "v": value}
    before = {"id": number, "v": None} if op == "d" else None
    return change(op, {"id": number}, after, before, lsn=lsn, sequence=sequence)


def rows_after(path: Path, events: list[Event], at_once: int) -> list[tuple[int, str]]:
    table = hoodoo.create(path, COLUMNS, key="id", order_by="_event_lsn", clean_every=None)
    hoodoo.ingest(Changes(events, at_once), table, name="job").run()
    return sorted((row["id"], row["v"]) for row in table.scan().to_arrow().to_pylist())


SNAPSHOT = [event("r", number, "old", None, 500) for number in (1, 2, 3)]
IN_FLIGHT = [event("u", 1, "new", None, 300), event("d", 2, None, None, 350), event("c", 4, "four", None, 360)]


@pytest.mark.parametrize("at_once", [2, 3, 100])
def test_a_transaction_that_was_in_flight_during_a_snapshot_wins_over_its_rows(tmp_path: Path, at_once: int) -> None:
    found = rows_after(tmp_path / "t", [*SNAPSHOT, *IN_FLIGHT], at_once)
    assert found == [(1, "new"), (3, "old"), (4, "four")]


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_an_insert_that_waited_for_a_delete_wins_over_it(tmp_path: Path, at_once: int) -> None:
    events = [event("c", 5, "b", 100, 110), event("d", 5, None, 110, 130), event("c", 5, "a", 140, 120)]
    assert rows_after(tmp_path / "t", events, at_once) == [(5, "a")]


@pytest.mark.parametrize("at_once", [2, 100])
def test_events_that_come_again_end_with_the_newest_versions(tmp_path: Path, at_once: int) -> None:
    later = [event("u", 1, "newer", 600, 550), event("u", 3, "third", 700, 710), event("d", 4, None, 720, 730)]
    events = [*SNAPSHOT, *IN_FLIGHT, *later]
    for begin in range(4, len(events), 2):
        found = rows_after(tmp_path / f"t{begin}", [*events, *events[begin:]], at_once)
        assert found == [(1, "newer"), (3, "third")], begin


def test_an_event_that_comes_again_turns_no_newer_version_back(tmp_path: Path) -> None:
    first = event("u", 1, "first", 600, 610)
    assert rows_after(tmp_path / "t", [first, event("u", 1, "second", 620, 615), first], 1) == [(1, "second")]


@pytest.mark.parametrize("at_once", [1, 100])
def test_a_second_snapshot_wins_over_what_was_streamed_before_it(tmp_path: Path, at_once: int) -> None:
    streamed = [event("u", 1, "streamed", 600, 610), event("u", 3, "streamed", 620, 630)]
    second = [event("r", number, "second", None, 900) for number in (1, 3)]
    behind = [event("u", 3, "in flight", None, 880), event("u", 3, "later", 910, 890)]
    assert rows_after(tmp_path / "t", [*SNAPSHOT, *streamed, *second, *behind[:1]], at_once)[-1] == (3, "in flight")
    found = rows_after(tmp_path / "u", [*SNAPSHOT, *streamed, *second, *behind], at_once)
    assert found == [(1, "second"), (2, "old"), (3, "later")]


@pytest.mark.parametrize("at_once", [1, 100])
def test_rows_of_an_incremental_snapshot_have_their_place_in_the_stream(tmp_path: Path, at_once: int) -> None:
    events = [
        event("u", 1, "streamed", 600, 610),
        event("r", 1, "read again", 620, 615),
        event("u", 1, "later", 640, 605),
    ]
    assert rows_after(tmp_path / "t", events[:2], at_once) == [(1, "read again")]
    assert rows_after(tmp_path / "u", events, at_once) == [(1, "later")]


def test_the_order_column_has_to_be_a_bigint(tmp_path: Path) -> None:
    columns = pa.schema([ID, ("_event_lsn", pa.string())])
    table = hoodoo.create(tmp_path / "t", columns, key="id", order_by="_event_lsn")
    with pytest.raises(ColumnError, match="'_event_lsn' has the wrong type: expected bigint"):
        hoodoo.ingest(Changes([event("c", 1, "a", 1, 2)]), table, name="job").run()
