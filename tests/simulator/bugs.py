"""Planted bugs: the real code with one rule dropped. A simulator that does not find them proves nothing.

`python bugs.py table` prints the table of docs/simulation.md, `python bugs.py search [name ...]` looks for the first
seed that finds each, of those whose seed in bug_seeds.py does not any more.
"""

from __future__ import annotations

import sys

import bugs_of_columns
import bugs_of_commits
import bugs_of_exports
import bugs_of_metadata
import bugs_of_moves
import bugs_of_rows
import bugs_of_services
import bugs_of_sources
import bugs_of_updates
from bug_registry import BUGS, MOST_SEEDS, Bug, planted
from bug_seeds import SEEDS
from simulation import Outcome, simulate

PLANTED = (
    bugs_of_commits,
    bugs_of_services,
    bugs_of_moves,
    bugs_of_columns,
    bugs_of_rows,
    bugs_of_updates,
    bugs_of_metadata,
    bugs_of_exports,
    bugs_of_sources,
)  # importing them registers their bugs


def run(one: Bug, seed: int) -> Outcome:
    with planted(one):
        return simulate(seed, scene=one.scene)


def search(names: list[str]) -> int:
    """Of those named, or of all whose seed in the table finds nothing any more."""
    blind = 0
    for name in names or [name for name, one in BUGS.items() if not one.story and not still_found(name)]:
        for seed in range(MOST_SEEDS):
            outcome = run(BUGS[name], seed)
            if outcome.violation:
                break
        blind += not outcome.violation
        print(
            (
                f'    "{name}": ({seed if outcome.violation else -1}, "{outcome.violation.partition(":")[0]}"),  # '
                f"{outcome.violation[:150]}"
            ),
            flush=True,
        )
    return blind


def still_found(name: str) -> bool:
    if name not in SEEDS or BUGS[name].seed < 0:
        return False
    seed, invariant = SEEDS[name]
    one = BUGS[name]
    return run(one, seed).violation.partition(":")[0] == invariant and not simulate(seed, scene=one.scene).violation


def table() -> str:
    lines = [
        "| Bug | Rule or hazard | What the code does instead | Scene | Seed | Found by |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    return "\n".join([*lines, *map(_row, BUGS.values())])


def _row(one: Bug) -> str:
    cells = [one.name, one.rule, one.dropped]
    if one.story:
        cells += ["", "", f"a history by hand: {one.story.__name__.replace('_', ' ')}"]
    else:
        cells += [str(one.scene or ""), str(one.seed), one.invariant]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    if sys.argv[1:2] == ["search"]:
        sys.exit(search(sys.argv[2:]))
    print(table())
