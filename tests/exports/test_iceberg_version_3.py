"""Exports in version 3 of the Iceberg format: deletion vectors, row ids, and the change of the version."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import iceberg_reader
import numpy as np
import pytest
from broken_exports import ended_at_each_write, overtaken_at_each_write, run
from exported import check_iceberg, check_iceberg_merged, check_merged
from exported_tables import EVERY, make, narrow, plain, rows, some
from tables import later
from worker_tables import loop_of

import hoodoo
from hoodoo.exports.iceberg.puffin import encode_puffin_file


def export(table: hoodoo.Table, version: int | None = 3, **more: Any) -> Any:
    return table.export(**{"iceberg": True, "iceberg_version": version, "mode": "merged"} | more)


def newest(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The metadata, and the current snapshot."""
    found = iceberg_reader.metadata(path)
    return found, found["snapshots"][-1]


def check_newest(path: Path, merged: bool = True) -> None:
    """The current snapshot has the rows of a scan."""
    want = hoodoo.open(path).scan(read_optimized=not merged).to_arrow()
    assert plain(iceberg_reader.rows(*newest(path))) == plain(want)


def deletes(path: Path) -> set[str]:
    return {file.suffix for file in path.glob("metadata/deletes-*")}


def test_each_snapshot_has_the_merged_rows_of_its_slot(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, EVERY, type="merge_on_read")
    export(table)
    table.upsert(rows(*range(12)))
    table.upsert(rows(*range(20, 30), part="b"))
    export(table)
    for turn in range(1, 5):
        table.upsert(rows(turn, turn + 3, turn + 100, version=turn))
        table.delete([{"id": turn + 5, "part": "a"}, {"id": 19 + turn, "part": "b"}])
        export(table)
        table.upsert([{"id": turn + 2, "part": "a", "text": f"partial {turn}"}], columns="given")
        export(table)
    table.compact()
    export(table)
    table.upsert(rows(1, version=9))
    table.restore(table.handle.look().view.seq - 3)
    export(table)
    check_iceberg_merged(path)
    assert iceberg_reader.metadata(path)["format-version"] == 3 and deletes(path) == {".puffin"}


def test_the_default_is_version_2_without_row_ids(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path)
    table.upsert(some(1, 2))
    table.upsert(some(1, v=1))
    export(table, None)
    found, snapshot = newest(path)
    assert (found["format-version"], "next-row-id" in found, "first-row-id" in snapshot) == (2, False, False)
    assert deletes(path) == {".parquet"}


def test_later_calls_and_a_worker_keep_the_version(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path, export_mode="merged", export_formats="both")
    table.upsert(some(1, 2))
    export(table)
    table.upsert(some(1, v=1))
    table.export(iceberg=True)
    table.upsert(some(2, v=1))
    with loop_of(table, "export") as loop:
        loop.run_due_services()
    found, snapshot = newest(path)
    assert int(snapshot["summary"]["hoodoo.slot"]) == table.cursor.seq and len(found["snapshots"]) == 3
    check_merged(path, slots=[table.cursor.seq])
    table.export(iceberg=True, rebuild=True)
    assert iceberg_reader.metadata(path)["format-version"] == 3


