"""Every reachable state of the commit protocol holds its invariants, and each rule carries weight: without it, some
state breaks one.

The numbers of states are exact: a model that loses a step shows as a smaller one.
"""

from __future__ import annotations

import time

import pytest
from figures import record
from protocol_model import Model
from protocol_terms import RULES, Kind, State, Transaction

REWRITE, DELTA, SCHEMA, COMPACTION = Kind.REWRITE, Kind.DELTA, Kind.SCHEMA, Kind.COMPACTION
T = Transaction

CONFIGURATIONS: dict[str, tuple[Model, int]] = {
    "two writers, one may be rolled back": (Model(T(rollback=True), T()), 9_155),
    "two writers that append, one may be rolled back": (Model(T(DELTA, rollback=True), T(DELTA)), 11_689),
    "two writers, both may be rolled back": (Model(T(rollback=True), T(rollback=True), crashes=False), 72_257),
    "two writers and an archiver": (Model(T(), T(), archiver=True), 7_487),
    "two writers, one may be rolled back, and an archiver": (
        Model(T(rollback=True), T(), archiver=True, crashes=False),
        646_915,
    ),
    "three writers": (Model(T(), T(), T()), 7_848),
    "three writers, one may be rolled back": (Model(T(rollback=True), T(), T(), crashes=False), 153_240),
    "a schema change, a rewrite and an append": (Model(T(SCHEMA), T(REWRITE), T(DELTA)), 33_942),
    "two workers on one plan, and a rewrite": (Model(T(COMPACTION, workers=2), T(REWRITE), crashes=False), 89_481),
    "three workers on one plan": (Model(T(COMPACTION, workers=3), crashes=False), 106_845),
    "a worker, an append and a rewrite": (
        Model(T(COMPACTION, workers=1), T(DELTA), T(REWRITE), crashes=False),
        183_789,
    ),
    "two attempts of one task, a rollback, another writer": (Model(T(attempts=2, rollback=True), T()), 50_480),
    "two tasks of two attempts, a rollback": (
        Model(T(attempts=2, rollback=True), T(attempts=2), crashes=False),
        88_470,
    ),
}

# What is enough to see the weight of each rule.
WITNESSES: dict[str, tuple[tuple[Transaction, ...], bool]] = {
    "slots are numbered in one sequence": ((T(), T()), False),
    "every slot is read before the next is tried": ((T(), T()), False),
    "a refused PUT may be ours": ((T(), T()), False),
    "a timeout is no failure": ((T(), T()), False),
    "the watermark is read after success": ((T(), T()), True),
    "an archived slot is no failure": ((T(), T()), True),
    "who does not know deletes nothing": ((T(), T()), True),
    "a rollback takes a slot": ((T(rollback=True),), False),
    "a rollback is found in the sequence": ((T(rollback=True),), False),
    "a schema change conflicts": ((T(SCHEMA), T(DELTA)), False),
    "a plan is decided as of the slot before it": ((T(COMPACTION, workers=1), T(DELTA)), False),
    "nothing is rewritten under a plan": ((T(COMPACTION, workers=1), T(REWRITE)), False),
    "a worker that loses deletes nothing": ((T(COMPACTION, workers=2),), False),
    "the plan names the output": ((T(COMPACTION, workers=2),), False),
    "attempts of a task share a name": ((T(attempts=2),), False),
    "a data file is created once": ((T(attempts=2),), False),
}

BREAKS = {
    "slots are numbered in one sequence": "came over",
    "every slot is read before the next is tried": "came over",
    "a refused PUT may be ours": "told that it failed",
    "a timeout is no failure": "told that it failed",
    "the watermark is read after success": "no reader sees it",
    "an archived slot is no failure": "told that it failed",
    "who does not know deletes nothing": "its file is gone",
    "a rollback takes a slot": "its file is gone",
    "a rollback is found in the sequence": "its file is gone",
    "a schema change conflicts": "came over",
    "a plan is decided as of the slot before it": "is lost",
    "nothing is rewritten under a plan": "is lost",
    "a worker that loses deletes nothing": "its file is gone",
    "the plan names the output": "two files",
    "attempts of a task share a name": "two files",
    "a data file is created once": "digest",
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_no_reachable_state_breaks_an_invariant(name: str) -> None:
    model, states = CONFIGURATIONS[name]
    began = time.monotonic()
    found = model.explore()
    assert (found.broken, found.trace) == ("", ())
    assert found.states == states
    record(f"T0 protocol, {name}", states=found.states, seconds=round(time.monotonic() - began, 1), violations=0)


def test_the_configurations_have_at_least_750_000_states() -> None:
    assert sum(states for _, states in CONFIGURATIONS.values()) >= 750_000


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_an_invariant_breaks_and_with_it_none_does(rule: str) -> None:
    transactions, archiver = WITNESSES[rule]
    assert Model(*transactions, archiver=archiver).explore().broken == ""
    found = Model(*transactions, archiver=archiver, dropped=rule).explore()
    assert BREAKS[rule] in found.broken
    assert 5 <= len(found.trace) <= 14
    record(f"T0 protocol without {rule}", mutants_found=1)


class Unreduced(Model):
    """Without the two reductions: equal writers begin in any order, and PUTs that can change
    nothing stay on their way.
    """

    def __init__(self, *transactions: Transaction, archiver: bool = False) -> None:
        super().__init__(*transactions, archiver=archiver)
        self.before = (-1,) * len(self.actors)

    def _purged(self, state: State) -> State:
        return state


@pytest.mark.parametrize("archiver", [False, True])
@pytest.mark.parametrize(
    "transactions", [(T(), T()), (T(DELTA), T(DELTA)), (T(rollback=True),), (T(attempts=2),)], ids=str
)
def test_the_reductions_leave_every_outcome_reachable(transactions: tuple[Transaction, ...], archiver: bool) -> None:
    reduced, full = (
        _outcomes(Model(*transactions, archiver=archiver)),
        _outcomes(Unreduced(*transactions, archiver=archiver)),
    )
    assert reduced == full and len(full) > 3


def _outcomes(model: Model) -> set[tuple[object, ...]]:
    """Of every reachable state: what stands in the slots, what callers were told, and which files there are; whoever it
    was.
    """
    seen, todo = {model.start()}, [model.start()]
    while todo:
        for _, state in model.steps(todo.pop()):
            if state not in seen:
                seen.add(state)
                todo.append(state)
    return {
        (
            tuple(entry.outcome for entry in s.slots),
            s.deleted,
            *map(len, (s.files, s.marked)),
            *sorted(p.told for p in s.processes),
        )
        for s in seen
    }
