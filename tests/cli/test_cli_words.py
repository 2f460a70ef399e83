"""What a shell made of quotes, and words that the command line does not know, lead to what to type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hoodoo


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
    hoodoo.open(trips).add_column("note", "string")
    code, out, error = run(arguments[0], trips, *arguments[1:])
    assert (code, out) == (1, "")
    assert f"A shell takes quotes away: write {typed}" in " ".join(error.split())
    assert hoodoo.open(trips).count() == 3
