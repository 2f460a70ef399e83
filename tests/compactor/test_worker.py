"""What a worker does, and in which order: whom it serves first, what it leaves alone, what stops it
and what does not.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from patience import PATIENCE_S, wait_for
from worker_tables import batch, beats, big_table, loop_of, rows_of, table_of

import hoodoo
from hoodoo.compactor import heartbeats
from hoodoo.compactor.compaction import plans
from hoodoo.compactor.compaction.compaction_service import postponed
from hoodoo.compactor.compaction.triggers import CompactionTriggers
from hoodoo.compactor.limits import ServiceLimits
from hoodoo.compactor.service_loop import ServiceLoop
from hoodoo.compactor.worker import ServiceTarget, Worker, record
from hoodoo.errors import OptionError, StoreUnavailable, TableNotFound
from hoodoo.timeline.layout import HEARTBEATS
from hoodoo.timeline.properties.table_options import Options


def test_a_plan_that_another_worker_has_just_taken_is_left_alone(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    for ts in range(3):
        table.upsert(batch(np.arange(10), ts))
    plan = plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    assert plan
    hint = f"{HEARTBEATS}plan-{plan.instant}"
    table.handle.store.put(hint, b"another")
    assert Worker([table.handle.services()], once=True).run().failed == ()
    assert table.maintenance.lag().open_plans == 1
    aged = time.time() - 31
    os.utime(Path(table.path, hint), (aged, aged))
    Worker([table.handle.services()], once=True).run()
    assert table.maintenance.lag().open_plans == 0


def test_a_plan_that_is_held_for_ever_is_taken_over_when_nothing_else_is_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hoodoo.compactor.service_turn._PATIENCE_S", 0.3)
    table = table_of(tmp_path / "t")
    for ts in range(3):
        table.upsert(batch(np.arange(10), ts))
    plan = plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    assert plan
    table.handle.store.put(f"{HEARTBEATS}plan-{plan.instant}", b"a worker that hangs but beats")
    serving = Worker([table.handle.services()], poll_seconds=0.05)
    thread = threading.Thread(target=serving.run)
    thread.start()
    wait_for(lambda: not table.maintenance.lag().open_plans, "the plan's completion")
    serving.stop()
    thread.join(PATIENCE_S)
    assert beats(table) == []


def test_a_worker_beats_while_its_first_compaction_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(tmp_path / "t", worker_timeout_seconds=0.3)
    for ts in range(7):
        table.upsert(batch(np.arange(10), ts))
    hints: set[str] = set()
    run = plans.run_compaction_plan

    def slow(*arguments: Any) -> plans.CompactionResult:
        """Runs once each hint has been renewed three times."""
        hints.update(key for key in beats(table) if "worker-" in key or "plan-" in key)
        for key in hints:
            for _ in range(3):
                before = table.handle.store.modified_ms(key)
                wait_for(
                    lambda key=key, before=before: table.handle.store.modified_ms(key) != before, f"a beat of {key}"
                )
        return run(*arguments)

    monkeypatch.setattr(plans, "run_compaction_plan", slow)
    assert Worker([table.handle.services()], once=True).run().failed == ()
    assert len(hints) == 2


def test_a_worker_does_not_wait_for_a_file_group_that_takes_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(tmp_path / "t")
    for ts in range(7):
        table.upsert(batch(np.arange(10), ts))
    running, over = threading.Event(), threading.Event()

    def stuck(*_: Any) -> plans.CompactionResult:
        running.set()
        over.wait()
        return plans.CompactionResult()

    monkeypatch.setattr(plans, "run_compaction_plan", stuck)
    serving = Worker([table.handle.services()], grace_seconds=0.2)
    outcomes: list[Any] = []
    thread = threading.Thread(target=lambda: outcomes.append(serving.run()))
    thread.start()
    assert running.wait(PATIENCE_S)
    assert [key for key in beats(table) if heartbeats.WORKER in key]
    serving.stop()
    thread.join(PATIENCE_S)
    assert [outcome.finished for outcome in outcomes] == [False]
    wait_for(lambda: not [key for key in beats(table) if heartbeats.WORKER in key], "the end of its heartbeat")
    assert not over.is_set()
    over.set()


def test_workers_that_run_the_same_plan_at_once_complete_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "hoodoo.compactor.heartbeats.PLAN_FRESH_S", 0.0
    )  # the hint, which only saves work, keeps nobody away
    table, want = big_table(tmp_path / "t", parts=4, rows=40_000)
    plan = plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    assert plan
    threads = [
        threading.Thread(target=Worker([hoodoo.open(table.path).handle.services()], once=True).run) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert [entry.state for entry in table.inspect.timeline() if entry.instant == plan.instant] == [
        "planned",
        "completed",
    ]
    assert rows_of(table) == want
    assert table.verify().problems == []


def test_one_worker_serves_several_tables_and_a_broken_one_stops_none(tmp_path: Path) -> None:
    tables = [table_of(tmp_path / name) for name in "abc"]
    for table in tables:
        for ts in range(7):
            table.upsert(batch(np.arange(10), ts))

    def broken() -> Any:
        raise StoreUnavailable("the store is away, secret_key=hunter2")

    serving = Worker(
        [
            tables[0].handle.services(),
            ServiceTarget("broken", broken, broken),
            tables[1].handle.services(),
            tables[2].handle.services(),
        ],
        poll_seconds=0.05,
    )
    thread = threading.Thread(target=serving.run)
    thread.start()
    wait_for(lambda: all(table.maintenance.lag().log_files_max < 5 for table in tables), "compaction of all")
    serving.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_a_table_that_is_missing_at_the_start_is_served_once_it_appears(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "late"

    def missing() -> Any:
        raise TableNotFound(f"There is no table at {path}.")

    late = ServiceTarget(str(path), missing, lambda: hoodoo.open(path).handle.services())
    with caplog.at_level("INFO", "hoodoo.worker"):
        serving = Worker([table_of(tmp_path / "t").handle.services(), late], poll_seconds=0.02)
        thread = threading.Thread(target=serving.run)
        thread.start()
        wait_for(lambda: "event=table_missing" in caplog.text, "the record of the missing table")
        table = table_of(path)
        for ts in range(7):
            table.upsert(batch(np.arange(10), ts))
        wait_for(lambda: table.maintenance.lag().log_files_max < 5, "compaction of the table that appeared")
        serving.stop()
        thread.join(PATIENCE_S)
    assert caplog.text.count("event=table_missing") == 1 and caplog.text.count("event=table_appeared") == 1


def test_records_are_single_lines_without_secrets_or_control_characters(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Any:
        raise StoreUnavailable("line one\nline two \x1b[31m secret_key=hunter2")

    with caplog.at_level("INFO", "hoodoo.worker"):
        outcome = Worker([ServiceTarget("/some where", broken, broken)], once=True).run()
    assert outcome.failed == ("/some where",)
    [line] = [entry.getMessage() for entry in caplog.records if "round_failed" in entry.getMessage()]
    assert "\n" not in line and "\x1b" not in line and "hunter2" not in line
    assert line.startswith('event=round_failed table="/some where" ')
    assert record("x", {"n": 1, "s": 0.25, "empty": ""}) == 'event=x n=1 s=0.250 empty=""'


def test_a_plan_that_fails_does_not_keep_other_file_groups_from_being_compacted(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", compact_after_logs=4)
    for ts in range(2):
        table.upsert(batch(np.arange(0, 20, 2), ts))  # partition 0
    plan = plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    assert plan
    Path(table.path, plan.groups[0].logs[0]).write_bytes(b"damage")
    for ts in range(4):
        table.upsert(batch(np.arange(1, 20, 2), ts))  # partition 1
    outcome = Worker([table.handle.services()], once=True, logs_min=1).run()
    assert outcome.failed == (table.path,)
    view = table.handle.history.head()
    assert set(view.plans) == {plan.instant}
    assert all(not group.logs for group in view.groups(["part=1"]))


def test_a_worker_whose_plans_fail_again_and_again_does_not_keep_writers_from_compacting(tmp_path: Path) -> None:
    """It put the plan off and went on beating: writers left to it what it could not do."""
    table = table_of(tmp_path / "t", compact_after_logs=None)
    for ts in range(2):
        table.upsert(batch(np.arange(10), ts, 1))
    plan = plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    assert plan
    Path(table.path, plan.groups[0].logs[0]).write_bytes(b"damage")

    def beating(loop: ServiceLoop) -> bool:
        table.handle.store.delete(HEARTBEATS + heartbeats.WORKER + loop.worker.name)
        loop._send_heartbeat()
        return any(heartbeats.WORKER in key for key in beats(table))

    with loop_of(table, "compact", poll_seconds=0.001) as loop:
        loop.run_due_services()
        compaction = loop.duties["compact"]
        assert beating(loop)
        wait_for(
            lambda: (loop.run_due_services(), postponed(compaction)[plan.instant].failures >= 3)[1], "the third failure"
        )
        assert not beating(loop)
        table.delete_partitions([{"part": 0}])
        wait_for(lambda: (loop.run_due_services(), not postponed(compaction))[1], "the end of the plan")
        assert beating(loop) and not loop.has_failing_work


def test_logs_that_cannot_be_merged_keep_no_other_file_group_from_being_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round ended where the merge of logs failed, so one damaged log stopped the compaction of the whole table."""
    monkeypatch.setattr("hoodoo.compactor.compaction.triggers._BASE_MIN", 0)
    table = table_of(tmp_path / "t", compact_after_logs=None)
    table.upsert(batch(np.arange(30_000), 0, 3))
    for ts in range(1, 4):
        table.upsert(batch(np.arange(0, 10), ts, 3))
    for ts in range(4, 7):
        table.upsert(batch(np.arange(2, 30_000, 3), ts, 3))  # logs as large as the base
    damaged = next(iter(table.handle.history.head().groups(["part=0"]))).logs[1].file.path
    sound = Path(table.path, damaged).read_bytes()
    Path(table.path, damaged).write_bytes(b"damage")

    def logs() -> dict[str, int]:
        return {group.partition: len(group.logs) for group in hoodoo.open(table.path).handle.history.head().groups()}

    with loop_of(table, "compact", poll_seconds=0.001, logs_min=3) as loop:
        loop.run_due_services()
        assert logs() == {"part=0": 3, "part=1": 1, "part=2": 0}
        assert loop.has_failing_work and loop.work["compact"].failures == 1
        [tried] = loop.duties["compact"].parts.values()
        wait_for(lambda: (loop.run_due_services(), tried.failures >= 3)[1], "two more tries")
        Path(table.path, damaged).write_bytes(sound)
        wait_for(lambda: (loop.run_due_services(), not loop.has_failing_work)[1], "the merge")
    assert logs() == {"part=0": 1, "part=1": 1, "part=2": 0}
    assert table.verify().problems == []


