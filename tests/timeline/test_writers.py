"""Several writer processes on one table, without a lock service: all succeed, and the result is that of some serial
order.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from hudi_rows import hudi_rows

import hoodoo
from hoodoo.compactor.compaction import plans
from hoodoo.timeline.commits.draft import Conflict

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("who", pa.int64())])
ROUNDS, WRITERS, KEYS = 12, 4, 30


def write(path: str, who: int) -> int:
    """Upsert all keys again and again, each time with a larger ordering value; how often it had to rebase."""
    table, retries = hoodoo.open(path), 0
    for number in range(ROUNDS):
        batch = pa.table(
            {"id": list(range(KEYS)), "ts": [number * WRITERS + who] * KEYS, "who": [who] * KEYS}, schema=SCHEMA
        )
        retries += table.upsert(batch).retries
    return retries


def pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(WRITERS, mp_context=multiprocessing.get_context("spawn"))


@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_four_processes_that_upsert_the_same_keys_all_succeed(tmp_path: Path, kind: str) -> None:
    table = hoodoo.create(
        tmp_path / "t", SCHEMA, key="id", order_by="ts", type=kind, max_retries=200, compact_after_logs=6
    )
    with pool() as workers:
        list(workers.map(write, [str(tmp_path / "t")] * WRITERS, range(WRITERS)))
    rows = table.scan().to_arrow()
    newest = ROUNDS * WRITERS - 1
    assert sorted(rows["id"].to_pylist()) == list(range(KEYS))
    assert set(rows["ts"].to_pylist()) == {newest}
    assert sorted(row["ts"] for row in hudi_rows(tmp_path / "t")) == [newest] * KEYS
    assert table.verify().problems == []
    assert [entry.state for entry in table.inspect.timeline() if entry.state in ("requested", "inflight")] == []


def test_two_inserts_of_one_key_leave_one_row(tmp_path: Path) -> None:
    one = hoodoo.create(tmp_path / "t", SCHEMA, key="id", order_by="ts")
    two = hoodoo.open(tmp_path / "t")
    row = pa.table({"id": [1], "ts": [1], "who": [1]}, schema=SCHEMA)
    racing(one, lambda: two.insert(row.set_column(2, "who", pa.array([2]))))
    with pytest.raises(hoodoo.KeyExists):
        one.insert(row)
    assert one.scan().to_arrow().to_pylist() == [{"id": 1, "ts": 1, "who": 2}]
    racing(one, lambda: two.upsert(pa.table({"id": [5], "ts": [1], "who": [2]}, schema=SCHEMA)))
    assert one.upsert(pa.table({"id": [5], "ts": [1], "who": [1]}, schema=SCHEMA)).retries == 1
    assert one.scan(where="id = 5").to_arrow().to_pylist() == [{"id": 5, "ts": 1, "who": 1}]
    assert one.verify().problems == []


def racing(table: hoodoo.Table, other: object) -> None:
    """Let `other` commit just before the next slot of `table` is taken."""
    put = table.handle.timeline.store.put_if_absent

    def wrapped(key: str, data: object, durable: bool = True) -> None:
        if "/commits/" in key:
            table.handle.timeline.store.put_if_absent = put  # type: ignore[method-assign]
            other()  # type: ignore[operator]
        put(key, data, durable)

    table.handle.timeline.store.put_if_absent = wrapped  # type: ignore[method-assign]


def rows(*triples: tuple[int, int, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, triple, strict=True)) for triple in triples], schema=SCHEMA)


def test_an_update_of_a_key_that_another_commit_deleted_rebases(tmp_path: Path) -> None:
    one = hoodoo.create(tmp_path / "t", SCHEMA, key="id", order_by="ts")
    one.upsert(rows((1, 9, 1), (2, 9, 1)))
    two = hoodoo.open(tmp_path / "t")
    racing(one, lambda: two.delete(rows((1, 0, 0))))
    result = one.upsert(rows((1, 3, 7)))
    assert result.retries == 1
    assert {row["id"]: row["who"] for row in one.scan().to_arrow().to_pylist()} == {1: 7, 2: 1}
    assert {row["id"]: row["who"] for row in hudi_rows(tmp_path / "t")} == {1: 7, 2: 1}


def test_a_delta_does_not_conflict_with_a_compaction_of_its_file_group(tmp_path: Path) -> None:
    one = hoodoo.create(tmp_path / "t", SCHEMA, key="id", order_by="ts", compact_after_logs=None)
    one.upsert(rows((1, 1, 1), (2, 1, 1)))
    one.upsert(rows((1, 2, 2)))
    two = hoodoo.open(tmp_path / "t")
    racing(one, lambda: two.compact())
    assert one.upsert(rows((2, 5, 5))).retries == 0
    assert {row["id"]: row["who"] for row in one.scan().to_arrow().to_pylist()} == {1: 2, 2: 5}
    assert {row["id"]: row["who"] for row in hudi_rows(tmp_path / "t")} == {1: 2, 2: 5}


def test_two_workers_on_one_plan_end_in_one_completion(tmp_path: Path) -> None:
    one = hoodoo.create(tmp_path / "t", SCHEMA, key="id", order_by="ts", compact_after_logs=None)
    one.upsert(rows((1, 1, 1)))
    one.upsert(rows((1, 2, 2)))
    two = hoodoo.open(tmp_path / "t")
    plan = plans.commit_compaction_plan(one.handle.context(), plans.plan_groups_with_logs)
    assert plan is not None
    racing(one, lambda: plans.run_compaction_plan(two.handle.context(), plan))
    assert plans.run_compaction_plan(one.handle.context(), plan).groups == 0
    completed = [
        entry for entry in one.inspect.timeline() if entry.instant == plan.instant and entry.state == "completed"
    ]
    assert len(completed) == 1
    assert one.verify().problems == []
    assert hudi_rows(tmp_path / "t")[0]["who"] == 2


def test_a_commit_conflict_names_how_often_it_was_tried(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", order_by="ts", max_retries=2)

    def always(*_: object) -> None:
        raise Conflict("somebody was faster")

    table.handle.timeline.begin = always  # type: ignore[assignment,method-assign]
    with pytest.raises(hoodoo.CommitConflict, match="2 retries"):
        table.upsert(rows((1, 1, 1)))


def test_a_transaction_version_is_committed_once(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", order_by="ts")
    assert not table.upsert(rows((1, 1, 1)), transaction=("app", 42)).skipped
    again = hoodoo.open(tmp_path / "t").upsert(rows((1, 5, 5)), transaction=("app", 42))
    assert (again.skipped, again.instant) == (True, "")
    assert table.scan().to_arrow()["who"].to_pylist() == [1]
    empty = table.upsert(rows(), transaction=("app", 43))
    assert empty.instant and not empty.files
    assert table.upsert(rows((1, 9, 9)), transaction=("other", 1)).updated == 1
