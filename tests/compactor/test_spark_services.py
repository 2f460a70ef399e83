"""Services on Spark: the same tasks as in this process, so the same files to the byte, under the same limits."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo
from hoodoo.compactor.compaction import plans
from hoodoo.compactor.compaction.log_compaction import compact_logs
from hoodoo.compactor.compaction.triggers import behind
from hoodoo.compactor.limits import ServiceLimits
from hoodoo.engine.spark import SparkEngine

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("text", pa.string())])


def rows(ids: range, ts: int) -> pa.Table:
    return pa.table(
        {
            "id": [f"{i:05d}" for i in ids],
            "part": [str(i % 3) for i in ids],
            "ts": [ts] * len(ids),
            "text": [f"{i} at {ts}" for i in ids],
        },
        schema=SCHEMA,
    )


def make(path: Path) -> hoodoo.Table:
    table = hoodoo.create(
        path, SCHEMA, key="id", partition_by="part", order_by="ts", compact_after_logs=None, clean_every=None
    )
    table.upsert(rows(range(3000), 0))
    for ts in range(1, 5):
        table.upsert(rows(range(ts * 100, ts * 300), ts))
    table.delete(rows(range(10, 20), 0))
    return table


def digests(table: hoodoo.Table) -> dict[str, str]:
    return {
        entry.file.path: entry.file.digest for group in table.handle.history.head().groups() for entry in group.files()
    }


def test_a_plan_gives_the_same_files_on_spark_as_in_this_process(tmp_path: Path, spark: Any) -> None:
    table = make(tmp_path / "here")
    plan = plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    assert plan is not None
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    there = hoodoo.open(tmp_path / "there")
    here = plans.run_compaction_plan(table.handle.context(), plan)
    on_spark = plans.run_compaction_plan(
        there.handle.context(SparkEngine(spark)), plan, limits=ServiceLimits(groups_at_once=1, bytes_per_second=1e9)
    )
    assert (on_spark.groups, on_spark.bytes_written) == (here.groups, here.bytes_written) == (3, here.bytes_written)
    assert digests(there) == digests(table)
    assert there.scan().to_arrow().sort_by("id").equals(table.scan().to_arrow().sort_by("id"))
    assert there.verify().ok


def test_logs_are_merged_on_spark_too(tmp_path: Path, spark: Any) -> None:
    table = make(tmp_path / "t")
    before = table.scan().to_arrow().sort_by("id")
    assert compact_logs(table.handle.context(SparkEngine(spark)), lambda view: behind(view, 2)).groups == 3
    assert table.scan().to_arrow().sort_by("id").equals(before)
    assert table.maintenance.lag().log_files_max == 1


def test_a_task_that_fails_on_spark_is_named_by_its_own_error_once_the_others_are_done(
    tmp_path: Path, spark: Any
) -> None:
    table = make(tmp_path / "t")
    plan = plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    assert plan is not None
    log = Path(table.path, plan.groups[0].logs[0])
    whole = log.read_bytes()
    log.write_bytes(whole[:-10] + bytes(10))
    with pytest.raises(hoodoo.CorruptTable, match="does not fit|do not fit|damaged"):
        plans.run_compaction_plan(table.handle.context(SparkEngine(spark)), plan)
    log.write_bytes(whole)
    assert table.maintenance.lag().log_files_max > 0 and not table.maintenance.lag().open_plans, (
        "the other groups were completed"
    )
    assert plans.compact_files(table.handle.context(SparkEngine(spark))).groups == 1
