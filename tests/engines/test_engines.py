"""Each engine reads the exports of each table as tests/data/engines.json records; run by `make engines`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import seaweed
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
    "spark": "spark",
    "flink": "flink",
    "trino": "trino",
}
"""Environment below .venv-engines, by engine."""
ON_S3 = ("trino",)
"""Engines that read tables on S3, because they refuse the locations of local Iceberg tables."""


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    make_tables(folder)
    return folder


@pytest.fixture(scope="session")
def tables_on_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder with the manifest of tables on an S3 server. The environment has the credentials."""
    folder = tmp_path_factory.mktemp("tables_on_s3")
    with seaweed.server(folder) as options, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", options["endpoint"])
        patch.setenv("AWS_REGION", options["region"])
        patch.setenv("AWS_ACCESS_KEY_ID", options["access_key"])
        patch.setenv("AWS_SECRET_ACCESS_KEY", options["secret_key"])
        make_tables(folder, f"s3://{seaweed.BUCKET}")
        yield folder


@pytest.mark.parametrize("engine", ENVIRONMENTS)
def test_an_engine_reads_the_tables_as_recorded(request: pytest.FixtureRequest, tmp_path: Path, engine: str) -> None:
    tables: Path = request.getfixturevalue("tables_on_s3" if engine in ON_S3 else "tables")
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
