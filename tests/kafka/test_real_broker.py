"""A topic as a source, on a real broker: transactions, compaction, messages and topics that are gone, and a broker that
goes away.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewPartitions
from kafka_broker import Broker, send
from patience import wait_for

import hoodoo
from hoodoo.errors import SourceLost, SourceUnavailable
from hoodoo.ingestion.job import Job
from hoodoo.sources import Kafka, Limits, Planned

COLUMNS = pa.schema([("id", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", COLUMNS, key="id")


def rows(*ids: object) -> list[dict[str, str]]:
    return [{"id": str(one)} for one in ids]


def read(source: Kafka, position: str = "", most: int = 500_000) -> tuple[list[str], str]:
    """The ids that come after a position, and the position behind them."""
    planned = source.plan(position, Limits(rows=most))
    assert planned is not None
    [part] = source.read(planned, COLUMNS, False)
    return part.rows["id"].to_pylist(), planned.position


def offsets(position: str) -> str:
    return json.loads(position)["offsets"].partition(",")[2]


def inserted(table: hoodoo.Table) -> list[str]:
    """The ids that any commit has brought, as often as they were brought."""
    found = table.changes(table.handle.history.oldest_slot(), versions="all").to_arrow()
    return sorted(one["id"] for one in found["after"].to_pylist())


def wait_for_offsets(source: Kafka, count: int, position: str = "") -> None:
    """Wait until `count` offsets can be read: the producer is told before the mark of its transaction is written."""

    def are_readable() -> bool:
        planned = source.plan(position, Limits())
        return (
            planned is not None and source.lag(planned.position).waiting == 0 and source.lag(position).waiting == count
        )

    wait_for(are_readable, f"{count} offsets of {source.topic}")


def delete_before(kafka: Broker, topic: str, offset: int) -> None:
    where = TopicPartition(topic, 0, offset)
    kafka.admin.delete_records([where])[where].result(10)


# ---- transactions
def test_messages_of_aborted_transactions_are_no_rows(kafka: Broker) -> None:
    topic, producer = kafka.topic(), kafka.transactions()
    producer.begin_transaction()
    send(producer, topic, *rows("aborted", "aborted too"))
    producer.abort_transaction(30)
    producer.begin_transaction()
    send(producer, topic, *rows("committed"))
    producer.commit_transaction(30)
    kafka.put(topic, *rows("plain"))
    source = Kafka(kafka.address, topic)
    wait_for_offsets(source, 6)
    assert read(source)[0] == ["committed", "plain"]


def test_an_open_transaction_holds_back_what_is_behind_it_and_its_end_ends_the_range(kafka: Broker) -> None:
    topic, producer = kafka.topic(), kafka.transactions()
    kafka.put(topic, *rows("before"))
    producer.begin_transaction()
    send(producer, topic, *rows("open"))
    kafka.put(topic, *rows("behind"))
    source = Kafka(kafka.address, topic)
    found, position = read(source)
    assert found == ["before"] and source.plan(position, Limits()) is None
    producer.commit_transaction(30)
    wait_for_offsets(source, 3, position)
    found, after = read(source, position)  # its last offset is a mark, which no client is ever sent
    assert found == ["open", "behind"] and offsets(after) == "0:4"


def test_the_lag_counts_what_waits_behind_an_open_transaction(kafka: Broker) -> None:
    """It said 0, and nobody saw that the job stood still."""
    topic, producer = kafka.topic(), kafka.transactions()
    kafka.put(topic, *rows("before"))
    source = Kafka(kafka.address, topic)
    _, position = read(source)
    producer.begin_transaction()
    send(producer, topic, *rows("open"))
    kafka.put(topic, *rows(*range(100)))
    wait_for(lambda: source.lag(position).waiting == 101, "all messages behind the position")
    assert source.plan(position, Limits()) is None and source.lag(position).partitions == {"0": 101}
    producer.abort_transaction(30)


def test_a_range_of_an_aborted_transaction_only_moves_the_position(kafka: Broker, table: hoodoo.Table) -> None:
    topic, producer = kafka.topic(), kafka.transactions()
    producer.begin_transaction()
    send(producer, topic, *rows("aborted"))
    producer.abort_transaction(30)
    source = Kafka(kafka.address, topic)
    wait_for_offsets(source, 2)
    report = hoodoo.ingest(source, table).run()
    assert (report.batches, report.rows, offsets(report.position)) == (1, 0, "0:2")
    assert hoodoo.ingest(Kafka(kafka.address, topic), table).run().batches == 0


def test_a_partition_that_ends_within_a_range_has_not_been_read(kafka: Broker) -> None:
    """As a replica may that lags behind the leader: the rows that it lacks would have been passed over."""
    topic, producer = kafka.topic(2), kafka.transactions()
    kafka.put(topic, *rows("before"))
    producer.begin_transaction()
    send(producer, topic, *rows("open", "open too"))
    source = Kafka(kafka.address, topic, idle_seconds=1)
    planned = source.plan("", Limits())
    assert planned is not None
    wider = Planned(type(planned.what)({0: (0, 3)}, 1 << 20, 1_000), planned.position)
    with pytest.raises(SourceUnavailable, match=r"partitions \[0\]"):
        list(source.read(wider, COLUMNS, False))
    producer.abort_transaction(30)
    assert read(source)[0] == ["before"]


# ---- what is gone
def test_a_compacted_topic_is_read_over_its_holes(kafka: Broker) -> None:
    topic = kafka.topic(cleanup_policy="compact", segment_bytes=150, min_cleanable_dirty_ratio=0.01)
    put = 0

    def holes() -> bool:
        nonlocal put
        put += 1
        for key in "abc":
            kafka.put(topic, *rows(f"{key}{put}"), key=key.encode())
        return len(read(Kafka(kafka.address, topic))[0]) < 3 * put

    wait_for(holes, "the cleaner of the broker")
    found, position = list[str](), ""
    source = Kafka(kafka.address, topic)
    while planned := source.plan(position, Limits(rows=2)):  # so that ranges begin and end in holes
        [part] = source.read(planned, COLUMNS, False)
        found += part.rows["id"].to_pylist()
        position = planned.position
    assert offsets(position) == f"0:{3 * put}"
    assert found[-3:] == [f"{key}{put}" for key in "abc"] and len(found) == len(set(found))


def test_messages_that_were_deleted_before_the_plan_are_lost_or_skipped(kafka: Broker) -> None:
    topic = kafka.topic(2)
    for partition in (0, 1):
        kafka.put(topic, *rows(*(f"{partition}-{number}" for number in range(6))), partition=partition)
    _, position = read(Kafka(kafka.address, topic), most=4)
    assert offsets(position) == "0:2,1:2"
    delete_before(kafka, topic, 5)
    with pytest.raises(SourceLost, match="Partition 0 has the offsets 5 to 6 now, but the job needs offset 2") as lost:
        Kafka(kafka.address, topic).plan(position, Limits())
    assert "on_loss='skip'" in lost.value.message
    found, _ = read(Kafka(kafka.address, topic, on_loss="skip"), position)
    assert found == ["0-5", "1-2", "1-3", "1-4", "1-5"]


class Interrupted(Kafka):
    """A topic to which something happens between plan and read, once."""

    meanwhile: Callable[[], object] | None = None

    def plan(self, position: str, limits: Limits) -> Planned | None:
        planned = super().plan(position, limits)
        happens, self.meanwhile = self.meanwhile, None
        if happens:
            happens()
        return planned


def test_messages_that_were_deleted_after_the_plan_are_lost(kafka: Broker, table: hoodoo.Table) -> None:
    topic = kafka.topic()
    kafka.put(topic, *rows(*range(8)))
    source = Interrupted(kafka.address, topic)
    source.meanwhile = lambda: delete_before(kafka, topic, 5)
    with pytest.raises(SourceLost, match="on_loss='skip'"):
        hoodoo.ingest(source, table).run()
    assert table.scan().count() == 0 and table.inspect.application(source.name).version == -1


def test_a_job_that_skips_what_is_lost_plans_again_if_it_was_deleted_after_the_plan(
    kafka: Broker, table: hoodoo.Table
) -> None:
    topic = kafka.topic()
    kafka.put(topic, *rows(*range(8)))
    source = Interrupted(kafka.address, topic, on_loss="skip")
    source.meanwhile = lambda: delete_before(kafka, topic, 5)
    report = hoodoo.ingest(source, table).run()
    assert (report.batches, report.rows, inserted(table)) == (1, 3, ["5", "6", "7"])


# ---- topics that change
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_partitions_that_were_added_are_read_from_their_beginning(kafka: Broker, start: str) -> None:
    topic = kafka.topic()
    kafka.put(topic, *rows("first"))
    source = Kafka(kafka.address, topic, start=start)
    _, position = read(source)
    kafka.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(10)
    kafka.wait_for_partitions(topic, 3)
    kafka.put(topic, *rows("added"), partition=2)
    found, after = read(source, position)
    assert found == ["added"] and offsets(after) == "0:1,1:0,2:1"


@pytest.mark.parametrize("anew", [2, 9], ids=["shorter than the position", "longer than the position"])
@pytest.mark.parametrize("on_loss", ["fail", "skip"])
def test_a_topic_that_was_made_anew_is_another_one(kafka: Broker, anew: int, on_loss: str) -> None:
    topic = kafka.topic()
    kafka.put(topic, *rows(*range(5)))
    _, position = read(Kafka(kafka.address, topic))
    make_anew(kafka, topic)
    kafka.put(topic, *rows(*range(anew)))
    with pytest.raises(SourceLost, match=r"deleted and recreated.*give the job another name"):
        Kafka(kafka.address, topic, on_loss=on_loss).plan(position, Limits())


def make_anew(kafka: Broker, topic: str) -> None:
    kafka.admin.delete_topics([topic])[topic].result(10)
    kafka.topic(name=topic)


def test_a_bad_message_of_a_recreated_topic_is_kept_beside_that_of_the_old_one(
    kafka: Broker, table: hoodoo.Table
) -> None:
    """Both have one offset, and the second one was in neither place."""
    topic = kafka.topic()

    def job() -> Job:
        return hoodoo.ingest(Kafka(kafka.address, topic), table, name="job", on_bad_rows=hoodoo.BadRowLimits(share=1))

    kafka.put(topic, b"bad")
    job().run()
    make_anew(kafka, topic)
    kafka.put(topic, b"bad")
    job().reset("earliest", table.inspect.application("job").version)
    assert job().run().bad == 1 and table.quarantine().count() == 2


def test_messages_that_are_skipped_because_they_are_gone_are_counted_and_logged(
    kafka: Broker, table: hoodoo.Table, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic()
    kafka.put(topic, *rows(1))

    def job() -> Job:
        return hoodoo.ingest(Kafka(kafka.address, topic, on_loss="skip"), table, name="job")

    assert job().run().lost == 0
    kafka.put(topic, *rows(*range(2, 10)))
    delete_before(kafka, topic, 8)
    report = job().run()
    assert (report.lost, report.rows) == (7, 1)
    [said] = [record.getMessage() for record in caplog.records if "messages lost" in record.getMessage()]
    assert "lost=7" in said and f"topic={topic}" in said


def test_a_topic_that_was_made_anew_after_the_plan_brings_no_rows(kafka: Broker, table: hoodoo.Table) -> None:
    topic = kafka.topic()
    kafka.put(topic, *rows(*range(5)))
    source = Interrupted(kafka.address, topic, idle_seconds=3)

    def meanwhile() -> None:
        make_anew(kafka, topic)
        kafka.put(topic, *rows(*(f"other-{number}" for number in range(9))))

    hoodoo.ingest(Kafka(kafka.address, topic), table).run()
    kafka.put(topic, *rows(5))
    source.meanwhile = meanwhile
    with pytest.raises(SourceLost, match="deleted and recreated"):
        hoodoo.ingest(source, table).run()
    assert inserted(table) == [str(number) for number in range(5)]


def test_a_topic_that_is_gone_is_lost(kafka: Broker) -> None:
    topic = kafka.topic()
    kafka.put(topic, *rows(1))
    source = Kafka(kafka.address, topic)
    _, position = read(source)
    kafka.admin.delete_topics([topic])[topic].result(10)
    with pytest.raises(SourceLost, match=f"does not have topic '{topic}'"):
        source.plan(position, Limits())


def test_a_name_that_no_topic_has_is_told_as_one(kafka: Broker, table: hoodoo.Table) -> None:
    """A slip of the keyboard was told to give the job another name."""
    with pytest.raises(SourceLost, match=f"Kafka at {kafka.address} does not have topic 'nonesuch'.*an existing topic"):
        hoodoo.ingest(Kafka(kafka.address, "nonesuch"), table).run()


# ---- times
def test_a_job_is_reset_to_a_time_of_messages(kafka: Broker, table: hoodoo.Table) -> None:
    topic = kafka.topic(4, retention_ms=-1)
    new_year, hour = 1_767_225_600_000, 3_600_000  # 2026-01-01T00:00:00Z
    for partition, number, at in [
        *((0, number, new_year + (number - 2) * hour) for number in range(5)),
        *((1, number, new_year - hour) for number in range(3)),  # all of them are older
        *((2, number, new_year + at) for number, at in enumerate([-hour, 1, -hour, hour])),  # not in their order
    ]:
        kafka.put(topic, *rows(f"{partition}-{number}"), partition=partition, at_ms=at)
    source = Kafka(kafka.address, topic)
    job = hoodoo.ingest(source, table)
    assert job.run().rows == 12
    assert offsets(source.position_at("2026-01-01T01:00:00+01:00")) == "0:2,1:3,2:1,3:0"
    assert offsets(source.position_at("2026-01-01T00:00:00.001Z")) == "0:3,1:3,2:1,3:0"
    job.reset("2026-01-01T00:00:00Z", expect_number=0)
    assert offsets(job.position()) == "0:2,1:3,2:1,3:0"
    again, _ = read(source, job.position())
    assert again == ["0-2", "0-3", "0-4", "2-1", "2-2", "2-3"]
    assert job.run().rows == 12 + len(again) and table.scan().count() == 12


# ---- groups and codecs
def test_offsets_of_the_group_are_neither_read_nor_written(kafka: Broker, table: hoodoo.Table) -> None:
    topic = kafka.topic()
    kafka.put(topic, *rows(*range(6)))
    other = Consumer({"bootstrap.servers": kafka.address, "group.id": "hoodoo"})

    def commit(offset: int) -> None:
        other.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)

    try:
        commit(4)
        assert hoodoo.ingest(Kafka(kafka.address, topic), table).run().rows == 6
        commit(1)
        assert hoodoo.ingest(Kafka(kafka.address, topic), table).run().batches == 0
        [committed] = other.committed([TopicPartition(topic, 0)], timeout=10)
        assert committed.offset == 1
    finally:
        other.close()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_messages_of_every_codec_are_read(kafka: Broker, codec: str) -> None:
    topic, sent = kafka.topic(), rows(*(f"{number:040d}" for number in range(500)))
    kafka.put(topic, *sent, compression_type=codec, linger_ms=100)
    assert read(Kafka(kafka.address, topic))[0] == [one["id"] for one in sent]


# ---- a broker that goes away
class Watched(Kafka):
    """A topic that counts how often its broker did not answer."""

    unanswered = 0

    def plan(self, position: str, limits: Limits) -> Planned | None:
        try:
            return super().plan(position, limits)
        except SourceUnavailable:
            self.unanswered += 1
            raise


def test_a_job_goes_on_where_it_was_once_its_broker_is_back(
    kafka: Broker, table: hoodoo.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker wants a password, so that one that is away could be taken for one that refuses it."""
    monkeypatch.setattr("hoodoo.sources.kafka_client._ASK_S", 1.0)
    topic = kafka.topic(2)
    kafka.put(topic, *rows(*range(100)))
    settings = {"reconnect.backoff.max.ms": 200, **kafka.settings_of("reader")}
    source = Watched(kafka.locked, topic, idle_seconds=2, settings=settings)
    job, failed = hoodoo.ingest(source, table, max_rows=30), list[BaseException]()

    def run() -> None:
        try:
            job.run(once=False, poll_seconds=0.02)
        except BaseException as problem:
            failed.append(problem)

    running = threading.Thread(target=run)
    running.start()
    try:
        wait_for(lambda: failed or table.scan().count() > 0, "the first rows")
        kafka.kill()
        try:
            wait_for(lambda: failed or source.unanswered, "a job that the broker does not answer")
        finally:
            kafka.start()
        kafka.put(topic, *rows(*range(100, 150)), partition=1)
        wait_for(lambda: failed or table.scan().count() == 150, "all rows")
    finally:
        job.stop()
        running.join()
    assert failed == []
    assert inserted(table) == sorted(map(str, range(150)))
