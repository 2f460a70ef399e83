"""Change the columns of a table during a year of real flights, while a consumer keeps a copy of the table.

Columns are added, renamed, widened and dropped, by calls and by batches. The copy follows all changes.

    python year_of_columns.py /tmp/flights 20000
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import hoodoo
from hoodoo.demo.flights import KEY, Flights, source_bytes
from hoodoo.types import Alteration, SchemaVersion

JANUARY = [*KEY, "dest", "distance", "dep_time", "dep_delay", "updated_at"]
"""What the table begins with; other columns of the flights come later."""


def month(flights: Flights, number: int) -> pa.Table:
    """The messages about the flights of one month, as the airlines' newest programs send them."""
    parts = [feed.rows for feed in flights.feeds() if feed.half // 2 == number - 1]
    return pa.concat_tables(parts).combine_chunks()


def tell(table: hoodoo.Table, flights: Flights) -> None:
    """The year. Some programs are old, some new; nobody stops for a change of columns."""
    for number in range(1, 13):
        if number == 3:  # whoever does not know of tail numbers says nothing of them
            table.alter.add_column("tailnum", pa.string(), default=None, after="dest")
        if number == 5:
            table.alter.rename_column("dep_delay", "departure_delay", rewrite=True)
        if number == 6:
            table.alter([hoodoo.WidenColumn("distance", pa.int64()), hoodoo.MoveColumn("distance", after="tailnum")])
        if number == 10:
            table.alter.drop_column("dep_time")
        rows = month(flights, number)
        sent = [name for name in JANUARY if name in table.schema.names or name == "dep_delay"]
        if number >= 3 and number % 2:  # old and new programs take turns
            sent.append("tailnum")
        batch = rows.select(sent)
        if "departure_delay" in table.schema.names:
            batch = batch.rename_columns(["departure_delay" if name == "dep_delay" else name for name in sent])
        if number == 8:  # a program simply sends more, and the table takes it
            batch = batch.append_column("air_time", rows["air_time"])
        table.upsert(batch, evolve=number == 8, missing="null")


def same_columns(copy: hoodoo.Table, before: SchemaVersion, after: SchemaVersion) -> None:
    """Make of the copy's columns what became of the table's, by their ids: names alone would lose a rename."""
    was = {number: name for name, number in before.ids.items()}
    now = {number: name for name, number in after.ids.items()}
    changes: list[Alteration] = [hoodoo.DropColumn(was[one]) for one in was if one not in now]
    for one, name in now.items():
        kind = after.schema.field(name).type
        if one not in was:
            changes.append(hoodoo.AddColumn(name, kind, default=None))
            continue
        if was[one] != name:
            changes.append(hoodoo.RenameColumn(was[one], name))
        if before.schema.field(was[one]).type != kind:
            changes.append(hoodoo.WidenColumn(name, kind))
    places = after.schema.names
    changes += [hoodoo.MoveColumn(name, after=other) for other, name in zip(places, places[1:], strict=False)]
    copy.alter(changes, rewrite=True)


def follow(table: hoodoo.Table, copy: hoodoo.Table, told: threading.Event) -> int:
    """Keep `copy` like `table` until the year is `told`; how many pulls that took."""
    known, pulls = table.inspect.schemas()[0], 0
    since: hoodoo.Cursor | str = "earliest"
    while True:
        done = told.is_set()
        for step in table.follow(
            since, mode="incremental", deletes=True, most_commits=2, poll_seconds=0.05, timeout_seconds=0.1
        ):
            newest = [one for one in table.inspect.schemas() if one.cursor.seq <= step.cursor.seq][-1]
            if newest.id != known.id:
                same_columns(copy, known, newest)
                known = newest
            copy.upsert(step.to_arrow())
            since, pulls = step.cursor, pulls + 1
        if done:
            return pulls


def main(path: str, rows: str = "20000") -> None:
    flights = Flights(source_bytes(), int(rows))
    first = month(flights, 1).select(JANUARY).schema
    table = hoodoo.create(Path(path, "flights"), first, key=KEY, partition_by="month", order_by="updated_at")
    copy = hoodoo.create(Path(path, "copy"), first, key=KEY, partition_by="month")
    told = threading.Event()
    pulls: list[int] = []
    consumer = threading.Thread(target=lambda: pulls.append(follow(hoodoo.open(table.path), copy, told)))
    consumer.start()
    try:
        tell(table, flights)
    finally:
        told.set()
        consumer.join()
    for version in table.inspect.schemas():
        print(f"slot {version.cursor.seq:3}: {'; '.join(version.changes)}")
    mine, theirs = (one.scan().to_arrow().sort_by([(name, "ascending") for name in KEY]) for one in (table, copy))
    if mine.schema != theirs.schema or not mine.equals(theirs):
        raise SystemExit("the copy differs from the table")
    delays = pc.sum(mine["departure_delay"]).as_py()
    print(f"{len(mine):,} flights, {delays:,} minutes late together; the copy is the same after {pulls[0]} pulls")


if __name__ == "__main__":
    main(*sys.argv[1:3])
