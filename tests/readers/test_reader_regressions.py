"""What a review of the readers found, each told before it is checked."""

from __future__ import annotations

import gc
import itertools
import pickle
import random
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from golden_tables import unpack
from table_machine import Machine
from tiers import sized

import hoodoo
from hoodoo.format.table_schema import TableSchema
from hoodoo.timeline.history import History
from hoodoo.timeline.views.view import View

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())])


def row(number: int, city: str | None = "x", ts: int = 1, fare: float = 1.0) -> dict[str, Any]:
    return {"id": number, "city": city, "ts": ts, "fare": fare}


@pytest.fixture()
def table(tmp_path: Path) -> hoodoo.Table:
    made = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city", order_by="ts", compact_after_logs=None)
    made.upsert([row(number, "xy"[number % 2]) for number in range(10)])
    return made


def position(table: hoodoo.Table, seq: int) -> hoodoo.Cursor:
    return hoodoo.Cursor(table.cursor.table, seq)


@pytest.mark.both
@pytest.mark.parametrize("seed", range(sized(2, 4)))
def test_a_table_that_only_hudis_timeline_describes_gives_the_same_changes(tmp_path: Path, seed: int) -> None:
    """Its files say neither who wrote them nor how many rows they took away: deletes got the wrong instants, ranges
    were called damaged, and a key
    that came back in another file group was named as deleted.
    """
    chance = random.Random(seed)
    machine = Machine(
        tmp_path / "t",
        chance.choice(["merge_on_read", "copy_on_write"]),
        ("a", "b"),
        chance.choice([(), ("city",)]),
        None,
        seed,
    )
    for _ in range(25):
        chance.choice(
            [
                machine.upsert,
                machine.upsert,
                machine.delete,
                machine.delete,
                machine.bulk,
                machine.overwrite,
                machine.compact,
            ]
        )()
        for slot in range(machine.last + 1, machine.table.cursor.seq + 1):
            machine.model.snapshots.setdefault(slot, dict(machine.model.rows))
        machine.last = machine.table.cursor.seq
    shutil.rmtree(tmp_path / "t" / ".hoodie" / ".hoodoo")
    found = hoodoo.open(tmp_path / "t")
    head = found.cursor.seq
    snapshots = [found.scan(as_of=position(found, seq)).to_arrow().to_pylist() for seq in range(1, head + 1)]
    held = [{machine.model.identity(one): one for one in rows} for rows in snapshots]
    for since, until in itertools.combinations(chance.sample(range(1, head + 1), min(head, 8)), 2):
        since, until = min(since, until), max(since, until)
        before, after = held[since - 1], held[until - 1]
        range_ = position(found, since), position(found, until)
        net = {
            machine.model.identity(one["after"] or one["before"]): one
            for one in found.changes(*range_).to_arrow().to_pylist()
        }
        assert net.keys() == {
            identity for identity in before.keys() | after.keys() if before.get(identity) != after.get(identity)
        }
        assert all(
            one["before"] == before.get(identity) and one["after"] == after.get(identity)
            for identity, one in net.items()
        )
        last = {
            machine.model.identity(one["after"] or one["before"]): one["instant"]
            for one in found.changes(*range_, versions="all").to_arrow().to_pylist()
        }
        assert {identity: one["instant"] for identity, one in net.items()} == {
            identity: last[identity] for identity in net
        }
        gone = [
            machine.model.identity(one)
            for one in found.incremental(*range_, deletes=True).to_arrow().to_pylist()
            if one["_hoodie_is_deleted"]
        ]
        assert sorted(gone) == sorted(before.keys() - after.keys())


@pytest.mark.parametrize("name", ["cow_ordered", "mor_ordered", "mor_unordered", "mor_sql"])
def test_tables_of_apache_hudi_give_the_changes_between_all_their_snapshots(tmp_path: Path, name: str) -> None:
    """Net changes of a range in which Hudi had deleted rows said that the table was damaged."""
    found = hoodoo.open(unpack(name, tmp_path))
    for since, until in itertools.combinations(range(1, found.cursor.seq + 1), 2):
        range_ = position(found, since), position(found, until)
        assert (
            found.changes(*range_).to_arrow().drop_columns(["instant"]).to_pylist()
            == found.changes(*range_, versions="diff").to_arrow().to_pylist()
        )
    assert found.changes("earliest").count() == found.scan().count()


