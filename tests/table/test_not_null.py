"""Columns created with nullable=False take no null from any write, and the table says so for ever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi_rows import hudi_rows

import hoodoo

SCHEMA = pa.schema([("id", pa.int64()), pa.field("name", pa.string(), nullable=False), ("n", pa.int64())])
NULLABLE = pa.schema([field.with_nullable(True) for field in SCHEMA])


def rows(*names: str | None) -> pa.Table:
    return pa.table([range(len(names)), names, [None] * len(names)], schema=NULLABLE)


WRITES: dict[str, Callable[[hoodoo.Table, Any], Any]] = {
    "upsert": lambda table, data: table.upsert(data),
    "insert": lambda table, data: table.insert(data),
    "bulk_insert": lambda table, data: table.insert(data, bulk=True),
    "insert_overwrite": lambda table, data: table.insert_overwrite(data, whole_table=True),
}


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", SCHEMA, key="id")


@pytest.mark.parametrize("write", WRITES)
def test_every_write_refuses_a_null_where_none_may_be(table: hoodoo.Table, write: str) -> None:
    """`nullable=False` was taken and forgotten."""
    with pytest.raises(hoodoo.ColumnError, match="'name' is null in row 1 .* not nullable") as caught:
        WRITES[write](table, rows("a", None))
    assert caught.value.details["column"] == "name" and caught.value.details["row"] == 1
    assert table.scan().count() == 0
    WRITES[write](table, rows("a", "b"))
    assert table.scan().count() == 2


def test_the_property_lives_as_long_as_the_table(table: hoodoo.Table, tmp_path: Path) -> None:
    table.upsert(rows("a"))
    table.upsert(rows("b"))
    table.set_options(target_file_bytes=1 << 20)
    table.compact()
    opened = hoodoo.open(table.path)
    assert opened.schema == table.schema == SCHEMA
    with pytest.raises(hoodoo.ColumnError, match="is not nullable"):
        opened.upsert(rows(None))
    assert hoodoo.create(tmp_path / "copy", opened.schema, key="id").schema == SCHEMA


def test_a_row_that_deletes_needs_no_values(table: hoodoo.Table) -> None:
    table.upsert(rows("a", "b"))
    flagged = rows(None, "c").append_column("_hoodie_is_deleted", pa.array([True, False]))
    assert table.upsert(flagged).deleted == 1
    assert table.delete({"id": [1]}).deleted == 1
    assert table.scan().count() == 0


def test_apache_hudi_reads_such_a_table_like_any_other(table: hoodoo.Table) -> None:
    table.upsert(rows("a", "b"))
    table.upsert(rows("c"))
    table.delete({"id": [1]})
    found = [{name: row[name] for name in SCHEMA.names} for row in hudi_rows(table.path)]
    assert found == table.scan().to_arrow().to_pylist() == [{"id": 0, "name": "c", "n": None}]
