"""Tables that Apache Hudi wrote are read to the rows that Hudi itself reads: now, base files only, at every instant,
and as changes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import golden_tables as golden
import pyarrow as pa
import pytest
from hudi_rows import hudi_rows

import hoodoo


def plain(scan: hoodoo.Scan) -> list[dict[str, Any]]:
    rows = scan.to_arrow()
    maps = [field.name for field in rows.schema if pa.types.is_map(field.type)]
    return golden.sorted_rows(
        [row | {name: dict(row[name]) for name in maps if row[name] is not None} for row in rows.to_pylist()]
    )


@pytest.mark.parametrize("name", golden.NAMES)
def test_a_table_that_apache_hudi_wrote_reads_as_hudi_reads_it(tmp_path: Path, name: str) -> None:
    table, facts = hoodoo.open(golden.unpack(name, tmp_path)), golden.facts(name)
    assert plain(table.scan(meta=True)) == facts["snapshot"]
    assert table.scan().count() == len(facts["snapshot"])
    assert plain(table.scan(meta=True, read_optimized=True)) == facts["read_optimized"]
    for instant in facts["instants"]:
        assert plain(table.scan(meta=True, as_of=instant["instant"])) == instant["rows"]


@pytest.mark.parametrize("name", golden.NAMES)
def test_the_hudi_package_and_hoodoo_read_a_golden_table_alike(tmp_path: Path, name: str) -> None:
    path = golden.unpack(name, tmp_path)
    keys = sorted(row["_hoodie_record_key"] for row in hudi_rows(path))
    assert sorted(hoodoo.open(path).scan(meta=True).to_arrow()["_hoodie_record_key"].to_pylist()) == keys
