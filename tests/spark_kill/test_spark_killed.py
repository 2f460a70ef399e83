"""Spark drivers, their JVMs and their Python workers are killed while two of them upsert the same
keys (T3b, protocol rule 14).
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from driver import KEYS, SCHEMA, batch
from figures import record
from hudi_rows import hudi_rows
from patience import PATIENCE_S, NotInTime

import hoodoo
from hoodoo.format.names import parse_data_file
from hoodoo.writers.files import tasks

HERE = Path(__file__).parent
_LONGEST_S = 1_200.0
KILLS = int(os.environ.get("HOODOO_SPARK_KILLS", "30"))


class Driver:
    """A driver process and all that it starts, in a process group of its own."""

    def __init__(self, name: str, table: Path, folder: Path) -> None:
        self.name, self.notes, self.log = name, folder / f"{name}.jsonl", folder / f"{name}.log"
        self.command = [
            sys.executable,
            str(HERE / "driver.py"),
            str(table),
            str(self.notes),
            name,
            str(folder / f"{name}-scratch"),
        ]
        self.starts = self.before = 0
        self.start()

    def start(self) -> None:
        self.starts, self.before = self.starts + 1, self.acknowledged()
        support = os.pathsep.join([str(HERE), str(HERE.parent / "support")])
        environment = {**os.environ, "PYTHONPATH": support, "PYSPARK_PYTHON": sys.executable}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def acknowledged(self) -> int:
        return self.notes.read_text().count('"ok"') if self.notes.exists() else 0

    def members(self, what: str) -> list[int]:
        """Processes of the session that look like `what`: 'worker' (Python below the JVM) or 'jvm'."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                session = int((folder / "stat").read_text().rpartition(")")[2].split()[3])
                command = (folder / "cmdline").read_bytes()
            except (OSError, ValueError, IndexError):
                continue
            if session == self.process.pid and (
                b"pyspark.daemon" in command if what == "worker" else b"java" in command.split(b"\0")[0]
            ):
                found.append(int(folder.name))
        return found

    def end(self) -> None:
        """Everything that it started ends with it."""
        for pid in [*self.members("worker"), *self.members("jvm"), self.process.pid]:
            _kill(pid)
        self.process.wait(PATIENCE_S)


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.xdist_group("spark")
def test_kills_of_drivers_jvms_and_workers_lose_no_commit_and_leave_no_row_twice(tmp_path: Path) -> None:
    path, rng, kills = tmp_path / "t", random.Random(3), Counter[str]()
    hoodoo.create(path, SCHEMA, key="id", partition_by="part", order_by="ts", max_retries=500, compact_after_logs=8)
    drivers = [Driver(name, path, tmp_path) for name in ("one", "two")]
    deadline = time.monotonic() + _LONGEST_S
    try:
        while sum(kills.values()) < KILLS or not all(kills[what] for what in ("worker", "jvm", "driver")):
            if time.monotonic() > deadline:
                raise NotInTime(f"only {dict(kills)} were killed")
            time.sleep(rng.uniform(0.5, 2.5))
            for driver in drivers:
                if driver.process.poll() is not None:
                    driver.end()
                    driver.start()
            what = {3: "jvm", 7: "driver"}.get(sum(kills.values()) % 8, "worker")
            able = [
                driver for driver in drivers if what == "worker" or driver.acknowledged() > driver.before
            ]  # it has got somewhere since its start
            victims = [
                pid for driver in able for pid in ([driver.process.pid] if what == "driver" else driver.members(what))
            ]
            if victims:
                kills[what] += _kill(rng.choice(victims))
        _let_them_commit(drivers)
    finally:
        for driver in drivers:
            driver.end()
    judged = _judge(path, drivers)
    record(
        "T3b Spark",
        **{f"{what}s killed": count for what, count in kills.items()},
        **judged,
        starts=sum(driver.starts for driver in drivers),
    )


def _let_them_commit(drivers: list[Driver]) -> None:
    """Each driver once more, so that what a killed one left is met by a living one."""
    before = [driver.acknowledged() for driver in drivers]
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for driver in drivers:
            if driver.process.poll() is not None:
                driver.end()
                driver.start()
        if all(driver.acknowledged() > was for driver, was in zip(drivers, before, strict=True)):
            return
        time.sleep(0.5)
    raise NotInTime(
        "a driver made no progress: " + drivers[0].log.read_text()[-2000:] + drivers[1].log.read_text()[-2000:]
    )


def _judge(path: Path, drivers: list[Driver]) -> dict[str, int]:
    table = hoodoo.open(path)
    slots = [slot for slot in table.handle.history.slots(0, table.cursor.seq) if slot.transaction]
    versions = Counter(slot.transaction for slot in slots)
    assert not [version for version, times in versions.items() if times > 1]
    expected: dict[int, dict[str, Any]] = {}
    for slot in slots:
        assert slot.transaction
        for row in batch(*slot.transaction):
            if row["id"] not in expected or row["ts"] >= expected[row["id"]]["ts"]:  # type: ignore[index]
                expected[row["id"]] = row  # type: ignore[index]
    acknowledged = 0
    for driver in drivers:
        text = driver.notes.read_text()
        for line in text[: text.rfind("\n") + 1].splitlines():
            note = json.loads(line)
            if "ok" in note:
                acknowledged += 1
                assert (driver.name, note["ok"]) in versions, (
                    f"{driver.name} {note['ok']} was acknowledged and is not there"
                )
    table.compact()
    table.maintenance.sweep(0)
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    rows = table.scan().to_arrow().to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == [expected[key] for key in sorted(expected)]
    assert sorted((row["id"], row["ts"], row["who"]) for row in hudi_rows(path)) == sorted(
        (row["id"], row["ts"], row["who"]) for row in rows
    )
    assert len(rows) == KEYS and table.verify().problems == []
    live = {entry.file.path for group in table.handle.history.head().groups() for entry in group.files()} | {
        entry.path for entry in table.handle.history.head().superseded
    }
    spurious = {
        key
        for key, _ in table.handle.store.list("")
        if not key.startswith(".hoodie/") and parse_data_file(key.rpartition("/")[2])
    } - live
    assert spurious == set()
    return {"commits": len(slots), "acknowledged": acknowledged, "violations": 0}


def test_a_task_that_runs_twice_at_once_leaves_one_file_that_both_report(tmp_path: Path) -> None:
    """As a speculative task does, or a zombie whose stage was tried again (protocol rule 14): the name is the same,
    the first bytes count.
    """
    import pyarrow as pa

    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="part", order_by="ts", compact_after_logs=None)
    original, written, files = tasks.run, list[list[Any]](), set[str]()

    def twice(task: Any) -> Any:
        results: list[Any] = []
        barrier = threading.Barrier(3)

        def attempt() -> None:
            barrier.wait()
            results.append(original(task))

        threads = [threading.Thread(target=attempt) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        written.append(results)
        return results[0]

    from hoodoo.writers import operations

    patched = pytest.MonkeyPatch()
    patched.setattr(operations, "run", twice)
    try:
        for number in range(1, 15):
            table.upsert(pa.Table.from_pylist(batch("one", number), SCHEMA))
    finally:
        patched.undo()
    for results in written:
        assert len({repr(one.file) for one in results}) == 1
        files.add(results[0].file.path)
    on_disk = {
        key
        for key, _ in table.handle.store.list("")
        if not key.startswith(".hoodie/") and parse_data_file(key.rpartition("/")[2])
    }
    assert on_disk == files
    assert table.verify().problems == [] and len(hudi_rows(tmp_path / "t")) == KEYS
