"""More than 2 GiB of text in one column of one batch, and in one change feed: written, read, compacted.

It takes about 10 GiB of memory, since a log is put together there, and as much of a disk.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import hoodoo

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
SIZE = 4 << 20


def batch(first: int, count: int, letter: str) -> pa.Table:
    text = pa.array([letter * SIZE])
    rows = [pa.record_batch([pa.array([first + n]), text], schema=SCHEMA) for n in range(count)]
    return pa.Table.from_batches(rows)


@pytest.fixture
def disk_folder() -> Iterator[Path]:
    """On the disk of the checkout, wherever other tests have their tables: those may lie in memory."""
    build = Path(__file__).parents[2] / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build) as folder:
        yield Path(folder)


@pytest.mark.alone
def test_a_batch_and_a_change_feed_of_more_than_two_gigabytes(disk_folder: Path) -> None:
    """Both ended in `offset overflow while concatenating arrays`."""
    table = hoodoo.create(disk_folder / "t", SCHEMA, key="id", compact_after_logs=None)
    begin = table.upsert(pa.table({"id": range(560), "v": ["small"] * 560})).cursor
    assert table.upsert(batch(0, 560, "x")).updated == 560
    assert table.changes(begin).count() == 560
    assert table.scan(where="id = 3").to_arrow()["v"][0].as_py() == "x" * SIZE
    assert sum(len(part) for part in table.scan().batches(50)) == 560
    assert table.compact().groups == 1
    assert table.scan(columns=["id"]).count() == 560
