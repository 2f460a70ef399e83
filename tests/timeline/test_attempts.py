"""The unit of work: what an attempt leaves behind however it ends, and how often it is tried again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from worker_tables import batch, table_of

import hoodoo
from hoodoo.compactor.compaction import plans
from hoodoo.errors import CommitConflict, CommitUnknown, StoreUnavailable
from hoodoo.timeline.commits.draft import Conflict, SlotDraft
from hoodoo.timeline.commits.retry import RetrySettings
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.instant import CLEAN, DELTA_COMMIT
from hoodoo.timeline.layout import CLAIMS


def files_of(table: hoodoo.Table) -> set[str]:
    return {key for key, _ in table.handle.store.list("") if not key.startswith(CLAIMS)}


def fails(problem: BaseException) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise problem

    return fail


@pytest.mark.parametrize("problem", [Conflict("somebody was faster"), KeyboardInterrupt(), RuntimeError("a bug")])
def test_an_attempt_whose_body_raises_leaves_nothing_but_its_claim(tmp_path: Path, problem: BaseException) -> None:
    table = table_of(tmp_path / "t")
    before = files_of(table)
    with pytest.raises(type(problem)), table.handle.timeline.attempt(DELTA_COMMIT) as attempt:
        attempt.register(["part=0/half a file", "part=0/never written"])
        attempt.mark("part=0/half a file", "CREATE")
        table.handle.store.put("part=0/half a file", b"...")
        assert len(files_of(table) - before) == 4  # with requested, inflight and the marker
        raise problem
    assert files_of(table) == before


def test_an_attempt_that_ends_without_a_slot_is_abandoned_and_one_with_a_slot_is_not(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    before = files_of(table)
    with table.handle.timeline.attempt(DELTA_COMMIT) as attempt:
        pass
    assert attempt.slot is None and files_of(table) == before
    with table.handle.timeline.attempt(DELTA_COMMIT) as attempt:
        attempt.register(["part=0/kept"])
        table.handle.store.put("part=0/kept", b"...")
        slot = attempt.complete(SlotDraft("UPSERT"))
    assert attempt.slot == slot and "part=0/kept" in files_of(table)


def test_an_attempt_whose_slot_may_exist_deletes_nothing(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", commit_timeout_seconds=0.01)
    put, get = table.handle.store.put_if_absent, table.handle.store.get

    def lost(key: str, data: bytes, durable: bool = True) -> None:
        put(key, data, durable)
        if "/commits/" in key:
            table.handle.store.get = fails(StoreUnavailable("away"))  # type: ignore[method-assign]
            raise StoreUnavailable("no answer")

    table.handle.store.put_if_absent = lost  # type: ignore[method-assign,assignment]
    with pytest.raises(CommitUnknown) as unknown, table.handle.timeline.attempt(DELTA_COMMIT) as attempt:
        attempt.register(["part=0/kept"])
        table.handle.store.put("part=0/kept", b"...")
        attempt.complete(SlotDraft("UPSERT"))
    table.handle.store.put_if_absent, table.handle.store.get = put, get  # type: ignore[method-assign]
    assert "part=0/kept" in files_of(table) and unknown.value.resolve()


def test_a_slot_that_was_not_to_be_had_asks_nothing_of_the_store_afterwards(tmp_path: Path) -> None:
    """Actions that publish nothing before their slot have nothing to take away."""
    table = table_of(tmp_path / "t")
    with pytest.raises(Conflict), table.handle.timeline.attempt(CLEAN) as attempt:
        table.handle.store.delete = fails(AssertionError("asked"))  # type: ignore[method-assign]
        attempt.complete(lambda view: None)


def test_what_a_plans_attempt_wrote_stays_for_whoever_runs_the_plan_next(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    for ts in range(2):
        table.upsert(batch(np.arange(10), ts))
    plan = plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    assert plan
    with pytest.raises(RuntimeError), table.handle.timeline.resume_compaction(plan):
        table.handle.store.put("part=0/output", b"...")
        raise RuntimeError("the worker was out of memory")
    assert "part=0/output" in files_of(table)
    assert plans.run_compaction_plan(table.handle.context(), plan).groups == 2


def test_a_unit_of_work_is_tried_as_often_as_its_policy_says_with_longer_and_longer_waits() -> None:
    """Five loops had four bounds, three of them tried again at once, into the arms of whom they had just lost to."""
    slept: list[float] = []
    environment = Environment(sleep=slept.append, fraction=lambda: 0.5)
    tried: list[int] = []

    def once() -> None:
        tried.append(1)
        raise Conflict(f"writer {len(tried)} was faster")

    with pytest.raises(
        CommitConflict, match="3 retries, .* Last conflict: writer 4 was faster.*Nothing of it"
    ) as problem:
        RetrySettings(3, spent="Nothing of it was done.").run(environment, once)
    assert len(tried) == 4 and problem.value.details["retries"] == 3
    assert slept == [0.005, 0.01, 0.02]
    slept.clear()
    with pytest.raises(CommitConflict):
        RetrySettings(30).run(environment, once)
    assert max(slept) == 0.5


def test_only_the_errors_of_the_policy_are_tried_again() -> None:
    tried: list[int] = []

    def once() -> int:
        tried.append(1)
        raise KeyError("not lost to anybody")

    with pytest.raises(KeyError):
        RetrySettings().run(Environment(), once)
    assert len(tried) == 1
