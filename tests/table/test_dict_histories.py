"""Random sequences of all operations and services equal a dict from (partition, key) to newest record, after every
step.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from table_machine import Machine
from tiers import sized

import hoodoo

CASES = [
    (kind, key, partition, order)
    for kind in ("merge_on_read", "copy_on_write")
    for key in (("a",), ("a", "b"))
    for partition in ((), ("city",), ("city", "b"))
    for order in ("ts", None)
] + [
    (kind, ("a",), partition, ("ts", "b"))
    for kind in ("merge_on_read", "copy_on_write")
    for partition in ((), ("city",))
]
STEPS = int(os.environ.get("HOODOO_MODEL_STEPS", sized(24, 40)))
SEEDS = int(os.environ.get("HOODOO_MODEL_SEEDS", sized(1, 4)))
HUDI_EVERY = 5


@pytest.mark.both
@pytest.mark.parametrize(
    ("kind", "key", "partition", "order"),
    CASES,
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else str(value),
)
def test_any_sequence_of_operations_gives_the_rows_of_a_dict(
    tmp_path: Path, kind: str, key: tuple[str, ...], partition: tuple[str, ...], order: str | tuple[str, ...] | None
) -> None:
    for seed in range(SEEDS):
        machine = Machine(tmp_path / str(seed), kind, key, partition, order, seed)
        for number in range(STEPS):
            machine.step()
            machine.check()
            if number % HUDI_EVERY == 0:
                machine.check_with_hudi()
        assert machine.table.verify().problems == []
        reopened = hoodoo.open(tmp_path / str(seed))
        assert machine.found(reopened.scan()) == machine.want(machine.model.rows)
