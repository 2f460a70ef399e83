"""What all tests share: the tiers; one Spark session per worker, on this interpreter, in UTC, without a UI; and one S3
server.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import seaweed
import tiers
from hypothesis import settings
from spark_settings import connect_settings, local_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile("any machine", settings.get_profile(settings.get_current_profile_name()), deadline=None)
settings.load_profile("any machine")  # a busy machine is no reason to fail


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=(tiers.QUICK, tiers.DEEP), default="", help="tests of one tier only")


def pytest_configure(config: pytest.Config) -> None:
    tiers.choose(config.getoption("--tier") or tiers.QUICK)
    config.addinivalue_line("markers", "deep: takes long; runs in the deep tier")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of the other tier go. Tests of Spark stay together under `--dist loadgroup`, so that only one worker starts
    a JVM.
    """
    tier = config.getoption("--tier")
    here = [item for item in items if tiers.runs_in(tier, item.path, item.get_closest_marker("deep") is not None)]
    if len(here) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in set(here)])
        items[:] = here
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Seconds by folder, and the budget of each, so that what grows is seen."""
    spent: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                spent[tiers.folder_of(Path(report.nodeid))] += report.duration
    if config.getoption("--tier") and spent:
        terminalreporter.section("seconds by folder")
    for folder, seconds in spent.most_common() if config.getoption("--tier") else ():
        budget = tiers.BUDGET_S.get(folder, 0) if config.getoption("--tier") == tiers.QUICK else 0
        over = f"  over its budget of {budget}" if budget and seconds > budget else ""
        terminalreporter.write_line(f"{seconds:8.1f}  {folder}{over}")


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
