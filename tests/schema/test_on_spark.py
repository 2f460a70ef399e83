"""Columns that change, through Spark: DataFrames that lack or bring columns, and reads of files of several schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo
from hoodoo import AddColumn, DropColumn, RenameColumn
from hoodoo.writers.staging import staged

KINDS = ("merge_on_read", "copy_on_write")
SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int32()), ("f", pa.float32()), ("s", pa.struct([("x", pa.int32())]))])


def make(path: Path, kind: str) -> hoodoo.Table:
    table = hoodoo.create(path, SCHEMA, key="id", type=kind, compact_after_logs=None, clean_every=None)
    rows = [{"id": key, "a": key, "f": 0.1, "s": {"x": key}} for key in range(1, 5)]
    table.upsert(pa.Table.from_pylist(rows, schema=SCHEMA))
    return table


def found(table: hoodoo.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.scan().to_arrow().sort_by("id").to_pylist()
    return rows


def by_spark(scan: Any, spark: Any, order: str = "id") -> list[dict[str, Any]]:
    return sorted((row.asDict(True) for row in scan.to_spark(spark).collect()), key=lambda row: row[order])


@pytest.mark.parametrize("kind", KINDS)
def test_sparks_reads_of_files_of_several_schemas_are_ours(tmp_path: Path, spark: Any, kind: str) -> None:
    table = make(tmp_path / "t", kind)
    since = table.cursor
    table.alter([DropColumn("a"), AddColumn("n", pa.int32(), default=None, first=True)])
    table.upsert(pa.Table.from_pylist([{"id": 9, "n": 9, "f": 0.5, "s": None}], schema=table.schema))
    assert by_spark(table.scan(), spark) == found(table)
    assert by_spark(table.scan(where="n = 9"), spark)[0]["id"] == 9
    table.alter([AddColumn("a", pa.string(), default="d"), RenameColumn("s.x", "xx")], rewrite=True)
    table.alter([hoodoo.WidenColumn("f", pa.float64()), hoodoo.WidenColumn("n", pa.int64())], rewrite=True)
    table.upsert(pa.Table.from_pylist([{"id": 1, "n": 2**40, "f": 0.1, "s": {"xx": 7}, "a": "x"}], schema=table.schema))
    assert by_spark(table.scan(), spark) == found(table)
    assert by_spark(table.scan(where="f = 0.1", columns=["id", "a"]), spark) == [
        {"id": key, "a": "x" if key == 1 else None} for key in range(1, 5)
    ]
    past = by_spark(table.scan(as_of=since), spark)
    assert past == table.scan(as_of=since).to_arrow().sort_by("id").to_pylist()
    changes = [row.asDict(True) for row in table.changes(since).to_spark(spark).collect()]
    assert sorted(changes, key=str) == sorted(table.changes(since).to_arrow().to_pylist(), key=str)
    hoodoo.register(spark)
    frame = spark.read.format("hoodoo").load(table.path)
    assert sorted((row.asDict(True) for row in frame.collect()), key=lambda row: row["id"]) == found(table)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("way", ["upsert", "format"])
def test_a_dataframe_may_lack_columns_and_bring_new_ones(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, way: str, large: bool
) -> None:
    if large and way == "upsert":
        monkeypatch.setattr(staged, "IN_PROCESS_BYTES", 0)
    table = make(tmp_path / "t", "merge_on_read")
    table.alter.add_column("n", pa.int32(), default=4)
    frame = spark.sql("select 2L id, 5L a, named_struct('x', 6, 'y', 'new') s, date'2026-01-01' d")
    if way == "upsert":
        table.upsert(frame, evolve=True, missing="null")
    else:
        hoodoo.register(spark)
        writer = frame.write.format("hoodoo").mode("append").option("operation", "upsert")
        writer = writer.option("evolve", "true").option("missing", "null")
        writer.save(table.path)
    rows = found(hoodoo.open(table.path))
    assert rows[1]["n"] == 4 and rows[1]["f"] is None and rows[1]["a"] == 5 and str(rows[1]["d"]) == "2026-01-01"
    assert rows[1]["s"] == {"x": 6, "y": "new"} and rows[0]["s"] == {"x": 1, "y": None}
    assert rows[0]["n"] is None and rows[0]["d"] is None
    with pytest.raises(hoodoo.ColumnError):
        table.upsert(frame)


@pytest.mark.parametrize("change", ["rename", "drop", "new id"])
def test_staged_rows_are_brought_to_the_columns_that_the_table_has_by_then(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Staged chunks carry ids, as a batch in memory does."""
    from hoodoo.timeline.commits.transaction import Transaction

    monkeypatch.setattr(staged, "IN_PROCESS_BYTES", 0)
    table = make(tmp_path / "t", "copy_on_write")
    complete = Transaction.complete

    def late(self: Transaction, draft: Any) -> Any:
        monkeypatch.setattr(Transaction, "complete", complete)
        other = hoodoo.open(table.path)
        if change == "rename":
            other.alter([RenameColumn("a", "aa"), RenameColumn("s.x", "xx")], rewrite=True)
        elif change == "drop":
            other.alter.drop_column("a")
        else:
            other.alter.add_column("m", pa.int32(), default=1)
        return complete(self, draft)

    monkeypatch.setattr(Transaction, "complete", late)
    frame = spark.sql("select 2L id, 5 a, float(1) f, named_struct('x', 6) s")
    if change == "drop":
        with pytest.raises(hoodoo.ColumnError, match="'a'"):
            table.upsert(frame)
        return
    if change == "new id":
        table.upsert(frame.selectExpr("*", "7 n"), evolve=True)
        assert found(table)[1] == {"id": 2, "a": 5, "f": 1.0, "s": {"x": 6}, "m": 1, "n": 7}
        return
    table.upsert(frame)
    assert found(table)[1] == {"id": 2, "aa": 5, "f": 1.0, "s": {"xx": 6}}
