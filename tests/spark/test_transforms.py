"""Partition columns that are made of others: as Spark SQL makes them, and the same however a batch comes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from three_ways import TasksHere, agreed, frame_of, written

import hoodoo
from hoodoo.format import transforms

UTC = dt.timezone.utc
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("n", pa.int32()), ("v", pa.string())])
MADE = [hoodoo.day("ts"), hoodoo.bucket(4, "id"), hoodoo.truncate(10, "n")]


def columns() -> dict[str, pa.Array]:
    """Of every type that is hashed, with nulls."""
    draw = np.random.default_rng(3)
    words = draw.integers(-(2**63), 2**63 - 1, 500)
    micros = draw.integers(-30_000_000_000_000_000, 200_000_000_000_000_000, 500)
    edges, days = np.array([0, 1, -1, 2**31 - 1, -(2**31)]), micros // 86_400_000_000
    thousandths = [Decimal(one).scaleb(-3) for one in (*edges.tolist(), *(words >> 5).tolist())]
    return {
        "int": pa.array([*edges.tolist(), None, *(words >> 32).tolist()], pa.int32()),
        "long": pa.array([*edges.tolist(), None, *words.tolist()], pa.int64()),
        "text": pa.array(["", "a", "äöü😀", "x" * 100, "y" * 31, None, *map(str, words.tolist())]),
        "bytes": pa.array([b"", b"\0", b"x" * 33, None, b"", b"", *(word.tobytes() for word in words)], pa.binary()),
        "date": pa.array([*edges[:3].tolist(), 719, 20_000, None, *days.tolist()], pa.int32()).cast(pa.date32()),
        "timestamp": pa.array([*edges.tolist(), None, *micros.tolist()], pa.int64()).cast(pa.timestamp("us", "UTC")),
        "local": pa.array([*edges.tolist(), None, *micros.tolist()], pa.int64()).cast(pa.timestamp("us")),
        "decimal": pa.array([*thousandths[:5], None, *thousandths[5:]], pa.decimal128(18, 3)),
    }


@pytest.mark.parametrize("n", [1, 16, 1000])
def test_a_bucket_is_what_spark_makes_of_the_hash(spark: Any, n: int) -> None:
    given = columns()
    texts = [f"IF(`{name}` IS NULL, NULL, CAST(pmod(xxhash64(`{name}`), {n}) AS INT)) AS `{name}`" for name in given]
    theirs = spark.createDataFrame(pa.table(given)).coalesce(1).selectExpr(*texts).toArrow()
    for name, column in given.items():
        assert (
            transforms.compute_partition_values(hoodoo.bucket(n, name), column).to_pylist() == theirs[name].to_pylist()
        ), name


def test_years_months_days_and_hours_are_those_of_spark_in_utc(spark: Any) -> None:
    given = columns()
    texts = {
        hoodoo.year("timestamp"): "year(timestamp)",
        hoodoo.month("timestamp"): "date_format(timestamp, 'yyyy-MM')",
        hoodoo.day("timestamp"): "to_date(timestamp)",
        hoodoo.hour("timestamp"): "date_format(timestamp, 'yyyy-MM-dd-HH')",
        hoodoo.day("local"): "to_date(local)",
        hoodoo.hour("local"): "date_format(local, 'yyyy-MM-dd-HH')",
        hoodoo.month("date"): "date_format(date, 'yyyy-MM')",
        hoodoo.truncate(7, "int"): "CASE WHEN int >= -2147483640 THEN int - pmod(int, 7) END",
        hoodoo.truncate(2, "text"): "substring(text, 1, 2)",
    }
    frame = spark.createDataFrame(pa.table(given)).coalesce(1)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        theirs = frame.selectExpr(*(f"{text} AS c{at}" for at, text in enumerate(texts.values()))).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    for at, made in enumerate(texts):
        column = given[made.column]
        fits = pa.array(~transforms.unfit(made, column))
        assert (
            transforms.compute_partition_values(made, column).filter(fits).to_pylist()
            == theirs[f"c{at}"].filter(fits).to_pylist()
        ), str(made)


# ---------------------------------------------------------------- three ways


def at(day: int) -> dt.datetime:
    return dt.datetime(2026, 3, day, 23, 30, tzinfo=UTC)


def rows(*changes: dict[str, Any], without: tuple[str, ...] = (), **kinds: pa.DataType) -> pa.Table:
    full = {"id": 1, "ts": at(1), "n": 17, "v": "new"}
    table = pa.Table.from_pylist(
        [full | change for change in changes], pa.schema([*SCHEMA, *((name, kind) for name, kind in kinds.items())])
    )
    return table.drop_columns(list(without))


DAY = {"ts_day": pa.date32()}
FLAG = {"_hoodie_is_deleted": pa.bool_()}
RIGHT, WRONG = dt.date(2026, 3, 1), dt.date(2026, 3, 2)
CASES: dict[str, tuple[str, pa.Table, dict[str, Any]]] = {
    "no column that is made": ("upsert", rows({}, {"id": 2}, {"id": 9, "ts": at(5)}, {"id": 8, "ts": None}), {}),
    "a column that is right": ("upsert", rows({"ts_day": RIGHT}, **DAY), {}),
    "a column that is wrong": ("upsert", rows({"ts_day": RIGHT}, {"id": 5, "ts_day": WRONG}, **DAY), {}),
    "a column of nulls": ("upsert", rows({"ts_day": None}, **DAY), {}),
    "a column of texts": ("upsert", rows({"ts_day": "2026-03-01"}, ts_day=pa.string()), {}),
    "no source": ("upsert", rows({}, without=("ts",)), {}),
    "no source, to be filled": ("upsert", rows({}, without=("ts",)), {"missing": "null"}),
    "no source, but the column": ("upsert", rows({"ts_day": RIGHT}, without=("ts",), **DAY), {"missing": "null"}),
    "a number too small": ("upsert", rows({}, {"n": -(1 << 31)}), {}),
    "a source of a wider type": ("upsert", rows({"n": 18}, without=("n",)).append_column("n", pa.array([18])), {}),
    "a source of a wider type that does not fit": (
        "upsert",
        rows({}, without=("n",)).append_column("n", pa.array([1 << 40])),
        {"evolve": True},
    ),
    "one more column": ("upsert", rows({"more": 1}, more=pa.int64()), {"evolve": True}),
    "wrong and too small rows set aside": (
        "upsert",
        rows({"id": 9}, {"n": -(1 << 31), "ts_day": RIGHT}, {"ts_day": WRONG}, {"ts_day": RIGHT}, {"id": None}, **DAY),
        {"on_bad_rows": "quarantine"},
    ),
    "rows to be inserted": ("insert", rows({"id": 70}, {"id": 71, "ts": at(4)}), {}),
    "rows that exist": ("insert", rows({}, {"id": 2}), {}),
    "rows in bulk": ("insert", rows({"id": 70}, {"id": 70, "ts": at(4)}), {"bulk": True}),
    "partitions anew": ("insert_overwrite", rows({"id": 1}, {"id": 70, "ts": at(4)}), {}),
    "ordered deletes": (
        "upsert",
        rows({"_hoodie_is_deleted": True}, {"id": 2, "_hoodie_is_deleted": False}, **FLAG),
        {},
    ),
    "deletes that belie the column": (
        "upsert",
        rows({"ts": None, "ts_day": RIGHT, "_hoodie_is_deleted": True}, **DAY, **FLAG),
        {},
    ),
    "rows to be deleted": ("delete", rows({}, {"id": 2, "ts": at(1)}, {"id": 3, "ts": at(4)}), {}),
    "keys to be deleted, by the column": ("delete", rows({"ts_day": RIGHT}, without=("ts", "v"), **DAY), {}),
    "keys to be deleted, by both": ("delete", rows({"ts_day": RIGHT, "ts": None}, **DAY), {}),
    "no rows": ("upsert", rows(), {}),
    "no rows to be deleted": ("delete", rows(), {}),
    "no columns": ("upsert", pa.table({}), {}),
}
ON_SPARK = ("no column that is made", "rows to be deleted")
"""Cases in which tasks of staged batches are Spark's."""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "t"
    made = hoodoo.create(path, SCHEMA, key="id", partition_by=MADE, compact_after_logs=None, clean_every=None)
    made.upsert(rows(*({"id": n, "ts": at(1 + n % 2), "v": "old"} for n in range(8))))
    made.upsert(rows({"id": 1, "ts": at(1), "v": "older"}))
    return path


