"""Parquet files of other programs in a table's folder, which a sweep names and leaves alone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hoodoo
from hoodoo.compactor.cleaning import cleaning_services

ROWS = [{"id": "a", "part": "x", "v": 1}, {"id": "b", "part": "y", "v": 2}]


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64())])
    made = hoodoo.create(tmp_path / "t", schema, key="id", partition_by="part")
    made.upsert(ROWS)
    made.export(delta=True, iceberg=True)
    return made


def leave(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"v": [1]}), path)


def test_a_sweep_names_parquet_files_of_other_programs_and_deletes_none(table: hoodoo.Table, tmp_path: Path) -> None:
    left = ["data/part=x/00000-1-2.parquet", "x/part-00000-c000.snappy.parquet"]
    for key in left:
        leave(tmp_path / "t" / key)
    assert table.maintenance.sweep(0).external == left
    assert all((tmp_path / "t" / key).exists() for key in left)
    assert sorted(row["id"] for row in table.scan().to_arrow().to_pylist()) == ["a", "b"]


def test_metadata_in_parquet_and_files_of_a_table_inside_are_not_foreign(table: hoodoo.Table, tmp_path: Path) -> None:
    own = ["_delta_log/00000000000000000010.checkpoint.parquet", "metadata/deletes.parquet"]
    for key in [*own, "x/.hoodie_partition_metadata.parquet", ".hoodie/metadata/files/f.parquet"]:
        leave(tmp_path / "t" / key)
    inner = tmp_path / "t" / "inner"
    (inner / ".hoodie").mkdir(parents=True)
    (inner / ".hoodie" / "hoodie.properties").write_text("hoodie.table.name=inner\n")
    leave(inner / "part-0.parquet")
    assert table.maintenance.sweep(0).external == []


def test_a_worker_logs_parquet_files_of_other_programs(
    table: hoodoo.Table, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning_services, "_HOUR_S", 0.0)  # a worker sweeps at once
    leave(tmp_path / "t" / "y" / "part-1.parquet")
    with caplog.at_level("INFO", "hoodoo.worker"):
        hoodoo.Worker([table], ("clean",), once=True).run()
    (record,) = [one for one in caplog.records if "external files found" in one.getMessage()]
    assert "y/part-1.parquet" in record.getMessage()
