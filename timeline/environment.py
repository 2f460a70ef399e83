"""Clock, randomness and sleep as arguments, so that the commit core runs inside a seeded simulator as well as in the
world.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _writer() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


@dataclass(frozen=True)
class Environment:
    """now_ms: ms since 1970 UTC; token: 128 random bits as 32 hex digits; fraction: uniform in [0, 1); sleep: seconds.

    elapsed: seconds since some moment, by a clock that is never set.
    """

    now_ms: Callable[[], int] = _now_ms
    token: Callable[[], str] = field(default=lambda: secrets.token_hex(16))
    fraction: Callable[[], float] = field(default=lambda: secrets.randbelow(1 << 30) / (1 << 30))
    sleep: Callable[[float], None] = time.sleep
    writer: Callable[[], str] = _writer
    elapsed: Callable[[], float] = time.monotonic


SYSTEM = Environment()
