"""Each engine reads and writes exported tables as the JSON files of tests/data record; run by `make engines`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import catalog_servers
import pytest
import seaweed
from engine_tables import PLAIN, make_tables
from engine_writers import WRITERS

import hoodoo
from hoodoo.errors import ForeignExport, HoodooError, TableNotFound

ROOT = Path(__file__).resolve().parents[2]
READS = ROOT / "tests/data/engines.json"
WRITES = ROOT / "tests/data/engine_writes.json"
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
VERSIONS = [[{"id": f"k{number:03}", "ts": ts, "fare": 1.0, "note": "note"} for number in range(10)] for ts in (1, 2)]
"""Rows of the two versions of a table to which engines try to write."""
ON_S3 = ("trino",)
"""Engines that read tables on S3, because they refuse the locations of local Iceberg tables."""


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    make_tables(folder)
    return folder


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a bucket. The environment has the credentials of its server, and the address of a Hive metastore."""
    metastore = catalog_servers.hive_metastore(tmp_path_factory.mktemp("metastore"))
    with (
        seaweed.server(tmp_path_factory.mktemp("s3")) as options,
        metastore as uri,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("METASTORE", uri)
        patch.setenv("AWS_ENDPOINT_URL", options["endpoint"])
        patch.setenv("AWS_REGION", options["region"])
        patch.setenv("AWS_ACCESS_KEY_ID", options["access_key"])
        patch.setenv("AWS_SECRET_ACCESS_KEY", options["secret_key"])
        yield f"s3://{seaweed.BUCKET}"


@pytest.fixture(scope="session")
def tables_on_s3(s3: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the manifest of tables on an S3 server."""
    folder = tmp_path_factory.mktemp("tables_on_s3")
    make_tables(folder, s3)
    return folder


@pytest.mark.timeout(1900)  # subprocesses have a time limit of their own
@pytest.mark.parametrize("engine", ENVIRONMENTS)
def test_an_engine_reads_the_tables_as_recorded(request: pytest.FixtureRequest, tmp_path: Path, engine: str) -> None:
    tables: Path = request.getfixturevalue("tables_on_s3" if engine in ON_S3 else "tables")
    # ClickHouse reads files below its working directory only
    results = _run("engine_readers.py", engine, tables, tmp_path / "results.json", tables)
    _record(READS, engine, results)
    assert results == json.loads(READS.read_text())[engine]


@pytest.mark.timeout(1900)
@pytest.mark.parametrize("engine", WRITERS)
def test_writes_of_an_engine_end_as_recorded(request: pytest.FixtureRequest, tmp_path: Path, engine: str) -> None:
    root = request.getfixturevalue("s3") + f"/writes_{engine}" if engine in ON_S3 else str(tmp_path / "tables")
    paths = [f"{root}/table_{number}" for number in range(12)]
    for path in paths:
        table = hoodoo.create(path, PLAIN, key="id", type="copy_on_write", clean_every=None)
        for rows in VERSIONS:
            table.upsert(rows)
            table.export(delta=True, iceberg=True)
    (tmp_path / "paths.json").write_text(json.dumps(paths))
    results = _run("engine_writers.py", engine, tmp_path / "paths.json", tmp_path / "results.json", tmp_path)
    ends = {statement: _end(outcome, path) for statement, (outcome, path) in results.items()}
    _record(WRITES, engine, ends)
    assert ends == json.loads(WRITES.read_text())[engine]


def _end(outcome: str, path: str) -> str:
    """Return the outcome of a write, and its effect: 'refused', 'no change', 'detected', or what was deleted.

    After a write that was detected, a rebuilt export has to repair the metadata.
    """
    try:
        table = hoodoo.open(path)
    except TableNotFound:
        return "table deleted"
    assert table.scan().to_arrow().sort_by("id").to_pylist() == VERSIONS[-1]
    try:
        assert table.scan(as_of=table.cursor.seq - 1).to_arrow().sort_by("id").to_pylist() == VERSIONS[0]
    except HoodooError:
        return "older files deleted"
    try:
        table.export(delta=True, iceberg=True)
    except ForeignExport:
        table.export(delta=True, iceberg=True, rebuild=True)
        table.export(delta=True, iceberg=True)
        assert outcome == "done"
        return "detected"
    return "refused" if outcome == "refused" else "no change"


def _run(program: str, engine: str, argument: Path, output: Path, folder: Path) -> dict[str, Any]:
    """Run a program in the environment of an engine and in a working folder, and return its results."""
    python = ROOT / ".venv-engines" / ENVIRONMENTS[engine] / "bin/python"
    command = [python, Path(__file__).with_name(program), engine, argument, output]
    subprocess.run(command, check=True, cwd=folder, timeout=1800)
    results: dict[str, Any] = json.loads(output.read_text())
    return results


def _record(file: Path, engine: str, results: dict[str, Any]) -> None:
    """Store the results of an engine if UPDATE is set."""
    if os.environ.get("UPDATE"):
        recorded = json.loads(file.read_text()) if file.exists() else {}
        recorded[engine] = results
        file.write_text(json.dumps(dict(sorted(recorded.items())), indent=1, ensure_ascii=False) + "\n")
