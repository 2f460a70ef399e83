"""Who acts on the table: each role is a function that works on a table of its own until it is done. Add a role: write one, register it.

An actor reports to the oracle what it meant and what it was told. Errors that are part of the interface are answered as a user would;
any other error is a violation.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from oracle import Intent, Oracle
from scheduler import Actor, Scheduler
from shared_store import Handle, Objects

from hoodoo.compactor import plans
from hoodoo.compactor.log_compaction import compact_logs
from hoodoo.compactor.triggers import behind
from hoodoo.errors import (
    AlreadyCommitted,
    CommitConflict,
    CommitUnknown,
    Fenced,
    KeyExists,
    OptionError,
    PositionError,
    PurgeBlocked,
    SnapshotExpired,
    StoreUnavailable,
)
from hoodoo.format.names import BaseName, parse_data_file
from hoodoo.readers.positions import Cursor
from hoodoo.table import Table
from hoodoo.timeline.layout import CLAIMS

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
_FLAGGED = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
_TRIES = 30
_HOLD_MS = 3_600_000
_ALL_INSTANTS = 1_000_000


@dataclass
class World:
    """What a simulation consists of. `weights`: how often each operation is chosen by writers."""

    scheduler: Scheduler
    objects: Objects
    oracle: Oracle
    rng: random.Random
    keys: str
    weights: dict[str, int]
    most_rows: int
    lists_by_prefix: bool
    page_size: int
    serial: int = 0

    def table_of(self, actor: Actor) -> Table:
        handle = Handle(self.scheduler, self.objects, actor, self.lists_by_prefix, self.page_size)
        for _ in range(_TRIES):
            try:
                return Table(handle, self.scheduler.environment(actor))
            except StoreUnavailable:
                self.scheduler.sleep(actor, 0.05)
        raise StoreUnavailable("the table could not be opened")

    def next_value(self) -> int:
        self.serial += 1
        return self.serial


Role = Callable[[World, Actor, Table], None]
ROLES: dict[str, Role] = {}


def role(run: Role) -> Role:
    ROLES[run.__name__] = run
    return run


def act(world: World, actor: Actor, name: str) -> None:
    """The life of one actor: open the table, do its part. An error that no role expects is a violation."""
    try:
        table = world.table_of(actor)
        ROLES[name](world, actor, table)
    except (StoreUnavailable, CommitUnknown):
        return  # it gives up, as a process whose store is away does
    except Exception as problem:
        places = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in traceback.extract_tb(problem.__traceback__)]
        world.oracle.wrong("errors", f"{actor.name} got {type(problem).__name__}: {problem} ({' '.join(places[-8:])})")


# ---- writers
def new_row(world: World, rng: random.Random) -> dict[str, Any]:
    return {"id": rng.choice(world.keys), "city": rng.choice("pq"), "ts": rng.randint(0, 3), "v": world.next_value()}


def new_intent(world: World, actor: Actor) -> Intent:
    rng, oracle = actor.rng, world.oracle
    operation = rng.choices(list(world.weights), list(world.weights.values()))[0]
    rows = [new_row(world, rng) for _ in range(rng.randint(1, world.most_rows))] if operation != "drop" else []
    if operation == "flagged":
        rows = [{**row, "_hoodie_is_deleted": rng.random() < 0.5} for row in rows]
    intent = Intent(len(oracle.intents), actor.name, "upsert" if operation == "flagged" else operation, rows)
    if operation == "drop":
        intent.partitions = rng.choice((["p"], ["q"], ["p", "q"]))
    intent.existing = rng.choice(("keep", "fail"))
    if rng.random() < 0.3:
        intent.transaction = rng.choice("AB"), rng.randint(0, 6)
    oracle.intents.append(intent)
    return intent


def call(table: Table, intent: Intent) -> Any:
    """The call that the intent stands for."""
    if intent.operation == "restore":
        return table.restore(Cursor(table.cursor.table, intent.position))
    if intent.operation == "drop":
        return table.delete_partitions(intent.partitions, transaction=intent.transaction)
    flagged = any("_hoodie_is_deleted" in row for row in intent.rows)
    data = pa.Table.from_pylist(intent.rows, schema=_FLAGGED if flagged else SCHEMA)
    if intent.operation == "bulk insert":
        return table.bulk_insert(data)
    if intent.operation == "insert":
        return table.insert(data, existing=intent.existing, transaction=intent.transaction)
    if intent.operation == "overwrite":
        return table.insert_overwrite(data, transaction=intent.transaction)
    return getattr(table, intent.operation)(data, transaction=intent.transaction)


@contextmanager
def owning(world: World, actor: Actor, intent: Intent) -> Iterator[None]:
    """Every nonce that the actor draws meanwhile is the intent's."""

    def own(token: str) -> None:
        world.oracle.owners[token] = intent

    before, actor.on_token = actor.on_token, own
    try:
        yield
    finally:
        actor.on_token = before


