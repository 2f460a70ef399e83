"""Rows of which only some values change: written by hoodoo and read by Apache Hudi, written by Hudi's SQL and read by
hoodoo, in turns, with both kinds of log blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hudi_session
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import hoodoo

SCHEMA = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("fare", pa.float64()), ("note", pa.string()), ("city", pa.string())]
)
MARKER = "__debezium_unavailable_value"


def row(key: str, ts: int, fare: float | None, note: str | None) -> dict[str, Any]:
    return {"id": key, "ts": ts, "fare": fare, "note": note, "city": "rome"}


def arrow(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), SCHEMA)


def merged_by_hudi(spark: SparkSession, path: Path, blocks: str, ts: int, fares: dict[str, float]) -> None:
    """MERGE INTO of Hudi's, which sets two columns of known keys; on merge-on-read it logs nothing but them."""
    rows = " UNION ALL ".join(f"SELECT '{key}' id, {ts}L ts, {fare}D fare, 'rome' city" for key, fare in fares.items())
    settings = hudi_session.NO_METADATA_TABLE | {
        "hoodie.logfile.data.block.format": blocks,
        "hoodie.spark.sql.merge.into.partial.updates": "true",
    }
    spark.sql(f"CREATE TABLE partial_rows USING hudi LOCATION '{path}'")
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        spark.sql(
            f"MERGE INTO partial_rows t USING ({rows}) s ON t.id = s.id AND t.city = s.city "
            "WHEN MATCHED THEN UPDATE SET fare = s.fare, ts = s.ts"
        )
    finally:
        for name in settings:
            spark.conf.unset(name)
        spark.sql("DROP TABLE partial_rows")


@pytest.mark.parametrize(
    ("kind", "order_by", "blocks"),
    [("merge_on_read", "ts", "avro"), ("merge_on_read", None, "parquet"), ("copy_on_write", "ts", "avro")],
)
def test_both_take_turns_with_rows_of_which_some_values_change(
    hudi: SparkSession,
    hudi_rows: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
    kind: str,
    order_by: str | None,
    blocks: str,
) -> None:
    path, wanted = tmp_path / "t", {key: row(key, 1, 1.0, "x") for key in "abcd"}
    table = hoodoo.create(
        path, SCHEMA, key="id", partition_by="city", order_by=order_by, type=kind, log_format=blocks, clean_every=None
    )

    def same() -> None:
        ours = {one["id"]: one for one in hoodoo.open(path).scan().to_arrow().to_pylist()}
        assert ours == wanted
        assert {one["id"]: one for one in hudi_rows(path)} == wanted

    def total(stored: pa.Table, newer: pa.Table) -> dict[str, Any]:
        return {"fare": pa.compute.add(stored["fare"], newer["fare"]), "ts": newer["ts"]}

    table.insert(arrow(*wanted.values()))
    for turn in range(2):
        ts = 10 * (turn + 1)
        table.upsert([{"id": "a", "ts": ts, "note": f"ours {turn}", "city": "rome"}], columns="given")
        wanted["a"] |= {"ts": ts, "note": f"ours {turn}"}
        same()
        merged_by_hudi(hudi, path, blocks, ts + 1, {"a": ts + 0.5, "b": ts + 0.25})
        wanted["a"] |= {"ts": ts + 1, "fare": ts + 0.5}
        wanted["b"] |= {"ts": ts + 1, "fare": ts + 0.25}
        same()
        table.upsert(arrow(row("a", ts + 2, None, "kept"), row("c", ts + 2, 9.0, None)), merge="keep_non_null")
        wanted["a"] |= {"ts": ts + 2, "note": "kept"}
        wanted["c"] |= {"ts": ts + 2, "fare": 9.0}
        same()
        table.upsert(arrow(row("b", ts + 3, 2.0, MARKER)), unavailable=MARKER)
        wanted["b"] |= {"ts": ts + 3, "fare": 2.0}
        table.upsert(arrow(row("d", ts + 3, 0.5, None), row("d", ts + 4, 0.25, None)), merge=hoodoo.CustomMerge(total))
        wanted["d"] |= {"ts": ts + 4, "fare": wanted["d"]["fare"] + 0.75}
        same()
        merged_by_hudi(hudi, path, blocks, ts + 5, {"d": 4.0, "c": 5.0})
        wanted["d"] |= {"ts": ts + 5, "fare": 4.0}
        wanted["c"] |= {"ts": ts + 5, "fare": 5.0}
        same()
        if kind == "merge_on_read":
            table.compact()
            same()
    table.upsert(arrow(row("a", 99, 0.0, "last")))
    wanted["a"] = row("a", 99, 0.0, "last")
    same()
    assert table.verify().ok
