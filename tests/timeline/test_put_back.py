"""A folder was put back from an older backup while a process had its table open. The process went on from slots that
were not there any more, and what it committed made the table unopenable later, or was lost.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import seaweed
from tables import KINDS, ids, make, rows

import hoodoo
from hoodoo.timeline.layout import slot_key


def put_back(path: Path, kind: str = "merge_on_read") -> hoodoo.Table:
    """A handle that knows slots up to 9, over a folder that has those up to 4."""
    table = make(path, kind)
    for number in range(3):
        table.upsert(rows(number))
    shutil.copytree(path, path.with_name("backup"))
    for number in range(3, 8):
        table.upsert(rows(number))
    shutil.rmtree(path)
    shutil.copytree(path.with_name("backup"), path)
    return table


@pytest.mark.parametrize("kind", KINDS)
def test_a_handle_reads_what_is_there_and_writes_on_from_there(tmp_path: Path, kind: str) -> None:
    table = put_back(tmp_path / "t", kind)
    assert ids(table) == [0, 1, 2]
    table.upsert(rows(100, part="z"))
    fresh = hoodoo.open(tmp_path / "t")
    assert ids(fresh) == ids(table) == [0, 1, 2, 100]
    for number in range(200, 206):  # beyond the slots that the handle remembered
        fresh.upsert(rows(number))
    assert ids(hoodoo.open(tmp_path / "t")) == ids(table) == [0, 1, 2, 100, *range(200, 206)]
    assert fresh.verify().problems == []


CALLS: dict[str, Callable[[hoodoo.Table], Any]] = {
    "upsert": lambda t: t.upsert(rows(100, part="z")),
    "delete": lambda t: t.delete(rows(0)),
    "savepoint": lambda t: t.savepoints.create("s"),
    "clean": lambda t: t.maintenance.clean(retain_hours=0, retain_commits=1),
    "compact": lambda t: t.compact(),
    "cluster": lambda t: t.maintenance.cluster(),
    "set_options": lambda t: t.set_options(clean_every=7),
    "sweep": lambda t: t.maintenance.sweep(older_than_hours=0),
}


@pytest.mark.parametrize("call", CALLS)
def test_no_call_leaves_a_gap_or_a_fork(tmp_path: Path, call: str) -> None:
    table = put_back(tmp_path / "t")
    CALLS[call](table)
    fresh = hoodoo.open(tmp_path / "t")
    for number in range(8):
        fresh.upsert(rows(300 + number))
    assert hoodoo.open(tmp_path / "t").verify().problems == []


def test_what_was_put_back_while_a_write_was_under_way_makes_it_start_again(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(1))
    shutil.copytree(tmp_path / "t", tmp_path / "backup")
    table.upsert(rows(2))
    start, began = table.handle.timeline.begin, []

    def begin(*given: Any) -> Any:
        attempt = start(*given)
        if not began:
            shutil.rmtree(tmp_path / "t")
            shutil.copytree(tmp_path / "backup", tmp_path / "t")
        began.append(attempt.instant)
        return attempt

    table.handle.timeline.begin = begin  # type: ignore[method-assign]
    table.upsert(rows(3))
    assert len(began) == 2
    assert ids(hoodoo.open(tmp_path / "t")) == [1, 3]


def test_a_copy_of_the_same_slots_is_the_same_table(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(1))
    shutil.copytree(tmp_path / "t", tmp_path / "copy")
    shutil.rmtree(tmp_path / "t")
    shutil.copytree(tmp_path / "copy", tmp_path / "t")
    table.upsert(rows(2))
    assert table.handle.timeline.history.backup_restores == 0
    assert ids(table) == [1, 2]


@pytest.mark.xdist_group("s3")
def test_on_s3_too(s3: dict[str, Any]) -> None:
    path = f"{seaweed.place()}/t"
    table = hoodoo.create(path, rows().schema, key="id", partition_by="part", order_by="ts", storage=s3)
    for number in range(4):
        table.upsert(rows(number))
    store = table.handle.store
    kept = {key: store.get(key) for key, _ in store.list("")}
    for number in range(4, 7):
        table.upsert(rows(number))
    for key, _ in list(store.list("")):
        if key not in kept:
            store.delete(key)
    for key, data in kept.items():
        store.put(key, data)
    assert ids(table) == [0, 1, 2, 3]
    table.upsert(rows(9, part="z"))
    assert ids(hoodoo.open(path, storage=s3)) == [0, 1, 2, 3, 9]


def test_a_fork_that_exists_is_named_with_its_cure(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    for number in range(4):
        table.upsert(rows(number))
    last = tmp_path / "t" / slot_key(5)
    other = make(tmp_path / "other")
    for number in range(4):
        other.upsert(rows(number))
    shutil.copy(tmp_path / "other" / slot_key(5), last)
    with pytest.raises(hoodoo.CorruptTable, match="move .*0005 and later slots away") as problem:
        hoodoo.open(tmp_path / "t")
    assert problem.value.details["slot"] == 5
    last.unlink()
    assert ids(hoodoo.open(tmp_path / "t")) == [0, 1, 2, 3]  # Hudi's timeline still has the commit of the lost slot
