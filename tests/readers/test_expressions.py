"""What an Arrow expression, and one of polars, says to statistics: what is known prunes, what is not prunes nothing."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import hoodoo
from hoodoo.readers.predicate import from_arrow, from_polars
from hoodoo.readers.predicate.filter import Filter
from hoodoo.readers.predicate.tree import And, ColumnRange, Opaque, may_match, statistics_prove_match

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("s", pa.string()),
        ("d", pa.decimal128(10, 2)),
        ("o", pa.bool_()),
        ("ts", pa.timestamp("us", "UTC")),
        ("ns", pa.timestamp("ns")),
        ("day", pa.date32()),
        ("n", pa.struct([("i", pa.int64())])),
    ]
)
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.timezone.utc)
RANGES = {
    "i": ColumnRange(10, 20, 0, 5),
    "f": ColumnRange(1.0, 2.0, 0, 5),
    "g": ColumnRange(1.0, 2.0, 0, 5),
    "s": ColumnRange("b", "d", 0, 5),
    "d": ColumnRange(Decimal("1.00"), Decimal("2.00"), 0, 5),
    "o": ColumnRange(False, False, 0, 5),
    "ts": ColumnRange(NOON, NOON, 0, 5),
    "day": ColumnRange(dt.date(2026, 1, 1), dt.date(2026, 1, 3), 0, 5),
}
i, f, s = pc.field("i"), pc.field("f"), pc.field("s")
NULL = pc.scalar(pa.scalar(None, pa.bool_()))


def arrow_may_match(expression: pc.Expression) -> bool:
    tree = from_arrow.convert_arrow_expression(expression, SCHEMA)
    return tree is None or may_match(tree, RANGES)


def polars_may_match(expression: pl.Expr) -> bool:
    return may_match(from_polars.convert_polars_expression(expression, SCHEMA), RANGES)


@pytest.mark.parametrize(
    "expression",
    [
        i == 9,
        pc.scalar(21) <= i,
        i > 20.5,
        i.isin([1, 2, 99]),
        i.isin(list(range(5000, 9000))),
        (i > 20) & (s == "c"),
        (i > 20) | (s == "x"),
        ~(i <= 20),
        i.is_null(),
        i.isin([None, 3]),
        f > 2,
        f == 3,
        s.isin(pa.array(["x", "y"], pa.large_string())),
        s > pa.scalar("d", pa.large_string()),
        pc.match_like(s, "x%"),
        pc.starts_with(s, "e"),
        pc.field("d") > Decimal("2.00"),
        pc.field("d") == 3,
        pc.field("o"),
        pc.field("ts") > NOON,
        pc.field("ts") == pa.scalar(NOON + dt.timedelta(seconds=1), pa.timestamp("ms", "Europe/Rome")),
        pc.field("day") > dt.date(2026, 1, 3),
        pc.if_else(i.is_valid(), i.isin([1]), NULL),
        pc.scalar(False),
        NULL & (i == 10),
        (i + 1 == 3) & (i == 9),
    ],
    ids=str,
)
def test_what_is_known_of_an_arrow_expression_prunes(expression: pc.Expression) -> None:
    assert not arrow_may_match(expression)


@pytest.mark.parametrize(
    "expression",
    [
        i == 10,
        i.isin([None, 10]),
        i + 1 == 3,
        i == f,
        ~(f <= 2),  # NaN
        ~f.isin([1.0]),
        f != 1.0,
        i == 2.0**60,  # whole numbers are rounded before they are compared
        pc.field("g") == 2**24 + 1,
        pc.field("ns") == pa.scalar(1, pa.timestamp("ns")),
        pc.field("ts") == pa.scalar(1, pa.timestamp("ns", "UTC")),
        f.is_nan(),
        f.is_null(nan_is_null=True),
        pc.match_like(s, "X%", ignore_case=True),
        pc.field("n", "i") == 77,
        (pc.field("n", "i") == 77) & (i == 9),
        ~pc.field("o"),
        pc.scalar(True),
        s < b"c".decode(),
    ],
    ids=str,
)
def test_what_may_hold_or_is_not_known_prunes_nothing(expression: pc.Expression) -> None:
    assert arrow_may_match(expression)


@pytest.mark.parametrize(
    "expression",
    [
        pl.col("i") == 9,
        pl.lit(21) <= pl.col("i"),
        pl.col("i").is_in([1, 2]),
        pl.col("i").is_between(1, 10, closed="left"),
        (pl.col("i") > 20) & (pl.col("s") == "c"),
        (pl.col("i") > 20) | (pl.col("s") == "x"),
        ~(pl.col("i") <= 20),
        pl.col("i").is_null(),
        ~pl.col("i").is_not_null(),
        pl.col("f") < 1.0,
        pl.col("f") == 3.0,
        pl.col("s").str.starts_with("e"),
        pl.col("o"),
        pl.col("ts") > NOON,
        pl.col("day") > dt.date(2026, 1, 3),
        (pl.col("i") + 1 == 3) & (pl.col("i") == 9),
    ],
    ids=str,
)
def test_what_is_known_of_a_polars_expression_prunes(expression: pl.Expr) -> None:
    assert not polars_may_match(expression)


@pytest.mark.parametrize(
    "expression",
    [
        pl.col("f") > 5.0,  # NaN
        pl.col("f").is_between(5.0, float("inf")),
        pl.col("i") == 10,
        pl.col("i") + 1 == 3,
        pl.col("i") == pl.col("f"),
        pl.col("n").struct.field("i") == 77,
        pl.col("s").str.to_uppercase() == "X",
        pl.col("i").is_in(pl.col("i")),
        pl.col("i").eq_missing(99),
        pl.lit(True),
    ],
    ids=str,
)
def test_what_polars_may_find_or_is_not_known_prunes_nothing(expression: pl.Expr) -> None:
    assert polars_may_match(expression)


def test_an_expression_reads_its_own_columns_alone() -> None:
    assert from_arrow.find_columns((i > 1) & (s == "f"), SCHEMA) == {"i", "s"}
    assert from_arrow.find_columns((pc.field("n", "i") == 1) & (s == "d"), SCHEMA) == {"n", "s"}
    assert from_arrow.find_columns(pc.scalar(True), SCHEMA) == set()


def test_what_is_not_known_is_neither_sure_to_match_nor_sure_not_to() -> None:
    assert may_match(Opaque(), RANGES) and not statistics_prove_match(Opaque(), RANGES)
    assert not statistics_prove_match(And((Opaque(), Opaque())), RANGES)


def test_only_a_text_decides_by_its_tree() -> None:
    """A delete drops a file group, and Spark reads alone, where the tree decides."""
    by_text, by_expression = Filter.parse("i > 3", SCHEMA), Filter.parse(i > 3, SCHEMA)
    assert by_text is not None and by_text.is_decided_by_syntax_tree
    assert (
        by_expression is not None and by_expression.tree == by_text.tree and not by_expression.is_decided_by_syntax_tree
    )


def test_an_expression_that_names_a_column_by_its_number_is_refused(tmp_path: Path) -> None:
    """It read another column where the scan read the columns in another order."""
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("a", pa.int64())]), key="id")
    table.upsert([{"id": 1, "a": 5}])
    with pytest.raises(hoodoo.PredicateError, match="by its index"):
        table.scan(where=pc.field(1) == 5)
    assert table.scan(where=pc.scalar(True)).count() == 1
    assert table.scan(columns=["a"], where=pc.scalar(True)).to_arrow().to_pylist() == [{"a": 5}]


def test_a_write_by_an_expression_changes_what_the_expression_says(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string()), ("v", pa.int64())])
    table = hoodoo.create(tmp_path / "t", schema, key="id", partition_by="day")
    table.upsert([{"id": number, "day": "ab"[number % 2], "v": number} for number in range(10)])
    table.delete(where=(pc.field("day") == "b") & pc.field("v").isin([1, 3]))
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 2, 4, 5, 6, 7, 8, 9]
