"""Checks and the quarantine on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from change_events import ID, Changes, change
from cli_files import json_file

import hoodoo


@pytest.fixture
def path(tmp_path: Path, run: Any) -> Path:
    """A table with a check, one good row, and two that were set aside."""
    where, columns = tmp_path / "t", "id string, n int"
    made = run("create", where, "--schema", columns, "--key", "id", "--check", "small=n < 10", "--check", "b=n > -5")
    assert made[0] == 0 and "n < 10" in made[1]
    file = json_file(tmp_path / "in.jsonl", [{"id": "a", "n": 1}, {"id": "b", "n": 50}, {"id": None, "n": 2}])
    code, _, error = run("upsert", where, file)
    assert code == 1 and "KEY_VALUE" in error
    assert run("upsert", where, file, "--on-bad-rows", "quarantine", "--max-bad-rows", 1)[0] == 1
    code, out, _ = run("upsert", where, file, "--on-bad-rows", "quarantine", "--json")
    assert (code, json.loads(out)["quarantined"]) == (0, 2)
    return where


def test_rows_are_listed_shown_tried_again_and_given_up(path: Path, run: Any, lines: Any, machine: Any) -> None:
    found = {one["reason"]: one for one in lines("quarantine", "list", path)}
    assert found.keys() == {"check", "null_key"} and "payload" not in found["check"]
    assert lines("quarantine", "show", path, found["check"]["position"]) == [{"id": "b", "n": 50}]
    code, out, _ = run("quarantine", "replay", path, "--json")
    assert (code, json.loads(out)["bad"]) == (1, 2)
    assert machine("quarantine", "drop", path, found["null_key"]["position"]) == {"dropped": 1}
    assert [one["reason"] for one in lines("quarantine", "list", path, "--state", "dropped")] == ["null_key"]
    assert len(lines("quarantine", "list", path, "--state", "all")) == 2
    assert "check" in run("quarantine", "list", path)[1]


@pytest.mark.parametrize("unit", ["ms", "at=ms"])
def test_times_of_change_events_are_replayed_with_the_unit_of_the_command_line(
    tmp_path: Path, run: Any, machine: Any, unit: str
) -> None:
    path = tmp_path / "changes"
    table = hoodoo.create(path, pa.schema([ID, ("at", pa.timestamp("us"))]), key="id")
    event = change("c", {"id": 1}, {"id": 1, "at": 1_769_860_800_123})
    assert hoodoo.ingest(Changes([event]), table, on_bad_rows=hoodoo.BadRowLimits(share=1)).run().bad == 1
    assert run("quarantine", "replay", path, "--time-unit", "s")[0] == 2
    assert machine("quarantine", "replay", path, "--time-unit", unit)["replayed"] == 1
    assert str(table.scan().to_arrow()["at"][0]) == "2026-01-31 12:00:00.123000"


def test_show_and_drop_ask_for_a_position(path: Path, run: Any) -> None:
    for action in ("show", "drop"):
        code, _, error = run("quarantine", action, path)
        assert code == 1 and "POSITION" in error


def test_a_position_that_is_not_there_is_no_success(path: Path, run: Any, lines: Any) -> None:
    known = lines("quarantine", "list", path)[0]["position"]
    code, _, error = run("quarantine", "drop", path, known, "nope")
    assert code == 1 and "nope" in error and "No row was dropped" in error
    assert len(lines("quarantine", "list", path)) == 2


def test_verify_looks_at_the_quarantine_too(path: Path, run: Any) -> None:
    assert run("verify", path)[0] == 0
    for file in Path(f"{path}__quarantine").rglob("*.parquet"):
        file.write_bytes(file.read_bytes()[:-9])
    code, out, _ = run("verify", path, "--json")
    told = json.loads(out)
    assert code == 1 and not told["ok"] and all("t__quarantine/" in one["file"] for one in told["problems"])
    assert told["problems"]


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        (("replay", "7"), "replay does not accept a POSITION"),
        (("list", "7"), "list does not accept a POSITION"),
        (("replay", "--state", "all"), "replay does not accept --state"),
        (("list", "--overwrite"), "list does not accept --overwrite"),
        (("show", "7", "--missing", "null"), "show does not accept --missing"),
    ],
)
def test_an_argument_that_an_action_would_ignore_is_refused(
    path: Path, run: Any, arguments: tuple[str, ...], refused: str
) -> None:
    """Replay took a position, ignored it and wrote all rows."""
    action, *more = arguments
    code, _, error = run("quarantine", action, path, *more)
    assert code == 1 and refused in error
    assert len(hoodoo.open(path).quarantine().rows("new")) == 2
