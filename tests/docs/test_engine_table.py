"""The tables of engines in docs/other-engines.md show the results that `make engines` recorded."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import engine_table  # noqa: E402


def test_the_tables_of_engines_show_the_recorded_results() -> None:
    recorded = json.loads(engine_table.RESULTS.read_text())
    page = engine_table.PAGE.read_text()
    assert engine_table.BEGIN + engine_table.table(recorded) + engine_table.END in page
    writes = engine_table.table_of_writes(json.loads(engine_table.WRITES.read_text()), recorded)
    assert engine_table.WRITES_BEGIN + writes + engine_table.WRITES_END in page


def test_the_table_of_engines_counts_faults() -> None:
    result = {"right": {"delta base rows": 3, "delta base filter": 2}, "faults": {"delta base t rows": "wrong: 1 rows"}}
    lines = engine_table.table({"x": {"version": "X 1", "limits": ["no filters"], **result}}).splitlines()
    assert lines[2] == "| X 1 |  |  |  | 5 right, 1 wrong |  |  |  | no filters |"
