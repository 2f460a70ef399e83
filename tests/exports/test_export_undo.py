"""Another engine took commits back and deleted their files: what is exported afterwards names none of them."""

from __future__ import annotations

from pathlib import Path

import exported
import iceberg_reader
import pytest
from deltalake import DeltaTable
from exported_tables import make, plain, rows
from golden_tables import NAMES, unpack
from undone_commits import undone

import hoodoo
from hoodoo.exports import export as exporting
from hoodoo.storage.local import LocalStore
from hoodoo.timeline.history import History
from hoodoo.timeline.properties import hoodie_properties


def export(path: Path) -> None:
    """As somebody who publishes nothing."""
    history = History(LocalStore(str(path)))
    exporting.export_table(history.store, history, hoodie_properties.load(history.store), history.head(), 0, True, True)


@pytest.mark.parametrize("exports", [False, True])
def test_files_of_commits_that_were_taken_back_are_not_exported(tmp_path: Path, exports: bool) -> None:
    path = tmp_path / "t"
    table = make(path)
    table.upsert(rows(1, 2))
    table.export(delta=True, iceberg=True)
    undone(path, lambda table: table.upsert(rows(1, 70, version=9, part="b")), lambda: exports and export(path))
    table = hoodoo.open(path)
    table.upsert(rows(5))
    assert table.handle.history.head().undone
    table.export(delta=True, iceberg=True)
    want = plain(table.scan().to_arrow())
    assert plain(DeltaTable(path).to_pyarrow_table()) == want
    found = iceberg_reader.metadata(path)
    assert plain(iceberg_reader.rows(found, found["snapshots"][-1])) == want
    if not exports:
        exported.check(path)


@pytest.mark.parametrize("name", [name for name in NAMES if "version_6" not in name])
def test_a_table_that_apache_hudi_wrote_is_exported_once_it_is_adopted(tmp_path: Path, name: str) -> None:
    path = unpack(name, tmp_path)
    table = hoodoo.open(path)
    formats = {"iceberg": True, "delta": not any(str(kind).startswith("time") for kind in table.schema.types)}
    table.export(**formats)
    seen = plain(table.scan(read_optimized=True).to_arrow())
    if formats["delta"]:
        assert plain(DeltaTable(path).to_pyarrow_table()) == seen
    found = iceberg_reader.metadata(path)
    assert plain(iceberg_reader.rows(found, found["snapshots"][-1])) == seen
