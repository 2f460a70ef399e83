"""Tasks on classic Spark and on Spark Connect: each Spark task gets its own, and no other, whoever sends them."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hoodoo
from hoodoo.compactor.compaction import plans
from hoodoo.engine import spark as spark_engine
from hoodoo.engine.spark import SparkEngine, distribute_tasks, numbered
from hoodoo.writers.staging import staged

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.int64())])


def rows(ids: range, v: int) -> pa.Table:
    return pa.table({"id": list(ids), "city": [f"c{i % 6}" for i in ids], "v": [v] * len(ids)}, SCHEMA)


def test_each_item_is_unpickled_once_in_its_own_task(session: Any, request: pytest.FixtureRequest) -> None:
    """Every task unpickled all of them."""
    token = request.node.name

    def unpickled(number: int) -> int:
        vars(sys).setdefault("hoodoo_unpickled", Counter())[token] += 1
        return number

    class Counted:
        def __init__(self, number: int) -> None:
            self.number = number

        def __reduce__(self) -> Any:
            return unpickled, (self.number,)

    def task(number: int) -> tuple[int, int, int]:
        return number, os.getpid(), vars(sys)["hoodoo_unpickled"][token]

    done = SparkEngine(session).map(task, [Counted(number) for number in range(9)])
    assert [number for number, *_ in done] == list(range(9))
    most: dict[int, int] = {}
    for _, process, count in done:
        most[process] = max(count, most.get(process, 0))
    assert sum(most.values()) == 9


@pytest.mark.parametrize(("at_once", "want"), [(None, [1] * 12), (5, [2, 2, 2, 3, 3]), (40, [1] * 12), (1, [12])])
def test_parts_are_dealt_evenly_and_none_is_lost(session: Any, at_once: int | None, want: list[int]) -> None:
    def count(batches: Any) -> Any:
        found = list(numbered(batches))
        assert all(part == bytes([number]) * 3 for number, part in found)
        yield pa.RecordBatch.from_pydict({"n": [len(found)]})

    spark_engine.prepare_session(session)
    parts = [bytes([number]) * 3 for number in range(12)]
    assert (
        sorted(distribute_tasks(session, parts, at_once).mapInArrow(count, "n long").toArrow()["n"].to_pylist()) == want
    )


def test_parts_that_are_many_bytes_leave_in_several_rows(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_engine, "_LIST_BYTES", 10)
    found = distribute_tasks(session, [b"x" * number for number in range(8)]).toArrow()
    assert dict(zip(found["id"].to_pylist(), map(len, found["part"].to_pylist()), strict=True)) == {
        number: number for number in range(8)
    }


def test_a_batch_is_routed_and_written_a_plan_run_and_logs_merged_by_tasks(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged, "IN_PROCESS_BYTES", 0)
    options = {"compact_after_logs": None, "clean_every": None}
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city", **options)
    assert table.upsert(session.createDataFrame(rows(range(60), 1))).inserted == 60
    assert table.upsert(session.createDataFrame(rows(range(30), 2))).updated == 30
    want = {i: 2 if i < 30 else 1 for i in range(60)}
    for _ in range(2):
        found = table.scan().to_spark(session).toArrow()
        assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == want
        plans.compact_files(table.handle.context(SparkEngine(session)))
    assert not any(group.logs for group in table.handle.history.head().groups())


def test_the_rows_of_each_file_that_tasks_write_stand_in_the_order_that_was_asked_for(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged, "IN_PROCESS_BYTES", 0)
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city")
    shuffled = pa.table({"id": range(60), "city": ["c"] * 60, "v": [n * 37 % 60 for n in range(60)]}, SCHEMA)
    with pytest.raises(hoodoo.ColumnError, match="'w'"):
        table.insert(session.createDataFrame(shuffled), sort_by="w", bulk=True)
    table.insert(session.createDataFrame(shuffled), sort_by="v", bulk=True)
    [file] = Path(table.path).rglob("*.parquet")
    assert pq.ParquetFile(file).read()["v"].to_pylist() == list(range(60))
    assert table.scan().to_arrow().sort_by("id").equals(shuffled)


@pytest.mark.parametrize("way", ["in this process", "by tasks"])
def test_a_frame_s_bad_rows_come_to_the_driver_and_the_others_are_written(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "by tasks":
        monkeypatch.setattr(staged, "IN_PROCESS_BYTES", 0)
    how: dict[str, Any] = {"key": "id", "partition_by": "city", "checks": {"small": "v < 100"}}
    table = hoodoo.create(tmp_path / "t", SCHEMA, **how)
    columns = ("if(id % 10 = 3, null, id) id", "concat('c', id % 2) city", "if(id = 44, 500, id % 7) v")
    frame = session.range(0, 60, 1, 3).selectExpr(*columns)
    with pytest.raises(hoodoo.DataError):
        table.upsert(frame)
    with pytest.raises(hoodoo.TooManyBadRows):
        table.upsert(frame, on_bad_rows=hoodoo.BadRowLimits(rows=6))
    assert not table.scan().count()
    for partitions in (3, 2):
        result = table.upsert(frame.repartition(partitions), on_bad_rows="quarantine")
        assert result.quarantined == 7
    assert (result.updated, table.scan().count()) == (53, 53)
    assert [one["reason"] for one in table.quarantine().rows().to_pylist()].count("null_key") == 6
    assert table.quarantine().count() == 7
    assert not list(table.handle.store.list(".hoodie/.hoodoo/staging/"))


def test_rows_that_are_staged_are_held_against_a_check_set_meanwhile(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged, "IN_PROCESS_BYTES", 0)
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city")
    prepare = staged._prepare_on_spark

    def prepared(*arguments: Any) -> Any:
        done = prepare(*arguments)
        hoodoo.open(table.path).set_checks({"small": "v < 100"})
        return done

    monkeypatch.setattr(staged, "_prepare_on_spark", prepared)
    frame = session.createDataFrame([(1, "x", 5), (2, "x", 500)], "id long, city string, v long")
    with pytest.raises(hoodoo.CheckFailed, match="small"):
        table.upsert(frame)
    assert not table.scan().count()


def test_a_stream_s_sink_passes_on_what_becomes_of_bad_rows(session: Any, tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    sink = table.sink("job", on_bad_rows=hoodoo.BadRowLimits(rows=5))
    for _ in range(2):
        sink(session.createDataFrame([(1, "x", 5), (None, "x", 6)], "id long, city string, v long"), 4)
    [kept] = table.quarantine().rows().to_pylist()
    assert (kept["source"], kept["application"], kept["number"], table.scan().count()) == ("job", "job", 4, 1)
