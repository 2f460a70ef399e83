"""The bounds of a batch: of decoded bytes and of rows, with all columns of the table."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest

import hoodoo
from hoodoo.sources import Files, files

MIB = 1 << 20


def sizes(folder: Path, table: hoodoo.Table, max_bytes: int) -> list[int]:
    """Return the number of rows of each batch."""
    found = list[int]()
    job = hoodoo.ingest(Files(folder, settle_seconds=0), table, max_bytes=max_bytes)
    job.run(each_batch=lambda batch: found.append(batch.rows))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def test_a_batch_has_a_third_of_the_memory_after_decompression(folder: Path, tmp_path: Path) -> None:
    """A job held the batch that it wrote, a sorted copy and the next batch: each as large as max_bytes."""
    lines = [json.dumps({"id": number, "v": "x" * 1000}) for number in range(2_000)]
    (folder / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    table = hoodoo.create(tmp_path / "t", "id bigint, v string", key="id")
    batches = sizes(folder, table, 3 * MIB)
    assert sum(batches) == 2_000 and len(batches) == 2 and batches[0] < 1_100


def test_short_text_counts_as_the_larger_column_that_it_becomes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text of two bytes a number became a column of eight bytes a number."""
    monkeypatch.setattr(files, "_BLOCK", 1 << 16)
    values = ",".join(["1"] * 200)
    (folder / "a.jsonl").write_text("".join(f'{{"id":{row},"v":[{values}]}}\n' for row in range(2_000)))
    schema = pa.schema([("id", pa.int64()), ("v", pa.list_(pa.int64()))])
    table = hoodoo.create(tmp_path / "t", schema, key="id")
    batches = sizes(folder, table, 3 * MIB)
    assert sum(batches) == 2_000 and max(batches) * 1_600 <= MIB + 4 * (1 << 16)


def test_a_row_counts_with_all_columns_of_the_table(folder: Path, tmp_path: Path) -> None:
    """Rows of ten bytes filled the memory, because a table of many columns stores null in each of the others."""
    (folder / "a.jsonl").write_text("".join(f'{{"id":{row}}}\n' for row in range(1_000)))
    schema = pa.schema([("id", pa.int64()), *((f"c{number}", pa.int64()) for number in range(300))])
    table = hoodoo.create(tmp_path / "t", schema, key="id")
    batches = sizes(folder, table, 3 * MIB)
    assert sum(batches) == 1_000 and 300 < max(batches) < MIB // (8 * 300)
