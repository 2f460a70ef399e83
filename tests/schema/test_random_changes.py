"""Random chains of changes of columns, writes, services and restores: every read agrees with a model that knows ids.

HOODOO_SCHEMA_SEEDS=1000..2000 runs other chains than the usual ones.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from column_machine import ColumnMachine

KINDS = ("merge_on_read", "copy_on_write")
FIRST, END = map(int, os.environ.get("HOODOO_SCHEMA_SEEDS", "1000..1060").split(".."))


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
@pytest.mark.parametrize("seed", range(FIRST, END))
def test_longer_chains_agree_with_it_too(tmp_path: Path, seed: int) -> None:
    run(tmp_path / "t", KINDS[seed // 2 % 2], seed, 30)
