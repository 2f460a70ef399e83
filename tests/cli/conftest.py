"""Ways to run a command line in this process, and a table to run it on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_files import COLUMNS, json_file, row

from hoodoo.cli.main import main


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command line; (exit code, stdout, stderr)."""

    def call(*arguments: Any) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def machine(run: Any) -> Callable[..., Any]:
    """Runs a command with --json that must succeed; its document."""

    def call(*arguments: Any) -> Any:
        code, out, err = run(*arguments, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return call


@pytest.fixture
def lines(run: Any) -> Callable[..., list[Any]]:
    """Runs a command with --json that must succeed; its JSON lines."""

    def call(*arguments: Any) -> list[Any]:
        code, out, err = run(*arguments, "--json")
        assert (code, err) == (0, "")
        return [json.loads(line) for line in out.splitlines()]

    return call


@pytest.fixture(scope="session")
def made_trips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the table `trips` and its two batches, which tests copy."""
    folder = tmp_path_factory.mktemp("made")
    path = str(folder / "trips")
    names = ["--key", "id", "--partition-by", "city", "--order-by", "at", "--option", "compact_after_logs=7"]
    assert main(["create", path, "--schema", COLUMNS, *names]) == 0
    first = json_file(folder / "first.jsonl", [row("a"), row("b"), row("c", city="y")])
    second = json_file(folder / "second.jsonl", [row("a", 10.0, 2)])
    for batch in (first, second):
        assert main(["upsert", path, str(batch)]) == 0
    return folder


@pytest.fixture
def trips(tmp_path: Path, made_trips: Path) -> Path:
    """A table with rows a, b in partition x and c in y, from two commits."""
    shutil.copytree(made_trips, tmp_path, dirs_exist_ok=True)
    return tmp_path / "trips"
