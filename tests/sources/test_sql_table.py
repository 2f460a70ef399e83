"""A table of a database is read by a column that grows: each version of a row that is old enough, once."""

from __future__ import annotations

import datetime as dt
import pickle
import random
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import hoodoo
from hoodoo.errors import ColumnError, DataError, OptionError, SourceLost, SourceUnavailable
from hoodoo.sources import Limits, SqlTable
from hoodoo.sources.sql_position import SqlPosition

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("version", pa.int64())])


@pytest.fixture
def database(tmp_path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(tmp_path / "db", isolation_level=None)
    connection.execute('create table "some orders" (id integer primary key, name text, version integer)')
    return connection


def source(tmp_path: Path, **how: Any) -> SqlTable:
    given = {"table": '"some orders"', "column": "version", "key": "id", "lag": 0, "dialect": "sqlite", **how}
    return SqlTable(lambda: sqlite3.connect(tmp_path / "db"), **given)


def put(database: sqlite3.Connection, *rows: tuple[Any, ...]) -> None:
    database.executemany('insert or replace into "some orders" values (?, ?, ?)', rows)


@pytest.mark.parametrize("seed", range(5))
def test_a_table_of_ours_has_the_newest_rows_of_the_database_after_each_run(
    tmp_path: Path, database: sqlite3.Connection, seed: int
) -> None:
    """Many rows have one value, and limits cut between them."""
    rng, version = random.Random(seed), 0
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", order_by="version", clean_every=None)
    for _ in range(12):
        for _ in range(rng.choice([0, 1, 2])):
            version += rng.choice([1, 5])
            put(database, *((rng.randrange(20), f"é'{rng.random()}", version) for _ in range(rng.choice([1, 7]))))
        hoodoo.ingest(source(tmp_path), table, max_rows=rng.choice([1, 2, 3, 100])).run()
        stored = table.scan().to_arrow().select(SCHEMA.names).to_pylist()
        there = database.execute('select id, name, version from "some orders" order by id').fetchall()
        assert sorted(tuple(row.values()) for row in stored) == there


def test_each_row_is_read_once_and_again_when_it_grows(tmp_path: Path, database: sqlite3.Connection) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", order_by="version")
    put(database, *((number, "a", 1) for number in range(10)))
    assert hoodoo.ingest(source(tmp_path), table, max_rows=4).run().batches == 3
    job = hoodoo.ingest(source(tmp_path), table)
    assert job.run().batches == 0 and source(tmp_path).lag(job.position()).waiting == 0
    put(database, (3, "b", 2), (77, "c", 3))
    assert source(tmp_path).lag(job.position()).waiting == 2
    assert job.run().rows == 2 and table.get([3])["name"].to_pylist() == ["b"]


def test_a_row_that_commits_late_is_found_within_the_lag(tmp_path: Path, database: sqlite3.Connection) -> None:
    """It has a number that was taken before another row's, which was read already."""
    put(database, (2, "early", 12))
    patient = source(tmp_path, lag=10)
    planned = patient.plan("", Limits())
    assert planned is None  # 12 is younger than 10 numbers behind 12
    put(database, (1, "late", 11), (3, "later", 30))
    planned = patient.plan("", Limits())
    assert planned
    [part] = patient.read(planned, SCHEMA, False)
    assert part.rows["id"].to_pylist() == [1, 2]


def test_rows_that_are_younger_than_the_lag_wait_by_the_clock(tmp_path: Path) -> None:
    connection = duckdb.connect(str(tmp_path / "d"))
    connection.execute("create table t (id integer, written timestamp)")
    now = dt.datetime.now(dt.timezone.utc).replace(tzinfo=None)
    for number, age in enumerate([120, 60, 1]):
        connection.execute("insert into t values (?, ?)", [number, now - dt.timedelta(minutes=age)])
    found = SqlTable(connection.cursor, "t", "written", "id", dt.timedelta(minutes=30), "duckdb")
    planned = found.plan("", Limits())
    assert planned
    [part] = found.read(planned, pa.schema([("id", pa.int64())]), False)
    assert part.rows["id"].to_pylist() == [0, 1] and part.unknown == ("written",)
    assert found.plan(planned.position, Limits()) is None
    lag = found.lag(planned.position)
    assert lag.waiting == 1 and 60 <= lag.seconds < 3600


def test_a_name_that_is_no_name_is_put_into_quotes(tmp_path: Path, database: sqlite3.Connection) -> None:
    put(database, (1, "x", 1))
    with pytest.raises(SourceUnavailable, match="no such table"):
        source(tmp_path, table="orders; drop table 'some orders'").plan("", Limits())
    assert source(tmp_path, table="some orders").plan("", Limits())


def test_columns_are_read_as_those_of_the_table(tmp_path: Path, database: sqlite3.Connection) -> None:
    put(database, (1, "1.5", 1), (2, None, 2))
    planned = source(tmp_path).plan("", Limits())
    assert planned
    [part] = source(tmp_path).read(planned, pa.schema([("id", pa.int32()), ("version", pa.float64())]), False)
    assert part.rows.schema.types == [pa.int32(), pa.float64()] and part.unknown == ("name",)
    [part] = source(tmp_path).read(planned, pa.schema([("id", pa.int32())]), True)
    assert part.rows["name"].to_pylist() == ["1.5", None]


def test_an_empty_table_has_nothing_new(tmp_path: Path, database: sqlite3.Connection) -> None:
    assert source(tmp_path).plan("", Limits()) is None and source(tmp_path).lag("").waiting == 0


def test_a_column_that_does_not_grow_by_numbers_or_times_is_refused(
    tmp_path: Path, database: sqlite3.Connection
) -> None:
    put(database, (1, "x", 1))
    with pytest.raises(ColumnError, match="largest value in column 'name' of .* is 'x'"):
        source(tmp_path, column="name").plan("", Limits())
    with pytest.raises(ColumnError, match="a number"):
        source(tmp_path, lag=dt.timedelta(minutes=5)).plan("", Limits())


def test_a_database_that_does_not_answer_is_no_lost_source(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable, match="did not respond"):
        source(tmp_path).plan("", Limits())

    def refused() -> Any:
        raise ConnectionError("password=secret refused")

    with pytest.raises(SourceUnavailable):
        SqlTable(refused, "t", "a", "b", 0).plan("", Limits())


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"connect": "dbname=shop"}, "connect"),
        ({"table": ""}, "table"),
        ({"column": None}, "column"),
        ({"key": 7}, "key"),
        ({"lag": None}, "lag"),
        ({"lag": -1}, "lag"),
        ({"lag": dt.timedelta(seconds=-1)}, "lag"),
        ({"lag": True}, "lag"),
        ({"dialect": "cobol"}, "dialect"),
    ],
)
def test_a_wrong_argument_is_named(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError) as refused:
        SqlTable(**{"connect": print, "table": "t", "column": "c", "key": "k", "lag": 0, **wrong})
    assert refused.value.details["option"] == named


