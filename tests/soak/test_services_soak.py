"""A writer that never pauses, services in processes of their own: no write fails, every tenth commit the rows are the model's, and reads stay cheap.

HOODOO_COMMITS makes each run longer (default: 1,000 commits on either table type, 300 where workers are killed or slow).
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from figures import record

import hoodoo

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("text", pa.string())])
KEYS, BATCH = 120_000, 60
COMMITS = int(os.environ.get("HOODOO_COMMITS", "0"))
OPTIONS: dict[str, Any] = {"target_file_bytes": 1 << 19, "retain_hours": 0, "retain_commits": 5, "worker_timeout_s": 30, "compact_age_s": 5}


class Writer:
    """Writes random batches, and keeps what the table must hold: for each key the `ts` of its row, or -1."""

    def __init__(self, path: Path, kind: str, **options: Any) -> None:
        self.table = hoodoo.create(path, SCHEMA, key="id", partition_by="part", order_by="ts", type=kind, **{**OPTIONS, **options})
        self.chance = np.random.default_rng(11)
        self.model = np.full(0, -1)
        self.ts = 0
        self.waited = 0.0
        self.logs_seen: list[int] = []
        self.insert(KEYS, self.table.upsert)

    def batch(self, ids: np.ndarray) -> pa.Table:
        self.ts += 1
        return rows_of(ids, np.full(len(ids), self.ts))

    def insert(self, count: int, write: Callable[[pa.Table], Any]) -> Any:
        ids = np.arange(len(self.model), len(self.model) + count)
        result = write(self.batch(ids))
        self.model = np.append(self.model, np.full(count, self.ts))
        return result

    def commit(self) -> None:
        """Mostly updates of keys all over the table; some deletes, some new keys, most of them in small files of their own."""
        what = self.chance.random()
        if what < 0.1:
            gone = self.chance.choice(len(self.model), 10, replace=False)
            result = self.table.delete(self.batch(gone).select(["id", "part"]))
            self.model[gone] = -1
        elif what < 0.25:
            result = self.insert(BATCH // 2, self.table.bulk_insert if what < 0.2 else self.table.upsert)
        else:
            changed = self.chance.choice(np.flatnonzero(self.model >= 0), BATCH, replace=False)
            result = self.table.upsert(self.batch(changed))
            self.model[changed] = self.ts
        self.waited += result.waited_s
        if result.lag:
            self.logs_seen.append(result.lag.log_files_max)

    def check(self) -> None:
        alive = np.flatnonzero(self.model >= 0)
        found, wanted = self.table.scan().to_arrow().sort_by("id"), rows_of(alive, self.model[alive])
        assert found.combine_chunks().equals(wanted.combine_chunks()), f"after {self.ts} commits: {len(found)} rows, the model has {len(wanted)}"


def rows_of(ids: np.ndarray, ts: np.ndarray) -> pa.Table:
    digits = pc.utf8_lpad(pa.array(ids).cast(pa.string()), 8, "0")
    text = pc.binary_join_element_wise("text", digits, pa.array(ts).cast(pa.string()), " and some more of it ")
    return pa.table([pc.binary_join_element_wise("key", digits, "-"), pa.array(ids % 4).cast(pa.string()), pa.array(ts), text], schema=SCHEMA)


def start_worker(path: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "hoodoo", "worker", str(path), "--poll", "0.05", *more]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)


@contextmanager
def workers(path: Path, *kinds: tuple[str, ...]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """One process for each tuple of arguments; SIGTERM ends them, and none may have failed."""
    running = [start_worker(path, *kind) for kind in kinds]
    try:
        yield running
    finally:
        for process in running:
            process.terminate()
        for process in running:
            _, errors = process.communicate(timeout=60)
            assert process.returncode in (0, -signal.SIGKILL, -signal.SIGTERM), errors.decode()[-2000:]  # by SIGTERM: it had only just started


EACH_ITS_OWN = (("--services", "compact"), ("--services", "cluster"), ("--services", "clean,archive"))


def median_scan(table: hoodoo.Table) -> float:
    """CPU seconds of reading everything: less at the mercy of what else runs than the clock."""
    times = []
    for _ in range(5):
        began = time.process_time()
        table.scan().to_arrow()
        times.append(time.process_time() - began)
    return statistics.median(times)


@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_beside_services_a_thousand_commits_succeed_and_every_tenth_reads_as_the_model(tmp_path: Path, kind: str) -> None:
    writer, commits, scans = Writer(tmp_path / "t", kind), COMMITS or 1000, []
    began = time.monotonic()
    with workers(tmp_path / "t", *EACH_ITS_OWN):
        for number in range(1, commits + 1):
            writer.commit()
            if number % 10 == 0:
                writer.check()
            if number % (commits // 5) == 0:
                scans.append(median_scan(writer.table))
    seconds = time.monotonic() - began
    while_serving = writer.table._history.head()
    assert max(writer.logs_seen, default=0) <= 2 * writer.table.options.slow_after_logs  # type: ignore[operator]
    slots = [slot for slot in writer.table._history.slots(1, while_serving.seq)]
    did = {name: sum(slot.operation == name and slot.outcome == "completed" for slot in slots) for name in ("COMPACT", "LOG_COMPACT", "CLUSTER", "CLEAN")}
    assert did["CLEAN"] and did["CLUSTER"] and (did["COMPACT"] or kind == "copy_on_write"), did
    writer.table.compact()
    writer.check()
    fresh = median_scan(writer.table)
    record(
        f"soak-{kind}", commits=commits, seconds=round(seconds, 1), logs_max=max(writer.logs_seen, default=0), scan_ratio=round(statistics.median(scans) / fresh, 2),
        scan_ratio_max=round(max(scans) / fresh, 2), waited_s=round(writer.waited, 2), **{name.lower(): count for name, count in did.items()},
    )
    assert writer.table.verify().ok


def test_workers_that_are_killed_every_moment_cost_nothing_but_their_work(tmp_path: Path) -> None:
    writer, commits, kills = Writer(tmp_path / "t", "merge_on_read"), COMMITS or 300, 0
    with workers(tmp_path / "t", *EACH_ITS_OWN) as running:
        at = time.monotonic() + 2
        for number in range(1, commits + 1):
            writer.commit()
            if number % 10 == 0:
                writer.check()
            if time.monotonic() > at:
                place = kills % len(running)
                running[place].kill()
                running[place].communicate(timeout=30)
                running[place] = start_worker(tmp_path / "t", *EACH_ITS_OWN[place])
                kills, at = kills + 1, time.monotonic() + 2
    assert kills >= 3
    assert max(writer.logs_seen, default=0) <= 2 * writer.table.options.slow_after_logs  # type: ignore[operator]
    writer.table.compact()
    writer.check()
    writer.table.sweep(older_than_hours=0)
    report = writer.table.verify()
    assert report.ok, report
    record("soak-killed", commits=commits, kills=kills, logs_max=max(writer.logs_seen, default=0))


def test_a_writer_at_twice_the_speed_of_its_compactor_is_slowed_and_reads_stay_bounded(tmp_path: Path) -> None:
    writer, commits = Writer(tmp_path / "t", "merge_on_read", slow_after_logs=8), COMMITS or 300
    for _ in range(20):
        writer.commit()
    began, before = time.monotonic(), sum(group.base.file.size for group in writer.table._history.head().groups() if group.base)
    for _ in range(20):
        writer.commit()
    # Compacting each group once for every five logs costs about its base twice; half of what keeps up with that at the writer's own speed.
    needed = 2 * before * 4 / (time.monotonic() - began)
    with workers(tmp_path / "t", ("--services", "compact", "--max-bytes-per-second", str(max(1, int(needed / 2)))), ("--services", "clean,archive")):
        for number in range(1, commits + 1):
            writer.commit()
            if number % 10 == 0:
                writer.check()
    assert max(writer.logs_seen) <= 2 * 8 + 1, "the bound at which the writer compacts itself"
    assert writer.waited > 0
    record("soak-outrun", commits=commits, logs_max=max(writer.logs_seen), waited_s=round(writer.waited, 2))
    writer.table.compact()
    writer.check()
