"""A merge leaves the rows that the same clauses leave in Delta Lake on Spark, on the same random rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import hoodoo

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("n", pa.int64()), ("v", pa.int64()), ("s", pa.string())]
)
DDL = "id string, city string, n long, v long, s string"
KEYS = [(key, city) for key in "abcdefghij" for city in ("rome", "oslo")]
_INSERT = {"n": "source.n * 10", "s": "upper(source.s)"}
_PLACE = {"id": "source.id", "city": "source.city"}
Clause = tuple[str, str | None, dict[str, str] | None]
CLAUSES: tuple[Clause, ...] = (
    ("when_matched_update", "source.v > 3", {"n": "target.n + source.n", "s": "'u'"}),
    ("when_matched_update", None, {"v": "coalesce(source.v, target.v, 0) + 1"}),
    ("when_matched_update_all", "target.v < source.v", None),
    ("when_matched_update_all", None, None),
    ("when_matched_delete", "source.n % 2 = 0", None),
    ("when_matched_delete", None, None),
    ("when_not_matched_insert", "source.n < 6", _INSERT),
    ("when_not_matched_insert_all", "source.s is not null", None),
    ("when_not_matched_insert_all", None, None),
    ("when_not_matched_by_source_update", "target.n > 4", {"v": "target.v - 1"}),
    ("when_not_matched_by_source_delete", "target.n <= 2 or target.s is null", None),
)
"""Method of a merge, condition, values."""


def some(drawn: random.Random, count: int) -> pa.Table:
    rows = [
        (*key, drawn.randint(0, 9), drawn.choice([None, 1, 5, 9]), drawn.choice([None, "t", "x"]))
        for key in drawn.sample(KEYS, count)
    ]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def drawn_clauses(drawn: random.Random) -> list[Clause]:
    """Some clauses; of each kind the one without a condition is last, as Delta wants it, and there is one at most."""
    chosen, seen = list[Clause](), set[str]()
    for clause in sorted(drawn.sample(CLAUSES, drawn.randint(2, 6)), key=lambda one: one[1] is None):
        kind = "_".join(clause[0].split("_")[: -2 if clause[0].endswith("_all") else -1])
        if clause[1] is not None or kind not in seen:
            chosen.append(clause)
        seen |= {kind} if clause[1] is None else set()
    return chosen


def ours(table: hoodoo.Table, source: pa.Table, clauses: list[Clause]) -> None:
    merge = table.merge(source)
    for method, where, values in clauses:
        given = () if values is None else (values,)
        merge = getattr(merge, method)(*given, where=where)
    merge.execute()


def theirs(spark: SparkSession, path: Path, source: pa.Table, clauses: list[Clause]) -> list[Any]:
    from delta.tables import DeltaTable

    frame = spark.createDataFrame([tuple(row.values()) for row in source.to_pylist()], DDL).alias("source")
    table = DeltaTable.forPath(spark, str(path))
    merge: Any = table.alias("target").merge(frame, "source.id = target.id AND source.city = target.city")
    for method, where, values in clauses:
        first, *others = method.split("_")
        call = getattr(merge, first + "".join(map(str.capitalize, others)))
        if values is None:
            merge = call(where)
        elif method == "when_not_matched_insert":
            merge = call(where, _PLACE | {"v": "NULL"} | values)
        else:
            merge = call(where, values)
    merge.execute()
    return [tuple(row) for row in table.toDF().collect()]


@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(1, 6))])
def test_any_clauses_leave_the_rows_that_they_leave_in_delta_lake(
    hudi: SparkSession, tmp_path: Path, kind: str, seed: int
) -> None:
    drawn = random.Random(f"{kind} {seed}")
    stored = some(drawn, 12)
    table = hoodoo.create(tmp_path / "ours", SCHEMA, key="id", partition_by="city", type=kind)
    table.insert(stored)
    rows = [tuple(row.values()) for row in stored.to_pylist()]
    hudi.createDataFrame(rows, DDL).write.format("delta").save(str(tmp_path / "theirs"))
    for _ in range(3):
        source, clauses = some(drawn, drawn.randint(1, 12)), drawn_clauses(drawn)
        ours(table, source, clauses)
        want = theirs(hudi, tmp_path / "theirs", source, clauses)
        found = [tuple(row.values()) for row in table.scan().to_arrow().to_pylist()]
        assert sorted(found, key=repr) == sorted(want, key=repr), clauses
