"""What a hostile review found in how hoodoo lives beside another engine: its commits are never swept, skipped,
renumbered or resurrected.

The other engine is hoodoo itself on a copy of the store, of which only what Apache Hudi would leave comes back.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from memory_store import Died, MemoryStore
from scenario import DAY_MS, SCHEMA, Clock, opened, rows
from slots import make_slot
from worker_tables import loop_of

import hoodoo
from hoodoo.compactor.compaction import plans
from hoodoo.compactor.service_turn import LOOK_AGAIN_S
from hoodoo.errors import StoreFull
from hoodoo.format.avro.schema import create_avro_schema
from hoodoo.format.names import instant_of_ms, parse_data_file
from hoodoo.table import Table
from hoodoo.timeline import create_table, layout
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.hudi import archived_timeline, commit_metadata
from hoodoo.timeline.hudi.external_history import list_completed_commits
from hoodoo.timeline.layout import TIMELINE
from hoodoo.timeline.properties import hoodie_properties, table_options
from hoodoo.timeline.slots.slot import ROLLED_BACK


def create(store: MemoryStore, clock: Clock, kind: str = "merge_on_read", **chosen: Any) -> Table:
    settings = table_options.validate_new_options({"compact_after_logs": None, "clean_every": None} | chosen)
    create_table.create_table(
        store,
        hoodie_properties.create_properties("t", SCHEMA, ("id",), ("city",), ("ts",), kind, settings),
        Environment(now_ms=clock),
    )
    return opened(store, clock)


def elsewhere(store: MemoryStore, clock: Clock, act: Callable[[Table], Any]) -> None:
    """Another engine does `act`."""
    other = MemoryStore(store.data)
    act(opened(other, clock))
    store.data.update({key: data for key, data in other.data.items() if not key.startswith(layout.OURS)})
    for key in [key for key in store.data if not key.startswith(layout.OURS) and key not in other.data]:
        del store.data[key]


def pairs(table: Table, **how: Any) -> list[tuple[str, int]]:
    return sorted((row["id"], row["ts"]) for row in table.scan(**how).to_arrow().to_pylist())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> MemoryStore:
    return MemoryStore(at_ms=clock.ms)


def test_a_sweep_takes_up_what_another_engine_committed_instead_of_deleting_it(
    store: MemoryStore, clock: Clock
) -> None:
    table = create(store, clock)
    table.upsert(rows(("a", "p", 1)))
    elsewhere(store, clock, lambda other: other.upsert(rows(("x", "q", 1))))
    clock.leap(3)
    assert table.maintenance.sweep(1).files == 0
    assert pairs(opened(store, clock)) == [("a", 1), ("x", 1)]


def test_a_sweep_leaves_the_files_of_another_engines_pending_write(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    table.upsert(rows(("a", "p", 1)))

    def half(other: Table) -> None:
        other.handle.store.fault = lambda number, operation, key: "die" if key.startswith(layout.SLOTS) else None  # type: ignore[attr-defined]
        with pytest.raises(Died):
            other.upsert(rows(("x", "q", 1)))

    elsewhere(store, clock, half)
    files = {key for key in store.data if parse_data_file(key.rpartition("/")[2])}
    clock.leap(3)
    table.maintenance.sweep(1)
    assert {key for key in store.data if parse_data_file(key.rpartition("/")[2])} == files


def test_a_handle_that_was_open_before_takes_up_another_engines_commit_before_it_completes_a_plan(
    store: MemoryStore, clock: Clock
) -> None:
    table = create(store, clock)
    table.upsert(rows(("a", "p", 1)))
    table.upsert(rows(("a", "p", 2)))
    plan = plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    assert plan is not None
    elsewhere(store, clock, lambda other: other.upsert(rows(("x", "q", 1))))
    assert plans.run_compaction_plan(table.handle.context(), plan).groups == 1
    assert pairs(opened(store, clock)) == [("a", 2), ("x", 1)]


def test_a_commit_of_another_engine_that_took_hours_is_noticed(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    table.upsert(rows(("a", "p", 1)))

    def slow(other: Table) -> None:
        begin = other.handle.timeline.begin

        def late(*given: Any) -> Any:
            attempt = begin(*given)
            clock.ms += 2 * 3_600_000
            return attempt

        other.handle.timeline.begin = late  # type: ignore[method-assign]
        other.upsert(rows(("x", "q", 1)))

    copy, before = MemoryStore(store.data), clock.ms
    slow(opened(copy, clock))
    after = clock.ms
    clock.ms = before + 2 * 3_600_000 - 60_000  # a minute before it completes
    table.upsert(rows(("a", "p", 2)))
    store.data.update(
        {key: data for key, data in copy.data.items() if not key.startswith(layout.OURS) and key not in store.data}
    )
    clock.ms = after + 1000
    assert pairs(opened(store, clock)) == [("a", 2), ("x", 1)]
    table.upsert(rows(("a", "p", 3)))
    assert pairs(opened(store, clock)) == [("a", 3), ("x", 1)]


def test_a_cursor_means_the_same_before_and_after_another_engines_commits_are_adopted(
    store: MemoryStore, clock: Clock
) -> None:
    table = create(store, clock)
    for turn in range(3):
        table.upsert(rows(("a", "p", turn)))
        table.compact()
    cursor = str(table.cursor)
    for number in range(3):
        elsewhere(store, clock, lambda other, number=number: other.upsert(rows((f"x{number}", "q", 1))))  # type: ignore[misc]
    fresh = opened(store, clock)
    pull = fresh.incremental(since=cursor)
    assert sorted(pull.to_arrow()["id"].to_pylist()) == ["x0", "x1", "x2"]
    following, then = str(pull.cursor), pairs(fresh)
    table.upsert(rows(("n", "q", 1)))
    later = opened(store, clock).incremental(since=following)
    assert later.to_arrow()["id"].to_pylist() == ["n"]
    assert pairs(opened(store, clock), as_of=following) == then


def test_instants_that_hudi_archived_are_not_written_again_and_are_still_positions(
    store: MemoryStore, clock: Clock
) -> None:
    table = create(store, clock)
    for turn in range(3):
        table.upsert(rows(("a", "p", turn)))
    for number in range(4):
        elsewhere(store, clock, lambda other, number=number: other.upsert(rows((f"x{number}", "q", 1))))  # type: ignore[misc]
    done = list_completed_commits(store.names(TIMELINE))
    archived_timeline.append_to_archive(
        store,
        [archived_timeline.ArchivedEntry(one.time, one.completed, one.action, store.get(one.key)) for one in done[:-1]],
    )
    for key in [
        key
        for key in store.data
        if key.startswith(layout.TIMELINE)
        and not key.startswith(layout.HISTORY)
        and key[len(layout.TIMELINE) :][:17] < done[-1].time
    ]:
        del store.data[key]
    names = set(store.data)
    fresh = opened(store, clock)
    assert set(store.data) == names
    expected = [("a", 2), ("x0", 1), ("x1", 1), ("x2", 1), ("x3", 1)]
    assert pairs(fresh) == expected
    assert pairs(fresh, as_of=done[2].time) == [("a", 1)]
    fresh.upsert(rows(("z", "q", 1)))
    assert pairs(opened(store, clock)) == [*expected, ("z", 1)]


# ---- an undo: Hudi rolled a commit of ours back before it was published
def undone(store: MemoryStore, clock: Clock, table: Table, batch: pa.Table) -> None:
    store.fault = lambda number, operation, key: "die after" if key.startswith(layout.SLOTS) else None
    with pytest.raises(Died):
        table.upsert(batch)
    store.fault, store.dead = lambda number, operation, key: None, False
    instant = Table(MemoryStore(store.data), Environment(now_ms=clock)).handle.history.head().instant
    for key in list(store.data):
        parsed = parse_data_file(key.rpartition("/")[2])
        if (
            key.startswith(f"{layout.TIMELINE}{instant}")
            or not key.startswith(".hoodie/")
            and parsed
            and parsed.instant == instant
        ):
            del store.data[key]
    began, completed = instant_of_ms(clock()), instant_of_ms(clock())
    said = make_slot(
        table="",
        instant=began,
        action="rollback",
        outcome=ROLLED_BACK,
        operation="ROLLBACK",
        target=instant,
        target_action="deltacommit",
    )
    store.data[f"{layout.TIMELINE}{began}_{completed}.rollback"] = commit_metadata.rollback_metadata(said, {})


def test_what_a_savepoint_and_a_pin_hold_outlives_an_undo_and_the_cleans_after_it(
    store: MemoryStore, clock: Clock
) -> None:
    table = create(store, clock)
    table.upsert(rows(("a", "p", 1), ("b", "p", 1)))
    table.savepoints.create("kept")
    pin = table.pin()
    undone(store, clock, opened(store, clock), rows(("a", "p", 5)))
    table = opened(store, clock)
    assert pairs(table) == [("a", 1), ("b", 1)]
    table.upsert(rows(("a", "p", 7)))
    table.compact()
    table.upsert(rows(("b", "p", 8)))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert (
        pairs(table, as_of="kept")
        == sorted((row["id"], row["ts"]) for row in pin.scan().to_arrow().to_pylist())
        == [("a", 1), ("b", 1)]
    )
    assert table.verify().problems == []


def test_a_plan_that_was_open_through_an_undo_compacts_exactly_what_it_planned(
    store: MemoryStore, clock: Clock
) -> None:
    table = create(store, clock)
    table.upsert(rows(("a", "p", 1), ("b", "p", 1)))
    table.upsert(rows(("a", "p", 2)))
    plan = plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    assert plan is not None
    undone(store, clock, opened(store, clock), rows(("a", "p", 5)))
    table = opened(store, clock)
    assert plans.run_compaction_plan(table.handle.context(), plan).groups == 1
    assert pairs(table) == pairs(table, read_optimized=True) == [("a", 2), ("b", 1)]
    assert not any(group.logs for group in table.handle.history.head().groups())


# ---- failures that are none, and answers that are
def test_a_commit_that_stands_is_never_reported_as_refused(store: MemoryStore, clock: Clock) -> None:
    """The first request was carried out and not answered; the second was refused, as with credentials that ran out."""
    table, put, asked = create(store, clock), store.put_if_absent, []

    def refusing(key: str, data: Any, durable: bool = True) -> None:
        if not key.startswith(layout.SLOTS):
            return put(key, data, durable)
        asked.append(key)
        if len(asked) > 1:
            raise StoreFull("access denied", key=key)
        put(key, data, durable)
        raise hoodoo.StoreUnavailable("no answer", key=key)

    def get(key: str) -> bytes:
        if len(asked) == 1 and key.startswith(layout.SLOTS) and key == asked[0]:
            raise hoodoo.StoreUnavailable("no answer", key=key)
        return MemoryStore.get(store, key)

    store.put_if_absent, store.get = refusing, get  # type: ignore[assignment,method-assign]
    with pytest.raises(hoodoo.CommitUnknown):
        table.upsert(rows(("a", "p", 1)))
    store.put_if_absent, store.get = put, lambda key: MemoryStore.get(store, key)  # type: ignore[method-assign]
    assert pairs(opened(store, clock)) == [("a", 1)]


def test_who_may_only_read_reads_a_table_whose_writer_died_before_publication(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    table.upsert(rows(("a", "p", 1)))
    store.fault = lambda number, operation, key: "die after" if key.startswith(layout.SLOTS) else None
    with pytest.raises(Died):
        table.upsert(rows(("a", "p", 2)))
    reading = MemoryStore(store.data)

    def refuse(key: str, *_: Any) -> None:
        raise StoreFull("no permission to write", key=key)

    reading.put_if_absent = reading.put = reading.delete = refuse  # type: ignore[assignment,method-assign]
    assert pairs(opened(reading, clock)) == [("a", 2)]


def test_a_savepoint_and_an_archive_that_race_leave_a_table_that_opens(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock, retain_hours=0, retain_commits=1)
    for turn in range(4):
        table.upsert(rows(("a", "p", turn)))
    table.savepoints.create("early")
    table.savepoints.delete("early")
    clock.ms += 40 * DAY_MS
    seq, other = table.cursor.seq, opened(store, clock)
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    put, raced = store.put_if_absent, []

    def racing(key: str, data: Any, durable: bool = True) -> None:
        if key.startswith(layout.SLOTS) and not raced:
            raced.append(True)
            other.maintenance.archive(older_than_hours=0, keep_instants=1)
        put(key, data, durable)

    store.put_if_absent = racing  # type: ignore[method-assign]
    try:
        table.savepoints.create("kept", as_of=hoodoo.Cursor(table.cursor.table, seq))
        table.savepoints.delete("kept")
    except hoodoo.SnapshotExpired:
        pass  # the clean of the archive was first
    assert raced
    fresh = opened(store, clock)
    assert pairs(fresh) == [("a", 3)]
    fresh.upsert(rows(("a", "p", 9)))
    assert fresh.verify().problems == []


# ---- found by reading
def test_an_instant_that_somebody_adopted_meanwhile_is_not_adopted_again(store: MemoryStore, clock: Clock) -> None:
    """Two processes found one commit at once. The second took it for news, and its files, placed twice, counted as
    superseded by themselves: a clean deleted live rows.
    """
    table = create(store, clock)
    table.upsert(rows(("a", "p", 1)))
    elsewhere(store, clock, lambda other: other.upsert(rows(("x", "q", 1))))
    late = opened(store, clock)
    [found] = late.handle.timeline.look().external
    table.upsert(rows(("a", "p", 2)))  # adopts it
    head = table.cursor
    late.handle._adopt(found)
    assert table.cursor == head
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert pairs(opened(store, clock)) == [("a", 2), ("x", 1)]
    assert opened(store, clock).verify().problems == []


def test_commits_that_hudi_archived_before_an_open_handle_saw_them_are_adopted_first(
    store: MemoryStore, clock: Clock
) -> None:
    """A handle that only wrote adopted what was active in Hudi's timeline, and passed over what had moved on."""
    table = create(store, clock)
    table.upsert(rows(("a", "p", 1)))
    elsewhere(store, clock, lambda other: other.upsert(rows(("old", "q", 1))))
    elsewhere(store, clock, lambda other: other.upsert(rows(("new", "r", 1))))
    done = [
        one
        for one in list_completed_commits(store.names(TIMELINE))
        if one.completed > str(table.handle.history.head().instant)
    ]
    oldest = done[-2]
    archived_timeline.append_to_archive(
        store, [archived_timeline.ArchivedEntry(oldest.time, oldest.completed, oldest.action, store.get(oldest.key))]
    )
    for key in [key for key in store.data if key.startswith(TIMELINE + oldest.time)]:
        del store.data[key]
    table.upsert(rows(("a", "p", 2)))
    assert pairs(table) == [("a", 2), ("new", 1), ("old", 1)]


