"""Tables that Apache Hudi wrote are read to the rows that Hudi itself reads: now, base files only, at every instant, and as changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import golden_tables as golden
import pyarrow as pa
import pytest
from hudi_rows import hudi_rows

import hoodoo

REFUSED = {"mor_version_6": "version 6"}
READ = [name for name in golden.NAMES if name not in REFUSED]


def plain(scan: hoodoo.Scan) -> list[dict[str, Any]]:
    rows = scan.to_arrow()
    maps = [field.name for field in rows.schema if pa.types.is_map(field.type)]
    return golden.sorted_rows([row | {name: dict(row[name]) for name in maps if row[name] is not None} for row in rows.to_pylist()])


@pytest.mark.parametrize("name", READ)
def test_a_table_that_apache_hudi_wrote_reads_as_hudi_reads_it(tmp_path: Path, name: str) -> None:
    table, facts = hoodoo.open(golden.unpack(name, tmp_path)), golden.facts(name)
    assert plain(table.scan(meta=True)) == facts["snapshot"]
    assert table.scan().count() == len(facts["snapshot"])
    assert plain(table.scan(meta=True, read_optimized=True)) == facts["read_optimized"]
    for instant in facts["instants"]:
        assert plain(table.scan(meta=True, as_of=instant["instant"])) == instant["rows"]


@pytest.mark.parametrize("name", READ)
def test_the_hudi_package_and_hoodoo_read_a_golden_table_alike(tmp_path: Path, name: str) -> None:
    path = golden.unpack(name, tmp_path)
    keys = sorted(row["_hoodie_record_key"] for row in hudi_rows(path))
    assert sorted(hoodoo.open(path).scan(meta=True).to_arrow()["_hoodie_record_key"].to_pylist()) == keys


@pytest.mark.parametrize("name", READ)
def test_what_is_not_ours_is_read_but_not_written(tmp_path: Path, name: str) -> None:
    table = hoodoo.open(golden.unpack(name, tmp_path))
    before = dict(table._store.list(""))
    for call in (lambda: table.upsert([]), lambda: table.delete([]), table.compact, table.clean, table.verify):
        with pytest.raises(hoodoo.UnsupportedTable):
            call()
    assert dict(table._store.list("")) == before


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_right_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(hoodoo.UnsupportedTable, match=REFUSED[name]):
        hoodoo.open(golden.unpack(name, tmp_path)).scan().to_arrow()


def test_a_commit_that_another_engine_made_on_our_table_is_seen_and_then_not_written_over(tmp_path: Path) -> None:
    """Played back: a golden deltacommit after ours would be invisible to slots; the timeline says it is there."""
    path = golden.unpack("mor_ordered", tmp_path)
    foreign = hoodoo.open(path)
    ours = hoodoo.create(tmp_path / "ours", foreign.schema, key="id", partition_by="city", order_by="ts")
    ours.upsert(foreign.scan().to_arrow())
    newest = max((path / ".hoodie/timeline").glob("*_*.deltacommit"))
    later = "20991231235959000_20991231235959999.deltacommit"
    (tmp_path / "ours/.hoodie/timeline" / later).write_bytes(newest.read_bytes())
    with pytest.raises(hoodoo.UnsupportedTable, match="Another engine"):
        ours.upsert(foreign.scan().to_arrow())
    with pytest.raises(hoodoo.UnsupportedTable, match="Another engine"):
        hoodoo.open(tmp_path / "ours").upsert(foreign.scan().to_arrow())
