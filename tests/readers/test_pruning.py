"""What a filtered read of slices with logs leaves out, and what it must not leave out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo
from hoodoo.format.parquet import base_file

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("v", pa.int64())])


def rows(*triples: tuple[int, int, int]) -> list[dict[str, Any]]:
    return [dict(zip(SCHEMA.names, triple, strict=True)) for triple in triples]


def table_at(path: Path, order: str | None = "ts") -> hoodoo.Table:
    return hoodoo.create(path, SCHEMA, key="id", order_by=order, row_group_rows=100, compact_after_logs=None)


@pytest.fixture()
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many row groups each read of a base file decoded."""
    counts: list[int] = []
    wanted = base_file._select_row_groups

    def counted(*arguments: Any) -> list[int]:
        counts.append(len(wanted(*arguments)))
        return wanted(*arguments)

    monkeypatch.setattr(base_file, "_select_row_groups", counted)
    return counts


def test_a_stale_logged_row_stays_stale_although_the_base_row_that_beats_it_does_not_match(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t")
    table.upsert(rows(*((i, 9, 1) for i in range(300))))
    table.upsert(rows((7, 5, 100), (8, 10, 100)))
    assert table.scan(where="v > 50").to_arrow().to_pylist() == rows((8, 10, 100))


@pytest.mark.parametrize("order", ["ts", None])
def test_row_groups_without_a_matching_row_are_not_decoded_where_every_logged_row_wins(
    tmp_path: Path, decoded: list[int], order: str | None
) -> None:
    table = table_at(tmp_path / "t", order)
    table.upsert(rows(*((i, 1, i) for i in range(300))))
    table.upsert(rows((7, 2, 250), (270, 2, 0)))
    table.delete([{"id": 251}])
    decoded.clear()
    assert table.scan(where="v >= 250 AND v < 253").to_arrow().sort_by("id").to_pylist() == rows(
        (7, 2, 250), (250, 1, 250), (252, 1, 252)
    )
    assert decoded == [1]


def test_a_filter_on_the_key_leaves_out_row_groups_whatever_the_ordering(tmp_path: Path, decoded: list[int]) -> None:
    table = table_at(tmp_path / "t")
    table.upsert(rows(*((i, 9, i) for i in range(300))))
    table.upsert(rows((7, 5, 100), (8, 10, 100)))
    decoded.clear()
    assert table.scan(where="id < 9 AND id > 5").to_arrow().sort_by("id").to_pylist() == rows(
        (6, 9, 6), (7, 9, 7), (8, 10, 100)
    )
    assert decoded == [1]


def test_logs_whose_keys_all_fail_the_filter_are_not_opened(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t")
    table.upsert(rows(*((i, 1, i) for i in range(300))))
    table.upsert(rows((7, 2, 100)))
    table.upsert(rows((290, 2, 100)))
    (log,) = [
        entry.file.path
        for group in table.handle.history.head().groups()
        for entry in group.logs
        if entry.file.stats["id"][0] == 290
    ]
    (tmp_path / "t" / log).unlink()
    assert table.scan(where="id = 7").to_arrow().to_pylist() == rows((7, 2, 100))
    with pytest.raises(hoodoo.CorruptTable):
        table.scan(where="v = 100").to_arrow()


def test_a_log_that_deletes_is_never_left_out(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t")
    table.upsert(rows(*((i, 1, i) for i in range(300))))
    table.upsert([{**row, "_hoodie_is_deleted": row["id"] == 7} for row in rows((7, 2, 0), (290, 2, 0))])
    assert table.scan(where="id = 7").to_arrow().num_rows == 0


def test_a_look_up_decodes_only_the_row_groups_that_hold_the_key(
    tmp_path: Path, decoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_at(tmp_path / "t")
    table.upsert(rows(*((i, 1, i) for i in range(1000, 1300))))
    table.upsert(rows((1007, 2, 100)))
    decoded.clear()
    groups = list[int]()
    decode = base_file.RowGroupReader.decode
    monkeypatch.setattr(
        base_file.RowGroupReader, "decode", lambda self, group: groups.append(group) or decode(self, group)
    )
    assert table.get([1007, 1008, 5]).to_pylist() == rows((1007, 2, 100), (1008, 1, 1008))
    assert len(groups) == 1 and not decoded
    assert table.get([5]).num_rows == 0 and len(groups) == 1  # the index knew


def test_what_is_asked_for_must_fit_the_key(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA.append(pa.field("p", pa.string())), key=("id", "ts"), partition_by="p")
    for wrong in ([1], [{"id": 1}], [{"id": 1, "ts": None}], [{"id": "one", "ts": 1}]):
        with pytest.raises(hoodoo.HoodooError):
            table.get(wrong)
