"""A worker keeps entries in real catalogs up to date; run by `make formats`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import metastore_reader
import pyarrow as pa
import pytest
from exported_tables import make
from patience import PATIENCE_S
from pyiceberg.catalog import Catalog, load_catalog
from worker_tables import loop_of

import hoodoo
from hoodoo.cli.main import main
from hoodoo.compactor import catalog_entries
from hoodoo.compactor.worker import Worker

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that comes is waited for, however slow the machine is."""
    monkeypatch.setattr(catalog_entries, "_AT_ONCE_S", PATIENCE_S)


@pytest.fixture
def metastore(hive: str) -> Catalog:
    """A Hive metastore with the empty namespace `lake`."""
    opened = load_catalog("hms", type="hive", uri=hive, **{"hive.hive2-compatible": "true"})
    opened.create_namespace_if_not_exists("lake")
    for name in metastore_reader.names(opened):
        metastore_reader.drop(opened, name)
    return opened


def some(*parts: str, first: int = 1) -> list[dict[str, Any]]:
    return [{"id": first + number, "part": part} for number, part in enumerate(parts)]


def test_each_export_of_a_worker_moves_the_iceberg_entry_and_refreshes_hudis_own(
    metastore: Catalog, tmp_path: Path
) -> None:
    table = make(tmp_path / "t", SCHEMA, export_formats="iceberg", export_every_seconds=0)
    table.upsert(some("a"))
    kept = {"register": "lake.rides", "register_hudi": "lake.rides_hudi", "catalog": metastore}
    with loop_of(table, "export", **kept) as loop:
        for number, parts in enumerate((["a"], ["a", "b"], ["a", "b", "c"])):
            if number:
                table.upsert(some(parts[-1], first=10 * number))
            loop.run_due_services()
            assert not loop.has_failing_work
            assert metastore.load_table("lake.rides").scan().to_arrow().num_rows == number + 1
            found = metastore_reader.entry(metastore, "rides_hudi")
            assert sorted(found["partitions"]) == [(part,) for part in parts]


def test_the_worker_of_the_command_line_registers(
    metastore: Catalog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(tmp_path / name) for name in "tu"]
    for path in paths:
        make(Path(path), SCHEMA, export_formats="iceberg").upsert(some("a"))
    where = ["--catalog", "prod"]
    for name, value in metastore.properties.items():
        where += ["--catalog-property", f"{name}={value}"]
    kept = [
        *("--register", "lake.t", "--register", "lake.u"),
        *("--register-hudi", "lake.th", "--register-hudi", "lake.uh"),
    ]
    assert main(["worker", *paths, "--once", "--services", "export", *kept, *where, "--json"]) == 0
    assert metastore_reader.names(metastore) == ["t", "th", "u", "uh"]
    assert metastore.load_table("lake.u").metadata.location == f"file://{paths[1]}"
    assert metastore_reader.entry(metastore, "uh")["location"] == f"file:{paths[1]}"
    assert capsys.readouterr().out.count('"event": "registered"') == 4
    assert main(["worker", *paths, "--once", "--services", "export", "--register", "lake.t", *where]) == 1
    assert "one entry per table" in capsys.readouterr().err


def test_a_worker_that_runs_once_says_by_its_exit_code_that_a_catalog_refused(
    metastore: Catalog, tmp_path: Path
) -> None:
    other = make(tmp_path / "other", SCHEMA)
    other.register("lake.rides", catalog=metastore)
    table = make(tmp_path / "t", SCHEMA)
    outcome = Worker([table], once=True, register_hudi="lake.rides", catalog=metastore).run()
    assert outcome.failed == (table.path,) and outcome.finished
    (problem,) = hoodoo.open(table.path).maintenance.services().problems
    assert "another table" in problem.message and problem.service == "register-hudi lake.rides"


def test_a_table_without_an_iceberg_export_is_told_what_to_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = make(tmp_path / "t", SCHEMA, export_formats="delta")
    table.upsert(some("a"))
    sql = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    with loop_of(table, "export", register="lake.rides", catalog="prod", catalog_properties=sql) as loop:
        loop.run_due_services()
        assert loop.has_failing_work
    assert "export_formats to 'iceberg' or 'both'" in caplog.text


def test_a_worker_starts_though_its_catalog_cannot_be_opened(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is no reason to leave tables uncompacted."""
    table = make(tmp_path / "t", SCHEMA, type="merge_on_read")
    for _ in range(3):
        table.upsert(some("a"))
    nowhere = {"type": "hive", "uri": "thrift://127.0.0.1:1"}
    worker = Worker([table], once=True, logs_min=1, register_hudi="lake.t", catalog="prod", catalog_properties=nowhere)
    assert worker.run().failed == (table.path,)
    assert worker.loops[0].work["compact"].runs and "registration_failed" in caplog.text
