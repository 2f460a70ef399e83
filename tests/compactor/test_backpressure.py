"""A writer that outruns its workers waits by the rule; with none alive it compacts; a hung one does not let the logs
grow for ever.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow as pa

import hoodoo
from hoodoo.compactor import heartbeats
from hoodoo.compactor.compaction import plans

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string())])


def rows(part: str = "a") -> pa.Table:
    return pa.table({"id": ["x"], "part": [part]}, schema=SCHEMA)


def make(path: Path, **options: object) -> hoodoo.Table:
    table = hoodoo.create(
        path,
        SCHEMA,
        key="id",
        partition_by="part",
        clean_every=None,
        **{"compact_after_logs": 3, "slow_after_logs": 4, **options},
    )  # type: ignore[arg-type]
    table.upsert(rows())
    return table


def logs(table: hoodoo.Table, part: str = "a") -> int:
    return max(len(group.logs) for group in table.handle.history.head().groups([f"part={part}"]))


def test_a_writer_waits_longer_the_further_its_groups_are_behind_and_says_so(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    heartbeats.beat(table.handle.store, "slow worker")
    waited = [table.upsert(rows()).waited_seconds for _ in range(6)]
    assert waited[:3] == [0.0, 0.0, 0.0]
    assert waited[3] >= 0.05 and waited[4] >= 0.1 and waited[5] >= 0.15
    assert logs(table) == 6, "nobody compacted"


def test_a_writer_to_other_file_groups_does_not_wait(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows("b"))
    heartbeats.beat(table.handle.store, "slow worker")
    for _ in range(5):
        table.upsert(rows())
    assert logs(table) == 5
    assert table.upsert(rows("b")).waited_seconds == 0.0


def test_the_wait_ends_as_soon_as_a_worker_has_compacted(tmp_path: Path) -> None:
    table = make(tmp_path / "t", slow_after_logs=2)
    heartbeats.beat(table.handle.store, "worker")
    table.upsert(rows())
    table.upsert(rows())

    def work() -> None:
        mine = hoodoo.open(table.path)
        while logs(mine) < 3:  # the writer's commit is there
            time.sleep(0.01)
        plans.compact_files(mine.handle.context())

    worker = threading.Thread(target=work)
    worker.start()
    table.upsert(rows())
    worker.join()
    assert table.upsert(rows()).waited_seconds == 0.0
    assert logs(table) <= 2


def test_at_twice_the_bound_workers_count_as_hung_and_the_writer_compacts(tmp_path: Path) -> None:
    table = make(tmp_path / "t", slow_after_logs=2)
    heartbeats.beat(table.handle.store, "hung worker")
    for _ in range(12):
        table.upsert(rows())
        assert logs(table) < 4 + 1
    assert table.scan().count() == 1


def test_none_switches_it_off(tmp_path: Path) -> None:
    table = make(tmp_path / "t", slow_after_logs=None)
    heartbeats.beat(table.handle.store, "worker")
    assert [table.upsert(rows()).waited_seconds for _ in range(10)] == [0.0] * 10
    assert logs(table) == 10


def test_a_hung_worker_that_holds_a_plan_does_not_let_the_logs_grow_for_ever(tmp_path: Path) -> None:
    """A plan that its worker never ran kept its groups from the writer's own compaction: logs grew without bound, and
    nobody waited.
    """
    table = make(tmp_path / "t", slow_after_logs=2)
    heartbeats.beat(table.handle.store, "hung worker")
    table.upsert(rows())
    plan = plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    assert plan is not None
    table.handle.store.put(heartbeats.running_plan_hint_path(plan.instant), b"hung worker")
    for _ in range(12):
        table.upsert(rows())
        assert logs(table) < 4 + 1
    assert not table.maintenance.lag().open_plans


def test_without_a_worker_there_is_nobody_to_wait_for(tmp_path: Path) -> None:
    """It waited for nobody, and then compacted although compact_after_logs says never."""
    table = make(tmp_path / "t", compact_after_logs=None, slow_after_logs=2)
    assert [table.upsert(rows()).waited_seconds for _ in range(8)] == [0.0] * 8
    assert logs(table) == 8
