"""Hudi's readers order files by instant, ours by slot: over random histories both see the same rows, and each rule is
needed for that.
"""

from __future__ import annotations

import os
import time

import pytest
from figures import record
from hudi_view_histories import History, first_broken
from hudi_view_model import RULES

HISTORIES = int(os.environ.get("HOODOO_HISTORIES", "60000"))
PARTS = 6  # so that several workers share them
MUTANT_HISTORIES = 30_000


@pytest.mark.parametrize("part", range(PARTS))
def test_hudi_sees_exactly_the_published_slots_after_every_step(part: int) -> None:
    began = time.monotonic()
    assert first_broken(range(part, HISTORIES, PARTS)) is None
    record(
        f"T0 Hudi view, part {part}",
        histories=len(range(part, HISTORIES, PARTS)),
        seconds=round(time.monotonic() - began, 1),
        violations=0,
    )


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_some_history_breaks(rule: str) -> None:
    found = first_broken(range(MUTANT_HISTORIES), rule)
    assert found is not None
    seed, _ = found
    assert History(seed).run() == ""  # the rule makes the difference
    record(f"T0 Hudi view without {rule}", mutants_found=1, histories_until_found=seed + 1)


def test_a_seed_decides_its_history() -> None:
    for seed in range(200):
        one, two = History(seed), History(seed)
        assert (one.run(), one.table.slots, one.table.truth) == (two.run(), two.table.slots, two.table.truth)


def test_histories_reach_every_kind_of_slot() -> None:
    kinds, changed = set[str](), False
    for seed in range(400):
        history = History(seed)
        history.run()
        kinds |= {slot.kind for slot in history.table.slots}
        changed = changed or any(slot.columns for slot in history.table.slots)
    assert kinds == {"none", "write", "plan", "compact", "savepoint", "restore", "clean", "rollback"} and changed
