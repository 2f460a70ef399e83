"""Environment of a table: clock, random numbers and threads."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")
Together = Callable[[Sequence[Callable[[], object]]], None]
_THREADS = 16


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _writer() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


class ResultHolder(Generic[T]):
    """Holder of a function's result, for use as a thread task."""

    result: T

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work

    def __call__(self) -> None:
        self.result = self._work()


def in_order(works: Sequence[Callable[[], object]]) -> None:
    for work in works:
        work()


def run_concurrently(works: Sequence[Callable[[], object]]) -> None:
    """Run tasks concurrently in threads.

    Returns when all tasks have ended. If several tasks fail, the error of the first one in `works` is raised. At most
    16 tasks run at a time. Threads are used instead of a pool, because a forked process does not have the threads of
    its parent.
    """
    for first in range(0, len(works), _THREADS):
        _some_at_once(works[first : first + _THREADS])


def _some_at_once(works: Sequence[Callable[[], object]]) -> None:
    problems: dict[int, BaseException] = {}

    def run(number: int) -> None:
        try:
            works[number]()
        except BaseException as problem:  # the caller's thread raises it
            problems[number] = problem

    threads = [_start_thread(partial(run, number)) for number in range(len(works) - 1)]
    run(len(works) - 1)
    for thread in threads:
        if thread:
            thread.join()
    if problems:
        raise problems[min(problems)]


def _start_thread(work: Callable[[], None]) -> threading.Thread | None:
    # If no thread can be started, as at process exit, `work` runs in the current thread.
    thread = threading.Thread(target=work, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        work()
        return None
    return thread


@dataclass(frozen=True)
class Environment:
    """Environment of a table: clock, random numbers and threads.

    Attributes:
        now_ms: Returns the time in ms since 1970 UTC.
        token: Returns 128 random bits as 32 hex digits.
        fraction: Returns a uniform random number in [0, 1).
        sleep: Sleeps for a number of seconds.
        writer: Returns the name of this process.
        elapsed: Returns the seconds of a monotonic clock.
        together: Runs independent tasks, concurrently if possible.
    """

    now_ms: Callable[[], int] = _now_ms
    token: Callable[[], str] = field(default=lambda: secrets.token_hex(16))
    fraction: Callable[[], float] = field(default=lambda: secrets.randbelow(1 << 30) / (1 << 30))
    sleep: Callable[[float], None] = time.sleep
    writer: Callable[[], str] = _writer
    elapsed: Callable[[], float] = time.monotonic
    together: Together = run_concurrently


SYSTEM = Environment()
