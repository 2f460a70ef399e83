"""Who writes: batches, restores, and asking after an unknown outcome."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from oracle import ADDED, BY_CONDITION, Intent, Oracle
from scheduler import Actor
from table_columns import value_name
from world import SCHEMA, World, may_be_expired, role

from hoodoo.errors import (
    AlreadyCommitted,
    ColumnError,
    CommitConflict,
    CommitUnknown,
    Fenced,
    KeyExists,
    PositionError,
    SnapshotExpired,
    StoreUnavailable,
)
from hoodoo.readers.cursor import Cursor
from hoodoo.table import Table
from hoodoo.table.merging import Merge

_FLAGGED = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))


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
    if intent.operation == "merge":
        return _merging(table, intent).execute(transaction=intent.transaction)
    if intent.operation in BY_CONDITION:
        cities = f" AND city = '{intent.partitions[0]}'" if intent.partitions else ""
        where = f"ts >= {intent.least}{cities}"
        if intent.operation == "delete where":
            return table.delete(where=where, transaction=intent.transaction)
        return table.update(_more, where=where, transaction=intent.transaction)
    flagged = any("_hoodie_is_deleted" in row for row in intent.rows)
    data = pa.Table.from_pylist(intent.rows, schema=_FLAGGED if flagged else SCHEMA)
    if intent.operation == "upsert columns":
        return table.upsert(data.drop_columns("v"), transaction=intent.transaction, columns="given", new_keys="ignore")
    value = value_name(table.schema.names)  # as this process knows it
    data = data.rename_columns([value if name == "v" else name for name in data.schema.names])
    if intent.operation == "bulk insert":
        return table.insert(data, missing="null", bulk=True)
    if intent.operation == "insert":
        return table.insert(data, existing=intent.existing, transaction=intent.transaction, missing="null")
    if intent.operation == "overwrite":
        return table.insert_overwrite(data, transaction=intent.transaction, missing="null")
    if intent.operation == "delete":
        return table.delete(data, transaction=intent.transaction)
    return table.upsert(data, transaction=intent.transaction, missing="null")


def _merging(table: Table, intent: Intent) -> Merge:
    """Adds the values of rows to those of their keys; rows without a source row are deleted where a city is named."""
    value = value_name(table.schema.names)
    data = pa.Table.from_pylist(intent.rows, schema=SCHEMA).rename_columns([*SCHEMA.names[:-1], value])
    merging = table.merge(data).when_matched_update({value: f"target.{value} + source.{value}"})
    merging.when_not_matched_insert({"ts": "source.ts", value: f"source.{value}"})
    if intent.partitions:
        merging.when_not_matched_by_source_delete(where=f"city = '{intent.partitions[0]}' AND ts >= {intent.least}")
    return merging


def _more(rows: pa.Table) -> dict[str, Any]:
    value = value_name(rows.schema.names)
    return {value: pc.add(rows[value], ADDED)}


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
    except (CommitConflict, StoreUnavailable, Fenced, KeyExists, SnapshotExpired, ColumnError) as problem:
        intent.known, intent.why = "failed", f"{type(problem).__name__} {problem}"
        world.scheduler.note(actor, f"#{intent.number} failed: {intent.why}")
        if intent.slot:
            oracle.wrong(
                "I7 acknowledgement", f"{intent} was reported as failed ({intent.why}) and is in slot {intent.slot}"
            )
        if isinstance(problem, ColumnError) and len(oracle.columns.schemas) == 1:
            oracle.wrong("errors", f"{intent} was refused, and no column changed: {problem}")
        if isinstance(problem, KeyExists):
            _existed(oracle, intent, since)
        if isinstance(problem, SnapshotExpired):
            may_be_expired(world, intent.position, problem)
        return None
    intent.known = "ok"
    world.scheduler.note(
        actor,
        f"#{intent.number} ok: slot {result.cursor.seq} instant {result.instant}{' skipped' if result.skipped else ''}",
    )
    acknowledged(oracle, intent, result)
    return None


def _existed(oracle: Oracle, intent: Intent, since: int) -> None:
    keys = {(row["city"], row["id"]) for row in intent.rows}
    if not any(keys & oracle.truth[seq].keys() for seq in range(since, oracle.head + 1)):
        oracle.wrong("I7 acknowledgement", f"{intent} was refused, but none of its keys existed meanwhile")


def acknowledged(oracle: Oracle, intent: Intent, result: Any) -> None:
    seq = result.cursor.seq
    if result.skipped:
        application, version = (intent.transaction or ("", 0))[:2]
        if oracle.applications.get(application, -1) < version:
            oracle.wrong("I7 acknowledgement", f"{intent} was skipped, but no such version was committed")
        if intent.reaches and oracle.reached.get((application, version)) != intent.reaches:
            oracle.wrong("I7 acknowledgement", f"{intent} was skipped, but others read another range under its number")
    elif not result.instant:
        if intent.slot or not oracle.changes_nothing(intent, seq):
            oracle.wrong("I7 acknowledgement", f"{intent} was reported as changing nothing at slot {seq}")
    elif intent.slot != seq or oracle.slots[seq]["instant"] != result.instant:
        oracle.wrong(
            "I7 acknowledgement",
            f"{intent} was reported as slot {seq}, instant {result.instant}; it is in slot {intent.slot}",
        )


@role
def writer(world: World, actor: Actor, table: Table) -> None:
    """Writes batches of few keys; after an unknown outcome asks, tries again under the same
    transaction, or leaves it.
    """
    for _ in range(actor.rng.randint(1, 3)):
        intent = new_intent(world, actor)
        unknown = attempt(world, actor, table, intent)
        if unknown:
            resolve_unknown(world, actor, table, intent, unknown)


@role
def updater(world: World, actor: Actor, table: Table) -> None:
    """Adds to the values of rows that match a condition, deletes them, merges rows, or upserts columns of them."""
    for _ in range(actor.rng.randint(1, 3)):
        intent = new_intent(world, actor)
        intent.operation = actor.rng.choice(("update", "update", "merge", "merge", "delete where", "upsert columns"))
        intent.least = actor.rng.choice((0, 0, 2, 3))
        intent.partitions = actor.rng.choice(([], [], ["p"], ["q"]))
        rows = [new_row(world, actor.rng) for _ in range(actor.rng.randint(1, world.most_rows))]
        once = {(row["city"], row["id"]): row for row in rows}
        intent.rows = list(once.values()) if intent.operation in ("merge", "upsert columns") else []
        unknown = attempt(world, actor, table, intent)
        if unknown:
            resolve_unknown(world, actor, table, intent, unknown)


@role
def slow_writer(world: World, actor: Actor, table: Table) -> None:
    """Its requests take long, so that others are first to take the slot that it wants; what it writes to a partition of
    its own conflicts with nobody.
    """
    actor.request_ms = actor.rng.choice((40, 80, 160))
    for _ in range(2):
        intent = new_intent(world, actor)
        intent.operation = "upsert"
        intent.rows = [{**new_row(world, actor.rng), "city": "".join(filter(str.isalnum, actor.name))}]
        unknown = attempt(world, actor, table, intent)
        if unknown:
            resolve_unknown(world, actor, table, intent, unknown)


@role
def ingester(world: World, actor: Actor, table: Table) -> None:
    """One of several processes that read one source, each by a range of its own choice, from where the table says that
    all of them are.
    """
    for _ in range(actor.rng.randint(2, 4)):
        at = table.inspect.application("job")
        intent = new_intent(world, actor)
        intent.operation, intent.begins = "upsert", int(at.position or 0)
        intent.reaches = intent.begins + actor.rng.randint(1, 3)
        intent.rows = [new_row(world, actor.rng) for _ in range(intent.begins, intent.reaches)]
        intent.transaction = at.next(str(intent.reaches))
        world.scheduler.sleep(actor, actor.rng.random() * 0.1)
        unknown = attempt(world, actor, table, intent)
        if unknown:
            resolve_unknown(world, actor, table, intent, unknown)


@role
def busy_writer(world: World, actor: Actor, table: Table) -> None:
    """Takes one slot after the other."""
    for _ in range(3):
        writer(world, actor, table)


def resolve_unknown(world: World, actor: Actor, table: Table, intent: Intent, unknown: CommitUnknown) -> None:
    how = actor.rng.random()
    if how < 0.3:
        end(world, actor, table, unknown.details["instant"], intent)
    elif how < 0.6:
        _ask(world, actor, intent, unknown)
    elif intent.transaction:
        again = Intent(
            len(world.oracle.intents),
            actor.name,
            intent.operation,
            intent.rows,
            intent.partitions,
            intent.existing,
            least=intent.least,
            transaction=intent.transaction,
            begins=intent.begins,
            reaches=intent.reaches,
        )
        world.oracle.intents.append(again)
        attempt(world, actor, table, again)


def _ask(world: World, actor: Actor, intent: Intent, unknown: CommitUnknown) -> None:
    there = unknown.resolve()
    world.scheduler.note(actor, f"#{intent.number} resolved: {'committed' if there else 'not committed'}")
    if there != bool(intent.slot):
        world.oracle.wrong(
            "I7 acknowledgement",
            f"{intent} was resolved as {'' if there else 'not '}committed; it is in slot {intent.slot}",
        )
    if not there:
        intent.known, intent.why = "failed", "resolved as not committed"


def end(world: World, actor: Actor, table: Table, instant: str, intent: Intent | None = None) -> None:
    """Roll `instant` back, or learn that it ended."""
    oracle = world.oracle
    world.scheduler.note(actor, f"roll back {instant}")
    try:
        table.maintenance.rollback(instant)
        want = "rolled_back"
    except AlreadyCommitted:
        want = ""
    except (PositionError, CommitConflict, Fenced) as problem:
        world.scheduler.note(actor, f"no rollback: {problem}")
        return
    if want and oracle.ended.get(instant) != want or not want and instant not in oracle.ended:
        oracle.wrong(
            "I7 acknowledgement",
            (
                f"the rollback of {instant} said {want or 'it ended'}, the slots say "
                f"{oracle.ended.get(instant, 'nothing')}"
            ),
        )
    if intent and want:
        intent.known, intent.why = "failed", "rolled back by its own writer"
