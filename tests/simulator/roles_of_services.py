"""Who keeps the table in shape, and who ends what others began."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
from oracle import Intent
from roles_of_writers import end, new_row, owning
from scheduler import Actor
from table_columns import value_name
from world import SCHEMA, TRIES, World, role

from hoodoo.compactor.compaction import plans
from hoodoo.compactor.compaction.log_compaction import compact_logs
from hoodoo.compactor.compaction.triggers import behind
from hoodoo.errors import (
    ColumnError,
    CommitConflict,
    CommitUnknown,
    Fenced,
    PurgeBlocked,
    SnapshotExpired,
    StoreUnavailable,
)
from hoodoo.format.names import BaseFileName, parse_data_file
from hoodoo.table import Table
from hoodoo.timeline.layout import CLAIMS
from hoodoo.timeline.views.totals import count

_ALL_INSTANTS = 1_000_000


@role
def compactor(world: World, actor: Actor, table: Table) -> None:
    """Schedules, runs open plans, or both; several may run one plan."""
    for _ in range(actor.rng.randint(1, 2)):
        what, least = actor.rng.choice(("schedule", "schedule", "run", "both")), actor.rng.choice((1, 1, 2))
        world.scheduler.note(actor, f"compaction: {what}")
        try:
            if what == "both":
                table.compact(logs_min=least)
            elif what == "schedule":
                plans.commit_compaction_plan(
                    table.handle.context(), lambda view, least=least: plans.plan_groups_with_logs(view, least)
                )
            else:
                context = table.handle.context()
                plans.run_open_plans(context, context.timeline.history.head())
        except (CommitUnknown, StoreUnavailable):
            pass
        world.scheduler.sleep(actor, actor.rng.random() * 0.1)


@role
def merger(world: World, actor: Actor, table: Table) -> None:
    """Merges logs among themselves."""
    for _ in range(actor.rng.randint(1, 3)):
        least = actor.rng.choice((1, 2, 2, 3))
        with suppress(CommitUnknown, StoreUnavailable):
            done = compact_logs(table.handle.context(), lambda view, least=least: behind(view, least))
            world.scheduler.note(actor, f"merged logs: {done}")
            _names_the_same_files(world, table)
        world.scheduler.sleep(actor, actor.rng.random() * 0.1)


def _names_the_same_files(world: World, table: Table) -> None:
    """A view that kept a merged log would give the same rows, and never let go of the file."""
    view = table.handle.history.known_head()
    found = {(group.partition, group.file_id): {entry.file.path for entry in group.files()} for group in view.groups()}
    if found != {place: set(group.paths()) for place, group in world.oracle.groups[view.seq].items()}:
        world.oracle.wrong("I4 snapshot", f"the view at slot {view.seq} names other files than the slots: {found}")
    if view.totals != count(view.partitions).together:
        world.oracle.wrong("I4 snapshot", f"the totals of the view at slot {view.seq} are not those of its files")


@role
def clusterer(world: World, actor: Actor, table: Table) -> None:
    """Packs small file groups, or sorts them."""
    for _ in range(actor.rng.randint(1, 2)):
        by, order = actor.rng.choice(
            ((None, "linear"), (["v"], "linear"), (["v", "ts"], "zorder"), (["ts", "v"], "hilbert"))
        )
        value = value_name(table.schema.names)
        by = by and [value if name == "v" else name for name in by]
        with suppress(CommitUnknown, StoreUnavailable, ColumnError):  # called otherwise by now
            done = table.maintenance.cluster(sort_by=by, order=order)
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
                report = table.maintenance.purge(pa.Table.from_pylist(rows, schema=SCHEMA))
        except (CommitUnknown, StoreUnavailable, CommitConflict, Fenced, PurgeBlocked, SnapshotExpired) as problem:
            world.scheduler.note(actor, f"no purge: {type(problem).__name__} {problem}")
            continue
        intent.known = "ok"
        world.scheduler.note(actor, f"purged: {report}")
        if report.files_proved and report.instants:
            _nothing_older_holds(world, intent, min(report.instants))
        world.scheduler.sleep(actor, actor.rng.random() * 0.1)


def _nothing_older_holds(world: World, intent: Intent, instant: str) -> None:
    """After a purge that was proved no data file that is older than it has a record of its keys."""
    files = world.oracle.files
    for path in list(world.objects.keys):
        parsed = None if path.startswith(".hoodie/") else parse_data_file(path.rpartition("/")[2])
        if parsed and parsed.instant < instant:
            keys = (
                set(files.base(path))
                if isinstance(parsed, BaseFileName)
                else {change.key for change in files.log(path)}
            )
            if held := keys & {row["id"] for row in intent.rows if path.startswith(f"city={row['city']}/")}:
                world.oracle.wrong("I7 acknowledgement", f"{intent} was proved, and {path} holds {held}")


@role
def cleaner(world: World, actor: Actor, table: Table) -> None:
    for _ in range(actor.rng.randint(1, 3)):
        world.scheduler.sleep(actor, actor.rng.random() * 0.4)
        commits = actor.rng.choice((1, 1, 2, 3))
        world.scheduler.note(actor, f"clean, keep {commits}")
        with suppress(CommitUnknown, StoreUnavailable):
            table.maintenance.clean(retain_hours=0, retain_commits=commits)


@role
def archiver(world: World, actor: Actor, table: Table) -> None:
    """Days pass, whoever was in the middle of something; then old slots are archived."""
    for _ in range(actor.rng.randint(1, 2)):
        since = world.oracle.head
        for _ in range(TRIES):
            world.scheduler.sleep(actor, actor.rng.random() * 0.1)
            if world.oracle.head > since + 2:
                break
        world.scheduler.leap(actor, 30)
        with suppress(CommitUnknown, StoreUnavailable):
            done = table.maintenance.archive(older_than_hours=0, keep_instants=_ALL_INSTANTS)
            world.scheduler.note(actor, f"archived {done}")


@role
def sweeper(world: World, actor: Actor, table: Table) -> None:
    """Takes every pending write for dead, whoever lives."""
    for _ in range(actor.rng.randint(1, 3)):
        world.scheduler.sleep(actor, actor.rng.random() * 0.2)
        world.scheduler.note(actor, "sweep")
        table.maintenance.sweep(older_than_hours=0)


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
