"""Savepoints keep snapshots, restores bring them back as new commits, and pins hold them for a while; a clean in
between never wins.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi_rows import hudi_rows

import hoodoo
from hoodoo.table import Table
from hoodoo.timeline import layout
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.holds import leases

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64())])
KINDS = pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])


def rows(*triples: tuple[int, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, triple, strict=True)) for triple in triples], schema=SCHEMA)


def make(path: Path, kind: str = "merge_on_read") -> Table:
    table = hoodoo.create(
        path,
        SCHEMA,
        key="id",
        partition_by="city",
        order_by="ts",
        type=kind,
        compact_after_logs=None,
        clean_every=None,
        checkpoint_every=4,
    )
    table.upsert(rows((1, "p", 1), (2, "p", 1), (3, "q", 1)))
    return table


def contents(scan: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in scan.to_arrow().to_pylist())


def change_everything(table: Table) -> None:
    table.upsert(rows((1, "p", 5), (4, "p", 5), (5, "r", 5)))
    table.delete(rows((2, "p", 0)))
    table.delete_partitions(["q"])
    table.compact()


def clean_hard(table: Table) -> Any:
    return table.maintenance.clean(retain_hours=0, retain_commits=1)


@KINDS
def test_a_savepoint_outlives_cleans_until_it_is_given_up(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind)
    before, start = contents(table.scan()), table.cursor
    table.savepoints.create("eod")
    change_everything(table)
    clean_hard(table)
    table.upsert(rows((9, "p", 9)))
    clean_hard(table)
    assert contents(hoodoo.open(tmp_path / "t").scan(as_of="eod")) == before
    assert table.verify().problems == []
    table.savepoints.delete("eod")
    assert clean_hard(table).files > 0
    with pytest.raises(hoodoo.SnapshotExpired):
        table.scan(as_of=start)
    with pytest.raises(hoodoo.PositionError, match="the table has no savepoints"):
        table.savepoints.delete("eod")


@KINDS
def test_a_restore_brings_rows_back_as_a_commit_and_keeps_history(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind)
    before = contents(table.scan())
    table.savepoints.create("eod")
    change_everything(table)
    changed, cursor = contents(table.scan()), table.cursor
    result = table.restore("eod")
    assert result.instant and contents(table.scan()) == before
    assert sorted((r["id"], r["city"], r["ts"]) for r in hudi_rows(tmp_path / "t")) == before
    assert contents(table.scan(as_of=cursor)) == changed
    assert contents(table.incremental(since=cursor)) == before  # every group differed
    table.restore(cursor)
    assert contents(table.scan()) == changed
    assert sorted((r["id"], r["city"], r["ts"]) for r in hudi_rows(tmp_path / "t")) == changed
    assert table.restore(table.cursor).instant == ""  # nothing to bring back
    table.upsert(rows((2, "p", 7)))
    assert (2, "p", 7) in contents(table.scan())
    assert table.verify().problems == []


def test_a_restore_leaves_file_groups_alone_that_did_not_change(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    start = table.cursor
    table.upsert(rows((3, "q", 4)))
    result = table.restore(start)
    assert (result.updated, result.rows_rewritten, result.files) == (1, 1, 1)
    assert contents(table.scan()) == [(1, "p", 1), (2, "p", 1), (3, "q", 1)]


def test_a_restore_meets_a_write_that_came_in_between_and_undoes_it_as_well(tmp_path: Path) -> None:
    table, other = make(tmp_path / "t"), hoodoo.open(tmp_path / "t")
    start = table.cursor
    table.upsert(rows((1, "p", 5)))
    put = table.handle.store.put_if_absent

    def racing(key: str, data: Any, durable: bool = True) -> None:
        if key.startswith(layout.SLOTS):
            table.handle.store.put_if_absent = put  # type: ignore[method-assign]
            other.delete_partitions(["q"])
        put(key, data, durable)

    table.handle.store.put_if_absent = racing  # type: ignore[method-assign]
    assert table.restore(start).retries == 1
    assert contents(table.scan()) == [(1, "p", 1), (2, "p", 1), (3, "q", 1)]


def test_savepoints_are_refused_with_a_reason(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.savepoints.create("a")
    assert {name: cursor.seq for name, cursor in table.savepoints.list().items()} == {"a": 2}
    for name in ("", "20260101000000000", "earliest", "a\nb", "x" * 201, "hoodoo:1"):
        with pytest.raises(hoodoo.OptionError, match="Savepoint name"):
            table.savepoints.create(name)
    table.upsert(rows((1, "p", 2)))
    with pytest.raises(hoodoo.OptionError, match="already exists at slot 2"):
        table.savepoints.create("a")
    with pytest.raises(hoodoo.OptionError, match="already has the savepoint"):
        table.savepoints.create("b", as_of=table.savepoints.list()["a"])
    with pytest.raises(hoodoo.PositionError, match="not a valid position"):
        table.restore("b")


def test_a_savepoint_of_a_snapshot_that_was_cleaned_is_refused(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write")
    start = table.cursor
    change_everything(table)
    clean_hard(table)
    with pytest.raises(hoodoo.SnapshotExpired):
        table.savepoints.create("late", as_of=start)


def test_hudi_keeps_what_a_savepoint_names(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows((1, "p", 2)))
    table.savepoints.create("eod")
    names = sorted(key.rpartition("/")[2] for key, _ in table.handle.store.list(layout.TIMELINE) if ".savepoint" in key)
    instant = table.handle.history.slot(3).instant
    assert [name.partition(".")[0].partition("_")[0] for name in names] == [instant, instant]
    assert [name.rpartition(".")[2] for name in names] == ["inflight", "savepoint"]
    table.savepoints.delete("eod")
    hoodoo.open(tmp_path / "t").upsert(rows((1, "p", 3)))
    assert not [key for key, _ in table.handle.store.list(layout.TIMELINE) if ".savepoint" in key]


@KINDS
def test_a_pinned_reader_loses_no_file_and_an_expired_one_hears_so(tmp_path: Path, kind: str) -> None:
    table, reader = make(tmp_path / "t", kind), hoodoo.open(tmp_path / "t")
    before = contents(table.scan())
    plain = reader.scan()
    with reader.pin() as pin:
        change_everything(table)
        clean_hard(table)
        table.upsert(rows((1, "p", 8)))
        clean_hard(table)
        table.maintenance.sweep(0)
        assert contents(pin.scan()) == before
        assert contents(plain) == before  # under another reader's lease
    with pytest.raises(hoodoo.SnapshotExpired, match="has expired"):
        pin.scan()
    assert clean_hard(table).files > 0
    with pytest.raises(hoodoo.SnapshotExpired):
        plain.to_arrow()
    assert table.verify().problems == []


def test_a_lease_ends_by_the_stores_clock_whatever_it_says(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    pin = table.pin(hours=0.5)
    store, key = table.handle.store, pin._lease.key
    assert leases.list_protected_commits(store) == {2}
    path, hour = tmp_path / "t" / key, 3600
    now = time.time()
    os.utime(path, (now - 0.4 * hour,) * 2)
    assert leases.list_protected_commits(store) == {2}
    os.utime(path, (now - 0.6 * hour,) * 2)
    assert leases.list_protected_commits(store) == set() and store.exists(key)
    os.utime(path, (now - 2 * hour,) * 2)
    assert leases.list_protected_commits(store) == set() and not store.exists(key)
    for body in (b'{"hours":1e9,"seq":2}', b'{"hours":"x"}', b"not json", b'{"hours":1,"seq":2}'):
        store.put(layout.LEASES + "planted", body)
        os.utime(tmp_path / "t" / layout.LEASES / "planted", (now + 1e9,) * 2)
        assert leases.list_protected_commits(store) == set()
    store.put(layout.LEASES + "planted", b'{"hours":1e9,"seq":2}')
    os.utime(tmp_path / "t" / layout.LEASES / "planted", (now - 200 * hour,) * 2)
    assert leases.list_protected_commits(store) == set()


def test_a_pin_can_be_renewed_until_it_has_ended(tmp_path: Path) -> None:
    make(tmp_path / "t")
    moment = [0.0]
    store = hoodoo.open(tmp_path / "t").handle.store
    table = Table(store, Environment(elapsed=lambda: moment[0]))
    pin = table.pin(hours=1)
    moment[0] = 3599.0
    pin.renew(1)
    moment[0] = 7100.0
    assert pin.scan().count() == 3
    moment[0] = 7200.0
    for use in (pin.scan, pin.renew):
        with pytest.raises(hoodoo.SnapshotExpired):
            use()
    with pytest.raises(hoodoo.OptionError, match="hours"):
        table.pin(hours=1000)


@pytest.mark.parametrize("order", ["lease first", "clean decides first", "clean deletes first"])
def test_a_lease_and_a_clean_that_race_never_leave_a_reader_without_its_files(tmp_path: Path, order: str) -> None:
    """The reader writes its lease, then looks at the head; the clean takes its slot, then looks for leases."""
    table, reader = make(tmp_path / "t", "copy_on_write"), hoodoo.open(tmp_path / "t")
    seq = reader.cursor.seq
    before = contents(reader.scan())
    change_everything(table)
    store = table.handle.store
    originals = {"put_if_absent": store.put_if_absent, "delete": store.delete}
    pins: list[Any] = []

    def pin() -> None:
        store.put_if_absent, store.delete = originals["put_if_absent"], originals["delete"]  # type: ignore[method-assign]
        try:
            pins.append(reader.pin(as_of=hoodoo.Cursor(reader.cursor.table, seq)))
        except hoodoo.SnapshotExpired:
            pins.append(None)

    def put(key: str, data: Any, durable: bool = True) -> None:
        if order == "lease first" and key.startswith(layout.SLOTS):
            pin()
        originals["put_if_absent"](key, data, durable)
        if order == "clean decides first" and key.startswith(layout.SLOTS):
            pin()

    def delete(key: str) -> None:
        originals["delete"](key)
        if order == "clean deletes first" and key.endswith(".parquet"):
            pin()

    store.put_if_absent, store.delete = put, delete  # type: ignore[method-assign]
    clean_hard(table)
    assert len(pins) == 1
    if pins[0]:
        assert contents(pins[0].scan()) == before
        pins[0].release()
    assert (pins[0] is not None) == (order == "lease first")
    assert table.verify().problems == []
