"""Processes are killed with SIGKILL at any moment, on a disk and on an S3 server that fails often: no acknowledged
commit is lost, no other appears.

HOODOO_SECONDS makes it longer: `make kill-loop SECONDS=600`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import kill_loop
import pyarrow as pa
import pytest
import seaweed
from actors import SCHEMA, Notes, Place, apply
from fault_proxy import Rates, proxy
from figures import record
from kill_loop import Outcome
from replay import Judge
from tiers import sized

import hoodoo

FAULTS = ("dropped", "reset", "unavailable", "slow_down", "truncated")
SECONDS = float(os.environ.get("HOODOO_SECONDS", sized(10, 60)))


def check(name: str, outcome: Outcome) -> None:
    """No violation; how much happened, and how soon, is recorded."""
    record(name, **outcome.figures())
    assert not outcome.violations, "\n".join(outcome.violations)


@pytest.mark.both
def test_on_a_disk_a_kill_every_200_ms_loses_nothing(tmp_path: Path) -> None:
    outcome = kill_loop.run(tmp_path, SECONDS, 0.2, wanted=kill_loop.EACH | kill_loop.SERVICES)
    check("T3a kill loop", outcome)
    for slots in ("COMPACT, completed", "CLEAN, completed", "ROLLBACK, rolled_back"):
        assert outcome.counts[f"slots: {slots}"] > 0


@pytest.mark.both
@pytest.mark.xdist_group("s3")
def test_on_s3_lost_requests_lost_replies_and_kills_lose_nothing(s3: dict[str, Any], tmp_path: Path) -> None:
    with proxy(int(s3["endpoint"].rpartition(":")[2]), seed=4, rates=Rates()) as between:
        through = s3 | {"endpoint": f"http://127.0.0.1:{between.port}"}
        path = f"{seaweed.place()}/t"
        outcome = kill_loop.run(
            tmp_path,
            SECONDS,
            2.5,
            path=path,
            storage=through,
            direct=s3,
            dead_after_s=20,
            also=lambda: [fault for fault in FAULTS if not between.counts[fault]],
        )
        outcome.counts.update({f"proxy: {what}": count for what, count in between.counts.items()})
    check("T4a kill loop on S3", outcome)


# ---- the judge is not blind
@pytest.fixture
def judged(tmp_path: Path) -> Judge:
    """A small table, and notes that fit it."""
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="part", order_by="ts")
    (tmp_path / "notes").mkdir()
    notes = Notes(Place(table.path, tmp_path / "notes", 0), "writer")
    for number in range(3):
        rows = [{"id": number, "part": "p0", "ts": 1, "value": str(number)}]
        notes.note(begin=number, kind="upsert", rows=rows)
        result = apply(table, "upsert", rows, ("writer", number))
        notes.note(ok=number, instant=result.instant, slot=result.cursor.seq, retries=0, seconds=0.1)
    judge = Judge(table, tmp_path / "notes")
    assert judge.run().violations == []
    return Judge(table, tmp_path / "notes")


@pytest.mark.parametrize(
    ("note", "found"),
    [
        ({"ok": 9, "instant": "x", "slot": 2, "retries": 0, "seconds": 1}, "its batch is not there"),
        ({"ok": 1, "instant": "x", "slot": 3, "retries": 0, "seconds": 1}, "its batch is not there"),
        ({"failed": 1, "code": "STORE_UNAVAILABLE", "text": ""}, "but it is committed"),
        ({"failed": 9, "code": "CORRUPT_TABLE", "text": ""}, "in a way it must not"),
        ({"resolved": 1, "committed": False}, "resolved its unknown commit wrongly"),
        ({"resolved": 9, "committed": True}, "resolved its unknown commit wrongly"),
        ({"slot": 3, "rows": "ff"}, "read other rows"),
        ({"since": 1, "until": 3, "rows": "ff"}, "read other rows"),
        ({"error": "Traceback"}, "Traceback"),
    ],
)
def test_the_judge_finds_what_does_not_fit(judged: Judge, note: dict[str, Any], found: str) -> None:
    judged.notes.append(("writer", note))
    assert any(found in violation for violation in judged.run().violations)


def test_the_judge_finds_a_write_that_nobody_began_and_rows_that_no_batch_explains(judged: Judge) -> None:
    judged.table.upsert(pa.table({"id": [7], "part": ["p1"], "ts": [1], "value": ["?"]}))
    first, second = judged.run().violations
    assert "that nobody began" in first and "differs from the replay" in second
