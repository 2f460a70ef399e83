"""Scheduler for several ingestion jobs.

It runs them in one thread, one batch each at a time. A job with new rows gets its next turn at once, and a job without
new rows after a pause. If the store or the source does not respond, or the store is full, the job retries with
exponential backoff.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from hoodoo.compactor.service_log import log_event, log_failure
from hoodoo.errors import CommitConflict, HoodooError, SourceLost, StoreFull, TryAgainError
from hoodoo.ingestion.pace import JobSpeedLimit
from hoodoo.ingestion.report import BatchReport, IngestReport
from hoodoo.sources.source import SourceLag
from hoodoo.table import Table

RACES_MAX = 30  # if three processes are equally fast, none loses this many races in a row
_TRIES = 5
_WAIT_MAX_S = 30.0
_LAG_EVERY_S = 10.0
log = logging.getLogger("hoodoo.ingest")
EachBatch = Callable[[BatchReport], None]


class SchedulableJob(Protocol):
    """Interface of a job that the scheduler runs."""

    name: str
    table: Table
    report: IngestReport
    pace: JobSpeedLimit
    lag: SourceLag | None
    quarantined: int | None
    fine: bool

    def take(self, goes_on: bool = False) -> BatchReport | None: ...

    def measure_lag(self) -> None: ...

    def count(self, lost_races: int = 0, retries: int = 0) -> None: ...

    def ended(self) -> None: ...


class ScheduledJob:
    """Ingestion job with the time of its next batch.

    Attributes:
        job: The job.
        due: Time of the job's next turn, in seconds of `time.monotonic`.
        over: True after the job's last turn.
    """

    def __init__(
        self,
        job: SchedulableJob,
        once: bool,
        poll_seconds: float,
        each_batch: EachBatch | None = None,
        measure_lag: bool = False,
    ) -> None:
        self.job, self.due, self.over = job, 0.0, False
        self._once, self._poll_seconds, self._each_batch, self._measure_lag = (
            once,
            poll_seconds,
            each_batch,
            measure_lag,
        )
        self._failed = self._lost = 0
        self._measured = float("-inf")

    def take(self) -> None:
        """Run one batch and schedule the next."""
        began = time.monotonic()
        try:
            batch = self.job.take(not self._once)
        except CommitConflict as problem:
            self._handle_lost_race(problem, began)
            return
        except (TryAgainError, StoreFull) as problem:  # an operator can free space without restarting the job
            self._fail(problem)
            return
        except BaseException:
            self.job.fine = False
            raise
        if self._failed:
            log_event(logging.INFO, "responds again", to=log, job=self.job.name)
        self._failed = self._lost = 0
        self.job.fine = True
        self._record_lag()
        if batch is None:
            self.over, self.due = self._once, time.monotonic() + self._poll_seconds
            return
        self.due = self.job.pace.next(began, batch.rows, not self._once)
        if self._each_batch is not None:
            self._each_batch(batch)

    def _record_lag(self) -> None:
        # The lag is measured at most every 10 seconds. The batch stays committed if the source fails.
        if self._measure_lag and time.monotonic() - self._measured >= _LAG_EVERY_S:
            self._measured = time.monotonic()
            try:
                self.job.measure_lag()
            except (TryAgainError, SourceLost):
                self.job.lag = None  # the next request to the source raises the error

    def _handle_lost_race(self, problem: CommitConflict, began: float) -> None:
        # Another process of the job committed the batch first. A continuous job becomes a standby.
        self._lost += 1
        self.job.count(lost_races=1)
        if self._lost >= RACES_MAX:
            if self._once:
                raise problem
            self.due = began + self._poll_seconds

    def _fail(self, problem: TryAgainError | StoreFull) -> None:
        self._failed += 1
        self.job.count(retries=1)
        self.job.fine = False
        if self._once and self._failed >= _TRIES:
            raise problem
        if self._failed == 1 or self._failed % 10 == 0:
            event = "store is full" if isinstance(problem, StoreFull) else "does not respond"
            log_failure(event, problem, to=log, job=self.job.name, times=self._failed)
        self.due = time.monotonic() + min(_WAIT_MAX_S, 0.1 * 2 ** min(self._failed, 20)) * random.uniform(0.5, 1)


def run_jobs(
    jobs: Sequence[ScheduledJob],
    stopped: threading.Event,
    each_failure: Callable[[SchedulableJob, HoodooError], None] | None = None,
) -> None:
    """Run ingestion jobs until all have ended.

    Args:
        jobs: The scheduled jobs.
        stopped: Event that stops all jobs after the current batch.
        each_failure: Function that receives a job that ended with an error, and the error; the other jobs continue.
            None: the error is raised.
    """
    try:
        _run(jobs, stopped, each_failure)
    finally:
        for one in jobs:
            one.job.ended()


def _run(
    jobs: Sequence[ScheduledJob],
    stopped: threading.Event,
    each_failure: Callable[[SchedulableJob, HoodooError], None] | None,
) -> None:
    while not stopped.is_set():
        unfinished = [one for one in jobs if not one.over]
        if not unfinished:
            return
        next_job = min(unfinished, key=lambda one: one.due)
        wait = next_job.due - time.monotonic()
        if wait > 0:
            stopped.wait(min(wait, threading.TIMEOUT_MAX))
            continue
        try:
            next_job.take()
        except HoodooError as problem:
            if each_failure is None:
                raise
            next_job.over = True
            each_failure(next_job.job, problem)


__all__ = ["RACES_MAX", "EachBatch", "SchedulableJob", "ScheduledJob", "log", "run_jobs"]
