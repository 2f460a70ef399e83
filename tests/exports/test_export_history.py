"""Iceberg exports with a snapshot for each slot: whoever exported when, each shows its slot."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import exported
import iceberg_reader
import pyarrow as pa
import pytest
from broken_exports import ended_at_each_write, overtaken_at_each_write, run
from exported import check_iceberg
from exported_tables import make, narrow, plain, rows, slots_of_delta, some

import hoodoo
from hoodoo.exports.iceberg import iceberg_export


def every(table: hoodoo.Table, **more: Any) -> Any:
    return table.export(**{"iceberg": True, "history": "all"} | more)


def many_slots(path: Path, **options: Any) -> hoodoo.Table:
    """Commits of every kind, some of which change no base file."""
    table = make(path, **options)
    for turn in range(4):
        table.upsert(rows(*range(turn * 3, turn * 3 + 6), version=turn, part="ab"[turn % 2]))
        table.savepoints.create(f"s{turn}")
    table.delete([{"id": 3, "part": "a"}, {"id": 0, "part": "a"}])
    table.insert_overwrite(rows(1, 2, version=9))
    table.maintenance.cluster(sort_by="small")
    table.restore(table.handle.look().view.seq - 2)
    return table


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_each_slot_that_changed_base_files_has_a_snapshot_as_delta_has_a_version(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    table = many_slots(path, type=kind)
    table.compact()
    done = every(table, delta=True)
    slots = check_iceberg(path, optimized=kind == "merge_on_read")
    assert slots == list(slots_of_delta(path).values()) and len(slots) > 6
    assert done.iceberg.snapshots == len(slots)
    assert every(table).iceberg.files == 0


def avro_files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (path / "metadata").glob("*.avro")}


def test_exports_after_each_commit_and_one_of_all_slots_write_the_same_files(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path, type="copy_on_write")
    for turn in range(25):  # so that small manifests are merged
        table.upsert(some(turn, v=turn, part=f"{turn % 22}"))
        every(table)
    before = avro_files(path)
    shutil.rmtree(path / "metadata")
    assert every(hoodoo.open(path)).iceberg.snapshots == 26  # that of the empty table, too
    assert avro_files(path) == before
    assert len(check_iceberg(path)) == 26


def test_a_history_of_each_slot_goes_on_from_one_of_exports(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path)
    table.upsert(rows(1, 2))
    table.upsert(rows(2, 3))
    table.export(iceberg=True)
    table.upsert(rows(3, 4))
    table.upsert(rows(4, 5))
    every(table)
    table.upsert(rows(5))
    table.upsert(rows(6))
    table.export(iceberg=True)
    assert check_iceberg(path) == [3, 4, 5, 7]


def test_slots_that_cannot_be_read_any_more_have_no_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path)
    table.upsert(rows(0, 1))
    every(table)
    for turn in range(5):
        table.upsert(rows(turn, turn + 1, version=turn))
    table.maintenance.clean(retain_hours=0, retain_commits=2)
    readable = table.handle.look().view.min_readable
    every(table)
    slots = check_iceberg(path)
    assert slots == [readable, readable + 1]
    every(table, rebuild=True)
    assert check_iceberg(path) == slots


def test_columns_that_came_went_and_changed_are_read_at_every_slot(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, pa.schema([("id", pa.int64()), ("part", pa.string()), ("a", pa.int32()), ("b", pa.string())]))
    table.upsert([{"id": 1, "part": "x", "a": 1, "b": "one"}, {"id": 2, "part": "y", "a": 2, "b": "two"}])
    table.alter.add_column("c", pa.int32())
    table.upsert([{"id": 3, "part": "x", "a": 3, "b": "three", "c": 3}])
    table.alter.rename_column("b", "label", rewrite=True)
    table.upsert([{"id": 4, "part": "y", "a": 4, "label": "four", "c": 4}])
    table.alter.drop_column("a", rewrite=True)
    table.alter.widen_column("c", pa.int64())
    every(table)
    assert len(check_iceberg(path)) > 4


def test_a_slot_whose_files_iceberg_cannot_promote_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, pa.schema([("id", pa.int64()), ("part", pa.string()), ("a", pa.int32())]))
    table.upsert([{"id": 1, "part": "x", "a": 1}])
    table.alter.widen_column("a", pa.float64())
    table.upsert([{"id": 2, "part": "y", "a": 2.5}])
    wide = table.cursor.seq
    table.maintenance.cluster(sort_by="a")
    every(table)
    slots = check_iceberg(path)
    assert slots[:2] == [1, 2] and wide not in slots and slots[-1] == table.cursor.seq > wide


def test_a_metadata_file_comes_after_so_many_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_export, "_SNAPSHOTS_AT_ONCE", 3)
    path = tmp_path / "t"
    table = many_slots(path)
    done = every(table)
    slots = check_iceberg(path)
    assert done.iceberg.snapshots == len(slots)
    assert done.iceberg.metadata == f"metadata/v{-(-len(slots) // 3)}.metadata.json"
    exported.check_hint(path)


# ---- crashes and company
@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("history") / "t"
    table = narrow(path, type="copy_on_write")
    table.upsert(some(0, 1))
    every(table)
    for turn in range(5):
        table.upsert(some(turn % 3, turn + 2, v=turn, part="ab"[turn % 2]))
    table.maintenance.clean(retain_hours=0, retain_commits=3)
    table.upsert(some(90))
    return path


@pytest.mark.parametrize("kind", ["die", pytest.param("lost after", marks=pytest.mark.deep)])
def test_an_export_of_each_slot_that_ends_at_any_write_is_finished_by_the_next(
    history: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_export, "_SNAPSHOTS_AT_ONCE", 2)

    def check(path: Path) -> None:
        assert len(check_iceberg(path)) == 4

    assert ended_at_each_write(history, tmp_path, kind, check, delta=False, snapshots="all") > 10


def test_of_two_exports_of_each_slot_one_history_comes(
    history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_export, "_SNAPSHOTS_AT_ONCE", 2)

    def overtake(path: Path) -> None:
        hoodoo.open(path).upsert(some(91, 92, part="c"))
        run(path, delta=False, snapshots="all")

    assert overtaken_at_each_write(history, tmp_path, overtake, check_iceberg, delta=False, snapshots="all") > 10


# ---- the call
def test_each_slot_of_a_merged_export_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path, export_mode="merged")
    table.upsert(some(1, 2))
    for more in ({}, {"mode": "merged"}):
        with pytest.raises(hoodoo.OptionError, match=r"history='all'.*mode='read_optimized'") as refused:
            every(table, delta=True, **more)
        assert refused.value.details == {"option": "history"}
    assert not (path / "metadata").exists() and not (path / "_delta_log").exists()
    every(table, mode="read_optimized")
    assert check_iceberg(path, optimized=True) == [1, 2]


def test_a_history_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(hoodoo.OptionError, match="history must be 'newest' or 'all', got 'each'"):
        make(tmp_path / "t").export(iceberg=True, history="each")


def test_a_merged_history_becomes_one_of_base_files_with_the_next_slot(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path)
    table.upsert(some(1, 2))
    table.upsert(some(1, v=1))
    table.export(iceberg=True, mode="merged")
    table.compact()
    table.upsert(some(3))
    every(table)
    found = iceberg_reader.metadata(path)
    for snapshot in found["snapshots"][1:]:
        seen = table.scan(as_of=int(snapshot["summary"]["hoodoo.slot"]), read_optimized=True)
        assert plain(iceberg_reader.rows(found, snapshot)) == plain(seen.to_arrow())
    assert len(found["snapshots"]) == 3
