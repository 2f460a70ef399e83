"""Purging: no byte of a purged key is left in any data file, and other rows are as before."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from memory_store import Died, MemoryStore
from purged import KINDS, SCHEMA, batch, content, files, key, keys_of, make, where_named
from scenario import SCHEMA as CRASH_SCHEMA
from scenario import Clock, opened, rows
from tables import later
from tiers import sized

import hoodoo
from hoodoo.compactor.cleaning.purge_report import PurgeReport
from hoodoo.compactor.compaction import plans
from hoodoo.format.names import instant_of_ms, parse_data_file
from hoodoo.timeline import create_table
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.properties import hoodie_properties, table_options


@pytest.mark.both
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(sized(3, 8)))
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
            plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
        elif what == "cluster":
            table.maintenance.cluster(sort_by=rng.choice([None, "ts", "user"]))
        elif what == "restore":
            table.restore(
                hoodoo.Cursor(
                    table.cursor.table, rng.randint(table.handle.history.head().min_readable or 1, table.cursor.seq)
                )
            )
        else:
            table.maintenance.clean(retain_hours=0, retain_commits=3)
    pairs = [(number, city) for number in rng.sample(range(30), 4) for city in "xy"]
    gone = {(key(number), city) for number, city in pairs}
    before = table.scan().to_arrow().to_pylist()
    kept = sorted(str(row) for row in before if (row["user"], row["city"]) not in gone)
    report = table.maintenance.purge(keys_of(*pairs))
    assert report.files_proved and report.keys == 8
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
    assert table.maintenance.purge(keys_of((700, "x"))).files_proved
    assert not [
        path
        for path in files(table, "x")
        if b"only-of-this-row" in path.read_bytes() or key(700).encode() in path.read_bytes()
    ]


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("merge_on_read", "die"),
        ("copy_on_write", "die after"),
        pytest.param("merge_on_read", "die after", marks=pytest.mark.deep),
        pytest.param("copy_on_write", "die", marks=pytest.mark.deep),
    ],
)
def test_a_purge_that_is_killed_at_any_step_harms_no_other_row_and_is_done_by_calling_again(
    kind: str, outcome: str
) -> None:
    clock = Clock()
    store = MemoryStore(at_ms=clock.ms)
    settings = table_options.validate_new_options({"compact_after_logs": None, "clean_every": None})
    create_table.create_table(
        store,
        hoodie_properties.create_properties("t", CRASH_SCHEMA, ("id",), ("city",), ("ts",), kind, settings),
        Environment(now_ms=clock),
    )
    table = opened(store, clock)
    table.upsert(rows(("secret-1", "p", 1), ("b", "p", 1), ("secret-1", "q", 1)))
    table.upsert(rows(("secret-1", "p", 2), ("b", "p", 2)))
    table.upsert(rows(("b", "p", 3)))
    plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
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
            doomed.maintenance.purge(rows(("secret-1", "p", 0)))
            break
        except Died:
            pass
        alive = opened(MemoryStore(dying.data, clock.ms), clock)
        found = sorted((row["id"], row["city"], row["ts"]) for row in alive.scan().to_arrow().to_pylist())
        assert found in (kept, [kept[0], ("secret-1", "p", 2), kept[1]])
        clock.leap(2)
        report = alive.maintenance.purge(rows(("secret-1", "p", 0)))
        assert report.files_proved
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
    report = table.maintenance.purge(keys_of((2, "x"), (77, "x")))
    assert (report.keys, report.rows_deleted, report.holders, report.pending) == (2, 1, (), ())
    assert (
        report.files_deleted == 2 + (kind == "merge_on_read")
        and report.bytes_deleted > 0
        and report.files_rewritten == 1
    )
    assert [entry.instant for entry in table.inspect.timeline() if entry.instant in report.instants]
    assert report.files_checked == 1 and {path.name for path in files(table, "y")} == untouched
    with pytest.raises(hoodoo.SnapshotExpired):
        table.scan(as_of=first.cursor)
    head = table.cursor
    again = table.maintenance.purge(keys_of((2, "x"), (77, "x")))
    assert (again.rows_deleted, again.files_deleted, again.instants, again.files_proved) == (0, 0, (), True)
    assert table.cursor == head
    assert table.maintenance.purge(keys_of()[:0]) == PurgeReport(0, min_readable=report.min_readable)


def test_a_key_that_was_deleted_long_ago_is_purged_from_history(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "merge_on_read")
    table.upsert(batch([1, 2], "x", 0))
    table.delete(keys_of((1, "x")))
    assert where_named(table, 1, "x")
    report = table.maintenance.purge(keys_of((1, "x")))
    assert report.rows_deleted == 0 and report.files_proved and report.files_rewritten == 1
    assert where_named(table, 1, "x") == []


def test_keys_of_several_columns_are_purged(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key=["user", "ts"], compact_after_logs=None)
    table.upsert(batch([1, 1, 2], "x", 5).set_column(2, "ts", pa.array([1, 2, 3])))
    report = table.maintenance.purge(pa.table({"user": [key(1)], "ts": [2]}))
    assert report.files_proved and report.rows_deleted == 1
    assert sorted(table.scan().to_arrow()["ts"].to_pylist()) == [1, 3]


def test_bounds_in_slots_are_reported_until_the_slots_are_archived(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write", retain_hours=0, retain_commits=1, archive_after_hours=0)
    table.upsert(batch([1, 2, 3], "x", 0))
    inside = table.maintenance.purge(keys_of((2, "x")))
    assert inside.files_proved and not inside.bounds_in_slots  # never the least or greatest of a file
    edge = table.maintenance.purge(keys_of((1, "x")))
    assert edge.files_proved and edge.bounds_in_slots and not edge.proved and edge.bounds
    assert edge.bounds_until is not None and edge.bounds_until > dt.datetime.now(dt.timezone.utc)
    table.upsert(batch([4], "x", 1))
    later(table, 30).upsert(batch([5], "x", 1))
    ahead = later(table, 60)
    ahead.maintenance.clean()
    assert ahead.maintenance.archive().slots > 0
    after = ahead.maintenance.purge(keys_of((1, "x")))
    text = key(1).encode()
    assert not after.bounds_in_slots
    assert not [
        path.name for path in Path(table.path, ".hoodie").rglob("*") if path.is_file() and text in path.read_bytes()
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_purge_is_not_proved_while_a_slot_has_another_value_of_the_row_as_a_bound(tmp_path: Path, kind: str) -> None:
    table = hoodoo.create(tmp_path / "t", "id bigint, email string", key="id", type=kind, checkpoint_every=1)
    people = [{"id": n, "email": f"person-{n}@x.org"} for n in range(1, 5)]
    table.upsert(people)
    inside = table.maintenance.purge([{"id": 2}])
    assert inside.proved and not inside.bounds
    for _ in range(2):  # a second purge cannot read the row any more
        edge = table.maintenance.purge([{"id": 1}])
        assert edge.files_proved and not edge.proved and edge.bounds and edge.bounds_until
        text = b"person-1@x.org"
        slots = [path for path in Path(table.path).rglob("*") if path.is_file() and text in path.read_bytes()]
        assert sorted(str(path.relative_to(table.path)) for path in slots) == sorted(edge.bounds)
    assert table.scan().to_arrow().sort_by("id").to_pylist() == people[2:]
    assert hoodoo.open(table.path).verify().problems == []


def test_a_clock_far_behind_makes_no_instant_look_old(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write")
    table.upsert(batch([1], "x", 0))
    assert instant_of_ms(0) < table.inspect.timeline()[-1].instant
    assert table.maintenance.purge(keys_of((1, "x")), older_than_hours=10**6).files_proved


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_other_partitions_with_the_same_key_text_do_not_stand_in_the_way_of_the_proof(
    tmp_path: Path, kind: str
) -> None:
    """Key texts were compared without their partition: the index entries of (2, x) and (1, y), which nobody asked for,
    were named as holders for ever.
    """
    table = make(tmp_path / "t", kind)
    table.upsert(pa.concat_tables([batch([1, 2], "x", 0), batch([1, 2], "y", 0)]))
    report = table.maintenance.purge(keys_of((1, "x"), (2, "y")), older_than_hours=0)
    assert report.files_proved and report.rows_deleted == 2
    left = table.scan().to_arrow().select(["user", "city"]).to_pylist()
    assert sorted(map(tuple, (row.values() for row in left))) == [(key(1), "y"), (key(2), "x")]
    assert table.maintenance.purge(keys_of((1, "x"), (2, "y")), older_than_hours=0).files_proved


def test_bounds_of_other_partitions_are_not_reported(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write", clean_every=None)
    table.upsert(batch([1], "y", 0))
    table.upsert(batch([2], "x", 0))
    table.delete(keys_of((2, "x")))
    assert not table.maintenance.purge(keys_of((1, "x")), older_than_hours=0).bounds_in_slots
    assert table.maintenance.purge(keys_of((1, "y")), older_than_hours=0).bounds_in_slots
