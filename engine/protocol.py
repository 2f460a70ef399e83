"""What runs tasks, as its callers know it: threads of this process (local.py), or Spark (spark.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Engine(Protocol):
    """Runs tasks; `threads` of them at a time, as far as it knows. remote: in other processes, to which tasks are
    pickled. at_once: at most so many tasks run at a time. waiting: they hold little and wait for a server more than
    they work.
    """

    remote: bool
    threads: int

    def map(
        self, task: Callable[[Any], Any], items: Sequence[Any], at_once: int | None = None, waiting: bool = False
    ) -> list[Any]: ...
