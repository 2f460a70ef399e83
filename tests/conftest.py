"""What all tests share: one Spark session per worker, on this interpreter, in UTC, without a UI; and one S3 server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import seaweed
from spark_settings import connect_settings, local_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of Spark stay together under `--dist loadgroup`, so that only one worker starts a JVM."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two cores. `tools/java.sh` finds or installs the Java it needs; `make test` calls it."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").appName("hoodoo tests")
    for name, value in (local_settings(folder) | connect_settings()).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Storage options of a real S3 server. Tests that use it are in the group `s3`, so that one worker starts it."""
    with seaweed.server(tmp_path_factory.mktemp("seaweed")) as options:
        yield options
