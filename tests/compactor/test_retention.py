"""Retention by time and by versions, and partitions that outlived their time."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tables import later
from tiers import sized

import hoodoo
from hoodoo.compactor.cleaning.retention import find_expired_partitions
from hoodoo.compactor.compaction import plans
from hoodoo.compactor.compaction.log_compaction import compact_logs
from hoodoo.compactor.compaction.triggers import behind
from hoodoo.format.names import parse_data_file
from hoodoo.timeline.commits.transaction import Transaction
from hoodoo.timeline.environment import Environment

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64())])
KINDS = ("copy_on_write", "merge_on_read")


def batch(ids: list[int], city: str, ts: int) -> pa.Table:
    return pa.table({"id": ids, "city": [city] * len(ids), "ts": [ts] * len(ids)}, schema=SCHEMA)


def make(path: Path, kind: str, partition: str | None = "city", **options: Any) -> hoodoo.Table:
    return hoodoo.create(
        path,
        SCHEMA,
        key="id",
        partition_by=partition,
        order_by="ts",
        type=kind,
        **{"compact_after_logs": None, "clean_every": None, **options},
    )


def bases(table: hoodoo.Table) -> dict[tuple[str, str], int]:
    """Base files on disk of each file group."""
    found: dict[tuple[str, str], int] = defaultdict(int)
    for path in Path(table.path).rglob("*.parquet"):
        parsed = parse_data_file(path.name)
        if parsed and ".hoodie" not in path.parts:
            found[path.parent.name, parsed.file_id] += 1
    return found


def content(table: hoodoo.Table, as_of: Any = None) -> list[str]:
    return sorted(map(str, table.scan(as_of=as_of).to_arrow().to_pylist()))


# ---- hours
def test_without_hours_a_slot_of_this_very_millisecond_keeps_nothing(tmp_path: Path) -> None:
    """The newest slot was dated one millisecond ahead of a clock that had not moved, so it was not among those "0 hours
    old", and what it dropped was kept: `clean` deleted nothing, once in three hundred times.
    """
    started = Environment().now_ms()
    store = make(tmp_path / "t", "merge_on_read", retain_hours=0, retain_commits=1).handle.store
    table = hoodoo.Table(store, Environment(now_ms=lambda: started))
    table.upsert(batch([1], "x", 1))
    table.delete_partitions([{"city": "x"}])
    assert table.handle.history.head().completed_at > started
    assert table.maintenance.lag().cleanable_bytes > 0
    assert table.maintenance.clean().files == 1 and not bases(table)


# ---- versions
@pytest.mark.both
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(sized(2, 6)))
def test_after_a_clean_no_group_has_more_versions_than_asked_and_every_snapshot_that_is_left_reads_right(
    tmp_path: Path, kind: str, seed: int
) -> None:
    rng = random.Random(seed)
    versions = rng.randint(1, 3)
    table = make(tmp_path / "t", kind, retain_versions=versions)
    snapshots: dict[int, list[str]] = {}
    for step in range(25):
        what = rng.choices(["upsert", "delete", "compact", "overwrite", "clean"], [8, 2, 4, 1, 2])[0]
        ids, city = [rng.randrange(12) for _ in range(3)], rng.choice("xyz")
        if what == "upsert":
            table.upsert(batch(ids, city, step))
        elif what == "delete":
            table.delete(batch(ids, city, step))
        elif what == "compact":
            table.compact()
        elif what == "overwrite":
            table.insert_overwrite(batch(ids[:1], city, step))
        else:
            table.maintenance.clean()  # by hours everything would stay
            assert max(bases(table).values(), default=0) <= versions
        head = table.cursor.seq
        snapshots[head] = content(table)
        least = table.handle.history.head().min_readable
        for seq, want in snapshots.items():
            if seq >= least:
                assert content(table, hoodoo.Cursor(table.cursor.table, seq)) == want, (step, what, seq)
    table.maintenance.clean()
    assert max(bases(table).values(), default=0) <= versions
    assert table.verify().problems == []


def test_snapshots_stay_readable_back_to_the_slot_at_which_no_group_needs_more_versions(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write")
    quiet = table.upsert(batch([1], "quiet", 0))
    busy = [table.upsert(batch([2], "busy", number)) for number in range(5)]
    assert table.maintenance.clean(retain_versions=3).min_readable == busy[2].cursor.seq
    assert content(table, busy[2].cursor) == content(table, busy[2].cursor)
    with pytest.raises(hoodoo.SnapshotExpired):
        table.scan(as_of=busy[1].cursor)
    with pytest.raises(hoodoo.SnapshotExpired):
        table.scan(as_of=quiet.cursor)
    assert table.maintenance.clean(retain_versions=3).files == 0


def test_a_version_that_a_savepoint_or_a_consumer_needs_stays(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write", retain_versions=1)
    results = [table.upsert(batch([1], "x", number)) for number in range(5)]
    table.savepoints.create("kept", as_of=results[0].cursor)
    reader = table.consumer("job", start=results[3].cursor)
    table.maintenance.clean()
    assert table.scan(as_of="kept").to_arrow()["ts"].to_pylist() == [0]
    assert table.scan(as_of=reader.position).to_arrow()["ts"].to_pylist() == [3]
    assert sum(bases(table).values()) == 3


@pytest.mark.parametrize("given", [0, -1, 1.5, "two", True])
def test_a_number_of_versions_that_is_none_is_refused(tmp_path: Path, given: Any) -> None:
    with pytest.raises(hoodoo.OptionError):
        make(tmp_path / "t", "copy_on_write", retain_versions=given)
    with pytest.raises(hoodoo.OptionError):
        make(tmp_path / "u", "copy_on_write").maintenance.clean(retain_versions=given)


# ---- partitions
@pytest.mark.parametrize("kind", KINDS)
def test_partitions_without_a_write_for_their_time_are_dropped_and_history_stays_readable(
    tmp_path: Path, kind: str
) -> None:
    table = make(tmp_path / "t", kind, partition_ttl_hours=24)
    table.upsert(batch([1, 2], "old", 0))
    table.upsert(batch([1], "kept", 0))
    before = table.cursor
    ahead = later(table, 25)
    ahead.upsert(batch([1], "kept", 1))
    ahead.upsert(batch([3], "new", 1))
    done = ahead.maintenance.expire()
    assert (done.partitions, done.rows) == (("city=old",), 2)
    assert sorted(ahead.scan().to_arrow()["city"].to_pylist()) == ["kept", "new"]
    assert ahead.scan(as_of=before).count() == 3
    assert table.inspect.timeline()[-1].operation == "DELETE_PARTITION"
    assert ahead.maintenance.expire().partitions == () and ahead.maintenance.expire().instant == ""
    assert ahead.verify().problems == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_service_is_no_write_a_partition_that_was_only_compacted_expires(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind, partition_ttl_hours=24)
    table.upsert(batch([1, 2], "old", 0))
    table.upsert(batch([1], "old", 1))
    ahead = later(table, 23)
    ahead.compact()
    ahead.maintenance.clean(retain_hours=0, retain_commits=1)
    assert ahead.maintenance.expire().partitions == ()
    assert later(table, 25).maintenance.expire().partitions == ("city=old",)


@pytest.mark.parametrize("kind", KINDS)
def test_one_row_written_in_time_keeps_its_partition(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind, partition_ttl_hours=24)
    table.upsert(batch(list(range(50)), "x", 0))
    later(table, 20).upsert(batch([7], "x", 1))
    assert later(table, 43).maintenance.expire().partitions == ()
    later(table, 43).compact()
    assert later(table, 43).maintenance.expire().partitions == ()
    assert later(table, 45).maintenance.expire().partitions == ("city=x",)


def test_a_partition_that_is_written_while_it_is_dropped_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path / "t", "merge_on_read", partition_ttl_hours=24)
    table.upsert(batch([1], "old", 0))
    table.upsert(batch([1], "older", 0))
    ahead, writer = later(table, 25), later(table, 25)
    start = Transaction.start
    raced: list[str] = []

    def slow(self: Transaction, inflight: bytes = b"") -> None:
        start(self, inflight)
        if self.action == "replacecommit" and not raced:
            raced.append(self.instant)
            writer.upsert(batch([2], "old", 1))

    monkeypatch.setattr(Transaction, "start", slow)
    done = ahead.maintenance.expire()
    assert raced and done.partitions == ("city=older",)
    assert sorted(ahead.scan().to_arrow()["id"].to_pylist()) == [1, 2]


def test_a_partition_under_an_open_plan_expires_and_the_plan_still_runs(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "merge_on_read", partition_ttl_hours=24)
    table.upsert(batch([1], "old", 0))
    table.upsert(batch([1], "old", 1))
    assert plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    assert later(table, 25).maintenance.expire().partitions == ("city=old",)
    later(table, 25).compact()
    assert table.scan().count() == 0 and table.verify().problems == []


def test_rows_of_a_long_write_are_as_old_as_its_completion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path / "t", "copy_on_write", partition_ttl_hours=1)
    now, ahead = Environment().now_ms, [0.0]
    slow = hoodoo.Table(table.handle.store, Environment(now_ms=lambda: now() + int(ahead[0] * 3_600_000)))
    start = Transaction.start

    def takes_hours(self: Transaction, inflight: bytes = b"") -> None:
        start(self, inflight)
        ahead[0] = 5.0

    monkeypatch.setattr(Transaction, "start", takes_hours)
    slow.upsert(batch([1], "x", 0))
    monkeypatch.undo()
    assert later(table, 5.5).maintenance.expire().partitions == ()
    assert later(table, 6.5).maintenance.expire().partitions == ("city=x",)


def slow_writer(table: hoodoo.Table, hours: float, monkeypatch: pytest.MonkeyPatch) -> hoodoo.Table:
    """The table as a process sees it whose next write takes so many hours."""
    now, ahead = Environment().now_ms, [0.0]
    start = Transaction.start

    def takes_hours(self: Transaction, inflight: bytes = b"") -> None:
        start(self, inflight)
        ahead[0] = hours
        monkeypatch.undo()

    monkeypatch.setattr(Transaction, "start", takes_hours)
    return hoodoo.Table(table.handle.store, Environment(now_ms=lambda: now() + int(ahead[0] * 3_600_000)))


@pytest.mark.parametrize("service", ["cluster", "compact"])
def test_rows_of_a_long_write_are_as_old_as_its_completion_after_a_service_rewrote_them_too(
    tmp_path: Path, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed or compacted they only carried the instant that was requested, and were dropped too early by as long as
    the write took.
    """
    table = make(tmp_path / "t", "merge_on_read", partition_ttl_hours=1)
    table.upsert(batch([1], "x", 0))
    table.insert(batch([2], "x", 0), bulk=True)
    slow_writer(table, 5.0, monkeypatch).upsert(batch([1], "x", 1))
    rewritten = later(table, 5.1)
    assert (
        rewritten.maintenance.cluster(sort_by="ts").units if service == "cluster" else rewritten.compact().groups
    ) == 1
    assert later(table, 5.5).maintenance.expire().partitions == ()
    assert later(table, 6.5).maintenance.expire().partitions == ("city=x",)


