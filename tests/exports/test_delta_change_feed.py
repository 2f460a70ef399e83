"""The change data feed of Delta exports, read by deltalake: the net of its rows is the difference of two versions."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from exported_tables import NARROW, make, narrow, slots_of_delta, some

import hoodoo

Rows = Counter[tuple[Any, ...]]


def feed(path: Path, first: int, last: int) -> Rows:
    """Return the net number of each row in the feed of a range of versions."""
    changes = pa.table(deltalake.DeltaTable(str(path)).load_cdf(first, last).read_all()).to_pylist()
    assert {change["_change_type"] for change in changes} <= {"insert", "delete"}
    counted: Rows = Counter()
    for change in changes:
        counted[tuple(change[name] for name in NARROW.names)] += 1 if change["_change_type"] == "insert" else -1
    return Counter({row: count for row, count in counted.items() if count})


def difference(table: hoodoo.Table, path: Path, first: int, last: int) -> Rows:
    """Return how many times more each row is in version `last` than in the version before `first`."""
    slots = slots_of_delta(path)

    def rows_of(version: int) -> Rows:
        if version not in slots:
            return Counter()
        rows = table.scan(as_of=slots[version], read_optimized=True).to_arrow().to_pylist()
        return Counter(tuple(row[name] for name in NARROW.names) for row in rows)

    counted = rows_of(last)
    counted.subtract(rows_of(first - 1))
    return Counter({row: count for row, count in counted.items() if count})


def check(table: hoodoo.Table, path: Path, first: int = 0) -> int:
    """Compare the feed of each version since `first`, and of all of them. Return the newest version."""
    last = deltalake.DeltaTable(str(path)).version()
    for begin, end in [(first, last), *((version, version) for version in range(first, last + 1))]:
        assert feed(path, begin, end) == difference(table, path, begin, end), (begin, end)
    return last


def write_changes(table: hoodoo.Table) -> None:
    for turn in range(3):
        table.upsert([*some(*range(turn * 2, turn * 2 + 4), v=turn), *some(20 + turn, v=turn, part="c d")])
        table.delete([{"id": turn * 2, "part": "a"}])
        table.compact()
        table.export(delta=True)
    table.insert_overwrite(some(1, 2, v=7))
    table.maintenance.cluster(sort_by="v")
    table.restore(table.handle.look().view.seq - 2)
    table.export(delta=True)


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_the_net_of_the_feed_is_the_difference_of_the_rows(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    table = narrow(path, type=kind, order_by="ts")
    table.upsert(some(0, 1, 2))
    table.export(delta=True, change_feed=True)
    write_changes(table)
    table.export(delta=True, rebuild=True)
    assert check(table, path) > 6


def test_rows_that_only_move_to_other_files_are_not_in_the_feed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path, type="copy_on_write")
    table.upsert(some(0, 1, 2))
    before = table.export(delta=True, change_feed=True).delta.version
    table.maintenance.cluster(sort_by="v")
    version = table.export(delta=True).delta.version
    assert version == before + 1
    assert pa.table(deltalake.DeltaTable(str(path)).load_cdf(version, version).read_all()).num_rows == 0


@pytest.mark.parametrize("mode", ["read_optimized", "merged"])
def test_a_feed_that_a_later_export_enables_starts_with_its_own_version(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "t"
    table = narrow(path)
    table.upsert(some(0, 1, 2))
    table.upsert(some(1, v=1))
    table.export(delta=True, mode=mode)
    table.export(delta=True, change_feed=True)
    first = deltalake.DeltaTable(str(path)).version()
    assert feed(path, first, first) == {}
    assert table.export(delta=True, change_feed=True).delta.versions == 0
    write_changes(table)
    assert check(table, path, first) > first + 3


def test_a_partition_value_that_delta_lacks_keeps_the_feed_right(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, NARROW)
    table.upsert(some(0, 1, 2))
    table.export(delta=True, change_feed=True)
    assert deltalake.DeltaTable(str(path)).metadata().partition_columns == ["part"]
    table.upsert(some(3, part=""))
    table.export(delta=True)
    table.delete_partitions([""])
    table.export(delta=True, rebuild=True)
    assert deltalake.DeltaTable(str(path)).metadata().partition_columns == []
    check(table, path)


def test_a_log_without_the_argument_declares_no_feed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path)
    table.upsert(some(0))
    table.export(delta=True)
    assert "changeDataFeed" not in deltalake.DeltaTable(str(path)).protocol().writer_features
    assert "delta.enableChangeDataFeed" not in deltalake.DeltaTable(str(path)).metadata().configuration
    assert b"hoodooFeed" not in (path / "_delta_log" / f"{0:020d}.json").read_bytes()


def test_a_checkpoint_and_a_version_after_it_keep_the_feed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path, type="copy_on_write")
    table.upsert(some(0))
    table.export(delta=True, change_feed=True)
    for turn in range(12):
        table.upsert(some(0, v=turn))
        table.export(delta=True)
    hint = json.loads((path / "_delta_log" / "_last_checkpoint").read_bytes())
    assert hint["version"] == 10
    assert feed(path, 11, 12) == difference(table, path, 11, 12) != {}
    assert "changeDataFeed" in deltalake.DeltaTable(str(path)).protocol().writer_features


def test_a_feed_of_a_merged_export_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = narrow(path)
    table.upsert(some(0))
    with pytest.raises(hoodoo.OptionError, match="expected mode 'read_optimized', got 'merged'"):
        table.export(delta=True, iceberg=True, mode="merged", change_feed=True)
    assert not (path / "_delta_log").exists() and not (path / "metadata").exists()
    version = table.export(delta=True, change_feed=True).delta.version
    with pytest.raises(hoodoo.OptionError, match="expected mode 'read_optimized', got 'merged'"):
        table.export(delta=True, iceberg=True, mode="merged")
    assert max(slots_of_delta(path)) == version and not (path / "metadata").exists()


def test_a_feed_without_a_delta_log_is_refused(tmp_path: Path) -> None:
    table = narrow(tmp_path / "t")
    with pytest.raises(hoodoo.OptionError, match="delta=True"):
        table.export(iceberg=True, change_feed=True)
