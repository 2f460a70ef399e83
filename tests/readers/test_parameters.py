"""`params` of a condition: values are bound as typed literals, never parsed, in both parsers and in every call."""

from __future__ import annotations

import datetime as dt
import enum
import pickle
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import hoodoo
from hoodoo.readers.predicate import duckdb_engine
from hoodoo.readers.predicate.checks import parse_checks
from hoodoo.readers.predicate.filter import Filter

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("fare", pa.float64()),
        ("half", pa.float32()),
        ("cost", pa.decimal128(10, 2)),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("seen", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("clock", pa.time64("us")),
        ("paid", pa.bool_()),
    ]
)
UTC = dt.timezone.utc
FULL: dict[str, Any] = {
    "id": 3,
    "city": "rome",
    "fare": 2.0**-44,  # its shortest digits are not its nearest ones
    "half": 0.1,
    "cost": Decimal("1.50"),
    "raw": b"\0'x",
    "day": dt.date(2026, 1, 2),
    "seen": dt.datetime(2026, 1, 2, 3, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=53, seconds=28))),
    "local": dt.datetime(2026, 1, 2, 3, 4, 5, 6),
    "clock": dt.time(1, 2, 3, 4),
    "paid": True,
}
ROWS = pa.Table.from_pylist([FULL, {"id": 4}], SCHEMA)
HOSTILE = [
    "l'aquila",
    "' OR 1=1 --",
    "'; DROP TABLE x; --",
    '"city"',
    "`city`",
    "\\",
    "\\'",
    "/* $city */",
    "-- $city",
    "$city",
    "$$",
    "$tag$ x $tag$",
    "%_",
    "a\0b",
    "\0",
    "",
    "größe \U0001f600 \u202e",
    "line\nbreak",
    "e'\\''",
    "{{ x }}",
]


def found(where: str, params: dict[str, Any], rows: pa.Table = ROWS) -> list[int]:
    """The ids of the rows that match, by a filter that went to another process."""
    condition: Filter = pickle.loads(pickle.dumps(Filter.parse(where, rows.schema, params=params)))
    assert condition.matching(rows)["id"].to_pylist() == rows["id"].take(condition.positions(rows)).to_pylist()
    return condition.matching(rows)["id"].to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("column", FULL)
def test_a_value_of_each_type_finds_its_row_in_both_parsers(column: str) -> None:
    value = FULL[column]
    for where in (f"{column} = $v", f"({column} = $v OR id + 0 = 99)"):
        assert found(where, {"v": value}) == [3]
    for where in (f"{column} IN $v", f"{column} IN ($v)", f"({column} IN $v OR id + 0 = 99)"):
        assert found(where, {"v": [value]}) == [3]
        assert found(where, {"v": ()}) == []
    assert found(f"{column} NOT IN $v", {"v": set()}) == [3, 4]
    assert found(f"coalesce({column}, {column}) NOT IN $v", {"v": []}) == [3, 4]
    if column != "half":  # DuckDB widens the result of a function to the type of the value
        assert found(f"coalesce({column}, {column}) IN $v", {"v": (value, value)}) == [3]


@pytest.mark.parametrize("text", HOSTILE)
def test_the_text_of_a_value_is_never_parsed(text: str) -> None:
    rows = pa.table({"id": [1, 2, 3], "city": [text, text + "x", None]})
    for where in ("city = $city", "city IN $many", "city || '' = $city", "city || '' IN $many"):
        params: dict[str, Any] = {"many": [text, "$other"]} if "many" in where else {"city": text}
        assert found(where, params, rows) == [1]
    assert found("city = $city AND id + 0 = $id", {"city": text, "id": 1}, rows) == [1]
    assert found("city = $city OR city = '$city'", {"city": text}, rows) == [1]
    assert found("raw = $raw", {"raw": text.encode()}, pa.table({"id": [1], "raw": [text.encode()]})) == [1]
    with pytest.raises(hoodoo.PredicateError, match="is not a number"):
        Filter.parse("id = $v", SCHEMA, params={"v": text})
    with pytest.raises(hoodoo.ExpressionError, match="Could not convert string"):
        found("id + 0 = $v", {"v": text})


