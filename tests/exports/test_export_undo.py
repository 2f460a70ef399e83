"""Another engine took commits back and deleted their files: what is exported afterwards names none of them."""

from __future__ import annotations

from pathlib import Path

import exported
import iceberg_reader
import pytest
from deltalake import DeltaTable
from exported_tables import make, plain, rows
from faulty_store import Died, FaultyStore
from golden_tables import NAMES, unpack
from slots import make_slot

import hoodoo
from hoodoo.exports import export as exporting
from hoodoo.format.names import instant_of_ms, parse_data_file
from hoodoo.storage.local import LocalStore
from hoodoo.timeline import layout
from hoodoo.timeline.environment import SYSTEM
from hoodoo.timeline.history import History
from hoodoo.timeline.hudi import commit_metadata
from hoodoo.timeline.properties import config
from hoodoo.timeline.slots.slot import ROLLED_BACK


def undone(path: Path, exports: bool) -> None:
    """A commit gets its slot, its writer dies before it publishes, and Apache Hudi rolls it back.

    exports: whether somebody, who publishes nothing, exports in between.
    """
    store = FaultyStore(str(path))
    store.fault = lambda number, operation, key: "die after" if key.startswith(layout.SLOTS) else None
    with pytest.raises(Died):
        hoodoo.Table(store).upsert(rows(1, 70, version=9, part="b"))
    history = History(LocalStore(str(path)))
    instant = history.head().instant
    if exports:
        view = history.head()
        exporting.export(history.store, history, config.load(history.store), view, 0, True, True)
    for file in [*path.rglob("*.parquet"), *path.glob(f"{layout.TIMELINE}{instant}*")]:
        parsed = parse_data_file(file.name)
        if parsed is None or parsed.instant == instant:
            file.unlink()
    now = SYSTEM.now_ms()
    said = make_slot(
        table="",
        instant=instant_of_ms(now),
        action="rollback",
        outcome=ROLLED_BACK,
        operation="ROLLBACK",
        target=instant,
        target_action="commit",
    )
    name = f"{layout.TIMELINE}{instant_of_ms(now)}_{instant_of_ms(now + 1)}.rollback"
    (path / name).write_bytes(commit_metadata.rollback_metadata(said, {}))


@pytest.mark.parametrize("exports", [False, True])
def test_files_of_commits_that_were_taken_back_are_not_exported(tmp_path: Path, exports: bool) -> None:
    path = tmp_path / "t"
    table = make(path)
    table.upsert(rows(1, 2))
    table.export(delta=True, iceberg=True)
    undone(path, exports)
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
