"""What a shell made of quotes, and words that the command line does not know, lead to what to type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hoodoo
from hoodoo.cli.examples import EXAMPLES
from hoodoo.cli.words import _COMMANDS


@pytest.mark.parametrize(
    ("arguments", "typed"),
    [
        (["scan", "--where", "city=x"], """--where "city='x'\""""),
        (["scan", "--where", 'city = "x"'], """--where "city = 'x'\""""),
        (["delete", "--where", "city = x AND fare > 1"], """--where "city = 'x' AND fare > 1\""""),
        (["update", "--set", "note=late"], """--set "note='late'\""""),
        (["update", "--set", "note=two words"], """--set "note='two words'\""""),
        (["update", "--set", "note='$5'", "--where", "city = x"], """--where "city = 'x'\""""),
    ],
)
def test_quotes_that_a_shell_took_away_are_told_as_they_are_typed(
    trips: Path, run: Any, arguments: list[str], typed: str
) -> None:
    hoodoo.open(trips).alter.add_column("note", "string")
    code, out, error = run(arguments[0], trips, *arguments[1:])
    assert (code, out) == (1, "")
    assert f"The shell removes quotes. Write {typed}" in " ".join(error.split())
    assert hoodoo.open(trips).count() == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["upsrt", "x"], "command 'upsrt' does not exist; did you mean hoodoo upsert? hoodoo --help lists all"),
        (["query", "x"], "did you mean hoodoo scan?"),
        (["vacuum", "x"], "did you mean hoodoo clean?"),
        (["rename-column", "x"], "did you mean hoodoo alter PATH rename?"),
        (["alter", "x", "renam", "a", "b"], "command 'renam' does not exist; did you mean rename?"),
        (["quarantine", "lst", "x"], "action must be list, show, replay or drop, not 'lst'; did you mean list?"),
        (
            ["scan", "x", "--filter", "a"],
            "there is no option --filter; did you mean --where? hoodoo scan --help lists all",
        ),
        (["scan", "x", "--columsn=a"], "did you mean --columns?"),
        (["scan", "x", "--version", "3"], "did you mean --as-of?"),
        (["scan", "x", "--head", "3"], "did you mean --limit?"),
        (["create", "x", "--primary-key", "id", "--schema", "id int", "--key", "id"], "did you mean"),
        (["alter", "x", "add", "n", "int", "--defautl", "3"], "did you mean --default?"),
        (
            ["upsert", "x", "f.csv", "--new-keys", "skip"],
            "--new-keys must be insert, ignore or fail, not 'skip'; did",
        ),
        (["compact", "x", "--strategy", "logsize"], "did you mean log_size?"),
        (["delete", "x", "f.csv", "fare", ">", "5"], "unexpected argument 'fare'"),
        (["--json", "scan", "x"], "there is no option --json before the command"),
    ],
)
def test_a_word_that_the_command_line_has_not_leads_to_the_nearest(run: Any, arguments: list[str], words: str) -> None:
    """A typo printed the names of thirty commands."""
    code, out, error = run(*arguments)
    assert (code, out) == (2, "")
    assert words in error
    assert len(error.splitlines()) == 1
    assert error.startswith("hoodoo") and "choose from" not in error


def test_every_command_of_another_program_leads_to_one_that_there_is() -> None:
    known = set(EXAMPLES)
    for other, ours in _COMMANDS.items():
        first, *rest = ours.split()
        assert first in known and other not in known, other
        if first == "alter":
            assert f"alter {rest[1]}" in known


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["history", "x", "--newest", "many", "--json"], "--newest"),
        (["scan", "x", "--json", "--columsn", "a"], "there is no option --columsn; did you mean --columns?"),
        (["scan", "--json"], "PATH"),
        (["quarantine", "lst", "x", "--json"], "action must be list, show, replay or drop"),
    ],
)
def test_an_error_of_arguments_is_json_with_json(run: Any, arguments: list[str], words: str) -> None:
    """It was the usage in plain text."""
    code, out, error = run(*arguments)
    found = json.loads(error)["error"]
    assert (code, out, found["code"]) == (2, "", "OPTION") and words in found["message"]
    plain = [one for one in arguments if one != "--json"]
    assert "error: " in run(*plain)[2]