def attempt(world: World, actor: Actor, table: Table, intent: Intent) -> CommitUnknown | None:
    """Make the call and report what it said; the error if it could not say."""
    oracle, since = world.oracle, world.oracle.head
    world.scheduler.note(actor, str(intent))
    try:
        with owning(world, actor, intent):
            result = call(table, intent)
    except CommitUnknown as unknown:
        intent.known = "unknown"
        return unknown
    except (CommitConflict, StoreUnavailable, Fenced, KeyExists, SnapshotExpired) as problem:
        intent.known, intent.why = "failed", f"{type(problem).__name__} {problem}"
        world.scheduler.note(actor, f"#{intent.number} failed: {intent.why}")
        if intent.slot:
            oracle.wrong("I7 acknowledgement", f"{intent} was reported as failed ({intent.why}) and is in slot {intent.slot}")
        if isinstance(problem, KeyExists):
            _existed(oracle, intent, since)
        if isinstance(problem, SnapshotExpired):
            may_be_expired(world, intent.position, problem)
        return None
    intent.known = "ok"
    world.scheduler.note(actor, f"#{intent.number} ok: slot {result.cursor.seq} instant {result.instant}{' skipped' if result.skipped else ''}")
    acknowledged(oracle, intent, result)
    return None


def _existed(oracle: Oracle, intent: Intent, since: int) -> None:
    keys = {(row["city"], row["id"]) for row in intent.rows}
    if not any(keys & oracle.truth[seq].keys() for seq in range(since, oracle.head + 1)):
        oracle.wrong("I7 acknowledgement", f"{intent} was refused, but none of its keys existed meanwhile")


def acknowledged(oracle: Oracle, intent: Intent, result: Any) -> None:
    seq = result.cursor.seq
    if result.skipped:
        application, version = intent.transaction or ("", 0)
        if oracle.applications.get(application, -1) < version:
            oracle.wrong("I7 acknowledgement", f"{intent} was skipped, but no such version was committed")
    elif not result.instant:
        if intent.slot or not oracle.changes_nothing(intent, seq):
            oracle.wrong("I7 acknowledgement", f"{intent} was reported as changing nothing at slot {seq}")
    elif intent.slot != seq or oracle.slots[seq]["instant"] != result.instant:
        oracle.wrong("I7 acknowledgement", f"{intent} was reported as slot {seq}, instant {result.instant}; it is in slot {intent.slot}")


@role
def writer(world: World, actor: Actor, table: Table) -> None:
    """Writes batches of few keys; after an unknown outcome asks, tries again under the same transaction, or leaves it."""
    for _ in range(actor.rng.randint(1, 3)):
        intent = new_intent(world, actor)
        unknown = attempt(world, actor, table, intent)
        if unknown:
            _resolve(world, actor, table, intent, unknown)


def _resolve(world: World, actor: Actor, table: Table, intent: Intent, unknown: CommitUnknown) -> None:
    how = actor.rng.random()
    if how < 0.3:
        end(world, actor, table, unknown.details["instant"], intent)
    elif how < 0.6:
        _ask(world, actor, intent, unknown)
    elif intent.transaction:
        again = Intent(len(world.oracle.intents), actor.name, intent.operation, intent.rows, intent.partitions, intent.existing, intent.transaction)
        world.oracle.intents.append(again)
        attempt(world, actor, table, again)


def _ask(world: World, actor: Actor, intent: Intent, unknown: CommitUnknown) -> None:
    there = unknown.resolve()
    world.scheduler.note(actor, f"#{intent.number} resolved: {'committed' if there else 'not committed'}")
    if there != bool(intent.slot):
        world.oracle.wrong("I7 acknowledgement", f"{intent} was resolved as {'' if there else 'not '}committed; it is in slot {intent.slot}")
    if not there:
        intent.known, intent.why = "failed", "resolved as not committed"


