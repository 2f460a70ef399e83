"""The facts of tests/data/golden, against which hoodoo's own reader is tested, are what Apache Hudi reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import golden_tables as golden
import hudi_session
import pytest
from pyspark.sql import SparkSession


@pytest.mark.parametrize("name", golden.NAMES)
def test_apache_hudi_reads_a_golden_table_as_recorded(hudi: SparkSession, tmp_path: Path, name: str) -> None:
    path, facts = golden.unpack(name, tmp_path), golden.facts(name)
    for recorded, how in (("snapshot", {}), ("read_optimized", {"read_optimized": True})):
        rows = hudi_session.hudi_frame(hudi, path, **how).collect()
        assert golden.sorted_rows([row.asDict(recursive=True) for row in rows]) == facts[recorded]
    for instant in facts["instants"][-2:]:
        rows = hudi_session.hudi_frame(hudi, path, as_of=instant["instant"]).collect()
        assert golden.sorted_rows([row.asDict(recursive=True) for row in rows]) == instant["rows"]


@pytest.mark.parametrize("name", golden.CHANGED_COLUMNS)
def test_apache_hudi_reads_a_golden_table_with_changed_columns_as_recorded(
    hudi: SparkSession, tmp_path: Path, name: str
) -> None:
    path, facts = golden.unpack(name, tmp_path), golden.facts(name)
    by_ids = name.endswith("by_ids")
    how: dict[str, Any] = {"vectorized": not by_ids, "options": {"hoodie.schema.on.read.enable": str(by_ids).lower()}}
    rows = hudi_session.hudi_frame(hudi, path, **how).collect()
    assert golden.sorted_rows([row.asDict(recursive=True) for row in rows]) == facts["snapshot"]
    for instant in facts["instants"][-3:-1]:
        rows = hudi_session.hudi_frame(hudi, path, as_of=instant["instant"], **how).collect()
        assert golden.sorted_rows([row.asDict(recursive=True) for row in rows]) == instant["rows"]


@pytest.mark.parametrize("name", golden.VERSION_6)
def test_apache_hudi_1_reads_a_golden_table_of_version_6_as_recorded(
    hudi: SparkSession, tmp_path: Path, name: str
) -> None:
    path, facts = golden.unpack(name, tmp_path), golden.facts(name)
    if not facts["instants"]:
        return  # it has nothing that a path alone would tell Spark of

    def read(**how: Any) -> list[dict[str, Any]]:
        rows = hudi_session.hudi_frame(hudi, path, **how).collect()
        return golden.by_columns([golden.plain(row.asDict(recursive=True)) for row in rows])

    for recorded, how in (("snapshot", {}), ("read_optimized", {"read_optimized": True})):
        assert read(**how) == golden.by_columns(golden.stored(name, facts[recorded]))
    for instant in [one for one in facts["instants"] if one["rows"] is not None][-2:]:
        assert read(as_of=instant["instant"]) == golden.by_columns(golden.stored(name, instant["rows"]))