def test_a_handle_that_only_writes_goes_on_after_another_engine_added_a_column(
    store: MemoryStore, clock: Clock
) -> None:
    """It prepared every batch for the columns that it had seen first, and refused all of them."""
    table = create(store, clock)
    table.upsert(rows(("a", "p", 1)))

    def with_column(other: Table) -> None:
        """As Spark does: the commit says what the columns are, the properties stay as they were."""
        before = hoodie_properties.read_properties(other.handle.store)
        wider = create_avro_schema("t", SCHEMA.append(pa.field("more", pa.int64())), False)
        changed = before | {"hoodie.table.create.schema": json.dumps(wider)}
        other.handle.store.put(layout.PROPERTIES, hoodie_properties.render(changed, clock()))
        again = opened(other.handle.store, clock)  # type: ignore[arg-type]
        again.upsert(rows(("x", "q", 1)).append_column("more", pa.array([7])))
        other.handle.store.put(layout.PROPERTIES, hoodie_properties.render(before, clock()))

    elsewhere(store, clock, with_column)
    batch = rows(("b", "p", 1)).append_column("more", pa.array([8]))
    table.upsert(batch)
    assert opened(store, clock).schema.names == [*SCHEMA.names, "more"]
    found = {row["id"]: row["more"] for row in table.scan().to_arrow().to_pylist()}
    assert found == {"a": None, "b": 8, "x": 7}


