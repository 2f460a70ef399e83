"""A crash during the recovery from a crash: every pair of store operations of every operation (T2d)."""

from __future__ import annotations

import pytest
from figures import record
from memory_store import Died, MemoryStore
from scenario import ACTIONS, Clock, build, contents, opened, require_recovery, rows, value_of, with_row

from hoodoo.table import Table


def recover(table: Table) -> None:
    """What brings a table in order: a write, a clean, a sweep."""
    table.upsert(rows(("r", "n", 1), value=value_of(table)))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    table.maintenance.sweep(0)


@pytest.mark.parametrize("name", ACTIONS)
def test_a_crash_in_the_recovery_of_a_crash_loses_nothing(name: str) -> None:
    clock = Clock()
    start = MemoryStore(at_ms=clock.ms)
    build(start, clock)
    began = clock.ms
    before = contents(opened(MemoryStore(start.data), Clock(began)))
    done = MemoryStore(start.data)
    ACTIONS[name](opened(done, Clock(began)))
    after = contents(opened(done, Clock(began)))
    with_r = [with_row(found, ("r", "n", 1)) for found in (before, after)]
    states: dict[int, dict[str, bytes]] = {}
    pairs, first = 0, 0
    while True:
        first += 1
        crashed = MemoryStore(start.data)
        crashed.fault = lambda number, operation, key, at=first: "die after" if number == at else None
        try:
            ACTIONS[name](opened(crashed, Clock(began)))
            break
        except Died:
            states[first] = crashed.data
    for data in states.values():
        second, finished = 0, False
        while not finished:
            second += 1
            again = MemoryStore(data)
            again.fault = lambda number, operation, key, at=second: "die after" if number == at else None
            try:
                recover(opened(again, Clock(began + 1_000)))
                finished = True
            except Died:
                pairs += 1
            if second % 4 == 1 or finished:  # the whole check after some, what readers see after all
                require_recovery(MemoryStore(again.data), Clock(began + 5_000), [before, after, *with_r], name)
            else:
                assert contents(opened(MemoryStore(again.data), Clock(began + 5_000))) in [before, after, *with_r]
    record(f"T2d {name}", steps=len(states), pairs=pairs)
    assert pairs >= 40
