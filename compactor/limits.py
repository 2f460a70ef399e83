"""Limits of what a table service takes of the machine: memory, bytes per second, file groups at a time.

Services ask `Pace` as they work; it knows nothing of what they do. It also tells them to stop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hoodoo.arguments import number_from
from hoodoo.errors import OptionError

_SLICE_S = 0.2  # how often somebody who waits looks whether to stop
_BURST_S = 0.5  # what may be spent before the first wait


class Stopped(Exception):
    """The service was told to stop between two steps of its work. Never leaves the package."""


def never() -> bool:
    """Return False: a service that nobody stops asks this."""
    return False


@dataclass(frozen=True)
class Limits:
    """What table services take of the machine at most.

    Attributes:
        memory_bytes: How much memory, in bytes, all file groups in work take together, at least 1 MiB. Default 1 GiB.
        bytes_per_second: How many bytes one process or one Spark job reads and writes per second at most. None
            (default): no limit.
        groups_at_once: How many file groups are in work at a time at most. None (default): one per core.
    """

    memory_bytes: int = 1 << 30
    bytes_per_second: float | None = None
    groups_at_once: int | None = None

    def __post_init__(self) -> None:
        number_from("memory_bytes", self.memory_bytes, 1, whole=True, optional=False)
        if self.memory_bytes < 1 << 20:
            raise OptionError(f"memory_bytes takes at least 1 MiB, got {self.memory_bytes!r}.", option="memory_bytes")
        number_from("bytes_per_second", self.bytes_per_second, 0)
        if self.bytes_per_second == 0:
            raise OptionError("bytes_per_second takes a positive number, got 0.", option="bytes_per_second")
        number_from("groups_at_once", self.groups_at_once, 1, whole=True)

    def at_once(self, engine: int) -> int:
        """Say how many file groups are in work together on an engine that runs `engine` tasks at a time."""
        return min(engine, self.groups_at_once or engine)


class Pace:
    """Slows down and stops the tasks of a process.

    They share it: it makes them wait where they are faster than the limit, and ends them when `stopped` says so.
    Unpickled in another process it holds a share of the rate, because tasks in other processes cannot ask each other.
    """

    def __init__(
        self, bytes_per_second: float | None = None, stopped: Callable[[], bool] = never, shares: int = 1
    ) -> None:
        self._rate, self._stopped, self._shares = bytes_per_second, stopped, shares
        self._lock = threading.Lock()
        self._free_at = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        return Pace, (self._rate / self._shares if self._rate else None,)

    def spend(self, amount: int) -> None:
        """Say that `amount` bytes were read or written, and wait until that fits the rate.

        Raises:
            Stopped: The service was told to stop.
        """
        if self._stopped():
            raise Stopped
        if not self._rate:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now - _BURST_S) + amount / self._rate
            until = self._free_at
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE_S))
            if self._stopped():
                raise Stopped
