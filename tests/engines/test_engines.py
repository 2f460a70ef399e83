"""Each engine reads the exports of each table as tests/data/engines.json records; run by `make engines`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from engine_tables import make_tables

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests/data/engines.json"
ENVIRONMENTS = {
    "duckdb": "lake",
    "polars": "lake",
    "deltalake": "lake",
    "pyiceberg": "lake",
    "datafusion": "datafusion",
    "clickhouse": "clickhouse",
    "sail": "sail",
    "daft": "daft",
    "hudi_rs": "hudi",
}
"""Environment below .venv-engines, by engine."""


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    make_tables(folder)
    return folder


@pytest.mark.parametrize("engine", ENVIRONMENTS)
def test_an_engine_reads_the_tables_as_recorded(tables: Path, tmp_path: Path, engine: str) -> None:
    python = ROOT / ".venv-engines" / ENVIRONMENTS[engine] / "bin/python"
    output = tmp_path / "results.json"
    reader = Path(__file__).with_name("engine_readers.py")
    # ClickHouse reads files below its working directory only
    subprocess.run([python, reader, engine, tables, output], check=True, cwd=tables, timeout=1800)
    results: dict[str, Any] = json.loads(output.read_text())
    if os.environ.get("UPDATE"):
        recorded = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        recorded[engine] = results
        RESULTS.write_text(json.dumps(dict(sorted(recorded.items())), indent=1, ensure_ascii=False) + "\n")
    assert results == json.loads(RESULTS.read_text())[engine]
