"""Waiting for a state instead of sleeping for a time, with a patience of minutes: a loaded machine is no failure.

Knows nothing of tables; what is waited for is the caller's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_S = 240.0
"""Longer than anything here takes on a machine at a tenth of its speed, shorter than a test's timeout."""


class NotInTime(Exception):
    """What was waited for did not happen within the patience: of a machine, perhaps, and no wrong answer."""


def wait_for(condition: Callable[[], T], what: str, patience_seconds: float = PATIENCE_S) -> T:
    """Wait until `condition()` is true.

    Args:
        condition: asked every 20 ms.
        what: names the state in the error.
        patience_seconds: seconds to wait at most.

    Returns:
        The first true value of `condition()`.

    Raises:
        NotInTime: the patience ran out.
    """
    end = time.monotonic() + patience_seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise NotInTime(f"{what} did not happen within {patience_seconds:.0f} s")
        time.sleep(0.02)
    return value
