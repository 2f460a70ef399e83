"""Rows that are never joined into one chunk go through every operation and come out the same.

Where Arrow's arrays end (2 GiB of text) is lowered to some bytes; tests/load passes the real limit.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import hoodoo
from hoodoo.format import rows as heavy

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), ("tags", pa.list_(pa.string()))])


def batch(first: int, count: int, text: str) -> pa.Table:
    parts = [
        pa.table({"id": [n], "text": [f"{text}{n}" * 3], "tags": [[text, None]]}, schema=SCHEMA)
        for n in range(first, first + count)
    ]
    return pa.concat_tables(parts)


@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_every_operation_does_without_one_chunk(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upsert of 2.3 GB of text, and the change feed over two of 1.2 GB, ended in `offset overflow`."""
    monkeypatch.setattr(heavy, "WHOLE_BYTES", 300)
    monkeypatch.setattr("hoodoo.writers.files.change_log.WHOLE_BYTES", 300)
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", type=kind, change_log="before_after")
    begin = table.upsert(pa.concat_tables([batch(0, 40, "a"), batch(10, 5, "b")])).cursor
    table.upsert(batch(20, 30, "c"))
    table.delete(batch(0, 5, ""))
    wanted = {n: "a" if n < 10 else "b" if n < 15 else "a" if n < 20 else "c" for n in range(5, 50)}

    def is_right() -> None:
        found = table.scan().to_arrow().to_pylist()
        assert {row["id"]: row["text"] for row in found} == {n: f"{text}{n}" * 3 for n, text in wanted.items()}
        assert all(row["tags"] == [wanted[row["id"]], None] for row in found)

    is_right()
    changes = table.changes(begin).to_arrow()
    assert sorted(changes["op"].to_pylist()) == ["d"] * 5 + ["i"] * 10 + ["u"] * 20
    assert {row["after"]["text"] for row in changes.to_pylist() if row["after"]} == {f"c{n}" * 3 for n in range(20, 50)}
    assert table.incremental(begin, deletes=True).count() == 35
    assert table.get([49, 7, 30])["id"].to_pylist() == [49, 7, 30]
    table.compact()
    table.maintenance.cluster(sort_by=["text"])
    is_right()
    assert table.verify().problems == []
