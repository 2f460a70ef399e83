"""The examples that use Spark do what they say."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pyarrow as pa

import hoodoo

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_medallion_example_keeps_the_second_table_like_the_first(spark: Any, tmp_path: Path) -> None:
    bronze = hoodoo.create(
        tmp_path / "bronze", pa.schema([("id", pa.int64()), ("ts", pa.int64())]), key="id", order_by="ts"
    )
    bronze.upsert(pa.table({"id": [1, 2, 3], "ts": [1, 1, 1]}))
    run = runpy.run_path(str(EXAMPLES / "medallion.py"))["main"]
    paths = [str(tmp_path / name) for name in ("bronze", "silver", "checkpoint")]
    run(*paths)
    bronze.delete(pa.table({"id": [2]}))
    bronze.upsert(pa.table({"id": [3, 4], "ts": [2, 2]}))
    run(*paths)
    assert sorted(row["id"] for row in hoodoo.open(paths[1]).scan().to_arrow().to_pylist()) == [1, 3, 4]


def test_one_table_is_read_by_every_engine_with_no_row_copied(spark: Any, tmp_path: Path) -> None:
    example = runpy.run_path(str(EXAMPLES / "one_table_every_engine.py"))
    found = example["main"](str(tmp_path))
    assert {"pyarrow", "pandas", "polars", "DuckDB", "Spark", "deltalake", "polars, Delta", "hudi"} <= set(found)
    table = hoodoo.open(tmp_path / "trips")
    named = {
        path
        for seq in range(1, table.cursor.seq + 1)
        for path in table.inspect.files(as_of=seq)["base_file"].to_pylist()
    }
    assert {path.relative_to(table.path).as_posix() for path in tmp_path.rglob("*.parquet")} == named
