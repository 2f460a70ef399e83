"""How fast a job may go: when its next batch may begin, and how large it may be.

A batch is planned from what the source has, and never waits for more. So a source that brings little all the time would
make a commit each time it is looked at; commits are kept apart instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from hoodoo.sources.source import Limits

_AT_ONCE_S = 10  # a batch has no more rows than may come in so many seconds, so that no wait is longer


@dataclass(frozen=True)
class Pace:
    """How fast a job may go.

    Attributes:
        min_seconds: So many seconds lie between the beginnings of two batches of a job that goes on.
        rows_per_second: At most so many rows come in a second, in the mean. None: as many as there are.
    """

    min_seconds: float = 0.0
    rows_per_second: float | None = None

    def limited(self, limits: Limits) -> Limits:
        """Bound a batch.

        Args:
            limits: How large it may be for other reasons.

        Returns:
            How large it may be.
        """
        if self.rows_per_second is None:
            return limits
        return replace(limits, rows=min(limits.rows, max(1, int(self.rows_per_second * _AT_ONCE_S))))

    def next(self, began: float, rows: int, goes_on: bool) -> float:
        """Tell when the next batch may begin.

        Args:
            began: When the last one did, in seconds of any clock.
            rows: How many rows it had.
            goes_on: Does the job go on when the source has nothing new?

        Returns:
            The moment, of the same clock.
        """
        apart = self.min_seconds if goes_on else 0.0
        return began + max(apart, rows / self.rows_per_second if self.rows_per_second else 0.0)


class Stopwatch:
    """How long each phase of a batch takes."""

    def __init__(self, clock: Callable[[], float], seconds: Mapping[str, float] | None = None) -> None:
        """Begin with the next phase. clock: seconds; seconds: how long each phase before it took."""
        self._last = clock()
        self.seconds = dict(seconds or {})
        self._clock = clock

    def ended(self, phase: str) -> None:
        """Note that a phase ends now, and that the next one begins."""
        now = self._clock()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._last
        self._last = now

    def waited(self, seconds: float) -> None:
        """Note that so much of the phase 'write' was spent waiting."""
        self.seconds["wait"] = seconds
        self.seconds["write"] = max(0.0, self.seconds.get("write", 0.0) - seconds)
