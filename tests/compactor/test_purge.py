"""Purging: no byte of a purged key is left in any data file, other rows are as before, and whoever is in the way is
named first.
"""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty_store import FaultyStore
from memory_store import Died, MemoryStore
from scenario import SCHEMA as CRASH_SCHEMA
from scenario import Clock, opened, rows

import hoodoo
from hoodoo.compactor import heartbeats
from hoodoo.compactor.cleaning import purge
from hoodoo.compactor.cleaning.purge import PurgeReport, _Purge
from hoodoo.compactor.compaction import plans
from hoodoo.format.names import instant_of_ms, parse_data_file
from hoodoo.timeline import create_table
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.instant import Instant, State
from hoodoo.timeline.layout import INDEX, STAGING, TIMELINE
from hoodoo.timeline.properties import config as configuration
from hoodoo.timeline.properties import table_options
from hoodoo.writers import operations
from hoodoo.writers.staging.staged_files import PARTITION

SCHEMA = pa.schema([("user", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("note", pa.string())])
KINDS = ("copy_on_write", "merge_on_read")


def key(number: int) -> str:
    return f"user-{number:05d}@example"


def batch(numbers: list[int], city: str, ts: int) -> pa.Table:
    return pa.table(
        {
            "user": [key(n) for n in numbers],
            "city": [city] * len(numbers),
            "ts": [ts] * len(numbers),
            "note": [f"{ts}"] * len(numbers),
        },
        SCHEMA,
    )


def keys_of(*pairs: tuple[int, str]) -> pa.Table:
    return pa.table({"user": [key(number) for number, _ in pairs], "city": [city for _, city in pairs]})


def make(path: Path, kind: str, **options: Any) -> hoodoo.Table:
    return hoodoo.create(
        path,
        SCHEMA,
        key="user",
        partition_by="city",
        order_by="ts",
        type=kind,
        **{"compact_after_logs": None, "clean_every": None, **options},
    )


def later(table: hoodoo.Table, hours: float) -> hoodoo.Table:
    """The table as a process sees it whose clock is `hours` ahead."""
    now = Environment().now_ms
    return hoodoo.Table(table.handle.store, Environment(now_ms=lambda: now() + int(hours * 3_600_000)))


def impatient(table: hoodoo.Table) -> hoodoo.Table:
    """The table as a process sees it that waits for nobody."""
    return hoodoo.Table(table.handle.store, Environment(sleep=lambda seconds: None))


def decoded(path: Path) -> bytes:
    """Everything a data file says, values and footer, without compression."""
    if path.suffix != ".parquet":
        return path.read_bytes()  # Avro and delete blocks hold texts as they are
    file = pq.ParquetFile(path)
    footer = b"".join(name + value for name, value in (file.metadata.metadata or {}).items())
    groups = range(file.metadata.num_row_groups)
    bounds = [file.metadata.row_group(g).column(c).statistics for g in groups for c in range(file.metadata.num_columns)]
    named = " ".join(f"{bound.min} {bound.max}" for bound in bounds if bound is not None and bound.has_min_max)
    return footer + named.encode() + str(file.read().to_pylist()).encode()


def files(table: hoodoo.Table, city: str) -> list[Path]:
    return [path for path in Path(table.path, f"city={city}").iterdir() if parse_data_file(path.name)]


def where_named(table: hoodoo.Table, number: int, cities: str) -> list[str]:
    text = key(number).encode()
    found = [path.name for city in cities for path in files(table, city) if text in decoded(path)]
    return found + [path.name for path in Path(table.path, INDEX).glob("*") if text in path.read_bytes()]


def content(table: hoodoo.Table) -> list[str]:
    return sorted(map(str, table.scan().to_arrow().to_pylist()))


# ---- the property
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_after_a_purge_no_byte_of_the_keys_is_in_any_data_file_and_other_rows_are_as_before(
    tmp_path: Path, kind: str, seed: int
) -> None:
    rng = random.Random(seed)
    table = make(tmp_path / "t", kind)
    for step in range(20):
        numbers, city = rng.sample(range(30), rng.randint(1, 6)), rng.choice("xy")
        what = rng.choices(
            ["upsert", "delete", "compact", "overwrite", "clean", "plan", "restore", "cluster"],
            [10, 3, 2, 1, 1, 1, 0.5, 1],
        )[0]
        if what == "upsert":
            table.upsert(batch(numbers, city, rng.randint(0, step)))
        elif what == "delete":
            table.delete(batch(numbers, city, 0))
        elif what == "compact":
            table.compact()
        elif what == "overwrite":
            table.insert_overwrite(batch(numbers[:2], city, step))
        elif what == "plan":
            plans.schedule(table.handle.context(), plans.plan_behind)
        elif what == "cluster":
            table.cluster(by=rng.choice([None, "ts", "user"]))
        elif what == "restore":
            table.restore(
                hoodoo.Cursor(
                    table.cursor.table, rng.randint(table.handle.history.head().min_readable or 1, table.cursor.seq)
                )
            )
        else:
            table.clean(retain_hours=0, retain_commits=3)
    pairs = [(number, city) for number in rng.sample(range(30), 4) for city in "xy"]
    gone = {(key(number), city) for number, city in pairs}
    before = table.scan().to_arrow().to_pylist()
    kept = sorted(str(row) for row in before if (row["user"], row["city"]) not in gone)
    report = table.purge(keys_of(*pairs))
    assert report.proved and report.keys == 8
    assert report.rows_deleted == len(before) - len(kept)
    for number, _ in pairs:
        assert (
            where_named(table, number, "".join(city for city in "xy" if Path(table.path, f"city={city}").exists()))
            == []
        )
    assert content(table) == kept
    assert table.verify().problems == []
    assert report.min_readable == table.handle.history.head().min_readable


@pytest.mark.parametrize("kind", KINDS)
def test_no_value_of_a_purged_row_stays_in_a_dictionary_or_footer_of_a_file(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind, compression="none")
    notes = ["common"] * 2000
    notes[700] = "only-of-this-row"
    data = batch(list(range(2000)), "x", 0).set_column(3, "note", pa.array(notes))
    table.upsert(data)
    table.upsert(data.slice(600, 200).set_column(2, "ts", pa.array([1] * 200)))
    assert any(b"only-of-this-row" in path.read_bytes() for path in files(table, "x"))
    assert table.purge(keys_of((700, "x"))).proved
    assert not [
        path
        for path in files(table, "x")
        if b"only-of-this-row" in path.read_bytes() or key(700).encode() in path.read_bytes()
    ]


@pytest.mark.parametrize("outcome", ["die", "die after"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_purge_that_is_killed_at_any_step_harms_no_other_row_and_is_done_by_calling_again(
    kind: str, outcome: str
) -> None:
    clock = Clock()
    store = MemoryStore(at_ms=clock.ms)
    settings = table_options.with_options({"compact_after_logs": None, "clean_every": None})
    create_table.create(
        store,
        configuration.new_properties("t", CRASH_SCHEMA, ("id",), ("city",), ("ts",), kind, settings),
        Environment(now_ms=clock),
    )
    table = opened(store, clock)
    table.upsert(rows(("secret-1", "p", 1), ("b", "p", 1), ("secret-1", "q", 1)))
    table.upsert(rows(("secret-1", "p", 2), ("b", "p", 2)))
    table.upsert(rows(("b", "p", 3)))
    plans.schedule(table.handle.context(), plans.plan_behind)
    start, kept = dict(store.data), [("b", "p", 3), ("secret-1", "q", 1)]
    steps = 0
    while True:
        steps += 1
        dying = MemoryStore(dict(start), clock.ms)
        doomed = opened(dying, clock)
        doomed.handle.context()
        at = dying.count + steps
        dying.fault = lambda number, operation, key, at=at: outcome if number == at else None
        try:
            doomed.purge(rows(("secret-1", "p", 0)))
            break
        except Died:
            pass
        alive = opened(MemoryStore(dying.data, clock.ms), clock)
        found = sorted((row["id"], row["city"], row["ts"]) for row in alive.scan().to_arrow().to_pylist())
        assert found in (kept, [kept[0], ("secret-1", "p", 2), kept[1]])
        clock.leap(2)
        report = alive.purge(rows(("secret-1", "p", 0)))
        assert report.proved
        assert sorted((row["id"], row["city"], row["ts"]) for row in alive.scan().to_arrow().to_pylist()) == kept
        for path in [
            path
            for path in alive.handle.store.data
            if path.startswith("city=p/") and parse_data_file(path.rpartition("/")[2])
        ]:
            texts = (
                [b"secret-1" in alive.handle.store.get(path)]
                if ".log." in path
                else ["secret-1" in pq.read_table(pa.BufferReader(alive.handle.store.get(path)))["id"].to_pylist()]
            )
            assert texts == [False], path
        assert alive.verify().problems == []
    assert steps > 15


@pytest.mark.parametrize("kind", KINDS)
def test_a_purge_reports_what_it_did_and_a_second_one_finds_nothing_to_do(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind)
    first = table.upsert(batch([1, 2, 3], "x", 0))
    table.upsert(batch([2], "x", 1))
    table.upsert(batch([1, 2], "y", 1))
    untouched = {path.name for path in files(table, "y")}
    report = table.purge(keys_of((2, "x"), (77, "x")))
    assert (report.keys, report.rows_deleted, report.holders, report.pending) == (2, 1, (), ())
    assert (
        report.files_deleted == 2 + (kind == "merge_on_read")
        and report.bytes_deleted > 0
        and report.files_rewritten == 1
    )
    assert [entry.instant for entry in table.timeline() if entry.instant in report.instants]
    assert report.files_checked == 1 and {path.name for path in files(table, "y")} == untouched
    with pytest.raises(hoodoo.SnapshotExpired):
        table.scan(as_of=first.cursor)
    head = table.cursor
    again = table.purge(keys_of((2, "x"), (77, "x")))
    assert (again.rows_deleted, again.files_deleted, again.instants, again.proved) == (0, 0, (), True)
    assert table.cursor == head
    assert table.purge(keys_of()[:0]) == PurgeReport(0, min_readable=report.min_readable)


def test_a_key_that_was_deleted_long_ago_is_purged_from_history(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "merge_on_read")
    table.upsert(batch([1, 2], "x", 0))
    table.delete(keys_of((1, "x")))
    assert where_named(table, 1, "x")
    report = table.purge(keys_of((1, "x")))
    assert report.rows_deleted == 0 and report.proved and report.files_rewritten == 1
    assert where_named(table, 1, "x") == []


def test_keys_of_several_columns_are_purged(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key=["user", "ts"], compact_after_logs=None)
    table.upsert(batch([1, 1, 2], "x", 5).set_column(2, "ts", pa.array([1, 2, 3])))
    report = table.purge(pa.table({"user": [key(1)], "ts": [2]}))
    assert report.proved and report.rows_deleted == 1
    assert sorted(table.scan().to_arrow()["ts"].to_pylist()) == [1, 3]


# ---- whoever is in the way
@pytest.mark.parametrize("kind", KINDS)
def test_a_savepoint_a_pin_and_a_consumer_that_need_a_file_are_named_before_anything_is_written(
    tmp_path: Path, kind: str
) -> None:
    table = make(tmp_path / "t", kind)
    first = table.upsert(batch([1, 2], "x", 0))
    table.savepoint("eod")
    table.upsert(batch([1], "x", 1))
    pin = table.pin(as_of=first.cursor)
    table.consumer("billing", start=first.cursor)
    head, there = table.cursor, content(table)
    with pytest.raises(hoodoo.PurgeBlocked) as blocked:
        table.purge(keys_of((1, "x")))
    details = blocked.value.details
    assert (details["savepoints"], details["leases"], details["consumers"]) == (
        ["eod"],
        [first.cursor.seq],
        ["billing"],
    )
    assert "delete_savepoint('eod')" in str(blocked.value) and "'billing'" in str(blocked.value) and details["files"]
    assert (table.cursor, content(table)) == (head, there)
    copy = pickle.loads(pickle.dumps(blocked.value))
    assert (copy.code, copy.details) == ("PURGE_BLOCKED", details)
    table.delete_savepoint("eod")
    with pytest.raises(hoodoo.PurgeBlocked, match="pinned the snapshot at slot"):
        table.purge(keys_of((1, "x")))
    pin.release()
    with pytest.raises(hoodoo.PurgeBlocked, match="has not read past them"):
        table.purge(keys_of((1, "x")))
    table.consumer("billing").drop()
    assert table.purge(keys_of((1, "x"))).proved


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_that_read_past_the_delete_is_not_in_the_way(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind)
    table.upsert(batch([1, 2], "x", 0))
    reader = table.consumer("billing", start=table.cursor)
    table.delete(keys_of((1, "x")))
    table.compact()
    with pytest.raises(hoodoo.PurgeBlocked):
        table.purge(keys_of((1, "x")))
    reader.commit(table.cursor)
    assert table.purge(keys_of((1, "x"))).proved
    assert where_named(table, 1, "x") == []
    assert table.scan(as_of=reader.position).count() == 1


def test_a_consumer_that_has_not_read_the_rows_yet_is_in_the_way_as_well(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write")
    reader = table.consumer("billing", start=table.upsert(batch([1], "x", 0)).cursor)
    table.upsert(batch([2], "y", 0))
    with pytest.raises(
        hoodoo.PurgeBlocked, match="'billing'"
    ):  # its snapshot has no such file, but the purge would end its readability
        table.purge(keys_of((2, "y")))
    reader.drop()
    assert table.purge(keys_of((2, "y"))).proved


def test_holds_on_files_without_the_keys_block_nothing(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write")
    table.upsert(batch([1], "x", 0))
    table.savepoint("before")
    table.upsert(batch([2], "y", 0))
    with table.pin(as_of="before"):
        assert table.purge(keys_of((2, "y"))).proved
    assert table.scan(as_of="before").to_arrow()["user"].to_pylist() == [key(1)]


def test_a_savepoint_taken_while_the_purge_runs_keeps_its_files_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path / "t", "copy_on_write")
    first = table.upsert(batch([1, 2], "x", 0))
    other = hoodoo.open(table.path)
    begin = type(table.handle.timeline).begin

    def saved_first(self: Any, action: str, *given: Any) -> Any:
        if action == "clean":
            monkeypatch.undo()
            other.savepoint("late", as_of=first.cursor)
        return begin(self, action, *given)

    monkeypatch.setattr(type(table.handle.timeline), "begin", saved_first)
    report = table.purge(keys_of((1, "x")))
    assert (
        not report.proved
        and {path.rpartition("/")[2] for path in report.holders} == set(where_named(table, 1, "x")) != set()
    )
    assert (report.rows_deleted, report.files_deleted) == (1, 0)
    assert table.scan(as_of="late").count() == 2
    assert table.scan().count() == 1
    with pytest.raises(hoodoo.PurgeBlocked, match="'late'"):
        table.purge(keys_of((1, "x")))
    table.delete_savepoint("late")
    assert table.purge(keys_of((1, "x"))).proved


@pytest.mark.parametrize("kind", KINDS)
def test_a_pin_taken_after_the_rows_were_deleted_is_no_error_its_files_are_named(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PurgeBlocked says that nothing was written; raised that late it said so of a purge that had deleted and
    rewritten, and hid its report.
    """
    table = make(tmp_path / "t", kind)
    first = table.upsert(batch([1, 2], "x", 0))
    pins: list[Any] = []
    compact = _Purge.compact

    def pinned_first(self: _Purge) -> None:
        pins.append(hoodoo.open(table.path).pin(as_of=first.cursor))
        compact(self)

    monkeypatch.setattr(_Purge, "compact", pinned_first)
    report = table.purge(keys_of((1, "x")))
    monkeypatch.undo()
    assert report.rows_deleted == 1 and report.instants and report.holders and not report.proved
    assert table.scan(as_of=first.cursor).count() == 2
    for pin in pins:
        pin.release()
    assert table.purge(keys_of((1, "x"))).proved and where_named(table, 1, "x") == []


# ---- what lies about
def test_files_of_a_dead_writer_are_deleted_if_old_and_named_if_young(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write")
    table.upsert(batch([1, 2], "x", 0))
    [live] = files(table, "x")
    attempt = table.handle.context().timeline.begin("commit")
    attempt.start()
    orphan = live.with_name(f"{live.name.partition('_')[0]}_0-0-0_{attempt.instant}.parquet")
    orphan.write_bytes(live.read_bytes())
    report = impatient(table).purge(keys_of((1, "x")))
    begun = Instant(attempt.instant, "commit", State.INFLIGHT).key
    assert report.pending == (begun, f"city=x/{orphan.name}") and not report.proved
    ahead = later(table, 30)
    report = ahead.purge(keys_of((1, "x")))
    assert report.proved and not orphan.exists() and report.files_deleted == 1
    assert where_named(table, 1, "x") == []
    with pytest.raises(hoodoo.AlreadyCommitted):
        table.rollback(attempt.instant)  # the sweep ended it


def test_a_write_whose_file_is_not_there_yet_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had read the file that the purge deletes, and put the row into its own once the purge had looked: what was
    called proved was not so. Once it has ended nothing of it is left.
    """
    monkeypatch.setattr(purge, "_PAUSES_S", (0,))  # the write goes on only after the purge
    table = make(tmp_path / "t", "copy_on_write")
    table.upsert(batch([1, 2], "x", 0))
    store = FaultyStore(table.path)
    writer, reports, named = hoodoo.Table(store), list[PurgeReport](), list[list[str]]()

    def purged_before_the_file_is_there(number: int, operation: str, path: str) -> None:
        if path.startswith("city=x/"):
            if operation == "put_if_absent" and not reports:
                reports.append(table.purge(keys_of((1, "x"))))
            elif operation == "delete":
                named.append(where_named(table, 1, "x"))

    store.fault = purged_before_the_file_is_there
    done = writer.upsert(batch([2], "x", 1))
    [pending] = reports[0].pending
    assert pending.startswith(TIMELINE) and not reports[0].proved
    assert len(named[0]) == 1 and done.retries == 1  # the file came, and went as the write began again
    assert table.purge(keys_of((1, "x"))).proved and where_named(table, 1, "x") == []


def test_a_purge_waits_for_the_writes_that_are_under_way(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write")
    table.upsert(batch([1, 2], "x", 0))
    attempt = table.handle.context().timeline.begin("commit")
    pauses: list[float] = []

    def ends_meanwhile(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 2:
            attempt.abandon()

    patient = hoodoo.Table(table.handle.store, Environment(sleep=ends_meanwhile))
    assert patient.purge(keys_of((1, "x"))).proved
    assert len(pauses) == 2


def test_an_index_entry_that_a_dead_writer_left_is_deleted_if_old_and_named_if_young(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write")
    table.upsert(batch([1, 2], "x", 0))
    [live] = Path(table.path, INDEX).glob("*")
    attempt = table.handle.context().timeline.begin("commit")
    attempt.start()
    left = live.with_name(f"{live.name.rpartition('_')[0]}_{attempt.instant}")
    left.write_bytes(live.read_bytes())  # it is written before its file
    report = impatient(table).purge(keys_of((1, "x")))
    assert (report.pending[:1], report.holders) == ((f"{INDEX}{left.name}",), ())
    assert later(table, 30).purge(keys_of((1, "x"))).proved and not left.exists()


def test_staged_rows_of_another_writer_are_named(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write")
    table.upsert(batch([1], "x", 0))
    staged = Path(table.path, STAGING, "0" * 32, "part")
    staged.parent.mkdir(parents=True)
    with pa.ipc.new_file(staged, pa.schema([("_hoodie_record_key", pa.string())])) as writer:
        writer.write_table(pa.table({"_hoodie_record_key": [key(1)]}))
    report = table.purge(keys_of((1, "x")))
    assert [path.rpartition("/")[2] for path in report.pending] == ["part"] and not report.proved


def test_a_key_that_a_writer_brings_back_meanwhile_is_purged_as_well_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path / "t", "merge_on_read")
    table.upsert(batch([1, 2], "x", 0))
    writer = hoodoo.open(table.path)
    begin, again = type(table.handle.timeline).begin, [3]

    def brought_back(self: Any, action: str, *given: Any) -> Any:
        if action == "clean" and again[0]:
            again[0] -= 1
            writer.upsert(batch([1], "x", 9))
        return begin(self, action, *given)

    monkeypatch.setattr(type(table.handle.timeline), "begin", brought_back)
    assert table.purge(keys_of((1, "x"))).proved
    assert where_named(table, 1, "x") == []
    again[0] = 100
    writer.upsert(batch([1], "x", 10))
    report = table.purge(keys_of((1, "x")))
    assert report.holders and not report.proved


def test_a_worker_that_still_runs_a_plan_which_somebody_else_completed_is_named(tmp_path: Path) -> None:
    """It may write the plan's files once more, with the key, after the proof."""
    table = make(tmp_path / "t", "merge_on_read")
    table.upsert(batch([1, 2], "x", 0))
    table.upsert(batch([2], "x", 1))
    plan = plans.schedule(table.handle.context(), plans.plan_behind)
    assert plan
    hint = heartbeats.plan_hint(plan.instant)
    table.handle.store.put(hint, b"a worker")
    report = table.purge(keys_of((1, "x")))
    assert (report.holders, report.pending) == ((), (hint,)) and not report.proved
    table.handle.store.delete(hint)
    assert table.purge(keys_of((1, "x"))).proved


# ---- bounds
def test_bounds_in_slots_are_reported_until_the_slots_are_archived(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write", retain_hours=0, retain_commits=1, archive_after_hours=0)
    table.upsert(batch([1, 2, 3], "x", 0))
    inside = table.purge(keys_of((2, "x")))
    assert inside.proved and not inside.bounds_in_slots  # never the least or greatest of a file
    edge = table.purge(keys_of((1, "x")))
    assert edge.proved and edge.bounds_in_slots
    table.upsert(batch([4], "x", 1))
    later(table, 30).upsert(batch([5], "x", 1))
    ahead = later(table, 60)
    ahead.clean()
    assert ahead.archive().slots > 0
    after = ahead.purge(keys_of((1, "x")))
    text = key(1).encode()
    assert not after.bounds_in_slots
    assert not [
        path.name for path in Path(table.path, ".hoodie").rglob("*") if path.is_file() and text in path.read_bytes()
    ]


def test_a_clock_far_behind_makes_no_instant_look_old(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write")
    table.upsert(batch([1], "x", 0))
    assert instant_of_ms(0) < table.timeline()[-1].instant
    assert table.purge(keys_of((1, "x")), older_than_hours=10**6).proved


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_a_purge_found_absent_and_a_writer_brings_meanwhile_is_deleted_by_the_same_commit(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first delete of a purge named only the rows it found: an insert of another of its keys in between was not
    looked at, and stood after it.
    """
    table = make(tmp_path / "t", kind)
    table.upsert(batch([1, 2], "x", 1))
    write = operations.run

    def meanwhile(task: Any) -> Any:
        monkeypatch.undo()
        hoodoo.open(table.path).bulk_insert(batch([9], "x", 1))  # into a file group of its own
        return write(task)

    monkeypatch.setattr(operations, "run", meanwhile)
    assert table.purge(keys_of((1, "x"), (9, "x"))).proved
    slots = list(table.handle.history.slots(0, table.cursor.seq))
    deletes = [slot.seq for slot in slots if slot.operation == "DELETE"]
    insert = next(slot.seq for slot in slots if slot.operation == "BULK_INSERT")
    assert deletes == [insert + 1], "one delete, after the insert, of both keys"
    assert table.scan(columns=["user"]).to_arrow()["user"].to_pylist() == [key(2)]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_other_partitions_with_the_same_key_text_do_not_stand_in_the_way_of_the_proof(
    tmp_path: Path, kind: str
) -> None:
    """Key texts were compared without their partition: the index entries of (2, x) and (1, y), which nobody asked for,
    were named as holders for ever.
    """
    table = make(tmp_path / "t", kind)
    table.upsert(pa.concat_tables([batch([1, 2], "x", 0), batch([1, 2], "y", 0)]))
    report = table.purge(keys_of((1, "x"), (2, "y")), older_than_hours=0)
    assert report.proved and report.rows_deleted == 2
    left = table.scan().to_arrow().select(["user", "city"]).to_pylist()
    assert sorted(map(tuple, (row.values() for row in left))) == [(key(1), "y"), (key(2), "x")]
    assert table.purge(keys_of((1, "x"), (2, "y")), older_than_hours=0).proved


def test_an_old_index_entry_of_another_partition_is_no_holder(tmp_path: Path) -> None:
    """The clean of a purge takes superseded files of all partitions with it; their entries name keys of
    theirs, not those that were purged.
    """
    table = make(tmp_path / "t", "copy_on_write")
    table.upsert(pa.concat_tables([batch([1], "x", 0), batch([1], "y", 0)]))
    table.upsert(batch([1], "y", 1))
    assert table.purge(keys_of((1, "x")), older_than_hours=0).proved


def test_bounds_of_other_partitions_are_not_reported(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write", clean_every=None)
    table.upsert(batch([1], "y", 0))
    table.upsert(batch([2], "x", 0))
    table.delete(keys_of((2, "x")))
    assert not table.purge(keys_of((1, "x")), older_than_hours=0).bounds_in_slots
    assert table.purge(keys_of((1, "y")), older_than_hours=0).bounds_in_slots


def test_staged_rows_of_another_partition_are_not_pending(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "merge_on_read")
    table.upsert(batch([1], "x", 0))
    staged = batch([1], "y", 1).append_column("_hoodie_record_key", pa.array([key(1)]))
    for named, pending in ((True, 0), (False, 1)):
        rows = staged.append_column(PARTITION, pa.array(["city=y"])) if named else staged
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        table.handle.store.put(STAGING + "elsewhere/rows", sink.getvalue())
        assert len(table.purge(keys_of((1, "x"))).pending) == pending
