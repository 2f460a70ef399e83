"""Random chains of changes of columns, writes, services and restores: every read agrees with a model that knows ids."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from column_machine import ColumnMachine

KINDS = ("merge_on_read", "copy_on_write")
CPU_S = 360


def run(path: Path, kind: str, seed: int, steps: int) -> None:
    machine = ColumnMachine(path, kind, seed % 2 == 0, seed)
    try:
        for number in range(steps):
            machine.step()
            machine.check()
            if number % 4 == 3:
                machine.check_with_hudi()
        machine.verify()
    except BaseException:
        print(f"seed {seed}, {kind}, after {machine.done}")
        raise


@pytest.mark.parametrize("seed", [8, 23])
@pytest.mark.parametrize("kind", KINDS)
def test_every_read_of_a_table_whose_columns_change_at_random_agrees_with_a_model_that_knows_ids(
    tmp_path: Path, kind: str, seed: int
) -> None:
    run(tmp_path / "t", kind, seed, 14)


@pytest.mark.deep
def test_random_changes_for_six_minutes_of_this_processor(tmp_path: Path) -> None:
    seed, begun = random.SystemRandom().randrange(1 << 30), time.process_time()
    while time.process_time() - begun < CPU_S:
        seed += 1
        run(tmp_path / str(seed), KINDS[seed // 2 % 2], seed, 30)
