"""What all tests share: tiers, timeouts and the one retry of `outside` tests; Hypothesis' profiles; one Spark session
per worker, on this interpreter, in UTC, without a UI; one S3 server; and notes for the summary of a run.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import outside
import pytest
import resume
import seaweed
import tiers
from spark_settings import connect_settings, local_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The gate draws the same examples in every run, whatever the machine's speed. HOODOO_DRAW=anew draws others each time.
_ANY_SPEED = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large]
hypothesis.settings.register_profile(
    "fixed", derandomize=True, deadline=None, database=None, suppress_health_check=_ANY_SPEED
)
hypothesis.settings.register_profile("anew", deadline=None, database=None, suppress_health_check=_ANY_SPEED)
hypothesis.settings.load_profile(os.environ.get("HOODOO_DRAW", "fixed"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier", choices=(tiers.QUICK, tiers.DEEP, tiers.SAMPLE), default="", help="tests of one tier only"
    )
    parser.addoption(
        "--resume", action="store_true", help="deep tier: leave out what passed in an earlier run over the same tree"
    )


def pytest_configure(config: pytest.Config) -> None:
    tier = config.getoption("--tier") or tiers.QUICK
    tiers.choose(tier)
    if tier == tiers.DEEP:
        resume.choose(config.rootpath, tier)
    for name, meaning in tiers.MARKS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of the other tiers go. Those of Spark stay together under `--dist loadgroup`, and those of Kafka, so that
    one worker alone starts their JVM.
    """
    tier = config.getoption("--tier")
    done = resume.passed() if config.getoption("--resume") else frozenset()
    here = [
        item
        for item in items
        if tiers.runs_in(tier, item.path, {mark.name for mark in item.iter_markers()}) and item.nodeid not in done
    ]
    if len(here) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in set(here)])
        items[:] = here
    for item in items:
        fixtures = frozenset(getattr(item, "fixturenames", ()))
        for group in {"spark", "kafka"} & fixtures:
            item.add_marker(pytest.mark.xdist_group(group))
        slow = 3 if tiers.is_deep() else 1
        if outside.is_outside(item.path, tiers.folder_of(item.path), fixtures):
            item.add_marker(pytest.mark.outside)
            item.add_marker(pytest.mark.flaky(reruns=1, condition=outside.can_be_the_outsides_fault))
            item.add_marker(pytest.mark.timeout(outside.TIMEOUT_S * slow))
        else:
            item.add_marker(pytest.mark.timeout(outside.TIMEOUT_INSIDE_S * slow))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In the process that collects the reports: what passed need not run again (`--resume`)."""
    if tiers.is_deep() and report.when == "call" and report.passed and "PYTEST_XDIST_WORKER" not in os.environ:
        resume.add(re.sub(r"@\w+$", "", report.nodeid))  # xdist adds the group's name


@pytest.fixture
def note(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """`note(text)`: a line for the summary of the run, for what is no failure and must not go unseen."""
    return lambda text: record_property("note", text)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Every retry and note; then seconds by folder, and the budget of each, so that what grows is seen."""
    stats = terminalreporter.stats
    reports = [one for those in stats.values() for one in those if isinstance(one, pytest.TestReport)]
    said = [f"RETRIED {one.nodeid}: {_first_line(one)}" for one in stats.get("rerun", ())]
    said += [
        f"NOTE {text}" for one in reports if one.when == "call" for name, text in one.user_properties if name == "note"
    ]
    if said:
        terminalreporter.section("to look at")
    for line in said:
        terminalreporter.write_line(line)
    if not (tier := config.getoption("--tier")):
        return
    spent: Counter[str] = Counter()
    for one in reports:
        spent[tiers.folder_of(Path(one.nodeid.partition("::")[0]))] += one.duration
    if spent:
        terminalreporter.section("seconds by folder")
    for folder, seconds in spent.most_common():
        budget = tiers.BUDGET_S.get(folder, 0) if tier == tiers.QUICK else 0
        over = f"  over its budget of {budget}" if budget and seconds > budget else ""
        terminalreporter.write_line(f"{seconds:8.1f}  {folder}{over}")


def _first_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longrepr).splitlines()[0][:200]


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