def test_a_none_is_null() -> None:
    for where in ("city = $v", "city <> $v", "NOT city = $v", "city || '' = $v", "city LIKE $v"):
        assert found(where, {"v": None}) == []
    assert found("city IN $v", {"v": ["rome", None]}) == [3]
    assert found("city NOT IN $v", {"v": ["oslo", None]}) == []
    assert found("city IS NOT DISTINCT FROM $v", {"v": None}) == [4]


def test_subclasses_have_the_value_of_their_class() -> None:
    class City(str, enum.Enum):  # noqa: UP042  its own text differs from its value
        ROME = "rome"

        def __str__(self) -> str:
            return "' OR TRUE --"

    assert found("city = $v", {"v": City.ROME}) == [3]
    assert found("city || '' = $v", {"v": City.ROME}) == [3]
    assert found("seen = $v", {"v": pd.Timestamp(FULL["seen"])}) == [3]
    assert found("city = $v", {"v": uuid.UUID(int=5)}, pa.table({"id": [1], "city": [str(uuid.UUID(int=5))]})) == [1]
    assert found("fare < $v AND half < $v", {"v": float("inf")}) == [3]


def test_names_stand_outside_quotes_and_comments_and_keep_their_case() -> None:
    for where in (
        "id = $City AND id < $city",
        "id + 0 = $City AND id < $city",
        "$City = id AND id<$city -- $no",
        "id = $City AND id < $city /* $no */",
        "id IN ($City) AND id BETWEEN $City AND $city AND coalesce(city, '$no') <> '$no'",
    ):
        assert found(where, {"city": 9, "City": 3}) == [3]
    assert found("id = $größe AND id = $from AND id = $e", {"größe": 3, "from": 3, "e": 3}) == [3]
    assert found("city = '$city'", {}) == []
    assert found("city LIKE $p AND NOT city LIKE $q", {"p": "r_m%", "q": r"r\_me"}) == [3]


@pytest.mark.parametrize(
    ("where", "params", "error", "match"),
    [
        ("id = $v", None, hoodoo.PredicateError, r"\$v has no value: expected params=\{'v': ...\}, got no parameters"),
        ("id = $v", {}, hoodoo.PredicateError, "has no value"),
        ("id + 0 = $v", {"w": 1}, hoodoo.PredicateError, r"has no value: .* got \$w"),
        ("id = $v", {"v": 1, "w": 2}, hoodoo.OptionError, r"contains 'w', which .* expected \$v"),
        ("id = '$v'", {"v": 1}, hoodoo.OptionError, "expected no parameters"),
        ('id = "$v"', {"v": 1}, hoodoo.OptionError, "outside quotes"),
        (None, {"v": 1}, hoodoo.OptionError, "requires a condition as a string"),
        (pa.compute.field("id") == 1, {"v": 1}, hoodoo.OptionError, "requires a condition as a string"),
        ("id = $v", [1], hoodoo.OptionError, "expected a dict"),
        ("id = $v", {"$v": 1}, hoodoo.OptionError, "expected a Python identifier"),
        ("id = $v", {1: 1}, hoodoo.OptionError, "expected a Python identifier"),
        ("id = $v", {"v": object()}, hoodoo.OptionError, "expected a str, int"),
        ("id IN $v", {"v": [[1]]}, hoodoo.OptionError, "expected a str, int"),
        ("fare = $v", {"v": float("nan")}, hoodoo.OptionError, "NaN is never true"),
        ("cost = $v", {"v": Decimal("sNaN")}, hoodoo.OptionError, "a finite number"),
        ("city = $v", {"v": "\ud800"}, hoodoo.OptionError, "UTF-8"),
        ("seen = $v", {"v": pd.NaT}, hoodoo.OptionError, "in microseconds"),
        ("seen = $v", {"v": pd.Timestamp("2026-01-01 00:00:00.000000001")}, hoodoo.OptionError, "in microseconds"),
        ("seen = $v", {"v": dt.datetime.min.replace(tzinfo=FULL["seen"].tzinfo)}, hoodoo.OptionError, "years 1 to"),
        ("clock = $v", {"v": dt.time(1, tzinfo=UTC)}, hoodoo.OptionError, "without a time zone"),
        ("id = $v", {"v": [1]}, hoodoo.PredicateError, "a list"),
        ("id + 0 = $v", {"v": [1]}, hoodoo.PredicateError, "a list, which only IN accepts"),
        ("city = $v", {"v": 5}, hoodoo.PredicateError, r"compared with \$v = 5, which is not a string\."),
        ("raw = $v", {"v": "a"}, hoodoo.PredicateError, r"which is not binary\."),
        ("day = $v", {"v": dt.datetime(2026, 1, 2)}, hoodoo.PredicateError, "is not a date"),
        ("local = $v", {"v": FULL["seen"]}, hoodoo.PredicateError, "time zone"),
        ("nope = $v", {"v": 5}, hoodoo.PredicateError, "no column 'nope'"),
    ],
)
def test_what_does_not_fit_is_an_error(where: Any, params: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        Filter.parse(where, SCHEMA, params=params)


def test_without_duckdb_all_types_are_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duckdb_engine, "available", lambda: False)
    for column, value in FULL.items():
        assert found(f"{column} = $v AND {column} IN $w", {"v": value, "w": {value}}) == [3]
    for where, value, match in (
        ("city = $v", None, "comparison with NULL is never true; write IS NULL"),
        ("city IN $v", ["rome", None], "comparison with NULL is never true; write IS NULL"),
        ("city = $v", ["rome"], r"\$v is a list; write city IN \$v"),
        ("id = $v", 1.5, r"compared with \$v = 1.5, which is not an integer\."),
        ("$v = 5", 5, r"Expected a column, got \$v"),
        ("$v", True, r"Expected a column, got \$v"),
        ("id + 0 = $v", 5, "Install DuckDB"),
    ):
        with pytest.raises(hoodoo.PredicateError, match=match):
            Filter.parse(where, SCHEMA, params={"v": value})


