"""Filters of Delta's readers give the rows that hoodoo gives: what an export tells of a file prunes none of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import hoodoo

SCHEMA = pa.schema(
    [("id", pa.string()), ("double", pa.float64()), ("flag", pa.bool_()), ("text", pa.string()), ("n", pa.int64())]
)
ROWS = [
    {"id": "𠮷野家", "double": 9.0, "flag": True, "text": "x" * 5000, "n": 9},
    {"id": "a", "double": float("nan"), "flag": False, "text": "short", "n": 10},
    {"id": "\U0010fffd", "double": -1.5, "flag": None, "text": None, "n": None},
]
FILTERS: list[tuple[str, str, Any]] = [
    *(("id", "=", row["id"]) for row in ROWS),
    ("id", ">", "z"),
    *(("double", op, 9.0) for op in ("=", "<", "<=", ">=")),
    *(("flag", "=", value) for value in (True, False)),
    ("text", "=", "x" * 5000),
    ("text", "<", "y"),
    *(("n", op, 9) for op in ("=", "<=", ">=")),
]
"""Column, operator and value. Where a bound is missing, deltalake took files for those without such rows."""


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", type="copy_on_write")
    table.upsert(pa.Table.from_pylist(ROWS, schema=SCHEMA))
    table.export(delta=True)
    return table


@pytest.mark.parametrize(("name", "op", "value"), FILTERS)
def test_filters_of_deltalake_and_polars_find_the_rows(table: hoodoo.Table, name: str, op: str, value: Any) -> None:
    spelled = str(value).lower() if isinstance(value, bool) else f"'{value}'" if isinstance(value, str) else value
    expected = set(table.scan(where=f"{name} {op} {spelled}").to_arrow()["id"].to_pylist())
    assert expected
    found = DeltaTable(table.path).to_pyarrow_table(filters=[(name, op, value)])
    assert set(found["id"].to_pylist()) == expected
    column, literal = pl.col(name), pl.lit(value)
    asked = {"=": column == literal, "<": column < literal, "<=": column <= literal, ">=": column >= literal}
    condition = asked.get(op, column > literal)
    nan = {"a"} if name == "double" and op == ">=" else set()  # NaN is polars' greatest number
    assert set(pl.scan_delta(table.path).filter(condition).collect()["id"].to_list()) == expected | nan


def test_files_from_before_a_column_became_text_keep_no_bounds_of_numbers(table: hoodoo.Table) -> None:
    """9 and 10 are in order; as texts they are not, and a file between them had no "9"."""
    table.alter.retype_column("n", "string")
    table.export(delta=True)
    dataset = DeltaTable(table.path).to_pyarrow_table(filters=[("n", "=", "9")])
    assert dataset["id"].to_pylist() == ["𠮷野家"]
