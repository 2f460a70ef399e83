"""Services that race: three workers on one plan, a cleaner against readers of every recent snapshot (F3, F4)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
from figures import record

import hoodoo
from hoodoo.compactor.compaction import plans

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64())])


def rows(ids: range, ts: int) -> pa.Table:
    return pa.table({"id": list(ids), "ts": [ts] * len(ids)}, SCHEMA)


def test_three_workers_that_run_one_plan_at_once_end_in_one_completion(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", order_by="ts", compact_after_logs=None, clean_every=None)
    table.upsert(rows(range(50), 0))
    rounds = 15
    for turn in range(1, rounds + 1):
        table.upsert(rows(range(turn), turn))
        plan = plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
        assert plan is not None
        barrier, results = threading.Barrier(3), list[Any]()

        def work(plan: Any = plan, barrier: Any = barrier, results: Any = results) -> None:
            worker = hoodoo.open(tmp_path / "t")
            barrier.wait()
            results.append(plans.run_compaction_plan(worker.handle.context(), plan))

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(len(result.instants) for result in results) == [0, 0, 1]
        completed = [
            entry for entry in table.inspect.timeline() if entry.instant == plan.instant and entry.state == "completed"
        ]
        assert len(completed) == 1
        assert {row["id"]: row["ts"] for row in table.scan().to_arrow().to_pylist()} == {
            key: turn if key < turn else 0 for key in range(50)
        }
    assert table.verify().problems == []
    record("F3", rounds=rounds, workers=3, completions=rounds)


def test_readers_of_the_last_twenty_snapshots_lose_nothing_under_a_pin_and_hear_of_it_without(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", order_by="ts", type="copy_on_write", clean_every=None)
    table.upsert(rows(range(20), 0))
    pins, scans, expected = [], [], []
    for turn in range(1, 21):
        table.upsert(rows(range(turn), turn))
        expected.append({key: turn if key < turn else 0 for key in range(20)})
        pins.append(hoodoo.open(tmp_path / "t").pin())
    cleaned = 0
    stop = threading.Event()

    def clean() -> None:
        nonlocal cleaned
        cleaner, turn = hoodoo.open(tmp_path / "t"), 100
        while not stop.is_set():
            cleaner.upsert(rows(range(20), turn := turn + 1))
            cleaned += cleaner.maintenance.clean(retain_hours=0, retain_commits=1).files
            cleaner.maintenance.sweep(0)

    thread = threading.Thread(target=clean)
    thread.start()
    try:
        for _ in range(3):
            for pin, rows_then in zip(pins, expected, strict=True):
                assert {row["id"]: row["ts"] for row in pin.scan().to_arrow().to_pylist()} == rows_then
    finally:
        stop.set()
        thread.join()
    scans = [pin.scan() for pin in pins]
    for pin in pins:
        pin.release()
    table.upsert(rows(range(20), 1000))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    table.maintenance.sweep(0)
    expired = 0
    for scan in scans:
        try:
            scan.to_arrow()
        except hoodoo.SnapshotExpired:
            expired += 1
    record("F4", readers=20, reads=60, cleaned_meanwhile=cleaned, expired_without_a_pin=expired)
    assert expired == 20 and cleaned > 0
