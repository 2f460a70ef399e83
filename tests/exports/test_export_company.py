"""What the simulator found in exports: others come in between, and an export is none the worse for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import exported
import iceberg_reader
import pyarrow as pa
import pytest
from broken_exports import run
from exported import merged_rows
from exported_tables import make, narrow, plain, rows, slots_of_delta, some
from faulty_store import ALL, FaultyStore
from tables import later

import hoodoo
from hoodoo.storage.local import LocalStore
from hoodoo.timeline.layout import OVERLAYS


class Overtaken(FaultyStore):
    """A store of the table in `path`: each of `others` happens once, in order, just before the operation on a key with
    the text in it that are named beside it.
    """

    def __init__(self, path: Path, *others: tuple[str, str, Callable[[], Any]]) -> None:
        super().__init__(str(path))
        self.counted, self.others, self.fault = ALL, list(others), self._overtake

    def _overtake(self, number: int, what: str, key: str) -> None:
        if self.others and self.others[0][0] == what and self.others[0][1] in key:
            self.others.pop(0)[2]()

    def open_input(self, key: str) -> pa.NativeFile:
        return self._around("open_input", key, lambda: LocalStore.open_input(self, key))


def overtaken(path: Path, *others: tuple[str, str, Callable[[], Any]], **more: Any) -> Any:
    """An export during which each of `others` happened."""
    store = Overtaken(path, *others)
    done = run(path, store, **more)
    assert not store.others
    return done


def newest_rows(path: Path) -> list[Any]:
    found = iceberg_reader.metadata(path)
    return plain(iceberg_reader.rows(found, found["snapshots"][-1]))


def logs_and_a_clean(path: Path) -> Callable[[], Any]:
    """A table with logs; what compacts them and deletes their files."""
    table = narrow(path)
    table.upsert(some(1, 2, 3))
    table.upsert(some(1, v=1))

    def clean() -> None:
        other = hoodoo.open(path)
        other.compact()
        other.upsert(some(2, v=2))
        assert other.maintenance.clean(retain_hours=0, retain_commits=1).files

    return clean


@pytest.mark.parametrize("what", [".log.", ".parquet"])
def test_a_merged_export_whose_files_a_clean_takes_exports_the_newest_slot(tmp_path: Path, what: str) -> None:
    """It said that the table was corrupt, and to restore it from a backup."""
    path = tmp_path / "t"
    clean = logs_and_a_clean(path)
    operation = "get" if what == ".log." else "open_input"
    done = overtaken(path, (operation, what, clean), mode="merged")
    table = hoodoo.open(path)
    assert done.slot == table.cursor.seq
    assert merged_rows(path) == newest_rows(path) == plain(table.scan().to_arrow())


@pytest.mark.parametrize("formats", [{"delta": True, "iceberg": False}, {"delta": False, "iceberg": True}])
def test_an_export_that_a_purge_overtakes_leaves_no_purged_row(tmp_path: Path, formats: dict[str, bool]) -> None:
    """It read the logs, the purge ended and proved that no file had the key, and it wrote the overlay."""
    path = tmp_path / "t"
    table = narrow(path)
    table.upsert(some(1, 2, 3))
    table.upsert(some(1, v=1))

    def purge() -> None:
        assert hoodoo.open(path).maintenance.purge([{"id": 1, "part": "a"}], older_than_hours=0).files_proved

    overtaken(path, ("put_if_absent", OVERLAYS, purge), mode="merged", **formats)
    left = [pa.parquet.read_table(file)["id"].to_pylist() for file in (path / OVERLAYS).glob("*.parquet")]
    assert all(1 not in ids for ids in left)
    table.export(delta=True, iceberg=True, mode="merged")
    assert merged_rows(path) == newest_rows(path) == plain(table.scan().to_arrow())


def test_a_file_that_is_missing_in_a_readable_slot_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t"
    logs_and_a_clean(path)
    next(path.rglob(".*.log.*")).unlink()
    with pytest.raises(hoodoo.CorruptTable, match=r"\.log\."):
        hoodoo.open(path).export(delta=True, mode="merged")


def versions_and_a_clean(path: Path) -> Callable[[], Any]:
    """A table with a Delta version for each slot; what makes them expire, and takes them out of the log."""
    table = narrow(path)
    for turn in range(4):
        table.upsert(some(1, turn, v=turn))
        table.export(delta=True, mode="merged")

    def clean() -> None:
        other = hoodoo.open(path)
        other.compact()
        other.maintenance.clean(retain_hours=0, retain_commits=1)
        other.export(delta=True, mode="merged")
        assert min(slots_of_delta(path)) > 0

    return clean


def test_an_export_goes_on_where_another_one_deletes_the_versions_that_it_is_about_to_read(tmp_path: Path) -> None:
    """It said that the log could not be read, and to delete it."""
    path = tmp_path / "t"
    clean = versions_and_a_clean(path)
    hoodoo.open(path).upsert(some(5, v=5))
    overtaken(path, ("get", f"{0:020d}.json", clean), iceberg=False, mode="merged")
    assert merged_rows(path) == plain(hoodoo.open(path).scan().to_arrow())


def test_an_export_goes_on_where_its_version_was_taken_and_deleted_since(tmp_path: Path) -> None:
    """It ended in FileNotFoundError: the version was there when it was put, and gone when it was looked at."""
    path = tmp_path / "t"
    table = narrow(path)
    table.upsert(some(1, 2))

    def others() -> None:
        other = hoodoo.open(path)
        other.export(delta=True, mode="merged")
        other.upsert(some(1, v=1))
        other.export(delta=True, mode="merged")

    def clean() -> None:
        other = hoodoo.open(path)
        other.compact()
        other.upsert(some(2, v=2))
        other.maintenance.clean(retain_hours=0, retain_commits=1)
        other.export(delta=True, mode="merged")
        assert 0 not in slots_of_delta(path)

    version = f"{0:020d}.json"
    overtaken(path, ("put_if_absent", version, others), ("get", version, clean), iceberg=False)
    assert exported.merged_rows(path) == plain(hoodoo.open(path).scan(read_optimized=True).to_arrow())


def test_an_export_goes_on_where_another_one_deletes_manifests_that_it_is_about_to_read(tmp_path: Path) -> None:
    """It said that a file was gone that the metadata name, and to rebuild them."""
    path = tmp_path / "t"
    table = make(path)
    table.upsert(rows(1, 2))
    table.export(iceberg=True)
    table.upsert(rows(2, 3))

    def sweep() -> None:
        other = hoodoo.open(path)
        other.upsert(rows(1))
        other.maintenance.clean(retain_hours=0, retain_commits=1)
        later(hoodoo.open(path), 25).export(iceberg=True)

    done = overtaken(path, ("get", "metadata/snap-2", sweep), delta=False)
    assert done.slot == hoodoo.open(path).cursor.seq
    exported.check_iceberg(path)


def test_manifests_that_are_gone_for_good_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path)
    table.upsert(rows(1, 2))
    table.export(iceberg=True)
    next((path / "metadata").glob("snap-*")).unlink()
    table.upsert(rows(2, 3))
    with pytest.raises(hoodoo.ForeignExport, match=r"metadata/snap-2.*rebuild=True"):
        table.export(iceberg=True)
    table.export(iceberg=True, rebuild=True)
    exported.check_iceberg(path)


def test_an_export_that_archives_overtook_shows_the_newest_slot_and_none_twice(tmp_path: Path) -> None:
    """It could not go on from an older slot, and wrote once more the slot that the newest metadata showed."""
    path = tmp_path / "t"
    table = make(path)
    table.upsert(rows(1, 2))
    table.export(delta=True, iceberg=True)

    def archive() -> None:
        other = hoodoo.open(path)
        for number in range(3):
            other.upsert(rows(number))
        other = later(hoodoo.open(path), 1_000)
        other.maintenance.clean(retain_hours=0, retain_commits=1)
        assert other.maintenance.archive(0, keep_instants=1).slots > 3

    done = overtaken(path, ("get", "version-hint", archive), delta=False)
    slots = [json.loads(file.read_text())["properties"]["hoodoo.slot"] for file in (path / "metadata").glob("v*.json")]
    assert sorted(slots) == ["2", str(done.slot)]
    assert newest_rows(path) == plain(hoodoo.open(path).scan().to_arrow())


def test_a_hint_at_a_checkpoint_that_another_export_deleted_is_taken_away(tmp_path: Path) -> None:
    """A slow exporter writes a checkpoint; another one goes on and deletes it; then the first one names it."""
    path = tmp_path / "t"
    table = make(path)
    for number in range(12):
        table.upsert(rows(number, number + 1))

    def go_on() -> None:
        other = hoodoo.open(path)
        other.export(delta=True)
        for number in range(3):
            other.upsert(rows(number, number + 1))
        other.maintenance.clean(retain_hours=0, retain_commits=1)
        other.export(delta=True)

    overtaken(path, ("put", "_last_checkpoint", go_on), iceberg=False)
    log = path / "_delta_log"
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 10
    assert not (log / f"{10:020d}.checkpoint.parquet").exists()
    table.export(delta=True)
    assert not (log / "_last_checkpoint").exists()
    exported.check_delta(path)
