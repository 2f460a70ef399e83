"""What the crash tests have in common: a table to start from, the operations that are cut short, and what must hold
afterwards.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from hoodoo.errors import AlreadyCommitted, OptionError, PositionError, SchemaError, TableExists
from hoodoo.format.names import parse_data_file
from hoodoo.storage.store import SCRATCH, Store
from hoodoo.table import Table
from hoodoo.timeline import create_table
from hoodoo.timeline.columns.alterations import AddColumn, RenameColumn
from hoodoo.timeline.environment import Environment, in_order
from hoodoo.timeline.hudi.publish import instants
from hoodoo.timeline.instant import State
from hoodoo.timeline.properties import hoodie_properties, table_options

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
VALUES = ("v", "w")  # what the value is called, before and after a rename
DAY_MS = 86_400_000
PENDING = "deltacommit"
Rows = list[tuple[str, str, int, int, str]]
"""Key, city, ts, value, and what the value's column is called."""


class Clock:
    """Starts now, or where it is told, and moves on by itself; `leap` days at once."""

    def __init__(self, ms: int | None = None) -> None:
        self.ms = time.time_ns() // 1_000_000 if ms is None else ms

    def __call__(self) -> int:
        self.ms += 10
        return self.ms

    def leap(self, days: int) -> None:
        self.ms += days * DAY_MS


def rows(*triples: tuple[str, str, int], value: str = "v") -> pa.Table:
    found = [dict(zip(SCHEMA.names, (*triple, triple[2] * 10), strict=True)) for triple in triples]
    return pa.Table.from_pylist(found, schema=SCHEMA).rename_columns([*SCHEMA.names[:3], value])


def value_of(table: Table) -> str:
    """What the value is called by now."""
    return next(name for name in VALUES if name in table.schema.names)


def with_row(found: Rows, triple: tuple[str, str, int]) -> Rows:
    """`found` and one row more, written under the same columns."""
    return sorted([*found, (*triple, triple[2] * 10, found[0][-1])])


def opened(store: Store, clock: Clock) -> Table:
    return Table(store, Environment(now_ms=clock, sleep=lambda seconds: None, together=in_order))


def build(store: Store, clock: Clock, kind: str = "merge_on_read") -> Table:
    """Commits of all sorts, of which the older ones can be archived, a pending write with a file, and something to
    compact and to clean.
    """
    chosen = table_options.validate_new_options(
        {
            "compact_after_logs": None,
            "clean_every": None,
            "checkpoint_every": 4,
            "retain_commits": 1,
            "retain_hours": 24,
        }
    )
    create_table.create_table(
        store,
        hoodie_properties.create_properties("t", SCHEMA, ("id",), ("city",), ("ts",), kind, chosen),
        Environment(now_ms=clock),
    )
    table = opened(store, clock)
    table.upsert(rows(("a", "p", 1), ("b", "p", 1), ("c", "q", 1)))
    table.upsert(rows(("b", "p", 5)))
    table.compact()
    table.delete(rows(("c", "q", 0)))
    table.upsert(rows(("c", "q", 2)))
    clock.leap(40)
    table.upsert(rows(("a", "p", 3)))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    table.upsert(rows(("a", "p", 4)))
    table.savepoints.create("kept")
    table.upsert(rows(("d", "q", 4)))
    table.upsert(rows(("d", "q", 5)))
    table.compact()
    table.upsert(rows(("d", "q", 6)))
    _left_pending(table)
    return table


def _left_pending(table: Table) -> None:
    """A writer died after its files, before its slot."""

    class Gone(BaseException):
        pass

    begin = table.handle.timeline.begin

    def wrapped(action: str, *given: Any) -> Any:
        attempt = begin(action, *given)

        def die(*_: Any) -> Any:
            attempt._sealed = True  # as after a kill: nothing is tidied up
            raise Gone

        attempt.complete = die  # type: ignore[method-assign]
        return attempt

    table.handle.timeline.begin = wrapped  # type: ignore[method-assign]
    with contextlib.suppress(Gone):
        table.upsert(rows(("z", "p", 9), ("a", "p", 9)))
    table.handle.timeline.begin = begin  # type: ignore[method-assign]


def pending(store: Store) -> list[str]:
    found = instants(store)
    completed = {one.time for one in found if one.state is State.COMPLETED}
    return sorted({one.time for one in found if one.action == PENDING and one.time not in completed})


ACTIONS: dict[str, Callable[[Table], Any]] = {
    "upsert": lambda table: table.upsert(rows(("a", "p", 12), ("d", "p", 12), ("e", "r", 12))),
    "delete": lambda table: table.delete(rows(("a", "p", 0), ("c", "q", 0))),
    "update": lambda table: table.update({value_of(table): 7}, where="ts >= 4"),
    "columns": lambda table: table.upsert(
        rows(("a", "p", 12), ("c", "q", 12), ("e", "r", 12)).drop_columns("v"), columns="given"
    ),
    "delete where": lambda table: table.delete(where="city = 'q' OR ts = 4"),
    "insert_overwrite": lambda table: table.insert_overwrite(rows(("y", "p", 9))),
    "compact": lambda table: table.compact(),
    "clean": lambda table: table.maintenance.clean(retain_hours=0, retain_commits=1),
    "rollback": lambda table: table.maintenance.rollback(pending(table.handle.store)[0]),
    "archive": lambda table: table.maintenance.archive(keep_instants=2),
    "savepoint": lambda table: table.savepoints.create("more"),
    "restore": lambda table: table.restore("kept"),
    "alter": lambda table: table.alter(
        [RenameColumn("v", "w"), AddColumn("n", pa.int32(), default=None)], rewrite=True
    ),
}


def contents(table: Table) -> Rows:
    value = value_of(table)
    found = table.scan(columns=["id", "city", "ts", value]).to_arrow().to_pylist()
    return sorted((*row.values(), value) for row in found)


def require_recovery(store: Store, clock: Clock, allowed: list[Rows], name: str, where: str = "") -> None:
    """The table is as before the operation or as after it, the next write needs no help, and one sweep leaves nothing
    behind.
    """
    table = opened(store, clock)
    now = contents(table)
    assert now in allowed, f"{name} {where}: {now}"
    new = ("next", "n", clock.ms)
    result = table.upsert(rows(new, value=value_of(table)))
    assert result.inserted == 1 and result.retries == 0
    found = contents(table)
    assert found == with_row(now, new), f"{name} {where}: {found}"
    with contextlib.suppress(AlreadyCommitted, PositionError, OptionError, SchemaError, TableExists, IndexError):
        ACTIONS[name](table)  # the same again
    clock.leap(1)
    table.compact()
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    table.maintenance.sweep(0)
    fresh = opened(store, clock)
    report = fresh.verify()
    assert report.problems == [], f"{name} {where}: {report.problems}"
    assert pending(store) == []
    assert not [key for key, _ in store.list(SCRATCH)]
    live = {entry.file.path for group in fresh.handle.history.head().groups() for entry in group.files()} | {
        entry.path for entry in fresh.handle.history.head().superseded
    }
    orphans = {
        key for key, _ in store.list("") if not key.startswith(".hoodie/") and parse_data_file(key.rpartition("/")[2])
    } - live
    assert orphans == set(), f"{name} {where}: {orphans}"