def test_checks_and_expressions_have_no_parameters(tmp_path: Path) -> None:
    with pytest.raises(hoodoo.PredicateError, match="is a parameter, which has no value here"):
        parse_checks({"low": "fare > $low"}, SCHEMA)
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    table.insert(ROWS)
    with pytest.raises(hoodoo.ExpressionError, match="a parameter without a value"):
        table.update({"city": "$v"})
    with pytest.raises(hoodoo.ExpressionError, match="a parameter without a value"):
        table.merge(ROWS).when_matched_update_all(where="source.id = $v").execute()


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    made = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city")
    for number, city in enumerate(("rome", "l'aquila", "oslo")):
        made.insert([{"id": number, "city": city, "fare": float(number)}], missing="null")
    return made


HERE = {"where": "city = $city AND fare >= $low", "params": {"city": "l'aquila", "low": 0}}
NOT_HERE = {"where": "city = $city AND fare >= $low", "params": {"city": "x' OR '1'='1", "low": 0}}
COUNTS: dict[str, Callable[..., int]] = {
    "scan": lambda table, **more: table.scan(**more).count(),
    "count": lambda table, **more: table.count(**more),
    "incremental": lambda table, **more: table.incremental("earliest", **more).count(),
    "incremental deletes": lambda table, **more: table.incremental(1, deletes=True, **more).count(),
    "changes": lambda table, **more: table.changes("earliest", **more).count(),
    "diff": lambda table, **more: table.changes(1, **more, versions="diff").count(),
    "follow": lambda table, **more: sum(one.count() for one in table.follow("earliest", timeout_seconds=0, **more)),
    "follow incremental": lambda table, **more: sum(
        one.count() for one in table.follow("earliest", mode="incremental", timeout_seconds=0, **more)
    ),
    "pin": lambda table, **more: table.pin().scan(**more).count(),
    "update": lambda table, **more: table.update({"fare": 9.0}, **more).updated,
    "delete": lambda table, **more: table.delete(**more).deleted,
}


@pytest.mark.parametrize("call", COUNTS)
def test_every_call_with_a_condition_takes_parameters(table: hoodoo.Table, call: str) -> None:
    before = table.cursor
    assert COUNTS[call](table, **NOT_HERE) == 0
    for wrong in ({"where": "fare > $x"}, {"where": "fare > $x", "params": {"y": 1}}, {"params": {"x": 1}}):
        with pytest.raises((hoodoo.OptionError, hoodoo.PredicateError)):
            COUNTS[call](table, **wrong)
    with pytest.raises((hoodoo.OptionError, hoodoo.PredicateError)):
        COUNTS[call](table, where="fare > 1", params={"x": 1})
    assert table.cursor == before
    assert COUNTS[call](table, **HERE) == 1


