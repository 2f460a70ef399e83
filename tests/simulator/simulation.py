"""One seed is one simulation: a table, some actors, faults; then everybody has ended, and the table must go on without
help.

    python simulation.py 17            replays seed 17, step by step
    python simulation.py 0..10000      runs a range and says what broke
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import metadata_list
import roles_of_alterers
import roles_of_exporters
import roles_of_readers
import roles_of_services
import roles_of_writers
from exported_views import EXPORTED, INVARIANT, ExportedViews
from oracle import Oracle
from roles_of_writers import attempt, new_intent
from scheduler import Actor, Faults, Scheduler, line
from shared_store import Handle, Objects
from table_columns import VALUES, value_name
from world import SCHEMA, World, act

from hoodoo.engine.local import LocalEngine
from hoodoo.errors import HoodooError
from hoodoo.format.log import block
from hoodoo.format.names import is_change_log_path, parse_data_file
from hoodoo.index.bloom import index as bloom_index
from hoodoo.table import Table
from hoodoo.timeline import create_table
from hoodoo.timeline.commits import turn_request
from hoodoo.timeline.environment import Together, in_order
from hoodoo.timeline.layout import (
    CHECKPOINTS,
    CLAIMS,
    HEARTBEATS,
    INDEX,
    LEASES,
    METADATA_TABLE,
    OURS,
    OVERLAYS,
    PROPERTIES,
    PUBLISHED,
    SLOTS,
    TIMELINE,
    TURN_REQUESTS,
    WATERMARKS,
)
from hoodoo.timeline.properties import config, hoodie_properties, table_options
from hoodoo.timeline.views import checkpoint

ROLES = (
    roles_of_alterers,
    roles_of_exporters,
    roles_of_readers,
    roles_of_services,
    roles_of_writers,
)  # importing them registers their roles
# worlds repeat to the byte, and their few rows are in Parquet where an option says so
bloom_index.new_secret = lambda: b"the simulation's"
block._PARQUET_FROM = 1
MOST_STEPS = 6_000
_TAIL = 80
_PATIENCE_MS = 500
_LEASES_END_MS = 8 * 86_400_000  # no lease of a dead reader outlasts a week
_WEIGHTS = (
    {"upsert": 3, "delete": 1},
    {"upsert": 2, "flagged": 1, "delete": 1, "insert": 1},
    {"upsert": 2, "delete": 1, "overwrite": 1, "drop": 1, "insert": 1},
    {"insert": 2, "delete": 1, "upsert": 1},
    {"insert": 3, "upsert": 2, "delete": 2, "drop": 1},
    {"flagged": 1, "delete": 1, "upsert": 1},
)
_SERVICES = (
    ("reader",),
    ("compactor", "compactor", "reader"),
    ("compactor", "cleaner", "reader", "consumer"),
    ("compactor", "cleaner", "sweeper", "reader"),
    ("compactor", "ender", "ender", "consumer"),
    ("ender", "sweeper", "reader"),
    ("cleaner", "cleaner", "reader", "pinner", "pinner"),
    ("keeper", "cleaner", "reader", "consumer"),
    ("compactor", "compactor"),
    ("compactor", "cleaner", "cleaner"),
    ("compactor", "compactor", "sweeper"),
    ("compactor", "compactor", "compactor"),
    ("archiver", "cleaner", "reader", "consumer"),
    ("archiver", "archiver", "cleaner"),
    ("archiver", "compactor", "keeper", "sweeper"),
    ("keeper", "keeper", "compactor", "cleaner", "pinner"),
    ("compactor", "compactor", "cleaner", "sweeper", "ender", "reader", "consumer", "inspector"),
)
_MOVERS = (
    *_SERVICES,
    ("merger", "merger", "reader", "consumer"),
    ("merger", "compactor", "cleaner", "reader"),
    ("clusterer", "clusterer", "reader", "consumer"),
    ("clusterer", "compactor", "cleaner", "sweeper", "reader"),
    ("clusterer", "merger", "keeper", "cleaner"),
    ("clusterer", "merger", "compactor", "ender", "sweeper"),
    ("purger", "reader", "cleaner"),
    ("purger", "compactor", "clusterer", "consumer"),
    ("purger", "keeper", "archiver", "merger"),
    ("purger", "pinner", "clusterer", "merger"),
)
_FAULTS = (
    {},
    {"stall": 0.01, "hold": 0.3},
    {"hold": 0.6},
    {"lost": 0.02, "reply_lost": 0.03, "late": 0.02, "stall": 0.005, "hold": 0.1},
    {"die": 0.004, "die_after": 0.006, "stall": 0.005, "hold": 0.2},
    {
        "lost": 0.01,
        "reply_lost": 0.02,
        "late": 0.03,
        "outage": 0.006,
        "die": 0.002,
        "die_after": 0.002,
        "stall": 0.005,
        "hold": 0.1,
    },
)


@dataclass
class Outcome:
    """violation: what broke, or ''. digest: of the whole history and of the bytes at the end. batches: how many commits
    say how far a source was read.
    """

    seed: int
    violation: str
    steps: int
    slots: int
    digest: str
    tail: list[str]
    schemas: int = 1
    batches: int = 0
    seconds: float = 0.0

    def report(self) -> str:
        return "\n".join(
            [
                f"seed {self.seed}: {self.violation}",
                *self.tail,
                f"seed {self.seed}: {self.violation}",
                f"Replay: make simulate SEED={self.seed}",
            ]
        )


# Read again and again with the same bytes, and functions of them alone: remembered, they cost a fifth of the time less.
_properties = functools.lru_cache(64)(hoodie_properties.java.parse_properties)
_checkpoint = functools.lru_cache(256)(checkpoint.decode)
_config = functools.lru_cache(64)(lambda items, parse=hoodie_properties.parse_config: parse(dict(items)))
_IN_PLACE = (
    (
        LocalEngine,
        "map",
        lambda self, task, items, at_once=None, waiting=False: [task(item) for item in items],
    ),  # a second thread would be a second scheduler
    (hoodie_properties.java, "parse_properties", lambda data: dict(_properties(data))),
    (hoodie_properties, "parse_config", lambda values: _config(tuple(sorted(values.items())))),
    (checkpoint, "decode", lambda data, key: _checkpoint(data, key)),
)


@contextmanager
def in_place(pleads_after: int = turn_request.AFTER_LOST) -> Iterator[None]:
    """Tasks of an engine run one after the other, parsed bytes are remembered, warnings are not shown."""
    after_s = turn_request.AFTER_S if pleads_after == turn_request.AFTER_LOST else 0.0
    changed = (*_IN_PLACE, (turn_request, "AFTER_LOST", pleads_after), (turn_request, "AFTER_S", after_s))
    before = [(owner, name, owner.__dict__[name]) for owner, name, _ in changed]
    for owner, name, value in changed:
        setattr(owner, name, value)
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        for owner, name, value in before:
            setattr(owner, name, value)


@dataclass(frozen=True)
class Scene:
    """What a history is about, where the seed alone would seldom bring it together: who acts beside the writers, and
    how the store fails. shuffled: what is asked together reaches the store in any order. pleads_after: so many lost
    races, of which a short history has few, at once. metadata_table: Hudi has made its metadata table.
    """

    crew: tuple[str, ...] = ()
    faults: tuple[tuple[str, float], ...] = ()
    shuffled: bool = False
    pleads_after: int = turn_request.AFTER_LOST
    metadata_table: bool = False

    def __str__(self) -> str:
        parts = [self.crew, [name for name, _ in self.faults]]
        return "; ".join(", ".join(dict.fromkeys(part)) for part in parts if part)


SLOW = (("stall", 0.01), ("hold", 0.5))
DYING = (("die", 0.01), ("die_after", 0.01), ("hold", 0.2))
UNSURE = (("lost", 0.01), ("reply_lost", 0.02), ("late", 0.03), ("die", 0.004), ("die_after", 0.004), ("hold", 0.2))


def in_any_order(rng: random.Random) -> Together:
    """Requests that are asked together reach the store in any order."""

    def together(works: Sequence[Callable[[], object]]) -> None:
        in_order(rng.sample(works, len(works)))

    return together


class Simulation:
    def __init__(self, seed: int, print_steps: Callable[[str], None] | None = None, scene: Scene | None = None) -> None:
        self.seed, self.scene = seed, scene or Scene()
        rng = self.rng = random.Random(seed)
        chance = rng.choice(_FAULTS)
        crucial = (SLOTS, LEASES, *(EXPORTED if "exporter" in self.scene.crew else ()))
        faults = Faults(random.Random(f"{seed} faults"), **(dict(self.scene.faults) or chance), crucial=crucial)
        self.scheduler = Scheduler(random.Random(f"{seed} schedule"), faults, rng.choice((0, 0, 0.5, 0.9)), print_steps)
        if self.scene.shuffled:
            self.scheduler.together = in_any_order(random.Random(f"{seed} together"))
        self.objects = Objects(lambda: self.scheduler.now)
        self.ordered = rng.random() < 0.6
        self.oracle = Oracle(self.objects, self.ordered)
        self.scheduler.stopped = lambda: bool(self.oracle.violation)
        self.scheduler.after_step = self._check
        self.world = World(
            self.scheduler,
            self.objects,
            self.oracle,
            rng,
            "abcd"[: rng.randint(1, 4)],
            rng.choice(_WEIGHTS),
            rng.choice((1, 2, 4)),
            rng.random() < 0.5,
            rng.choice((5, 40, 1000)),
        )

    def actor(self, name: str, sound: bool = False) -> Actor:
        rng = random.Random(f"{self.seed} {name}")
        clock = "steady" if sound else rng.choice(("steady", "steady", "steady", "drifting", "jumping", "frozen"))
        skew = 0 if sound else rng.choice((0, 0, 0, 40, -40, 7_200_000, -7_200_000))
        return Actor(name, rng, clock, skew, rng.choice((-0.5, 0.5)) if clock == "drifting" else 0.0, sound=sound)

    def _check(self) -> None:
        self.oracle.check()
        if self.world.metadata:
            self.world.metadata.check()

    def run(self) -> Outcome:
        began = time.perf_counter()
        with in_place(self.scene.pleads_after):
            try:
                self._set_up()
                self._start()
                if not self.scheduler.run(MOST_STEPS):
                    self.oracle.wrong("I11 recovery", f"the actors did not end in {MOST_STEPS} steps")
                if not self.oracle.violation:
                    self._recover()
            finally:
                self.scheduler.close()
        digest = self.scheduler.digest
        for key in self.objects.keys:
            digest.update(hashlib.sha256(key.encode() + self.objects.data[key]).digest())
        tail = [line(entry) for entry in self.scheduler.history[-_TAIL:]] if self.oracle.violation else []
        return Outcome(
            self.seed,
            self.oracle.violation,
            self.scheduler.steps,
            self.oracle.head,
            digest.hexdigest(),
            tail,
            len(self.oracle.columns.schemas),
            len(self.oracle.reached),
            time.perf_counter() - began,
        )

    # ---- before
    def _set_up(self) -> None:
        rng = self.rng
        chosen = {
            "checkpoint_every": rng.choice((1, 2, 5)),
            "clean_every": rng.choice((None, None, 2, 4)),
            "compact_after_logs": rng.choice((None, None, 1, 2)),
            "retain_hours": 0,
            "retain_commits": rng.choice((1, 1, 2, 5)),
            "commit_timeout_seconds": rng.choice((0, 0.2, 5)),
            "max_retries": rng.choice((2, 20)),
            "target_file_bytes": rng.choice((4_000, 1_000_000)),
            "compression": "none",
            "log_format": rng.choice(("avro", "avro", "parquet")),
        }
        kind = rng.choice((config.MERGE_ON_READ, config.MERGE_ON_READ, config.COPY_ON_WRITE))
        properties = hoodie_properties.create_properties(
            "t",
            SCHEMA,
            ("id",),
            ("city",),
            ("ts",) if self.ordered else (),
            kind,
            table_options.validate_new_options(chosen),
        )
        founder = self.actor("founder", sound=True)
        self.scheduler.note(
            founder,
            f"{kind}, ordered {self.ordered}, {chosen}, faults {[name for _, name in self.scheduler.faults.table]}",
        )
        handle = Handle(self.scheduler, self.objects, founder, self.world.lists_by_prefix, self.world.page_size)
        create_table.create_table(handle, properties, self.scheduler.environment(founder))
        table = Table(handle, self.scheduler.environment(founder))
        for _ in range(rng.randint(0, 3)):
            attempt(self.world, founder, table, new_intent(self.world, founder))
        if self.scene.metadata_table:
            listing = self.world.metadata = metadata_list.MetadataList(self.objects, self.oracle)
            listing.hudis_turn(self.scheduler.now)
        if "exporter" in self.scene.crew:
            self.world.exports = ExportedViews(self.objects, self.oracle)

    def _start(self) -> None:
        writers, services = self.rng.choice((2, 2, 3, 4, 5)), self.rng.choice(_MOVERS if self.seed % 2 else _SERVICES)
        crew = self.scene.crew or tuple(name for name in services if self.rng.random() < 0.7)
        names = ("writer",) * writers + crew
        for number, name in enumerate(names):
            self._start_one(f"{name} {number}", name)

    def _start_one(self, label: str, name: str, lives: int = 2) -> None:
        actor = self.actor(label)

        def live() -> None:
            try:
                act(self.world, actor, name)
            finally:
                if actor.dead and lives > 1 and not self.oracle.violation and actor.rng.random() < 0.5:
                    self._start_one(f"{label}'", name, lives - 1)

        self.scheduler.start(actor, live)

    # ---- after
    def _recover(self) -> None:
        """I11: the next writer needs no help; services then leave nothing behind."""
        self.scheduler.deliver_all()
        self.scheduler.now = (
            max(self.scheduler.now, max(slot.get("completed_at", 0) for slot in self.oracle.slots)) + _LEASES_END_MS
        )
        heir = self.actor("heir", sound=True)
        try:
            table = self.world.table_of(heir)
            intent = new_intent(self.world, heir)
            intent.operation, intent.transaction, intent.rows = (
                "upsert",
                None,
                [{"id": "z", "city": "p", "ts": 9, "v": self.world.next_value()}],
            )
            attempt(self.world, heir, table, intent)
            if heir.slept_ms > _PATIENCE_MS:
                self.oracle.wrong(
                    "I11 recovery", f"the next writer waited {heir.slept_ms} ms, and nobody else is there"
                )
            if "alterer" in self.scene.crew:  # plans may have been left open
                value = value_name(table.schema.names)
                table.alter.rename_column(value, next(name for name in VALUES if name != value), rewrite=True)
            table.compact()
            table.maintenance.clean(retain_hours=0, retain_commits=1)
            table.maintenance.sweep(older_than_hours=0)
            if self.rng.random() < 0.3:
                table.maintenance.archive(older_than_hours=0, keep_instants=1)
            report = table.verify()
            rows = table.scan(meta=True).to_arrow().to_pylist()
            self._export(table)
        except HoodooError as problem:
            self.oracle.wrong("I11 recovery", f"{type(problem).__name__}: {problem}")
            return
        if intent.known != "ok":
            self.oracle.wrong("I11 recovery", f"the next writer was told {intent.known}: {intent.why}")
        for problem in report.problems[:1]:
            self.oracle.wrong("I11 recovery", f"verify: {problem}")
        self.oracle.read(self.oracle.head, rows, 0, "I4 snapshot")
        if self.oracle.shown != self.oracle.head:
            self.oracle.wrong("I11 recovery", f"slot {self.oracle.shown + 1} was not published")
        for key in self.objects.keys:
            if why := left_over(self.oracle, key):
                self.oracle.wrong("I11 recovery", f"{key} was left behind: {why}")

    def _export(self, table: Table) -> None:
        """I14: whatever exporters left, one more export is right, and after that there is nothing to export."""
        if not self.world.exports or self.oracle.violation:
            return
        mode = self.rng.choice(table_options.EXPORT_MODES)
        table.export(delta=True, iceberg=True, mode=mode)
        self.world.exports.at_the_end(mode == table_options.MERGED)
        again = table.export(delta=True, iceberg=True, mode=mode)
        if again.delta.files or again.iceberg.files:
            self.oracle.wrong(INVARIANT, f"there was something left to export: {again}")


def left_over(oracle: Oracle, key: str) -> str:
    """Why nobody needs `key`, or ''."""
    if any(instant in key for instant in oracle.open_plans):
        return ""
    if key.startswith(TURN_REQUESTS):
        return "nobody is there to plead"
    if is_change_log_path(key):
        if not any(key in file.get("changes", ()) and oracle.is_needed(path) for path, file in oracle.added.items()):
            return "no base file needs it"
    elif not key.startswith(".hoodie/"):
        if parse_data_file(key.rpartition("/")[2]) and (key not in oracle.added or not oracle.is_needed(key)):
            return "no snapshot needs it"
    elif key.startswith(TIMELINE):
        instant = key[len(TIMELINE) :][:17]
        if (
            "_" not in key[len(TIMELINE) :]
            and instant not in oracle.ended
            and not any(slot.get("instant") == instant for slot in oracle.slots)
        ):
            return "its instant never ended"
        if oracle.ended.get(instant) == "rolled_back":
            return "its instant was rolled back"
    elif key.startswith(INDEX):
        if not any(key == file.get("index") for path, file in oracle.added.items() if oracle.is_needed(path)):
            return "no file needs it"
    elif not (
        key == PROPERTIES
        or key.startswith((METADATA_TABLE, OVERLAYS))  # the next export needs them, or lets go of them after a day
        or key.startswith((CLAIMS, SLOTS, CHECKPOINTS, WATERMARKS, HEARTBEATS, LEASES, PUBLISHED))
    ):
        return "nobody knows it" if key.startswith(OURS) else "a marker or heartbeat of nobody"
    return ""


def simulate(seed: int, print_steps: Callable[[str], None] | None = None, scene: Scene | None = None) -> Outcome:
    return Simulation(seed, print_steps, scene).run()


def main(arguments: list[str]) -> int:
    if len(arguments) == 1 and arguments[0].isdigit():
        outcome = simulate(int(arguments[0]), print)
        print(
            f"{outcome.steps} steps, {outcome.slots} slots, {outcome.seconds * 1000:.0f} ms, digest "
            f"{outcome.digest[:16]}: {outcome.violation or 'nothing broke'}"
        )
        return bool(outcome.violation)
    first, _, last = arguments[0].partition("..")
    steps, slots, broken, began = 0, 0, 0, time.perf_counter()
    for seed in range(int(first), int(last)):
        outcome = simulate(seed)
        steps, slots = steps + outcome.steps, slots + outcome.slots
        if outcome.violation:
            broken += 1
            print(f"seed {seed}: {outcome.violation}"[: int(os.environ.get("COLUMNS", "400"))], flush=True)
    seconds = time.perf_counter() - began
    count = int(last) - int(first)
    print(
        f"{count} seeds, {steps} store operations, {slots} slots in {seconds:.1f} s ({count / seconds:.1f} "
        f"seeds/s): {broken} broken"
    )
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
