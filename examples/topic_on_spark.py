"""Write a Kafka topic to a table with Structured Streaming, for topics that are too large for one process.

The messages are JSON objects with the fields id, city, fare and at. Each micro-batch is committed exactly once, and
stores how far it has read the topic. `hoodoo ingest ... --continue topic-on-spark` continues without Spark. Other
messages are counted and left out. `hoodoo ingest` stores them in the quarantine.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 \\
        topic_on_spark.py BROKER:9092 TOPIC TABLE CHECKPOINT

The package has the version of your Spark.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession

import hoodoo

COLUMNS = "id long, city string, fare double, at timestamp"


def main(broker: str, topic: str, path: str, checkpoint: str) -> None:
    """Take in what the topic has, and end. Without `trigger` the query goes on."""
    try:
        trips = hoodoo.open(path)
    except hoodoo.TableNotFound:
        trips = hoodoo.create(path, COLUMNS, key="id", partition_by="city", order_by="at")
    sink = trips.sink("topic-on-spark", positions=True)
    left_out = 0

    def write(messages: DataFrame, batch_id: int) -> None:
        nonlocal left_out
        rows = messages.selectExpr(f"from_json(CAST(value AS string), '{COLUMNS}') AS row").select("row.*")
        whole = "id IS NOT NULL AND city IS NOT NULL AND at IS NOT NULL"
        left_out += rows.where(f"NOT ({whole})").count()
        sink(rows.where(whole), batch_id)

    spark = SparkSession.builder.getOrCreate()
    asked = {"kafka.bootstrap.servers": broker, "subscribe": topic, "startingOffsets": "earliest"}
    messages = spark.readStream.format("kafka").options(**asked, maxOffsetsPerTrigger=500_000).load()
    stream = messages.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    stream.trigger(availableNow=True).start().awaitTermination()
    position = trips.inspect.application(sink.name).position
    print(f"{trips.count()} trips, {left_out} messages left out; read up to {position}")


if __name__ == "__main__":
    main(*sys.argv[1:])
