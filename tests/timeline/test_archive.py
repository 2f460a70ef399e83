"""Long histories: slots and Hudi's instants are archived, and nothing that anybody may need goes with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi_rows import hudi_rows

import hoodoo
from hoodoo.errors import CommitUnknown, StoreUnavailable
from hoodoo.storage.local import LocalStore
from hoodoo.table import Table
from hoodoo.timeline import layout
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.hudi import archived_timeline
from hoodoo.timeline.hudi.external_history import ExternalHistory
from hoodoo.timeline.hudi.publish import instants
from hoodoo.timeline.instant import State

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64())])
DAY_MS = 86_400_000


class Clock:
    def __init__(self) -> None:
        self.ms = 1_790_000_000_000

    def __call__(self) -> int:
        self.ms += 1_000
        return self.ms


def rows(*triples: tuple[int, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, triple, strict=True)) for triple in triples], schema=SCHEMA)


def reopen(path: Path, clock: Clock) -> Table:
    return Table(LocalStore(str(path)), Environment(now_ms=clock))


def make(path: Path, clock: Clock, kind: str = "merge_on_read", commits: int = 12, **options: Any) -> Table:
    """A table of some commits, more than a month old, cleaned down to the newest one."""
    settings = {"compact_after_logs": None, "clean_every": None, "checkpoint_every": 5, "retain_commits": 1} | options
    if not path.exists():
        hoodoo.create(path, SCHEMA, key="id", partition_by="city", order_by="ts", type=kind, **settings)
    clock.ms = 1_800_000_000_000  # after the real clock, which dated the first slot
    table = reopen(path, clock)
    for number in range(commits):
        table.upsert(rows((number % 4, "p", number), (100 + number, "q", number)))
    table.compact()
    table.insert_overwrite(rows((7, "q", 99)))
    clock.ms += 40 * DAY_MS
    table.upsert(rows((0, "p", 1000)))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    return table


def contents(scan: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in scan.to_arrow().to_pylist())


def slots(table: Table) -> list[int]:
    return [int(key.rpartition("/")[2]) for key, _ in table.handle.store.list(layout.SLOTS)]


def active(table: Table) -> list[str]:
    return [one.time for one in instants(table.handle.store) if one.state is State.COMPLETED]


@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_archived_tables_read_write_and_verify_as_before(tmp_path: Path, kind: str) -> None:
    clock = Clock()
    table = make(tmp_path / "t", clock, kind)
    before, head = contents(table.scan()), table.cursor.seq
    result = table.maintenance.archive(keep_instants=2)
    assert result.slots == table.handle.history.head().min_readable - 1 and result.instants == head - 3 + (
        kind == "copy_on_write"
    )
    assert slots(table) == list(range(result.slots + 1, head + 1))
    for fresh in (table, reopen(tmp_path / "t", clock)):
        assert contents(fresh.scan()) == before
        assert fresh.verify().problems == []
    assert sorted((r["id"], r["city"], r["ts"]) for r in hudi_rows(tmp_path / "t")) == before
    other = reopen(tmp_path / "t", clock)
    other.upsert(rows((0, "p", 2000), (55, "r", 1)))
    assert contents(other.scan()) == sorted([row for row in before if row[0] != 0] + [(0, "p", 2000), (55, "r", 1)])
    assert table.cursor == other.cursor
    assert table.verify().problems == []


class Overtaken(LocalStore):
    """Runs `meanwhile` once, as soon as it has told of `at` slots that they are there."""

    at = 0
    meanwhile: Callable[[], object]

    def version(self, key: str) -> str:
        found = super().version(key)
        if found and self.at and key.startswith(layout.SLOTS):
            self.at -= 1
            if not self.at:
                self.meanwhile()
        return found


@pytest.mark.parametrize("at", [1, 2, 3, 4])
@pytest.mark.parametrize("remembered", [False, True])
def test_a_slot_that_is_archived_as_the_head_is_looked_for_is_no_end_of_the_sequence(
    tmp_path: Path, at: int, remembered: bool
) -> None:
    """Whoever looked for the newest slot while slots were archived took the last one that was found before for it: a
    reader was given the rows of a month ago, and an export went back to them. The simulator found it.
    """
    clock, store = Clock(), Overtaken(str(tmp_path / "t"))
    hoodoo.create(
        tmp_path / "t",
        SCHEMA,
        key="id",
        partition_by="city",
        order_by="ts",
        compact_after_logs=None,
        clean_every=None,
        checkpoint_every=1000,
    )
    behind = Table(store, Environment(now_ms=clock))
    if remembered:
        assert behind.handle.history.head().seq == 1
    table = make(tmp_path / "t", clock)
    store.at, store.meanwhile = at, lambda: table.maintenance.archive(keep_instants=2)
    assert behind.handle.history.head().seq == table.handle.history.head().seq
    assert not store.at and slots(table)[0] > 4


class Outrun(LocalStore):
    """Runs the next of `meanwhile` whenever it is asked for a newer slot than before, before it answers."""

    meanwhile: list[Callable[[], object]]
    asked = ""

    def version(self, key: str) -> str:
        if key.startswith(layout.SLOTS) and key > self.asked and self.meanwhile:
            self.asked = key
            self.meanwhile.pop(0)()
        return super().version(key)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_who_is_stopped_while_the_head_is_looked_for_finds_the_newest_slot_however_often_others_archive(
    tmp_path: Path, times: int
) -> None:
    """A process may be stopped for months between two requests. The second time that slots were archived under its look
    it went on with what stood for them then.
    """
    clock, store = Clock(), Outrun(str(tmp_path / "t"))
    table = make(tmp_path / "t", clock, commits=3)

    def months() -> None:
        for number in range(4):
            table.upsert(rows((number, "p", table.cursor.seq)))
        clock.ms += 40 * DAY_MS
        table.upsert(rows((0, "p", table.cursor.seq)))
        table.maintenance.clean(retain_hours=0, retain_commits=1)
        assert table.maintenance.archive(keep_instants=2).slots > 0

    store.meanwhile = [months] * times
    stopped = Table(store, Environment(now_ms=clock))
    assert stopped.handle.history.head().seq == table.handle.history.head().seq
    assert not store.meanwhile and contents(stopped.scan()) == contents(table.scan())


def test_nothing_is_archived_twice_and_the_history_is_merged_as_it_grows(tmp_path: Path) -> None:
    clock = Clock()
    table = make(tmp_path / "t", clock, commits=3, retain_hours=0)
    everything = []
    for number in range(14):
        table.maintenance.archive(keep_instants=1)
        everything = [one.time for one in archived_timeline.read(table.handle.store)]
        assert everything == sorted(set(everything))
        for step in range(2):
            table.upsert(rows((number, "p", 5000 + 2 * number + step)))
        clock.ms += 40 * DAY_MS
        table.upsert(rows((number, "p", 9000 + number)))
        table.compact()
        table.maintenance.clean(retain_hours=0, retain_commits=1)
    levels = {key.rpartition("_")[2] for key, _ in table.handle.store.list(layout.HISTORY) if key.endswith(".parquet")}
    assert levels == {"0.parquet", "1.parquet"}
    assert len([key for key, _ in table.handle.store.list(layout.HISTORY) if "manifest_" in key]) == 3
    assert not set(everything) & set(active(table))
    assert len(everything) > 40


def test_the_archived_timeline_says_the_same_as_the_active_one_did(tmp_path: Path) -> None:
    clock = Clock()
    table = make(tmp_path / "t", clock)
    before = {
        one.time: (one.completed, one.action, table.handle.store.get(one.key))
        for one in instants(table.handle.store)
        if one.state is State.COMPLETED
    }
    rows_before = ExternalHistory(table.handle.store).head()
    assert table.maintenance.archive(keep_instants=2).instants > 0
    archived = {
        one.time: (one.completed, one.action, one.metadata) for one in archived_timeline.read(table.handle.store)
    }
    assert archived == {time: said for time, said in before.items() if time in archived}
    assert set(archived) | set(active(table)) == set(before)
    assert {one.action for one in archived_timeline.read(table.handle.store) if one.plan is not None} == {
        "commit",
        "replacecommit",
    }  # a compaction's, an overwrite's
    after = ExternalHistory(table.handle.store).head()
    assert {p: sorted(groups) for p, groups in after.partitions.items()} == {
        p: sorted(groups) for p, groups in rows_before.partitions.items()
    }


@pytest.mark.parametrize("holder", ["savepoint", "pin", "plan", "pending", "uncleaned"])
def test_hudis_timeline_is_not_archived_past_what_would_become_rows_again(tmp_path: Path, holder: str) -> None:
    clock = Clock()
    table = make(tmp_path / "t", clock, retain_hours=0)
    table.upsert(rows((1, "p", 3000)))
    held, pending = table.cursor.seq, ""
    if holder == "savepoint":
        table.savepoints.create("kept")
    elif holder == "pin":
        table.pin()
    elif holder == "plan":
        from hoodoo.compactor.compaction import plans

        assert plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    elif holder == "pending":
        attempt = table.handle.timeline.begin("deltacommit")
        attempt.start()
        pending = attempt.instant
    if holder != "plan":
        table.insert_overwrite(rows((1, "p", 3001)))
    clock.ms += 1 if holder == "pending" else 40 * DAY_MS
    table.upsert(rows((2, "p", 4000)))
    if holder != "uncleaned":
        table.maintenance.clean(retain_hours=0, retain_commits=1)
    if holder == "pin":
        import os

        for key, _ in table.handle.store.list(layout.LEASES):
            os.utime(tmp_path / "t" / key)
    before = contents(table.scan())
    table.maintenance.archive(older_than_hours=0, keep_instants=1)
    archived = [one.time for one in archived_timeline.read(table.handle.store)]
    limit = (
        ""
        if holder == "pin"
        else pending or table.handle.history.slot(held + (holder in ("plan", "uncleaned"))).instant
    )
    assert max(archived, default="") < limit or not archived
    assert archived or holder == "pin"
    assert contents(table.scan()) == before
    assert sorted((r["id"], r["city"], r["ts"]) for r in hudi_rows(tmp_path / "t")) == before


def test_files_of_a_writer_that_died_long_ago_never_become_rows(tmp_path: Path) -> None:
    clock = Clock()
    table = make(tmp_path / "t", clock)
    dying = reopen(tmp_path / "t", clock)
    dying.handle.timeline.begin = _dies_before_its_slot(dying)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        dying.upsert(rows((777, "p", 1)))
    for _ in range(3):
        table.upsert(rows((0, "p", clock())))
    clock.ms += 40 * DAY_MS
    table.upsert(rows((0, "p", clock())))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert table.maintenance.archive(keep_instants=1).instants > 0
    assert 777 not in [row["id"] for row in hudi_rows(tmp_path / "t")]
    assert 777 not in table.scan().to_arrow()["id"].to_pylist()


def _dies_before_its_slot(table: Table) -> Any:
    begin = table.handle.timeline.begin

    def wrapped(action: str, *given: Any) -> Any:
        attempt = begin(action, *given)

        def die(*_: Any) -> Any:
            attempt._sealed = True  # as after a kill: nothing is tidied up
            raise KeyboardInterrupt

        attempt.complete = die  # type: ignore[method-assign]
        return attempt

    return wrapped


def test_a_writer_that_slept_through_the_archive_starts_again_under_a_new_instant(tmp_path: Path) -> None:
    clock = Clock()
    table = make(tmp_path / "t", clock)
    sleeper = reopen(tmp_path / "t", clock)
    begin, begun = sleeper.handle.timeline.begin, []

    def slow(action: str, *given: Any) -> Any:
        attempt = begin(action, *given)
        begun.append(attempt.instant)
        if len(begun) == 1:
            for _ in range(3):
                table.upsert(rows((0, "p", clock())))
            clock.ms += 40 * DAY_MS
            table.upsert(rows((0, "p", clock())))
            table.maintenance.clean(retain_hours=0, retain_commits=1)
            assert table.maintenance.archive().slots > 0
        return attempt

    sleeper.handle.timeline.begin = slow  # type: ignore[method-assign]
    result = sleeper.upsert(rows((888, "p", 1)))
    assert result.retries >= 1 and result.instant != begun[0]
    assert 888 in table.scan().to_arrow()["id"].to_pylist()
    assert table.verify().problems == []


def test_a_slot_that_lands_where_one_was_archived_does_not_count(tmp_path: Path) -> None:
    """The store kept a slot's request for a month, then carried it out in the place of the deleted
    slot (hazard H12).
    """
    clock = Clock()
    table = make(tmp_path / "t", clock)
    late = reopen(tmp_path / "t", clock)
    stale = late.handle.history.head()
    attempt = late.handle.timeline.begin("deltacommit")
    attempt.start()
    for _ in range(3):
        table.upsert(rows((0, "p", clock())))
    clock.ms += 40 * DAY_MS
    table.upsert(rows((0, "p", clock())))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    table.maintenance.archive(older_than_hours=0)
    assert table.handle.history.oldest_slot() > stale.seq + 1
    from hoodoo.timeline.commits.draft import SlotDraft

    slot = attempt._slot(stale, SlotDraft("UPSERT"))
    assert attempt._write_slot(slot, 0) and attempt._was_archived(slot, 0)
    assert not table.handle.store.exists(layout.slot_key(slot.seq))
    attempt._tried = slot.seq
    with pytest.raises(CommitUnknown) as unknown:
        attempt.complete(SlotDraft("UPSERT"))
    assert unknown.value.resolve() is False
    assert table.verify().problems == []


def test_the_files_of_a_commit_that_was_archived_before_its_writer_heard_of_it_stay(tmp_path: Path) -> None:
    """The reply to the slot was lost; before the writer looked, the slot was archived; its second request landed in the
    deleted place.
    """
    clock = Clock()
    make(tmp_path / "t", clock)

    class Late(LocalStore):
        lost = ""

        def put_if_absent(self, key: str, data: Any, durable: bool = True) -> None:
            super().put_if_absent(key, data, durable)
            if key.startswith(layout.SLOTS) and not self.lost:
                self.lost = key
                raise StoreUnavailable("the reply was lost", key=key)

        def get(self, key: str) -> bytes:
            if key == self.lost:
                self.lost = "done"
                others = reopen(tmp_path / "t", clock)
                for turn in range(2):
                    clock.ms += 40 * DAY_MS
                    others.upsert(rows((1, "p", 5000 + turn), (50, "p", turn)))
                    others.compact()
                others.maintenance.clean(retain_hours=0, retain_commits=1)
                assert others.maintenance.archive().slots > 0
            return super().get(key)

    table = Table(Late(str(tmp_path / "t")), Environment(now_ms=clock))
    with pytest.raises(CommitUnknown):
        table.upsert(rows((500, "zz", 1)))
    again = reopen(tmp_path / "t", clock)
    assert again.verify().problems == []
    assert (500, "zz", 1) in contents(again.scan())


def test_positions_in_archived_history_are_refused_and_younger_ones_found(tmp_path: Path) -> None:
    clock = Clock()
    table = make(tmp_path / "t", clock)
    old, cursor = table.handle.history.slot(3).instant, hoodoo.Cursor(table.cursor.table, 3)
    middle = table.upsert(rows((3, "p", clock()))).instant
    table.upsert(rows((2, "p", clock())))
    clock.ms += 10 * DAY_MS  # more than Hudi's timeline keeps, less than the slots are kept
    newest = table.upsert(rows((1, "p", clock()))).instant
    assert table.maintenance.archive(keep_instants=1).instants > 0
    assert middle not in active(table)
    fresh = reopen(tmp_path / "t", clock)
    assert sorted(fresh.incremental(since=middle).to_arrow()["id"].to_pylist()) == [1, 2]
    assert fresh.scan(as_of=newest).count() == fresh.scan().count()
    for position in (old, cursor):
        with pytest.raises(hoodoo.SnapshotExpired):
            fresh.scan(as_of=position)
        with pytest.raises(hoodoo.SnapshotExpired):
            fresh.incremental(since=position)
    assert fresh.inspect.timeline()[0].slot == fresh.handle.history.oldest_slot()


def test_versions_of_applications_outlive_the_archive(tmp_path: Path) -> None:
    clock = Clock()
    table = make(tmp_path / "t", clock)
    table.upsert(rows((0, "p", clock())), transaction=("app", 5))
    table.upsert(rows((0, "p", clock())))
    clock.ms += 40 * DAY_MS
    table.upsert(rows((0, "p", clock())))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    table.maintenance.archive()
    assert reopen(tmp_path / "t", clock).upsert(rows((0, "p", 1)), transaction=("app", 5)).skipped


def test_a_crash_at_any_step_of_archiving_is_finished_by_the_next(tmp_path: Path) -> None:
    import shutil

    from faulty_store import Died, FaultyStore

    clock = Clock()
    table = make(tmp_path / "start", clock, commits=4)
    before = contents(table.scan())
    at, done = 0, False
    while not done:
        at += 1
        path = tmp_path / str(at)
        shutil.copytree(tmp_path / "start", path)
        store = FaultyStore(str(path))
        dying = Table(store, Environment(now_ms=clock))
        store.count, store.fault = 0, lambda n, *_, at=at: "die after" if n == at else None
        try:
            dying.maintenance.archive(keep_instants=1)
            done = True
        except Died:
            pass
        healed = reopen(path, clock)
        healed.maintenance.archive(keep_instants=1)
        healed.maintenance.archive(keep_instants=1)
        assert contents(healed.scan()) == before
        assert sorted((r["id"], r["city"], r["ts"]) for r in hudi_rows(path)) == before
        times = [one.time for one in archived_timeline.read(healed.handle.store)]
        assert times == sorted(set(times))
        assert not set(times) & set(active(healed))
        assert healed.verify().problems == []
        shutil.rmtree(path)
    assert at > 20
