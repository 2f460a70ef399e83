"""Base files written while their rows come."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hoodoo.format.parquet import base_file


def rows(n: int) -> pa.Table:
    keys = pa.array([f"k{i}" for i in range(n)], pa.string())
    return base_file.with_meta(
        pa.table({"x": pa.array(range(n), pa.int64())}), "20260101000000000", 0, keys, "p", "name"
    )


def test_a_first_write_without_rows_does_not_make_row_groups_small() -> None:
    """A merge writes an empty table first, for the schema; its constants have bytes, and no rows to share them: row
    groups got 1,024 rows.
    """
    sink = io.BytesIO()
    writer = base_file.BaseFileWriter(sink, "zstd", 5000)
    writer.write(rows(0))
    writer.write(rows(10_000))
    writer.close({})
    metadata = pq.read_metadata(sink)
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [5000, 5000]


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1001, 25_321])
def test_sequence_numbers_name_instant_task_and_row(count: int) -> None:
    found = base_file.create_sequence_numbers("20260101000000000", 12, count)
    assert found.to_pylist() == [f"20260101000000000_12_{row:010d}" for row in range(count)]
