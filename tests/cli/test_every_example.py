"""Each subcommand's help ends with one example, and each example does what it says."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from patience import wait_for

import hoodoo
from hoodoo.cli.examples import EXAMPLES
from hoodoo.cli.main import main, parser
from hoodoo.sources import Files, Limits

INSTANT = "20260131120000000"
CSV = "id,city,at,fare\na,rome,2026-01-01T00:00:00Z,1.5\nb,oslo,2026-01-01T00:00:00Z,-2.0\n"


def parsers(top: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Each subcommand with its parser; `alter add` is a subcommand of a subcommand."""
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, below in action.choices.items():
                full = f"{name} {word}".strip()
                yield full, below
                yield from parsers(below, full)


COMMANDS = dict(parsers(parser()))


def test_every_subcommand_has_one_example_and_no_example_is_of_another() -> None:
    assert set(EXAMPLES) == set(COMMANDS)
    for name, line in EXAMPLES.items():
        words = shlex.split(line)
        given = parser().parse_args(words[1:])
        assert words[0] == "hoodoo"
        assert name == given.command or name == f"{given.command} {getattr(given, 'change', '')}"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_subcommand_ends_with_its_example_on_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert COMMANDS[name].format_help().splitlines()[-1] == f"example: {EXAMPLES[name]}"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the examples work on: a table with rows a, b and c from two commits, and files."""
    folder = tmp_path_factory.mktemp("lake")
    (folder / "trips.csv").write_text(CSV)
    (folder / "keys.csv").write_text("id,city\na,rome\n")
    (folder / "lake").mkdir()
    columns = {"id": "string", "city": "string", "at": "timestamp", "fare": "double", "seats": "int"}
    table = hoodoo.create(folder / "lake/trips", columns, key="id", partition_by="city", order_by="at")
    table.upsert(folder / "trips.csv", missing="null")
    table.upsert(str(folder / "trips.csv"), missing="null")
    return folder


def pending(path: Path) -> str:
    return hoodoo.open(path).handle.context().timeline.begin("deltacommit").instant


def land(table: Path) -> None:
    """A file that is there for long enough to be taken."""
    landing = table.parents[1] / "landing" / "trips"
    landing.mkdir(parents=True)
    (landing / "rides.csv").write_text("id,city,at,fare,seats\nd,bonn,2026-01-01T00:00:00Z,2.5,\n")
    wait_for(lambda: Files(landing).plan("", Limits()), "the file to be one that does not grow")


BEFORE: dict[str, Callable[[Path], Any]] = {
    "create": shutil.rmtree,
    "upsert": lambda path: hoodoo.open(path).alter.drop_column("seats", rewrite=True),
    "insert": lambda path: hoodoo.open(path).alter.drop_column("seats", rewrite=True),
    "ingest": land,
    "restore": lambda path: hoodoo.open(path).savepoints.create("friday"),
    "quarantine": lambda path: hoodoo.open(path).set_checks({"fare": "fare >= 0"}),
}


NEEDS_A_SERVER = {"register"}
"""Examples that tests/formats runs, beside the server that they name."""


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in NEEDS_A_SERVER])
def test_each_example_works(
    name: str, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(lake, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    table = Path("lake/trips")
    BEFORE.get(name, lambda path: None)(table)
    words = shlex.split(EXAMPLES[name].replace(INSTANT, pending(table) if INSTANT in EXAMPLES[name] else ""))
    code, said = main(words[1:]), capsys.readouterr()
    remains = name == "purge"  # the key is the smallest of a file, and the slot of that file keeps it for a month
    assert code == remains and (not said.err or name == "worker"), said.err  # a worker's log is there
    if name == "drop":
        assert not table.exists()
        return
    found = hoodoo.open("lake/flights" if name == "demo" else table)
    want = {
        "demo": lambda: found.count() > 10_000,
        "delete": lambda: found.count() == 1,
        "update": lambda: found.get("a")["fare"].to_pylist() == [3.0],
        "purge": lambda: found.get("a").num_rows == 0 and "bounds_until" in said.out,
        "options": lambda: (found.options.retain_hours, found.options.compact_after_logs) == (24, 5),
        "alter add": lambda: found.schema.names.index("tip") == 4,
        "alter drop": lambda: "fare" not in found.schema.names,
        "alter rename": lambda: "price" in found.schema.names,
        "alter retype": lambda: str(found.schema.field("fare").type) == "decimal128(10, 2)",
        "alter widen": lambda: str(found.schema.field("seats").type) == "int64",
        "clean": lambda: "no file was replaced" in said.out,
        "files": lambda: "city=oslo" in said.out,
        "savepoint": lambda: list(found.savepoints.list()) == ["friday"],
        "changes": lambda: Path("changes.csv").read_text().splitlines()[0].startswith('"op","instant","before.id"'),
        "incremental": lambda: Path("changed.parquet").exists(),
        "resolve": lambda: "no" in said.out,
        "ingest": lambda: found.get("d")["city"].to_pylist() == ["bonn"],
        "scan": lambda: "rome" in said.out and "oslo" not in said.out,
        "sql": lambda: "rome" in said.out and "oslo" in said.out,
        "get": lambda: "rome" in said.out and "oslo" in said.out,
    }
    assert want.get(name, lambda: True)()


def test_options_are_shown_and_set(lake: Path, tmp_path: Path, machine: Any, run: Any) -> None:
    path = shutil.copytree(lake / "lake/trips", tmp_path / "t")
    assert machine("options", path)["retain_hours"] == 168
    assert machine("options", path, "retain_hours=24", "compact_after_logs=none") == {
        "retain_hours": 24,
        "compact_after_logs": None,
    }
    assert hoodoo.open(path).options.compact_after_logs is None
    out = run("options", path)[1].splitlines()
    assert out[0].split() == ["option", "value", "default"]
    assert [line.split() for line in out if line.startswith(("retain_hours", "compact_after"))] == [
        ["compact_after_logs", "none", "10"],
        ["retain_hours", "24", "168"],
    ]
    for wrong in (["retain_hour=3"], ["retain_hours=often"], ["retain_hours=1", "retain_hours=2"]):
        code, _, err = run("options", path, *wrong, "--json")
        assert (code, json.loads(err)["error"]["code"]) == (1, "OPTION")
    assert run("options", path, "retain_hours")[0] == 2
    assert hoodoo.open(path).options.retain_hours == 24


def test_info_says_what_the_table_is(lake: Path, tmp_path: Path, machine: Any, run: Any) -> None:
    path = shutil.copytree(lake / "lake/trips", tmp_path / "t")
    said = machine("info", path)
    assert (said["key"], said["partition_by"], said["order_by"]) == (["id"], ["city"], ["at"])
    assert (said["rows"], said["slot"], said["file_groups"], said["logs"]) == (2, 3, 2, 2)
    assert said["bytes"] == sum(
        file.size for slot in hoodoo.open(path).handle.history.slots(0, 3) for file in slot.files
    )
    assert said["columns"]["fare"] == "double" and said["newest_commit"].startswith("UPSERT 20")
    assert said["options"] == {} and said["services"] == []
    run("options", path, "retain_hours=24")
    assert machine("info", path)["options"] == {"retain_hours": 24}
    out = run("info", path)[1]
    assert "Nothing is due." in out and "columns.fare" in out and "transforms" not in out


def test_changes_in_a_csv_have_a_column_for_each_field(lake: Path, tmp_path: Path, run: Any) -> None:
    path = shutil.copytree(lake / "lake/trips", tmp_path / "t")
    hoodoo.open(path).delete([{"id": "a", "city": "rome"}])
    noon = dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc)
    hoodoo.open(path).upsert([{"id": "b", "city": "oslo", "at": noon, "fare": 7.0, "seats": 2}])
    for command, position in (("changes", ["--since", "3"]), ("diff", ["3"])):
        file = tmp_path / f"{command}.csv"
        assert run(command, path, *position, "--output", file)[0] == 0
        rows = pd.read_csv(file).sort_values("op").to_dict("records")
        assert [(one["op"], one["before.fare"], one["after.fare"]) for one in rows][1] == ("u", -2.0, 7.0)
        assert rows[0]["op"] == "d" and rows[0]["before.id"] == "a" and pd.isna(rows[0]["after.id"])
        assert rows[1]["after.at"] == "2026-01-02T00:00:00.000000Z"
