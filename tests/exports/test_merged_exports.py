"""Exports of merge-on-read tables in the mode `merged`: readers of Delta and Iceberg see what logs say, too."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import delta_reader
import iceberg_reader
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from broken_exports import ended_at_each_write, overtaken_at_each_write, run
from deltalake import DeltaTable
from exported import check_iceberg_merged, check_merged, merged_rows
from exported_tables import EVERY, make, narrow, plain, rows, slots_of_delta, some
from golden_tables import NAMES, unpack
from tables import later
from worker_tables import loop_of

import hoodoo
from hoodoo.exports.delta import deletion_vector

OVERLAYS = ".hoodie/.hoodoo/overlay"


def merged(table: hoodoo.Table, **more: Any) -> Any:
    return table.export(**{"delta": True, "iceberg": True, "mode": "merged"} | more)


def test_every_version_and_snapshot_has_the_merged_rows_of_its_slot(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, EVERY, type="merge_on_read")
    merged(table)
    table.upsert(rows(*range(12)))
    table.upsert(rows(*range(20, 30), part="b"))
    merged(table)
    for turn in range(1, 5):
        table.upsert(rows(turn, turn + 3, turn + 100, version=turn))
        table.delete([{"id": turn + 5, "part": "a"}, {"id": 19 + turn, "part": "b"}])
        merged(table)
        table.upsert([{"id": turn + 2, "part": "a", "text": f"partial {turn}"}], columns="given")
        merged(table)
    table.compact()
    merged(table)
    table.upsert(rows(1, version=9))
    table.restore(table.handle.look().view.seq - 3)
    result = merged(table)
    check_merged(path)
    assert result.slot == table.cursor.seq and "comment" not in iceberg_reader.metadata(path)["properties"]


@pytest.mark.parametrize("log_format", ["avro", "parquet"])
@pytest.mark.parametrize("order_by", ["ts", None])
def test_updates_that_lose_leave_the_base_row_alive(tmp_path: Path, order_by: str | None, log_format: str) -> None:
    path = tmp_path / "t"
    table = narrow(path, order_by=order_by, log_format=log_format)
    table.upsert(some(1, 2, 3, 4, ts=5))
    table.upsert(some(1, ts=4, v=1) + some(2, ts=6, v=2))
    table.upsert(some(2, ts=1, v=3) + some(3, ts=5, v=4))
    table.delete([{"id": 4, "part": "a", "ts": 1}])
    merged(table)
    check_merged(path)


def test_a_table_without_partitions_and_one_whose_rows_are_all_deleted(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path, partition_by=None)
    table.upsert(some(*range(5)))
    table.upsert(some(2, v=7))
    merged(table)
    table.delete(where="id >= 0")
    assert not table.scan().to_arrow().num_rows
    merged(table)
    check_merged(path)


@pytest.mark.parametrize("name", [name for name in NAMES if "version_6" not in name])
def test_logs_that_apache_hudi_wrote_are_merged(tmp_path: Path, name: str) -> None:
    """Groups of logs alone, partial updates with ordering values, deletes of each kind: whatever it wrote."""
    path = unpack(name, tmp_path)
    table = hoodoo.open(path)
    delta = not any(str(kind).startswith("time") for kind in table.schema.types)
    merged(table, delta=delta)
    if delta:
        assert merged_rows(path) == plain(table.scan().to_arrow())
    check_iceberg_merged(path)


@pytest.mark.parametrize("folder", ["New York", "a/b", "50%", "ü", "x"])
def test_polars_sees_no_dead_row_whatever_a_folder_is_called(tmp_path: Path, folder: str) -> None:
    """Where the log spells a path in another way than the store, polars passed over deletion vectors, and showed rows
    that had been replaced or deleted.
    """
    path = tmp_path / "t"
    table = narrow(path)
    table.upsert(some(*range(6), part=folder) + some(10, 11, part="y"))
    for turn in range(3):
        table.upsert(some(turn, turn + 20, v=turn + 1, part=folder))
        table.delete([{"id": 5 - turn, "part": folder}])
        merged(table)
        assert plain(pl.read_delta(str(path)).to_arrow()) == plain(pl.from_arrow(table.scan().to_arrow()).to_arrow())
        assert merged_rows(path) == plain(table.scan().to_arrow())
    again = merged(table)
    assert (again.delta.versions, again.delta.files) == (0, 0)
    table.delete(where="part <> 'y'")
    merged(table)
    assert pl.read_delta(str(path))["id"].sort().to_list() == [10, 11]
    table.compact()
    merged(table)
    check_merged(path)


def times_of_overlays(path: Path) -> dict[str, int]:
    """Times of the files of rows and of the deletion vectors."""
    files = [*(path / OVERLAYS).iterdir(), *path.glob("metadata/deletion_vector_*.bin")]
    return {file.name: file.stat().st_mtime_ns for file in files}


def test_an_overlay_is_made_once_for_each_state_of_its_file_group(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path)
    table.upsert(some(1, 2) + some(3, 4, part="b"))
    table.upsert(some(1, v=1) + some(3, v=1, part="b"))
    merged(table)
    before = times_of_overlays(path)
    assert len(before) == 4  # rows and a vector of each
    again = merged(table)
    assert (again.delta.files, again.iceberg.files, again.delta.versions, again.iceberg.snapshots) == (0, 0, 0, 0)
    table.upsert(some(4, v=2, part="b"))
    merged(table)
    after = times_of_overlays(path)
    assert after.items() > before.items() and len(after) == 6
    check_merged(path)


def test_commits_that_are_no_news_to_readers_give_no_version(tmp_path: Path) -> None:
    table = narrow(tmp_path / "t")
    table.upsert(some(1, 2))
    table.upsert(some(1, v=1))
    merged(table)
    table.savepoints.create("s")
    again = merged(table)
    assert (again.delta.versions, again.iceberg.snapshots) == (0, 0)


def test_the_mode_may_change_from_export_to_export(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path)
    table.upsert(some(1, 2))
    table.upsert(some(1, v=1))
    for mode in ("read_optimized", "merged", "read_optimized", "merged"):
        table.export(delta=True, iceberg=True, mode=mode)
        want = plain(table.scan(read_optimized=mode == "read_optimized").to_arrow())
        assert merged_rows(path) == want
        found = iceberg_reader.metadata(path)
        assert plain(iceberg_reader.rows(found, found["snapshots"][-1])) == want
    assert len({one["snapshot-id"] for one in found["snapshots"]}) == 4
    table.export(delta=True, mode="read_optimized")
    assert plain(DeltaTable(path).to_pyarrow_table()) == plain(table.scan(read_optimized=True).to_arrow())


def test_a_log_of_many_versions_is_read_from_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path)
    table.upsert(some(*range(40)))
    for turn in range(24):
        table.upsert(some(turn, turn + 1, v=turn))
        table.export(delta=True, mode="merged")
    newest = DeltaTable(path).version()
    assert len(list((path / "_delta_log").glob("*.checkpoint.parquet"))) == 2
    for version in range(10):
        (path / f"_delta_log/{version:020d}.json").unlink()
    assert merged_rows(path, newest) == plain(table.scan().to_arrow())
    table.upsert(some(99, v=1))
    table.export(delta=True, mode="merged")
    assert merged_rows(path) == plain(table.scan().to_arrow())


def test_columns_that_change_give_new_overlays(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path)
    table.upsert(some(1, 2, 3))
    table.upsert(some(1, v=1))
    merged(table)
    table.alter.add_column("more", pa.string())
    merged(table)
    table.upsert([{"id": 2, "part": "a", "ts": 1, "v": 2, "more": "x"}])
    merged(table)
    table.alter.rename_column("v", "value", rewrite=True)
    table.upsert([{"id": 3, "part": "a", "ts": 1, "value": 3, "more": "y"}])
    merged(table)
    assert merged_rows(path) == plain(table.scan().to_arrow())
    found = iceberg_reader.metadata(path)
    assert plain(iceberg_reader.rows(found, found["snapshots"][-1])) == plain(table.scan().to_arrow())


def test_what_another_writer_did_is_named_and_healed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path)
    table.upsert(some(1, 2))
    table.upsert(some(1, v=1))
    merged(table)
    log = path / "_delta_log"
    theirs = {"commitInfo": {"timestamp": 1, "operation": "WRITE"}}
    added = json.loads((log / f"{0:020d}.json").read_text().splitlines()[-1])["add"]
    gone = {"remove": {"path": added["path"], "deletionTimestamp": 1, "dataChange": True}}
    (log / f"{1:020d}.json").write_text(f"{json.dumps(theirs)}\n{json.dumps(gone)}\n")
    with pytest.raises(hoodoo.ForeignExport):
        merged(table, iceberg=False)
    merged(table, rebuild=True)
    assert merged_rows(path) == plain(table.scan().to_arrow())
    check_iceberg_merged(path)


# ---- what nobody needs
def overlay_files(path: Path) -> set[str]:
    folders = (path / OVERLAYS, path / "metadata")
    return {
        one.name for folder in folders for one in folder.iterdir() if one.name.startswith(("deletes-", "deletion_"))
    }


def test_overlays_go_a_day_after_no_readable_slot_has_them(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path)
    table.upsert(some(1, 2, 3))
    for turn in range(3):
        table.upsert(some(turn + 1, v=turn))
        merged(table)
    old = overlay_files(path)
    table.compact()
    table.upsert(some(1, v=9))
    merged(table)
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    merged(table)
    assert old < overlay_files(path)
    for turn in range(10):  # Iceberg's are looked for every ten metadata files
        table.upsert(some(2, v=turn))
        merged(later(hoodoo.open(path), 25))
    kept = overlay_files(path)
    assert kept and not kept & old
    check_merged(path, slots=[table.cursor.seq])


def test_a_purge_leaves_no_row_in_an_overlay(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path)
    table.upsert(some(1, 2, 3))
    table.upsert(some(1, 2, v=777))
    merged(table)
    report = table.maintenance.purge([{"id": 1, "part": "a"}], older_than_hours=0)
    assert report.files_proved
    left = [pa.parquet.read_table(file)["id"].to_pylist() for file in (path / OVERLAYS).glob("*.parquet")]
    assert all(1 not in ids for ids in left)
    merged(table)
    assert merged_rows(path) == plain(table.scan().to_arrow())


def test_an_overlay_that_holds_a_purged_key_is_named(tmp_path: Path) -> None:
    """As where somebody puts a file back."""
    path = tmp_path / "t"
    table = narrow(path)
    table.upsert(some(1, 2))
    table.upsert(some(1, v=777))
    merged(table)
    (rows_of,) = (path / OVERLAYS).glob("*.parquet")
    kept = tmp_path / "kept"
    shutil.copy(rows_of, kept)
    assert table.maintenance.purge([{"id": 1, "part": "a"}], older_than_hours=0).files_proved
    newer = rows_of.with_name(rows_of.name[:16] + "f" * 10 + rows_of.name[26:])
    shutil.copy(kept, newer)
    report = table.maintenance.purge([{"id": 1, "part": "a"}], older_than_hours=0)
    assert not report.files_proved and [name.rpartition("/")[2] for name in report.holders] == [newer.name]


# ---- crashes and company
@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("history") / "t"
    table = narrow(path)
    table.upsert(some(1, 2, 3) + some(4, 5, part="b"))
    table.upsert(some(1, v=1) + some(4, v=1, part="b"))
    merged(table)
    table.upsert(some(2, v=2))
    table.delete([{"id": 3, "part": "a"}])
    return path


@pytest.mark.parametrize("kind", ["die", pytest.param("lost after", marks=pytest.mark.deep)])
def test_an_export_that_ends_at_any_write_is_finished_by_the_next(history: Path, tmp_path: Path, kind: str) -> None:
    assert ended_at_each_write(history, tmp_path, kind, check_merged, mode="merged") > 8


def test_of_two_exports_at_once_one_history_comes(history: Path, tmp_path: Path) -> None:
    def overtake(path: Path) -> None:
        hoodoo.open(path).upsert(some(5, v=9, part="b"))
        run(path, mode="merged")

    assert overtaken_at_each_write(history, tmp_path, overtake, check_merged, mode="merged") > 8


# ---- the option, the call
def test_the_option_says_the_mode_where_a_call_does_not(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path, export_mode="merged", export_formats="both")
    table.upsert(some(1, 2))
    table.upsert(some(1, v=1))
    table.export(delta=True)
    assert merged_rows(path) == plain(table.scan().to_arrow())
    table.upsert(some(2, v=1))
    with loop_of(table, "export") as loop:
        loop.run_due_services()
    assert max(slots_of_delta(path).values()) == table.cursor.seq
    check_merged(path)


def test_a_mode_that_there_is_not_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = narrow(tmp_path / "t")
    with pytest.raises(hoodoo.OptionError, match=r"mode.*'merged'"):
        merged(table, mode="fresh")
    assert not (tmp_path / "t/_delta_log").exists()


def test_a_copy_on_write_table_is_the_same_in_both_modes(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path, type="copy_on_write")
    table.upsert(some(1, 2))
    table.upsert(some(1, v=1))
    merged(table)
    check_merged(path)
    assert not (path / OVERLAYS).exists()


# ---- vectors
@pytest.mark.parametrize(
    "positions",
    [[0], [5, 6, 7], [65_535, 65_536, 65_537], list(range(0, 200_000, 3)), [1, 2**31, 2**32 - 1]],
    ids=["one", "a run", "over a block", "many", "up to 32 bits"],
)
def test_a_vector_says_its_positions(positions: list[int]) -> None:
    data = deletion_vector.file_of(np.array(positions, np.int64))
    said = deletion_vector.describe_deletion_vector(uuid.UUID(int=7), len(data), len(positions))
    assert delta_reader.positions(data, said["offset"], said["sizeInBytes"]) == positions
