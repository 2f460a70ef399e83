"""The demo's job through PySpark DataFrames, on the session that runs already."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import hoodoo
from hoodoo.cli.main import main
from hoodoo.demo.flights import Flights, MessageBatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FEEDS = Flights.feeds


def half_years(flights: Flights) -> list[MessageBatch]:
    """The same messages in four large feeds: which feed brings a message must not matter."""
    kinds = [
        (last, [feed for feed in FEEDS(flights) if first <= feed.half <= last]) for first, last in ((0, 11), (12, 24))
    ]
    return [
        MessageBatch(last, kind, pa.concat_tables([feed.rows for feed in feeds if feed.kind == kind]))
        for last, feeds in kinds
        for kind in ("arrivals", "departures")
    ]


@pytest.mark.deep
def test_the_demo_on_spark_leaves_a_table_that_holds_what_it_must(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Flights, "feeds", half_years)
    assert main(["demo", "--path", str(tmp_path / "demo"), "--engine", "spark", "--rows", "2000", "--json"]) == 0
    story = json.loads(capsys.readouterr().out)
    assert story["engine"].startswith("PySpark ")
    assert story["checks"] and all(story["checks"].values())
    assert hoodoo.open(tmp_path / "demo").verify().problems == []
    assert spark.range(3).count() == 3  # a session that the demo did not start is not stopped
