"""Random histories of a source table, sent in part again and cut into batches at random, end with its rows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from change_events import ID, LSN, Changes, Event, change

import hoodoo
from hoodoo.sources import Limits, Planned
from hoodoo.sources.debezium import UNAVAILABLE

KEYS = 4


class Cut(Changes):
    """Brings events in batches of random sizes."""

    def __init__(self, events: Sequence[Event], sizes: random.Random) -> None:
        super().__init__(events)
        self._sizes = sizes

    def plan(self, position: str, limits: Limits) -> Planned | None:
        self.at_once = self._sizes.choice((3, 8, 14))
        return super().plan(position, limits)


class Database:
    """A source table: its rows, and the events of its changes."""

    def __init__(self, steps: random.Random) -> None:
        self.steps, self.rows, self.events = steps, dict[int, dict[str, Any]](), list[Event]()

    def change(self) -> None:
        key, free = self.steps.randrange(KEYS), [one for one in range(KEYS) if one not in self.rows]
        if key not in self.rows:
            self._insert(key, {"id": key, "n": len(self.events), "big": f"big {len(self.events)}"})
        elif (what := self.steps.random()) < 0.25:
            self._delete(key)
        elif what < 0.35 and free:  # a changed key is a delete and an insert
            row = {**self.rows[key], "id": free[0], "big": f"moved {len(self.events)}"}
            self._delete(key)
            self._insert(free[0], row)
        else:
            sends = self.steps.random() < 0.3
            row = self.rows[key] = {**self.rows[key], "n": len(self.events)}
            if sends:
                row["big"] = f"big {len(self.events)}"
            self._event("u", key, row if sends else {**row, "big": UNAVAILABLE})

    def _insert(self, key: int, row: dict[str, Any]) -> None:
        self.rows[key] = row
        self._event("c", key, row)

    def _delete(self, key: int) -> None:
        del self.rows[key]
        self._event("d", key, None)

    def _event(self, op: str, key: int, after: Any) -> None:
        self.events.append(change(op, {"id": key}, after, lsn=len(self.events) + 1))


def sent_again(events: Sequence[Event], starts: random.Random) -> Iterator[Event]:
    """The events, some of which come again, in order, after the connector died."""
    at = 0
    while at < len(events):
        upto = min(len(events), at + starts.randrange(1, 12))
        yield from events[at:upto]
        at = max(0, upto - starts.randrange(1, 8)) if starts.random() < 0.4 else upto


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("before", ["event", "lookup"])
def test_a_random_history_ends_with_the_rows_of_the_database(tmp_path: Path, seed: int, before: str) -> None:
    database = Database(random.Random(seed))
    for _ in range(30):
        database.change()
    table = hoodoo.create(
        tmp_path / "t",
        pa.schema([ID, ("n", pa.int64()), ("big", pa.string()), LSN]),
        key="id",
        order_by="_event_lsn",
        partition_by="id" if before == "event" else "n",
        clean_every=None,
    )
    source = Cut(list(sent_again(database.events, random.Random(seed + 100))), random.Random(seed + 200))
    source.before = before
    hoodoo.ingest(source, table, name="job", on_bad_rows=hoodoo.BadRowLimits(share=1)).run()
    found = {one["id"]: one for one in table.scan(["id", "n", "big"]).to_arrow().to_pylist()}
    assert found == database.rows
    assert table.quarantine().count() == 0, table.quarantine().rows("new")["detail"].to_pylist()


def test_an_update_that_was_never_stored_waits_until_its_delete_comes_again(tmp_path: Path) -> None:
    row = {"id": 1, "big": "big"}
    events = [
        change("c", {"id": 1}, row, lsn=1),
        change("u", {"id": 1}, {**row, "big": UNAVAILABLE}, lsn=2),
        change("d", {"id": 1}, lsn=3),
    ]
    table = hoodoo.create(tmp_path / "t", pa.schema([ID, ("big", pa.string()), LSN]), key="id", order_by="_event_lsn")
    job = hoodoo.ingest(Changes([*events, events[1], events[0], events[2]], 3), table, name="job")
    assert job.run().bad == 0 and table.count() == 0
    alone = hoodoo.ingest(Changes([events[1]]), table, name="again")
    assert alone.run().bad == 1 and table.quarantine().count() == 1
    hoodoo.ingest(Changes([events[2]]), table, name="last").run()
    assert table.quarantine().count() == 0 and table.count() == 0