def test_expressions_of_an_update_use_the_parameters(table: hoodoo.Table) -> None:
    done = table.update({"fare": "fare * $factor + 1"}, where="id = $id", params={"factor": 2.5, "id": 2})
    assert (done.updated, table.get(2)["fare"].to_pylist()) == (1, [6.0])
    assert table.update({"fare": "$fare"}, params={"fare": 7}).updated == 3
    assert table.count("fare = 7") == 3
    before = table.cursor
    for wrong in ({"params": {}}, {"params": {"factor": 1, "more": 2}}, {"params": {"factor": [1, 2]}}, {}):
        with pytest.raises((hoodoo.OptionError, hoodoo.PredicateError, hoodoo.ExpressionError), match="factor|more"):
            table.update({"fare": "fare * $factor"}, **wrong)
    assert table.cursor == before


def test_clauses_of_a_merge_use_the_parameters(table: hoodoo.Table) -> None:
    text = "x' OR '1'='1"
    source = [{"id": number, "city": "rome", "fare": float(number)} for number in (0, 5)]
    for params, fares in (({"bonus": 10.0, "city": text}, {}), ({"bonus": 10.0, "city": "rome"}, {0: 10.0, 5: 15.0})):
        merge = table.merge(source).when_matched_update({"fare": "source.fare + $bonus"}, where="source.city = $city")
        merge = merge.when_not_matched_insert(
            {"id": "source.id", "city": "source.city", "fare": "source.fare + $bonus"}, where="source.city IN ($city)"
        )
        merge.execute(params=params)
        found = {row["id"]: row["fare"] for row in table.scan(where="fare >= 10").to_arrow().to_pylist()}
        assert found == fares
    with pytest.raises(hoodoo.PredicateError, match="city"):
        merge.execute(params={"bonus": 1.0})
    with pytest.raises(hoodoo.OptionError, match="'more'"):
        merge.execute(params={"bonus": 1.0, "city": "rome", "more": 1})


def test_a_delete_by_keys_takes_no_parameters(table: hoodoo.Table) -> None:
    with pytest.raises(hoodoo.OptionError, match="params requires a condition"):
        table.delete([{"id": 1, "city": "l'aquila"}], params={"x": 1})
    assert table.count() == 3


def test_parameters_skip_partitions_and_files_as_literals_do(table: hoodoo.Table) -> None:
    def tasks(where: str, **params: Any) -> int:
        return len(table.scan(where=where, params=params).tasks())

    assert tasks("city = $city", city="l'aquila") == 1
    assert tasks("city IN $cities AND id + 0 >= $low", cities=["rome", "oslo"], low=0) == 2
    assert tasks("city IN $cities", cities=[]) == 0
    assert tasks("lower(city) = $text AND city = $city", text="rome", city="rome") == 1
    table.maintenance.cluster(sort_by=["fare"])
    assert tasks("fare > $low", low=1.5) == 1
    assert tasks("fare > $low AND id + 0 >= $least", low=Decimal("1.5"), least=0) == 1
    assert tasks("fare > $low", low=99) == 0


def test_the_values_are_those_of_the_call(table: hoodoo.Table) -> None:
    cities = ["rome"]
    params = {"cities": cities}
    scan, follow = (
        table.scan(where="city IN $cities", params=params),
        table.follow("earliest", where="city IN $cities", params=params, timeout_seconds=0),
    )
    cities.append("oslo")
    params["cities"] = []
    assert scan.count() == next(follow).count() == 1


def test_parameters_are_no_column_names(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "Größe": [5, 6]})
    made = hoodoo.create(tmp_path / "t", rows, key="id", rename="snake")
    made.insert(rows)
    assert made.count("Größe = $Größe", params={"Größe": 5}) == 1
    assert made.count("Größe + 0 = $Größe", params={"Größe": 5}) == 1
