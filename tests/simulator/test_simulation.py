"""The real commit core in thousands of seeded worlds: whatever is interleaved, lost, late or killed, the invariants of docs/protocol.md hold."""

from __future__ import annotations

import pytest
from simulation import simulate

CASES, SEEDS = 20, 500  # 10,000 seeds, in cases that workers share
TWICE_EVERY = 20


@pytest.mark.parametrize("case", range(CASES))
def test_no_seed_breaks_an_invariant_and_the_same_seed_gives_the_same_history(case: int) -> None:
    for seed in range(case * SEEDS, (case + 1) * SEEDS):
        outcome = simulate(seed)
        assert not outcome.violation, outcome.report()
        if seed % TWICE_EVERY == 0:
            assert simulate(seed).digest == outcome.digest, f"seed {seed} gave two histories"
