"""A process may end at any store operation, and any reply may be lost: a write is visible for ever or never was, and
the next one just works.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faulty_store import ALL, Died, FaultyStore
from hudi_rows import hudi_rows

import hoodoo
from hoodoo.table import Table

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])
Action = Callable[[Table], Any]


def rows(*triples: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, triple, strict=True)) for triple in triples], schema=SCHEMA)


START = rows(("a", "p", 1), ("b", "p", 1), ("c", "q", 1))
ACTIONS: dict[str, Action] = {
    "upsert": lambda table: table.upsert(rows(("a", "p", 2), ("d", "p", 2), ("e", "r", 2))),
    "delete": lambda table: table.delete(rows(("a", "p", 0), ("c", "q", 0))),
    "insert_overwrite": lambda table: table.insert_overwrite(rows(("z", "p", 9))),
    "delete_partitions": lambda table: table.delete_partitions(["q"]),
    "compact": lambda table: table.compact(),
    "clean": lambda table: table.maintenance.clean(retain_hours=0, retain_commits=1),
}


def build(path: Path, kind: str) -> None:
    table = hoodoo.create(
        path,
        SCHEMA,
        key="id",
        partition_by="city",
        order_by="ts",
        type=kind,
        compact_after_logs=None,
        clean_every=None,
        checkpoint_every=3,
    )
    table.upsert(START)
    table.upsert(rows(("b", "p", 5)))
    table.compact()
    table.delete(rows(("c", "q", 0)))


def contents(table: Table) -> list[Any]:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


def as_hudi(path: Path) -> list[Any]:
    return sorted((row["id"], row["city"], row["ts"]) for row in hudi_rows(path))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind in ("merge_on_read", "copy_on_write")
        for name in ACTIONS
        if (kind, name) != ("copy_on_write", "compact")
    ],
)
def test_a_crash_at_any_store_operation_leaves_the_table_before_or_after(tmp_path: Path, kind: str, name: str) -> None:
    build(tmp_path / "start", kind)
    before, after = _before_and_after(tmp_path, name)
    number, done = 0, False
    while not done:
        number += 1
        for how in ("die", "die after"):
            path = tmp_path / f"{number}-{how}"
            shutil.copytree(tmp_path / "start", path)
            store = FaultyStore(str(path))
            table = Table(store)
            store.count, store.fault = 0, lambda n, *_, at=number, how=how: how if n == at else None
            try:
                ACTIONS[name](table)
                done = True
            except Died:
                pass
            _recovers(path, before, after, name)
            shutil.rmtree(path)
    assert number >= 5


def _before_and_after(tmp_path: Path, name: str) -> tuple[list[Any], list[Any]]:
    before = contents(hoodoo.open(tmp_path / "start"))
    shutil.copytree(tmp_path / "start", tmp_path / "after")
    table = hoodoo.open(tmp_path / "after")
    ACTIONS[name](table)
    return before, contents(table)


def _recovers(path: Path, before: list[Any], after: list[Any], name: str) -> None:
    """Another process opens the table: it sees one of two states, Hudi's reader the same, and the next write needs no
    help.
    """
    table = hoodoo.open(path)
    seen = contents(table)
    assert seen in (before, after)
    assert as_hudi(path) == seen
    result = table.upsert(rows(("n", "p", 1)))
    assert result.retries == 0
    table.compact()
    assert contents(table) == sorted([*seen, ("n", "p", 1)])
    assert as_hudi(path) == contents(table)
    assert table.verify().problems == []


@pytest.mark.parametrize("name", ["upsert", "insert_overwrite", "compact"])
@pytest.mark.parametrize("how", ["lost", "lost after"])
def test_a_lost_request_or_reply_is_tried_again_and_never_counts_twice(tmp_path: Path, name: str, how: str) -> None:
    build(tmp_path / "start", "merge_on_read")
    before, after = _before_and_after(tmp_path, name)
    number, done = 0, False
    while not done:
        number += 1
        path = tmp_path / str(number)
        shutil.copytree(tmp_path / "start", path)
        store = FaultyStore(str(path))
        store.counted = ALL
        table = Table(store)
        store.count, store.fault = 0, lambda n, *_, at=number, how=how: how if n == at else None
        try:
            ACTIONS[name](table)
            done = store.count < number
            acknowledged = True
        except hoodoo.TryAgainError:
            acknowledged = False
        store.fault = lambda *_: None
        seen = contents(hoodoo.open(path))
        if acknowledged:
            assert seen == after
        assert seen in (before, after)
        assert as_hudi(path) == seen
        shutil.rmtree(path)
    assert number > 10


def test_an_unresolved_commit_is_reported_as_unknown_and_never_deleted(tmp_path: Path) -> None:
    build(tmp_path / "t", "merge_on_read")
    hoodoo.open(tmp_path / "t").set_options(commit_timeout_seconds=0.2)
    store = FaultyStore(str(tmp_path / "t"))
    store.counted = ALL
    table = Table(store)
    landed: list[str] = []

    def fault(number: int, operation: str, key: str) -> str | None:
        if operation == "put_if_absent" and "/commits/" in key:
            landed.append(key)
            return "lost after" if len(landed) == 1 else "lost"
        return "lost" if landed and operation == "get" and "/commits/" in key else None

    store.fault = fault
    with pytest.raises(hoodoo.CommitUnknown) as caught:
        ACTIONS["upsert"](table)
    assert caught.value.details["slot"] == 8
    reopened = hoodoo.open(tmp_path / "t")
    assert ("d", "p", 2) in contents(reopened)  # it had landed
    assert reopened.verify().problems == []


def test_a_writer_that_was_rolled_back_is_fenced_and_says_so(tmp_path: Path) -> None:
    build(tmp_path / "t", "merge_on_read")
    store = FaultyStore(str(tmp_path / "t"))
    slow, other = Table(store), hoodoo.open(tmp_path / "t")
    before = contents(other)

    def roll_back(number: int, operation: str, key: str) -> None:
        if operation == "put_if_absent" and "/commits/" in key:
            store.fault = lambda *_: None
            pending = [entry for entry in other.inspect.timeline() if entry.state in ("requested", "inflight")]
            other.maintenance.rollback(pending[0].instant)

    store.fault = roll_back
    with pytest.raises(hoodoo.Fenced, match="rolled back"):
        ACTIONS["upsert"](slow)
    assert contents(other) == before == as_hudi(tmp_path / "t")
    assert other.verify().problems == []
    assert ACTIONS["upsert"](slow).inserted == 2


def test_a_completed_instant_is_not_rolled_back(tmp_path: Path) -> None:
    build(tmp_path / "t", "merge_on_read")
    table = hoodoo.open(tmp_path / "t")
    instant = table.upsert(rows(("k", "p", 1))).instant
    with pytest.raises(hoodoo.AlreadyCommitted):
        table.maintenance.rollback(instant)
    with pytest.raises(hoodoo.PositionError):
        table.maintenance.rollback("20200101000000000")
    assert ("k", "p", 1) in contents(table)
