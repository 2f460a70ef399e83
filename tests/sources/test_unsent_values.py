"""Values that an event of Debezium does not bring are those of an earlier event or of the table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from change_events import ID, LSN, Changes, Event, change

import hoodoo
from hoodoo.errors import TooManyBadRows
from hoodoo.sources.debezium import UNAVAILABLE


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
    originals = [notes.quarantine().original(one["position"]).to_pylist() for one in aside]
    assert sorted(row["id"] for [row] in originals) == [1, 4]
    assert "Column 'note' was not sent for key" in aside[0]["detail"]
    again = hoodoo.ingest(Changes(events), notes, name="again").run()
    assert again.bad == 2 and len(notes.quarantine().rows()) == 4


def test_other_bad_rows_of_such_a_batch_are_set_aside_too(tmp_path: Path) -> None:
    schema = pa.schema([ID, ("note", pa.string()), ("n", pa.int32()), LSN])
    table = hoodoo.create(tmp_path / "t", schema, key="id", order_by="_event_lsn", checks={"positive": "n > 0"})
    events = [note("c", 1, "one", 1, 1), note("u", 1, UNAVAILABLE, 2, 2), note("c", 2, "two", -1, 3)]
    assert hoodoo.ingest(Changes(events), table).run().bad == 1
    assert [(one["id"], one["note"]) for one in table.scan().to_arrow().to_pylist()] == [(1, "one")]
    with pytest.raises(TooManyBadRows):
        hoodoo.ingest(
            Changes([note("u", 9, UNAVAILABLE, 1, 9)]), table, name="strict", on_bad_rows=hoodoo.BadRowLimits(rows=0)
        ).run()


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


def test_updates_that_come_again_after_their_row_was_deleted_are_left_out(notes: hoodoo.Table) -> None:
    updates = [note("u", number, UNAVAILABLE, 2, 10 + number) for number in (1, 2)]
    deletes = [change("d", {"id": number}, before={"id": number}, lsn=20 + number) for number in (1, 2)]
    inserts = [note("c", 1, "one", 1, 1), note("c", 2, "two", 1, 2)]
    report = hoodoo.ingest(Changes([*inserts, *updates, *deletes, *updates, *deletes], 2), notes).run()
    assert notes.count() == 0 and report.bad == 0
    newer = hoodoo.ingest(Changes([note("u", 1, UNAVAILABLE, 2, 30)]), notes, name="newer").run()
    assert newer.bad == 1
