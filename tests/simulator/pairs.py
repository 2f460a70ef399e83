"""Every operation in the middle of every other: A pauses before its i-th store operation, B runs to its j-th (or its
end), then A ends, then B.

    python pairs.py table         prints the table of docs/simulation.md
    python pairs.py every         runs every pair at every step of A and says what broke

The table is small and has work for everybody: two partitions, base files under logs, two small file groups, superseded
files, a savepoint. The oracle of the simulator judges every slot and what Hudi sees after every step: truth is
table_model.Model, to which the operations are applied in the order of their slots.
"""

from __future__ import annotations

import copy
import functools
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from oracle import Intent, Oracle
from roles_of_writers import acknowledged, call, owning
from scheduler import Actor, Faults, Scheduler, line
from shared_store import Handle, Objects
from simulation import in_place, left_over
from table_columns import VALUES, value_name
from world import SCHEMA, World

from hoodoo.compactor.compaction.log_compaction import compact_logs
from hoodoo.compactor.compaction.triggers import behind
from hoodoo.errors import HoodooError
from hoodoo.table import Table
from hoodoo.timeline import create_table
from hoodoo.timeline.columns.alterations import AddColumn, RenameColumn
from hoodoo.timeline.layout import CLAIMS, INDEX, PROPERTIES, SLOTS
from hoodoo.timeline.properties import config, hoodie_properties, table_options

KINDS = (config.MERGE_ON_READ, config.COPY_ON_WRITE)
OPTIONS = {
    "checkpoint_every": 3,
    "clean_every": None,
    "compact_after_logs": None,
    "retain_hours": 0,
    "retain_commits": 1,
    "target_file_bytes": 9_000,
    "compression": "none",
}
SAVED = "kept"
MOST_STEPS = 3_000
TO_THE_END = 1 << 30
_SPREAD = 8  # steps of A between those that are always tried


