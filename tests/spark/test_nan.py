"""NaN in a DataFrame of a table: Spark says which rows a condition means, whatever Parquet's statistics say.

A filter on `to_spark` went down to Spark's Parquet reader, which left out row groups by statistics, and those do not
count NaN: `x > 2` lost the rows with NaN, which is above all numbers in Spark.
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

import hoodoo

ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "x": [1.0, math.nan, None],
        "f": pa.array([1.0, math.nan, None], pa.float32()),
        "s": pa.array([{"x": 1.0}, {"x": math.nan}, None], pa.struct([("x", pa.float64())])),
    }
)
CONDITIONS = ("{} > 2", "{} >= 2", "{} <> 1", "{} = double('NaN')", "NOT ({} <= 2)", "{} IN (5, double('NaN'))")


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> tuple[Any, Any]:
    """The rows of a table as Spark reads them, and the same rows that no table ever held."""
    table = hoodoo.create(tmp_path_factory.mktemp("nan") / "t", ROWS.schema, key="id")
    table.upsert(ROWS)
    given = [tuple(row.values()) for row in ROWS.to_pylist()]
    return table.scan().to_spark(spark), spark.createDataFrame(given, "id long, x double, f float, s struct<x: double>")


@pytest.mark.parametrize("column", ["x", "f", "s.x"])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_filter_of_spark_finds_the_rows_that_it_finds_among_the_same_rows_in_memory(
    frames: tuple[Any, Any], column: str, condition: str
) -> None:
    stored, memory = (frame.where(condition.format(column)).select("id").collect() for frame in frames)
    assert stored == memory == [(2,)]
