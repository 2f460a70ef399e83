"""The examples that need no Spark run as a user would run them."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_year_of_flights_changes_its_columns_while_a_consumer_keeps_a_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runpy.run_path(str(EXAMPLES / "year_of_columns.py"))
    run["main"](str(tmp_path), "2000")
    said = capsys.readouterr().out
    for change in ("add tailnum", "rename dep_delay", "widen distance", "add air_time", "drop dep_time"):
        assert change in said
    assert "the copy is the same" in said
