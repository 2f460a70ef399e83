"""Spark's own source for Kafka and a sink with positions: a topic changes over between a stream and a job, and each
message is in the table once.
"""

from __future__ import annotations

import json
import os
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka_broker import Broker, broker
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from spark_kafka_jars import SPARK_KAFKA

import hoodoo
from hoodoo.errors import CommitConflict
from hoodoo.sources import Kafka

EXAMPLES = Path(__file__).parents[2] / "examples"
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    options = {
        "spark.driver.extraClassPath": SPARK_KAFKA.class_path(),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    session = SparkSession.builder.master("local[2]").config(map=options).getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", SCHEMA, key="id", clean_every=None)


def put(kafka: Broker, topic: str, numbers: range) -> None:
    for partition in (0, 1):
        kafka.put(topic, *({"id": one, "v": f"v{one}"} for one in numbers if one % 2 == partition), partition=partition)


def stream(spark: Any, kafka: Broker, topic: str, sink: Any, checkpoint: Path, begin: str = "earliest") -> None:
    """Takes what the topic has, a hundred messages a micro-batch. Raises what ends the stream."""
    asked = {"kafka.bootstrap.servers": kafka.address, "subscribe": topic, "startingOffsets": begin}
    messages = spark.readStream.format("kafka").options(**asked, maxOffsetsPerTrigger=100).load()
    rows = messages.selectExpr("from_json(CAST(value AS string), 'id long, v string') AS row").select("row.*")
    writer = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(int(PATIENCE_S))
    finally:
        query.stop()


def inserts(table: hoodoo.Table) -> list[int]:
    found = table.changes(table.handle.history.oldest_slot(), versions="all").to_arrow()
    return sorted(one["id"] for one in found["after"].to_pylist() if one)


def test_each_commit_of_a_stream_has_the_offsets_of_the_topic(
    spark: Any, kafka: Broker, table: hoodoo.Table, tmp_path: Path
) -> None:
    topic = kafka.topic(2)
    put(kafka, topic, range(250))
    stream(spark, kafka, topic, table.sink("stream", positions=True), tmp_path / "checkpoint")
    at = table.inspect.application("stream")
    assert at.version == 2
    assert json.loads(at.position) == {"source": "spark", "offsets": [{topic: {"0": 125, "1": 125}}]}
    assert inserts(table) == list(range(250))


def test_a_job_goes_on_where_a_stream_has_read_to_and_a_stream_where_a_job_has(
    spark: Any, kafka: Broker, table: hoodoo.Table, tmp_path: Path
) -> None:
    topic = kafka.topic(2)
    put(kafka, topic, range(150))
    stream(spark, kafka, topic, table.sink("stream", positions=True), tmp_path / "first")
    put(kafka, topic, range(150, 200))
    source = Kafka(kafka.address, topic)
    job = hoodoo.ingest(source, table, name="job")
    job.continue_from("stream")
    assert job.run().rows == 50
    put(kafka, topic, range(200, 230))
    begin = source.to_spark(job.position())
    stream(spark, kafka, topic, table.sink("stream again", positions=True), tmp_path / "second", begin)
    assert inserts(table) == list(range(230))
    assert table.verify().problems == []


def test_a_batch_that_was_committed_before_spark_noted_it_is_not_committed_again(
    spark: Any, kafka: Broker, table: hoodoo.Table, tmp_path: Path
) -> None:
    topic, checkpoint = kafka.topic(2), tmp_path / "checkpoint"
    put(kafka, topic, range(150))
    sink = table.sink("stream", positions=True)
    stream(spark, kafka, topic, sink, checkpoint)
    for name in ("1", ".1.crc"):  # as if the driver had died between the two
        os.remove(checkpoint / "commits" / name)
    put(kafka, topic, range(150, 160))
    stream(spark, kafka, topic, sink, checkpoint)
    assert inserts(table) == list(range(160))


def test_another_checkpoint_is_refused_under_the_name_of_a_sink(
    spark: Any, kafka: Broker, table: hoodoo.Table, tmp_path: Path
) -> None:
    topic = kafka.topic(2)
    put(kafka, topic, range(150))
    stream(spark, kafka, topic, table.sink("stream", positions=True), tmp_path / "one")
    with pytest.raises(Exception, match="Give this sink another name") as refused:
        stream(spark, kafka, topic, table.sink("stream", positions=True), tmp_path / "other")
    assert CommitConflict.__name__ in str(refused.value) and inserts(table) == list(range(150))


def test_the_example_takes_a_topic_into_a_table_that_it_makes(
    spark: Any, kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, path = kafka.topic(2), tmp_path / "trips"
    trips = [{"id": one, "city": "bonn", "fare": 2.5, "at": "2026-01-01T10:00:00Z"} for one in range(20)]
    kafka.put(topic, *trips, b"broken")
    example = runpy.run_path(str(EXAMPLES / "topic_on_spark.py"))["main"]
    example(kafka.address, topic, str(path), str(tmp_path / "checkpoint"))
    said = capsys.readouterr().out
    assert "20 trips, 1 messages left out" in said and f'"{topic}": {{"0": 21' in said
    kafka.put(topic, {**trips[0], "fare": 3.0, "at": "2026-01-02T10:00:00Z"}, partition=1)
    example(kafka.address, topic, str(path), str(tmp_path / "checkpoint"))
    assert "20 trips, 0 messages" in capsys.readouterr().out
    assert hoodoo.open(path).get([0])["fare"].to_pylist() == [3.0]