# ---- another version
@pytest.mark.parametrize("mode", ["merged", "read_optimized"])
def test_an_upgrade_writes_a_snapshot_even_if_nothing_else_changed(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "t"
    table = narrow(path)
    for turn in range(4):
        table.upsert(some(*range(turn, turn + 3), v=turn) + some(10 + turn, part="b"))
        if turn % 2:
            table.compact()
        export(table, 2, mode=mode)
    before = iceberg_reader.metadata(path)
    overlays = {entry["file_path"] for entry in iceberg_reader.entries(before["snapshots"][-1])}
    done = export(table, mode=mode)
    assert done.iceberg.snapshots == 1
    found, snapshot = newest(path)
    assert found["snapshots"][:-1] == before["snapshots"] and found["table-uuid"] == before["table-uuid"]
    assert (found["format-version"], snapshot["first-row-id"]) == (3, 0)
    assert found["next-row-id"] == snapshot["added-rows"] > 0
    assert {entry["file_path"] for entry in iceberg_reader.entries(snapshot)} == overlays
    for one, slot in [(one, int(one["summary"]["hoodoo.slot"])) for one in found["snapshots"]]:
        seen = table.scan(as_of=slot, read_optimized=mode != "merged").to_arrow()
        assert plain(iceberg_reader.rows(found, one)) == plain(seen)
    again = export(table, mode=mode)
    assert (again.iceberg.snapshots, again.iceberg.files) == (0, 0)
    table.upsert(some(0, v=9))
    export(table, mode=mode)
    check_newest(path, merged=mode == "merged")


def test_an_upgrade_of_a_history_of_all_slots(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path)
    for turn in range(30):  # so that small manifests are merged, and some have deleted entries
        table.upsert(rows(turn, turn + 1, version=turn, part="abc"[turn % 3]))
        if turn == 12:
            table.export(iceberg=True, history="all")
        if turn == 14:
            table.export(iceberg=True, history="all", iceberg_version=3)
    assert table.export(iceberg=True, history="all").iceberg.snapshots == 15
    assert len(check_iceberg(path)) == 31
    assert sum("first-row-id" in one for one in iceberg_reader.metadata(path)["snapshots"]) == 17


def test_an_older_version_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path)
    table.upsert(some(1, 2))
    export(table)
    table.upsert(some(1, v=1))
    before = set(path.rglob("*"))
    with pytest.raises(hoodoo.OptionError, match="older than the existing export: expected 3, got 2") as refused:
        export(table, 2, delta=True)
    assert refused.value.details["option"] == "iceberg_version"
    assert set(path.rglob("*")) == before
    export(table, 2, rebuild=True)
    found, snapshot = newest(path)
    assert (found["format-version"], len(found["snapshots"]), "next-row-id" in found) == (2, 1, False)
    assert snapshot["sequence-number"] == 2
    check_newest(path)


@pytest.mark.parametrize("version", [1, 4, "3", 3.0, True, [3]])
def test_a_version_that_there_is_not_is_refused(tmp_path: Path, version: Any) -> None:
    table = narrow(tmp_path / "t")
    with pytest.raises(hoodoo.OptionError, match="iceberg_version is invalid: expected 2 or 3"):
        export(table, version)
    with pytest.raises(hoodoo.OptionError, match="without an Iceberg export"):
        table.export(delta=True, iceberg_version=3)
    assert not (tmp_path / "t/_delta_log").exists()


# ---- row ids
@pytest.mark.parametrize("seed", range(4))
def test_row_ids_are_assigned_as_the_specification_says(tmp_path: Path, seed: int) -> None:
    """They are computed anew from manifests and their lists, and they stay with a file as long as it lives."""
    path, pick = tmp_path / "t", random.Random(seed)
    table = narrow(path)
    snapshots = 1
    export(table)
    for turn in range(30):
        change = pick.choice(["insert", "insert", "update", "update", "delete", "compact", "overwrite"])
        ids = pick.sample(range(60), 5)
        part = pick.choice("abcdefghijklmnopqrstuvwxyz")
        if change == "delete":
            table.delete([{"id": number, "part": part} for number in ids])
        elif change == "compact":
            table.compact()
        elif change == "overwrite":
            table.insert_overwrite(some(*ids, v=turn, part=part))
        else:
            table.upsert(some(*ids, v=turn, part=part if change == "insert" else "a"))
        if pick.random() < 0.7:
            snapshots += export(table, mode=pick.choice(["merged", "merged", "read_optimized"])).iceberg.snapshots
    snapshots += export(table).iceberg.snapshots
    found = iceberg_reader.metadata(path)
    next_row_id, before, ranges, assigned = 0, dict[str, int](), dict[str, range](), set[range]()
    for snapshot in found["snapshots"]:
        assert snapshot["first-row-id"] == next_row_id
        listed = iceberg_reader.records(snapshot["manifest-list"])
        for manifest in listed:
            if manifest["content"] == 1:
                assert manifest["first_row_id"] is None
            elif manifest["manifest_path"] in before:
                assert manifest["first_row_id"] == before[manifest["manifest_path"]]
            else:
                assert manifest["first_row_id"] == next_row_id
                next_row_id += manifest["added_rows_count"] + manifest["existing_rows_count"]
            for entry in iceberg_reader.records(manifest["manifest_path"]):
                is_inherited = manifest["content"] == 1 or entry["status"] == 1
                assert (entry["data_file"]["first_row_id"] is None) == is_inherited
        assert snapshot["first-row-id"] + snapshot["added-rows"] == next_row_id
        before = {manifest["manifest_path"]: manifest["first_row_id"] for manifest in listed}
        now = iceberg_reader.row_ranges(found, snapshot)
        assert all(now[file] == ranges[file] for file in now.keys() & ranges.keys())
        ranges = now
        assigned |= set(now.values())
    assert found["next-row-id"] == next_row_id and len(found["snapshots"]) == snapshots > 9
    in_order = sorted(assigned, key=lambda ids: (ids.start, ids.stop))
    assert all(one.stop <= other.start for one, other in zip(in_order, in_order[1:], strict=False))
    check_newest(path)


