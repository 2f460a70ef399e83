"""`where` against DuckDB, against a slow evaluator with SQL's three-valued logic, and statistics that must never prune
a matching row.
"""

from __future__ import annotations

import datetime as dt
import math
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoodoo.errors import PredicateError
from hoodoo.readers.predicate import text as predicate_text
from hoodoo.readers.predicate import tree as P

UTC = dt.timezone.utc
SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("d", pa.decimal128(10, 2)),
        ("s", pa.string()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("lt", pa.timestamp("us")),
        ("o", pa.bool_()),
        ("b", pa.binary()),
        ("t", pa.time64("us")),
    ]
)
TEXTS = ["", "a", "ab", "abc", "b", "é", "a%b", "a_b", "a\\b", "it's", "a\nb", "\U0001f600", "\uffff"]
DAYS = [dt.date(2024, 1, n) for n in (1, 2, 3)]
TIMES = [dt.datetime(2024, 1, 1, 10, 0, 0, n) for n in (0, 1, 999_999)]
POOL: dict[str, list[Any]] = {
    "i": [-2, -1, 0, 1, 2, 2**31 - 1],
    "l": [-(2**63), -1, 0, 1, 2**53 + 1],
    "f": [-1.5, -0.0, 0.0, 0.5, 1e300, math.inf, -math.inf],
    "g": [-1.5, 0.0, 0.5, 2.0, math.inf],
    "d": [Decimal(t) for t in ("-1.50", "0.00", "0.05", "99999999.99")],
    "s": TEXTS,
    "day": DAYS,
    "ts": [t.replace(tzinfo=UTC) for t in TIMES],
    "lt": TIMES,
    "o": [False, True],
    "b": [b"", b"\x00", b"a", b"\xff"],
    "t": [dt.time(9, 30), dt.time(10, 0, 0, 1)],
}
PATTERNS = ["%", "a%", "%b", "a_b", "_", "", "abc", r"a\%b", r"a\_%", r"a\\b", "%a%b%", "é%", "it's"]

Row = dict[str, Any]
Truth = bool | None
Asked = tuple[str, Callable[[Row], Truth]]
"""`where` text and what it says of a row, worked out without hoodoo."""


def sql(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, dt.datetime):
        return f"{'TIMESTAMPTZ' if value.tzinfo else 'TIMESTAMP'} '{value.isoformat(sep=' ')}'"
    if isinstance(value, dt.date):
        return f"DATE '{value}'"
    if isinstance(value, dt.time):
        return f"TIME '{value}'"
    return format(value, "f") if isinstance(value, Decimal) else repr(value)


