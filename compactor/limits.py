"""Resource limits of table services.

They limit memory, bytes per second, and concurrent file groups. Services call `RateLimiter` while they work. It slows
them down, and stops them if necessary.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hoodoo.arguments import check_number
from hoodoo.sizes import convert_size_argument

_SLICE_S = 0.2  # interval at which a waiting task checks whether to stop
_BURST_S = 0.5  # seconds of the byte rate that can be used before the first wait


class ServiceStopped(Exception):
    """Internal exception for a table service that has to stop."""


def never() -> bool:
    return False


@dataclass(frozen=True)
class ServiceLimits:
    """Resource limits of table services.

    Attributes:
        memory_bytes: Memory for all file groups that are processed at the same time, in bytes or as a size such as
            '2GB', at least 1 MiB. Default 1 GiB.
        bytes_per_second: Maximum rate at which one process or one Spark job reads and writes, in bytes per second or as
            a size such as '50MB'. None (default): no limit.
        groups_at_once: Maximum number of concurrent file groups. None (default): one per core.
    """

    memory_bytes: int = 1 << 30
    bytes_per_second: float | None = None
    groups_at_once: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory_bytes", convert_size_argument("memory_bytes", self.memory_bytes, 1 << 20))
        if self.bytes_per_second is not None:
            object.__setattr__(
                self, "bytes_per_second", convert_size_argument("bytes_per_second", self.bytes_per_second)
            )
        check_number("groups_at_once", self.groups_at_once, 1, whole=True)

    def at_once(self, engine: int) -> int:
        return min(engine, self.groups_at_once or engine)


class RateLimiter:
    """Limiter of the rate at which files are read and written.

    It also stops the tasks. The tasks of a process share one instance. It makes them wait if they exceed the rate, and
    raises Stopped if `stopped` returns True. An unpickled copy in another process gets a share of the rate, because
    processes do not coordinate.
    """

    def __init__(
        self, bytes_per_second: float | None = None, stopped: Callable[[], bool] = never, shares: int = 1
    ) -> None:
        self._rate, self._stopped, self._shares = bytes_per_second, stopped, shares
        self._lock = threading.Lock()
        self._free_at = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        return RateLimiter, (self._rate / self._shares if self._rate else None,)

    def count_bytes(self, amount: int) -> None:
        """Count bytes that were read or written.

        Waits while the rate is exceeded.

        Raises:
            Stopped: The service has to stop.
        """
        if self._stopped():
            raise ServiceStopped
        if not self._rate:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now - _BURST_S) + amount / self._rate
            until = self._free_at
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE_S))
            if self._stopped():
                raise ServiceStopped