def test_row_ids_go_on_after_metadata_were_recreated(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path)
    table.upsert(some(1, 2, 3))
    export(table)
    before = iceberg_reader.metadata(path)["next-row-id"]
    export(table, rebuild=True)
    (tmp_path / "t").rename(tmp_path / "moved")
    found, snapshot = newest(tmp_path / "moved")
    assert snapshot["first-row-id"] == before == 3
    export(hoodoo.open(tmp_path / "moved"))
    found, snapshot = newest(tmp_path / "moved")
    assert (len(found["snapshots"]), snapshot["first-row-id"], found["next-row-id"]) == (1, 6, 9)


# ---- files
@pytest.mark.parametrize("positions", [[0], list(range(0, 200_000, 3)), [1, 2**31, 2**32 - 1]])
def test_a_puffin_file_says_its_positions(positions: list[int]) -> None:
    data, place = encode_puffin_file("file:///a/ü.parquet", np.array(positions, np.int64))
    entry = {**place, "referenced_data_file": "file:///a/ü.parquet", "record_count": len(positions)}
    assert iceberg_reader.puffin_positions(data, entry) == positions


def test_vectors_go_a_day_after_no_readable_slot_has_them(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path)
    table.upsert(some(1, 2, 3))
    for turn in range(3):
        table.upsert(some(turn + 1, v=turn))
        export(table)
    old = set(path.glob("metadata/deletes-*.puffin"))
    table.compact()
    table.upsert(some(1, v=9))
    export(table)
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    export(table)
    assert len(old) == 3 and old <= set(path.glob("metadata/*"))
    for turn in range(10):  # unused files are looked for every ten metadata files
        table.upsert(some(2, v=turn))
        export(later(hoodoo.open(path), 25))
    kept = set(path.glob("metadata/deletes-*.puffin"))
    assert kept and not kept & old
    check_iceberg_merged(path, slots=[table.cursor.seq])


def test_a_dropped_table_leaves_no_vector(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path)
    table.upsert(some(1, 2))
    table.upsert(some(1, v=1))
    export(table)
    assert deletes(path) == {".puffin"}
    assert hoodoo.drop(path).kept == [] and not path.exists()


# ---- crashes and company
@pytest.fixture(scope="module", params=[2, 3])
def history(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A table with an export of an older slot, of version 2 or 3."""
    path = tmp_path_factory.mktemp("history") / "t"
    table = narrow(path)
    table.upsert(some(1, 2, 3) + some(4, 5, part="b"))
    table.upsert(some(1, v=1) + some(4, v=1, part="b"))
    export(table, request.param)
    table.upsert(some(2, v=2))
    table.delete([{"id": 3, "part": "a"}])
    return path


HOW: dict[str, Any] = {"mode": "merged", "iceberg_version": 3, "delta": False}


@pytest.mark.parametrize("kind", ["die", pytest.param("lost after", marks=pytest.mark.deep)])
def test_an_export_that_ends_at_any_write_is_finished_by_the_next(history: Path, tmp_path: Path, kind: str) -> None:
    assert ended_at_each_write(history, tmp_path, kind, check_iceberg_merged, **HOW) > 5


def test_of_two_exports_at_once_one_history_comes(history: Path, tmp_path: Path) -> None:
    def overtake(path: Path) -> None:
        hoodoo.open(path).upsert(some(5, v=9, part="b"))
        run(path, **HOW)

    assert overtaken_at_each_write(history, tmp_path, overtake, check_iceberg_merged, **HOW) > 5