def compare(op: str, left: Any, right: Any) -> Truth:
    if left is None or right is None:
        return None
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    return {
        "=": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[op]


def negate(truth: Truth) -> Truth:
    return None if truth is None else not truth


def both(left: Truth, right: Truth) -> Truth:
    if left is False or right is False:
        return False
    return None if None in (left, right) else True


def either(left: Truth, right: Truth) -> Truth:
    return negate(both(negate(left), negate(right)))


def any_of(truths: list[Truth]) -> Truth:
    return True if True in truths else None if None in truths else False


def like(value: str | None, pattern: str) -> Truth:
    if value is None:
        return None
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    regex = "".join(".*" if p == "%" else "." if p == "_" else re.escape(p[-1]) for p in parts)
    return re.fullmatch(regex, value, re.DOTALL) is not None


@st.composite
def leaves(draw: st.DrawFn) -> Asked:
    column = draw(st.sampled_from(list(POOL)))
    finite = [v for v in POOL[column] if not (isinstance(v, float) and math.isinf(v))]
    form = draw(
        st.sampled_from(
            ["compare", "compare", "in", "not in", "between", "not between", "null", "not null", "like", "not like"]
        )
    )
    low, high = draw(st.sampled_from(finite)), draw(st.sampled_from(finite))
    op = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
    values = draw(st.lists(st.sampled_from(finite), min_size=1, max_size=3))
    pattern = draw(st.sampled_from(PATTERNS))
    if form == "compare":
        if draw(st.booleans()):
            return f"{column} {op} {sql(low)}", lambda row: compare(op, row[column], low)
        return f"{sql(low)} {op} {column}", lambda row: compare(op, low, row[column])
    if form.endswith("in"):
        found = lambda row: any_of([compare("=", row[column], v) for v in values])  # noqa: E731  one of several short forms
        text = f"{column} {form.upper()} ({', '.join(map(sql, values))})"
    elif form.endswith("between"):
        found = lambda row: both(compare(">=", row[column], low), compare("<=", row[column], high))  # noqa: E731
        text = f"{column} {form.upper()} {sql(low)} AND {sql(high)}"
    elif form.endswith("null"):
        found = lambda row: row[column] is None  # noqa: E731
        text = f"{column} IS {form.upper()}"
    else:
        found = lambda row: like(row["s"], pattern)  # noqa: E731
        text = f"s {form.upper()} {sql(pattern)}"
    return text, (lambda row: negate(found(row))) if form.startswith("not") else found


def joined(children: st.SearchStrategy[Asked]) -> st.SearchStrategy[Asked]:
    def pair(parts: tuple[str, Asked, Asked]) -> Asked:
        word, (left, is_left), (right, is_right) = parts
        join = both if word == "AND" else either
        return f"({left}) {word} ({right})", lambda row: join(is_left(row), is_right(row))

    def denied(part: Asked) -> Asked:
        return f"NOT ({part[0]})", lambda row: negate(part[1](row))

    return st.one_of(st.tuples(st.sampled_from(["AND", "OR"]), children, children).map(pair), children.map(denied))


WHERE = st.recursive(leaves(), joined, max_leaves=5)


def rows_of(nan: bool) -> st.SearchStrategy[list[Row]]:
    pool = {name: [*values, math.nan] if nan and name in "fg" else values for name, values in POOL.items()}
    row = st.fixed_dictionaries({name: st.one_of(st.none(), st.sampled_from(values)) for name, values in pool.items()})
    return st.lists(row, max_size=12)


def matching(table: pa.Table, predicate: P.Predicate) -> list[int]:
    numbered = table.append_column("n", pa.array(range(table.num_rows), pa.int64()))
    found: list[int] = numbered.filter(P.to_arrow(predicate))["n"].to_pylist()
    assert numbered.filter(P.find_matching_rows(predicate, numbered))["n"].to_pylist() == found
    return found


def ranges(table: pa.Table) -> dict[str, P.ColumnRange]:
    """Statistics as a Parquet writer makes them: NaN is left out."""
    found = {}
    for name in table.schema.names:
        values = [v for v in table[name].to_pylist() if v is not None and v == v]
        low, high = (min(values), max(values)) if values else (None, None)
        found[name] = P.ColumnRange(low, high, table[name].null_count, table.num_rows)
    return found


SETTINGS = settings(max_examples=250)


@SETTINGS
@given(WHERE, rows_of(nan=True))
def test_arrow_returns_the_rows_for_which_the_condition_is_true(asked: Asked, rows: list[Row]) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    expected = [n for n, row in enumerate(rows) if asked[1](row) is True]
    assert matching(table, predicate_text.parse_condition(asked[0], SCHEMA)) == expected


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@SETTINGS
@given(asked=WHERE, rows=rows_of(nan=False))
def test_duckdb_returns_the_same_rows_where_no_value_is_nan(
    duck: duckdb.DuckDBPyConnection, asked: Asked, rows: list[Row]
) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    duck.register("rows", table.append_column("n", pa.array(range(len(rows)), pa.int64())))
    text = re.sub(r"(LIKE '(?:[^']|'')*')", r"\1 ESCAPE '\\'", asked[0])
    text = re.sub(r"X'([0-9a-f]*)'", r"unhex('\1')", text)
    found = duck.execute(f"SELECT n FROM rows WHERE {text} ORDER BY n").fetchall()
    assert matching(table, predicate_text.parse_condition(asked[0], SCHEMA)) == [n for (n,) in found]


@SETTINGS
@given(WHERE, rows_of(nan=True), st.sets(st.sampled_from(list(POOL))), st.booleans())
def test_statistics_never_prune_a_matching_row(asked: Asked, rows: list[Row], unknown: set[str], counted: bool) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    stats = {
        name: known if counted else known._replace(null_count=None, rows=None)
        for name, known in ranges(table).items()
        if name not in unknown
    }
    if any(asked[1](row) is True for row in rows):
        assert P.may_match(predicate_text.parse_condition(asked[0], SCHEMA), stats)


@settings(max_examples=100)
@given(WHERE)
def test_a_predicate_travels_to_workers_and_names_its_columns(asked: Asked) -> None:
    predicate = predicate_text.parse_condition(asked[0], SCHEMA)
    assert pickle.loads(pickle.dumps(predicate)) == predicate
    assert hash(predicate) == hash(predicate_text.parse_condition(asked[0], SCHEMA))
    words = set(re.findall(r"\b(?:day|ts|lt|[ilfgdsobt])\b", re.sub(r"'(?:[^']|'')*'", "", asked[0])))
    assert P.columns(predicate) == words


@pytest.mark.parametrize(
    ("where", "stats", "may"),
    [
        ("i = 5", {"i": (1, 4)}, False),
        ("i = 5", {"i": (1, 5)}, True),
        ("i != 5", {"i": (5, 5)}, False),
        ("f != 5", {"f": (5.0, 5.0)}, True),  # NaN is in no bounds, and NaN != 5
        ("not f < 5", {"f": (1.0, 2.0)}, True),
        ("not i < 5", {"i": (1, 2)}, False),
        ("i in (1, 9)", {"i": (3, 5)}, False),
        ("i not in (1, 3)", {"i": (3, 3)}, False),
        ("i not between 1 and 5", {"i": (2, 3)}, False),
        ("s like 'b%'", {"s": ("a", "aa")}, False),
        ("s like 'b%'", {"s": ("c", "d")}, False),
        ("s like 'b%'", {"s": ("bc", "d")}, True),
        (r"s like '\%x_'", {"s": ("a", "b")}, False),
        ("i = 5 and s = 'x'", {"i": (5, 5), "s": ("a", "b")}, False),
        ("i = 5 or s = 'x'", {"i": (5, 5), "s": ("a", "b")}, True),
        ("i is null", {"i": (1, 2, 0, 9)}, False),
        ("i is not null", {"i": (None, None, 9, 9)}, False),
        ("i = 1", {"i": (None, None, 9, 9)}, False),
        ("i = 1", {"i": ("a", "b")}, True),
        ("i = 1", {}, True),
        ("f < 5", {"f": (math.nan, math.nan)}, True),
        ("day = '2024-01-02'", {"day": (DAYS[2], DAYS[2])}, False),
        ("i is null", {"l": (None, None, 0, 0)}, False),
    ],
)
def test_statistics_prune_what_they_can(where: str, stats: dict[str, tuple[Any, ...]], may: bool) -> None:
    assert (
        P.may_match(
            predicate_text.parse_condition(where, SCHEMA),
            {name: P.ColumnRange(*known) for name, known in stats.items()},
        )
        is may
    )


@pytest.mark.parametrize(
    ("where", "place", "why"),
    [
        ("ii > 5", "ii", "no column 'ii'; did you mean i"),
        ("I > 5", "I", "no column 'I'; did you mean i"),
        ("i > 1.5", "1.5", "not an integer"),
        ("i = 3000000000", "3000000000", "without loss"),
        ("l = 9223372036854775808", "9223372036854775808", "without loss"),
        ("f = 9007199254740993", "9007199254740993", "without loss"),
        ("f = 1e999", "1e999", "without loss"),
        ("g = 16777217", "16777217", "without loss"),
        ("d = 1.005", "1.005", "without loss"),
        ("d = 123456789.00", "123456789.00", "without loss"),
        ("s = 5", "5", "not a string"),
        ("i = 'abc'", "'abc'", "not a number"),
        ("i = TRUE", "i = TRUE", "not a number"),
        ("o = 1", "1", "neither TRUE nor FALSE"),
        ("day = '2024-02-30'", "'2024-02-30'", "day"),
        ("day = '2024-02-03 10:00'", "'2024-02-03 10:00'", "not a date"),
        ("ts = '2024-01-01 00:00:00.1234567'", "'2024", "six decimals"),
        ("lt = '2024-01-01 00:00Z'", "'2024", "zone"),
        ("b = 'a'", "'a'", "X'6162'"),
        ("b = X'0'", "X'0'", "hex"),
        ("i = NULL", "i = NULL", "IS NULL"),
        ("i IN ()", "i IN", "empty list"),
        ("i = l", "l", "Two columns"),
        ("s.x = 'a'", "s.x", "inside a column"),
        ("upper(s) = 'A'", "upper", "Expected a column"),
        ("i = 1 + 1", "1 + 1", "Expected a literal"),
        ("i IN (SELECT 1)", "i IN", "unsupported syntax"),
        ("i BETWEEN SYMMETRIC 2 AND 1", "i BETW", "unsupported syntax"),
        ("s LIKE 'a' ESCAPE '!'", "s LIKE", "not a supported condition"),
        (r"s LIKE 'a\b'", r"'a\b'", "pattern"),
        ("i LIKE '1%'", "i LIKE", "needs a string"),
        ("i", "i", "not a boolean"),
        ("o IS TRUE", "o IS", "NULL or NOT NULL"),
        ("i = 1 AND", "AND", "missing"),
        ("l = 1\n  AND i = = 3", "= 3", "missing"),
        ("i = 1; DROP TABLE x", "i = 1", "not a supported condition"),
        ("s = 'abc", "", "A quote is not closed"),
        ("", "", "empty"),
        ("(" * 3000 + "o" + ")" * 3000, "((", "too many nested levels"),
    ],
)
def test_a_refusal_shows_the_place(where: str, place: str, why: str) -> None:
    with pytest.raises(PredicateError, match=why) as refusal:
        predicate_text.parse_condition(where, SCHEMA)
    assert where[refusal.value.details["position"] :].startswith(place)
    *_, line, mark = str(refusal.value).split("\n")
    assert line[mark.index("^") :].startswith(place.split("\n")[0][:20])


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("i = '5'", 5),
        ("i = 1e3", 1000),
        ("i = -(5)", -5),
        ("f = 0.1", 0.1),
        ("g = 0.1", 0.10000000149011612),
        ("d = 5", Decimal("5.00")),
        ("ts = '2024-01-01'", dt.datetime(2024, 1, 1, tzinfo=UTC)),
        ("ts = DATE '2024-01-01'", dt.datetime(2024, 1, 1, tzinfo=UTC)),
        ("ts = '2024-01-01T10:30+02:00'", dt.datetime(2024, 1, 1, 8, 30, tzinfo=UTC)),
        ("ts = TIMESTAMP '2024-01-01 10:30:00.5Z'", dt.datetime(2024, 1, 1, 10, 30, 0, 500_000, UTC)),
        ("lt = '2024-01-01 10:30:00'", dt.datetime(2024, 1, 1, 10, 30)),
        ("`s` = 'it''s'", "it's"),
        ("\"s\" = '\\'", "\\"),
        ("t = '09:30'", dt.time(9, 30)),
        ("o", True),
    ],
)
def test_a_literal_takes_the_type_of_its_column(where: str, value: Any) -> None:
    predicate = predicate_text.parse_condition(where, SCHEMA)
    assert isinstance(predicate, P.Compare)
    assert predicate.value == value
    assert type(predicate.value) is type(value)


