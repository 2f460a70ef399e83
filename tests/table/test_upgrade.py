"""`adopt` makes a table of version 6 one of version 9, with the same rows for every reader before and after each of its
steps; or it says what is in the way, and writes nothing.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import golden_tables as golden
import pytest
from faulty_store import Died, FaultyStore
from hudi_rows import hudi_rows
from tiers import sized

import hoodoo
from hoodoo.format.names import FILE_NAME, META_COLUMNS
from hoodoo.table import Table
from hoodoo.timeline import layout
from hoodoo.timeline.properties import hoodie_properties

IN_THE_WAY = {
    "v6_cow_one_complex_key": "encodes record keys differently",
    "v6_cow_timestamp_keys": "come from TIMESTAMP",
    "v6_cow_virtual": "populate.meta.fields=false",
    "v6_mor_virtual": "populate.meta.fields=false",
    "v6_mor_virtual_by_1_2_0": "populate.meta.fields=false",
    "v6_mor_rolled_back": "deltacommit at [0-9]{17} is pending",
    "v6_mor_rolled_back_by_1_2_0": "deltacommit at [0-9]{17} is pending",
    "v6_no_commits": "no commit, so there is nothing to adopt",
}
ADOPTED = [name for name in golden.VERSION_6 if name not in IN_THE_WAY]


def rows_of(rows: list[dict[str, Any]], *without: str) -> list[dict[str, Any]]:
    kept = [{name: value for name, value in row.items() if name not in without} for row in rows]
    return golden.by_columns(golden.sorted_rows(kept))


def scanned(table: hoodoo.Table, as_of: Any = None) -> list[dict[str, Any]]:
    """Rows with all meta columns but the name of the file, which a compaction changes."""
    return rows_of(table.scan(meta=True, as_of=as_of).to_arrow().to_pylist(), FILE_NAME)


def bytes_of(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize("name", ADOPTED)
def test_an_adopted_table_of_version_6_has_the_rows_that_it_had(tmp_path: Path, name: str) -> None:
    path, facts = golden.unpack(name, tmp_path), golden.facts(name)
    table = hoodoo.open(path)
    before = scanned(table)
    done = table.maintenance.adopt()
    assert done.version == 6 and done.slot == table.scan().cursor.seq
    assert hoodie_properties.load(table.handle.store).raw["hoodie.table.version"] == "9"
    assert scanned(table) == scanned(hoodoo.open(path)) == before == rows_of(facts["snapshot"], FILE_NAME)
    assert rows_of(hudi_rows(path), *META_COLUMNS) == rows_of(before, *META_COLUMNS)
    assert table.verify().problems == []
    for instant in facts["instants"]:
        try:
            assert scanned(table, instant["instant"]) == rows_of(instant["rows"], FILE_NAME)
        except hoodoo.SnapshotExpired:
            assert instant["rows"] is None or "mor" in name
    assert not list((path / ".hoodie").glob("*commit*"))


@pytest.mark.parametrize("name", [name for name in ADOPTED if name != "v6_emptied"])
def test_an_adopted_table_of_version_6_takes_writes_and_services(tmp_path: Path, name: str) -> None:
    path = golden.unpack(name, tmp_path)
    hoodoo.open(path).maintenance.adopt()
    table = hoodoo.open(path)
    rows = table.scan().to_arrow()
    assert table.insert(rows, existing="keep").inserted == 0
    table.upsert(rows.slice(0, 2))
    table.delete(rows.slice(2, 1))
    table.compact()
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert len(hudi_rows(path)) == table.scan().count() == len(rows) - 1
    assert table.verify().problems == []
    assert (
        hoodoo.open(path).maintenance.adopt() == hoodoo.open(path).maintenance.adopt()
    )  # there is nothing to do any more


@pytest.mark.parametrize("name", list(IN_THE_WAY))
def test_what_is_in_the_way_is_named_before_anything_is_written(tmp_path: Path, name: str) -> None:
    path = golden.unpack(name, tmp_path)
    before = bytes_of(path)
    with pytest.raises(hoodoo.UnsupportedTable, match=IN_THE_WAY[name]):
        hoodoo.open(path).maintenance.adopt()
    assert bytes_of(path) == before


@pytest.mark.both
@pytest.mark.parametrize(
    "name", ["v6_cow_archived", "v6_mor", "v6_mor_archived", "v6_mor_metadata", "v6_mor_pending_compaction"]
)
def test_a_crash_at_any_step_of_an_upgrade_leaves_the_rows_and_is_finished_by_the_next(
    tmp_path: Path, name: str
) -> None:
    start = golden.unpack(name, tmp_path)
    before = scanned(hoodoo.open(start))
    at, done, step = 0, False, sized(quick=7, deep=1)
    while not done:
        at += step
        path = tmp_path / str(at)
        shutil.copytree(start, path)
        store = FaultyStore(str(path))
        dying = Table(store)
        store.count, store.fault = 0, lambda n, *_, at=at: "die after" if n == at else None
        try:
            dying.maintenance.adopt()
            done = True
        except Died:
            pass
        assert scanned(hoodoo.open(path)) == before
        if "pending" not in name:  # there the package does not see the logs that follow Hudi's plan
            assert rows_of(hudi_rows(path), *META_COLUMNS) == rows_of(before, *META_COLUMNS)
        table = hoodoo.open(path)
        table.maintenance.adopt()
        assert scanned(table) == scanned(hoodoo.open(path)) == before
        assert rows_of(hudi_rows(path), *META_COLUMNS) == rows_of(before, *META_COLUMNS)
        assert table.verify().problems == []
        assert not list((path / ".hoodie").glob("*commit*"))
        shutil.rmtree(path)
    assert at > 30


@pytest.mark.parametrize("generator", ["ComplexKeyGenerator", ""])
def test_an_upgraded_table_names_the_generator_that_spells_its_keys(tmp_path: Path, generator: str) -> None:
    """Of one key column the complex one spelled the bare value in Hudi 0.15, and spells `id:k1` in version 9."""
    path = golden.unpack("v6_cow", tmp_path)
    file = path / layout.PROPERTIES
    kept = [line for line in file.read_text().splitlines() if "keygenerator" not in line]
    named = [f"hoodie.table.keygenerator.class=org.apache.hudi.keygen.{generator}"] if generator else []
    file.write_text("\n".join([*kept, *named]) + "\n")
    table = hoodoo.open(path)
    table.maintenance.adopt()
    raw = hoodie_properties.load(table.handle.store).raw
    assert {name: text for name, text in raw.items() if "keygenerator" in name} == {
        "hoodie.table.keygenerator.type": "SIMPLE"
    }


def test_a_reader_that_was_there_before_reads_on(tmp_path: Path) -> None:
    path = golden.unpack("v6_mor", tmp_path)
    reader, before = hoodoo.open(path), None
    before = scanned(reader)
    hoodoo.open(path).maintenance.adopt()
    assert scanned(reader) == before
    reader.upsert(reader.scan().to_arrow().slice(0, 1))
    assert len(hudi_rows(path)) == len(before)


def test_a_compaction_that_hudi_began_is_run_and_what_it_left_is_deleted(tmp_path: Path) -> None:
    path = golden.unpack("v6_mor_pending_compaction", tmp_path)
    (plan,) = (path / ".hoodie").glob("*.compaction.requested")
    instant = plan.name[:17]
    base = next(path.glob("city=sf/*.parquet"))
    left = base.with_name(f"{base.name.split('_')[0]}_7-7-7_{instant}.parquet")
    left.write_bytes(b"half a file")
    table = hoodoo.open(path)
    before = scanned(table)
    assert table.maintenance.adopt().compacted == 2  # by the plan, and what was logged since
    assert scanned(table) == before and not left.exists()
    assert rows_of(hudi_rows(path), *META_COLUMNS) == rows_of(before, *META_COLUMNS)


def test_a_table_that_hoodoo_reads_already_is_adopted_without_an_upgrade(tmp_path: Path) -> None:
    path = golden.unpack("mor_ordered", tmp_path)
    table = hoodoo.open(path)
    before = scanned(table)
    done = table.maintenance.adopt()
    assert (done.version, done.compacted, done.instants) == (9, 0, 0) and done.slot > 0
    assert any((path / layout.SLOTS).iterdir()) and scanned(table) == before


def test_what_a_log_of_several_commits_held_in_the_past_is_not_read_wrongly(tmp_path: Path) -> None:
    """In version 9 nothing tells the blocks of such a log apart: time travel begins at the upgrade."""
    path = golden.unpack("v6_mor_by_commit", tmp_path)
    facts = golden.facts("v6_mor_by_commit")
    logs = sorted(path.glob(".*.log.*"), key=lambda file: int(re.findall(r"\.log\.(\d+)", file.name)[0]))
    whole = b"".join(file.read_bytes() for file in logs)
    for file in logs[1:]:
        file.unlink()
    logs[0].write_bytes(whole)
    names = {file.name for file in logs}
    for commit in (path / ".hoodie").glob("*.deltacommit"):
        said = json.loads(commit.read_text())
        for stats in said["partitionToWriteStats"].values():
            for stat in stats:
                if stat["path"] in names:
                    stat |= {"path": logs[0].name, "logOffset": 1}
        commit.write_text(json.dumps(said))
    table = hoodoo.open(path)
    table.maintenance.adopt()
    assert scanned(table) == rows_of(facts["snapshot"], FILE_NAME)
    for instant in facts["instants"]:
        with pytest.raises(hoodoo.SnapshotExpired):
            table.scan(as_of=instant["instant"])
    assert rows_of(hudi_rows(path), *META_COLUMNS) == rows_of(facts["snapshot"], *META_COLUMNS)
