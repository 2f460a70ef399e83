"""The processes of the kill loop: writers, readers, an incremental consumer, a compactor, a cleaner. Each may die at
any instruction.

What an actor saw or was told it appends to a file of its own, one JSON line a write(), so that a SIGKILL loses at most
what it did not know yet. Actors judge nothing: replay.py compares what they noted with the slots.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import hoodoo
from hoodoo import HoodooError
from hoodoo.compactor.compaction.log_compaction import compact_logs
from hoodoo.compactor.compaction.triggers import behind

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("ts", pa.int64()), ("value", pa.string())])
DELETED = pa.field("_hoodie_is_deleted", pa.bool_())
KEYS, PARTS = 40, 3
_BATCH_MAX = 8


@dataclass(frozen=True)
class Place:
    """Where the table is, where notes go, until when (monotonic seconds) actors live, and how old an unfinished write
    counts as dead.
    """

    path: str
    notes: Path
    ends: float
    storage: dict[str, Any] = field(default_factory=dict)
    dead_after_s: float = 3.0

    def open(self) -> hoodoo.Table:
        return hoodoo.open(self.path, storage=self.storage or None)

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.ends


class Notes:
    """An actor's own file. `note` returns once the line is the kernel's: no kill takes it back."""

    def __init__(self, place: Place, name: str) -> None:
        self._descriptor = os.open(place.notes / f"{name}.jsonl", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)

    def note(self, **what: Any) -> None:
        os.write(self._descriptor, (json.dumps(what) + "\n").encode())


def fingerprint(rows: list[dict[str, Any]]) -> str:
    """Of rows in any order."""
    return hashlib.sha256(
        "\n".join(sorted(repr([row[name] for name in SCHEMA.names]) for row in rows)).encode()
    ).hexdigest()


def run(role: str, place: Place, name: str) -> None:
    """Act until the end, or until killed. A temporary failure of the store is met by trying again; anything strange is
    noted.
    """
    notes = Notes(place, name)
    while not place.over:
        try:
            ROLES[role](place.open(), place, notes, random.Random(), name)
        except hoodoo.TryAgainError as problem:
            notes.note(again=problem.code)
            time.sleep(0.1)
        except Exception:  # whatever it is, the judge shall see it
            notes.note(error=traceback.format_exc()[-3000:])
            time.sleep(0.1)


# ---- writers
def batch(rng: random.Random, value: str) -> tuple[str, list[dict[str, Any]]]:
    """An operation and its rows, JSON values all."""
    kind = rng.choices(["upsert", "flagged", "delete", "keep", "overwrite"], [60, 12, 14, 10, 4])[0]
    ids = rng.sample(range(KEYS), rng.randint(1, _BATCH_MAX))
    rows: list[dict[str, Any]] = [
        {"id": i, "part": f"p{i % PARTS}", "ts": rng.randint(0, 100), "value": value} for i in ids
    ]
    if kind == "flagged":
        rows = [row | {DELETED.name: rng.random() < 0.5} for row in rows]
    if kind == "overwrite":
        rows = [row for row in rows if row["part"] == rows[0]["part"]]
    return kind, rows


def apply(
    table: hoodoo.Table, kind: str, rows: list[dict[str, Any]], transaction: tuple[str, int]
) -> hoodoo.WriteResult:
    data = pa.Table.from_pylist(rows, schema=SCHEMA.append(DELETED) if kind == "flagged" else SCHEMA)
    if kind == "delete":
        return table.delete(data, transaction=transaction)
    if kind == "keep":
        return table.insert(data, existing="keep", transaction=transaction)
    if kind == "overwrite":
        return table.insert_overwrite(data, transaction=transaction)
    return table.upsert(data, transaction=transaction)


def write(table: hoodoo.Table, place: Place, notes: Notes, rng: random.Random, name: str) -> None:
    """Commit batch after batch. The slot carries (writer, number), so that it tells which batch it is even if the
    writer died before it heard.
    """
    number = time.monotonic_ns()  # grows, over restarts of this loop too
    while not place.over:
        number += 1
        kind, rows = batch(rng, f"{name}:{number}")
        notes.note(begin=number, kind=kind, rows=rows)
        began = time.monotonic()
        try:
            result = apply(table, kind, rows, (name, number))
        except hoodoo.CommitUnknown as problem:
            notes.note(unknown=number, instant=problem.details["instant"])
            notes.note(resolved=number, committed=table.maintenance.resolve(problem.details["instant"]))
        except HoodooError as problem:
            notes.note(failed=number, code=problem.code, text=str(problem)[:300])
        else:
            notes.note(
                ok=number,
                instant=result.instant,
                slot=result.cursor.seq,
                retries=result.retries,
                seconds=time.monotonic() - began,
            )


# ---- readers
def read(table: hoodoo.Table, place: Place, notes: Notes, rng: random.Random, name: str) -> None:
    """Snapshots: the newest, sometimes an older one, sometimes pinned and read twice."""
    while not place.over:
        if rng.random() < 0.3:
            with table.pin() as pin:
                first = fingerprint(pin.scan().to_arrow().to_pylist())
                time.sleep(rng.random() * 0.3)
                notes.note(slot=pin.cursor.seq, rows=first, pinned=True)
                notes.note(slot=pin.cursor.seq, rows=fingerprint(pin.scan().to_arrow().to_pylist()), pinned=True)
        else:
            _read_one(table, notes, rng)
        time.sleep(0.03)


def _read_one(table: hoodoo.Table, notes: Notes, rng: random.Random) -> None:
    newest = table.cursor
    as_of = hoodoo.Cursor(newest.table, max(1, newest.seq - rng.randint(0, 12))) if rng.random() < 0.5 else None
    try:
        scan = table.scan(as_of=as_of)
        time.sleep(rng.random() * 0.05)
        notes.note(slot=scan.cursor.seq, rows=fingerprint(scan.to_arrow().to_pylist()))
    except hoodoo.SnapshotExpired:
        notes.note(expired=True)


def consume(table: hoodoo.Table, place: Place, notes: Notes, rng: random.Random, name: str) -> None:
    """Incremental reads of a registered consumer, which moves on only after what was read is noted. What it has not
    read may not be cleaned from under it, however slow it is; only before its first read does cleaning not know it.
    """
    consumer = table.consumer("consumer")
    while not place.over:
        position = consumer.position
        try:
            changed = table.incremental(position if position.seq else "earliest")
            found = fingerprint(changed.to_arrow().to_pylist())
        except hoodoo.SnapshotExpired:
            if position.seq:
                raise
            notes.note(expired=True)
            continue
        notes.note(since=position.seq, until=changed.cursor.seq, rows=found)
        consumer.commit(changed.cursor)
        time.sleep(0.05 + rng.random() * 0.1)


# ---- services
def compact(table: hoodoo.Table, place: Place, notes: Notes, rng: random.Random, name: str) -> None:
    while not place.over:
        notes.note(compacted=table.compact(logs_min=rng.randint(1, 4)).groups)
        time.sleep(0.2)


def move(table: hoodoo.Table, place: Place, notes: Notes, rng: random.Random, name: str) -> None:
    """Merges logs among themselves, packs file groups and sorts them: no row changes."""
    while not place.over:
        if rng.random() < 0.5:
            notes.note(merged=compact_logs(table.handle.context(), lambda view: behind(view, 2)).logs)
        else:
            done = table.maintenance.cluster(sort_by=rng.choice((None, ["ts"])))
            notes.note(clustered=done.units, yielded=done.yielded)
        time.sleep(0.2)


def clean(table: hoodoo.Table, place: Place, notes: Notes, rng: random.Random, name: str) -> None:
    """Clean with a short memory; now and then roll back what seems dead and sweep up, live writers that are slow
    included.
    """
    while not place.over:
        notes.note(cleaned=table.maintenance.clean(retain_hours=0, retain_commits=rng.randint(8, 20)).files)
        if rng.random() < 0.3:
            swept = table.maintenance.sweep(older_than_hours=place.dead_after_s / 3600)
            notes.note(swept=swept.files, rolled_back=swept.rolled_back)
        time.sleep(0.2)


ROLES: dict[str, Callable[[hoodoo.Table, Place, Notes, random.Random, str], None]] = {
    "writer": write,
    "reader": read,
    "consumer": consume,
    "compactor": compact,
    "mover": move,
    "cleaner": clean,
}
