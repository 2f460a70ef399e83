"""Into how many files new rows go: as few as the target size allows, and none without a row, however large rows are."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import hoodoo
from hoodoo.compactor.clustering.cluster import cluster
from hoodoo.writers import staged
from hoodoo.writers.route import in_new_groups

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
    cluster(table.handle.context(), by=("id",))
    assert rows_per_file(table) == [1, 1, 1] and table.scan().count() == 3


def test_new_groups_are_equal_parts_of_the_rows() -> None:
    for rows, size, want in ((10, 100.0, [10]), (10, 150.0, [5, 5]), (2, 1e9, [1, 1]), (0, 1.0, [])):
        parts = in_new_groups(np.arange(rows), 1000, size)
        assert [len(part) for part in parts] == want
        assert [place for part in parts for place in part.tolist()] == list(range(rows))


def test_pieces_are_taken_up_to_the_wanted_rows_as_by_summing_them_anew() -> None:
    """The sum was made anew for every piece; a running total takes the same ones."""

    def before(pieces: list[staged.Piece], rows: float) -> list[staged.Piece]:
        taken = [pieces.pop(0)]
        while pieces and sum(piece.rows for piece in taken) + pieces[0].rows / 2 <= rows:
            taken.append(pieces.pop(0))
        return taken

    rng = random.Random(3)
    for _ in range(200):
        left = [staged.Piece("", n, "", rng.randint(1, 100), 0) for n in range(rng.randint(1, 40))]
        other = list(left)
        while left:
            rows = rng.uniform(0.5, 500)
            assert staged._take(left, rows) == before(other, rows)
            assert left == other


def test_staged_pieces_of_large_rows_are_no_larger_than_a_file() -> None:
    assert staged._piece_rows(large_rows(4, 1 << 16), 1 << 16) == 1
    assert staged._piece_rows(large_rows(4, 1 << 16), 1 << 10) == 1
    assert staged._piece_rows(large_rows(4, 8), 1 << 27) == staged._PIECE_ROWS