def test_a_worker_serves_what_another_engine_committed(store: MemoryStore, clock: Clock) -> None:
    """Its idle look sees our slots only; a look at the whole table follows every 15 s."""
    table = create(store, clock)
    table.upsert(rows(("a", "p", 1)))
    with loop_of(table, "compact", logs_min=1) as loop:
        while loop.run_due_services():
            continue
        elsewhere(store, clock, lambda other: other.upsert(rows(("a", "p", 2))))
        assert not loop.run_due_services(), "nothing of ours changed"
        loop._healed = (loop._healed[0], loop._healed[1] - LOOK_AGAIN_S)
        assert loop.run_due_services() and not loop.has_failing_work
        assert loop.work["compact"].groups == 1
    assert pairs(opened(store, clock)) == [("a", 2)]
    assert not any(group.logs for group in opened(store, clock).handle.history.head().groups())


BEHIND: dict[str, Callable[[Table], Any]] = {
    "savepoint": lambda table: [table.savepoints.create("kept"), pairs(table, as_of="kept")],
    "pin": lambda table: pairs(table.pin()),
    "restore": lambda table: [table.restore(table.cursor).inserted, pairs(table)],
    "consumer": lambda table: table.consumer("c", table.cursor).position,
    "follow": lambda table: [rows.to_arrow().num_rows for rows in table.follow("earliest", timeout_seconds=0)],
}


