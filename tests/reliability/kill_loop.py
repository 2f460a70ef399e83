"""Processes on one table, one of which is killed with SIGKILL every moment and replaced; then everything is compared
with everything.

`python kill_loop.py SECONDS [FOLDER]` runs it on a local disk; tests run it shorter, and on S3 through a proxy that
breaks things.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import actors
from actors import SCHEMA, Place
from hudi_rows import hudi_rows
from patience import PATIENCE_S, NotInTime
from replay import Judge, consumed_without_a_gap, noted

import hoodoo
from hoodoo.timeline.layout import LEASES

CREW = ("writer",) * 4 + ("reader",) * 2 + ("consumer", "compactor", "mover", "cleaner")
Wanted = dict[str, Callable[[dict[str, Any]], Any]]  # what must have happened once: does a note say so?
Also = Callable[[], list[str]]  # what else has not happened yet
EACH: Wanted = {
    "a commit": lambda note: "ok" in note,
    "a snapshot read": lambda note: "slot" in note and "rows" in note and "pinned" not in note,
    "a pinned read": lambda note: "pinned" in note,
    "an incremental read": lambda note: "since" in note,
}
SERVICES: Wanted = {
    "a compaction": lambda note: note.get("compacted"),
    "a clean": lambda note: note.get("cleaned"),
    "a rollback": lambda note: note.get("rolled_back"),
}
_PRELOADED = [
    "hoodoo.table",
    "hoodoo.storage.s3",
    "pyarrow.parquet",
    "pyarrow.fs",
    "pandas",
    "sqlglot",
]  # paid once, not by every new process


def processes() -> multiprocessing.context.ForkServerContext:
    """Makes processes in a few milliseconds each, by forking a server that has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


@dataclass
class Outcome:
    """violations: everything that must not be. counts: what happened. next_commit_s: the first commit after all were
    killed.
    """

    violations: list[str]
    kills: int
    seconds: float
    next_commit_s: float
    counts: Counter[str] = field(default_factory=Counter)
    slowest_commit_s: float = 0.0

    def figures(self) -> dict[str, Any]:
        plain = {"kills": self.kills, "seconds": round(self.seconds, 1), "violations": len(self.violations)}
        return plain | {
            "next_commit_s": round(self.next_commit_s, 3),
            "slowest_commit_s": round(self.slowest_commit_s, 2),
            **dict(sorted(self.counts.items())),
        }


def run(
    folder: Path,
    seconds: float,
    every_s: float,
    path: str = "",
    storage: dict[str, Any] | None = None,
    direct: dict[str, Any] | None = None,
    dead_after_s: float = 3.0,
    wanted: Wanted = EACH,
    also: Also = list,
) -> Outcome:
    """Create a table, let the crew work and die, one every `every_s`, and judge.

    It ends after `seconds`, and not before everything was seen once (`wanted`, and what `also` names): a slow machine
    takes longer.

    path, storage: of the table as actors reach it (default: below `folder`). direct: storage options of a way around
    what breaks things.
    dead_after_s: when the sweeper takes an unfinished write for dead; shorter than a slow write takes, so that living
    ones are fenced too.
    """
    path = path or str(folder / "table")
    notes = folder / "notes"
    notes.mkdir()
    table = hoodoo.create(
        path,
        SCHEMA,
        key="id",
        partition_by="part",
        order_by="ts",
        storage=direct or storage,
        max_retries=200,
        compact_after_logs=8,
        commit_timeout_seconds=10,
    )
    began = time.monotonic()
    longest = max(PATIENCE_S, 4 * seconds)
    kills = _work_and_die(
        Place(path, notes, began + longest, storage or {}, dead_after_s),
        every_s,
        seconds,
        lambda: _missing(notes, wanted) + also(),
    )
    lasted = time.monotonic() - began
    table = hoodoo.open(path, storage=direct or storage)
    next_commit_s = _next_commit(path, direct or storage, notes)
    judge = Judge(table, notes).run()
    outcome = Outcome(judge.violations, kills, lasted, next_commit_s, judge.counts, judge.slowest_s)
    _tidied(table, judge, outcome, folder)
    return outcome


def _missing(notes: Path, wanted: Wanted) -> list[str]:
    """What of `wanted` nobody noted yet."""
    seen = [note for _, note in noted(notes)]
    return [what for what, says in wanted.items() if not any(says(note) for note in seen)]


