"""A broker in this process, librdkafka's own mock, and messages for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of the broker."""
    broker = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 3})
    yield ",".join(f"{one.host}:{one.port}" for one in broker.list_topics(timeout=10).brokers.values())
    broker.flush(1)


@pytest.fixture
def put(cluster: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts messages: (topic, partition, values); a dict is JSON."""
    monkeypatch.setattr("hoodoo.sources.kafka_client._ASK_ID_S", 0.05)  # the mock never answers who asks for an id
    producer = Producer({"bootstrap.servers": cluster, "allow.auto.create.topics": True, "log_level": 2})

    def call(topic: str, partition: int, *values: Any, key: bytes | None = None) -> None:
        for value in values:
            sent = json.dumps(value).encode() if isinstance(value, dict) else value
            producer.produce(topic, sent, key, partition)
        assert producer.flush(10) == 0

    return call
