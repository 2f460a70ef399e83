"""A table that is partitioned by a column outside the key follows a database that tells of a delete only the key."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from change_events import Changes, Event, change
from tiers import sized

import hoodoo
from hoodoo.errors import DataError, OptionError
from hoodoo.sources.debezium import UNAVAILABLE as UNSENT

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.int64()), ("_event_lsn", pa.int64())])
NOTED = SCHEMA.append(pa.field("note", pa.string()))


def made(path: Path, **options: Any) -> hoodoo.Table:
    schema = options.pop("schema", SCHEMA)
    return hoodoo.create(
        path, schema, **{"key": "id", "partition_by": "city", "order_by": "_event_lsn", "clean_every": None, **options}
    )


def rows(table: hoodoo.Table) -> list[tuple[int, str, int]]:
    return sorted((row["id"], row["city"], row["v"]) for row in table.scan().to_arrow().to_pylist())


def notes(table: hoodoo.Table) -> list[tuple[int, str, str]]:
    return sorted((row["id"], row["city"], row["note"]) for row in table.scan().to_arrow().to_pylist())


def row(number: int, city: str, v: int) -> dict[str, Any]:
    return {"id": number, "city": city, "v": v}


def follow(table: hoodoo.Table, events: list[Event], at_once: int = 100, **how: Any) -> Any:
    return hoodoo.ingest(Changes(events, at_once, before="lookup"), table, **how).run()


def test_a_delete_and_a_move_find_the_stored_row(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    follow(table, [change("c", {"id": n}, row(n, "rome", n), lsn=n) for n in (1, 2, 3)], name="first")
    events = [
        change("u", {"id": 1}, row(1, "oslo", 10), {"id": 1, "city": "", "v": 0}, lsn=4),
        change("d", {"id": 2}, None, {"id": 2, "city": "", "v": 0}, lsn=5),
    ]
    report = follow(table, events, name="second")
    assert rows(table) == [(1, "oslo", 10), (3, "rome", 3)] and (report.rows, report.bad) == (2, 0)
    follow(table, [change("d", {"id": 1}, lsn=6), change("d", {"id": 77}, lsn=7)], name="third")
    assert rows(table) == [(3, "rome", 3)] and table.verify().problems == []


def test_an_event_that_is_older_than_the_stored_row_changes_nothing(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    follow(table, [change("c", {"id": 1}, row(1, "oslo", 9), lsn=9)], name="first")
    follow(table, [change("u", {"id": 1}, row(1, "rome", 2), lsn=2), change("d", {"id": 1}, lsn=3)], name="again")
    assert rows(table) == [(1, "oslo", 9)]


def test_a_transform_that_leaves_no_deletes_and_says_so_by_no_column_is_followed(tmp_path: Path) -> None:
    """The job ended by a KeyError of Python."""
    table = made(tmp_path / "t")

    def rows_only(batch: pa.Table) -> pa.Table:
        return batch.filter(pc.invert(batch["_hoodie_is_deleted"])).drop_columns(["_hoodie_is_deleted"])

    follow(table, [change("c", {"id": n}, row(n, "rome", n), lsn=n) for n in (1, 2)], name="first")
    events = [change("u", {"id": 1}, row(1, "oslo", 3), lsn=3), change("d", {"id": 2}, lsn=4)]
    follow(table, events, name="second", transform=rows_only)
    assert rows(table) == [(1, "oslo", 3), (2, "rome", 2)]


def test_without_a_lookup_the_error_says_what_would_help(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    with pytest.raises(DataError, match="Pass before='lookup'"):
        hoodoo.ingest(Changes([change("d", {"id": 1})]), table).run()
    with pytest.raises(OptionError, match="The source returns changes of rows"):
        hoodoo.ingest(Changes([change("d", {"id": 1})], before="lookup"), table, operation="insert").run()


def test_rows_that_do_not_fit_are_set_aside_and_the_others_find_their_place(tmp_path: Path) -> None:
    table = made(tmp_path / "t", schema=SCHEMA.set(2, pa.field("v", pa.int64(), nullable=False)))
    follow(table, [change("c", {"id": n}, row(n, "rome", n), lsn=n) for n in (1, 2)], name="first")
    events = [
        change("u", {"id": 1}, {"id": 1, "city": "oslo", "v": None}, lsn=3),
        change("u", {"id": 2}, row(2, "oslo", 4), lsn=4),
    ]
    report = follow(table, events, name="second", on_bad_rows=hoodoo.BadRowLimits(share=1))
    assert rows(table) == [(1, "rome", 1), (2, "oslo", 4)] and report.bad == 1


def noted(op: str, lsn: int, number: int, city: str = "", note: str = "") -> Event:
    after = None if op == "d" else {"id": number, "city": city, "v": lsn, "note": note}
    return change(op, {"id": number}, after, lsn=lsn)


@pytest.mark.parametrize("order_by", ["_event_lsn", None])
@pytest.mark.parametrize("at_once", [1, 2, 100])
@pytest.mark.parametrize(
    ("events", "found"),
    [
        ([("c", 1, "rome", "x"), ("u", 1, "oslo", UNSENT)], ("oslo", "x")),
        ([("c", 1, "rome", "x"), ("u", 1, "oslo", UNSENT), ("u", 1, "rome", UNSENT)], ("rome", "x")),
        ([("c", 1, "oslo", "old"), ("u", 1, "rome", "new"), ("u", 1, "oslo", UNSENT)], ("oslo", "new")),
        ([("c", 1, "oslo", "old"), ("d", 1), ("c", 1, "rome", "new"), ("u", 1, "oslo", UNSENT)], ("oslo", "new")),
    ],
    ids=["moved", "moved back", "changed elsewhere", "begun anew elsewhere"],
)
def test_a_value_that_was_not_sent_comes_along_from_the_partition_that_the_row_left(
    tmp_path: Path, events: list[Any], found: tuple[str, str], at_once: int, order_by: str | None
) -> None:
    """The row was deleted where it was, and went to the quarantine, or it had a value from before its last change."""
    table = made(tmp_path / "t", schema=NOTED, order_by=order_by)
    changes = [noted(op, lsn, *what) for lsn, (op, *what) in enumerate(events, 1)]
    report = follow(table, changes, at_once)
    assert notes(table) == [(1, *found)] and report.bad == 0


def test_a_value_of_a_row_that_was_deleted_is_taken_over_by_none(tmp_path: Path) -> None:
    table = made(tmp_path / "t", schema=NOTED)
    events = [noted("c", 1, 1, "rome", "old"), noted("d", 2, 1), noted("c", 3, 1, "oslo", UNSENT)]
    report = follow(table, events, on_bad_rows=hoodoo.BadRowLimits(share=1))
    assert notes(table) == [] and report.reasons == {"unavailable": 1}


@pytest.mark.parametrize("partition_by", ["note", hoodoo.truncate(1, "note")], ids=["value", "first letter"])
def test_a_row_stays_in_its_partition_where_the_value_that_makes_it_was_not_sent(
    tmp_path: Path, partition_by: Any
) -> None:
    table = made(tmp_path / "t", schema=NOTED, partition_by=partition_by)
    follow(table, [noted("c", 1, 1, "rome", "abc"), noted("c", 2, 2, "rome", "xyz")], name="first")
    report = follow(table, [noted("u", 3, 1, "oslo", UNSENT), noted("u", 4, 2, "bern", "b")], name="second")
    assert notes(table) == [(1, "oslo", "abc"), (2, "bern", "b")] and report.bad == 0


@pytest.mark.parametrize("order_by", ["_event_lsn", None])
@pytest.mark.parametrize("partition_by", ["city", hoodoo.truncate(2, "city")], ids=["city", "two letters"])
@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_random_histories_end_with_the_rows_of_the_database(
    tmp_path: Path, kind: str, partition_by: Any, order_by: str | None
) -> None:
    for seed in range(sized(1, 10)):
        dice = random.Random(seed)
        table = made(tmp_path / str(seed), schema=NOTED, type=kind, partition_by=partition_by, order_by=order_by)
        model, events = dict[int, tuple[int, str, str]](), list[Event]()
        for lsn in range(1, 60):
            number, city = dice.randrange(6), dice.choice(["rome", "romeo", "oslo", "bern"])
            if number in model and dice.random() < 0.3:
                del model[number]
                events.append(change("d", {"id": number}, lsn=lsn))
            else:
                op, note = ("u", dice.choice([str(lsn), UNSENT])) if number in model else ("c", str(lsn))
                model[number] = (number, city, model[number][2] if note == UNSENT else note)
                events.append(noted(op, lsn, number, city, note))
        follow(table, events, dice.choice([1, 4, 60]))
        assert notes(table) == sorted(model.values()), seed
        follow(table, events, 13, name="the connector died and sent all of it again")
        assert notes(table) == sorted(model.values()), seed
        assert table.verify().problems == []
