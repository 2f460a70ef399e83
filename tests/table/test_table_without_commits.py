"""Tables that Apache Hudi created and nobody has written to."""

from __future__ import annotations

from pathlib import Path

import pytest

import hoodoo


def created_by_hudi(path: Path, kind: str, schema: bool = True) -> Path:
    """Leave what Hudi's CREATE TABLE leaves: properties without an id of hoodoo, and an empty timeline."""
    made = hoodoo.create(
        path.with_name("model"), "id bigint, day string, v bigint", key="id", partition_by="day", type=kind
    )
    lines = Path(made.path, ".hoodie/hoodie.properties").read_text().splitlines()
    left_out = "hoodoo." if schema else ("hoodoo.", "hoodie.table.create.schema")
    (path / ".hoodie/timeline/history").mkdir(parents=True)
    text = "\n".join(line for line in lines if not line.startswith(left_out))
    (path / ".hoodie/hoodie.properties").write_text(text + "\n")
    return path


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_a_table_that_hudi_created_and_nobody_wrote_to_is_empty_and_takes_writes(tmp_path: Path, kind: str) -> None:
    path = created_by_hudi(tmp_path / "t", kind)
    table, reader = hoodoo.open(path), hoodoo.open(path)
    assert table.scan().to_arrow().num_rows == 0 and table.count() == 0 and table.history() == []
    assert not (path / ".hoodie/.hoodoo/commits").exists()  # reading writes nothing
    assert table.delete([{"id": 1, "day": "x"}]).deleted == 0
    row = {"id": 1, "day": "x", "v": 2}
    assert table.upsert([row]).inserted == 1
    assert reader.scan().to_arrow().to_pylist() == hoodoo.open(path).scan().to_arrow().to_pylist() == [row]
    assert table.verify().problems == []


def test_two_writers_may_both_write_first_to_a_table_that_hudi_created(tmp_path: Path) -> None:
    path = created_by_hudi(tmp_path / "t", "copy_on_write")
    first, second = hoodoo.open(path), hoodoo.open(path)
    first.upsert([{"id": 1, "day": "x", "v": 1}])
    second.upsert([{"id": 2, "day": "x", "v": 2}])
    assert sorted(first.scan().to_arrow()["id"].to_pylist()) == [1, 2]


def test_a_table_without_commits_and_columns_is_refused(tmp_path: Path) -> None:
    path = created_by_hudi(tmp_path / "t", "copy_on_write", schema=False)
    with pytest.raises(hoodoo.TableNotFound, match="no commit"):
        hoodoo.open(path)
