"""The streaming example does what it says."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pyarrow as pa

import hoodoo

EXAMPLE = Path(__file__).parents[2] / "examples/medallion.py"


def test_the_medallion_example_keeps_the_second_table_like_the_first(spark: Any, tmp_path: Path) -> None:
    bronze = hoodoo.create(
        tmp_path / "bronze", pa.schema([("id", pa.int64()), ("ts", pa.int64())]), key="id", order_by="ts"
    )
    bronze.upsert(pa.table({"id": [1, 2, 3], "ts": [1, 1, 1]}))
    run = runpy.run_path(str(EXAMPLE))["main"]
    paths = [str(tmp_path / name) for name in ("bronze", "silver", "checkpoint")]
    run(*paths)
    bronze.delete(pa.table({"id": [2]}))
    bronze.upsert(pa.table({"id": [3, 4], "ts": [2, 2]}))
    run(*paths)
    assert sorted(row["id"] for row in hoodoo.open(paths[1]).scan().to_arrow().to_pylist()) == [1, 3, 4]
