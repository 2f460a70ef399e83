"""`hoodoo.sql(text, name=table)`: a query of DuckDB over tables by name. What it opens is in `test_lazy_engines`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.float64())])


@pytest.fixture
def trips(tmp_path: Path) -> hoodoo.Table:
    table = hoodoo.create(tmp_path / "trips", SCHEMA, key="id", partition_by="city")
    table.upsert([{"id": number, "city": "ab"[number % 2], "v": float(number)} for number in range(10)])
    table.upsert([{"id": 3, "city": "b", "v": 30.0}])
    return table


@pytest.fixture
def cities(tmp_path: Path) -> hoodoo.Table:
    table = hoodoo.create(tmp_path / "cities", "city string, name string", key="city")
    table.upsert([{"city": "a", "name": "Aosta"}, {"city": "b", "name": "Bari"}])
    return table


def test_a_query_joins_tables_and_reads_by_the_names_of_the_arguments(
    trips: hoodoo.Table, cities: hoodoo.Table
) -> None:
    found = hoodoo.sql(
        "SELECT name, max(v) FROM trips JOIN c USING (city) GROUP BY name ORDER BY name", trips=trips, c=cities.scan()
    )
    assert found.fetchall() == [("Aosta", 8.0), ("Bari", 30.0)]
    assert hoodoo.sql("FROM trips", trips=trips.scan(where="v > 20")).fetchall() == [(3, "b", 30.0)]
    assert hoodoo.sql("SELECT op, count(*) FROM c GROUP BY op", c=trips.changes("earliest")).fetchall() == [("i", 10)]


def test_a_relation_gives_its_rows_in_every_form_and_again(trips: hoodoo.Table) -> None:
    found = hoodoo.sql("SELECT id FROM trips WHERE v = 30", trips=trips)
    gc.collect()
    assert found.fetchall() == found.fetchall() == [(3,)]
    assert found.to_arrow_table().to_pylist() == [{"id": 3}]
    assert found.df()["id"].tolist() == found.pl()["id"].to_list() == [3]


def test_a_query_sees_the_snapshots_of_its_call(trips: hoodoo.Table) -> None:
    found = hoodoo.sql("SELECT count(*) FROM trips", trips=trips)
    trips.upsert([{"id": 99, "city": "a", "v": 1.0}])
    assert found.fetchall() == [(10,)]
    assert hoodoo.sql("SELECT count(*) FROM trips", trips=trips).fetchall() == [(11,)]


def test_names_of_python_variables_and_of_other_queries_mean_nothing(trips: hoodoo.Table) -> None:
    rows = trips.scan().to_arrow()
    assert rows is not None
    with pytest.raises(hoodoo.OptionError, match="reads the table 'rows', which is not an argument"):
        hoodoo.sql("SELECT * FROM trips, rows", trips=trips)
    with pytest.raises(
        hoodoo.OptionError, match="reads the table 'trips', which is not an argument; no table is given"
    ):
        hoodoo.sql("SELECT * FROM trips")


def test_tables_may_be_called_as_the_other_arguments(trips: hoodoo.Table) -> None:
    assert len(hoodoo.sql('FROM "text", rewrite', text=trips, rewrite=trips).fetchall()) == 100


@pytest.mark.parametrize("text", ["PIVOT trips ON city USING count(*)", "EXPLAIN FROM trips", "SUMMARIZE trips"])
def test_whatever_gives_rows_is_a_query(trips: hoodoo.Table, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert hoodoo.sql(text, trips=trips).fetchall()
    assert capfd.readouterr().err == ""


REFUSED: list[tuple[str, dict[str, Any], type[hoodoo.HoodooError], str]] = [
    ("FROM trips", {"trips": 3}, hoodoo.OptionError, "trips must be a table from hoodoo.open"),
    ("FROM trips", {"trips": "lake/trips"}, hoodoo.OptionError, "trips must be a table"),
    ("FROM trips", {"trip": ...}, hoodoo.OptionError, "does not use table trip: it names trips"),
    ("SELECT 1", {"trip": ...}, hoodoo.OptionError, "does not use table trip: it names no table"),
    (
        "FROM trips JOIN trops USING (id)",
        {"trips": ...},
        hoodoo.OptionError,
        "'trops', which is not an argument.*mean trips",
    ),
    ("SELECT nix FROM trips", {"trips": ...}, hoodoo.ExpressionError, 'column "nix" not found'),
    ("SELECT FROM WHERE", {}, hoodoo.ExpressionError, "syntax error"),
    ("SELECT '\ud800'", {}, hoodoo.ExpressionError, "incomplete character"),
    ("DROP TABLE trips", {"trips": ...}, hoodoo.OptionError, "accepts one query, got a statement of kind DROP"),
    ("FROM trips; FROM trips", {"trips": ...}, hoodoo.OptionError, "accepts one query, got 2 statements"),
    ("", {}, hoodoo.OptionError, "accepts one query, got 0 statements"),
]


@pytest.mark.parametrize(("text", "given", "kind", "said"), REFUSED)
def test_what_is_no_query_over_the_given_tables_is_refused_in_words(
    trips: hoodoo.Table, text: str, given: dict[str, Any], kind: type[hoodoo.HoodooError], said: str
) -> None:
    tables = {name: trips if value is ... else value for name, value in given.items()}
    with pytest.raises(kind, match=said):
        hoodoo.sql(text, **tables)


def test_tables_beside_a_session_are_refused(trips: hoodoo.Table) -> None:
    session: Any = object()
    with pytest.raises(hoodoo.OptionError, match="leave out the session"):
        hoodoo.sql(session, "SELECT 1", trips=trips)


def test_without_duckdb_or_pyspark_the_error_says_what_to_install(
    trips: hoodoo.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(hoodoo.EngineError, match=r"pip install 'hoodoo\[sql\]'"):
        hoodoo.sql("FROM trips", trips=trips)
    monkeypatch.setitem(sys.modules, "hoodoo.spark.sql", None)
    session: Any = object()
    with pytest.raises(hoodoo.EngineError, match=r"pip install 'hoodoo\[spark\]'"):
        hoodoo.sql(session, "SELECT 1")


def test_two_names_that_are_one_to_duckdb_are_refused(tmp_path: Path) -> None:
    """The rows of one table came for both."""
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64())]), key="id")
    with pytest.raises(hoodoo.OptionError, match="T and t are the same name"):
        hoodoo.sql("SELECT count(*) FROM T", T=table, t=table)


def test_parameters_are_refused_with_what_to_do(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64())]), key="id")
    with pytest.raises(hoodoo.OptionError, match="Write values into the text of the query"):
        hoodoo.sql("SELECT * FROM t WHERE id = ?", t=table, params=[1])  # type: ignore[arg-type]


# ---- hoodoo.use
@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    hoodoo.use(None)


def test_after_use_a_query_finds_tables_by_name_in_any_case_and_arguments_hide_them(
    lake: Path, trips: hoodoo.Table, cities: hoodoo.Table
) -> None:
    hoodoo.use(lake)
    text = "SELECT name, count(*) FROM Trips JOIN cities USING (city) GROUP BY name ORDER BY name"
    assert hoodoo.sql(text).fetchall() == [("Aosta", 5), ("Bari", 5)]
    assert hoodoo.sql("EXPLAIN FROM trips").fetchall()
    assert hoodoo.sql("WITH trips AS (SELECT 1 AS n) FROM trips").fetchall() == [(1,)]
    assert hoodoo.sql("SELECT count(*) FROM trips", trips=cities).fetchall() == [(2,)]
    trips.upsert([{"id": 99, "city": "a", "v": 1.0}])
    assert hoodoo.sql("SELECT count(*) FROM trips").fetchall() == [(11,)]


def test_without_use_and_for_other_folders_a_name_is_unknown(lake: Path, trips: hoodoo.Table) -> None:
    hoodoo.use(lake)
    (lake / "plain").mkdir()
    with pytest.raises(hoodoo.OptionError, match=r"reads the table 'nothing'.*has no such folder"):
        hoodoo.sql("FROM nothing")
    with pytest.raises(hoodoo.TableNotFound, match="plain"):
        hoodoo.sql("FROM plain")
    hoodoo.use(None)
    with pytest.raises(hoodoo.OptionError, match="not an argument"):
        hoodoo.sql("FROM trips")


def test_a_query_that_knows_all_its_tables_does_not_list_the_folder_in_use(
    lake: Path, trips: hoodoo.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    hoodoo.use(lake)
    listed: list[bool] = []
    monkeypatch.setattr("hoodoo.queries.tables_in_folder", lambda: listed.append(True) or {})
    assert hoodoo.sql("SELECT count(*) FROM t", t=trips).fetchall() == [(10,)] and not listed
    with pytest.raises(hoodoo.OptionError):
        hoodoo.sql("FROM trips")
    assert listed == [True]


def test_use_of_a_table_instead_of_its_folder_is_an_error(trips: hoodoo.Table) -> None:
    with pytest.raises(hoodoo.CallError, match="is a table: expected a folder of tables"):
        hoodoo.use(trips.path)
