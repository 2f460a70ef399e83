"""With new_columns="add" a job adds the columns that its source brings, and no name or value of a sender ends it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo
from hoodoo.errors import ColumnError
from hoodoo.sources import Files


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(
        tmp_path / "t",
        pa.schema([("id", pa.int64()), ("v", pa.int64()), ("n", pa.struct([("a", pa.int64())]))]),
        key="id",
        clean_every=None,
    )


@pytest.fixture
def take(tmp_path: Path, table: hoodoo.Table) -> Any:
    folder = tmp_path / "in"
    folder.mkdir()

    def run(*rows: dict[str, Any], **how: Any) -> Any:
        name = f"{len(list(folder.iterdir()))}.jsonl"
        (folder / name).write_text("".join(json.dumps(one) + "\n" for one in rows))
        return hoodoo.ingest(Files(folder, settle_seconds=0), table, new_columns="add", **how).run()

    return run


def test_a_new_column_is_added_once_a_row_has_a_value_of_it(table: hoodoo.Table, take: Any) -> None:
    """A producer that sent nulls first stopped the job: nobody knows the type of a null."""
    report = take({"id": 1, "more": None, "list": [], "deep": {"x": None}})
    assert (report.bad, report.unknown) == (0, ("deep", "list", "more"))
    assert table.schema.names == ["id", "v", "n"]
    take({"id": 2, "more": "x", "list": [1], "deep": {"x": None, "y": 1}})
    assert table.schema.names == ["id", "v", "n", "more", "list", "deep"]
    assert table.get([1, 2]).to_pylist()[1]["deep"] == {"y": 1}
    assert take({"id": 3, "more": None}).bad == 0


@pytest.mark.parametrize("name", ["_hoodie_x", "V", "a b", "1st", "é"])
def test_a_column_that_no_table_can_have_is_left_out_and_named(table: hoodoo.Table, take: Any, name: str) -> None:
    """The job ended, and a message of a topic cannot be taken away."""
    report = take({"id": 1, "v": 5, name: 1, "fine": 2})
    assert report.unknown == (name,) and report.bad == 0
    assert table.get([1]).select(["id", "v", "fine"]).to_pylist() == [{"id": 1, "v": 5, "fine": 2}]


def test_of_two_new_columns_whose_names_differ_by_case_the_first_is_added(table: hoodoo.Table, take: Any) -> None:
    report = take({"id": 1, "w": 1, "W": 2})
    assert report.unknown == ("W",) and table.schema.names == ["id", "v", "n", "w"]


def test_a_field_that_a_struct_cannot_have_is_left_out_of_it(table: hoodoo.Table, take: Any) -> None:
    report = take({"id": 1, "n": {"a": 1, "A": 2}})
    assert report.unknown == ("n.A",) and table.get([1])["n"].to_pylist() == [{"a": 1}]
    take({"id": 2, "n": {"a": 1, "b": 2}})
    assert table.get([2])["n"].to_pylist() == [{"a": 1, "b": 2}]


def test_fields_of_structs_are_added_whichever_part_of_a_batch_has_them(
    tmp_path: Path, table: hoodoo.Table, take: Any
) -> None:
    (tmp_path / "in" / "before.jsonl").write_text('{"id": 1, "n": {"a": 1, "c": [{"x": 1, "y": null}]}}\n')
    report = take({"id": 2, "n": {"a": 2, "b": 5}}, {"id": 3, "n": None}, {"id": 4, "n": {"a": "no number"}})
    assert (report.batches, report.bad, report.unknown) == (1, 1, ())
    fields = {one["id"]: one["n"] for one in table.scan().to_arrow().to_pylist()}
    assert fields == {1: {"a": 1, "c": [{"x": 1}], "b": None}, 2: {"a": 2, "c": None, "b": 5}, 3: None}
    assert table.verify().problems == []


def test_what_a_transform_makes_is_held_against_the_table_alike(table: hoodoo.Table, take: Any) -> None:
    def more(rows: pa.Table) -> pa.Table:
        return rows.append_column("made", pa.nulls(len(rows))).append_column("V", pa.nulls(len(rows), pa.int64()))

    assert take({"id": 1, "v": 1}, transform=more).unknown == ("V", "made")
    assert table.get([1]).select(["id", "v"]).to_pylist() == [{"id": 1, "v": 1}]


def test_values_of_several_types_in_a_new_column_are_refused_until_the_table_says_which(
    table: hoodoo.Table, take: Any
) -> None:
    with pytest.raises(ColumnError, match="add it to the table with the right type"):
        take({"id": 1, "more": 1}, {"id": 2, "more": "x"})
    table.alter.add_column("more", pa.int64())
    report = take(on_bad_rows=hoodoo.BadRowLimits(share=1.0))
    assert report.bad == 1 and table.get([1])["more"].to_pylist() == [1]


def test_a_look_names_what_would_be_left_out(tmp_path: Path, table: hoodoo.Table) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "V": 2, "w": 3, "n": {"a": 1, "b": 2}}\n')
    found = hoodoo.ingest(Files(tmp_path, pattern="*.jsonl", settle_seconds=0), table, new_columns="add").check()
    assert found.unknown == ("V",) and set(found.columns) == {"id", "w", "n"}
