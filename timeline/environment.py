"""Clock, randomness, sleep and what runs at the same time as arguments, so that the commit core runs inside a seeded
simulator as well as in the world.
"""

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


class Deferred(Generic[T]):
    """Work whose result is there once `together` has returned."""

    result: T

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work

    def __call__(self) -> None:
        self.result = self._work()


def in_order(works: Sequence[Callable[[], object]]) -> None:
    """One after the other, for stores that answer at once, and where each run has to be like the last."""
    for work in works:
        work()


def at_once(works: Sequence[Callable[[], object]]) -> None:
    """Each in a thread of its own, the last in this one. Ends when all have, and raises the first error in the order
    given. Threads, not a pool: a process that was forked has none of its parent's.
    """
    for first in range(0, len(works), _THREADS):
        _some_at_once(works[first : first + _THREADS])


def _some_at_once(works: Sequence[Callable[[], object]]) -> None:
    problems: dict[int, BaseException] = {}

    def run(number: int) -> None:
        try:
            works[number]()
        except BaseException as problem:  # raised by the caller's thread, whatever it is
            problems[number] = problem

    threads = [_started(partial(run, number)) for number in range(len(works) - 1)]
    run(len(works) - 1)
    for thread in threads:
        if thread:
            thread.join()
    if problems:
        raise problems[min(problems)]


def _started(work: Callable[[], None]) -> threading.Thread | None:
    """A thread that does it; where no more are to be had, as at the end of a process, it is done here and now."""
    thread = threading.Thread(target=work, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        work()
        return None
    return thread


@dataclass(frozen=True)
class Environment:
    """now_ms: ms since 1970 UTC; token: 128 random bits as 32 hex digits; fraction: uniform in [0, 1); sleep: seconds.

    elapsed: seconds since some moment, by a clock that is never set. together: does works that do not depend on each
    other, as far as it can at the same time.
    """

    now_ms: Callable[[], int] = _now_ms
    token: Callable[[], str] = field(default=lambda: secrets.token_hex(16))
    fraction: Callable[[], float] = field(default=lambda: secrets.randbelow(1 << 30) / (1 << 30))
    sleep: Callable[[float], None] = time.sleep
    writer: Callable[[], str] = _writer
    elapsed: Callable[[], float] = time.monotonic
    together: Together = at_once


SYSTEM = Environment()
