"""Every type a table may hold comes back as it went in: from base files, from logs, after compaction, and in another
engine's reader.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hudi_rows import hudi_rows

import hoodoo

UTC = dt.timezone.utc
PLACE = pa.struct([("x", pa.float64()), ("tags", pa.list_(pa.string()))])
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("bool", pa.bool_()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("wide", pa.decimal128(38, 10)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("list", pa.list_(pa.int64())),
        ("lists", pa.list_(pa.list_(pa.string()))),
        ("map", pa.map_(pa.string(), pa.int32())),
        ("place", PLACE),
    ]
)
EDGES: dict[str, list[Any]] = {
    "bool": [True, False],
    "i32": [0, -(2**31), 2**31 - 1],
    "i64": [0, -(2**63), 2**63 - 1],
    "f32": [0.0, -1.5, float("inf")],
    "f64": [-0.0, 1e308, 5e-324],
    "price": [Decimal("0.00"), Decimal("-99999999.99"), Decimal("12.50")],
    "wide": [Decimal("1234567890123456789012345678.0123456789"), Decimal("-0.0000000001")],
    "day": [dt.date(1970, 1, 1), dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "at": [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), dt.datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)],
    "text": ["", "é\u0000\U0001f600", "x" * 5000],
    "raw": [b"", b"\x00\xff"],
    "list": [[], [1, None, -3]],
    "lists": [[["a"], None, []]],
    "map": [[], [("k", None), ("", 1)]],
    "place": [{"x": None, "tags": ["a", None]}, {"x": 1.5, "tags": None}],
}


def value_rows(seed: int, count: int = 24) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {"id": f"k{i}", **{name: rng.choice([None, *values]) for name, values in EDGES.items()}} for i in range(count)
    ]


def shown(rows: list[dict[str, Any]]) -> list[str]:
    """Comparable text of rows; by way of Arrow, so that equal times look equal."""
    return sorted(map(repr, pa.Table.from_pylist(rows, schema=SCHEMA).to_pylist()))


@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_every_type_survives_bases_logs_and_compaction_here_and_in_hudi(tmp_path: Path, kind: str) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", type=kind)
    assert table.schema == SCHEMA
    first, second = value_rows(1), value_rows(2, 12)
    table.upsert(pa.Table.from_pylist(first, schema=SCHEMA))
    want = {row["id"]: row for row in first}
    for rows in ([], second):
        table.upsert(pa.Table.from_pylist(rows, schema=SCHEMA))
        want |= {row["id"]: row for row in rows}
        back = table.scan().to_arrow()
        assert back.schema == SCHEMA
        assert shown(back.to_pylist()) == shown(list(want.values()))
        assert shown(hudi_rows(table.path)) == shown(list(want.values()))
    table.compact()
    assert shown(table.scan().to_arrow().to_pylist()) == shown(list(want.values())) == shown(hudi_rows(table.path))


def test_times_without_a_zone_and_times_of_day_are_kept(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("local", pa.timestamp("us")), ("clock", pa.time64("us"))])
    table = hoodoo.create(tmp_path / "t", schema, key="id")
    rows = [
        {"id": 1, "local": dt.datetime(2026, 3, 29, 2, 30), "clock": dt.time(23, 59, 59, 999999)},
        {"id": 2, "local": None, "clock": None},
    ]
    table.upsert(pa.Table.from_pylist(rows, schema=schema))
    table.upsert(pa.Table.from_pylist(rows[:1], schema=schema))
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == rows


def test_narrow_types_become_what_the_format_holds(tmp_path: Path) -> None:
    kinds = [
        pa.int8(),
        pa.uint16(),
        pa.uint32(),
        pa.large_string(),
        pa.timestamp("ms", "Europe/Berlin"),
        pa.dictionary(pa.int8(), pa.string()),
    ]
    schema = pa.schema(list(zip(["id", "u", "w", "s", "t", "d"], kinds, strict=True)))
    table = hoodoo.create(tmp_path / "t", schema, key="id")
    assert [str(field.type) for field in table.schema] == [
        "int32",
        "int32",
        "int64",
        "string",
        "timestamp[us, tz=UTC]",
        "string",
    ]
    moment = dt.datetime(2026, 1, 1, 12, tzinfo=UTC)
    batch = pa.table({"id": [1], "u": [65535], "w": [2**32 - 1], "s": ["x"], "t": [moment], "d": ["y"]}, schema=schema)
    table.upsert(batch)
    assert table.scan().to_arrow().to_pylist() == [
        {"id": 1, "u": 65535, "w": 2**32 - 1, "s": "x", "t": moment, "d": "y"}
    ]


def test_nan_is_a_value_and_compares_false_except_as_unequal(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.float64())])
    table = hoodoo.create(tmp_path / "t", schema, key="id")
    table.upsert(pa.table({"id": [1, 2, 3], "v": [float("nan"), 1.0, None]}, schema=schema))
    assert math.isnan(table.scan(where="id = 1").to_arrow()["v"][0].as_py())
    assert table.scan(where="v >= 0").to_arrow()["id"].to_pylist() == [2]
    assert table.scan(where="v != 1").to_arrow()["id"].to_pylist() == [1]


@pytest.mark.parametrize("form", ["table", "batch", "reader", "pandas", "polars", "dicts"])
def test_rows_may_come_in_any_form(tmp_path: Path, form: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    rows = pa.table(
        {"id": [1, 2], "name": ["a", None], "at": [dt.datetime(2026, 1, 1, tzinfo=UTC), None]}, schema=schema
    )
    given = {
        "table": lambda: rows,
        "batch": lambda: rows.to_batches()[0],
        "reader": lambda: rows.to_reader(),
        "dicts": lambda: rows.to_pylist(),
        "pandas": lambda: pd.DataFrame(
            {"id": [1, 2], "name": ["a", None], "at": pd.to_datetime(["2026-01-01", None], utc=True)}
        ),
        "polars": lambda: pl.DataFrame(rows),
    }[form]()
    table = hoodoo.create(tmp_path / "t", schema, key="id")
    assert table.upsert(given).inserted == 2
    assert table.scan().to_arrow().sort_by("id").to_pylist() == rows.to_pylist()


def test_rows_come_out_in_every_form(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    table = hoodoo.create(tmp_path / "t", schema, key="id")
    table.upsert(pa.table({"id": [1, 2, 3], "name": ["a", "b", None]}, schema=schema))
    scan = table.scan(where="id < 3")
    table.upsert(pa.table({"id": [9], "name": ["later"]}, schema=schema))
    want = [(1, "a"), (2, "b")]
    assert [tuple(row.values()) for row in scan.to_arrow().sort_by("id").to_pylist()] == want
    assert sorted(scan.to_pandas().itertuples(index=False, name=None)) == want
    assert sorted(scan.to_polars().rows()) == want
    assert sorted(scan.to_duckdb().fetchall()) == want
    assert sorted((row["id"], row["name"]) for batch in scan.batches() for row in batch.to_pylist()) == want
    assert scan.count() == 2


class _Celsius(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(pa.int64(), "test.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, data: bytes) -> pa.ExtensionType:
        return cls()


def test_an_extension_type_that_was_defined_in_python_comes_in_as_its_values(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", "id bigint, n bigint, s struct<n: bigint>", key="id")
    values = pa.ExtensionArray.from_storage(_Celsius(), pa.array([7, None]))
    rows = pa.table({"id": [1, 2], "n": values, "s": pa.StructArray.from_arrays([values], ["n"])})
    table.upsert(rows)
    table.merge(rows).when_matched_update_all(where="source.n = 7").execute()
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "n": 7, "s": {"n": 7}},
        {"id": 2, "n": None, "s": {"n": None}},
    ]
