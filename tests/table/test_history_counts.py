"""The counts that history() lists, and whether they are exact."""

from __future__ import annotations

from pathlib import Path

import pytest

import hoodoo


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_history_has_the_counts_of_each_write_and_tells_whether_they_are_exact(tmp_path: Path, kind: str) -> None:
    schema = "id bigint, day string, ts bigint"
    table = hoodoo.create(tmp_path / "t", schema, key="id", partition_by="day", order_by="ts", type=kind)
    results = [
        table.upsert([{"id": n, "day": day, "ts": 5} for n in range(5) for day in "xy"]),
        table.upsert([{"id": 1, "day": "x", "ts": 1}]),
        table.upsert([{"id": 1, "day": "x", "ts": 9}]),
        table.delete([{"id": 2, "day": "x", "ts": 9}]),
        table.insert_overwrite([{"id": 1, "day": "x", "ts": 9}]),
        table.delete_partitions([{"day": "y"}]),
    ]
    results = [one for one in results if one.instant]
    said = {one.instant: (one.inserted, one.updated, one.deleted, one.exact) for one in table.history()}
    assert [said[one.instant] for one in results] == [
        (one.inserted, one.updated, one.deleted, one.exact) for one in results
    ]
    assert all(one.exact for one in results) == (kind == "copy_on_write")
    assert table.history().to_arrow()["exact"].to_pylist() == [one.exact for one in table.history()]
