"""The real commit core in thousands of seeded worlds: whatever is interleaved, lost, late or killed, the invariants of
docs/protocol.md hold.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from figures import record
from simulation import DYING, SLOW, UNSURE, Scene, simulate
from tiers import sized

from hoodoo.timeline.views import checkpoint, checkpoint_pages, pages

# 160 seeds, others in the sample, or 3,000, in cases that workers share; make simulate SEEDS=0..10000 runs more
CASES, SEEDS, FIRST = 20, sized(8, 150), sized(0, 0, sample=3_000)
TWICE_EVERY = 20


@pytest.mark.both
@pytest.mark.sample
@pytest.mark.parametrize("case", range(CASES))
def test_no_seed_breaks_an_invariant_and_the_same_seed_gives_the_same_history(case: int) -> None:
    steps = slots = 0
    for seed in range(FIRST + case * SEEDS, FIRST + (case + 1) * SEEDS):
        outcome = simulate(seed)
        assert not outcome.violation, outcome.report()
        steps, slots = steps + outcome.steps, slots + outcome.slots
        if seed % TWICE_EVERY == 0:
            assert simulate(seed).digest == outcome.digest, f"seed {seed} gave two histories"
    record(f"T1 case {case}", seeds=SEEDS, store_operations=steps, slots=slots, violations=0)


@pytest.mark.deep  # hundreds of histories
def test_requests_that_are_asked_together_break_nothing_in_any_order() -> None:
    """Threads ask for the parts of a look, and for what follows a slot; the other histories ask in one order."""
    steps = slots = 0
    for seed in range(10 * SEEDS):
        outcome = simulate(seed, scene=Scene(shuffled=True))
        assert not outcome.violation, outcome.report()
        steps, slots = steps + outcome.steps, slots + outcome.slots
    record("T1 together", seeds=10 * SEEDS, store_operations=steps, slots=slots, violations=0)


CHANGING = (
    Scene(("alterer", "alterer", "reader", "consumer")),
    Scene(("alterer", "compactor", "compactor", "consumer"), SLOW),
    Scene(("alterer", "alterer", "clusterer", "merger", "cleaner")),
    Scene(("alterer", "keeper", "compactor", "reader", "archiver")),
    Scene(("alterer", "purger", "sweeper", "ender", "compactor")),
)


@pytest.mark.both
def test_columns_that_change_under_everybody_break_nothing() -> None:
    """Renames, additions, drops and wider types, beside writers, readers and every service: rows are the replay by ids,
    engines that go by names see the same, and no live file has another column's name.
    """
    steps = slots = changes = 0
    for seed in range(sized(40, 1_000)):
        outcome = simulate(seed, scene=CHANGING[seed % len(CHANGING)])
        assert not outcome.violation, outcome.report()
        steps, slots, changes = steps + outcome.steps, slots + outcome.slots, changes + outcome.schemas - 1
    assert changes
    record("T1 columns", seeds=seed + 1, store_operations=steps, slots=slots, schema_changes=changes, violations=0)


UPDATING = (
    Scene(("updater", "updater", "reader", "consumer"), SLOW),
    Scene(("updater", "updater", "compactor", "merger", "cleaner"), UNSURE),
    Scene(("updater", "keeper", "clusterer", "purger", "ender"), DYING),
)


@pytest.mark.both
def test_updates_of_some_columns_break_nothing() -> None:
    """Conditions and merges beside everybody else; in tables without an order the logs hold only what was set."""
    steps = slots = 0
    for seed in range(sized(18, 600)):
        outcome = simulate(seed, scene=UPDATING[seed % len(UPDATING)])
        assert not outcome.violation, outcome.report()
        steps, slots = steps + outcome.steps, slots + outcome.slots
    record("T1 updates", seeds=seed + 1, store_operations=steps, slots=slots, violations=0)


READING = (
    Scene(("ingester", "ingester", "ingester", "compactor", "cleaner"), SLOW),
    Scene(("ingester", "ingester", "ender", "archiver", "cleaner"), UNSURE),
    Scene(("ingester", "ingester", "ingester", "keeper", "sweeper"), DYING),
)


@pytest.mark.both
def test_each_message_of_a_source_is_in_one_commit_whoever_reads_it() -> None:
    """Several processes of one application, each with ranges of its own, which die and do not know what they did."""
    steps = slots = batches = 0
    for seed in range(sized(18, 600)):
        outcome = simulate(seed, scene=READING[seed % len(READING)])
        assert not outcome.violation, outcome.report()
        steps, slots, batches = steps + outcome.steps, slots + outcome.slots, batches + outcome.batches
    assert batches
    record("T1 sources", seeds=seed + 1, store_operations=steps, slots=slots, batches=batches, violations=0)


SLOWLY = (
    Scene(("slow_writer", "slow_writer", "busy_writer", "busy_writer"), SLOW, pleads_after=1),
    Scene(("slow_writer", "busy_writer", "sweeper", "cleaner"), UNSURE, pleads_after=1),
    Scene(("slow_writer", "slow_writer", "busy_writer", "compactor", "archiver"), UNSURE, pleads_after=1),
)


@pytest.mark.both
def test_writers_that_ask_for_a_turn_and_die_hold_nobody_up() -> None:
    """Slow requests beside quick ones: everybody ends, and whoever comes later waits for no one."""
    steps = slots = 0
    for seed in range(sized(30, 400)):
        outcome = simulate(seed, scene=SLOWLY[seed % len(SLOWLY)])
        assert not outcome.violation, outcome.report()
        steps, slots = steps + outcome.steps, slots + outcome.slots
    record("T1 pleas", seeds=seed + 1, store_operations=steps, slots=slots, violations=0)


@pytest.mark.both
def test_a_view_in_pages_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints of two files a page: cleans and archives take them while others work over their pages."""
    monkeypatch.setattr(checkpoint, "PAGED_FROM", 1)
    monkeypatch.setattr(checkpoint_pages, "_PAGE_FILES", 2)
    monkeypatch.setattr(checkpoint_pages, "_PAGE_SUPERSEDED", 2)
    monkeypatch.setattr(pages, "_KEPT", 1)
    steps = slots = 0
    for seed in range(sized(30, 400)):
        outcome = simulate(seed)
        assert not outcome.violation, outcome.report()
        steps, slots = steps + outcome.steps, slots + outcome.slots
    record("T1 pages", seeds=seed + 1, store_operations=steps, slots=slots, violations=0)


