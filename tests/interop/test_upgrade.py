"""A table of version 6 that hoodoo upgraded is one of version 9 to Apache Hudi: it reads the rows, and writes on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import golden_tables as golden
import hudi_session
import pytest
from faulty_store import Died, FaultyStore
from pyspark.sql import SparkSession

import hoodoo
from hoodoo.format.names import META_COLUMNS
from hoodoo.table import Table
from hoodoo.timeline.layout import PROPERTIES

TABLES = [
    "v6_cow",
    "v6_cow_archived",
    "v6_cow_complex_keys",
    "v6_mor",
    "v6_mor_archived",
    "v6_mor_by_commit",
    "v6_mor_clustered",
    "v6_mor_metadata",
    "v6_mor_pending_compaction",
]


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return golden.by_columns(
        [{name: golden.plain(row[name]) for name in row if name not in META_COLUMNS} for row in rows]
    )


@pytest.mark.parametrize("name", TABLES)
def test_apache_hudi_reads_and_writes_a_table_that_hoodoo_upgraded(
    hudi: SparkSession, tmp_path: Path, name: str
) -> None:
    path, facts = golden.unpack(name, tmp_path), golden.facts(name)
    table = hoodoo.open(path)
    table.maintenance.adopt()
    upgraded = (path / PROPERTIES).read_text()
    before = plain(facts["snapshot"])

    def read(**how: Any) -> list[dict[str, Any]]:
        return plain([row.asDict(recursive=True) for row in hudi_session.hudi_frame(hudi, path, **how).collect()])

    assert read() == read(read_optimized=True) == before
    for instant in facts["instants"]:
        if "cow" in name and instant["rows"] is not None:
            assert read(as_of=instant["instant"]) == plain(instant["rows"])
    rows = hudi_session.hudi_frame(hudi, path).where("id = 'k1'").drop(*META_COLUMNS)
    changed = rows.withColumn("fare", rows.fare + 1000).withColumn("ts", rows.ts + 1000).localCheckpoint()
    hudi_session.hudi_write(hudi, path, changed, options=hudi_session.NO_METADATA_TABLE)
    after = read()
    assert len(after) == len(before) and sum(row["fare"] >= 1000 for row in after) == 1
    assert plain(hoodoo.open(path).scan().to_arrow().to_pylist()) == after
    assert _settings((path / PROPERTIES).read_text()) == _settings(upgraded)  # it had nothing to upgrade
    table.upsert(table.scan().to_arrow())
    assert read() == after and table.verify().problems == []


def _settings(text: str) -> list[str]:
    return sorted(line for line in text.splitlines() if not line.startswith("#"))


@pytest.mark.parametrize("where", ["the compaction's commit", "the timeline", "the properties"])
def test_apache_hudi_reads_what_a_crashed_upgrade_left(hudi: SparkSession, tmp_path: Path, where: str) -> None:
    path, facts = golden.unpack("v6_mor", tmp_path), golden.facts("v6_mor")
    store = FaultyStore(str(path))
    dying = Table(store)
    step = {"the compaction's commit": r"\.hoodie/\d+\.commit", "the timeline": ".*clean", "the properties": PROPERTIES}
    store.fault = lambda number, operation, key: "die after" if re.fullmatch(step[where], key) else None
    with pytest.raises(Died):
        dying.maintenance.adopt()
    rows = hudi_session.hudi_frame(hudi, path).collect()
    assert plain([row.asDict(recursive=True) for row in rows]) == plain(facts["snapshot"])