def test_a_row_whose_commit_began_first_and_ended_last_keeps_its_partition_when_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest commit time of the file is that of the other commit, which was over long before."""
    table = make(tmp_path / "t", "copy_on_write", partition_ttl_hours=1)
    slow, start = slow_writer(table, 5.0, monkeypatch), Transaction.start

    def overtaken(self: Transaction, inflight: bytes = b"") -> None:
        start(self, inflight)
        table.insert(batch([2], "x", 0), bulk=True)

    monkeypatch.setattr(Transaction, "start", overtaken)
    slow.insert(batch([1], "x", 1), bulk=True)
    assert later(table, 5.1).maintenance.cluster(sort_by="ts").units == 1
    assert later(table, 5.5).maintenance.expire().partitions == ()
    assert later(table, 6.5).maintenance.expire().partitions == ("city=x",)


def test_a_delete_is_no_write_neither_before_nor_after_its_log_is_merged(tmp_path: Path) -> None:
    """A merged log of deletes only says nothing of time, and its slot made the partition young again."""
    table = make(tmp_path / "t", "merge_on_read", partition_ttl_hours=24)
    table.upsert(batch([1, 2, 3], "x", 0))
    ahead = later(table, 20)
    ahead.delete(batch([1], "x", 1))
    ahead.delete(batch([2], "x", 1))
    assert find_expired_partitions(later(table, 25).handle.timeline, table.handle.history.head(), 24) == ["city=x"]
    assert compact_logs(later(table, 24).handle.context(), lambda view: behind(view, 2)).groups == 1
    assert find_expired_partitions(later(table, 25).handle.timeline, table.handle.history.head(), 24) == ["city=x"]
    later(table, 25).upsert(batch([3], "x", 2))
    assert find_expired_partitions(later(table, 25).handle.timeline, table.handle.history.head(), 24) == []


def test_a_time_to_live_is_refused_where_there_are_no_partitions_or_where_it_is_nothing(tmp_path: Path) -> None:
    with pytest.raises(hoodoo.OptionError, match="whole partitions"):
        make(tmp_path / "t", "copy_on_write", None, partition_ttl_hours=24)
    assert not (tmp_path / "t" / ".hoodie" / "hoodie.properties").exists()
    plain = make(tmp_path / "u", "copy_on_write", None)
    with pytest.raises(hoodoo.OptionError, match="whole partitions"):
        plain.set_options(partition_ttl_hours=24)
    with pytest.raises(hoodoo.OptionError, match="whole partitions"):
        plain.maintenance.expire(older_than_hours=1)
    with pytest.raises(hoodoo.OptionError, match="above 0"):
        make(tmp_path / "v", "copy_on_write", partition_ttl_hours=0)
    with pytest.raises(hoodoo.OptionError, match="partition_ttl_hours"):
        make(tmp_path / "w", "copy_on_write").maintenance.expire()
    table = make(tmp_path / "x", "copy_on_write", partition_ttl_hours=24)
    table.set_options(partition_ttl_hours=None)
    assert hoodoo.open(table.path).options.partition_ttl_hours is None