def test_a_partial_update_is_laid_over_its_row_whatever_the_filter_leaves_out(tmp_path: Path) -> None:
    """With a filter the row group that it lies over was skipped, as if the logged row were whole, and the columns that
    it does not set came out as nulls.
    """
    path = unpack("mor_sql", tmp_path)
    found = hoodoo.open(path)
    for seq in range(1, found.cursor.seq + 1):
        whole = found.scan(as_of=position(found, seq)).to_arrow()
        for fare in whole["fare"].unique().to_pylist():
            wanted = whole.filter(pc.equal(whole["fare"], fare))
            assert sorted(
                map(repr, found.scan(as_of=position(found, seq), where=f"fare = {fare}").to_arrow().to_pylist())
            ) == sorted(map(repr, wanted.to_pylist()))


@pytest.mark.parametrize(
    ("where", "matches"),
    [
        ("id IS NULL", lambda row: row["id"] is None),
        ("NOT (id IS NOT NULL)", lambda row: row["id"] is None),
        ("id IS NULL AND ts IS NOT NULL", lambda row: row["id"] is None and row["ts"] is not None),
        ("id IS NULL OR id = 'zzz'", lambda row: row["id"] in (None, "zzz")),
        ("id = 'k2'", lambda row: row["id"] == "k2"),
        ("city IS NULL OR ts > 0", lambda row: row["city"] is None or row["ts"] > 0),
    ],
)
def test_a_partial_update_whose_row_the_filter_leaves_out_is_no_row_of_its_own(
    tmp_path: Path, where: str, matches: Any
) -> None:
    """No base row has a null key, so no row group was read, and the update became a row with nulls in all the columns
    that it does not set: one that the table does not have.
    """
    found = hoodoo.open(unpack("mor_sql", tmp_path))
    for seq in range(1, found.cursor.seq + 1):
        whole = found.scan(as_of=position(found, seq)).to_arrow().to_pylist()
        some = found.scan(as_of=position(found, seq), where=where)
        assert sorted(map(repr, some.to_arrow().to_pylist())) == sorted(repr(row) for row in whole if matches(row))
        assert some.count() == sum(map(matches, whole))


def test_in_the_default_partition_null_and_empty_values_follow_each_other(tmp_path: Path) -> None:
    """They share a partition and so a row; logs were left out as if a row never changed its partition value, and the
    replaced row was returned.
    """
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city", order_by="ts", compact_after_logs=None)
    table.upsert([row(1, None, 5)])
    table.upsert([row(1, "", 6)])
    table.upsert([row(1, "", 2)])
    assert table.scan(where="city IS NULL").count() == 0
    assert table.scan(where="city = ''").to_arrow()["ts"].to_pylist() == [6]


def test_a_range_that_ends_before_it_begins_is_refused(table: hoodoo.Table) -> None:
    """It named live keys as deleted."""
    table.upsert([row(20)])
    for call in (
        lambda: table.incremental(table.cursor, position(table, 2)),
        lambda: table.incremental(table.cursor, position(table, 2), deletes=True),
        lambda: table.changes(table.cursor, position(table, 2)),
        lambda: table.changes(table.cursor, position(table, 2), versions="all"),
    ):
        with pytest.raises(hoodoo.PositionError, match="before since"):
            call()
    assert (
        table.changes(table.cursor, table.cursor).count()
        == 0
        == table.incremental(table.cursor, table.cursor, deletes=True).count()
    )


def test_all_versions_up_to_an_old_savepoint_are_its_rows(tmp_path: Path) -> None:
    """They were the rows of the earliest readable snapshot, which came later."""
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", type="copy_on_write", clean_every=None)
    table.upsert([row(1)])
    table.savepoints.create("s")
    for number in range(5):
        table.upsert([row(1, fare=float(number)), row(number + 2)])
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    found = table.changes("earliest", "s", versions="all").to_arrow().to_pylist()
    assert [(one["op"], one["after"]) for one in found] == [("i", row(1))]


