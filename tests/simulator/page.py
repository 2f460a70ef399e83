"""Writes the two tables of docs/simulation.md: the planted bugs, and what every operation is told when another one
comes in its middle. Run as a program; `git diff` then shows what changed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import bugs
from pairs import OPERATIONS, head, row_of

PAGE = Path(__file__).parents[2] / "docs" / "simulation.md"


def replaced(page: str, table: str) -> str:
    """The page with `table` in the place of the one whose first column has the same head.

    Raises:
        ValueError: the page has no table that begins so, or several.
    """
    first = "|".join(table.split("|")[:2])
    pattern = re.compile(rf"^{re.escape(first)}\|.*\n(?:\|.*\n?)*", re.MULTILINE)
    if len(pattern.findall(page)) != 1:
        raise ValueError(f"{PAGE.name} needs one table that begins {first[:60]!r}")
    return pattern.sub(lambda _: table + "\n", page)


def main() -> int:
    rows, broken = [head()], 0
    for a in OPERATIONS:
        text, _, problems = row_of(a)
        rows.append(text)
        broken += len(problems)
        for problem in problems:
            print(problem[:400], file=sys.stderr)
    page = replaced(replaced(PAGE.read_text("utf-8"), bugs.table()), "\n".join(rows))
    PAGE.write_text(page, "utf-8")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
