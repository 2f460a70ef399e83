"""`where` on Spark gives the rows that it gives on Arrow, whatever the session's settings."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from hoodoo.readers.predicate import text as predicate_text
from hoodoo.readers.predicate import tree as P

UTC = dt.timezone.utc
NOON = dt.datetime(2024, 1, 1, 12, 0, 0, 1)
TABLE = pa.table(
    {
        "n": pa.array(range(6), pa.int32()),
        "i": pa.array([None, -1, 0, 1, 2, 2**31 - 1], pa.int32()),
        "f": pa.array([None, math.nan, -0.0, 0.5, math.inf, -math.inf], pa.float64()),
        "g": pa.array([None, math.nan, 0.0, 0.1, 2.0, -0.0], pa.float32()),
        "d": pa.array([None, *map(Decimal, ("-1.5", "0", "0.05", "1", "99999999.99"))], pa.decimal128(10, 2)),
        "w": pa.array(
            [None, *map(Decimal, ("-1.5", "0", "1e-10", "1", "9999999999999999999999999999"))], pa.decimal128(38, 10)
        ),
        "s": pa.array([None, "", "a%b", "ab", "a\nb", "\U0001f600"]),
        "day": pa.array(
            [
                None,
                dt.date(1, 1, 1),
                dt.date(1969, 12, 31),
                dt.date(2024, 1, 1),
                dt.date(2024, 1, 2),
                dt.date(9999, 12, 31),
            ]
        ),
        "ts": pa.array(
            [None, *(NOON.replace(tzinfo=UTC) + dt.timedelta(hours=h) for h in range(5))], pa.timestamp("us", "UTC")
        ),
        "lt": pa.array([None, *(NOON + dt.timedelta(hours=h) for h in range(5))], pa.timestamp("us")),
        "o": pa.array([None, True, False, True, False, True]),
        "b": pa.array([None, b"", b"\x00", b"a", b"\x7f", b"\xff"]),
        "a`b": pa.array([None, 1, 2, 3, 4, 5]),
    }
)
FLOATS = [
    f"{negation}({column} {op} {value})"
    for negation in ("", "NOT ")
    for column in "fg"
    for op in ("=", "!=", "<", "<=", ">", ">=")
    for value in (0, 0.5)
]
OTHERS = [
    "g = 0.1",
    "f IN (0, 0.5)",
    "f NOT IN (0, 0.5)",
    "f BETWEEN 0 AND 5",
    "f NOT BETWEEN 0 AND 5",
    "i IN (0, 1)",
    "i NOT IN (0, 1)",
    "i >= 2147483647",
    "d >= 0.05",
    "d IN (1, -1.5)",
    "w < 9999999999999999999999999999",
    "w = 0.0000000001",
    "s LIKE 'a%b'",
    "s LIKE 'a_b'",
    r"s LIKE 'a\%b'",
    "s LIKE '_'",
    "s NOT LIKE '%b'",
    "s = ''",
    "s > 'b'",
    "day < '1970-01-01'",
    "day IN ('0001-01-01', '9999-12-31')",
    "ts = '2024-01-01 13:00:00.000001'",
    "ts <= '2024-01-01T16:00:00.000001+02:00'",
    "lt > '2024-01-01 13:00:00'",
    "o",
    "NOT o",
    "b >= X'61'",
    "b = X''",
    "i IS NULL",
    "NOT i IS NULL AND (f > 0 OR s = 'ab')",
    "NOT (i > 0 OR f > 0)",
    "`a``b` > 2",
]


@pytest.fixture(
    params=[
        {
            "spark.sql.session.timeZone": "America/New_York",
            "spark.sql.ansi.enabled": "false",
            "spark.sql.legacy.timeParserPolicy": "LEGACY",
        },
        {},
    ]
)
def session(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    before = {name: spark.conf.get(name) for name in request.param}
    for name, value in request.param.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


def test_spark_returns_the_rows_that_arrow_returns(session: SparkSession, tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    rows = session.read.parquet(str(tmp_path / "rows.parquet"))
    questions = [predicate_text.parse_condition(where, TABLE.schema) for where in FLOATS + OTHERS]
    answers = rows.select("n", *(P.to_spark(p).alias(f"p{k}") for k, p in enumerate(questions))).collect()
    for k, (where, predicate) in enumerate(zip(FLOATS + OTHERS, questions, strict=True)):
        found = sorted(row["n"] for row in answers if row[f"p{k}"])
        assert found == TABLE.filter(P.to_arrow(predicate))["n"].to_pylist(), where


def test_spark_reads_only_what_a_filter_lets_through(session: SparkSession, tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    rows = session.read.parquet(str(tmp_path / "rows.parquet"))
    for where in ("i >= 1", "s = 'ab'", "ts > '2024-01-01 13:00:00'", "i IN (0, 1) AND o"):
        predicate = predicate_text.parse_condition(where, TABLE.schema)
        found = sorted(row["n"] for row in rows.filter(P.to_spark(predicate)).select("n").collect())
        assert found == TABLE.filter(P.to_arrow(predicate))["n"].to_pylist(), where