def test_what_is_made_of_a_dataset_lives_on_without_it(table: hoodoo.Table) -> None:
    """Its merged parts lay in files that were deleted with the Python object, under a filter or
    scanner made from it.
    """
    table.upsert([row(number, "xy"[number % 2], 2, 2.0) for number in range(4)])
    filtered = table.scan().to_dataset().filter(pc.field("fare") > 1.5)
    scanner = table.scan().to_dataset().scanner(columns=["id"])
    gc.collect()
    assert filtered.to_table().num_rows == 4 and scanner.to_table().num_rows == 10 and filtered.count_rows() == 4


def test_a_dataset_leaves_no_file_behind_whatever_happens(
    table: hoodoo.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in the middle left merged files in the temporary folder; now there is none."""
    table.upsert([row(number, "xy"[number % 2], 2, 2.0) for number in range(4)])
    there = tmp_path / "scratch"
    there.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(there))
    dataset = table.scan().to_dataset()
    assert dataset.count_rows() == dataset.to_table().num_rows == 10
    log = next(entry.file.path for group in table.handle.history.head().groups() for entry in group.logs)
    (tmp_path / "t" / log).unlink()
    with pytest.raises(hoodoo.CorruptTable):
        dataset.to_table()
    assert list(there.iterdir()) == []


def test_keys_that_are_asked_for_are_never_rounded(table: hoodoo.Table) -> None:
    """get([1.5]) gave the row of key 1; other values ended in errors of Arrow."""
    for fits in (
        [1, 3],
        np.array([1, 3]),
        pd.Series([1, 3]),
        pa.array([1, 3]),
        pa.chunked_array([[1], [3]]),
        (1.0, 3),
        [{"id": 1, "city": "y"}, {"id": 3, "city": "y"}],
    ):
        assert table.get(fits)["id"].to_pylist() == [1, 3]
    assert table.get([]).num_rows == 0
    for wrong in ([1.5], [2**70], ["a"], [None], [1, "a"], pa.array(["x"]), [[1]]):
        with pytest.raises(hoodoo.HoodooError):
            table.get(wrong)


def test_a_pull_with_deletes_filters_by_columns_that_it_does_not_show(table: hoodoo.Table) -> None:
    """The filter was read against the columns that were chosen, and meta columns ended in an error of Arrow."""
    since = table.cursor
    table.upsert([row(1, "y", 2, 9.0)])
    table.delete([{"id": 2, "city": "x"}, {"id": 4, "city": "x"}])
    found = table.incremental(since, columns=["id"], where="fare > 5 OR id = 2", deletes=True).to_arrow().to_pylist()
    assert found == [{"id": 1, "_hoodie_is_deleted": False}, {"id": 2, "_hoodie_is_deleted": True}]
    for where in ("_hoodie_record_key = '2'", pc.field("_hoodie_record_key") == "2"):
        shown = table.incremental(since, where=where, meta=True, deletes=True).to_arrow().to_pylist()
        assert [(one["id"], one["_hoodie_record_key"], one["_hoodie_is_deleted"]) for one in shown] == [(2, "2", True)]


def test_following_goes_past_slots_that_another_engine_took_back(
    table: hoodoo.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asked for the range up to such a slot for ever."""
    since = table.cursor
    for number in range(3):
        table.upsert([row(30 + number)])
    head = History.head

    def with_one_undone(self: History) -> View:
        return replace(head(self), undone=((since.seq + 1, since.seq + 1),))

    monkeypatch.setattr(History, "head", with_one_undone)
    monkeypatch.setattr(History, "known_head", with_one_undone)
    assert [found.cursor.seq - since.seq for found in table.follow(since, most_commits=1, timeout_seconds=0)] == [2, 3]


def test_a_look_up_that_a_clean_overtakes_is_expired_not_damaged(
    table: hoodoo.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that files should be restored from a backup."""
    then = table.cursor
    table.upsert([row(number, "xy"[number % 2], 2) for number in range(10)])
    table.compact()
    table.upsert([row(40)])
    view = table.handle.history.view(then.seq)
    assert hoodoo.open(table.path).maintenance.clean(retain_hours=0, retain_commits=0).files
    seen = table.handle.look()._replace(view=view)
    monkeypatch.setattr(table.handle, "at", lambda position: seen)
    with pytest.raises(hoodoo.SnapshotExpired):
        table.get([1, 2])


def test_columns_and_batch_sizes_that_make_no_sense_are_refused(table: hoodoo.Table) -> None:
    """A generator of names gave no columns, a name given twice an error of Arrow, batches of no rows the advice to
    restore the file.
    """
    assert table.scan(columns=(name for name in ["id"])).to_arrow().column_names == ["id"]  # type: ignore[arg-type]
    for read in (
        table.scan,
        lambda columns: table.changes("earliest", columns=columns),
        lambda columns: table.get([1], columns=columns),
    ):
        with pytest.raises(hoodoo.ColumnError, match="twice"):
            read(columns=["id", "id"])
    for rows in (0, -1, True, 1.5):
        with pytest.raises(hoodoo.OptionError):
            table.scan().batches(rows)  # type: ignore[arg-type]


def test_a_value_that_outgrew_its_column_says_to_open_the_table_anew(
    table: hoodoo.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that was open while another engine widened a column gave an error of Arrow."""
    table.upsert([row(1, "y", 1 << 40)])
    narrow = pa.schema([field.with_type(pa.int32()) if field.name == "ts" else field for field in SCHEMA])
    seen = table.handle.look()
    as_it_was = seen._replace(config=replace(seen.config, created=TableSchema.first(narrow)))
    monkeypatch.setattr(table.handle, "look", lambda: as_it_was)
    with pytest.raises(hoodoo.ColumnError, match="open the table again"):
        table.scan().to_arrow()


def test_tasks_of_every_read_travel(table: hoodoo.Table) -> None:
    since = table.cursor
    table.delete([{"id": 2, "city": "x"}])
    for rows in (table.scan(where="id > 3"), table.changes(since), table.incremental(since, deletes=True)):
        parts = [pickle.loads(pickle.dumps(task))() for task in rows.tasks()]
        assert pa.concat_tables(parts).num_rows == rows.count() == len(rows.to_arrow())


def test_a_log_of_hudis_that_has_more_blocks_than_were_committed_is_damaged_although_no_digest_says_so(
    tmp_path: Path,
) -> None:
    """What another engine wrote has no digest; the size that its commit states is known all the same, and was not
    looked at.
    """
    path = unpack("mor_sql", tmp_path)
    log = next(
        found
        for found in sorted(path.rglob(".*.log.*"))
        if found.read_bytes().count(b"#HUDI#") > 0 and ".crc" not in found.name
    )
    log.write_bytes(log.read_bytes() + log.read_bytes())  # sound blocks, but not those that were committed
    with pytest.raises(hoodoo.CorruptTable, match="does not match the size"):
        hoodoo.open(path).scan().to_arrow()


@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_a_key_that_came_back_elsewhere_and_was_clustered_is_one_update(tmp_path: Path, kind: str) -> None:
    """A key was deleted from one full file group, inserted into another, and that one was clustered: changes named it
    twice, as a delete and an insert, and a copy that was kept by incremental(deletes=True) lost the live row.
    """
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    source = hoodoo.create(tmp_path / "a", schema, key="id", type=kind, target_file_bytes=1)
    copy = hoodoo.create(tmp_path / "b", schema, key="id")
    source.upsert([{"id": 6, "v": "o"}, {"id": 11, "v": "o"}])
    copy.upsert(source.incremental("earliest", deletes=True))
    since = source.cursor
    source.delete([{"id": 11}])
    source.compact()
    source.upsert([{"id": 10, "v": "x"}, {"id": 11, "v": "x"}])
    for step in (None, "v"):
        if step:
            source.maintenance.cluster(sort_by=step)
        for rows in (source.changes(since), source.changes(since, versions="diff")):
            found = [(row["op"], row["after"]["id"]) for row in rows.to_arrow().to_pylist()]
            assert sorted(found) == [("i", 10), ("u", 11)]
    copy.upsert(source.incremental(since, deletes=True))
    assert sorted(copy.scan().to_arrow()["id"].to_pylist()) == [6, 10, 11]


@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_a_key_that_came_back_elsewhere_is_one_update_whatever_rewrote_the_file_since_and_in_either_direction(
    tmp_path: Path, kind: str
) -> None:
    """The newest file of the group that took the key brings none itself; changes named the key twice, and diff() did so
    backwards too, where a deletion brings the key.
    """
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    table = hoodoo.create(tmp_path / "t", schema, key="id", type=kind)
    copy = hoodoo.create(tmp_path / "copy", schema, key="id")
    table.insert([{"id": 1, "v": 1}], bulk=True)
    table.insert([{"id": key, "v": 1} for key in (9, *range(100, 200))], bulk=True)
    copy.upsert(table.incremental("earliest", deletes=True))
    since = table.cursor
    table.delete([{"id": 9}])
    table.compact()
    table.upsert([{"id": 9, "v": 5}])  # into the smaller file
    table.upsert([{"id": 1, "v": 7}])
    table.compact()
    for rows in (table.changes(since), table.changes(since, versions="diff")):
        found = [(row["op"], row["before"], row["after"]) for row in rows.to_arrow().to_pylist()]
        assert sorted(found, key=str) == [
            ("u", {"id": 1, "v": 1}, {"id": 1, "v": 7}),
            ("u", {"id": 9, "v": 1}, {"id": 9, "v": 5}),
        ]
    back = table.changes(table.cursor, since, versions="diff").to_arrow().to_pylist()
    assert sorted((row["op"], row["after"]["id"], row["after"]["v"]) for row in back) == [("u", 1, 1), ("u", 9, 1)]
    copy.upsert(table.incremental(since, deletes=True))
    assert copy.get([{"id": 9}]).to_pylist() == [{"id": 9, "v": 5}]


def test_all_versions_from_the_earliest_are_read_after_cleaning_forgot_a_schema(tmp_path: Path) -> None:
    columns = "id bigint, p string, n bigint"
    how = {"type": "copy_on_write", "clean_every": None}
    table = hoodoo.create(tmp_path / "t", columns, key="id", partition_by="p", **how)
    table.insert([{"id": 1, "p": "a", "n": 1}])
    table.alter.add_column("x", pa.int64(), default=None)
    table.upsert([{"id": 1, "p": "a", "n": 2, "x": 1}])
    table.alter.add_column("y", pa.int64(), default=None)
    for number in range(3):
        table.upsert([{"id": 2, "p": "b", "n": number, "x": 1, "y": 1}])
    table.upsert([{"id": 1, "p": "a", "n": 3, "x": 1, "y": 1}])
    table.upsert([{"id": 2, "p": "b", "n": 9, "x": 1, "y": 1}])
    table.maintenance.clean(retain_hours=0, retain_commits=3)
    table = hoodoo.open(table.path)
    first = table.handle.history.head().min_readable
    found = table.changes("earliest", versions="all").to_arrow()
    assert found.num_rows > table.changes(first, versions="all").to_arrow().num_rows and table.verify().ok


@pytest.mark.parametrize("partitions", [["p", "q"], ["q/x", "a b"]])
def test_rows_are_looked_up_in_the_order_of_keys_that_several_partitions_have(
    tmp_path: Path, partitions: list[str]
) -> None:
    table = hoodoo.create(tmp_path / "t", "k bigint, part string", key="k", partition_by="part")
    rows = [{"k": key, "part": part} for key in (1, 2) for part in partitions]
    table.insert(rows)
    for order in itertools.permutations(rows):
        assert table.get(list(order)).to_pylist() == list(order)
    assert table.get([2, 1], columns=["k"])["k"].to_pylist() == [2, 2, 1, 1]
