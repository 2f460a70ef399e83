"""Both kinds of session on one JVM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from spark_settings import connect_port

import hoodoo


@pytest.fixture(scope="session")
def connected(spark: Any) -> Iterator[Any]:
    """A Spark Connect session of the JVM that the classic one runs in."""
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(f"sc://127.0.0.1:{connect_port(spark)}").create()
    yield session
    session.stop()


@pytest.fixture(params=["classic", "connect"])
def session(request: pytest.FixtureRequest, spark: Any) -> Any:
    """A session that knows the data source."""
    chosen = spark if request.param == "classic" else request.getfixturevalue("connected")
    hoodoo.register(chosen)
    hoodoo.register(chosen)  # a second time does nothing
    return chosen
