"""A writer is stopped with SIGSTOP before any one of its store operations, another process ends its write, and it wakes
up: one of them wins, never both.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import kill_loop
import pyarrow as pa
import pytest
from figures import record
from hudi_rows import hudi_rows
from patience import PATIENCE_S, NotInTime

import hoodoo
from hoodoo.format.names import instant_of_ms
from hoodoo.storage.local import LocalStore
from hoodoo.table import Table
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.layout import CLAIMS
from hoodoo.timeline.slots.slot import COMPLETED, ROLLED_BACK

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("who", pa.string())])
_GATED = ("put_if_absent", "put", "delete", "get", "get_range", "size", "list", "open_input")


def rows(who: str, *ids: int) -> pa.Table:
    return pa.table({"id": ids, "ts": [len(who)] * len(ids), "who": [who] * len(ids)}, schema=SCHEMA)


class Gated(LocalStore):
    """Says each operation before it is done, and waits until it may go on."""

    def __init__(self, path: str, parent: Connection) -> None:
        super().__init__(path)
        self.parent, self.inside = parent, False


def _gated(name: str) -> Callable[..., Any]:
    plain = getattr(LocalStore, name)

    def gate(self: Gated, key: str, *arguments: Any, **named: Any) -> Any:
        if self.inside:  # one operation may use another
            return plain(self, key, *arguments, **named)
        self.parent.send(("before", name, key))
        self.parent.recv()
        self.inside = True
        try:
            found = plain(self, key, *arguments, **named)
            return iter(list(found)) if name == "list" else found
        finally:
            self.inside = False

    return gate


for _name in _GATED:
    setattr(Gated, _name, _gated(_name))


def zombie(path: str, parent: Connection) -> None:
    """Upsert once through the gated store, then tell what came of it."""
    table = Table(Gated(path, parent))
    parent.send(("before", "upsert", ""))
    parent.recv()
    try:
        result = table.upsert(rows("zombie", 1, 2, 9))
        parent.send(("end", "committed", result.instant))
    except hoodoo.HoodooError as problem:
        parent.send(("end", problem.code, str(problem)))


@dataclass
class Run:
    """One life of the writer. operations: in order; stopped: what it stood before; told: committed or the code of its
    error.
    """

    operations: list[tuple[str, str]]
    instant: str
    told: str
    text: str
    ended_by_us: bool


def run(path: Path, stop_before: int, end: Callable[[hoodoo.Table, str], bool] | None) -> Run:
    """Let a writer live; stop it before operation number `stop_before` and call `end` with a table of our own and its
    instant meanwhile.
    """
    ours, its = kill_loop.processes().Pipe()
    process = kill_loop.processes().Process(target=zombie, args=(str(path), its), daemon=True)
    process.start()
    operations: list[tuple[str, str]] = []
    instant, ended, begun = "", False, False
    try:
        while True:
            if not ours.poll(PATIENCE_S):
                raise NotInTime("the writer stands still")
            what, name, key = ours.recv()
            if what == "end":
                return Run(operations, instant, name, key, ended)
            begun = begun or name == "upsert"
            if begun:
                operations.append((name, key))
            if len(operations) == stop_before and end:
                ended = _while_stopped(process.pid, functools.partial(end, hoodoo.open(path), instant))
                end = None
            if name == "put_if_absent" and key.startswith(CLAIMS):
                instant = key[len(CLAIMS) :]
            ours.send("go on")
    finally:
        process.kill()
        process.join()
        ours.close()


def _while_stopped(pid: int, act: Callable[[], bool]) -> bool:
    os.kill(pid, signal.SIGSTOP)
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.001)
    try:
        return act()
    finally:
        os.kill(pid, signal.SIGCONT)


def roll_back(table: hoodoo.Table, instant: str) -> bool:
    try:
        table.maintenance.rollback(instant)
        return True
    except hoodoo.AlreadyCommitted:
        return False


def sweep(table: hoodoo.Table, instant: str) -> bool:
    time.sleep(0.005)
    return table.maintenance.sweep(older_than_hours=0).rolled_back > 0


def test_without_hours_a_sweep_ends_a_write_that_is_dated_ahead_of_the_clock(tmp_path: Path) -> None:
    """Writes in quick succession are dated ahead of the clock, each a moment after the one before. A sweep of writes
    "older than 0 hours" took the last of them for one that had not begun, and left what it had written.
    """
    started = Environment().now_ms()
    store = hoodoo.create(tmp_path / "t", SCHEMA, key="id", order_by="ts").handle.store
    table = hoodoo.Table(store, Environment(now_ms=lambda: started))
    table.upsert(rows("a", 1, 2, 3))
    dead = table.handle.timeline.begin("commit")
    assert dead.instant > instant_of_ms(started)
    assert table.maintenance.sweep(older_than_hours=1).rolled_back == 0
    assert table.maintenance.sweep(older_than_hours=0).rolled_back == 1


@pytest.mark.parametrize("end", [roll_back, sweep])
def test_a_writer_stopped_at_any_step_is_fenced_or_committed_never_both(
    tmp_path: Path, end: Callable[[hoodoo.Table, str], bool]
) -> None:
    table = hoodoo.create(
        tmp_path / "start", SCHEMA, key="id", order_by="ts", compact_after_logs=None, clean_every=None
    )
    table.upsert(rows("a", 1, 2, 3))
    shutil.copytree(tmp_path / "start", tmp_path / "plain")
    undisturbed = run(tmp_path / "plain", -1, None)
    assert undisturbed.told == "committed"
    claim = next(
        n for n, (name, key) in enumerate(undisturbed.operations) if name == "put_if_absent" and key.startswith(CLAIMS)
    )
    told: dict[str, int] = {}
    for step in range(claim + 2, len(undisturbed.operations) + 1):
        path = tmp_path / str(step)
        shutil.copytree(tmp_path / "start", path)
        life = run(path, step, end)
        _one_won(path, life)
        told[life.told] = told.get(life.told, 0) + 1
        shutil.rmtree(path)
    assert set(told) == {"committed", "FENCED"} and min(told.values()) >= 3
    record(f"T3c zombies, {end.__name__}", steps=sum(told.values()), violations=0, **told)


def _one_won(path: Path, life: Run) -> None:
    before = life.operations
    table = hoodoo.open(path)
    slots = table.handle.history.slots(1, table.cursor.seq)
    completed = [slot.instant for slot in slots if slot.outcome == COMPLETED and slot.writes_rows]
    rolled_back = [slot.target for slot in slots if slot.outcome == ROLLED_BACK]
    context = f"stopped before {before[-1:]}: {life}"
    if life.told == "committed":
        assert life.instant in completed and life.instant not in rolled_back and not life.ended_by_us, context
    else:
        assert (
            life.told == "FENCED" and life.instant in rolled_back and life.instant not in completed and life.ended_by_us
        ), context
    wanted = {1: "zombie", 2: "zombie", 3: "a", 9: "zombie"} if life.told == "committed" else {1: "a", 2: "a", 3: "a"}
    time.sleep(0.005)
    table.maintenance.sweep(older_than_hours=0)
    assert kill_loop.orphans(table) == [], context
    assert {row["id"]: row["who"] for row in table.scan().to_arrow().to_pylist()} == wanted, context
    assert {row["id"]: row["who"] for row in hudi_rows(path)} == wanted, context
    assert table.verify().problems == [], context
    assert table.upsert(rows("next one", 1)).retries == 0
