"""Compaction, cleaning, checkpoints and lag: they change no row, delete only what nobody may read, and say what is
owed.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import hoodoo
from hoodoo.compactor import heartbeats
from hoodoo.compactor.compaction import log_compaction, merge_group, plans
from hoodoo.compactor.compaction.triggers import behind
from hoodoo.readers.slices import slices
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.layout import CHECKPOINTS, INDEX, checkpoint_key, slot_key
from hoodoo.timeline.views import checkpoint

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])


def rows(*pairs: tuple[str, int]) -> pa.Table:
    return pa.table({"id": [pair[0] for pair in pairs], "ts": [pair[1] for pair in pairs]}, schema=SCHEMA)


def data_files(table: hoodoo.Table) -> set[str]:
    return {path.name for path in Path(table.path).iterdir() if path.name.endswith(".parquet") or ".log." in path.name}


def make(path: Path, kind: str = "copy_on_write", **options: object) -> hoodoo.Table:
    return hoodoo.create(
        path, SCHEMA, key="id", order_by="ts", type=kind, **{"compact_after_logs": None, "clean_every": None, **options}
    )  # type: ignore[arg-type]


def test_cleaning_keeps_the_asked_number_of_commits_readable_and_names_the_earliest(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    results = [table.upsert(rows(("a", number))) for number in range(6)]
    assert len(data_files(table)) == 6
    done = table.maintenance.clean(retain_hours=0, retain_commits=2)
    assert (done.files, done.min_readable, len(data_files(table))) == (4, results[4].cursor.seq, 2)
    assert table.scan(as_of=results[4].cursor).to_arrow()["ts"].to_pylist() == [4]
    with pytest.raises(hoodoo.SnapshotExpired, match=f"Use slot {results[4].cursor.seq}"):
        table.scan(as_of=results[3].cursor)
    assert len(list(table.handle.store.list(INDEX))) == 1  # the key set never changed, so one entry serves them all
    assert table.maintenance.clean(retain_hours=0, retain_commits=2).files == 0


def test_cleaning_keeps_everything_that_is_younger_than_the_retention(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    for number in range(5):
        table.upsert(rows(("a", number)))
    assert table.maintenance.clean(retain_hours=1, retain_commits=1).files == 0
    now = Environment().now_ms
    after = hoodoo.Table(table.handle.store, Environment(now_ms=lambda: now() + 2 * 3_600_000))
    assert after.maintenance.clean(retain_hours=1, retain_commits=1).files == 4


def test_a_scan_whose_files_a_clean_took_says_expired_not_damaged(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(("a", 1)))
    scan = table.scan()
    for number in range(3):
        hoodoo.open(tmp_path / "t").upsert(rows(("a", 2 + number)))
    hoodoo.open(tmp_path / "t").maintenance.clean(retain_hours=0, retain_commits=1)
    with pytest.raises(hoodoo.SnapshotExpired):
        scan.to_arrow()


def test_a_clean_takes_no_file_that_an_open_plan_needs(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "merge_on_read")
    table.upsert(rows(("a", 1)))
    table.upsert(rows(("a", 2)))
    plan = plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    assert plan is not None
    table.insert_overwrite(rows(("b", 1)), whole_table=True)  # supersedes what the plan names
    planned = {path for group in plan.groups for path in (group.base, *group.logs)}
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert planned <= data_files(table)
    table.compact()
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert not planned & data_files(table)
    assert table.scan().to_arrow()["id"].to_pylist() == ["b"]


def test_lag_is_zero_when_nothing_is_owed_and_tells_what_is(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "merge_on_read")
    nothing = table.upsert(rows(("a", 1), ("b", 1))).lag
    assert set(vars(nothing).values()) == {0}
    for number in range(3):
        lag = table.upsert(rows(("a", 2 + number))).lag
    assert (lag.log_files_max, lag.groups_behind, lag.open_plans) == (3, 1, 0)
    assert lag.log_bytes > 0 and lag.base_bytes > 0 and lag.oldest_delta_seconds >= 0
    plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    assert table.maintenance.lag().open_plans == 1
    table.compact()
    assert set(vars(table.maintenance.lag()).values()) == {0}


def test_a_writer_without_a_worker_compacts_by_itself_and_with_one_it_does_not(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "merge_on_read", compact_after_logs=3)
    for number in range(4):
        result = table.upsert(rows(("a", number)))
    assert result.lag.log_files_max == 0
    heartbeats.beat(table.handle.store, "w1")
    for number in range(5):
        result = table.upsert(rows(("a", 10 + number)))
    assert result.lag.log_files_max == 5
    heartbeats.delete_heartbeat(table.handle.store, "w1")
    assert table.upsert(rows(("a", 99))).lag.log_files_max == 0
    assert table.scan().to_arrow().to_pylist() == [{"id": "a", "ts": 99}]


def test_a_plan_that_a_dead_worker_left_is_run_by_the_next_writer_that_needs_it(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "merge_on_read", compact_after_logs=3)
    table.upsert(rows(("a", 0)))
    table.upsert(rows(("a", 1)))
    plan = plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    assert plan is not None
    table.handle.store.put(heartbeats.running_plan_hint_path(plan.instant), b"another worker")  # it lives, so far
    assert [table.upsert(rows(("a", 2 + number))).lag.open_plans for number in range(3)] == [1, 1, 1]
    table.handle.store.delete(heartbeats.running_plan_hint_path(plan.instant))
    lag = table.upsert(rows(("a", 9))).lag
    assert (lag.open_plans, lag.log_files_max < 3) == (0, True)
    assert table.scan().to_arrow().to_pylist() == [{"id": "a", "ts": 9}]


def test_a_failing_service_never_fails_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = make(tmp_path / "t", "merge_on_read", compact_after_logs=1)

    def broken(*_: object) -> None:
        raise hoodoo.StoreUnavailable("secret_key=abc is not shown")

    table.upsert(rows(("a", 1)))
    monkeypatch.setattr(plans, "commit_compaction_plan", broken)
    assert table.upsert(rows(("a", 2))).updated == 1
    assert "the commit is final" in caplog.text and "abc" not in caplog.text


def test_every_so_many_commits_a_writer_cleans(tmp_path: Path) -> None:
    table = make(tmp_path / "t", clean_every=4, retain_hours=0, retain_commits=1)
    for number in range(9):
        table.upsert(rows(("a", number)))
    assert len(data_files(table)) <= 4
    assert [entry.action for entry in table.inspect.timeline()].count("clean") >= 2


def test_opening_reads_the_newest_checkpoint_and_the_slots_after_it(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "merge_on_read", checkpoint_every=5)
    for number in range(23):
        table.upsert(rows(("a", number), (f"k{number}", 1)))
    rows_now = sorted(map(str, table.scan().to_arrow().to_pylist()))
    read: list[str] = []
    reopened = hoodoo.open(tmp_path / "t")
    store = reopened.handle.store
    get = store.get
    store.get = lambda key: read.append(key) or get(key)  # type: ignore[method-assign,func-returns-value]
    reopened.handle.timeline.history.__init__(store)  # type: ignore[misc]
    assert sorted(map(str, reopened.scan().to_arrow().to_pylist())) == rows_now
    assert sum("/commits/" in key for key in read) <= 6


def test_a_damaged_or_missing_checkpoint_changes_no_answer(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "merge_on_read", checkpoint_every=3)
    for number in range(10):
        table.upsert(rows(("a", number)))
    rows_now = table.scan().to_arrow().to_pylist()
    keys = [key for key, _ in table.handle.store.list(CHECKPOINTS)]
    newest = Path(table.path) / keys[-1]
    for change in (
        lambda data: data[:-50],
        lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
        lambda data: b"",
        None,
    ):
        data = newest.read_bytes()
        newest.unlink()
        if change:
            newest.write_bytes(change(data))
        assert hoodoo.open(tmp_path / "t").scan().to_arrow().to_pylist() == rows_now
        newest.write_bytes(data)


def test_a_checkpoint_holds_the_whole_view(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "merge_on_read")
    table.upsert(rows(("a", 1), ("b", 1)), transaction=("app", 3))
    table.upsert(rows(("a", 2)))
    table.insert_overwrite(rows(("c", 1)))
    table.upsert(rows(("c", 2)))
    plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    view = table.handle.history.head()
    assert checkpoint.decode(checkpoint.encode(view), checkpoint_key(view.seq)) == view


def test_small_commits_do_not_leave_a_file_each(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "merge_on_read")
    for number in range(25):
        table.upsert(rows((f"k{number}", 1)))
    assert len(list(table.handle.history.head().groups())) <= 9
    assert table.scan().count() == 25


def test_file_groups_are_cut_at_the_target_size(tmp_path: Path) -> None:
    table = make(tmp_path / "t", target_file_bytes=200_000)
    count = 60_000
    table.insert(
        pa.table(
            {"id": [f"{number * 2654435761 % 2**32:010d}" for number in range(count)], "ts": list(range(count))},
            schema=SCHEMA,
        ),
        sort_by="id",
        bulk=True,
    )
    sizes = sorted(group.base.file.size for group in table.handle.history.head().groups() if group.base)
    assert len(sizes) > 3 and sizes[-1] < 400_000
    ranges = sorted(
        tuple(group.base.file.stats["id"][:2]) for group in table.handle.history.head().groups() if group.base
    )
    assert all(
        left[1] < right[0] for left, right in zip(ranges, ranges[1:], strict=False)
    )  # sorted: they do not overlap
    assert table.scan().count() == count


def test_a_worker_that_comes_too_late_leaves_no_file_of_a_plan_whose_files_a_clean_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its put-if-absent succeeded again, so that a file with rows that are gone for good lay there under a completed
    instant.
    """
    table = make(tmp_path / "t", "merge_on_read")
    table.upsert(rows(("a", 1), ("b", 1)))
    table.upsert(rows(("a", 2)))
    plan = plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    assert plan is not None
    late, merge = hoodoo.open(table.path), merge_group.MergeTask.__call__

    def meanwhile(task: merge_group.MergeTask) -> object:
        monkeypatch.undo()
        assert table.maintenance.purge(rows(("a", 0))).files_proved
        return merge(task)

    monkeypatch.setattr(merge_group.MergeTask, "__call__", meanwhile)
    kept = {
        path: late.handle.store.get(path)
        for group in table.handle.history.head().groups()
        for path in (entry.file.path for entry in group.files())
    }
    monkeypatch.setattr(
        slices, "read_verified_file", lambda store, file, *more: kept[file.path]
    )  # it had read everything before the purge
    assert plans.run_compaction_plan(late.handle.context(), plan).groups == 0
    monkeypatch.undo()
    assert not [path for path in data_files(table) if plan.instant in path]
    assert table.verify().ok


