"""Once Apache Hudi has upserted rows with `_hoodie_is_deleted`, the table has a column of that name. It goes on to say
which rows of a batch delete.

Our upsert took it for a column like any other: it stored the rows that were to delete, and Hudi did not see them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hudi_session
import pytest
from pyspark.sql import SparkSession

import hoodoo

NAMES = ("id", "city", "ts", "v", "_hoodie_is_deleted")
DDL = "id string, city string, ts bigint, v string, _hoodie_is_deleted boolean"


def made(hudi: SparkSession, path: Path, kind: str, keys: str) -> None:
    """A table of Hudi's with a row for each of `keys`, and the flag for a column."""
    first = [(key, "rome", 1, "first", False) for key in keys]
    hudi_session.hudi_write(hudi, path, first, DDL, options=hudi_session.creating(kind))


@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_flagged_rows_delete_in_a_table_in_which_the_flag_is_a_column(
    hudi: SparkSession, hudi_rows: Callable[..., list[dict[str, Any]]], tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "t"
    made(hudi, path, kind, "abcdef")
    hudi_session.hudi_write(hudi, path, [("a", "rome", 2, "", True)], DDL, options=hudi_session.NO_METADATA_TABLE)
    table = hoodoo.open(path)
    rows = [("b", "rome", 2, "", True), ("c", "rome", 2, "new", False), ("d", "rome", 2, "null", None)]
    rows += [("e", "rome", 0, "late", True), ("g", "rome", 2, "none", True)]
    result = table.upsert([dict(zip(NAMES, row, strict=True)) for row in rows])
    assert result.inserted == 0
    want = {"c": "new", "d": "null", "e": "first", "f": "first"}
    assert {row["id"]: row["v"] for row in hudi_rows(path)} == want
    assert {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()} == want
    pulled = table.incremental("earliest", deletes=True).to_arrow()
    assert pulled.schema.names.count("_hoodie_is_deleted") == 1
    assert {row["id"] for row in pulled.to_pylist() if not row["_hoodie_is_deleted"]} == set(want)


@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_no_write_stores_a_row_whose_flag_says_that_it_is_deleted(
    hudi: SparkSession, hudi_rows: Callable[..., list[dict[str, Any]]], tmp_path: Path, kind: str
) -> None:
    """A merge with a condition stored it, and Hudi did not see the row in a log."""
    path = tmp_path / "t"
    made(hudi, path, kind, "abcd")
    table = hoodoo.open(path)
    flagged = [dict(zip(NAMES, ("a", "rome", 2, "", True), strict=True))]
    for refused in (
        lambda: table.merge(flagged).when_matched_update_all(where="source.ts > target.ts").execute(),
        lambda: table.merge([flagged[0] | {"id": "x"}]).when_not_matched_insert_all().execute(),
        lambda: table.update({"_hoodie_is_deleted": True}, where="id = 'a'"),
    ):
        with pytest.raises(hoodoo.ColumnError, match="delete"):
            refused()
    given = [dict(zip(NAMES[:4], ("b", "rome", 2, "new"), strict=True))]
    assert table.upsert(given, columns="given").updated == 1
    given = [dict(zip(NAMES, (key, "rome", 2, "newer", key == "c"), strict=True)) for key in "cd"]
    done = table.upsert(given, columns="given")
    assert (done.updated, done.deleted) == (1, 1)
    want = {"a": "first", "b": "new", "d": "newer"}
    assert {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()} == want
    assert {row["id"]: row["v"] for row in hudi_rows(path)} == want
