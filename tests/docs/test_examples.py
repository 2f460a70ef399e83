"""The examples that need no Spark run as a user would run them."""

from __future__ import annotations

import csv
import io
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import hoodoo
from hoodoo.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_year_of_flights_changes_its_columns_while_a_consumer_keeps_a_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runpy.run_path(str(EXAMPLES / "year_of_columns.py"))
    run["main"](str(tmp_path), "2000")
    said = capsys.readouterr().out
    for change in ("add tailnum", "rename dep_delay", "widen distance", "add air_time", "drop dep_time"):
        assert change in said
    assert "the copy is the same" in said


def test_the_orders_of_a_shop_are_changed_looked_at_and_restored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLES / "orders.py"))["main"](str(tmp_path), 2000)
    said = capsys.readouterr().out
    assert "4 orders were cancelled, 7 are late" in said


def test_the_orders_of_a_shop_are_changed_on_the_command_line_in_the_same_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Line by line, in this process."""
    lines = (EXAMPLES / "orders.sh").read_text().splitlines()
    files = "\n".join(line for line in lines if not line.startswith("hoodoo "))
    subprocess.run(["bash", "-c", files, "orders.sh", str(tmp_path), "2000"], check=True)
    monkeypatch.chdir(tmp_path)
    commands = [line for line in lines if line.startswith("hoodoo ")]
    for line in commands:
        for part in line.split(" | "):
            code = main(shlex.split(part)[1:])
            said = capsys.readouterr()
            assert code == 0, f"{part}: {said.err}"
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(said.out.encode())))
    table = hoodoo.open("orders")
    assert len(commands) == 20 and table.count() > 1000
    assert not len(table.scan(where="status = 'late'")) and not len(table.scan(where="amount = 0"))
    operations = [commit.operation for commit in table.history()]
    assert operations == ["DELETE", "RESTORE", "UPSERT", "UPSERT", "DELETE", "UPSERT", "UPSERT", "UPSERT", "INSERT"]


def test_recorded_changes_of_postgres_end_in_the_rows_that_it_ended_with(tmp_path: Path) -> None:
    example = EXAMPLES / "postgres_to_lake"
    done = subprocess.run(
        [sys.executable, example / "recorded.py", tmp_path], stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout.endswith("The table has the 4 rows that PostgreSQL ended with.\n")
    for change in (
        "u  (1, ann, new, 10.50) -> (1, ann, paid, 10.50)",
        "d  (2, bob, new, 99.99)",
        "i  (30, cyd, new, 5.00)",
    ):
        assert change in done.stdout
    with open(example / "recorded.csv", newline="") as file:
        wanted = {int(row["id"]): row for row in csv.DictReader(file)}
    table = hoodoo.open(tmp_path / "orders")
    found = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    assert found.keys() == wanted.keys() == {1, 4, 5, 30}
    for name in ("customer", "status", "amount", "day", "note"):
        assert {number: str(row[name] or "") for number, row in found.items()} == {
            number: row[name] for number, row in wanted.items()
        }
    assert [commit.operation for commit in table.history()].count("UPSERT") == 3  # one for each step
    assert table.verify().problems == []