def test_damage_in_one_file_group_is_named_and_the_others_are_compacted(tmp_path: Path) -> None:
    """One damaged log kept all groups of its plan, and every later one, from being compacted."""
    schema = pa.schema([*SCHEMA, ("part", pa.string())])
    table = hoodoo.create(
        tmp_path / "t", schema, key="id", partition_by="part", compact_after_logs=None, clean_every=None
    )
    for ts in range(4):
        for part in "abc":
            table.upsert(pa.table({"id": ["x"], "ts": [ts], "part": [part]}, schema=schema))
    log = next(Path(table.path, "part=b").glob(".*.log.*"))
    log.write_bytes(log.read_bytes()[:-4] + b"oops")
    for service in (
        lambda: plans.compact_files(table.handle.context()),
        lambda: log_compaction.compact_logs(table.handle.context(), lambda view: behind(view, 2)),
    ):
        with pytest.raises(hoodoo.CorruptTable, match=log.name):
            service()
        found = {group.partition: len(group.logs) for group in table.handle.history.head().groups()}
        assert (found["part=a"] <= 1, found["part=b"], found["part=c"] <= 1) == (True, 3, True)
        for part in "ac":
            table.upsert(pa.table({"id": ["x"], "ts": [9], "part": [part]}, schema=schema))
            table.upsert(pa.table({"id": ["x"], "ts": [9], "part": [part]}, schema=schema))


def test_a_slot_that_older_versions_cannot_understand_says_so_by_its_version(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "merge_on_read")
    for ts in range(4):
        table.upsert(rows(("a", ts)))
    log_compaction.compact_logs(table.handle.context(), lambda view: behind(view, 2))
    versions = [json.loads(table.handle.store.get(slot_key(seq)))["v"] for seq in range(1, table.cursor.seq + 1)]
    assert versions == [1] + [3] * (len(versions) - 1), "the first slot names no file"
