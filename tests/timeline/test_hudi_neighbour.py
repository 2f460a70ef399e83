"""Beside Apache Hudi's writers: its lock is held while we complete, our heartbeat stays fresh, and its commits are seen
under the lock.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import golden_tables as golden
import pyarrow as pa
import pytest
from patience import wait_for

import hoodoo
from hoodoo.storage.local import LocalStore
from hoodoo.table import Table
from hoodoo.timeline import layout
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.hudi import hudi_lock as hudi_neighbour

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64())])


def rows(*pairs: tuple[int, int]) -> pa.Table:
    return pa.table({"id": [one for one, _ in pairs], "ts": [two for _, two in pairs]}, SCHEMA)


def make(path: Path, **options: Any) -> Table:
    return hoodoo.create(path, SCHEMA, key="id", order_by="ts", hudi_writers=True, **options)


def watched(table: Table, seen: list[bool]) -> None:
    """Note for each slot that is put whether Hudi's lock is held."""
    put = table.handle.store.put_if_absent

    def wrapped(key: str, data: Any, durable: bool = True) -> None:
        if key.startswith(layout.SLOTS) or key.startswith(layout.TIMELINE) and "_" in key:
            seen.append(table.handle.store.exists(layout.HUDI_LOCK))
        put(key, data, durable)

    table.handle.store.put_if_absent = wrapped  # type: ignore[method-assign]


def test_hudis_lock_is_held_from_the_conflict_check_to_publication_and_given_back(tmp_path: Path) -> None:
    table, seen = make(tmp_path / "t"), list[bool]()
    watched(table, seen)
    table.upsert(rows((1, 1)))
    assert seen == [True, True]
    assert not table.handle.store.exists(layout.HUDI_LOCK)
    assert not list(table.handle.store.list(layout.HUDI_HEARTBEATS))


def test_without_the_option_nobodys_lock_is_waited_for(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", order_by="ts")
    table.handle.store.put(layout.HUDI_LOCK, b"")
    assert table.upsert(rows((1, 1))).inserted == 1


def test_a_lock_that_hudi_holds_is_waited_for_and_never_broken(tmp_path: Path) -> None:
    moments = iter(range(0, 1_000_000, 1))
    make(tmp_path / "t", commit_timeout_seconds=5)
    store = LocalStore(str(tmp_path / "t"))
    naps: list[float] = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3 and free:
            store.delete(layout.HUDI_LOCK)

    table, free = Table(store, Environment(sleep=sleep, elapsed=lambda: float(next(moments)))), True
    store.put(layout.HUDI_LOCK, b"")
    assert table.upsert(rows((1, 1))).inserted == 1 and len(naps) >= 3
    store.put(layout.HUDI_LOCK, b"")
    free = False
    with pytest.raises(hoodoo.LockHeld, match="lock"):
        table.upsert(rows((2, 1)))
    assert store.get(layout.HUDI_LOCK) == b""
    store.delete(layout.HUDI_LOCK)
    assert [entry.state for entry in table.inspect.timeline() if entry.state in ("requested", "inflight")] == []
    assert table.upsert(rows((2, 1))).inserted == 1


def test_a_lock_that_a_process_of_ours_died_with_is_taken_away(tmp_path: Path) -> None:
    import os

    table = make(tmp_path / "t")
    table.handle.store.put(layout.HUDI_LOCK, b"hoodoo somebody")
    old = time.time() - 600
    os.utime(tmp_path / "t" / layout.HUDI_LOCK, (old, old))
    assert table.upsert(rows((1, 1))).inserted == 1
    assert not table.handle.store.exists(layout.HUDI_LOCK)


def test_a_heartbeat_stays_fresh_through_a_long_write_and_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hudi_neighbour, "_BEAT_S", 0.05)
    table = make(tmp_path / "t")
    attempt = table.handle.timeline.begin("deltacommit")
    attempt.start()
    key = f"{layout.HUDI_HEARTBEATS}{attempt.instant}"
    first = table.handle.store.modified_ms(key)
    assert first is not None
    wait_for(lambda: (table.handle.store.modified_ms(key) or 0) > first, "a beat")
    attempt.abandon()
    time.sleep(0.2)
    assert not table.handle.store.exists(key)


def test_a_commit_of_hudi_between_our_begin_and_our_slot_makes_us_rebase(tmp_path: Path) -> None:
    """Played back: Hudi's second commit is published while ours, begun after the first, writes its files."""
    whole, path, held = golden.unpack("cow_ordered", tmp_path), tmp_path / "played", tmp_path / "held"
    instants = [one["instant"] for one in golden.facts("cow_ordered")["instants"]]
    shutil.copytree(whole, path)
    held.mkdir()
    for file in sorted((path / layout.TIMELINE).glob("*")):
        if file.is_file() and file.name[:17] > instants[0]:
            file.rename(held / file.name)
    moment = [0]

    def now_ms() -> int:
        moment[0] += 10
        return hoodoo_ms(instants[0]) + 60_000 + moment[0]

    table = Table(LocalStore(str(path)), Environment(now_ms=now_ms))
    table.set_options(
        hudi_writers=True
    )  # by the clock of that day: an instant begun long before the head is not awaited
    count = table.scan().count()
    put = table.handle.store.put_if_absent
    done: list[bool] = []

    def racing(key: str, data: Any, durable: bool = True) -> None:
        if key.endswith(".parquet") and not done:
            done.append(True)
            for file in held.glob(f"{instants[1]}*"):
                name = file.name.replace(file.name[18:35], "20991231235959000") if "_" in file.name else file.name
                shutil.copy(file, path / layout.TIMELINE / name)
        put(key, data, durable)

    table.handle.store.put_if_absent = racing  # type: ignore[method-assign]
    result = table.delete(table.scan().to_arrow().slice(0, 1))
    assert done and result.retries >= 1
    second = len(golden.facts("cow_ordered")["instants"][1]["rows"])
    assert table.scan().count() == second - 1 and count > 0
    assert table.verify().problems == []


def hoodoo_ms(instant: str) -> int:
    from hoodoo.format.names import ms_of_instant

    return ms_of_instant(instant)
