"""Text that came without its quotes is told how it is written, and a literal means the same to whoever compares it."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("status", pa.string()),
        ("code", pa.string()),
        ("n", pa.int64()),
        ("day", pa.date32()),
        ("seen", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("rate", pa.float32()),
        ("open", pa.bool_()),
        ("raw", pa.binary()),
    ]
)
ROW = {
    "id": "a",
    "status": "new",
    "code": "05",
    "n": 5,
    "day": dt.date(2026, 1, 1),
    "seen": dt.datetime(2026, 1, 1, 1, tzinfo=dt.timezone.utc),
    "price": Decimal("1.50"),
    "rate": 0.1,
    "open": True,
    "raw": b"ab",
}


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    made = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    made.insert([ROW])
    return made


BARE = {
    "status = new": "status = 'new'",
    'status = "new"': "status = 'new'",
    "status != new": "status != 'new'",
    "new = status": "'new' = status",
    "status = new AND n > 1": "status = 'new' AND n > 1",
    "status IN ('old', new)": "status IN ('old', 'new')",
    'status LIKE "ne%"': "status LIKE 'ne%'",
    "status = new york": "status = 'new york'",
    "day = tomorrow": "day = 'tomorrow'",
}


@pytest.mark.parametrize("where", BARE)
@pytest.mark.parametrize("duckdb", [True, False])
def test_text_without_quotes_is_told_how_it_is_written(
    table: hoodoo.Table, where: str, duckdb: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not duckdb:
        monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(hoodoo.PredicateError) as told:
        table.scan(where=where)
    assert f"put strings in single quotes: {BARE[where]}\n" in told.value.message
    assert "There is no column" in told.value.message
    assert told.value.details["instead"] == BARE[where]
    if not BARE[where].startswith("day"):
        assert table.scan(where=BARE[where]).count() == (0 if "!" in where or "york" in where else 1)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("upper(status) = NEW", "put strings in single quotes: upper(status) = 'NEW'"),
        ("status = new-york", "put strings in single quotes: status = 'new-york'"),
        ("day = 2026-01-01", "2026-01-01 is a subtraction of numbers; put dates in single quotes: day = '2026-01-01'"),
        ("seen > 2026-01-01 OR n = 1", "single quotes: seen > '2026-01-01' OR n = 1"),
        ("status = it's", "double a single quote within a string: 'it''s'"),
        ("stauts = 'new'", "There is no column 'stauts'; did you mean status?"),
        ("stauts = neww", "There is no column 'stauts'; did you mean status?"),
        ("Status = 'new'", "did you mean status?"),
        ("upper(stauts) = 'NEW'", "did you mean status?"),
        ("status = cod", "did you mean code? If it is a string, put strings in single quotes: status = 'cod'"),
        ("n = m", "There is no column 'm'; expected one of: id, status, code"),
    ],
)
def test_a_name_that_no_column_has_leads_to_what_is_meant(table: hoodoo.Table, where: str, words: str) -> None:
    with pytest.raises(hoodoo.PredicateError) as told:
        table.scan(where=where)
    assert words in told.value.message


CALLS: dict[str, Callable[[hoodoo.Table, str], Any]] = {
    "delete": lambda table, where: table.delete(where=where),
    "update": lambda table, where: table.update({"n": "n + 1"}, where=where),
    "changes": lambda table, where: table.changes("earliest", where=where),
    "merge": lambda table, where: table.merge([ROW]).when_matched_delete(where=where).execute(),
    "set_checks": lambda table, where: table.set_checks({"known": where}),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_call_with_a_condition_says_the_same(table: hoodoo.Table, call: str) -> None:
    where = "target.status = new" if call == "merge" else "status = new"
    with pytest.raises(hoodoo.CallError, match="put strings in single quotes: .*status = 'new'"):
        CALLS[call](table, where)
    assert table.count() == 1


# ---- what is set
@pytest.mark.parametrize(
    ("column", "given", "instead"),
    [
        ("status", "hello", "'hello'"),
        ("status", '"hello"', "'hello'"),
        ("status", "hello world", "'hello world'"),
        ("status", "N/A", "'N/A'"),
        ("status", "don't", "'don''t'"),
        ("status", "", "''"),
        ("code", "5", "'5'"),
        ("status", "2026-01-01", "'2026-01-01'"),
        ("day", "2026-01-02", "DATE '2026-01-02'"),
        ("day", "'2026-01-02'", "DATE '2026-01-02'"),
        ("seen", "'2026-01-01 05:00'", "TIMESTAMPTZ '2026-01-01 05:00'"),
    ],
)
def test_text_without_quotes_is_no_expression(table: hoodoo.Table, column: str, given: str, instead: str) -> None:
    with pytest.raises(hoodoo.HoodooError) as told:
        table.update({column: given})
    assert told.value.details["instead"] == instead
    assert f'{{"{column}": "{instead}"}}' in told.value.message
    assert table.update({column: instead}).updated == 1


def test_an_expression_that_is_no_text_is_not_taken_for_one(table: hoodoo.Table) -> None:
    for given in ("upper(stauts)", "n", "stauts || 'x'"):
        with pytest.raises(hoodoo.HoodooError) as told:
            table.update({"status": given})
        assert ("instead" in told.value.details) == (given == "stauts || 'x'")


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("source.satus", "did you mean source.status? There are source.status, source.id"),
        ("target.nn", "There is no column 'target.nn'; did you mean target.n? There are target.n, "),
        ("source.n", "There is no column 'source.n'; there are source."),
        ("sorce.status", "did you mean source.status?"),
    ],
)
def test_a_merge_names_the_columns_of_the_row_that_was_meant(table: hoodoo.Table, expression: str, words: str) -> None:
    merge = table.merge([{"id": "a", "status": "x"}]).when_matched_update({"status": expression})
    with pytest.raises(hoodoo.ExpressionError) as told:
        merge.execute()
    assert words in told.value.message
    if expression != "sorce.status":
        assert "instead" not in told.value.details


# ---- one meaning
OTHERS = ("{}", "({}) OR upper(status) = 'X'", "NOT (NOT ({}) AND upper(status) = 'NEW')")
"""The same condition, evaluated by Arrow and by DuckDB."""


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("code = '05'", 1),
        ("code = '5'", 0),
        ("code IN ('5', '05')", 1),
        ("code BETWEEN '0' AND '1'", 1),
        ("n = '5'", 1),
        ("n = '5.0'", 1),
        ("n IN ('5', 6)", 1),
        ("n BETWEEN '4' AND 6", 1),
        ("rate = 0.1", 1),
        ("rate = '0.1'", 1),
        ("price = '1.5'", 1),
        ("price = 1.5", 1),
        ("day = '2026-01-01'", 1),
        ("day > '2025-12-31'", 1),
        ("seen = '2026-01-01T01:00'", 1),
        ("seen = '2026-01-01 02:00:00+01'", 1),
        ("open = 'true'", 1),
        ("open = FALSE", 0),
        ("raw = X'6162'", 1),
    ],
)
def test_a_literal_means_the_same_to_both_engines(table: hoodoo.Table, condition: str, rows: int) -> None:
    """`code = 5` cast the column where DuckDB evaluated it, so that '05' was 5; `n = '5.4'` was 5, rounded."""
    assert [table.scan(where=other.format(condition)).count() for other in OTHERS] == [rows] * 3


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("code = 5", "Column code of type string is compared with 5, which is not a string"),
        ("5 = code", "which is not a string"),
        ("code IN ('5', 5)", "which is not a string"),
        ("code BETWEEN 1 AND 9", "which is not a string"),
        ("n = 'x'", "Column n of type int64 is compared with 'x', which is not a number"),
        ("n = '5.4'", "which is not an integer"),
        ("n = TRUE", "which is not a number"),
        ("price = '1.505'", "cannot be converted to that type without loss"),
        ("day = '2026-13-01'", "is compared with '2026-13-01'"),
        ("day > 5", "which is not a date"),
        ("open = 1", "neither TRUE nor FALSE"),
        ("open = 'yes'", "neither TRUE nor FALSE"),
        ("raw = 'ab'", "write it as X'6162'"),
    ],
)
def test_a_literal_that_means_no_value_of_its_column_is_refused_when_it_is_read(
    table: hoodoo.Table, condition: str, words: str
) -> None:
    """It was an error of a row, if there was one, or a comparison with something else."""
    for other in OTHERS:
        with pytest.raises(hoodoo.PredicateError) as told:
            table.scan(where=other.format(condition))
        assert words in told.value.message
    with pytest.raises(hoodoo.ExpressionError) as told_set:
        table.update({"n": f"CASE WHEN {condition} THEN 1 ELSE 2 END"})
    assert words in told_set.value.message


def test_a_number_that_its_column_cannot_hold_is_compared_by_its_value(table: hoodoo.Table) -> None:
    for condition, rows in {"n > 4.5": 1, "n = 5.5": 0, "price < 1.505": 1, "n < 1e300": 1}.items():
        assert [table.scan(where=other.format(condition)).count() for other in OTHERS] == [rows] * 3


def test_a_list_of_thousands_is_read_at_once(table: hoodoo.Table) -> None:
    values = ", ".join(f"'{number}'" for number in range(5_000))
    assert table.scan(where=f"n IN ({values}) OR upper(status) = 'X'").count() == 1
