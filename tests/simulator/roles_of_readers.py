"""Who reads: snapshots now and in the past, held ones, savepoints, what changed."""

from __future__ import annotations

from typing import Any

from oracle import Intent
from roles_of_writers import attempt, resolve_unknown
from scheduler import Actor
from world import World, may_be_expired, role

from hoodoo.errors import (
    CommitConflict,
    CommitUnknown,
    OptionError,
    PositionError,
    SnapshotExpired,
    StoreUnavailable,
)
from hoodoo.readers.cursor import Cursor
from hoodoo.table import Table

_HOLD_MS = 3_600_000


def rows_of(world: World, actor: Actor, scan: Any) -> list[dict[str, Any]]:
    """The rows of a scan, slice by slice, with others in between."""
    found = []
    for batch in scan.batches():
        found += batch.to_pylist()
        world.scheduler.switch(actor)
    return found


@role
def reader(world: World, actor: Actor, table: Table) -> None:
    """Snapshots, read slowly at the slot they were asked at, now or in the past."""
    for _ in range(actor.rng.randint(1, 3)):
        try:
            if actor.rng.random() < 0.5:
                scan, invariant = table.scan(meta=True), "I4 snapshot"
            else:
                scan, invariant = _travel(world, actor, table), "I6 time travel"
            if scan is None:
                continue
            seq = scan.cursor.seq
            world.scheduler.note(actor, f"reads slot {seq}")
            world.scheduler.sleep(actor, actor.rng.choice((0, 0.01, 0.1)))
            world.oracle.read(seq, rows_of(world, actor, scan), 0, invariant)
        except StoreUnavailable:
            continue
        except SnapshotExpired as problem:
            may_be_expired(world, seq, problem)


def _travel(world: World, actor: Actor, table: Table) -> Any:
    seq = actor.rng.randint(1, world.oracle.head)
    try:
        return table.scan(as_of=Cursor(world.oracle.slots[1]["table"], seq), meta=True)
    except SnapshotExpired as problem:
        may_be_expired(world, seq, problem)
        return None


@role
def pinner(world: World, actor: Actor, table: Table) -> None:
    """Holds a snapshot by a lease: while it lasts nothing of it may go, however slowly it is read."""
    for _ in range(actor.rng.randint(1, 3)):
        held = 0
        try:
            seq = actor.rng.choice(
                (world.oracle.min_readable, actor.rng.randint(world.oracle.min_readable, world.oracle.head))
            )
            with table.pin(as_of=Cursor(world.oracle.slots[1]["table"], seq)) as pin:
                held = world.scheduler.now
                world.scheduler.note(actor, f"holds slot {seq}")
                for _ in range(actor.rng.randint(1, 3)):
                    world.oracle.read(seq, rows_of(world, actor, pin.scan(meta=True)), 0, "I4 snapshot")
                    world.scheduler.sleep(actor, actor.rng.choice((0.05, 0.5)))
        except StoreUnavailable:
            continue
        except SnapshotExpired as problem:
            if held and world.scheduler.now - held < _HOLD_MS:
                world.oracle.wrong("I4 snapshot", f"slot {seq} was held, and reading it said {problem}")
            if not held:
                may_be_expired(world, seq, problem)


@role
def keeper(world: World, actor: Actor, table: Table) -> None:
    """Makes savepoints, gives them up, and brings snapshots back."""
    oracle, rng = world.oracle, actor.rng
    for _ in range(rng.randint(1, 3)):
        what = rng.choice(("save", "save", "give up", "restore"))
        try:
            if what == "save":
                seq, name = rng.randint(oracle.min_readable, oracle.head), f"s{world.next_value()}"
                world.scheduler.note(actor, f"savepoint {name} of slot {seq}")
                table.savepoints.create(name, as_of=Cursor(oracle.slots[1]["table"], seq))
                if name not in oracle.saved:
                    oracle.wrong("I7 acknowledgement", f"savepoint {name} was made, but no slot says so")
            elif what == "give up" and oracle.savepoints:
                name = rng.choice(sorted(oracle.savepoints))
                world.scheduler.note(actor, f"gives up savepoint {name}")
                table.savepoints.delete(name)
            elif what == "restore":
                intent = Intent(len(oracle.intents), actor.name, "restore", [])
                intent.position = rng.choice(
                    [*oracle.savepoints.values(), rng.randint(oracle.min_readable, oracle.head)]
                )
                oracle.intents.append(intent)
                unknown = attempt(world, actor, table, intent)
                if unknown:
                    resolve_unknown(world, actor, table, intent, unknown)
        except SnapshotExpired as problem:
            may_be_expired(world, seq, problem)
        except (StoreUnavailable, CommitUnknown, CommitConflict, OptionError, PositionError) as problem:
            world.scheduler.note(actor, f"no {what}: {problem}")


@role
def consumer(world: World, actor: Actor, table: Table) -> None:
    """Reads what changed since it last looked, and goes on from there."""
    since = until = actor.rng.randint(1, world.oracle.head)
    for _ in range(actor.rng.randint(2, 3)):
        try:
            scan = table.incremental(Cursor(world.oracle.slots[1]["table"], since), meta=True)
            until = scan.cursor.seq
            world.scheduler.note(actor, f"reads slots {since} to {until}")
            world.oracle.read(until, rows_of(world, actor, scan), since, "I5 incremental")
            if actor.rng.random() < 0.5:
                _changes_too(world, actor, table, since, until)
            since = until
        except StoreUnavailable:
            pass
        except SnapshotExpired as problem:
            if since >= world.oracle.archived:
                may_be_expired(world, until, problem)
            since = world.oracle.head
        world.scheduler.sleep(actor, actor.rng.random() * 0.1)


def _changes_too(world: World, actor: Actor, table: Table, since: int, until: int) -> None:
    """The same range as changes, for which the snapshot that it begins at has to be there too."""
    name = world.oracle.slots[1]["table"]
    try:
        world.oracle.told(since, until, rows_of(world, actor, table.changes(Cursor(name, since), Cursor(name, until))))
    except SnapshotExpired as problem:
        may_be_expired(world, since, problem)


@role
def inspector(world: World, actor: Actor, table: Table) -> None:
    """Looks at the timeline and at what services owe."""
    for look in (table.inspect.timeline, table.maintenance.lag):
        try:
            look()
        except StoreUnavailable:
            continue