def end(world: World, actor: Actor, table: Table, instant: str, intent: Intent | None = None) -> None:
    """Roll `instant` back, or learn that it ended."""
    oracle = world.oracle
    world.scheduler.note(actor, f"roll back {instant}")
    try:
        table.rollback(instant)
        want = "rolled_back"
    except AlreadyCommitted:
        want = ""
    except (PositionError, CommitConflict, Fenced) as problem:
        world.scheduler.note(actor, f"no rollback: {problem}")
        return
    if want and oracle.ended.get(instant) != want or not want and instant not in oracle.ended:
        oracle.wrong("I7 acknowledgement", f"the rollback of {instant} said {want or 'it ended'}, the slots say {oracle.ended.get(instant, 'nothing')}")
    if intent and want:
        intent.known, intent.why = "failed", "rolled back by its own writer"


# ---- services
@role
def compactor(world: World, actor: Actor, table: Table) -> None:
    """Schedules, runs open plans, or both; several may run one plan."""
    for _ in range(actor.rng.randint(1, 2)):
        what, least = actor.rng.choice(("schedule", "schedule", "run", "both")), actor.rng.choice((1, 1, 2))
        world.scheduler.note(actor, f"compaction: {what}")
        try:
            if what == "both":
                table.compact(least)
            elif what == "schedule":
                plans.schedule(table._context(), lambda view, least=least: plans.plan_behind(view, least))
            else:
                context = table._context()
                plans.run_open(context, context.timeline.history.head())
        except (CommitUnknown, StoreUnavailable):
            pass
        world.scheduler.sleep(actor, actor.rng.random() * 0.1)


@role
def merger(world: World, actor: Actor, table: Table) -> None:
    """Merges logs among themselves."""
    for _ in range(actor.rng.randint(1, 3)):
        least = actor.rng.choice((1, 2, 2, 3))
        with suppress(CommitUnknown, StoreUnavailable):
            done = compact_logs(table._context(), lambda view, least=least: behind(view, least))
            world.scheduler.note(actor, f"merged logs: {done}")
            _names_the_same_files(world, table)
        world.scheduler.sleep(actor, actor.rng.random() * 0.1)


def _names_the_same_files(world: World, table: Table) -> None:
    """A view that kept a merged log would give the same rows, and never let go of the file."""
    view = table._history.known_head()
    found = {(group.partition, group.file_id): {entry.file.path for entry in group.files()} for group in view.groups()}
    if found != {place: set(group.paths()) for place, group in world.oracle.groups[view.seq].items()}:
        world.oracle.wrong("I4 snapshot", f"the view at slot {view.seq} names other files than the slots: {found}")


@role
def clusterer(world: World, actor: Actor, table: Table) -> None:
    """Packs small file groups, or sorts them."""
    for _ in range(actor.rng.randint(1, 2)):
        by, order = actor.rng.choice(((None, "linear"), (["v"], "linear"), (["v", "ts"], "zorder"), (["ts", "v"], "hilbert")))
        with suppress(CommitUnknown, StoreUnavailable):
            done = table.cluster(by=by, order=order)
            world.scheduler.note(actor, f"clustered by {by}: {done}")
        world.scheduler.sleep(actor, actor.rng.random() * 0.1)


@role
def purger(world: World, actor: Actor, table: Table) -> None:
    """Deletes rows for good; where a reader or savepoint is in the way, it is told so and nothing happened."""
    for _ in range(actor.rng.randint(1, 2)):
        oracle = world.oracle
        rows = [new_row(world, actor.rng) for _ in range(actor.rng.randint(1, world.most_rows))]
        intent = Intent(len(oracle.intents), actor.name, "delete", rows, repeats=True)
        oracle.intents.append(intent)
        world.scheduler.note(actor, f"purge {intent}")
        try:
            with owning(world, actor, intent):
                report = table.purge(pa.Table.from_pylist(rows, schema=SCHEMA))
        except (CommitUnknown, StoreUnavailable, CommitConflict, PurgeBlocked, SnapshotExpired) as problem:
            world.scheduler.note(actor, f"no purge: {type(problem).__name__} {problem}")
            continue
        intent.known = "ok"
        world.scheduler.note(actor, f"purged: {report}")
        if report.proved and report.instants:
            _nothing_older_holds(world, intent, min(report.instants))
        world.scheduler.sleep(actor, actor.rng.random() * 0.1)


