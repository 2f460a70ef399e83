"""Every operation in the middle of every other: both are told the truth, and the rows are those of the order of their
slots.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bug_registry import Bug, planted
from figures import record
from pairs import KINDS, OPERATIONS, head, operations, row_of, run, steps_of
from simulation import in_place

from hoodoo.compactor.compaction import log_compaction
from hoodoo.timeline.commits.transaction import Transaction

PAGE = Path(__file__).parents[2].joinpath("docs", "simulation.md").read_text("utf-8")
ALTERNATIONS = 250
pytestmark = pytest.mark.deep
IN_SAMPLE = ("upsert", "compaction")
ROWS = [pytest.param(a, marks=[pytest.mark.sample] if a in IN_SAMPLE else []) for a in OPERATIONS]


@pytest.mark.parametrize("a", ROWS)
def test_whoever_comes_in_the_middle_of_it_nothing_is_lost(a: str, note: Callable[[str], None]) -> None:
    """What each is told may change with the code; the page's table, which one target writes, shows that to a review."""
    text, count, problems = row_of(a)
    assert not problems, "\n".join(problems)
    if head() not in PAGE or text not in PAGE:
        note(f"the row of {a} in docs/simulation.md is an older one: make simulation-page")
    record(f"T1p {a}", pairs=len(OPERATIONS), interleavings=count, violations=0)


def test_two_that_take_turns_step_by_step_lose_nothing_either() -> None:
    rng, count = random.Random(17), 0
    with in_place():
        for _ in range(ALTERNATIONS):
            kind = rng.choice(KINDS)
            a, b = rng.choice(operations(kind)), rng.choice(operations(kind))
            first, second = rng.choice(steps_of(kind, a, every=True)), rng.choice(steps_of(kind, b, every=True))
            told = run(kind, a, b, first, second)
            assert not told.problem, (
                f"{kind}, {a} up to {first}, {b} up to {second}: {told.problem} (A: {told.a}; B: {told.b})\n"
                + "\n".join(told.history[-80:])
            )
            count += 1
    record("T1p turns", interleavings=count, violations=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_pair_at_the_same_step_gives_the_same_history(kind: str) -> None:
    with in_place():
        for a, b in (("upsert", "clustering"), ("clustering", "upsert"), ("purge", "restore")):
            told = [run(kind, a, b, step) for step in (20, 30, 20)]
            assert told[0] == told[2] and told[0].digest != told[1].digest


@pytest.mark.sample
def test_a_batch_made_before_a_rename_is_refused_and_one_under_way_is_written_under_the_new_names() -> None:
    """The player asks the table for its columns, makes the batch, and writes it. A write looks at the table first."""
    with in_place():
        for kind in KINDS:
            told = [run(kind, "upsert", "change of columns", step).a for step in steps_of(kind, "upsert", every=True)]
            before_it_asked, before_the_write_looked, under_way, published = (a for a, _ in itertools.groupby(told))
            assert (before_it_asked, before_the_write_looked) == ("ok", "`COLUMN`")
            assert (under_way, published) == ("ok, rebased", "ok")


@pytest.mark.parametrize("service", ["compaction", "log compaction", "purge"])
def test_a_service_whose_files_another_one_replaced_and_cleaned_says_so_and_does_not_call_the_table_damaged(
    service: str,
) -> None:
    with in_place():
        told = {run(KINDS[0], service, "purge", step).a for step in steps_of(KINDS[0], service)}
    assert "`CORRUPT_TABLE`" not in told and "ok" in told, told


@pytest.mark.parametrize(
    ("owner", "name", "instead", "a", "b"),
    [
        (Transaction, "abandon", lambda self: None, "clustering", "insert_overwrite"),
        (log_compaction, "_delete", lambda store, file: None, "log compaction", "upsert"),
    ],
    ids=["a unit that yields", "a file group that is left out"],
)
def test_files_that_are_left_where_they_should_be_deleted_are_found(
    owner: Any, name: str, instead: Any, a: str, b: str
) -> None:
    with planted(Bug("", "", "", lambda patch: patch(owner, name, instead))), in_place():
        told = [run(KINDS[0], a, b, step) for step in steps_of(KINDS[0], a)]
    assert any("was left behind" in one.problem for one in told)
