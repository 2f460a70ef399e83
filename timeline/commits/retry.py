"""How often a unit of work is tried again that lost to another one, how long it waits before, and what counts as lost:
one value, for writes and for table services.
"""

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
class Retry:
    """times: retries after the first try. errors: after which it is tried again. spent: what is said when none is left,
    about what was done and what to do.
    """

    times: int = 20
    errors: tuple[type[Exception], ...] = (Conflict,)
    spent: str = "Nothing was changed. Try again."

    def run(self, environment: Environment, once: Callable[[], T]) -> T:
        """What `once` returns. Raises CommitConflict when the retries are spent, and whatever else `once` raises."""
        for retries in count():
            try:
                return once()
            except self.errors as problem:
                self.wait(environment, retries, problem)
        raise AssertionError("count() ends never")

    def wait(self, environment: Environment, retries: int, problem: Exception) -> None:
        """Wait before the next retry, after so many; those that lost together must not meet again. Raises
        CommitConflict when they are spent.
        """
        if retries >= self.times:
            raise CommitConflict(
                f"Other writers kept winning ({retries} retries; last: {problem}). {self.spent}", retries=retries
            )
        longest = min(_WAIT_MAX_S, _WAIT_S * 2 ** min(retries + 1, _DOUBLINGS))
        environment.sleep(longest * environment.fraction())


HOUSEKEEPING = Retry()
