"""A process may be killed at any line, and in the commit itself at any bytecode: the table is as before or as after,
and heals itself (T2a, T2b).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from figures import record
from scenario import ACTIONS
from tiers import sized

HERE = Path(__file__).parent
EVERY_IN_SAMPLE = 10
SUPPORT = os.pathsep.join([str(HERE), str(HERE.parent / "support")])


def killed(what: str, name: str, folder: Path, *more: str) -> dict[str, int]:
    every = str(sized(1, 1, sample=EVERY_IN_SAMPLE))
    command = [sys.executable, "-W", "error", str(HERE / "killed_process.py"), what, name, str(folder), every, *more]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": SUPPORT}, timeout=1200
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def assert_reached(found: dict[str, int]) -> None:
    """Of the places all but a few, which are come to by chance, were come to again, and the process died there."""
    assert found["kills"] >= 0.9 * found["places"] > 0, found


@pytest.mark.sample
@pytest.mark.parametrize("name", ACTIONS)
def test_a_kill_at_any_line_leaves_the_table_before_or_after(fast_folder: Path, name: str) -> None:
    found = killed("lines", name, fast_folder)
    record(f"T2a {name}", **found)
    assert_reached(found)
    assert found["states"] > 3


@pytest.mark.parametrize("name", ["upsert", "archive"])
def test_a_kill_at_any_line_does_no_harm_where_slots_are_found_by_listing(fast_folder: Path, name: str) -> None:
    found = killed("lines", name, fast_folder, "s3")
    record(f"T2a-s3 {name}", **found)
    assert_reached(found)


@pytest.mark.parametrize("name", ["delete", "rollback"])
def test_a_kill_at_any_bytecode_of_the_commit_leaves_the_table_before_or_after(fast_folder: Path, name: str) -> None:
    found = killed("opcodes", name, fast_folder)
    record(f"T2b {name}", **found)
    assert_reached(found)
