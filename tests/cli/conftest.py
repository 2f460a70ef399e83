"""Ways to run a command line in this process, and a table to run it on."""

from __future__ import annotations

import json
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


@pytest.fixture
def trips(tmp_path: Path, run: Any) -> Path:
    """A table with rows a, b in partition x and c in y, from two commits."""
    path = tmp_path / "trips"
    assert (
        run(
            "create",
            path,
            "--schema",
            COLUMNS,
            "--key",
            "id",
            "--partition-by",
            "city",
            "--order-by",
            "at",
            "--option",
            "compact_after_logs=7",
        )[0]
        == 0
    )
    first = json_file(tmp_path / "first.jsonl", [row("a"), row("b"), row("c", city="y")])
    second = json_file(tmp_path / "second.jsonl", [row("a", 10.0, 2)])
    assert run("upsert", path, first)[0] == run("upsert", path, second)[0] == 0
    return path
