"""Runs tasks in this process on threads: Arrow frees the interpreter lock, so one file group per thread uses every
core.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

_WAITING = 16
T = TypeVar("T")
R = TypeVar("R")


class LocalEngine:
    """map keeps the order of its items; it returns, or raises the first error, only when no task is
    running any more.
    """

    name = "local"
    remote = False

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or os.cpu_count() or 1

    def map(
        self, task: Callable[[T], R], items: Iterable[T], at_once: int | None = None, waiting: bool = False
    ) -> list[R]:
        """at_once: at most so many tasks run at a time. waiting: they hold little and wait for a server more than they
        work, so more of them run at a time than there are cores.
        """
        most = max(_WAITING, self.threads) if waiting else self.threads
        work, threads = list(items), min(most, at_once or most)
        if len(work) <= 1 or threads == 1:
            return [task(item) for item in work]
        with ThreadPoolExecutor(min(threads, len(work))) as pool:
            futures = [pool.submit(task, item) for item in work]
            try:
                return [future.result() for future in futures]
            except BaseException:
                for future in futures:
                    future.cancel()
                wait(futures)
                raise
