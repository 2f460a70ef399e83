"""DuckDB, polars and pyarrow answer a lazy read as they answer the same rows in memory."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tiers import sized

import hoodoo

MIXED = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("ts", pa.int64()),
        ("i", pa.int32()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("d", pa.decimal128(10, 2)),
        ("s", pa.string()),
        ("o", pa.bool_()),
        ("day", pa.date32()),
        ("zt", pa.timestamp("us", "UTC")),
        ("lt", pa.timestamp("us")),
    ]
)
_AT = dt.datetime(2026, 1, 1, 12)
POOL: dict[str, list[Any]] = {
    "part": ["p", "q", "r"],
    "i": [-1, 0, 1, 7],
    "f": [-1.5, 0.0, 2.5, float("inf")],
    "g": [-1.5, 0.0, 2.5],
    "d": [Decimal("-1.50"), Decimal("0.00"), Decimal("12.25")],
    "s": ["", "a", "ab", "b", "é"],
    "day": [dt.date(2026, 1, day) for day in (1, 2, 3)],
    "zt": [(_AT + dt.timedelta(microseconds=n)).replace(tzinfo=dt.timezone.utc) for n in (0, 1, 10**9)],
    "lt": [_AT + dt.timedelta(microseconds=n) for n in (0, 1, 10**9)],
}


def mixed(path: Path, rng: random.Random) -> hoodoo.Table:
    """A table whose file groups hold few values each, so that much is pruned; nulls and NaN among them."""
    table = hoodoo.create(path, MIXED, key="id", partition_by="part", order_by="ts", compact_after_logs=None)

    def row(number: int, ts: int) -> dict[str, Any]:
        part = POOL["part"][number % 3]
        own = random.Random(part)
        few = {name: own.sample(values, 2) for name, values in POOL.items()}
        few["f"] = [*few["f"], float("nan")] if part != "p" else few["f"]
        few["g"] = [float("nan")] if part == "q" else few["g"]
        few["o"] = [True] if part == "p" else [True, False]
        cells = {name: None if rng.random() < 0.15 else rng.choice(few[name]) for name in MIXED.names[3:]}
        return {"id": number, "part": part, "ts": ts, **cells}

    table.upsert(pa.Table.from_pylist([row(number, 1) for number in range(30)], MIXED))
    for ts in (2, 3):
        table.upsert(pa.Table.from_pylist([row(number, ts) for number in rng.sample(range(30), 5)], MIXED))
    return table


def literal(value: Any) -> str:
    match value:
        case bool() | int():
            return str(value)
        case float():
            return f"'{value}'::DOUBLE"
        case Decimal():
            return str(value)
        case dt.datetime():
            return f"TIMESTAMP{'TZ' if value.tzinfo else ''} '{value.isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE '{value}'"
    return f"'{value}'"


def leaf(rng: random.Random) -> tuple[str, pc.Expression, pl.Expr]:
    """One condition, in the words of DuckDB, pyarrow and polars."""
    name = rng.choice([*POOL, "o"])
    field, column = pc.field(name), pl.col(name)
    kind = MIXED.field(name).type
    if name == "o":
        return name, field, column
    if rng.random() < 0.15:
        return f"{name} IS NULL", field.is_null(), column.is_null()
    values = [*POOL[name], float("nan")] if name in ("f", "g") else POOL[name]
    if rng.random() < 0.3:
        some = rng.sample(values, rng.choice([1, 2]))
        text = ", ".join(map(literal, some))
        typed = pl.Series(some, dtype=pl.Series(pa.array([], kind)).dtype)
        return f"{name} IN ({text})", field.isin(pa.array(some, kind)), column.is_in(typed.implode())
    value, op = rng.choice(values), rng.choice(["=", "!=", "<", "<=", ">", ">="])
    method = {"=": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}[op]
    cell = pl.lit(pl.Series([value], dtype=pl.Series(pa.array([], kind)).dtype).first())
    return (
        f"{name} {op} {literal(value)}",
        getattr(field, method)(pa.scalar(value, kind)),
        getattr(column, method)(cell if name != "d" else pl.lit(value)),
    )


def condition(rng: random.Random, depth: int = 2) -> tuple[str, pc.Expression, pl.Expr]:
    if not depth or rng.random() < 0.3:
        return leaf(rng)
    left, right = condition(rng, depth - 1), condition(rng, depth - 1)
    match rng.choice(["and", "and", "or", "not"]):
        case "and":
            return f"({left[0]} AND {right[0]})", left[1] & right[1], left[2] & right[2]
        case "or":
            return f"({left[0]} OR {right[0]})", left[1] | right[1], left[2] | right[2]
    return f"(NOT {left[0]})", ~left[1], ~left[2]


@pytest.mark.both
@pytest.mark.parametrize("seed", range(sized(2, 60)))
def test_each_engine_answers_as_over_the_same_rows_in_memory(tmp_path: Path, seed: int) -> None:
    """NaN is the greatest number to DuckDB and polars, and compares with none in Arrow: each keeps its own rules."""
    rng = random.Random(seed)
    table = mixed(tmp_path / "t", rng)
    scan, connection = table.scan(), duckdb.connect()
    rows, dataset, lazy = scan.to_arrow(), scan.to_dataset(), scan.to_polars(lazy=True)
    frame = scan.to_polars()
    assert isinstance(lazy, pl.LazyFrame) and isinstance(frame, pl.DataFrame)
    connection.register("lazy", dataset)
    connection.register("eager", rows)
    for _ in range(25):
        text, expression, polars = condition(rng)
        want = sorted(rows.filter(expression)["id"].to_pylist())
        assert sorted(dataset.to_table(columns=["id"], filter=expression)["id"].to_pylist()) == want, expression
        assert sorted(table.scan(where=expression).to_arrow()["id"].to_pylist()) == want, expression
        assert dataset.count_rows(filter=expression) == len(want)
        pruned = dataset.get_fragments(filter=expression)
        assert sum(one.to_table(filter=expression).num_rows for one in pruned) == len(want)
        found, expected = (
            connection.sql(f"SELECT id FROM {name} WHERE {text} ORDER BY id").fetchall() for name in ("lazy", "eager")
        )
        assert found == expected, text
        found = sorted(lazy.filter(polars).select("id").collect()["id"].to_list())
        assert found == sorted(frame.filter(polars)["id"].to_list()), polars


def test_nan_is_the_greatest_number_to_duckdb_and_polars_and_pruned_by_neither(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("f", pa.float64())])
    table = hoodoo.create(tmp_path / "t", schema, key="id")
    table.upsert([{"id": 1, "f": float("nan")}, {"id": 2, "f": 1.0}])
    frame = table.scan().to_polars(lazy=True)
    assert isinstance(frame, pl.LazyFrame)
    assert table.scan().to_duckdb(duckdb.connect()).filter("f > 5").project("id").fetchall() == [(1,)]
    assert frame.filter(pl.col("f") > 5).collect()["id"].to_list() == [1]
    assert table.scan(where=pc.field("f") > 5).count() == table.scan(where="f > 5").count() == 0


def test_an_empty_table_has_its_columns_in_every_engine(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", MIXED, key="id")
    frame = table.scan().to_polars(lazy=True)
    assert isinstance(frame, pl.LazyFrame)
    assert table.scan().to_duckdb(duckdb.connect()).columns == frame.collect().columns == MIXED.names
    assert table.scan().to_dataset().to_table().schema.names == MIXED.names
    assert hoodoo.sql("SELECT count(*) FROM t WHERE i > 3", t=table).fetchall() == [(0,)]
