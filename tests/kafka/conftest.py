"""The broker that the tests of topics share; here, because its client is not in every environment of tests."""

from __future__ import annotations

from collections.abc import Iterator

import kafka_broker
import pytest


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka_broker.Broker]:
    """A real broker of Kafka. `make kafka` fetches its jars; `make test` calls it."""
    with kafka_broker.broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running
