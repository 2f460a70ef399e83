"""A topic of Debezium that says that its source table was emptied, on a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from change_events import change
from kafka_broker import Broker

import hoodoo
from hoodoo.errors import OptionError
from hoodoo.sources import Kafka


def put(kafka: Broker, topic: str, *events: tuple[bytes | None, bytes | None]) -> None:
    for key, value in events:
        kafka.put(topic, value, key=key)


def test_a_truncate_empties_the_table_and_what_came_after_it_is_there(kafka: Broker, tmp_path: Path) -> None:
    topic, table = kafka.topic(), hoodoo.create(tmp_path / "t", {"id": "bigint", "v": "string"}, key="id")
    put(kafka, topic, change("c", {"id": 1}, {"id": 1, "v": "a"}), change("c", {"id": 2}, {"id": 2, "v": "a"}))
    source = Kafka(kafka.address, topic, format="debezium-json", truncate="delete")
    job = hoodoo.ingest(source, table)
    assert job.run().rows == 2 and table.scan().count() == 2
    put(kafka, topic, change("c", {"id": 3}, {"id": 3, "v": "a"}), change("t", None))
    put(kafka, topic, change("c", {"id": 2}, {"id": 2, "v": "b"}), change("d", {"id": 9}))
    report = job.run()
    assert table.scan().to_arrow().to_pylist() == [{"id": 2, "v": "b"}]
    assert (report.batches, report.skipped) == (3, 2) and source.lag(job.position()).waiting == 0
    put(kafka, topic, change("t", None))
    assert job.run().batches == 4 and table.scan().count() == 0
    gone = [row["before"]["id"] for row in table.changes(0).to_arrow().to_pylist() if row["after"] is None]
    assert gone == []  # what came and went between two looks was never there


def test_what_was_bad_before_a_truncate_is_set_aside_only_if_a_batch_ended_before_it(
    kafka: Broker, tmp_path: Path
) -> None:
    topic, table = kafka.topic(), hoodoo.create(tmp_path / "t", {"id": "bigint"}, key="id")
    source = Kafka(kafka.address, topic, format="debezium-json", truncate="delete")
    job, bad = hoodoo.ingest(source, table, on_bad_rows=hoodoo.BadRowLimits(share=1)), (b'{"id": 1}', b"no event")
    put(kafka, topic, change("c", {"id": 1}, {"id": 1}), bad)
    assert job.run().bad == 1
    put(kafka, topic, bad, change("t", None), bad)
    report = job.run()
    assert (report.batches, report.bad, report.skipped) == (3, 2, 2)
    positions = sorted(table.quarantine().rows()["position"].to_pylist())
    assert [one.rpartition(":")[0] for one in positions] == ["0:1", "0:4"]


def test_a_topic_of_several_partitions_cannot_empty_a_table(kafka: Broker, tmp_path: Path) -> None:
    topic, table = kafka.topic(2), hoodoo.create(tmp_path / "t", {"id": "bigint"}, key="id")
    source = Kafka(kafka.address, topic, format="debezium-json", truncate="delete")
    with pytest.raises(OptionError, match="requires a topic with one partition"):
        hoodoo.ingest(source, table).run()