class Stage(Scheduler):
    """A runs up to its i-th store operation, B up to its j-th, A to its end, B to its end."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(random.Random(0), Faults(random.Random(0)), 0)
        self.until = {"A": first, "B": second}
        self.counts = {"A": 0, "B": 0}

    def before(self, actor: Actor, operation: str, key: str) -> None:
        if actor.thread is not None:
            self.counts[actor.name] += 1
        self.switch(actor)

    def _next(self, alive: list[Actor], last: Actor | None) -> Actor:
        early = [actor for actor in alive if self.counts[actor.name] < self.until[actor.name]]
        chosen = min(early or alive, key=lambda actor: actor.name)
        self.now = max(self.now, chosen.wake_at)
        return chosen


# ---- the operations
@dataclass
class Player:
    """Who carries out one operation on a table handle of its own."""

    world: World
    actor: Actor
    table: Table
    savepoint: int  # slot
    value: int

    def write(
        self,
        operation: str,
        *rows: tuple[str, str, int],
        partitions: tuple[str, ...] = (),
        position: int = 0,
        least: int = 0,
    ) -> str:
        oracle = self.world.oracle
        given = self.rows(*rows)
        number = len(oracle.intents)
        intent = Intent(number, self.actor.name, operation, given, list(partitions), least=least, position=position)
        oracle.intents.append(intent)
        try:
            with owning(self.world, self.actor, intent):
                result = call(self.table, intent)
        except HoodooError as problem:
            intent.known, intent.why = "failed", str(problem)
            if intent.slot:
                oracle.wrong(
                    "I7 acknowledgement", f"{intent} was reported as failed ({problem}) and is in slot {intent.slot}"
                )
            raise
        intent.known = "ok"
        acknowledged(oracle, intent, result)
        return ("ok" if result.instant else "nothing to do") + (", rebased" if result.retries else "")

    def rows(self, *rows: tuple[str, str, int]) -> list[dict[str, Any]]:
        return [{"id": key, "city": city, "ts": ts, "v": self.value} for city, key, ts in rows]


def upsert(player: Player) -> str:
    return player.write(
        "upsert", ("p", "a", 5), ("q", "n", 5)
    )  # a log for p, and a new row that rewrites a small file of q


def delete(player: Player) -> str:
    return player.write("delete", ("p", "a", 0), ("q", "x", 0))


def update(player: Player) -> str:
    return player.write("update", partitions=("p",), least=2)  # rows in a base, and one in a log


def columns(player: Player) -> str:
    return player.write("upsert columns", ("p", "a", 5), ("q", "x", 5))


def delete_where(player: Player) -> str:
    return player.write("delete where", least=2)  # a file group as a whole, and rows of others


def overwrite(player: Player) -> str:
    return player.write("overwrite", ("p", "b", 5), ("p", "m", 5))


def drop(player: Player) -> str:
    return player.write("drop", partitions=("p",))


def compaction(player: Player) -> str:
    done = player.table.compact()
    if not done.groups and player.table.maintenance.lag().open_plans:
        return "yields, the plan stays"
    return "ok" if done.groups else "done, nothing was left of it" if done.instants else "nothing to do"


def log_compaction(player: Player) -> str:
    done = compact_logs(player.table.handle.context(), lambda view: behind(view, 2))
    return "ok" if done.groups else "yields"


def clustering(player: Player) -> str:
    done = player.table.maintenance.cluster(partitions=["p"])
    return "ok" if done.units else "yields" if done.yielded else "nothing to do"


def clean(player: Player) -> str:
    return "ok" if player.table.maintenance.clean(retain_hours=0, retain_commits=1).instant else "nothing to do"


def savepoint(player: Player) -> str:
    player.table.savepoints.create(player.actor.name)
    if player.actor.name not in player.world.oracle.savepoints:
        player.world.oracle.wrong("I7 acknowledgement", "a savepoint was made, but no slot says so")
    return "ok"


def restore(player: Player) -> str:
    return player.write("restore", position=player.savepoint)


def purge(player: Player) -> str:
    oracle = player.world.oracle
    intent = Intent(len(oracle.intents), player.actor.name, "delete", player.rows(("p", "z", 0)), repeats=True)
    oracle.intents.append(intent)
    with owning(player.world, player.actor, intent):
        report = player.table.maintenance.purge(pa.Table.from_pylist(intent.rows, schema=SCHEMA))
    intent.known = "ok"
    return ("ok" if report.instants else "nothing to do") + ("" if report.files_proved else ", not proved")


def rename(player: Player) -> str:
    """A rename rewrites every file that has the column."""
    value = value_name(player.table.schema.names)
    name = next(name for name in VALUES if name != value)
    done = player.table.alter(
        [RenameColumn(value, name), AddColumn(f"n_{player.actor.name}", pa.int64())], rewrite=True
    )
    return "ok" if done.groups else "nothing to do"


OPERATIONS: dict[str, Callable[[Player], str]] = {
    "upsert": upsert,
    "delete": delete,
    "update": update,
    "upsert of columns": columns,
    "delete where": delete_where,
    "insert_overwrite": overwrite,
    "delete_partitions": drop,
    "compaction": compaction,
    "log compaction": log_compaction,
    "clustering": clustering,
    "clean": clean,
    "savepoint": savepoint,
    "restore": restore,
    "purge": purge,
    "change of columns": rename,
}
_ON_LOGS = ("compaction", "log compaction")


def operations(kind: str) -> list[str]:
    """Those that have something to do on tables of this type."""
    return [name for name in OPERATIONS if kind == config.MERGE_ON_READ or name not in _ON_LOGS]


# ---- the table before
@dataclass
class Start:
    objects: Objects
    oracle: Oracle
    savepoint: int
    now: int


@functools.cache
def start(kind: str) -> Start:
    """A table in which every operation has something to do."""
    stage = Stage(TO_THE_END, TO_THE_END)
    objects = Objects(lambda: stage.now)
    oracle = Oracle(objects, ordered=True)
    world = _world(stage, objects, oracle)
    founder = Actor("founder", random.Random("founder"), sound=True)
    handle = Handle(stage, objects, founder, False, 1000)
    create_table.create_table(
        handle,
        hoodie_properties.create_properties(
            "t", SCHEMA, ("id",), ("city",), ("ts",), kind, table_options.validate_new_options(OPTIONS)
        ),
        stage.environment(founder),
    )
    player = Player(world, founder, Table(handle, stage.environment(founder)), 0, 1)
    player.write("insert", *(("p", key, 1) for key in "abcd"), ("q", "x", 1), ("q", "y", 1))
    player.write("upsert", ("p", "a", 2), ("q", "x", 2))
    # where there are logs: what it replaced is superseded; else the upsert's own rewrites did that
    player.table.compact()
    saved = player.table.savepoints.create(SAVED).seq
    player.write("bulk insert", *(("p", key, 2) for key in "zuvw"))
    for ts in (3, 4):
        player.write("upsert", ("p", "a", ts), ("p", "z", ts))
    player.write("delete", ("p", "d", 0))
    player.write("upsert", ("q", "y", 4))
    assert not oracle.violation, oracle.violation
    return Start(objects, oracle, saved, stage.now)


def _world(stage: Stage, objects: Objects, oracle: Oracle) -> World:
    stage.after_step, stage.stopped = oracle.check, lambda: bool(oracle.violation)
    return World(stage, objects, oracle, random.Random(0), "", {}, 1, False, 1000)


def _twin(origin: Start, stage: Stage) -> World:
    """The prepared table once more, with an oracle that knows its past."""
    stage.now = origin.now
    objects = Objects(lambda: stage.now)
    objects.data, objects.written, objects.keys = (
        dict(origin.objects.data),
        dict(origin.objects.written),
        list(origin.objects.keys),
    )
    oracle = _copied(origin.oracle)
    oracle.files = _copied(origin.oracle.files)
    oracle.files.data, oracle.objects = objects.data, objects
    oracle.published, oracle.model = _copied(origin.oracle.published), _copied(origin.oracle.model)
    oracle.columns = _copied(origin.oracle.columns)
    oracle.published.files = oracle.files
    oracle.published.groups = {place: dict(paths) for place, paths in origin.oracle.published.groups.items()}
    objects.watch = oracle.watch
    return _world(stage, objects, oracle)


def _copied(one: Any) -> Any:
    twin = copy.copy(one)
    for name, value in vars(one).items():
        if isinstance(value, (dict, list, set)):
            setattr(twin, name, copy.copy(value))
    return twin


# ---- one run
@dataclass
class Told:
    """What each was told. problem: what broke, or ''. steps, other_steps: store operations of A and B.

    crucial: those of A, counted from 1, that read a data file, or put one, an index entry, a claim, a slot or the
    properties.
    """

    a: str = ""
    b: str = ""
    problem: str = ""
    steps: int = 0
    other_steps: int = 0
    crucial: list[int] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    digest: str = ""


def run(kind: str, a: str, b: str, first: int, second: int = TO_THE_END) -> Told:
    """A up to its `first` store operation, B up to its `second`, A to its end, B to its end. b '': A alone."""
    origin, stage, told = start(kind), Stage(first, second), Told()
    world = _twin(origin, stage)
    players = [_player(world, name, origin.savepoint, value) for name, value in (("A", 100), ("B", 200))]
    opened = len(stage.history)
    for player, operation in zip(players, (a, b) if b else (a,), strict=False):
        stage.start(player.actor, functools.partial(_play, player, OPERATIONS[operation], told))
    try:
        if not stage.run(MOST_STEPS):
            world.oracle.wrong("I11 recovery", f"they did not end in {MOST_STEPS} steps")
    finally:
        stage.close()
    if not world.oracle.violation:
        _judge(world)
    told.digest = stage.digest.hexdigest()
    told.problem, told.steps, told.other_steps = world.oracle.violation, stage.counts["A"], stage.counts["B"]
    mine = [entry for entry in stage.history[opened:] if entry[1] == "A" and entry[2] != "--" and entry[2] != "sleep"]
    told.crucial = [number for number, entry in enumerate(mine, 1) if _is_crucial(entry[2], entry[3])]
    told.history = [line(entry) for entry in stage.history] if told.problem else []
    return told


def _is_crucial(operation: str, key: str) -> bool:
    data = not key.startswith(".hoodie/")
    return (
        (data or key.startswith((SLOTS, CLAIMS, INDEX, PROPERTIES)))
        if operation.startswith("put")
        else data and operation != "list"
    )


def _player(world: World, name: str, saved: int, value: int) -> Player:
    actor = Actor(name, random.Random(f"actor {name}"), sound=True)
    return Player(world, actor, world.table_of(actor), saved, value)


def _play(player: Player, operation: Callable[[Player], str], told: Told) -> None:
    try:
        said = operation(player)
    except HoodooError as problem:
        said = f"`{problem.code}`"
    except Exception as problem:  # no other error is part of the interface
        said = f"{type(problem).__name__}: {problem}"
        player.world.oracle.wrong("errors", f"{player.actor.name} got {said}")
    setattr(told, player.actor.name.lower(), said)


def _judge(world: World) -> None:
    """Nothing is left behind, verify() is content, the reader and Hudi see the replay."""
    oracle = world.oracle
    planned = tuple(slot["instant"] for slot in oracle.slots[1:] if slot["outcome"] == "planned")
    for key in (
        world.objects.keys
    ):  # workers of one plan share their output: what it does not need any more is left to a sweep
        if (why := left_over(oracle, key)) and not any(instant in key for instant in planned):
            oracle.wrong("I11 recovery", f"{key} was left behind: {why}")
    table = world.table_of(Actor("heir", random.Random("heir"), sound=True))
    table.maintenance.sweep(older_than_hours=0)
    for key in world.objects.keys:
        if why := left_over(oracle, key):
            oracle.wrong("I11 recovery", f"{key} was not swept: {why}")
    for problem in table.verify().problems[:1]:
        oracle.wrong("I11 recovery", f"verify: {problem}")
    rows = table.scan(meta=True).to_arrow().to_pylist()
    oracle.read(oracle.head, rows, 0, "I4 snapshot")
    if oracle.shown != oracle.head:
        oracle.wrong("I11 recovery", f"slot {oracle.shown + 1} was not published")


# ---- all of them
def steps_of(kind: str, a: str, every: bool = False) -> list[int]:
    """Before which of its store operations A pauses: the first, the last, those that put what others may meet or read
    what they may take, and some of the others.
    """
    alone = _alone(kind, a)
    if every:
        return list(range(1, alone.steps + 1))
    return sorted({1, alone.steps, *alone.crucial, *range(1, alone.steps + 1, _SPREAD)})


@functools.cache
def _alone(kind: str, a: str) -> Told:
    told = run(kind, a, "", TO_THE_END)
    assert told.a == "ok" and not told.problem, f"{kind}, {a} alone: {told.a} {told.problem}"
    return told


def runs(a: str, every: bool = False) -> Iterator[tuple[str, str, int, Told]]:
    """(type, B, step of A, what was said) of all runs with this A."""
    for kind in KINDS:
        for b in operations(kind) if a in operations(kind) else ():
            for step in steps_of(kind, a, every):
                yield kind, b, step, run(kind, a, b, step)


def cell(outcomes: set[str]) -> str:
    return "; ".join(sorted(outcomes, key=lambda text: (not text.startswith("ok"), text)))


def row(a: str, told: dict[str, set[str]]) -> str:
    return f"| **{a}** | " + " | ".join(cell(told[b]) for b in OPERATIONS) + " |"


def head() -> str:
    return f"| A, then B in its middle | {' | '.join(OPERATIONS)} |\n|{' --- |' * (len(OPERATIONS) + 1)}"


def row_of(a: str, every: bool = False) -> tuple[str, int, list[str]]:
    """(row of the table, runs, what broke) with this A."""
    told: dict[str, set[str]] = {b: set() for b in OPERATIONS}
    problems, count = [], 0
    with in_place():
        for kind, b, step, one in runs(a, every):
            count += 1
            told[b].add(one.a)
            if one.problem:
                problems.append(f"{kind}: {b} before step {step} of {a}: {one.problem} (A: {one.a}; B: {one.b})")
    return row(a, told), count, problems


def main(arguments: list[str]) -> int:
    every, broken, began, total = arguments[:1] == ["every"], 0, time.perf_counter(), 0
    print(head())
    for a in arguments[1:] or OPERATIONS:
        text, count, problems = row_of(a, every)
        print(text, flush=True)
        for problem in problems:
            print(problem[:400], file=sys.stderr, flush=True)
        broken, total = broken + len(problems), total + count
    print(f"{total} runs in {time.perf_counter() - began:.0f} s, {broken} broke", file=sys.stderr)
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