LISTED = (
    Scene(("lister", "compactor", "cleaner"), UNSURE, metadata_table=True),
    Scene(("lister", "lister", "keeper", "clusterer", "sweeper"), DYING, metadata_table=True),
    Scene(("purger", "cleaner", "ender"), SLOW, metadata_table=True),
)


@pytest.mark.both
def test_hudis_metadata_table_lists_what_is_published_whoever_publishes_it() -> None:
    """Helpers that finish one slot, deaths between any two steps, and Hudi's compactions in between."""
    steps = slots = 0
    for seed in range(sized(18, 600)):
        outcome = simulate(seed, scene=LISTED[seed % len(LISTED)])
        assert not outcome.violation, outcome.report()
        steps, slots = steps + outcome.steps, slots + outcome.slots
    record("T1 metadata table", seeds=seed + 1, store_operations=steps, slots=slots, violations=0)


EXPORTED = (
    Scene(("exporter", "exporter", "compactor", "cleaner")),
    Scene(("exporter", "exporter", "compactor", "cleaner"), UNSURE),
    Scene(("exporter", "exporter", "compactor", "keeper", "cleaner"), DYING),
    Scene(("exporter", "exporter", "clusterer", "merger", "archiver", "cleaner"), SLOW),
    Scene(("exporter", "alterer", "compactor", "ender", "sweeper")),
    Scene(("exporter", "exporter", "purger", "keeper", "compactor"), SLOW),
    Scene(("exporter", "exporter", "exporter", "archiver", "cleaner", "compactor"), UNSURE),
    Scene(("exporter", "exporter", "updater", "updater", "compactor"), SLOW),
)


@pytest.mark.both
def test_each_version_and_snapshot_of_an_export_shows_its_slot_whoever_comes_between() -> None:
    """Exporters beside writers, services, cleans, archives and each other, who die or wait before any request."""
    steps = slots = 0
    for seed in range(sized(32, 1_600)):
        scene = EXPORTED[seed % len(EXPORTED)]
        outcome = simulate(seed, scene=scene)
        assert not outcome.violation, outcome.report()
        if seed % TWICE_EVERY == 3:
            assert simulate(seed, scene=scene).digest == outcome.digest, f"seed {seed} gave two histories"
        steps, slots = steps + outcome.steps, slots + outcome.slots
    record("T1 exports", seeds=seed + 1, store_operations=steps, slots=slots, violations=0)


def test_a_seed_gives_the_same_history_in_every_process() -> None:
    """Sets are walked in another order in each process: nothing that reaches the store may follow it."""
    folder = Path(__file__).parent
    code = "import simulation; print(*(simulation.simulate(seed).digest for seed in range(200, 210)))"
    found = set()
    for hash_seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join([str(folder), str(folder.parent / "support")]),
        }
        found.add(
            subprocess.run(
                [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
            ).stdout
        )
    assert len(found) == 1