def test_packing_many_files_leaves_compaction_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker packed all there was before it looked at logs again."""
    monkeypatch.setattr("hoodoo.compactor.clustering.clustering_service._UNITS", 1)
    table = table_of(tmp_path / "t")
    for number in range(6):
        table.insert(batch(np.arange(number * 10, number * 10 + 10), 0), bulk=True)
    with loop_of(table, "compact", "cluster") as loop:
        assert loop.run_due_services()
        assert loop.work["cluster"].groups == 1
        for ts in range(1, 7):
            table.upsert(batch(np.arange(60), ts))
        assert loop.run_due_services()
        assert loop.work["compact"].groups > 0
        wait_for(lambda: not loop.run_due_services(), "the end of the work")
    assert len(list(table.handle.history.head().groups())) == 2
    assert rows_of(table) == {i: f"6-{i}" for i in range(60)} and table.verify().problems == []


def test_as_many_file_groups_as_a_limit_says_are_in_work_over_all_tables_together(tmp_path: Path) -> None:
    """Each table had that many for itself."""
    tables = [table_of(tmp_path / name) for name in "abc"]
    running, most, lock = 0, 0, threading.Lock()

    def task(_: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1

    serving = Worker(tables, limits=ServiceLimits(groups_at_once=1))
    threads = [threading.Thread(target=loop.engine.map, args=(task, range(5), 1)) for loop in serving.loops]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert most == 1


def test_a_table_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    """Its figures were served twice under one name, which Prometheus refuses."""
    table = table_of(tmp_path / "t")
    with pytest.raises(OptionError, match="was passed 2 times"):
        Worker([table, hoodoo.open(table.path)])


def test_logs_that_outweigh_half_their_base_or_grew_old_are_due_however_few(tmp_path: Path) -> None:
    heavy = table_of(tmp_path / "heavy", compact_after_logs=1000)
    for ts in range(2):
        heavy.upsert(batch(np.arange(100_000), ts, 1))
    light = table_of(tmp_path / "light", compact_after_logs=1000)
    for ts in range(2):
        light.upsert(batch(np.arange(10), ts, 1))
    Worker([heavy.handle.services(), light.handle.services()], once=True).run()
    assert (heavy.maintenance.lag().log_files_max, light.maintenance.lag().log_files_max) == (0, 1)
    light.set_options(compact_age_seconds=0.001)
    time.sleep(0.01)
    Worker([light.handle.services()], once=True).run()
    assert light.maintenance.lag().log_files_max == 0


def test_a_worker_cleans_once_an_hour_and_when_as_many_commits_have_passed_as_the_table_says(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", type="copy_on_write", clean_every=None, retain_hours=0, retain_commits=1)
    with loop_of(table, "clean") as loop:
        seen = []
        for ts in range(8):
            table.set_options(clean_every=None)  # the writer is not to do it
            table.upsert(batch(np.arange(10), ts))
            table.set_options(clean_every=4)
            if ts == 4:
                loop.duties["clean"].clocks["clean"] -= 3600
            loop.run_due_services()
            seen.append(table.maintenance.lag().cleanable_bytes > 0)
    assert seen == [False, True, False, True, False, True, True, True]
    assert rows_of(table) == {i: f"7-{i}" for i in range(10)}
    assert table.verify().problems == []


@pytest.mark.parametrize("every", [None, 1000])
def test_a_worker_cleans_a_table_that_is_not_written_any_more(tmp_path: Path, every: int | None) -> None:
    """It waited for commits that never came, so dropped partitions stayed for ever; and without `clean_every`, which is
    about writers, it never cleaned.
    """
    table = table_of(tmp_path / "t", clean_every=every, retain_hours=0, retain_commits=1)
    table.upsert(batch(np.arange(10), 0))
    table.delete_partitions([{"part": 1}])
    assert table.maintenance.lag().cleanable_bytes > 0
    assert Worker([table], ["clean"], once=True).run().failed == ()
    assert table.maintenance.lag().cleanable_bytes == 0 and not table.handle.history.head().superseded


def test_hints_of_workers_long_gone_are_swept(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    heartbeats.beat(table.handle.store, "gone")
    aged = time.time() - 7200
    os.utime(Path(table.path, HEARTBEATS, heartbeats.WORKER + "gone"), (aged, aged))
    Worker([table.handle.services()], once=True).run()
    assert beats(table) == []


def test_a_worker_acts_at_half_the_logs_that_make_a_writer_act() -> None:
    assert CompactionTriggers.from_table_options(Options()).logs == 5
    assert CompactionTriggers.from_table_options(Options(compact_after_logs=1)).logs == 1
    assert CompactionTriggers.from_table_options(Options(compact_after_logs=None)).logs == 5


@pytest.mark.parametrize("wrong", [{"services": ["polish"]}, {"services": []}, {"poll_seconds": 0}, {"logs_min": 0}])
def test_a_wrong_argument_is_named(tmp_path: Path, wrong: dict[str, Any]) -> None:
    table = table_of(tmp_path / "t")
    with pytest.raises(OptionError):
        Worker([table.handle.services()], **wrong)


def test_a_service_that_fails_keeps_no_other_from_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = table_of(tmp_path / "t", type="copy_on_write", clean_every=None, retain_hours=0, retain_commits=1)
    for ts in range(6):
        table.upsert(batch(np.arange(10), ts))
    table.set_options(clean_every=5)

    def broken(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr("hoodoo.compactor.clustering.cluster.pack_small_files", broken)
    with caplog.at_level("INFO", "hoodoo.worker"):
        outcome = Worker([table], once=True).run()
    assert outcome.failed == (table.path,)
    assert table.maintenance.lag().cleanable_bytes == 0
    [line] = [entry.getMessage() for entry in caplog.records if "service_failed" in entry.getMessage()]
    assert "service=cluster" in line


def test_a_worker_merges_only_the_logs_where_the_base_would_cost_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hoodoo.compactor.compaction.triggers._BASE_MIN", 0)
    table = table_of(tmp_path / "t")
    table.upsert(batch(np.arange(50_000), 0))
    for ts in range(1, 7):
        table.upsert(batch(np.arange(20), ts))
    want, bases = rows_of(table), [group.base for group in table.handle.history.head().groups()]
    Worker([table], ["compact"], once=True).run()
    assert table.maintenance.lag().log_files_max == 1
    assert [group.base for group in table.handle.history.head().groups()] == bases
    assert rows_of(table) == want


def test_a_worker_packs_small_files(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    for number in range(6):
        table.insert(batch(np.arange(number * 10, number * 10 + 10), 0, parts=1), bulk=True)
    assert len(list(table.handle.history.head().groups())) == 6
    assert Worker([table], once=True).run().failed == ()
    assert len(list(table.handle.history.head().groups())) == 1
    assert rows_of(table) == {i: f"0-{i}" for i in range(60)} and table.verify().problems == []


def test_a_worker_drops_partitions_that_outlived_their_time(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", partition_ttl_hours=0.3 / 3600)
    table.upsert(batch(np.arange(0, 10, 2), 0))
    time.sleep(0.5)
    table.upsert(batch(np.arange(1, 10, 2), 0))
    table.set_options(partition_ttl_hours=0.4 / 3600)
    assert Worker([table], ["clean"], once=True).run().failed == ()
    assert set(rows_of(table)) <= set(range(1, 10, 2))
    assert "DELETE_PARTITION" in [entry.operation for entry in table.inspect.timeline()]


@pytest.mark.parametrize("every", [5, None])
def test_a_worker_archives_what_is_old(tmp_path: Path, every: int | None) -> None:
    from hoodoo.timeline.environment import Environment

    table = table_of(tmp_path / "t", retain_hours=0, retain_commits=1, archive_after_hours=0, clean_every=every)
    for ts in range(12):
        table.upsert(batch(np.arange(10), ts))
    now = Environment().now_ms
    ahead = hoodoo.Table(table.handle.store, Environment(now_ms=lambda: now() + 50 * 3_600_000))
    ahead.upsert(batch(np.arange(10), 99))
    oldest = table.handle.history.oldest_slot()
    assert (
        Worker([hoodoo.Table(table.handle.store, Environment(now_ms=lambda: now() + 100 * 3_600_000))], once=True)
        .run()
        .failed
        == ()
    )
    assert hoodoo.open(table.path).handle.history.oldest_slot() > oldest
    assert rows_of(hoodoo.open(table.path)) == {i: f"99-{i}" for i in range(10)}


def test_limits_are_shared_by_the_tables_of_a_process_and_reach_every_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [table_of(tmp_path / name) for name in "ab"]
    for table in tables:
        for ts in range(7):
            table.upsert(batch(np.arange(10), ts))
    seen: list[ServiceLimits] = []
    run = plans.run_compaction_plan

    def looked_at(context: Any, plan: Any, stopped: Any, limits: ServiceLimits) -> plans.CompactionResult:
        seen.append(limits)
        return run(context, plan, stopped, limits)

    monkeypatch.setattr(plans, "run_compaction_plan", looked_at)
    Worker(tables, once=True, limits=ServiceLimits(64 << 20, 1e9, 1)).run()
    assert len(seen) == 2
    assert all(
        one.memory_bytes == (64 << 20) // min(2, os.cpu_count() or 1)
        and one.bytes_per_second == 5e8
        and one.groups_at_once == 1
        for one in seen
    )


def test_progress_tells_how_many_file_groups_of_the_plan_are_done(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    for ts in range(7):
        table.upsert(batch(np.arange(12), ts, parts=3))
    told: list[tuple[str, int, int]] = []
    Worker([table], ["compact"], once=True, progress=lambda path, done, groups: told.append((path, done, groups))).run()
    assert told[0] == (table.path, 0, 3) and sorted(told)[-1] == (table.path, 3, 3)


def test_a_worker_compacts_and_clusters_on_spark(tmp_path: Path, spark: Any) -> None:
    from hoodoo.engine.spark import SparkEngine

    table = table_of(tmp_path / "t")
    for ts in range(6):
        table.upsert(batch(np.arange(12), ts, parts=2))
    for number in range(5):
        table.insert(batch(np.arange(100 + number * 10, 110 + number * 10), 9, parts=1), bulk=True)
    assert (
        Worker([table], once=True, engine=SparkEngine(spark), limits=ServiceLimits(groups_at_once=2)).run().failed == ()
    )
    assert table.maintenance.lag().log_files_max == 0
    assert [len(list(table.handle.history.head().groups([f"part={part}"]))) for part in range(2)] == [1, 1]
    assert rows_of(table) == {i: f"5-{i}" for i in range(12)} | {i: f"9-{i}" for i in range(100, 150)}
    assert table.verify().problems == []
