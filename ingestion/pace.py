"""Pace of an ingestion job, with its limits.

A batch never waits for more rows. A source that receives a few rows every second would therefore cause a commit every
second; a minimum time between commits prevents this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from hoodoo.sources.source import Limits

_AT_ONCE_S = 10  # a batch has at most the rows of 10 seconds, so that no wait between batches is longer


@dataclass(frozen=True)
class JobSpeedLimit:
    """Speed limit of an ingestion job.

    Attributes:
        min_seconds: Minimum time between the starts of two batches of a continuous job, in seconds.
        rows_per_second: Maximum average number of rows per second. None: no limit.
    """

    min_seconds: float = 0.0
    rows_per_second: float | None = None

    def limit_rows_by_rate(self, limits: Limits) -> Limits:
        if self.rows_per_second is None:
            return limits
        return replace(limits, rows=min(limits.rows, max(1, int(self.rows_per_second * _AT_ONCE_S))))

    def next(self, began: float, rows: int, goes_on: bool) -> float:
        """Compute the start time of the next batch.

        Args:
            began: Start of the last batch, in seconds of any clock.
            rows: Number of rows of the last batch.
            goes_on: True for a continuous job.

        Returns:
            The time, in seconds of the same clock as `began`.
        """
        min_seconds = self.min_seconds if goes_on else 0.0
        return began + max(min_seconds, rows / self.rows_per_second if self.rows_per_second else 0.0)


class Stopwatch:
    """Stopwatch for the phases of a batch."""

    def __init__(self, clock: Callable[[], float], seconds: Mapping[str, float] | None = None) -> None:
        self._last = clock()
        self.seconds = dict(seconds or {})
        self._clock = clock

    def ended(self, phase: str) -> None:
        now = self._clock()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._last
        self._last = now

    def waited(self, seconds: float) -> None:
        self.seconds["wait"] = seconds
        self.seconds["write"] = max(0.0, self.seconds.get("write", 0.0) - seconds)