@pytest.mark.parametrize("name", BEHIND)
def test_a_handle_answers_with_what_another_engine_did_since_it_looked(
    store: MemoryStore, clock: Clock, name: str
) -> None:
    """A savepoint said that a slot is missing and is to be restored from a backup; a consumer could not begin there."""
    table = create(store, clock)
    table.upsert(rows(("a", "p", 1)))
    elsewhere(store, clock, lambda other: other.upsert(rows(("x", "q", 1))))
    copy = MemoryStore(dict(store.data))
    assert BEHIND[name](table) == BEHIND[name](opened(copy, clock))


def test_a_consumer_gets_further_over_what_another_engine_did_since_it_was_made(
    store: MemoryStore, clock: Clock
) -> None:
    """The cursor of a read that had it was refused as one after the newest slot."""
    table = create(store, clock)
    table.upsert(rows(("a", "p", 1)))
    consumer = table.consumer("c", table.cursor)
    elsewhere(store, clock, lambda other: other.upsert(rows(("x", "q", 1))))
    changed = table.incremental(consumer.position)
    assert changed.to_arrow()["id"].to_pylist() == ["x"]
    consumer.commit(changed.cursor)
    assert consumer.position == changed.cursor
    table.upsert(rows(("b", "p", 1)))
    assert table.incremental(consumer.position).to_arrow()["id"].to_pylist() == ["b"]


