"""Each planted bug is found within four thousand seeds, most within one hundred, and the seed that finds it finds
nothing in the real code.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bugs import BUGS, MOST_SEEDS, run, table
from figures import record
from simulation import simulate


def seeds(first: int) -> Iterator[int]:
    """The one that the table names, then all from 0: whatever changes what the code asks of its store changes the
    histories.
    """
    yield first
    yield from range(MOST_SEEDS)


@pytest.mark.parametrize("name", list(BUGS))
def test_the_simulator_finds_the_planted_bug_and_nothing_without_it(name: str) -> None:
    one = BUGS[name]
    assert 0 <= one.seed < MOST_SEEDS
    tried = 0
    for seed in seeds(one.seed):
        tried += 1
        if run(one, seed).violation:
            break
    else:
        raise AssertionError(f"none of {MOST_SEEDS} seeds finds {name}: the simulator is blind to it")
    record(f"T1m {name}", bugs=1, found=1, seeds_tried=tried)
    clean = simulate(seed, scene=one.scene)
    assert not clean.violation, clean.report()


def test_at_least_twenty_bugs_are_planted_and_the_page_shows_all_of_them() -> None:
    assert len(BUGS) >= 20
    page = Path(__file__).parents[2].joinpath("docs", "simulation.md").read_text("utf-8")
    assert table() in page, "make simulate BUGS=table prints the new one"
