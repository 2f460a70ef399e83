"""Tasks in this process: in order, so many at a time, and nothing runs on once `map` has raised."""

from __future__ import annotations

import threading
import time

import pytest
from patience import PATIENCE_S

from hoodoo.engine.local import LocalEngine


def test_results_come_in_the_order_of_the_items() -> None:
    def late_first(number: int) -> int:
        time.sleep(0.05 if number == 0 else 0)
        return number * 2

    assert LocalEngine(4).map(late_first, range(6)) == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize(("threads", "at_once", "most"), [(4, None, 4), (4, 2, 2), (2, 8, 2), (1, None, 1)])
def test_no_more_run_at_a_time_than_were_asked_for(threads: int, at_once: int | None, most: int) -> None:
    running, seen, lock = 0, 0, threading.Lock()

    def task(_: int) -> None:
        nonlocal running, seen
        with lock:
            running += 1
            seen = max(seen, running)
        time.sleep(0.02)
        with lock:
            running -= 1

    LocalEngine(threads).map(task, range(12), at_once)
    assert 1 <= seen <= most


def test_the_first_error_is_raised_when_no_task_is_running_any_more() -> None:
    ended, started, raising = list[int](), threading.Event(), threading.Event()

    def task(number: int) -> None:
        if number == 0:
            assert started.wait(PATIENCE_S)
            raising.set()
            raise ValueError("first")
        started.set()
        assert raising.wait(PATIENCE_S)
        time.sleep(0.1)
        ended.append(number)

    with pytest.raises(ValueError, match="first"):
        LocalEngine(2).map(task, range(50))
    after = list(ended)
    time.sleep(0.3)
    assert ended == after and len(ended) < 49, "tasks that had not begun are given up, those that had are waited for"


def test_one_item_runs_in_the_callers_thread() -> None:
    assert LocalEngine(4).map(lambda _: threading.get_ident(), [1]) == [threading.get_ident()]
