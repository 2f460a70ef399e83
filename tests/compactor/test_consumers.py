"""Consumers: the table keeps their positions, which only grow, and cleaning waits for them, but not for ever."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tables import later

import hoodoo
from hoodoo.timeline.holds import consumers

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])


def rows(*pairs: tuple[str, int]) -> pa.Table:
    return pa.table({"id": [pair[0] for pair in pairs], "ts": [pair[1] for pair in pairs]}, schema=SCHEMA)


def make(path: Path, kind: str = "copy_on_write", **options: Any) -> hoodoo.Table:
    return hoodoo.create(
        path,
        SCHEMA,
        key="id",
        order_by="ts",
        type=kind,
        **{"compact_after_logs": None, "clean_every": None, "retain_hours": 0, "retain_commits": 1, **options},
    )


def test_a_consumer_keeps_its_position_and_reads_each_change_once(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(("a", 1), ("b", 1)))
    reader = table.consumer("job")
    first = table.incremental(since=reader.position)
    assert first.to_arrow()["id"].to_pylist() == ["a", "b"]
    reader.commit(first.cursor)
    table.upsert(rows(("b", 2)))
    again = hoodoo.open(table.path).consumer(
        "job", start="earliest"
    )  # known already: where it starts is no longer looked at
    assert str(again.position) == str(first.cursor)
    assert table.incremental(since=again.position).to_arrow()["id"].to_pylist() == ["b"]


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_a_clean_keeps_the_snapshot_of_a_consumer_and_takes_it_when_the_consumer_moves_on(
    tmp_path: Path, kind: str
) -> None:
    table = make(tmp_path / "t", kind)
    results = [table.upsert(rows(("a", number))) for number in range(6)]
    table.compact()
    reader = table.consumer("job", start=results[2].cursor)
    table.maintenance.clean()
    assert table.scan(as_of=reader.position).to_arrow()["ts"].to_pylist() == [2]
    reader.commit(results[4].cursor)
    table.maintenance.clean()
    if kind == "copy_on_write":  # merge-on-read has one version for all of them
        with pytest.raises(hoodoo.SnapshotExpired):
            table.scan(as_of=results[3].cursor)
    assert table.scan(as_of=reader.position).to_arrow()["ts"].to_pylist() == [4]
    reader.drop()
    table.upsert(rows(("a", 9)))
    table.maintenance.clean()
    with pytest.raises(hoodoo.SnapshotExpired):
        table.scan(as_of=results[4].cursor)


def test_a_clean_gives_up_a_consumer_that_is_further_behind_than_consumer_hours_beyond_retention(
    tmp_path: Path,
) -> None:
    table = make(tmp_path / "t", retain_hours=2, consumer_hours=5)
    first = table.upsert(rows(("a", 0)))
    reader = table.consumer("job", start=first.cursor)
    for number in range(3):
        table.upsert(rows(("a", 1 + number)))
    later(table, 6.9).maintenance.clean()
    assert table.scan(as_of=reader.position).count() == 1
    assert [one.waited_for for one in table.consumers()] == [True]
    assert later(table, 7.1).consumers()[0].waited_for is False
    assert later(table, 7.1).maintenance.clean().files == 3
    with pytest.raises(hoodoo.SnapshotExpired):
        table.scan(as_of=reader.position)


def test_a_consumer_that_has_read_everything_is_never_given_up(tmp_path: Path) -> None:
    table = make(tmp_path / "t", consumer_hours=0)
    table.upsert(rows(("a", 0)))
    reader = table.consumer("job", start=table.upsert(rows(("a", 1))).cursor)
    later(table, 1000).maintenance.clean()
    assert table.scan(as_of=reader.position).count() == 1


def test_a_position_only_grows_and_one_before_it_is_refused(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    results = [table.upsert(rows(("a", number))) for number in range(3)]
    reader = table.consumer("job", start=results[1].cursor)
    with pytest.raises(hoodoo.PositionError, match="cannot go back"):
        reader.commit(results[0].cursor)
    reader.commit(results[1].cursor)
    assert reader.position == results[1].cursor
    with pytest.raises(hoodoo.PositionError, match="after the newest"):
        reader.commit(hoodoo.Cursor(reader.position.table, 99))


def test_of_many_processes_that_move_one_consumer_at_once_the_furthest_counts(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    for number in range(40):
        table.upsert(rows(("a", number)))
    table.consumer("job")
    order = list(range(1, 41))
    random.Random(5).shuffle(order)

    def move(positions: list[int]) -> None:
        for position in positions:
            try:
                consumers.advance(table.handle.store, "job", position)
            except hoodoo.PositionError:
                assert consumers.get(table.handle.store, "job").position > position

    threads = [threading.Thread(target=move, args=(order[part::4],)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert consumers.get(table.handle.store, "job").position == 40


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a b", "x" * 101, "ü", "a\n", None])
def test_a_name_that_could_leave_its_folder_is_refused(tmp_path: Path, name: Any) -> None:
    table = make(tmp_path / "t")
    with pytest.raises(hoodoo.OptionError):
        table.consumer(name)
    assert table.consumers() == []


def test_consumers_are_listed_with_how_far_they_are_behind_and_dropped(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    first = table.upsert(rows(("a", 0)))
    behind, done = table.consumer("behind", first.cursor), table.consumer("done")
    table.upsert(rows(("a", 1)))
    table.upsert(rows(("a", 2)))
    done.commit(table.cursor)
    [one, two] = table.consumers()
    assert (one.name, one.slots, one.position, one.waited_for) == ("behind", 2, first.cursor, True) and one.seconds >= 0
    assert (two.name, two.slots, two.seconds) == ("done", 0, 0.0)
    behind.drop()
    assert [one.name for one in table.consumers()] == ["done"]
    with pytest.raises(hoodoo.PositionError, match="does not exist"):
        behind.commit(table.cursor)
    with pytest.raises(hoodoo.PositionError, match="does not exist"):
        behind.position  # noqa: B018


def test_a_consumer_cannot_start_where_files_are_gone(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    results = [table.upsert(rows(("a", number))) for number in range(4)]
    table.maintenance.clean()
    with pytest.raises(hoodoo.SnapshotExpired, match="was cleaned"):
        table.consumer("job", start=results[0].cursor)
    assert table.consumers() == []


def test_a_consumer_that_registers_while_a_clean_is_decided_keeps_its_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path / "t")
    results = [table.upsert(rows(("a", number))) for number in range(4)]
    other = hoodoo.open(table.path)
    begin = type(table.handle.timeline).begin

    def registers_first(self: Any, action: str, *given: Any) -> Any:
        if action == "clean":
            other.consumer("job", start=results[1].cursor)
        return begin(self, action, *given)

    monkeypatch.setattr(type(table.handle.timeline), "begin", registers_first)
    table.maintenance.clean()
    assert table.scan(as_of=results[1].cursor).to_arrow()["ts"].to_pylist() == [1]
    with pytest.raises(hoodoo.SnapshotExpired):
        table.scan(as_of=results[0].cursor)


def test_archiving_keeps_the_slots_that_a_consumer_has_not_read(tmp_path: Path) -> None:
    table = make(tmp_path / "t", consumer_hours=2000)
    results = [table.upsert(rows((f"k{number}", 1))) for number in range(8)]
    reader = table.consumer("job", start=results[2].cursor)
    later(table, 1000).maintenance.archive()
    assert sorted(table.incremental(since=reader.position).to_arrow()["id"].to_pylist()) == [
        f"k{number}" for number in range(3, 8)
    ]
