"""`where` may be any boolean SQL expression over one row, in every call that reads rows; its plain part prunes."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("fare", pa.float64()),
        ("spot", pa.struct([("x", pa.int32())])),
        ("seen", pa.timestamp("us", "UTC")),
    ]
)
START = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)


def row(number: int, **more: object) -> dict[str, Any]:
    return {
        "id": number,
        "city": ("Rome", "oslo")[number % 2],
        "fare": float("nan") if number == 7 else number * 1.5,
        "spot": {"x": number % 3} if number % 4 else None,
        "seen": START + dt.timedelta(days=number),
    } | more


@pytest.fixture(params=["merge_on_read", "copy_on_write"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> hoodoo.Table:
    """Twenty rows, some of which came later: into logs, or by a rewrite."""
    made = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city", type=request.param)
    made.insert(pa.Table.from_pylist([row(number) for number in range(20)], SCHEMA))
    made.upsert(pa.Table.from_pylist([row(number, fare=100.0) for number in (2, 3)], SCHEMA))
    return made


def day(one: dict[str, Any]) -> int:
    return int(one["seen"].day)


CONDITIONS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "lower(city) = 'rome'": lambda one: one["city"] == "Rome",
    "fare > id * 2": lambda one: one["fare"] > one["id"] * 2 or one["id"] == 7,  # DuckDB's NaN is above all numbers
    "city = 'oslo' AND day(seen) % 2 = 0": lambda one: one["city"] == "oslo" and day(one) % 2 == 0,
    "spot.x = 1 OR id = 0": lambda one: bool(one["spot"] and one["spot"]["x"] == 1) or one["id"] == 0,
    "seen < now() AND id + 0 < 5": lambda one: one["id"] < 5,
    "NULL": lambda one: False,
    "fare < 10 AND id + 0 > 0": lambda one: one["fare"] < 10 and one["id"] > 0,  # ours decides: NaN is not below 10
}


def ids(rows: pa.Table) -> list[int]:
    return sorted(rows["id"].to_pylist())


@pytest.mark.parametrize("where", CONDITIONS)
def test_every_call_that_reads_rows_takes_any_condition(table: hoodoo.Table, where: str) -> None:
    whole = table.scan().to_arrow().to_pylist()
    wanted = sorted(one["id"] for one in whole if CONDITIONS[where](one))
    assert ids(table.scan(where=where).to_arrow()) == wanted
    assert table.scan(columns=["id"], where=where).count() == len(wanted)
    assert ids(table.scan(where=where, meta=True).to_arrow()) == wanted
    assert ids(table.incremental("earliest", where=where).to_arrow()) == wanted
    assert sorted(one["id"] for one in table.changes("earliest", where=where).to_arrow()["after"].to_pylist()) == wanted
    with table.pin() as pinned:
        assert ids(pinned.scan(where=where).to_arrow()) == wanted


def test_a_row_that_ceases_to_match_is_a_delete(table: hoodoo.Table) -> None:
    since = table.cursor
    table.upsert(pa.Table.from_pylist([row(2, fare=1.0), row(4, fare=101.0)], SCHEMA))
    found = table.changes(since, where="fare * 2 > 150").to_arrow().to_pylist()
    assert sorted((one["op"], (one["after"] or one["before"])["id"]) for one in found) == [("d", 2), ("i", 4)]


def test_plain_comparisons_joined_by_and_prune(table: hoodoo.Table) -> None:
    assert len(table.scan().tasks()) == 2
    assert len(table.scan(where="city = 'oslo' AND length(city) = 4").tasks()) == 1
    assert len(table.scan(where="id > 1000 AND id % 2 = 0").tasks()) == 0
    assert len(table.scan(where="city = 'oslo' OR length(city) = 4").tasks()) == 2


def test_a_condition_that_cannot_be_evaluated_on_a_row_says_so(table: hoodoo.Table) -> None:
    with pytest.raises(hoodoo.ExpressionError, match="Cannot evaluate where"):
        table.scan(where="CAST(city AS INTEGER) = 1").to_arrow()


@pytest.mark.parametrize(
    ("where", "match"),
    [
        ("fare + 1", "must be a condition"),
        ("fare > 1 +", "DuckDB cannot parse the condition either: .*syntax error"),
        ("lower(city = 'x'", "DuckDB cannot parse the condition either"),
        ("random() < 2", "returns a different value in each call"),
        ("m + 1 > 2", "no column 'm'"),
    ],
)
def test_what_is_no_condition_over_one_row_is_refused(table: hoodoo.Table, where: str, match: str) -> None:
    with pytest.raises(hoodoo.PredicateError, match=match):
        table.scan(where=where)


def test_without_duckdb_the_error_says_what_to_install(table: hoodoo.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert table.scan(where="id = 1").count() == 1
    with pytest.raises(hoodoo.PredicateError, match=r"hoodoo\[sql\]"):
        table.scan(where="lower(city) = 'rome'")


@pytest.mark.parametrize(("text", "later"), [("0001-01-01T00:00:00+14:00", 1), ("9999-12-31T23:59:59-00:01", 0)])
def test_a_time_that_pythons_calendar_does_not_have_in_utc(tmp_path: Path, text: str, later: int) -> None:
    """It was a bare OverflowError. DuckDB knows more years; a check takes those of Python."""
    schema = pa.schema([("id", pa.int64()), ("seen", pa.timestamp("us", "UTC"))])
    table = hoodoo.create(tmp_path / "t", schema, key="id")
    table.insert([{"id": 1, "seen": START}])
    assert table.scan(where=f"seen >= '{text}'").count() == later
    with pytest.raises(hoodoo.PredicateError, match="years 1 to 9999"):
        table.set_checks({"late": f"seen >= '{text}'"})
