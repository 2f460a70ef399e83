"""Who still needs a file that has the rows of a purge is named before anything is written."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from purged import KINDS, batch, content, key, keys_of, make, where_named

import hoodoo
from hoodoo.compactor.cleaning.purge import _Purge


@pytest.mark.parametrize("kind", KINDS)
def test_a_savepoint_a_pin_and_a_consumer_that_need_a_file_are_named_before_anything_is_written(
    tmp_path: Path, kind: str
) -> None:
    table = make(tmp_path / "t", kind)
    first = table.upsert(batch([1, 2], "x", 0))
    table.savepoints.create("eod")
    table.upsert(batch([1], "x", 1))
    pin = table.pin(as_of=first.cursor)
    table.consumer("billing", start=first.cursor)
    head, there = table.cursor, content(table)
    with pytest.raises(hoodoo.PurgeBlocked) as blocked:
        table.maintenance.purge(keys_of((1, "x")))
    details = blocked.value.details
    assert (details["savepoints"], details["leases"], details["consumers"]) == (
        ["eod"],
        [first.cursor.seq],
        ["billing"],
    )
    assert "savepoints.delete('eod')" in str(blocked.value) and "'billing'" in str(blocked.value) and details["files"]
    assert (table.cursor, content(table)) == (head, there)
    copy = pickle.loads(pickle.dumps(blocked.value))
    assert (copy.code, copy.details) == ("PURGE_BLOCKED", details)
    table.savepoints.delete("eod")
    with pytest.raises(hoodoo.PurgeBlocked, match="pinned the snapshot at slot"):
        table.maintenance.purge(keys_of((1, "x")))
    pin.release()
    with pytest.raises(hoodoo.PurgeBlocked, match="has not read past them"):
        table.maintenance.purge(keys_of((1, "x")))
    table.consumer("billing").drop()
    assert table.maintenance.purge(keys_of((1, "x"))).files_proved


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_that_read_past_the_delete_is_not_in_the_way(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind)
    table.upsert(batch([1, 2], "x", 0))
    reader = table.consumer("billing", start=table.cursor)
    table.delete(keys_of((1, "x")))
    table.compact()
    with pytest.raises(hoodoo.PurgeBlocked):
        table.maintenance.purge(keys_of((1, "x")))
    reader.commit(table.cursor)
    assert table.maintenance.purge(keys_of((1, "x"))).files_proved
    assert where_named(table, 1, "x") == []
    assert table.scan(as_of=reader.position).count() == 1


def test_a_consumer_that_has_not_read_the_rows_yet_is_in_the_way_as_well(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write")
    reader = table.consumer("billing", start=table.upsert(batch([1], "x", 0)).cursor)
    table.upsert(batch([2], "y", 0))
    with pytest.raises(
        hoodoo.PurgeBlocked, match="'billing'"
    ):  # its snapshot has no such file, but the purge would end its readability
        table.maintenance.purge(keys_of((2, "y")))
    reader.drop()
    assert table.maintenance.purge(keys_of((2, "y"))).files_proved


def test_holds_on_files_without_the_keys_block_nothing(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write")
    table.upsert(batch([1], "x", 0))
    table.savepoints.create("before")
    table.upsert(batch([2], "y", 0))
    with table.pin(as_of="before"):
        assert table.maintenance.purge(keys_of((2, "y"))).files_proved
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
            other.savepoints.create("late", as_of=first.cursor)
        return begin(self, action, *given)

    monkeypatch.setattr(type(table.handle.timeline), "begin", saved_first)
    report = table.maintenance.purge(keys_of((1, "x")))
    assert (
        not report.files_proved
        and {path.rpartition("/")[2] for path in report.holders} == set(where_named(table, 1, "x")) != set()
    )
    assert (report.rows_deleted, report.files_deleted) == (1, 0)
    assert table.scan(as_of="late").count() == 2
    assert table.scan().count() == 1
    with pytest.raises(hoodoo.PurgeBlocked, match="'late'"):
        table.maintenance.purge(keys_of((1, "x")))
    table.savepoints.delete("late")
    assert table.maintenance.purge(keys_of((1, "x"))).files_proved


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
    report = table.maintenance.purge(keys_of((1, "x")))
    monkeypatch.undo()
    assert report.rows_deleted == 1 and report.instants and report.holders and not report.files_proved
    assert table.scan(as_of=first.cursor).count() == 2
    for pin in pins:
        pin.release()
    assert table.maintenance.purge(keys_of((1, "x"))).files_proved and where_named(table, 1, "x") == []
