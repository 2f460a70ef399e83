"""Protocol that all engines implement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Engine(Protocol):
    """Interface of an engine that runs tasks.

    The tasks run in parallel in threads or on Spark. `threads` is the estimated number of tasks that run concurrently.
    `remote` is True if tasks are pickled and run in other processes. `at_once` is the maximum number of concurrent
    tasks. `waiting` means that tasks need little memory and mostly wait for a server.
    """

    remote: bool
    threads: int

    def map(
        self, task: Callable[[Any], Any], items: Sequence[Any], at_once: int | None = None, waiting: bool = False
    ) -> list[Any]: ...