def _nothing_older_holds(world: World, intent: Intent, instant: str) -> None:
    """After a purge that was proved no data file that is older than it has a record of its keys."""
    files = world.oracle.files
    for path in list(world.objects.keys):
        parsed = None if path.startswith(".hoodie/") else parse_data_file(path.rpartition("/")[2])
        if parsed and parsed.instant < instant:
            keys = set(files.base(path)) if isinstance(parsed, BaseName) else {change.key for change in files.log(path)}
            if held := keys & {row["id"] for row in intent.rows if path.startswith(f"city={row['city']}/")}:
                world.oracle.wrong("I7 acknowledgement", f"{intent} was proved, and {path} holds {held}")


@role
def cleaner(world: World, actor: Actor, table: Table) -> None:
    for _ in range(actor.rng.randint(1, 3)):
        world.scheduler.sleep(actor, actor.rng.random() * 0.4)
        commits = actor.rng.choice((1, 1, 2, 3))
        world.scheduler.note(actor, f"clean, keep {commits}")
        with suppress(CommitUnknown, StoreUnavailable):
            table.clean(retain_hours=0, retain_commits=commits)


@role
def archiver(world: World, actor: Actor, table: Table) -> None:
    """Days pass, whoever was in the middle of something; then old slots are archived."""
    for _ in range(actor.rng.randint(1, 2)):
        since = world.oracle.head
        for _ in range(_TRIES):
            world.scheduler.sleep(actor, actor.rng.random() * 0.1)
            if world.oracle.head > since + 2:
                break
        world.scheduler.leap(actor, 30)
        with suppress(CommitUnknown, StoreUnavailable):
            done = table.archive(older_than_hours=0, keep_instants=_ALL_INSTANTS)
            world.scheduler.note(actor, f"archived {done}")


@role
def sweeper(world: World, actor: Actor, table: Table) -> None:
    """Takes every pending write for dead, whoever lives."""
    for _ in range(actor.rng.randint(1, 3)):
        world.scheduler.sleep(actor, actor.rng.random() * 0.2)
        world.scheduler.note(actor, "sweep")
        table.sweep(older_than_hours=0)


@role
def ender(world: World, actor: Actor, table: Table) -> None:
    """Rolls back instants that look pending, whoever owns them."""
    for _ in range(actor.rng.randint(1, 3)):
        claims = [key[len(CLAIMS) :] for key, _ in world.objects.page(CLAIMS, "", 1000)]
        pending = [instant for instant in claims if instant not in world.oracle.ended]
        if pending:
            with suppress(CommitUnknown, StoreUnavailable):
                end(world, actor, table, actor.rng.choice(pending[-4:]))
        world.scheduler.sleep(actor, actor.rng.random() * 0.05)


# ---- readers
def rows_of(world: World, actor: Actor, scan: Any) -> list[dict[str, Any]]:
    """The rows of a scan, slice by slice, with others in between."""
    found = []
    for batch in scan.batches():
        found += batch.to_pylist()
        world.scheduler.switch(actor)
    return found


def may_be_expired(world: World, seq: int, problem: SnapshotExpired) -> None:
    if seq >= world.oracle.min_readable or seq in world.oracle.savepoints.values():
        world.oracle.wrong("I6 time travel", f"slot {seq} was refused, although snapshots from {world.oracle.min_readable} on are readable: {problem}")


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
            seq = actor.rng.choice((world.oracle.min_readable, actor.rng.randint(world.oracle.min_readable, world.oracle.head)))
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
                table.savepoint(name, as_of=Cursor(oracle.slots[1]["table"], seq))
                if name not in oracle.saved:
                    oracle.wrong("I7 acknowledgement", f"savepoint {name} was made, but no slot says so")
            elif what == "give up" and oracle.savepoints:
                name = rng.choice(sorted(oracle.savepoints))
                world.scheduler.note(actor, f"gives up savepoint {name}")
                table.delete_savepoint(name)
            elif what == "restore":
                intent = Intent(len(oracle.intents), actor.name, "restore", [])
                intent.position = rng.choice([*oracle.savepoints.values(), rng.randint(oracle.min_readable, oracle.head)])
                oracle.intents.append(intent)
                unknown = attempt(world, actor, table, intent)
                if unknown:
                    _resolve(world, actor, table, intent, unknown)
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
    for look in (table.timeline, table.lag):
        try:
            look()
        except StoreUnavailable:
            continue


