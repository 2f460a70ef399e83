"""Exports of tables that were cleaned, archived, restored and put back: old versions go when their files do."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import exported
import iceberg_reader
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from exported_tables import make, plain, rows, slots_of_delta
from memory_store import MemoryStore
from tables import later

import hoodoo
from hoodoo.exports.delta import delta_export
from hoodoo.timeline.environment import Environment, in_order

NARROW = pa.schema([("id", pa.int64()), ("part", pa.string()), ("v", pa.int64())])


def upsert(table: hoodoo.Table, number: int) -> None:
    table.upsert([{"id": 1, "part": "a", "v": number}, {"id": number, "part": "b", "v": number}])


def both(table: hoodoo.Table) -> None:
    table.export(delta=True, iceberg=True)


def test_what_a_clean_took_is_not_in_the_history_any_more(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, NARROW)
    for number in range(2, 9):
        upsert(table, number)
    both(table)
    assert min(slots_of_delta(path)) == 0
    table.maintenance.clean(retain_hours=0, retain_commits=2)
    both(table)
    exported.check(path)
    kept = slots_of_delta(path)
    readable = table.handle.look().view.min_readable
    assert min(kept.values()) <= readable and sum(slot <= readable for slot in kept.values()) == 1
    assert (path / f"_delta_log/{min(kept):020d}.checkpoint.parquet").exists()
    slots = [int(one["summary"]["hoodoo.slot"]) for one in iceberg_reader.metadata(path)["snapshots"]]
    assert sum(slot <= readable for slot in slots) <= 1


def test_a_first_export_of_a_cleaned_table_begins_at_the_oldest_readable_slot(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, NARROW)
    for number in range(2, 9):
        upsert(table, number)
    table.maintenance.clean(retain_hours=0, retain_commits=3)
    upsert(table, 9)
    both(table)
    readable = table.handle.look().view.min_readable
    assert exported.check_delta(path)[0] == readable > 1
    exported.check_iceberg(path)


def test_an_export_that_fell_behind_archived_slots_shows_the_newest_one(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, NARROW)
    upsert(table, 2)
    both(table)
    for number in range(3, 12):
        upsert(table, number)
    table = later(table, 1_000)
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert table.maintenance.archive(0, keep_instants=1).slots > 3
    both(table)
    assert len(slots_of_delta(path)) == 1, "files of the versions before are gone"
    want = plain(table.scan().to_arrow())
    assert plain(DeltaTable(path).to_pyarrow_table()) == want
    upsert(table, 12)
    both(table)
    assert plain(DeltaTable(path).to_pyarrow_table()) == plain(table.scan().to_arrow())
    exported.check_iceberg(path)


def test_a_table_that_was_put_back_from_a_backup_is_shown_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, NARROW)
    upsert(table, 2)
    both(table)
    shutil.copytree(path, tmp_path / "backup")
    for number in range(3, 6):
        upsert(table, number)
    both(table)
    kept = {name: path / name for name in ("_delta_log", "metadata")}
    for name, folder in kept.items():
        shutil.move(folder, tmp_path / name)
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "backup", path, ignore=shutil.ignore_patterns(*kept))
    for name, folder in kept.items():
        shutil.move(tmp_path / name, folder)
    for more in range(4):  # behind what was exported, beside it and beyond
        table = hoodoo.open(path)
        both(table)
        assert plain(DeltaTable(path).to_pyarrow_table()) == plain(table.scan().to_arrow())
        exported.check_iceberg(path)
        upsert(table, 20 + more)


def test_a_checkpoint_stands_for_the_versions_before_it(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path)
    for number in range(24):
        table.upsert(rows(number, number + 1, part="ab"[number % 2]))
        table.export(delta=True)
    assert json.loads((path / "_delta_log/_last_checkpoint").read_text())["version"] == 20
    for version in range(20):
        (path / f"_delta_log/{version:020d}.json").unlink()
    want = plain(table.scan().to_arrow())
    assert plain(DeltaTable(path).to_pyarrow_table()) == want
    assert len(pl.scan_delta(str(path)).collect()) == len(want)
    exported.check_delta(path)
    table.upsert(rows(99))
    table.export(delta=True)
    exported.check_delta(path)


def test_a_damaged_version_does_not_pass_into_the_next_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, NARROW)
    for number in range(24):
        table.upsert([{"id": number, "part": f"p{number}", "v": 0}])
        table.export(delta=True)
        if number == 16:
            (path / f"_delta_log/{14:020d}.json").write_bytes(b"")
    for version in range(20):
        (path / f"_delta_log/{version:020d}.json").unlink()
    assert plain(DeltaTable(path).to_pyarrow_table()) == plain(table.scan().to_arrow())


def test_a_checkpoint_that_is_hinted_at_and_gone_is_not_needed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, NARROW)
    for number in range(2, 14):
        upsert(table, number)
    table.export(delta=True)
    (path / f"_delta_log/{10:020d}.checkpoint.parquet").unlink()
    upsert(table, 30)
    assert table.export(delta=True).delta.version == 13
    upsert(table, 31)
    assert table.export(delta=True).delta.version == 14


def test_files_of_iceberg_that_nobody_names_go_when_they_are_a_day_old(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, NARROW)
    for number in range(2, 9):
        upsert(table, number)
        table.export(iceberg=True)
    foreign = path / "metadata/00000-of-a-catalog.metadata.json"
    foreign.write_text("{}")
    young = set(os.listdir(path / "metadata"))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    upsert(table, 9)
    table.export(iceberg=True)
    assert young <= set(os.listdir(path / "metadata"))
    day_ago = time.time() - 25 * 3600
    for name in os.listdir(path / "metadata"):
        os.utime(path / "metadata" / name, (day_ago, day_ago))
    upsert(table, 10)
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    upsert(table, 11)
    table.export(iceberg=True)
    exported.check_iceberg(path)
    assert len([name for name in young if (path / "metadata" / name).exists() and name.endswith(".avro")]) < 4
    assert foreign.exists()


def test_slots_that_change_no_base_file_are_looked_at_once_in_a_while_only(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, NARROW, type="merge_on_read")
    upsert(table, 2)
    both(table)
    for _ in range(102):
        table.savepoints.create("s")
        table.savepoints.delete("s")
    done = table.export(delta=True, iceberg=True)
    assert (done.delta.versions, done.iceberg.snapshots) == (2, 0)
    assert table.export(delta=True, iceberg=True).delta.versions == 0
    exported.check(path, optimized=True)


def test_a_purged_key_is_in_no_live_metadata_once_the_table_was_exported_again(tmp_path: Path) -> None:
    """Bounds are values: the least and greatest key of a file stand in the metadata."""
    path = tmp_path / "t"
    table = make(path, pa.schema([("id", pa.string()), ("part", pa.string())]))
    table.upsert([{"id": "a", "part": "x"}, {"id": "secret", "part": "x"}])
    both(table)
    assert b"secret" in (path / f"_delta_log/{1:020d}.json").read_bytes()
    assert table.maintenance.purge([{"id": "secret", "part": "x"}], older_than_hours=0).files_proved
    both(table)
    exported.check(path)
    for file in (path / "_delta_log").iterdir():
        assert b"secret" not in file.read_bytes(), file.name
    for snapshot in iceberg_reader.metadata(path)["snapshots"]:
        for manifest in iceberg_reader.records(snapshot["manifest-list"]):
            for entry in iceberg_reader.records(manifest["manifest_path"]):
                assert b"secret" not in [one["value"] for one in entry["data_file"]["upper_bounds"] or ()]


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_purge_is_unproved_until_no_export_file_has_a_purged_value(
    tmp_path: Path, format: str, archived: bool
) -> None:
    path, gone = tmp_path / "t", [{"id": "secret", "part": "x"}]
    table = make(path, pa.schema([("id", pa.string()), ("part", pa.string())]))
    table.upsert([{"id": "a", "part": "x"}, *gone, {"id": "b", "part": "y"}])
    table.export(**{format: True})
    folder = path / ("_delta_log" if format == "delta" else "metadata")
    if archived:
        table.delete(gone)
        table.maintenance.clean(retain_hours=0, retain_commits=1)
        table = later(table, 1_000)
        table.maintenance.archive(0, keep_instants=1)
    for _ in range(2):
        report = table.maintenance.purge(gone, older_than_hours=0)
        assert report.exports and not report.proved and report.files_proved
        assert all((path / key).parent == folder for key in report.exports)
    shutil.rmtree(folder)
    table.export(**{format: True}, rebuild=True)
    assert table.maintenance.purge(gone, older_than_hours=0).exports == ()


def test_versions_that_another_exporter_deletes_meanwhile_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended in FileNotFoundError, a file after the other."""
    path = tmp_path / "t"
    table = make(path, NARROW)
    for number in range(2, 9):
        upsert(table, number)
    table.export(delta=True)
    table.maintenance.clean(retain_hours=0, retain_commits=2)
    listed = delta_export.delta_versions_in_files

    def gone_since(names: Sequence[str]) -> list[int]:
        for version in (0, 1, 2):
            (path / f"_delta_log/{version:020d}.json").unlink(missing_ok=True)
        return listed(names)

    monkeypatch.setattr(delta_export, "delta_versions_in_files", gone_since)
    table.export(delta=True)
    exported.check_delta(path)


def test_a_store_that_lists_by_prefix_gets_the_same_metadata(tmp_path: Path) -> None:
    clock = iter(range(1_750_000_000_000, 1_760_000_000_000, 1_000))
    store = MemoryStore()
    seen = Environment(now_ms=lambda: next(clock), together=in_order)
    config = {"key": "id", "partition_by": "part", "type": "copy_on_write", "clean_every": None}
    assert hoodoo.create(tmp_path / "t", NARROW, **config)  # type: ignore[arg-type]
    for file in (tmp_path / "t").rglob("*"):
        if file.is_file():
            store.data[str(file.relative_to(tmp_path / "t"))] = file.read_bytes()
    table = hoodoo.Table(store, seen)
    for number in range(2, 16):
        upsert(table, number)
        both(table)
    exports = {key: data for key, data in store.data.items() if key.startswith(("_delta_log/", "metadata/"))}
    versions = [key for key in exports if key.endswith(".json") and key.startswith("_delta_log/")]
    assert len(versions) == 15 and f"_delta_log/{10:020d}.checkpoint.parquet" in exports
    assert json.loads(exports["metadata/v14.metadata.json"])["location"] == store.uri
    assert table.export(delta=True, iceberg=True).delta.files == 0
