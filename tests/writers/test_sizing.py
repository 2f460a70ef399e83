"""Into how many files new rows go: as few as the target size allows, and none without a row, however large rows are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hoodoo
from hoodoo.compactor.clustering.cluster import cluster_files
from hoodoo.writers.routing.route import RoutedChunk, cut_into_slices, distribute_new_rows
from hoodoo.writers.staging import staged_rows

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.binary())])
KINDS = ("merge_on_read", "copy_on_write")


def large_rows(count: int, size: int = 2 << 20) -> pa.Table:
    return pa.table({"id": range(count), "v": [np.random.default_rng(n).bytes(size) for n in range(count)]}, SCHEMA)


def rows_per_file(table: hoodoo.Table) -> list[int]:
    return [group.base.file.rows for group in table.handle.history.head().groups() if group.base]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_larger_than_the_target_size_have_a_file_each_and_no_file_is_empty(tmp_path: Path, kind: str) -> None:
    """Three rows made 21 files, 18 of them without a row: the size was divided by the target, whatever there was."""
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", type=kind, target_file_bytes=1 << 20)
    assert table.upsert(large_rows(3)).files == 3
    assert rows_per_file(table) == [1, 1, 1]


def test_clustering_large_rows_leaves_no_file_empty_either(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", type="copy_on_write", target_file_bytes=1 << 20)
    table.upsert(large_rows(3))
    cluster_files(table.handle.context(), by=("id",))
    assert rows_per_file(table) == [1, 1, 1] and table.scan().count() == 3


def test_new_groups_are_equal_parts_of_the_rows() -> None:
    for rows, size, want in ((10, 100.0, [10]), (11, 150.0, [6, 5]), (2, 1e9, [1, 1]), (0, 1.0, [])):
        assert distribute_new_rows(rows, 1000, size) == want


@given(st.lists(st.integers(1, 40), min_size=1), st.lists(st.floats(0, 1)))
def test_chunks_are_cut_into_lists_of_so_many_rows_each_and_keep_their_order(
    sizes: list[int], edges: list[float]
) -> None:
    counts = np.diff([0, *sorted(int(edge * sum(sizes)) for edge in edges), sum(sizes)]).tolist()
    parts = cut_into_slices([RoutedChunk(number, "p", rows) for number, rows in enumerate(sizes)], counts)
    assert [sum(part.stop - part.start for part in mine) for mine in parts] == counts
    rows = [(part.source, row) for mine in parts for part in mine for row in range(part.start, part.stop)]
    assert rows == [(number, row) for number, count in enumerate(sizes) for row in range(count)]


def test_staged_pieces_of_large_rows_are_no_larger_than_a_file() -> None:
    assert staged_rows.max_rows_per_piece(large_rows(4, 1 << 16), 1 << 16) == 1
    assert staged_rows.max_rows_per_piece(large_rows(4, 1 << 16), 1 << 10) == 1
    assert staged_rows.max_rows_per_piece(large_rows(4, 8), 1 << 27) == staged_rows._PIECE_ROWS
