"""A writer that never pauses, services in processes of their own: no write fails, every tenth commit the rows are the
model's, and reads stay cheap.

HOODOO_COMMITS makes each run longer (default: 1,000 commits on either table type, 300 where workers are killed or
slow).
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from figures import record
from patience import wait_for
from soak import EACH_ITS_OWN, Writer, start_worker, workers

import hoodoo

COMMITS = int(os.environ.get("HOODOO_COMMITS", "0"))


def completed(writer: Writer) -> dict[str, int]:
    """How many slots of each service the table has."""
    slots = list(writer.table.handle.history.slots(1, writer.table.handle.history.head().seq))
    return {
        name: sum(slot.operation == name and slot.outcome == "completed" for slot in slots)
        for name in ("COMPACT", "LOG_COMPACT", "CLUSTER", "CLEAN")
    }


def commit_until(writer: Writer, condition: Callable[[], object], what: str) -> None:
    """Go on writing until something has happened: services of a slow machine come later."""

    def happened() -> object:
        found = condition()
        if not found:
            writer.commit()
        return found

    wait_for(happened, what)
    writer.check()


def median_scan(table: hoodoo.Table) -> float:
    """CPU seconds of reading everything: less at the mercy of what else runs than the clock."""
    times = []
    for _ in range(5):
        began = time.process_time()
        table.scan().to_arrow()
        times.append(time.process_time() - began)
    return statistics.median(times)


@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_beside_services_a_thousand_commits_succeed_and_every_tenth_reads_as_the_model(
    tmp_path: Path, kind: str
) -> None:
    writer, commits, scans = Writer(tmp_path / "t", kind), COMMITS or 1000, []
    began = time.monotonic()
    with workers(tmp_path / "t", *EACH_ITS_OWN):
        for number in range(1, commits + 1):
            writer.commit()
            if number % 10 == 0:
                writer.check()
            if number % (commits // 5) == 0:
                scans.append(median_scan(writer.table))
        services = ("CLEAN", "CLUSTER", "COMPACT") if kind == "merge_on_read" else ("CLEAN", "CLUSTER")
        commit_until(writer, lambda: all(completed(writer)[name] for name in services), "a slot of each service")
    seconds = time.monotonic() - began
    assert max(writer.logs_seen, default=0) <= 2 * writer.table.options.slow_after_logs  # type: ignore[operator]
    did = completed(writer)
    writer.table.compact()
    writer.check()
    fresh = median_scan(writer.table)
    record(
        f"soak-{kind}",
        commits=commits,
        seconds=round(seconds, 1),
        logs_max=max(writer.logs_seen, default=0),
        scan_ratio=round(statistics.median(scans) / fresh, 2),
        scan_ratio_max=round(max(scans) / fresh, 2),
        waited_seconds=round(writer.waited, 2),
        **{name.lower(): count for name, count in did.items()},
    )
    assert writer.table.verify().ok


def test_workers_that_are_killed_every_moment_cost_nothing_but_their_work(tmp_path: Path) -> None:
    writer, commits, kills = Writer(tmp_path / "t", "merge_on_read"), COMMITS or 300, 0
    with workers(tmp_path / "t", *EACH_ITS_OWN) as running:

        def kill_next(kills: int) -> int:
            one = kills % len(running)
            running[one].kill()
            running[one].communicate()
            running[one] = start_worker(tmp_path / "t", *EACH_ITS_OWN[one])
            return kills + 1

        at = time.monotonic() + 2
        for number in range(1, commits + 1):
            writer.commit()
            if number % 10 == 0:
                writer.check()
            if time.monotonic() > at:
                kills, at = kill_next(kills), time.monotonic() + 2
        while kills < 3:
            kills = kill_next(kills)
            writer.commit()
    assert max(writer.logs_seen, default=0) <= 2 * writer.table.options.slow_after_logs  # type: ignore[operator]
    writer.table.compact()
    writer.check()
    writer.table.maintenance.sweep(older_than_hours=0)
    report = writer.table.verify()
    assert report.ok, report
    record("soak-killed", commits=commits, kills=kills, logs_max=max(writer.logs_seen, default=0))


def test_a_writer_at_twice_the_speed_of_its_compactor_is_slowed_and_reads_stay_bounded(tmp_path: Path) -> None:
    writer, commits = Writer(tmp_path / "t", "merge_on_read", slow_after_logs=8), COMMITS or 300
    for _ in range(20):
        writer.commit()
    began, before = (
        time.monotonic(),
        sum(group.base.file.size for group in writer.table.handle.history.head().groups() if group.base),
    )
    for _ in range(20):
        writer.commit()
    # Compacting each group once for every five logs costs about its base twice; half of what keeps up with that at the
    # writer's own speed.
    needed = 2 * before * 4 / (time.monotonic() - began)
    with workers(
        tmp_path / "t",
        ("--services", "compact", "--max-bytes-per-second", str(max(1, int(needed / 2)))),
        ("--services", "clean,archive"),
    ):
        for number in range(1, commits + 1):
            writer.commit()
            if number % 10 == 0:
                writer.check()
        commit_until(writer, lambda: writer.waited, "a wait of the writer")
    assert max(writer.logs_seen) <= 2 * 8 + 1, "the bound at which the writer compacts itself"
    record("soak-outrun", commits=commits, logs_max=max(writer.logs_seen), waited_seconds=round(writer.waited, 2))
    writer.table.compact()
    writer.check()
