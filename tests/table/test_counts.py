"""A write counts what people count: rows that are new, changed, gone, and those that lost."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hoodoo

KINDS = ["merge_on_read", "copy_on_write"]


def made(path: Path, kind: str, order_by: str | None = "ts", **options: Any) -> hoodoo.Table:
    table = hoodoo.create(path / "t", "id string, v int64, ts int64", key="id", order_by=order_by, type=kind, **options)
    table.insert([{"id": f"k{n}", "v": n, "ts": 5} for n in range(100)])
    return table


def counts(result: hoodoo.WriteResult) -> tuple[int, int, int, int]:
    return result.inserted, result.updated, result.deleted, result.stale


def test_a_row_that_loses_is_stale_and_not_updated(tmp_path: Path) -> None:
    table = made(tmp_path, "copy_on_write")
    done = table.upsert([{"id": "k1", "v": 0, "ts": 4}, {"id": "k2", "v": 0, "ts": 6}, {"id": "new", "v": 0, "ts": 1}])
    assert done.exact and counts(done) == (1, 1, 0, 1)
    assert done.exact_counts() is done


def test_a_bound_says_that_it_is_one_and_can_be_made_exact(tmp_path: Path) -> None:
    table = made(tmp_path, "merge_on_read")
    done = table.upsert([{"id": "k1", "v": 0, "ts": 4}, {"id": "k2", "v": 0, "ts": 6}, {"id": "k3", "v": 0, "ts": 5}])
    assert not done.exact and counts(done) == (0, 3, 0, 0)
    assert "<= 3 updated" in repr(done)
    exact = done.exact_counts()
    assert exact.exact and counts(exact) == (0, 2, 0, 1)
    assert "2 updated, 0 deleted, 1 stale;" in repr(exact)
    assert (exact.cursor, exact.instant, exact.files) == (done.cursor, done.instant, done.files)


def test_counts_are_of_the_commit_whatever_came_after_it(tmp_path: Path) -> None:
    table = made(tmp_path, "merge_on_read")
    first = table.upsert([{"id": "k1", "v": 1, "ts": 4}, {"id": "k2", "v": 1, "ts": 7}])
    second = table.upsert([{"id": "k2", "v": 2, "ts": 6}, {"id": "k3", "v": 2, "ts": 7}])
    table.compact()
    table.delete(["k2", "k3"])
    assert counts(first.exact_counts()) == (0, 1, 0, 1)
    assert counts(second.exact_counts()) == (0, 1, 0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_deletes_that_lose_and_deletes_of_nothing(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path, kind)
    done = table.delete(["k1", "k2", "nothing"])
    assert counts(done.exact_counts()) == (0, 0, 2, 0)
    assert counts(table.delete(["k1"]).exact_counts()) == (0, 0, 0, 0)
    flagged = [{"id": f"k{n}", "v": 0, "ts": n, "_hoodie_is_deleted": True} for n in (3, 9)]
    assert counts(table.upsert(flagged).exact_counts()) == (0, 0, 1, 1)


def test_a_partition_that_is_dropped_counts_its_live_rows(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", "id string, p string, v int64", key="id", partition_by="p")
    table.insert([{"id": f"k{n}", "p": "x", "v": n} for n in range(10)])
    table.delete(["k1"])
    done = table.delete_partitions(["x"])
    assert (done.exact, done.deleted) == (False, 10)
    assert done.exact_counts().deleted == 9


@pytest.mark.parametrize("kind", KINDS)
def test_a_restore_counts_rows_and_not_files(tmp_path: Path, kind: str) -> None:
    """Three rows of a hundred were said to be a hundred inserted and a hundred deleted."""
    table = made(tmp_path, kind, order_by=None)
    before = table.upsert([{"id": "k0", "v": -1, "ts": 9}])
    table.upsert([{"id": "k1", "v": 0, "ts": 9}, {"id": "new", "v": 0, "ts": 9}])
    table.delete(["k2"])
    back = table.restore(before)
    assert back.exact and counts(back) == (1, 1, 1, 0)
    assert back.rows_rewritten == 100
    assert "1 inserted, 1 updated, 1 deleted, 100 rewritten" in repr(back)
    newest = table.history()[0]
    assert (newest.operation, newest.inserted, newest.updated, newest.deleted) == ("RESTORE", 1, 1, 1)
    again = table.restore(before)
    assert counts(again) == (0, 0, 0, 0) and table.count() == 100


def test_a_restore_of_more_than_it_compares_says_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path, "merge_on_read", order_by=None)
    before = table.cursor
    table.upsert([{"id": "k1", "v": 0, "ts": 9}])
    monkeypatch.setattr("hoodoo.writers.restore._COMPARED_BYTES", 1)
    back = table.restore(before)
    assert not back.exact and (back.inserted, back.deleted) == (100, 100)
    exact = back.exact_counts()
    assert (counts(exact), exact.rows_rewritten) == ((0, 1, 0, 0), 100)


@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_a_restore_to_columns_that_cannot_hold_the_rows_of_now_counts_files(tmp_path: Path, kind: str) -> None:
    """On a copy-on-write table, the counts of files were called exact."""
    table = hoodoo.create(tmp_path / "t", "id string, v int32", key="id", type=kind)
    table.insert([{"id": "a", "v": 1}, {"id": "b", "v": 1}])
    before = table.cursor
    table.alter.widen_column("v", "int64")
    table.upsert([{"id": "a", "v": 2**40}])
    back = table.restore(before)
    assert not back.exact and (back.inserted, table.get("a")["v"].to_pylist()) == (2, [1])
    with pytest.raises(hoodoo.UnsupportedTable, match="int32"):
        back.exact_counts()


CANNOT: dict[str, tuple[Callable[[hoodoo.Table], Any], type[Exception], str]] = {
    "cleaned": (lambda table: cleaned(table), hoodoo.SnapshotExpired, "was cleaned. Use slot"),
    "another table": (lambda table: another(table), hoodoo.TableReplaced, "does not contain the table"),
}


def cleaned(table: hoodoo.Table) -> None:
    for _ in range(3):
        table.insert_overwrite([{"id": "k1", "v": 0, "ts": 9}], whole_table=True)
    assert table.maintenance.clean(retain_hours=0, retain_commits=1).files


def another(table: hoodoo.Table) -> None:
    import shutil

    shutil.rmtree(table.path)
    made(Path(table.path).parent, "merge_on_read")


@pytest.mark.parametrize("why", CANNOT)
def test_counts_that_cannot_be_made_exact_any_more_say_why(tmp_path: Path, why: str) -> None:
    table = made(tmp_path, "merge_on_read")
    done = table.upsert([{"id": "k1", "v": 0, "ts": 4}])
    for _ in range(3):
        table.upsert([{"id": "k2", "v": 0, "ts": 9}])
    table.compact()
    spoil, error, words = CANNOT[why]
    spoil(table)
    with pytest.raises(error, match=words):
        done.exact_counts()


def test_a_result_that_travelled_does_not_count(tmp_path: Path) -> None:
    done = made(tmp_path, "merge_on_read").upsert([{"id": "k1", "v": 0, "ts": 4}])
    there = pickle.loads(pickle.dumps(done))
    assert there == done
    with pytest.raises(hoodoo.CallError, match="from another process"):
        there.exact_counts()