@pytest.mark.parametrize(
    "value",
    [0, -(10**20), 1.5, "é'\"", dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, 2, 3, 4, 5), b"\x00\xff"]
    + [dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30)))],
)
def test_a_position_is_read_back_as_it_was_written(value: Any) -> None:
    where = SqlPosition("t", value, value)
    assert SqlPosition.parse(where.text(), "t") == where


SAYS = '{"source":"sql","table":"%s","value":%s,"key":["int","1"]}'


@pytest.mark.parametrize(
    "position",
    [
        "{}",
        "x",
        '{"source":"files","upto":1,"seen":{}}',
        SAYS % ("u", '["int","1"]'),
        SAYS % ("t", '["word","1"]'),
        SAYS % ("t", '["int","one"]'),
        SAYS % ("t", "1"),
    ],
)
def test_a_position_of_another_source_is_refused(position: str) -> None:
    with pytest.raises(SourceLost, match="another source"):
        SqlPosition.parse(position, "t")


def test_rows_with_null_in_the_growing_column_count_in_the_lag_and_are_named_once(
    tmp_path: Path, database: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """They were never read, and nothing said so."""
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", order_by="version")
    put(database, (1, "a", None), (2, "b", 1), (3, "c", None))
    job = hoodoo.ingest(source(tmp_path), table)
    caplog.set_level("INFO", "hoodoo.ingest")
    report = job.run()
    assert report.rows == 1 and report.passed_over == ("rows with null in column 'version'",)
    assert source(tmp_path).lag(job.position()).waiting == 2
    assert job.run().passed_over and caplog.text.count("rows with null in column 'version'") == 1
    put(database, (1, "a", 2), (3, "c", 3))
    report = job.run()
    assert report.rows == 3 and not report.passed_over
    assert source(tmp_path).lag(job.position()).waiting == 0


def test_a_table_with_nulls_only_in_the_growing_column_waits_and_is_named(
    tmp_path: Path, database: sqlite3.Connection
) -> None:
    put(database, (1, "a", None))
    orders = source(tmp_path)
    assert orders.plan("", Limits()) is None and orders.passed_over and orders.lag("").waiting == 1


class Broken:
    """A driver that raises an exception in one of its calls. It passes all other calls on."""

    def __init__(self, driver: Any, call: str, problem: Exception) -> None:
        self._driver, self._call, self._problem = driver, call, problem

    def __getattr__(self, name: str) -> Any:
        if name == self._call:
            raise self._problem
        found = getattr(self._driver, name)
        return (lambda: Broken(found(), self._call, self._problem)) if name == "cursor" else found


@pytest.mark.parametrize("call", ["connect", "cursor", "execute", "fetchall", "fetchmany", "description", "close"])
def test_whatever_a_driver_raises_is_an_error_that_names_the_source_and_nothing_is_written(
    tmp_path: Path, database: sqlite3.Connection, call: str
) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", order_by="version")
    put(database, (1, "a", 1), (2, "b", 2))
    kinds = (ValueError, KeyError, TypeError, RuntimeError, RecursionError, MemoryError, OSError, EOFError)
    for problem in (sqlite3.OperationalError("broken"), *(kind("broken") for kind in kinds)):

        def connect(problem: Exception = problem) -> Any:
            if call == "connect":
                raise problem
            return Broken(sqlite3.connect(tmp_path / "db"), call, problem)

        broken = SqlTable(connect, '"some orders"', "version", "id", 0, "sqlite")
        with pytest.raises((SourceUnavailable, DataError)) as found:
            hoodoo.ingest(broken, table, name="orders").take()
        assert "some orders" in found.value.message and pickle.loads(pickle.dumps(found.value)).code
        assert not table.count() and not table.inspect.application("orders").position
    assert hoodoo.ingest(source(tmp_path), table, name="orders").run().rows == 2
