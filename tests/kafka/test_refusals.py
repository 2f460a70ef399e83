"""A broker that wants to know who reads: who may does, and who may not is told so at once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import ResourceType
from kafka_broker import Broker

import hoodoo
from hoodoo.errors import OptionError, SourceUnavailable
from hoodoo.sources import Kafka, Limits


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", pa.schema([("id", pa.string())]), key="id")


@pytest.fixture
def topic(kafka: Broker) -> str:
    made = kafka.topic(2)
    kafka.put(made, {"id": "a"}, {"id": "b"})
    return made


def job(kafka: Broker, topic: str, table: hoodoo.Table, user: str, **how: str) -> hoodoo.Job:
    password = how.pop("password", None)
    said = kafka.settings_of(user, password) if password else kafka.settings_of(user)
    return hoodoo.ingest(Kafka(kafka.locked, topic, settings={**said, **how}), table)


def test_who_knows_the_password_reads(kafka: Broker, topic: str, table: hoodoo.Table) -> None:
    assert job(kafka, topic, table, "reader").run().rows == 2


@pytest.mark.parametrize("once", [True, False], ids=["once", "for ever"])
def test_a_wrong_password_ends_a_job_at_once(kafka: Broker, topic: str, table: hoodoo.Table, once: bool) -> None:
    """It was a broker that does not answer, which a job waits for."""
    refused = job(kafka, topic, table, "reader", password="wrong")
    with pytest.raises(OptionError, match=f"{kafka.locked}.*[Aa]uthentication.*sasl.password") as problem:
        refused.run(once=once)
    assert (problem.value.details["option"], refused.report.retries) == ("settings", 0)


def test_who_does_not_say_who_he_is_is_told_where_to(
    kafka: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was said but that the broker did not respond."""
    monkeypatch.setattr("hoodoo.sources.kafka_client._ASK_S", 2.0)
    with pytest.raises(SourceUnavailable, match="did not respond .* set security.protocol in settings"):
        Kafka(kafka.locked, topic).plan("", Limits())


def test_a_mechanism_that_the_broker_does_not_know_ends_a_job_at_once(
    kafka: Broker, topic: str, table: hoodoo.Table
) -> None:
    refused = job(kafka, topic, table, "reader", **{"sasl.mechanism": "SCRAM-SHA-256"})
    with pytest.raises(OptionError, match="SCRAM-SHA-256.*sasl.mechanism"):
        refused.run(once=False)


def test_a_topic_that_is_somebody_elses_ends_a_job_at_once(kafka: Broker, topic: str, table: hoodoo.Table) -> None:
    kafka.allow("reader", ResourceType.TOPIC, topic)
    with pytest.raises(OptionError, match=f"to describe and read topic '{topic}'"):
        job(kafka, topic, table, "stranger").run(once=False)
    assert job(kafka, topic, table, "reader").run().rows == 2


def test_no_group_has_to_be_allowed(kafka: Broker, topic: str, table: hoodoo.Table) -> None:
    """Partitions are assigned: the group is a name only that the client wants."""
    kafka.allow("stranger", ResourceType.GROUP, "of-somebody-else")
    report = job(kafka, topic, table, "reader", **{"group.id": "of-somebody-else"}).run()
    assert (report.rows, report.retries) == (2, 0)
