"""Exported tables as Spark's readers of Iceberg and Delta see them, and what their upkeep does to the table's files."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import iceberg_reader
import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from exported_tables import EVERY, ODD_FOLDERS, make, rows, slots_of_delta
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

import hoodoo

KINDS = pa.schema([("id", pa.int64()), ("part", pa.string()), ("v", pa.int64())])


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="module")
def spark(hudi: SparkSession, warehouse: Path) -> SparkSession:
    """The session, with the catalog `ice` of the kind `hadoop` over the warehouse."""
    settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".cache-enabled": "false"}
    for name, value in (settings | {".warehouse": str(warehouse)}).items():
        hudi.conf.set(f"spark.sql.catalog.ice{name}", value)
    return hudi


@pytest.fixture
def path(warehouse: Path, request: pytest.FixtureRequest) -> Path:
    """Where the catalog looks for `ice.lake.<name of the test>`."""
    return warehouse / "lake" / "".join(one if one.isalnum() else "_" for one in request.node.name)


def readers(spark: SparkSession, path: Path) -> dict[str, DataFrame]:
    batches = spark.read.format("iceberg").option("vectorization-enabled", "true")
    return {
        "Iceberg by path": spark.read.format("iceberg").load(str(path)),
        "Iceberg by path, in batches": batches.load(str(path)),
        "Iceberg by catalog": spark.table(f"ice.lake.{path.name}"),
        "Delta by path": spark.read.format("delta").load(str(path)),
    }


def check(spark: SparkSession, path: Path, where: str = "true", merged: bool = False) -> None:
    """Each reader has the rows of a scan."""
    scan = hoodoo.open(path).scan(where=None if where == "true" else where, read_optimized=not merged)
    want = plain(scan.to_arrow().to_pylist())
    assert want
    for reader, frame in readers(spark, path).items():
        assert seen(frame.where(where)) == want, reader


def check_history(spark: SparkSession, path: Path, merged: bool = False) -> None:
    """Each snapshot of Iceberg and each version of Delta has the rows of its slot."""
    table = hoodoo.open(path)

    def want(slot: int) -> list[str]:
        return plain(table.scan(as_of=slot, read_optimized=not merged).to_arrow().to_pylist())

    snapshots = iceberg_reader.metadata(path)["snapshots"]
    for snapshot in snapshots:
        frame = spark.read.option("snapshot-id", snapshot["snapshot-id"]).format("iceberg").load(str(path))
        assert seen(frame) == want(int(snapshot["summary"]["hoodoo.slot"])), snapshot["summary"]
    versions = slots_of_delta(path)
    assert len(versions) > 1
    for version, slot in versions.items():
        frame = spark.read.option("versionAsOf", version).format("delta").load(str(path))
        assert seen(frame) == want(slot), version


def seen(frame: DataFrame) -> list[str]:
    return plain([row.asDict(recursive=True) for row in frame.collect()])


def plain(found: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted((name, comparable(value)) for name, value in row.items())) for row in found)


def comparable(value: Any) -> Any:
    """Spark has maps as dicts in an order of its own, bytes as byte arrays, and times without their zone."""
    if isinstance(value, dict):
        return sorted([name, comparable(one)] for name, one in value.items())
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return comparable(dict(value))
    if isinstance(value, (list, tuple)):
        return [comparable(one) for one in value]
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.timezone.utc).replace(tzinfo=None)
    return value


def test_spark_sees_every_type_and_each_snapshot(spark: SparkSession, path: Path) -> None:
    table = make(path)
    for turn in range(3):
        table.upsert(rows(*range(turn * 3, turn * 3 + 6), version=turn, part="ab"[turn % 2]))
        table.export(delta=True, iceberg=True)
    check(spark, path)
    for where in ("part = 'a'", "id BETWEEN 4 AND 9", "small < -7", "text = 'text 1 5'"):
        check(spark, path, where)
    check_history(spark, path)


def test_spark_finds_odd_folders_and_default_partitions(spark: SparkSession, path: Path) -> None:
    table = make(path, KINDS)
    table.upsert([{"id": number, "part": part, "v": 1} for number, part in enumerate([*ODD_FOLDERS, None])])
    table.export(delta=True, iceberg=True)
    check(spark, path)
    check(spark, path, "part = 'c d'")


@pytest.mark.parametrize("version", [2, 3])
def test_spark_sees_what_logs_say_where_an_export_merges_them(spark: SparkSession, path: Path, version: int) -> None:
    table = make(path, type="merge_on_read")
    table.upsert(rows(*range(40)))
    table.upsert(rows(*range(50, 70), part="b"))
    for turn in range(4):
        table.upsert(rows(turn, turn + 1, 100 + turn, version=turn))
        table.delete([{"id": 20 + turn, "part": "a"}])
        table.upsert([{"id": 50 + turn, "part": "b", "text": f"some {turn}"}], columns="given")
        if turn == 2:
            table.compact()
        table.export(delta=True, iceberg=True, mode="merged", iceberg_version=version if turn else 2)
    check(spark, path, merged=True)
    for where in ("part = 'a'", "id BETWEEN 4 AND 9", "text = 'some 3'"):
        check(spark, path, where, merged=True)
    check_history(spark, path, merged=True)


@pytest.mark.parametrize("upgrade_at", [0, 5])
def test_spark_has_the_row_ids_of_the_specification(spark: SparkSession, path: Path, upgrade_at: int) -> None:
    table = make(path, KINDS, type="merge_on_read")
    for turn in range(8):
        table.upsert([{"id": number, "part": "ab"[turn % 2], "v": turn} for number in range(turn, turn + 20)])
        table.delete([{"id": turn + 3, "part": "ab"[turn % 2]}])
        if turn in (3, 6):
            table.compact()
        table.export(iceberg=True, mode="merged", iceberg_version=3 if turn >= upgrade_at else 2)
    found = iceberg_reader.metadata(path)
    for snapshot in found["snapshots"][upgrade_at:]:
        dead = iceberg_reader.dead_rows(snapshot)
        ranges = iceberg_reader.row_ranges(found, snapshot)
        want = {
            (file, row_id)
            for file, ids in ranges.items()
            for at, row_id in enumerate(ids)
            if file not in dead or at not in dead[file][1]
        }
        frame = spark.read.option("snapshot-id", snapshot["snapshot-id"]).format("iceberg").load(str(path))
        read = frame.selectExpr("_file", "_row_id").collect()
        assert {(row[0], row[1]) for row in read} == want and len(read) == len(want)


def test_no_upkeep_of_iceberg_or_delta_deletes_a_file_and_no_write_gets_in(spark: SparkSession, path: Path) -> None:
    table = make(path, KINDS)
    for turn in range(3):
        table.upsert([{"id": number, "part": "ab"[number % 2], "v": turn} for number in range(6)])
        table.export(delta=True, iceberg=True)
    before = {file for file in path.rglob("*") if file.is_file()}
    jvm: Any = spark.sparkContext._jvm
    name, actions = f"ice.lake.{path.name}", jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)
    loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
    tomorrow = int((dt.datetime.now() + dt.timedelta(days=1)).timestamp() * 1000)
    with pytest.raises(Py4JJavaError, match="GC is disabled"):
        actions.expireSnapshots(loaded).expireOlderThan(tomorrow).execute()
    with pytest.raises(Py4JJavaError, match="GC is disabled"):
        actions.deleteOrphanFiles(loaded).olderThan(tomorrow).execute()
    more = spark.createDataFrame([(9, "a", 9)], "id long, part string, v long")
    with pytest.raises(Py4JJavaError, match="hoodoo"):
        DeltaTable.forPath(spark, str(path)).vacuum(0)
    with pytest.raises(Exception, match="hoodoo writes this table"):
        more.writeTo(name).append()
    with pytest.raises(Exception, match="hoodoo"):
        more.write.format("delta").mode("append").save(str(path))
    assert before <= {file for file in path.rglob("*") if file.is_file()}
    for key in table.maintenance.sweep(0).external:  # what a refused write left
        assert path / key not in before
        (path / key).unlink()
    assert table.verify().ok
    check(spark, path)


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_the_net_of_the_change_feed_in_spark_is_the_difference_of_two_versions(
    spark: SparkSession, path: Path, kind: str
) -> None:
    table = make(path, KINDS, type=kind)
    for turn in range(4):
        table.upsert([{"id": number, "part": "ab"[number % 2], "v": turn} for number in range(turn, turn + 6)])
        table.delete([{"id": turn, "part": "ab"[turn % 2]}])
        table.export(delta=True, change_feed=turn == 0)
        table.compact()
    table.export(delta=True, rebuild=True)
    versions = slots_of_delta(path)
    last = max(versions)

    def rows_of(version: int) -> Counter[tuple[Any, ...]]:
        slot = versions.get(version)
        scan = table.scan(as_of=slot, read_optimized=True).to_arrow().to_pylist() if slot else []
        return Counter(tuple(row.values()) for row in scan)

    for first, end in [(0, last), *((version, version) for version in versions)]:
        reader = spark.read.format("delta").option("readChangeFeed", "true")
        changes = reader.option("startingVersion", first).option("endingVersion", end).load(str(path))
        found = rows_of(first - 1)
        for *row, kind_of_change in changes.select(*KINDS.names, "_change_type").collect():
            found[tuple(row)] += {"insert": 1, "delete": -1}[kind_of_change]
        assert {row: count for row, count in found.items() if count} == rows_of(end), (first, end)


@pytest.mark.deep
def test_spark_sees_columns_that_changed(spark: SparkSession, path: Path) -> None:
    table = make(path, pa.schema([("id", pa.int64()), ("part", pa.string()), ("a", pa.int32()), ("b", pa.string())]))
    table.upsert([{"id": 1, "part": "x", "a": 1, "b": "one"}, {"id": 2, "part": "y", "a": 2, "b": "two"}])
    table.export(delta=True, iceberg=True)
    table.alter.add_column("c", pa.int64())
    table.upsert([{"id": 3, "part": "x", "a": 3, "b": "three", "c": 3}])
    table.export(delta=True, iceberg=True)
    table.alter.rename_column("b", "label", rewrite=True)
    table.alter.drop_column("a")
    table.upsert([{"id": 4, "part": "y", "label": "four", "c": None}])
    table.export(delta=True, iceberg=True)
    check(spark, path)


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore:partition_by contains column")
@pytest.mark.parametrize("name", ["small", "flag", "day", "at", "local", "amount", "bytes"])
def test_spark_sees_partitions_of_any_type(spark: SparkSession, path: Path, name: str) -> None:
    table = make(path, EVERY, partition_by=name)
    table.upsert(rows(*range(6)))
    table.export(delta=True, iceberg=True)
    check(spark, path)


@pytest.mark.deep
def test_spark_sees_two_partition_columns(spark: SparkSession, path: Path) -> None:
    table = make(path, partition_by=["part", "small"])
    table.upsert(rows(*range(5)))
    table.upsert(rows(*range(5, 10), part=None))
    table.export(delta=True, iceberg=True)
    check(spark, path)
    check(spark, path, "part = 'a' AND small < -2")


@pytest.mark.deep
def test_spark_starts_at_a_checkpoint_once_a_clean_took_versions(spark: SparkSession, path: Path) -> None:
    table = make(path, type="merge_on_read")
    for turn in range(14):
        table.upsert(rows(turn, turn + 1, version=turn, part="ab"[turn % 2]))
        table.compact()
    table.export(delta=True, iceberg=True)
    table.maintenance.clean(retain_hours=0, retain_commits=2)
    table.upsert(rows(2, 77))
    table.export(delta=True, iceberg=True)
    check(spark, path)
