"""Workers as processes of their own: beside writers, beside each other, and killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
from patience import wait_for
from worker_tables import SLOW, batch, beats, big_table, rows_of, table_of, wait_for_beat, worker

from hoodoo.compactor import heartbeats
from hoodoo.compactor.worker import Worker


def test_a_worker_beside_a_writer_keeps_logs_few_and_rows_right(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", clean_every=10, retain_hours=0, retain_commits=2)
    rng, want, most = np.random.default_rng(1), dict[int, str](), 0
    with worker(table.path) as process:
        wait_for_beat(table)
        for ts in range(60):
            ids = np.unique(rng.integers(0, 500, 200))
            most = max(most, table.upsert(batch(ids, ts)).lag.log_files_max)
            want |= {i: f"{ts}-{i}" for i in ids.tolist()}
            time.sleep(0.01)
        wait_for(
            lambda: table.maintenance.lag().log_files_max < 5 and not table.maintenance.lag().open_plans,
            "the last compaction",
        )
        process.end()
        assert process.process.returncode == 0
        assert process.events("compacted")
        assert not process.events("round_failed") and not process.events("plan_failed")
    assert most < 60
    assert rows_of(table) == want
    assert table.verify().problems == []
    assert beats(table) == []


def test_two_workers_complete_each_plan_once_and_do_no_damage(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    with worker(table.path, "--logs-min", 2) as one, worker(table.path, "--logs-min", 2) as two:
        wait_for_beat(table)
        for ts in range(40):
            table.upsert(batch(np.arange(1000), ts))
        wait_for(
            lambda: table.maintenance.lag().log_files_max < 2 and not table.maintenance.lag().open_plans,
            "the last compaction",
        )
        for process in (one, two):
            process.end()
            assert not process.events("round_failed") and not process.events("plan_failed")
        completed = [entry["instant"] for process in (one, two) for entry in process.events("compacted")]
    planned = [entry.instant for entry in table.inspect.timeline() if entry.state == "planned"]
    assert sorted(completed) == sorted(planned)
    assert len(set(completed)) == len(completed)
    assert rows_of(table) == {i: f"39-{i}" for i in range(1000)}
    assert table.verify().problems == []


def test_sigterm_in_the_middle_of_a_compaction_leaves_the_plan_and_a_sound_table(tmp_path: Path) -> None:
    table, want = big_table(tmp_path / "t")
    with worker(table.path, *SLOW) as process:
        wait_for(lambda: process.events("planned"), "plan")
        process.end(signal.SIGTERM)
        assert process.process.returncode == 0
        assert process.events("stopped") and process.events("plan_left")
    assert [key for key in beats(table) if heartbeats.WORKER in key] == []
    assert rows_of(table) == want
    assert table.verify().problems == []


def test_a_plan_whose_worker_was_killed_is_run_by_another(tmp_path: Path) -> None:
    table, want = big_table(tmp_path / "t")
    with worker(table.path, *SLOW) as killed:
        wait_for(lambda: killed.events("planned") and [key for key in beats(table) if "plan-" in key], "plan in hand")
        killed.end(signal.SIGKILL)
    assert table.maintenance.lag().open_plans == 1
    [hint] = [key for key in beats(table) if "plan-" in key]
    aged = time.time() - 31  # its hint is no longer fresh
    os.utime(Path(table.path, hint), (aged, aged))
    with worker(table.path) as heir:
        wait_for(lambda: heir.events("compacted"), "compaction")
        heir.end()
        assert heir.events("compacted")[0]["instant"] == killed.events("planned")[0]["instant"]
    assert table.maintenance.lag().log_files_max == 0
    assert rows_of(table) == want
    assert table.verify().problems == []


def test_with_a_living_worker_the_writer_does_not_compact_and_without_one_it_does(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", compact_after_logs=3)
    with worker(table.path, "--logs-min", 1000) as process:  # lives, but finds nothing to do
        wait_for_beat(table)
        for ts in range(6):
            table.upsert(batch(np.arange(10), ts))
        assert table.maintenance.lag().log_files_max == 5
        process.end()
    table.upsert(batch(np.arange(10), 6))
    assert table.maintenance.lag().log_files_max == 0


def test_a_worker_that_only_cleans_does_not_keep_writers_from_compacting(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", compact_after_logs=3)
    with worker(table.path, "--services", "clean") as process:
        for ts in range(6):
            table.upsert(batch(np.arange(10), ts))
        assert table.maintenance.lag().log_files_max < 3
        process.end()


def test_a_worker_process_serves_its_metrics_where_its_first_record_says(tmp_path: Path) -> None:
    import urllib.request

    table = table_of(tmp_path / "t")
    table.upsert(batch(np.arange(10), 0))
    with worker(
        table.path, "--metrics-port", 0, "--memory", 64 << 20, "--max-bytes-per-second", 1e9, "--groups-at-once", 1
    ) as process:
        url = process.events("started")[0]["metrics"]
        wait_for(
            lambda: f'hoodoo_up{{table="{table.path}"}} 1.0' in urllib.request.urlopen(url, timeout=10).read().decode(),
            "a round",
        )
        process.end()


def test_a_plan_that_was_left_at_sigterm_is_run_by_the_next_worker(tmp_path: Path) -> None:
    table, want = big_table(tmp_path / "t")
    with worker(table.path, *SLOW) as process:
        wait_for(lambda: process.events("planned"), "plan")
        process.end(signal.SIGTERM)
        assert process.events("plan_left")
    assert Worker([table], once=True).run().failed == ()
    assert not table.maintenance.lag().open_plans
    assert rows_of(table) == want and table.verify().problems == []
