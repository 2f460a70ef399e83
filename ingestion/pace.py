"""Limits on the rate of a job: the time between commits, and the number of rows per second.

A batch never waits for more rows. A source that receives a few rows every second would therefore cause a commit every
second; a minimum time between commits prevents this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from hoodoo.sources.source import Limits

_AT_ONCE_S = 10  # a batch has at most the rows of 10 seconds, so that no wait between batches is longer


@dataclass(frozen=True)
class Pace:
    """Limits on the rate of a job.

    Attributes:
        min_seconds: Minimum time between the starts of two batches of a continuous job, in seconds.
        rows_per_second: Maximum average number of rows per second. None: no limit.
    """

    min_seconds: float = 0.0
    rows_per_second: float | None = None

    def limited(self, limits: Limits) -> Limits:
        """Reduce the limits of a batch to the rate.

        Args:
            limits: Limits of a batch.

        Returns:
            The limits with at most the rows of 10 seconds.
        """
        if self.rows_per_second is None:
            return limits
        return replace(limits, rows=min(limits.rows, max(1, int(self.rows_per_second * _AT_ONCE_S))))

    def next(self, began: float, rows: int, goes_on: bool) -> float:
        """Return the time at which the next batch may start.

        Args:
            began: Start of the last batch, in seconds of any clock.
            rows: Number of rows of the last batch.
            goes_on: True for a continuous job.

        Returns:
            The time, in seconds of the clock of `began`.
        """
        apart = self.min_seconds if goes_on else 0.0
        return began + max(apart, rows / self.rows_per_second if self.rows_per_second else 0.0)


class Stopwatch:
    """Stopwatch for the phases of a batch."""

    def __init__(self, clock: Callable[[], float], seconds: Mapping[str, float] | None = None) -> None:
        """Start a phase. clock: returns seconds; seconds: durations of earlier phases."""
        self._last = clock()
        self.seconds = dict(seconds or {})
        self._clock = clock

    def ended(self, phase: str) -> None:
        """End a phase and start the next phase."""
        now = self._clock()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._last
        self._last = now

    def waited(self, seconds: float) -> None:
        """Move seconds from the phase 'write' to the phase 'wait'."""
        self.seconds["wait"] = seconds
        self.seconds["write"] = max(0.0, self.seconds.get("write", 0.0) - seconds)
