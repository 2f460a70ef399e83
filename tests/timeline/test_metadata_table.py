"""Hudi's metadata table lists exactly the files that its readers need, after every commit and after every crash; or it
is not in use.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import hfiles
import metadata_tables as metadata
import pytest
from memory_store import Died, MemoryStore
from metadata_tables import FILES, ROOT, expected, in_use, listed
from scenario import DAY_MS, SCHEMA, Clock, opened, rows
from tiers import sized

import hoodoo
from hoodoo.format.names import instant_of_ms
from hoodoo.table import Table
from hoodoo.timeline import create_table, layout
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.hudi import metadata_table
from hoodoo.timeline.hudi.external_history import ExternalHistory
from hoodoo.timeline.instant import Instant, State
from hoodoo.timeline.properties import hoodie_properties, table_options
from hoodoo.timeline.slots.slot import Slot

KINDS = ("merge_on_read", "copy_on_write")
SCRATCH = (layout.CLAIMS, layout.MARKERS)


def create(store: MemoryStore, clock: Clock, kind: str = "merge_on_read", **more: Any) -> Table:
    chosen = table_options.validate_new_options({"compact_after_logs": None, "clean_every": None})
    partition_by = more.pop("partition_by", ("city",))
    create_table.create_table(
        store,
        hoodie_properties.create_properties("t", SCHEMA, ("id",), partition_by, ("ts",), kind, chosen, **more),
        Environment(now_ms=clock),
    )
    return opened(store, clock)


def made(kind: str = "merge_on_read", **more: Any) -> tuple[MemoryStore, Clock, Table]:
    """A table with some files, some of which are replaced, and the metadata table that Hudi made of it."""
    store, clock = MemoryStore(), Clock()
    table = create(store, clock, kind, **more)
    table.upsert(rows(("a", "p", 1), ("b", "p", 1), ("c", "q", 1)))
    table.upsert(rows(("b", "p", 5)))
    table.compact()
    table.savepoints.create("kept")
    table.upsert(rows(("a", "p", 6)))
    metadata.make(store, clock())
    return store, clock, table


def check(store: MemoryStore, table: Table) -> None:
    assert listed(store) == expected(store, table.handle.history.head())


# ---- a model: what is listed is what is live, or replaced and not cleaned
def _overwrite(table: Table, key: str, ts: int) -> None:
    table.insert_overwrite(rows((key, "p", ts)))


def _restore(table: Table, key: str, ts: int) -> None:
    then = table.cursor
    table.upsert(rows((key, "q", ts), ("more" + key, "r", ts)))
    table.restore(then)


STEPS: dict[str, Callable[[Table, str, int], Any]] = {
    "upsert": lambda table, key, ts: table.upsert(rows((key, "p", ts), (key + key, "q", ts))),
    "again": lambda table, key, ts: table.upsert(rows((key, "p", ts))),
    "insert": lambda table, key, ts: table.insert(rows((f"{key}{ts}", "r", ts))),
    "delete": lambda table, key, ts: table.delete(rows((key, "p", 0))),
    "update": lambda table, key, ts: table.update({"v": ts}, where="city = 'q'"),
    "overwrite": _overwrite,
    "delete where": lambda table, key, ts: table.delete(where=f"id = '{key}'"),
    "compact": lambda table, key, ts: table.compact(),
    "cluster": lambda table, key, ts: table.maintenance.cluster(sort_by="v"),
    "clean": lambda table, key, ts: table.maintenance.clean(retain_hours=0, retain_commits=1),
    "restore": _restore,
    "alter": lambda table, key, ts: table.alter([hoodoo.AddColumn(f"n{ts}", "int", default=None)], rewrite=True),
}
TABLES: dict[str, dict[str, Any]] = {
    "merge_on_read": {},
    "copy_on_write": {},
    "with a change log": {"kind": "copy_on_write", "change_log": "before_after"},
}


@pytest.mark.both
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("seed", range(sized(2, 40)))
def test_the_list_of_files_is_right_after_each_step_of_any_history(name: str, seed: int) -> None:
    draw, (store, clock, table) = (
        random.Random(f"{name} {seed}"),
        made(**({"kind": name} | TABLES[name] if name in KINDS else TABLES[name])),
    )
    steps = dict(STEPS) if draw.random() < 0.5 else {step: act for step, act in STEPS.items() if step != "alter"}
    for number in range(20):
        if draw.random() < 0.2:
            metadata.make(store, clock())  # Hudi's turn: statistics are back
        step = draw.choice(sorted(steps))
        before = store.data.copy()
        steps[step](table, draw.choice("abcd"), 10 + number)
        check(store, table)
        touched = {key for key in store.data.keys() - before.keys() if key.startswith(layout.TIMELINE)}
        if any("_" in key for key in touched) and metadata.there(store) != metadata.there(MemoryStore(before)):
            assert in_use(store) == "files", step
    assert table.verify().problems == []


def test_a_table_without_partitions_is_listed_under_a_point() -> None:
    store, clock, table = made(partition_by=())
    table.upsert(rows(("a", "p", 9), ("new", "p", 9)))
    check(store, table)
    assert "/" not in "".join(listed(store) or "")


def test_files_that_were_replaced_stay_listed_until_they_are_cleaned() -> None:
    store, clock, table = made("copy_on_write")
    old = {path for path in metadata.there(store) if path.startswith("city=p/")}
    table.delete_partitions(["p"])
    assert old <= (listed(store) or {}).keys()
    table.savepoints.delete("kept")
    table.upsert(rows(("z", "q", 9)))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert not old & (listed(store) or {}).keys()
    check(store, table)


def test_a_commit_of_many_files_has_an_hfile_of_several_blocks() -> None:
    store, clock, table = made()
    table.upsert(rows(*((f"k{number}", f"part{number:04}", 1) for number in range(700))))
    check(store, table)
    newest = max(name for name in store.names(FILES) if ".log." in name)
    [(_, _, found)] = hfiles.log_records(store.get(FILES + newest))
    assert [magic for magic, _ in found.blocks].count(b"DATABLK*") == 2


# ---- crashes and helpers
ACTIONS: dict[str, Callable[[Table], Any]] = {
    "upsert": lambda table: table.upsert(rows(("a", "p", 12), ("d", "p", 12), ("e", "r", 12))),
    "overwrite": lambda table: table.insert_overwrite(rows(("y", "p", 9))),
    "compact": lambda table: table.compact(),
    "cluster": lambda table: table.maintenance.cluster(sort_by="v"),
    "clean": lambda table: table.maintenance.clean(retain_hours=0, retain_commits=1),
    "restore": lambda table: table.restore("kept"),
}


def readable(store: MemoryStore, before: set[str]) -> None:
    """What a reader of Hudi finds at this moment: each file that published instants need is listed, and statistics are
    in use only where no instant was published since they were made.
    """
    need = {entry.file.path for group in ExternalHistory(store).head().groups() for entry in group.files()}
    found = listed(store)
    assert found is None or need <= found.keys()
    if "column_stats" in in_use(store):
        assert published(store) == before


def published(store: MemoryStore) -> set[str]:
    """Instants that brought or took files."""
    names = (name for name in store.names(layout.TIMELINE) if name[17:18] == "_" and not name.endswith(".savepoint"))
    return set(names)


def copied(store: MemoryStore) -> MemoryStore:
    return MemoryStore(store.data)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_crash_at_any_write_from_the_slot_on_leaves_a_list_that_is_right_and_the_next_opener_heals(
    action: str,
) -> None:
    start, clock, _ = made()
    whole, writes = copied(start), list[str]()
    whole.fault = lambda count, operation, key: writes.append(key)
    ACTIONS[action](opened(whole, clock))
    slot = next(number for number, key in enumerate(writes) if key.startswith(layout.SLOTS))
    before, number, done = published(start), slot, False
    while not done:
        number += 1
        for how in ("die", "die after"):
            store = copied(start)
            store.fault = lambda count, operation, key, how=how, number=number: how if count == number else None
            try:
                ACTIONS[action](opened(store, clock))
                done = True
                break
            except Died:
                pass
            store = copied(store)
            readable(store, before)
            table = opened(store, clock)
            table.handle.heal()
            readable(store, before)
            check(store, table)
            table.upsert(rows(("after", "q", 20)))
            check(store, table)
            assert in_use(store) == "files"
    assert number > slot + 6


def slot_taken(start: MemoryStore, clock: Clock, action: str) -> MemoryStore:
    """The store of a writer that died when its slot was there."""
    store = copied(start)
    store.fault = lambda count, operation, key: "die after" if key.startswith(layout.SLOTS) else None
    with pytest.raises(Died):
        ACTIONS[action](opened(store, clock))
    return copied(store)


@pytest.mark.parametrize("action", sorted(ACTIONS.keys() - {"compact", "cluster"}))
def test_two_helpers_that_finish_the_same_slot_write_equal_bytes_under_equal_names(action: str) -> None:
    start, clock, _ = made()
    left = slot_taken(start, clock, action)
    one, other = copied(left), copied(left)
    opened(one, clock).handle.heal()
    clock.leap(1)
    opened(other, clock).handle.heal()
    assert one.data.keys() - left.data.keys()
    assert {key for key in one.data.keys() ^ other.data.keys() if not key.startswith(SCRATCH)} == set()
    assert [key for key, data in one.data.items() if other.data.get(key) != data] == []


@pytest.mark.parametrize("hudi", ["nothing", "compacts", "makes it anew", "has none"])
@pytest.mark.parametrize("action", ["upsert", "clean"])
def test_a_helper_that_was_overtaken_at_any_write_leaves_a_list_that_is_right(action: str, hudi: str) -> None:
    start, clock, _ = made()
    left = slot_taken(start, clock, action)
    number, done = 0, False
    while not done:
        number += 1
        store = copied(left)

        def overtaken(count: int, operation: str, key: str, store: MemoryStore = store, at: int = number) -> None:
            if count != at:
                return
            helper = MemoryStore()
            helper.data = store.data
            faster = opened(helper, clock)
            faster.handle.heal()
            faster.upsert(rows(("fast", "q", 15)))
            if hudi == "has none":
                faster.set_options(clean_every=7)
                faster.upsert(rows(("unlisted", "q", 16)))
            elif hudi != "nothing" and in_use(helper):
                metadata.make(helper, clock(), instant_of_ms(clock()) if hudi == "compacts" else metadata.FIRST)

        store.fault = overtaken
        opened(store, clock).handle.heal()
        done = store.count < number
        store.fault = lambda count, operation, key: None
        table = opened(store, clock)
        need = expected(store, table.handle.history.head())
        found = listed(store)
        assert found is None or found == need
        if "column_stats" in in_use(store):
            assert hudi != "nothing"  # nothing was published since Hudi made them
        table.upsert(rows(("last", "q", 20)))
        assert listed(store) in (None, expected(store, table.handle.history.head()))
    assert number > 4


def test_a_helper_that_finds_the_slot_published_appends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    start, clock, _ = made()
    store = slot_taken(start, clock, "upsert")
    changes_of, before = metadata_table.list_file_changes, dict[str, bytes]()

    def overtaken(slot: Slot) -> dict[str, dict[str, int | None]]:
        monkeypatch.setattr(metadata_table, "list_file_changes", changes_of)
        opened(store, clock).handle.heal()
        metadata.make(store, clock(), instant_of_ms(clock()), "files")
        gone = [key for key in store.data if key.startswith(ROOT) and (".log." in key or key.endswith(".deltacommit"))]
        for key in gone:  # Hudi cleans what it compacted
            store.delete(key)
        before.update(store.data)
        return changes_of(slot)

    monkeypatch.setattr(metadata_table, "list_file_changes", overtaken)
    late = opened(store, clock)
    late.handle.heal()
    assert before == store.data
    check(store, late)


def test_a_commit_that_is_appended_already_is_not_completed_again() -> None:
    start, clock, _ = made()
    store = copied(start)
    store.fault = lambda count, operation, key: "die after" if key.endswith(".deltacommit") else None
    with pytest.raises(Died):
        opened(store, clock).upsert(rows(("new", "p", 9)))
    store = copied(store)
    ahead = instant_of_ms(clock() + 60_000)
    metadata.put_instant(store, Instant(ahead, "clean", State.COMPLETED, ahead))
    table = opened(store, clock)
    table.handle.heal()
    check(store, table)
    done = [
        name
        for name in store.names(ROOT + layout.TIMELINE)
        if name.startswith(f"{table.handle.history.head().instant}_")
    ]
    assert len(done) == 1


def test_a_commit_completes_after_whatever_the_metadata_table_has() -> None:
    """One that is older than a compaction there was invisible to Spark."""
    store, clock, table = made()
    ahead = clock() + 60_000
    metadata.make(store, ahead, instant_of_ms(ahead - 10))
    result = table.upsert(rows(("a", "p", 9), ("new", "p", 9)))
    check(store, table)
    [done] = [name for name in store.names(ROOT + layout.TIMELINE) if name.startswith(f"{result.instant}_")]
    assert done[18:35] > instant_of_ms(ahead)


def test_beside_hudis_writers_a_helper_appends_under_hudis_lock() -> None:
    start, clock, table = made()
    table.set_options(hudi_writers=True)
    metadata.make(start, clock())
    left = slot_taken(start, clock, "upsert")
    left.delete(layout.HUDI_LOCK)  # Hudi's, or that of a process that died, gives way in time
    held: list[bool] = []

    def note(count: int, operation: str, key: str) -> None:
        if key.startswith((ROOT, layout.PROPERTIES)):
            held.append(layout.HUDI_LOCK in left.data)

    left.fault = note
    healed = opened(left, clock)
    healed.handle.heal()
    assert held and all(held)
    assert layout.HUDI_LOCK not in left.data
    check(left, healed)


def test_a_table_opens_while_hudi_keeps_the_lock_under_which_a_helper_would_append() -> None:
    start, clock, table = made()
    table.set_options(hudi_writers=True, commit_timeout_seconds=0)
    metadata.make(start, clock())
    left = slot_taken(start, clock, "upsert")
    left.data[layout.HUDI_LOCK] = b""
    before = {key: data for key, data in left.data.items() if key.startswith(ROOT)}
    healed = opened(left, clock)
    healed.handle.heal()
    assert healed.scan(where="id = 'e'").count() == 1
    assert {key: data for key, data in left.data.items() if key.startswith(ROOT)} == before
    with pytest.raises(hoodoo.LockHeld):
        healed.upsert(rows(("late", "p", 30)))


# ---- what is not known
def _pending(action: str) -> Callable[[MemoryStore, int], None]:
    return lambda store, now: metadata.put_instant(store, Instant(instant_of_ms(now), action, State.REQUESTED))


def _schema(store: MemoryStore, now: int) -> None:
    other = metadata.schema_with(lambda schema: schema["fields"][1].update(type="long"))
    metadata.put_instant(
        store, Instant(instant_of_ms(now), "deltacommit", State.COMPLETED, instant_of_ms(now + 1)), other
    )


def _logs(store: MemoryStore, now: int) -> None:
    for number in range(64):
        store.put(f"{FILES}.files-0000-0_{instant_of_ms(now - 1000 - number)}.log.1_0-0-0", b"")


def _version(store: MemoryStore, now: int) -> None:
    key = ROOT + ".hoodie/hoodie.properties"
    store.put(key, store.get(key).replace(b"table.version=9", b"table.version=8"))


UNKNOWN: dict[str, Callable[[MemoryStore, int], None]] = {
    "partitions under way": lambda store, now: metadata.use(
        store, "files", now, **{"hoodie.table.metadata.partitions.inflight": "record_index"}
    ),
    "no list of files": lambda store, now: metadata.use(store, "column_stats", now),
    "a compaction under way": _pending("compaction"),
    "a log compaction under way": _pending("logcompaction"),
    "a restore under way": _pending("restore"),
    "another schema": _schema,
    "64 logs": _logs,
    "another version": _version,
    "the table's own version": lambda store, now: metadata.use(store, "files", now, **{"hoodie.table.version": "8"}),
    "no properties": lambda store, now: store.delete(ROOT + ".hoodie/hoodie.properties"),
    "another file group": lambda store, now: store.put(f"{FILES}files-0001-0_0-1-2_{metadata.FIRST}.hfile", b""),
    "no files": lambda store, now: store.delete(f"{FILES}files-0000-0_0-1-2_{metadata.FIRST}.hfile"),
    "no commits": lambda store, now: [store.delete(key) for key, _ in list(store.list(ROOT + layout.TIMELINE))],  # type: ignore[func-returns-value]
    "a torn commit": lambda store, now: store.put(
        f"{ROOT}{layout.TIMELINE}{instant_of_ms(now)}_{instant_of_ms(now + 1)}.deltacommit", b"Obj"
    ),
}


@pytest.mark.parametrize("why", UNKNOWN)
def test_a_metadata_table_that_is_not_known_to_the_last_detail_goes_out_of_use(why: str) -> None:
    store, clock, table = made()
    UNKNOWN[why](store, clock())
    left = {key: data for key, data in store.data.items() if key.startswith(ROOT)}
    table.upsert(rows(("new", "p", 9)))
    values = hoodie_properties.read_properties(store)
    assert not [name for name in values if "metadata.partitions" in name]
    assert {key: data for key, data in store.data.items() if key.startswith(ROOT)} == left
    table.upsert(rows(("more", "p", 9)))
    assert hoodie_properties.read_properties(store) == values


@pytest.mark.parametrize("action", ["deltacommit", "clean", "rollback"])
def test_what_hudi_ends_by_itself_is_not_in_the_way(action: str) -> None:
    store, clock, table = made()
    _pending(action)(store, clock())
    table.upsert(rows(("new", "p", 9)))
    check(store, table)


def test_63_logs_leave_room_for_one_more_and_none_after_it() -> None:
    store, clock, table = made()
    _logs(store, clock())
    store.delete(max(key for key in store.data if key.startswith(f"{FILES}.files")))
    table.upsert(rows(("new", "p", 9)))
    assert in_use(store) == "files"
    table.upsert(rows(("more", "p", 9)))
    assert in_use(store) == ""


def test_a_change_of_options_takes_the_metadata_table_out_of_use() -> None:
    """What it read of the properties may be outdated by the time it is written."""
    store, clock, table = made()
    table.set_options(clean_every=7)
    assert in_use(store) == ""
    metadata.make(store, clock())
    table.set_options(clean_every=7)
    assert in_use(store) == metadata.IN_USE
    assert opened(store, clock).options.clean_every == 7


def test_an_overtaken_change_of_the_properties_brings_no_option_back() -> None:
    """A publisher that wrote what it had read before wrote an older option with it."""
    store, clock, table = made()

    def set_meanwhile(count: int, operation: str, key: str) -> None:
        if (operation, key) == ("put", layout.PROPERTIES):
            store.fault = lambda count, operation, key: None
            helper = MemoryStore()
            helper.data = store.data
            opened(helper, clock).set_options(clean_every=7)

    store.fault = set_meanwhile
    table.upsert(rows(("new", "p", 9)))
    assert hoodie_properties.read_properties(store)["hoodoo.clean_every"] == "7"
    assert listed(store) in (None, expected(store, table.handle.history.head()))


def test_a_table_without_metadata_table_is_published_without_a_look_for_one() -> None:
    store, clock = MemoryStore(), Clock()
    table = create(store, clock)
    table.upsert(rows(("a", "p", 1)))
    asked: list[str] = []
    exists, names = store.exists, store.names
    store.exists = lambda key: asked.append(key) or exists(key)  # type: ignore[method-assign, func-returns-value]
    store.names = lambda folder, after="": asked.append(folder) or names(folder, after)  # type: ignore[method-assign, func-returns-value]
    table.upsert(rows(("a", "p", 2), ("b", "q", 2)))
    assert asked
    assert not [key for key in asked if key.startswith(ROOT)]


# ---- archiving
def test_no_instant_is_archived_that_the_metadata_table_has_in_a_log_alone() -> None:
    store, clock, table = made()
    for number in range(4):
        table.upsert(rows(("a", "p", 10 + number)))
        table.compact()
        clock.leap(40)
        table.maintenance.clean(retain_hours=0, retain_commits=1)
    table.savepoints.delete("kept")
    table.upsert(rows(("a", "p", 20)))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    clock.leap(40)
    table.upsert(rows(("a", "p", 21)))
    assert in_use(store) == "files"
    table.maintenance.archive(older_than_hours=0, keep_instants=1)
    check(store, table)
    ahead = clock() + 90 * DAY_MS
    metadata.make(store, ahead, instant_of_ms(ahead - 10))
    clock.leap(1)
    late = table.upsert(rows(("a", "p", 22)))  # older than the compaction, and yet in a log alone
    clock.leap(40)
    table.upsert(rows(("a", "p", 23)))
    table.compact()
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    clock.leap(40)
    table.upsert(rows(("a", "p", 24)))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    table.upsert(rows(("a", "p", 25)))
    assert table.maintenance.archive(older_than_hours=0, keep_instants=1).instants > 0
    check(store, table)
    assert any(name.startswith(f"{late.instant}_") for name in store.names(layout.TIMELINE))
