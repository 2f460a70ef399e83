"""Tests that need something outside their own process: a JVM, a server, worker processes, sockets.

They carry the mark `outside`, by a fixture or by their file, and have more time. One retry is theirs alone, and only
for failures that the outside can cause: a lost connection, a start or a state that did not come in time. An assertion
is never retried, nor is any error of hoodoo's but a store that did not answer: wrong or lost rows, a problem that
`verify` names and a violated rule are red at once.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from patience import NotInTime

FIXTURES = frozenset({"spark", "s3", "hudi", "server", "kafka"})
FOLDERS = frozenset({"crash", "engines", "fuzz", "interop", "kafka", "load", "soak", "spark", "spark_kill"})
FILES = frozenset(
    {
        "test_avro_messages.py",
        "test_cli_data.py",
        "test_cli_services.py",
        "test_clustering.py",
        "test_counters.py",
        "test_demo.py",
        "test_examples.py",
        "test_faults.py",
        "test_hashing.py",
        "test_in_place.py",
        "test_ingest_kills.py",
        "test_kafka.py",
        "test_kafka_avro.py",
        "test_kafka_start_points.py",
        "test_kill_loop.py",
        "test_lazy_exit.py",
        "test_merge_group.py",
        "test_metrics.py",
        "test_package.py",
        "test_predicate.py",
        "test_s3_refusals.py",
        "test_schema_registry.py",
        "test_server_killed.py",
        "test_simulation.py",
        "test_small_parquet.py",
        "test_snippets.py",
        "test_spark.py",
        "test_worker_process.py",
        "test_writers.py",
        "test_zombies.py",
    }
)
TIMEOUT_S, TIMEOUT_INSIDE_S = 600, 300
"""Seconds after which a test is stopped: with the mark, and without. The deep tier gives three times as many."""

_CAUSES = (ConnectionError, TimeoutError, EOFError, subprocess.TimeoutExpired, NotInTime)
_CAUSES_BY_NAME = frozenset(  # of libraries that not every test environment has
    {
        "ConnectTimeoutError",
        "ConnectionClosedError",
        "EndpointConnectionError",
        "Py4JNetworkError",
        "ReadTimeoutError",
        "SparkConnectGrpcException",
        "StoreUnavailable",
        "URLError",
    }
)


def is_outside(file: Path, folder: str, fixtures: frozenset[str]) -> bool:
    """Tell whether a test needs something outside.

    Args:
        file: the test's file.
        folder: the folder of `tests/` that it lies in.
        fixtures: names of all fixtures that it uses.
    """
    return folder in FOLDERS or file.name in FILES or bool(FIXTURES & fixtures)


def can_be_the_outsides_fault(error: BaseException | None) -> bool:
    """Tell whether a failed test may be tried once more: a condition of `pytest.mark.flaky`."""
    if isinstance(error, AssertionError):
        return False
    if isinstance(error, _CAUSES) or type(error).__name__ in _CAUSES_BY_NAME:
        return True
    return type(error).__name__ == "Failed" and "from pytest-timeout" in str(error)
