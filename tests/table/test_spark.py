"""The same operations through PySpark DataFrames: same rows, same results, however large the batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from table_machine import SCHEMA, Machine

import hoodoo
from hoodoo.writers.staging import staged


@pytest.fixture
def always_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch takes the way of a large one: staged, routed and written by Spark tasks."""
    monkeypatch.setattr(staged, "IN_PROCESS_BYTES", 0)


@pytest.mark.parametrize(
    ("kind", "order"),
    [
        ("merge_on_read", "ts"),
        ("copy_on_write", None),
        pytest.param("merge_on_read", None, marks=pytest.mark.deep),
        pytest.param("copy_on_write", "ts", marks=pytest.mark.deep),
    ],
)
@pytest.mark.usefixtures("always_staged")
def test_any_sequence_of_operations_through_spark_gives_the_rows_of_a_dict(
    tmp_path: Path, spark: Any, kind: str, order: str | None
) -> None:
    machine = Machine(tmp_path / "t", kind, ("a", "b"), ("city",), order, seed=7)
    machine.send = lambda rows: spark.createDataFrame(rows).repartition(1) if len(rows) else rows
    for _ in range(14):
        machine.step()
        machine.check()
    assert machine.found_in(machine.table.scan().to_spark(spark).toArrow()) == machine.want(machine.model.rows)
    assert machine.table.verify().problems == []
    assert not list(machine.table.handle.store.list(".hoodie/.hoodoo/staging/"))


def frame(spark: Any, rows: int = 50) -> Any:
    return spark.range(0, rows, 1, 3).selectExpr(
        "cast(id as string) id",
        "concat('c', id % 2) city",
        "id ts",
        "id * 1.5D fare",
        "timestamp_micros(id * 1000001) at",
        "cast(timestamp_micros(id * 1000001) as timestamp_ntz) local",
        "cast(id as decimal(12,2)) price",
        "array(cast(id as string), null) tags",
        "map('k', cast(id as int)) props",
        "named_struct('x', id * 1D, 'y', 'z') place",
    )


@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_every_spark_type_comes_back_as_it_went_in(tmp_path: Path, spark: Any, kind: str) -> None:
    source = frame(spark)
    table = hoodoo.create(tmp_path / "t", source.schema, key="id", partition_by="city", order_by="ts", type=kind)
    assert table.upsert(source).inserted == 50
    table.upsert(source.where("ts % 5 = 0").withColumn("fare", -source.fare))
    back = table.scan().to_spark(spark)
    assert back.schema.simpleString() == source.schema.simpleString()
    changed = source.selectExpr(
        "id", "city", "ts", "if(ts % 5 = 0, -fare, fare) fare", "at", "local", "price", "tags", "props", "place"
    )
    key = "id"
    assert back.orderBy(key).collect() == changed.orderBy(key).collect()


def test_a_filtered_scan_on_spark_equals_the_scan_in_process(tmp_path: Path, spark: Any) -> None:
    table = hoodoo.create(tmp_path / "t", frame(spark).schema, key="id", partition_by="city", order_by="ts")
    table.upsert(frame(spark))
    table.upsert(frame(spark).where("city = 'c1' and ts < 9"))  # c0 has no logs: Spark's own scan; c1: merged in tasks
    for where in (
        "fare > 20 AND city = 'c0'",
        "id LIKE '1%' OR ts IN (3, 4)",
        "NOT (price BETWEEN 5 AND 40)",
        "fare IS NULL",
    ):
        scan = table.scan(columns=["id", "fare"], where=where)
        assert sorted(map(str, scan.to_spark(spark).collect())) == sorted(
            map(str, (type_row(spark, row) for row in scan.to_arrow().to_pylist()))
        )


def type_row(spark: Any, row: dict[str, Any]) -> Any:
    from pyspark.sql import Row

    return Row(**row)


def test_a_small_dataframe_takes_one_spark_job_and_its_plan_runs_once(tmp_path: Path, spark: Any) -> None:
    seen = spark.sparkContext.accumulator(0)

    def count(batches: Any) -> Any:
        for batch in batches:
            seen.add(batch.num_rows)
            yield batch

    table = hoodoo.create(tmp_path / "t", frame(spark).schema, key="id", partition_by="city")
    table.upsert(frame(spark))
    source = frame(spark)
    counted = source.mapInArrow(count, source.schema)
    spark.sparkContext.setJobGroup("one-upsert", "")
    table.upsert(counted)
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup("one-upsert")
    assert (seen.value, len(jobs)) == (50, 1)


