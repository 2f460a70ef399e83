"""The place of Apache Hudi's streamer: Hudi's own words find ours in a table, and we find the one that Hudi left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi_session import NO_METADATA_TABLE
from pyspark.sql import SparkSession

import hoodoo
from hoodoo.errors import Overtaken

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())])
DDL = "id string, city string, ts bigint, fare double"
# py4j leaves the connection open by which it lets go of Java's objects
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
KINDS = pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])


def make(path: Path, kind: str) -> hoodoo.Table:
    return hoodoo.create(
        path, SCHEMA, key="id", partition_by="city", order_by="ts", type=kind, compact_after_logs=None, clean_every=None
    )


def row(key: str, ts: int = 1) -> list[dict[str, Any]]:
    return [{"id": key, "city": "sf", "ts": ts, "fare": 1.0}]


def place(spark: SparkSession, path: Path) -> str:
    """Where Hudi's streamer would go on: at the newest completed instant that says it, by Hudi's classes. Of a
    merge-on-read table delta commits count.
    """
    jvm: Any = spark.sparkContext._jvm
    hudi = jvm.org.apache.hudi
    conf = hudi.hadoop.fs.HadoopFSUtils.getStorageConf(spark.sparkContext._jsc.hadoopConfiguration())  # type: ignore[attr-defined]
    client = hudi.common.table.HoodieTableMetaClient.builder().setConf(conf).setBasePath(str(path)).build()
    timeline = client.getActiveTimeline().filterCompletedInstants()
    of_logs = client.getTableType().name() == "MERGE_ON_READ"
    timeline = timeline.getDeltaCommitTimeline() if of_logs else timeline.getCommitsTimeline()
    newest_first = timeline.getReverseOrderedInstants().iterator()
    while newest_first.hasNext():
        metadata = timeline.readCommitMetadata(newest_first.next())
        if metadata.getMetadata("streamer.checkpoint.key.v2"):
            return str(hudi.common.table.checkpoint.CheckpointUtils.getCheckpoint(metadata).getCheckpointKey())
    return ""


def says(text: str) -> dict[str, str]:
    """Options by which a write of Hudi leaves a place, as its streamer does."""
    return NO_METADATA_TABLE | {
        "hoodie.datasource.write.commitmeta.key.prefix": "streamer.checkpoint",
        "streamer.checkpoint.key.v2": text,
    }


@KINDS
def test_hudis_streamer_finds_our_newest_place_behind_every_commit(
    hudi: SparkSession, hudi_rows: Callable[..., list[dict[str, Any]]], tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "t"
    table = make(path, kind)
    table.upsert(row("k1"))
    assert place(hudi, path) == ""
    table.upsert(row("k2"), transaction=table.inspect.application("orders").next("a", "shop.orders,0:123,1:456"))
    assert place(hudi, path) == "shop.orders,0:123,1:456"
    table.upsert(row("k1", 2))
    table.delete(pa.table({"id": ["k2"], "city": ["sf"], "ts": [3], "fare": [0.0]}))
    table.maintenance.cluster()
    table.compact()
    assert place(hudi, path) == "shop.orders,0:123,1:456"
    table.upsert([], transaction=table.inspect.application("orders").next("b", "shop.orders,0:200,1:456"))
    assert place(hudi, path) == "shop.orders,0:200,1:456"
    assert [one["id"] for one in hudi_rows(path)] == ["k1"]
    words = hudi.sparkContext._jvm.org.apache.hudi.common.util.CheckpointUtils  # type: ignore[union-attr]
    form = getattr(words, "CheckpointFormat").SPARK_KAFKA  # noqa: B009
    assert dict(words.parseCheckpoint(form, place(hudi, path))) == {0: 200, 1: 456}


@KINDS
def test_a_place_that_hudi_committed_is_found_repeated_and_respected(
    hudi: SparkSession, hudi_write: Callable[..., None], tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "t"
    table = make(path, kind)
    table.upsert(row("k1"), transaction=table.inspect.application("orders").next("a", "orders,0:1"))
    hudi_write(path, [("k1", "sf", 2, 2.0)], DDL, "upsert", NO_METADATA_TABLE)  # a writer that says nothing
    table.upsert(row("k1", 3), transaction=table.inspect.application("orders").next("b", "orders,0:2"))
    hudi_write(path, [("k1", "sf", 4, 4.0)], DDL, "upsert", says("orders,0:9"))
    assert hoodoo.open(path).inspect.application("hudi-streamer").position == "orders,0:9"
    with pytest.raises(Overtaken):
        table.upsert(row("k1", 5), transaction=table.inspect.application("orders").next("c", "orders,0:3"))
    table.upsert(row("k1", 6))
    assert place(hudi, path) == "orders,0:9"
    hudi_write(path, [("k1", "sf", 7, 7.0)], DDL, "upsert", says("orders,0:12"))
    found = hoodoo.open(path).inspect.application("hudi-streamer")
    assert (found.version, found.position) == (1, "orders,0:12")
    assert hoodoo.open(path).scan().to_arrow()["fare"].to_pylist() == [7.0]
    table.upsert(row("k1", 8))
    assert table.verify().problems == []
