"""Retries of commits after conflicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from hoodoo.errors import CommitConflict
from hoodoo.timeline.commits.draft import Conflict
from hoodoo.timeline.environment import Environment

T = TypeVar("T")
_WAIT_S, _WAIT_MAX_S, _DOUBLINGS = 0.005, 1.0, 8


@dataclass(frozen=True)
class RetrySettings:
    """Settings for retries: their number and waiting times.

    Attributes:
        times: Maximum number of retries after the first attempt. Default 20.
        errors: The exceptions that are retried. Default: Conflict.
        spent: The end of the error message when the retries are exhausted: the state of the table and the remedy.
    """

    times: int = 20
    errors: tuple[type[Exception], ...] = (Conflict,)
    spent: str = "Nothing was changed. Try again."

    def run(self, environment: Environment, once: Callable[[], T]) -> T:
        for retries in count():
            try:
                return once()
            except self.errors as problem:
                self.wait(environment, retries, problem)
        raise AssertionError("unreachable")

    def wait(self, environment: Environment, retries: int, problem: Exception) -> None:
        if retries >= self.times:
            raise CommitConflict(
                f"Commit failed after {retries} retries, because other writers committed first. Last conflict: "
                f"{str(problem).rstrip('.')}. {self.spent}",
                retries=retries,
            )
        longest = min(_WAIT_MAX_S, _WAIT_S * 2 ** min(retries + 1, _DOUBLINGS))
        environment.sleep(longest * environment.fraction())


HOUSEKEEPING = RetrySettings()