def _work_and_die(place: Place, every_s: float, seconds: float, missing: Also) -> int:
    """Let the crew work and die for `seconds`, and until nothing is missing any more.

    Returns:
        How many were killed before the end; at the end all are.

    Raises:
        NotInTime: something is missing when the actors' time is over.
    """
    context, rng, serial, kills = processes(), random.Random(17), 0, 0
    ends = time.monotonic() + seconds

    def start(role: str) -> ForkServerProcess:
        nonlocal serial
        serial += 1
        process = context.Process(target=actors.run, args=(role, place, f"{role}-{serial}"), daemon=True)
        process.start()
        return process

    crew = [(role, start(role)) for role in CREW]
    due = time.monotonic() + every_s
    try:
        while not place.over:
            time.sleep(max(0.0, min(due, place.ends) - time.monotonic()))
            if time.monotonic() >= ends and kills and not missing():
                return kills
            due += every_s
            number = rng.randrange(len(crew))
            role, victim = crew[number]
            victim.kill()
            victim.join()
            victim.close()
            kills += 1
            crew[number] = role, start(role)
    finally:
        for _, process in crew:
            process.kill()
            process.join()
    raise NotInTime(f"nobody saw {', '.join(missing())}, {kills} were killed")


def _next_commit(path: str, storage: dict[str, Any] | None, notes: Path) -> float:
    """Seconds from opening the table that the dead left to a commit on it, which needs nobody's help."""
    began = time.monotonic()
    row = {"id": 0, "part": "p0", "ts": 1000, "value": "after all"}
    actors.Notes(Place("", notes, 0), "after").note(begin=1, kind="upsert", rows=[row])
    result = actors.apply(hoodoo.open(path, storage=storage), "upsert", [row], ("after", 1))
    assert result.instant
    return time.monotonic() - began


def _tidied(table: hoodoo.Table, judge: Judge, outcome: Outcome, folder: Path) -> None:
    """After compaction, clean and one sweep nothing lies about, nothing is damaged, and another implementation reads
    the same rows.
    """
    wanted = actors.fingerprint(judge.rows())
    if not consumed_without_a_gap(judge.folder):
        outcome.violations.append("the incremental consumer left out slots")
    for key, _ in list(
        table.handle.store.list(LEASES)
    ):  # of readers that were killed: they would hold their snapshots for the rest of an hour
        table.handle.store.delete(key)
    table.compact()  # first: what a dead worker wrote for a plan that is open still is no orphan
    time.sleep(0.01)
    swept = table.maintenance.sweep(older_than_hours=0)
    outcome.counts |= {"orphans swept": swept.files, "rolled back at the end": swept.rolled_back}
    outcome.violations += [f"after one sweep an orphan is left: {key}" for key in orphans(table)]
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    outcome.violations += [f"verify: {problem}" for problem in table.verify().problems]
    if actors.fingerprint(table.scan().to_arrow().to_pylist()) != wanted:
        outcome.violations.append("compaction, clean and sweep changed the rows")
    local = Path(table.path) if Path(table.path).exists() else _copied(table, folder / "copy")
    if actors.fingerprint(hudi_rows(local)) != wanted:
        outcome.violations.append("hudi-rs reads other rows")


def orphans(table: hoodoo.Table) -> list[str]:
    """Data files that no snapshot names, and temporary files."""
    view = table.handle.history.head()
    named = {entry.file.path for group in view.groups() for entry in group.files()} | {
        entry.path for entry in view.superseded
    }
    left = []
    for key, _ in table.handle.store.list(""):
        data = not key.startswith(".hoodie/") and not key.rpartition("/")[2].startswith(".hoodie_partition_metadata")
        if (data and key not in named) or key.startswith((".hoodie/.hoodoo/tmp/", ".hoodie/.temp/")):
            left.append(key)
    return left


def _copied(table: hoodoo.Table, folder: Path) -> Path:
    """The table's objects as files, for a reader of local tables."""
    for key, _ in table.handle.store.list(""):
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(table.handle.store.get(key))
    return folder


if __name__ == "__main__":
    place = Path(tempfile.mkdtemp(prefix="kill-loop-", dir=sys.argv[2] if len(sys.argv) > 2 else None))
    found = run(place, float(sys.argv[1]), 0.2)
    print(json.dumps(found.figures(), indent=1), *found.violations, sep="\n")
    if found.violations:
        sys.exit(f"The table and the notes are in {place}.")
    shutil.rmtree(place)