@pytest.mark.usefixtures("always_staged")
def test_a_large_dataframe_takes_three_spark_jobs_two_of_which_deal_out_their_tasks_first(
    tmp_path: Path, spark: Any
) -> None:
    table = hoodoo.create(tmp_path / "t", frame(spark).schema, key="id", partition_by="city", order_by="ts")
    table.upsert(frame(spark))
    spark.sparkContext.setJobGroup("large-upsert", "")
    result = table.upsert(frame(spark, 80))
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup("large-upsert")
    assert (result.inserted, result.updated) == (30, 50)
    assert len(jobs) <= 5


def test_rows_that_tasks_staged_are_fetched_where_they_are_few_after_all(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task with much to send stages it before anybody knows the whole; under the bound the driver reads it back."""
    monkeypatch.setattr(staged, "_INLINE_BYTES", 0)
    rows = spark.range(0, 60_000, 1, 2).selectExpr("cast(id as string) id", "concat('c', id % 2) city", "id ts")
    table = hoodoo.create(tmp_path / "t", rows.schema, key="id", partition_by="city", order_by="ts")
    assert table.upsert(rows).inserted == 60_000
    assert table.scan(where="city = 'c1'").count() == 30_000


def test_text_that_is_not_utf8_is_refused_in_the_task_that_meets_it(tmp_path: Path, spark: Any) -> None:
    """Spark casts any bytes to text; such rows were acknowledged, and no reader took their file group any more."""
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("s", pa.string())]), key="id")
    table.upsert(spark.range(4).selectExpr("id", "'x' s"))
    before = table.cursor
    bad = spark.range(4).selectExpr("id", "if(id = 2, cast(X'636166E9' as string), 'y') s")
    with pytest.raises(
        hoodoo.ColumnError, match=r"Column 's', row \d+ \(key \{'id': 2\}\): b'caf\\xe9' is not valid UTF-8"
    ):
        table.upsert(bad)
    assert table.cursor == before and table.scan().count() == 4


@pytest.mark.usefixtures("always_staged")
def test_keys_twice_in_different_spark_partitions_become_one_row(tmp_path: Path, spark: Any) -> None:
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("v", pa.int64())]), key="id")
    twice = spark.range(0, 10, 1, 2).selectExpr("id % 5 id", "id v")
    result = table.upsert(twice)
    assert (result.inserted, result.stale) == (5, 5)
    assert sorted(table.scan().to_arrow()["v"].to_pylist()) == [5, 6, 7, 8, 9]  # the later partition wins


@pytest.mark.parametrize("stage", [True, False])
def test_bad_rows_in_a_dataframe_raise_the_same_error_as_in_process(
    tmp_path: Path, spark: Any, stage: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stage:
        monkeypatch.setattr(staged, "IN_PROCESS_BYTES", 0)
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="a", partition_by="city", order_by="ts")
    good = spark.createDataFrame(pa.Table.from_pylist([{"a": "x", "b": 1, "city": "p", "ts": 1}], schema=SCHEMA))
    cursor = table.upsert(good).cursor
    with pytest.raises(hoodoo.KeyValueError):
        table.upsert(good.selectExpr("cast(null as string) a", "b", "city", "ts", "v", "tags"))
    with pytest.raises(hoodoo.ColumnError, match="'ts' .*is not in the batch"):
        table.upsert(good.drop("ts"))
    with pytest.raises(hoodoo.KeyExists):
        table.insert(good)
    assert table.cursor == cursor
    assert not list(table.handle.store.list(".hoodie/.hoodoo/staging/"))


CONNECT = """
import sys, warnings
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
import hoodoo
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
from hoodoo.writers.staging import staged
source = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) id", "id % 2 city", "id ts")
table = hoodoo.create(sys.argv[1], source.schema, key="id", partition_by="city", order_by="ts")
print(table.upsert(source).inserted)
staged.IN_PROCESS_BYTES = 0
result = table.upsert(source.selectExpr("id", "city", "ts + 1 ts").where("ts < 50"))
print(result.updated, table.delete(source.where("ts < 10").select("id", "city")).deleted)
back = table.scan().to_spark(spark)
print(back.count(), back.selectExpr("sum(ts)").collect()[0][0], table.scan(where="ts > 60").to_spark(spark).count())
"""


@pytest.mark.deep
def test_spark_connect_gives_the_same_rows(tmp_path: Path) -> None:
    free_port = {"SPARK_TESTING": "1"}  # Spark takes a port that nobody has
    environment = {**os.environ, **free_port, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", CONNECT, str(tmp_path / "t")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.split() == ["100", "49", "10", "90", "4944", "39"], done.stderr[-3000:]