def test_who_follows_a_table_gets_what_another_engine_does_and_what_comes_after_it(
    store: MemoryStore, clock: Clock
) -> None:
    """It went on by the slots that were there when it began, and so saw another engine's commits only once a write of
    ours had adopted them.
    """
    table = create(store, clock)
    table.upsert(rows(("a", "p", 1)))
    following = table.follow("earliest", mode="incremental", poll_seconds=0, timeout_seconds=0)
    assert next(following).to_arrow()["id"].to_pylist() == ["a"]
    elsewhere(store, clock, lambda other: other.upsert(rows(("x", "q", 1))))
    assert next(following).to_arrow()["id"].to_pylist() == ["x"]
    opened(store, clock).upsert(rows(("b", "p", 1)))
    assert next(following).to_arrow()["id"].to_pylist() == ["b"]
    assert list(following) == []


def test_verify_and_services_go_by_whether_another_engines_commit_is_adopted_now(
    store: MemoryStore, clock: Clock
) -> None:
    """verify() of a handle that had not seen it called the table shortened; one that had seen it refused for ever."""
    table = create(store, clock)
    table.upsert(rows(("a", "p", 1)))
    elsewhere(store, clock, lambda other: other.upsert(rows(("x", "q", 1))))
    for ask in (table.verify, table.maintenance.services):
        with pytest.raises(hoodoo.UnsupportedTable, match="adopts those commits"):
            ask()
    opened(store, clock).upsert(rows(("b", "p", 1)))
    assert table.verify().problems == []
    assert table.maintenance.services().figures


def test_a_purge_deletes_hudis_metadata_table_whose_indexes_hold_keys(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    table.upsert(rows(("a", "p", 1), ("b", "p", 1)))
    named = hoodie_properties.read_properties(store) | {"hoodie.table.metadata.partitions": "files,record_index"}
    store.put(layout.PROPERTIES, hoodie_properties.render(named, clock()))
    store.put(".hoodie/metadata/record_index/r.hfile", b"a")
    with pytest.raises(hoodoo.ColumnError):
        table.maintenance.purge(pa.table({"no": [1]}))
    assert store.exists(".hoodie/metadata/record_index/r.hfile")
    assert table.maintenance.purge(rows(("a", "p", 1))).rows_deleted == 1
    assert not any(key.startswith(layout.METADATA_TABLE) for key in store.data)
    assert "hoodie.table.metadata.partitions" not in hoodie_properties.read_properties(store)
