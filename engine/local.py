"""Local engine, which runs tasks in threads.

Arrow releases the interpreter lock, so one file group per thread uses all cores.
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
    """Local engine, which runs tasks in threads.

    `map` returns results in the order of its items. It only returns, or raises the first error, after all running tasks
    have ended.
    """

    name = "local"
    remote = False

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or os.cpu_count() or 1

    def map(
        self, task: Callable[[T], R], items: Iterable[T], at_once: int | None = None, waiting: bool = False
    ) -> list[R]:
        """Run a task for each item in threads.

        Returns the results in order. `at_once` is the maximum number of concurrent tasks. `waiting` means that tasks
        need little memory and mostly wait for a server, so that more tasks run concurrently than there are cores.
        """
        max_threads = max(_WAITING, self.threads) if waiting else self.threads
        work, threads = list(items), min(max_threads, at_once or max_threads)
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