def test_nested_columns_can_be_asked_for_null_only() -> None:
    schema = pa.schema([("a", pa.list_(pa.int32()))])
    table = pa.table({"a": [[1], None]}, schema)
    assert table.filter(P.to_arrow(predicate_text.parse_condition("a IS NOT NULL", schema))).num_rows == 1
    with pytest.raises(PredicateError, match="IS NULL"):
        predicate_text.parse_condition("a = 1", schema)


def test_a_condition_of_thousands_of_parts_is_read_and_run() -> None:
    table = pa.table({"i": pa.array(range(6000), pa.int32())})
    where = " OR ".join(f"i = {n}" for n in range(0, 4000, 2))
    predicate = predicate_text.parse_condition(where, table.schema)
    assert table.filter(P.to_arrow(predicate)).num_rows == 2000
    assert P.may_match(predicate, {"i": P.ColumnRange(4000, 6000)}) is False


def test_importing_hoodoo_does_not_wait_for_sqlglot_or_pyspark() -> None:
    code = (
        "import sys, hoodoo, hoodoo.readers.predicate.tree\n"
        "sys.exit(any(m in sys.modules for m in ('sqlglot', 'pyspark')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("word", ["desc", "at", "order", "group", "from"])
def test_a_column_that_is_named_like_a_keyword_needs_no_quotes(word: str) -> None:
    """Scan took it, and a check was refused with a token of the parser."""
    schema = pa.schema([(word, pa.int64()), ("b", pa.string())])
    for condition in ("{} >= 0", "b = 'x' AND {} IN (1, 2)", "{} IS NULL"):
        plain = predicate_text.parse_condition(condition.format(word), schema)
        assert plain == predicate_text.parse_condition(condition.format(f'"{word}"'), schema)
