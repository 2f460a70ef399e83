"""Interface of an engine that runs tasks: threads of this process (local.py), or Spark (spark.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Engine(Protocol):
    """Interface that runs tasks, `threads` of them at a time, as far as known.

    `remote` is True if tasks are pickled and run in other processes. `at_once` is the maximum number of concurrent
    tasks. `waiting` means that tasks need little memory and mostly wait for a server.
    """

    remote: bool
    threads: int

    def map(
        self, task: Callable[[Any], Any], items: Sequence[Any], at_once: int | None = None, waiting: bool = False
    ) -> list[Any]: ...