@pytest.mark.parametrize("name", CASES)
def test_a_batch_gets_the_columns_that_are_made_however_it_comes(table: Path, spark: Any, name: str) -> None:
    write, given, how = CASES[name]
    agreed(table, frame_of(spark, given), given, write, how, None if name in ON_SPARK else TasksHere)


def test_keys_of_a_dataframe_without_a_column_that_tells_a_partition_are_deleted_wherever_they_are(
    table: Path, spark: Any, tmp_path: Path
) -> None:
    made = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by=[hoodoo.bucket(4, "id"), hoodoo.day("ts")])
    made.upsert(rows(*({"id": n, "ts": at(1 + n % 2)} for n in range(8))))
    keys = rows({"id": 3}, {"id": 4}, without=("ts", "n", "v"))
    with pytest.raises(
        hoodoo.ColumnError, match="'ts_day' .a partition column. is not in the batch. Add it, or its source column 'ts'"
    ):
        written(made, keys, "delete", {})
    assert made.delete(frame_of(spark, keys)).deleted == 2
    frame = frame_of(spark, rows({"id": 5, "ts": at(2)}, {"id": 6, "ts": at(2)}))
    assert made.delete(frame).deleted == 1, "6 is in another partition"
    made.maintenance.purge(frame_of(spark, rows({"id": 6, "ts": at(1)})), older_than_hours=0)
    only = hoodoo.create(tmp_path / "b", SCHEMA, key="id", partition_by=hoodoo.bucket(4, "id"))
    only.upsert(rows(*({"id": n} for n in range(8))))
    assert only.delete(frame_of(spark, keys)).deleted == 2
    assert sorted(made.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 7]
    found = made.scan(where="ts < '2026-03-02'").to_spark(spark).toArrow()
    assert sorted(found["id"].to_pylist()) == [0, 2]
