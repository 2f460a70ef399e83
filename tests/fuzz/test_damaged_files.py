"""Damaged and forged files end in an error of ours or in their own rows: never in a crash, a hang, a flood of memory or
wrong rows (B1 to B3).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from figures import record
from tiers import sized

HERE = Path(__file__).parent
SUPPORT = str(HERE.parent / "support")
pytestmark = pytest.mark.sample
IN_SAMPLE = 20
"""Inputs of each kind in the gate; how many of so few are refused is left open."""


def hammered(kind: str, count: int, refused: float) -> dict[str, int]:
    """Read `count` damaged inputs of a kind in a process of its own; at least the share `refused` of them is."""
    count, refused = sized(count, count, sample=IN_SAMPLE), sized(refused, refused, sample=0.0)
    command = [sys.executable, "-W", "error", str(HERE / "hammer.py"), kind, "1", str(count)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": SUPPORT}, timeout=900
    )
    assert done.returncode == 0, f"{kind}: ended with {done.returncode}\n{done.stderr[-3000:]}"
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    record(f"B {kind}", **found)
    assert found["inputs"] == count and found.get("refused", 0) >= refused * count, found
    return found


@pytest.mark.parametrize("kind", ["logs", "foreign logs"])
def test_a_damaged_log_is_refused_or_read(kind: str) -> None:
    hammered(kind, 10_000, refused=0.09)


def test_a_log_that_a_slot_describes_is_never_read_when_it_is_damaged() -> None:
    hammered("checked logs", 10_000, refused=0.9)


@pytest.mark.parametrize(
    ("kind", "count"), [("slots", 8_000), ("checkpoints", 3_000), ("instants", 6_000), ("small files", 3_000)]
)
def test_damaged_or_forged_metadata_is_refused_by_name_or_means_what_it_says(kind: str, count: int) -> None:
    hammered(kind, count, refused=0.1)


def test_damage_to_a_base_file_gets_past_page_checksums_in_less_than_one_case_in_five_hundred() -> None:
    found = hammered("parquet", 5_000, refused=0.4)
    assert found.get("wrong rows", 0) <= found["inputs"] / 500


def test_damage_to_a_base_file_never_gets_past_its_digest() -> None:
    found = hammered("verified parquet", 5_000, refused=0.9)
    assert found.get("wrong rows", 0) == 0
