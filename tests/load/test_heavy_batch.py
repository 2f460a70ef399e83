"""More than 2 GiB of text in one column of one batch, and in one change feed: written, read, compacted.

It takes about 10 GiB of memory: a log is put together in memory.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa

import hoodoo

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
SIZE = 4 << 20


def batch(first: int, count: int, letter: str) -> pa.Table:
    text = pa.array([letter * SIZE])
    rows = [pa.record_batch([pa.array([first + n]), text], schema=SCHEMA) for n in range(count)]
    return pa.Table.from_batches(rows)


def test_a_batch_and_a_change_feed_of_more_than_two_gigabytes(tmp_path: Path) -> None:
    """Both ended in `offset overflow while concatenating arrays`."""
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", compact_after_logs=None)
    begin = table.upsert(pa.table({"id": range(560), "v": ["small"] * 560})).cursor
    assert table.upsert(batch(0, 560, "x")).updated == 560
    assert table.changes(begin).count() == 560
    assert table.scan(where="id = 3").to_arrow()["v"][0].as_py() == "x" * SIZE
    assert sum(len(part) for part in table.scan().batches(50)) == 560
    assert table.compact().groups == 1
    assert table.scan(columns=["id"]).count() == 560
    shutil.rmtree(table.path)
