"""Ingestion jobs with exactly-once commits.

The commit of a batch contains the rows and the position of the source after them. A process that dies leaves both or
neither. If several processes of one job read the same batch, one process commits it; the other processes discard their
rows and read on. Bad rows are quarantined before the commit, so a row is always in the table or in the quarantine.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from typing import Any

import pyarrow as pa

from hoodoo.arguments import LOOPBACK, check_address, check_flag, check_number, check_port, require_application
from hoodoo.compactor.service_log import log_event
from hoodoo.errors import DataError, HoodooError, OptionError, TooManyBadRows
from hoodoo.ingestion.batch_writer import BatchWriter
from hoodoo.ingestion.checking import check
from hoodoo.ingestion.metrics_endpoint import serve_job_metrics
from hoodoo.ingestion.pace import JobSpeedLimit, Stopwatch
from hoodoo.ingestion.positions import load_position, store_position
from hoodoo.ingestion.prefetch import BatchPrefetcher, PrefetchedBatch
from hoodoo.ingestion.reading import SourceBatch, SourceReader
from hoodoo.ingestion.report import BatchReport, CheckReport, IngestReport, add_batch_to_report
from hoodoo.ingestion.restarts import continue_from, reset
from hoodoo.ingestion.scheduler import EachBatch, ScheduledJob, log, run_jobs
from hoodoo.ingestion.stopping import stop_on_signals
from hoodoo.redact import printable
from hoodoo.sources.source import Limits, Source, SourceLag, streamer_checkpoint
from hoodoo.timeline.applications import Application
from hoodoo.writers.batches.write_options import BadRowLimits

_IN_MEMORY = 3  # batches in memory: one being written, its sorted copy, and a prefetched one


class Job:
    """Ingestion job from one source to one table.

    Create it with `hoodoo.ingest`.

    Attributes:
        name: Name that the table uses to store the position of the source.
        source: Source of the rows.
        table: Target table.
        report: Report of everything that the job has done.
        pace: Limits on the rate of rows and commits.
        lag: Unread items of the source, as last measured. None: not measured yet.
        quarantined: Number of rows in the quarantine that wait for a decision, as last counted. None: not counted yet.
        fine: False if the store or the source did not respond to the newest request.
    """

    def __init__(
        self,
        reading: SourceReader,
        source: Source,
        name: str,
        limits: Limits,
        bad_limits: BadRowLimits,
        pace: JobSpeedLimit,
    ) -> None:
        require_application(name)
        self.name, self.source, self.table, self.pace = name, source, reading.table, pace
        self.report = IngestReport()
        self.lag: SourceLag | None = None
        self.fine = True
        self._reading, self._limits, self._writer = reading, limits, BatchWriter(reading, bad_limits)
        self.quarantined: int | None = None
        self._skipped = set[str]()
        self._level = logging.INFO
        self._stopped = threading.Event()
        self._ahead = BatchPrefetcher(self._read_next_batch)

    def __repr__(self) -> str:
        return f"<job {self.name!r} into {self.table.path}, {self.report.batches} batches so far>"

    def stop(self) -> None:
        """Stop the job after the current batch.

        Signal handlers and other threads may call this method.
        """
        self._stopped.set()

    def run(
        self,
        once: bool = True,
        poll_seconds: float = 5.0,
        each_batch: EachBatch | None = None,
        metrics_port: int | None = None,
        metrics_address: str = LOOPBACK,
    ) -> IngestReport:
        """Copy new rows of the source into the table.

        The job runs until it ends or is stopped. In the main thread, SIGTERM and SIGINT stop the job as `stop` does. A
        second signal stops it at once, and the current batch is not committed.

        Args:
            once: True (default) returns when all rows of the source were read. False runs until `stop` is called. It
                retries if the store or the source does not respond or the store is full. If another process of the job
                is running, this process waits as a standby.
            poll_seconds: Time between two requests to a source whose rows were all read, in seconds. Default 5.
            each_batch: Function that receives a `BatchReport` after each commit. An exception in it ends the run.
            metrics_port: Port for metrics in Prometheus' text format; 0 chooses a free port. None (default): no
                metrics.
            metrics_address: Address that serves the metrics, such as '0.0.0.0' for other machines. Default '127.0.0.1'.

        Returns:
            The report of everything that the job has done.

        Raises:
            TooManyBadRows: A batch has more bad rows than the limits allow. The first hundred bad rows are quarantined,
                and nothing is committed.
            SourceLost: The next items were deleted from the source.
            DataError: A file is damaged, or `transform` raises an exception or returns rows that do not match.
            CommitConflict: With `once`, another process of the job committed first thirty times in a row.
            TryAgainError: With `once`, the store or the source did not respond several times in a row.
            StoreFull: With `once`, the store was full several times in a row.
        """
        check_flag("once", once)
        if check_number("poll_seconds", poll_seconds, 0, optional=False) == 0:
            raise OptionError(
                "Option poll_seconds is invalid: expected a number above 0, got 0. The default is 5.",
                option="poll_seconds",
            )
        check_port("metrics_port", metrics_port)
        check_address("metrics_address", metrics_address)
        if each_batch is not None and not callable(each_batch):
            raise OptionError(
                f"Option each_batch is invalid: expected a function of a BatchReport, got {printable(each_batch)}.",
                option="each_batch",
            )
        with stop_on_signals(self._stopped), serve_job_metrics([self], metrics_port, metrics_address):
            run_jobs([ScheduledJob(self, once, poll_seconds, each_batch, metrics_port is not None)], self._stopped)
        return self.update_report()

    def check(self) -> CheckReport:
        """Test the job without writing.

        It reads about a hundred rows.

        Returns:
            The report of the dry run.

        Raises:
            SourceLost: The next items were deleted from the source.
            SourceUnavailable: The source does not respond.
            DataError: A file is damaged, or `transform` raises an exception or returns rows that do not match.
        """
        state = self.table.inspect.application(self.name)
        return check(self._reading, state, load_position(self.table.handle.store, state.position))

    def position(self) -> str:
        """Return the source position of the next batch.

        Returns:
            The position; '' before the first commit.
        """
        return load_position(self.table.handle.store, self.table.inspect.application(self.name).position)

    def reset(self, start: str, expect_number: int) -> Application:
        """Move the job to another position of the source.

        Writes a commit without rows. Rows in the table stay.

        Args:
            start: 'earliest', 'latest', an ISO 8601 time from which rows are read, or a position. Some sources support
                only some of these.
            expect_number: Number of the newest commit of the job, as `table.inspect.application` returns it; -1 if
                there is no commit. It prevents two people from resetting a job at the same time.

        Returns:
            The new state of the job.

        Raises:
            CommitConflict: The newest commit has another number.
            OptionError: The source does not support `start`.
            SourceLost: The position belongs to another source.
        """
        check_number("expect_number", expect_number, -1, whole=True, optional=False)
        if not isinstance(start, str) or not start:
            raise OptionError(
                f"Option start is invalid: expected a string such as 'earliest', got {printable(start)}.",
                option="start",
            )
        return reset(self.source, self.table, self.name, start, expect_number)

    def continue_from(self, other: str) -> Application:
        """Start this new job at the position of another application.

        Args:
            other: Name of the application, such as 'hudi-streamer'. Stop it before this job runs.

        Returns:
            The new state of the job.

        Raises:
            OptionError: This job already has a commit, or the other application lacks a position for this source.
            SourceLost: The position of the other application belongs to another source.
        """
        require_application(other)
        return continue_from(self.source, self.table, self.name, other)

    def measure_lag(self) -> None:
        """Count the unread items of the source.

        The rows that wait in the quarantine are counted, too.

        Raises:
            SourceUnavailable: The source does not respond.
        """
        self._ahead.wait()
        self.lag = self._reading.source.lag(self.position())
        self.quarantined = self.table.quarantine().count()
        self._skipped_names()

    def count(self, lost_races: int = 0, retries: int = 0) -> None:
        """Add lost races and retries to the report.

        Args:
            lost_races: Number of batches that another process committed first.
            retries: Number of retries after the store or the source did not respond.
        """
        report = self.report
        self.report = replace(report, lost_races=report.lost_races + lost_races, retries=report.retries + retries)

    def ended(self) -> None:
        """Discard the prefetched batch when the job ends."""
        self._ahead.drop()

    def update_report(self) -> IngestReport:
        """Update and return the report of the job.

        Returns:
            The report of everything that the job has done.
        """
        state = self.table.inspect.application(self.name)
        self.report = replace(
            self.report, version=state.version, position=state.position, passed_over=self._skipped_names()
        )
        return self.report

    # ---- one batch
    def take(self, goes_on: bool = False) -> BatchReport | None:
        """Read and commit the next batch.

        Args:
            goes_on: True for a continuous job, which does not end when all rows of the source were read.

        Returns:
            The report of the batch; None if all rows of the source were read.

        Raises:
            CommitConflict: Another process of the job committed first.
            TryAgainError: The store or the source did not respond.
        """
        self._level = logging.WARNING if goes_on else logging.INFO  # a job that ends reports this, too
        try:
            return self._take(goes_on)
        except HoodooError:
            raise
        except Exception as problem:  # an error of a library ends only this job
            raise DataError(
                f"Job {printable(self.name)} failed on a batch of {printable(self._reading.source.name)}: "
                f"{type(problem).__name__}: {printable(str(problem), 500)}. Run the job again: it "
                "continues after its last commit.",
                job=self.name,
            ) from problem

    def _take(self, goes_on: bool) -> BatchReport | None:
        start, state = time.monotonic(), self.table.inspect.application(self.name)
        prefetched = self._ahead.of(state.position, lambda: self._reading.columns(self.table.handle.newest_config()))
        if prefetched is None:
            prefetched = self._read_next_batch(load_position(self.table.handle.store, state.position))
        if prefetched is None:
            return None
        read, position = prefetched.found, prefetched.planned.position
        if isinstance(read, TooManyBadRows):
            self._writer.quarantine(state.next(position)).quarantine_first_messages(read)
            raise read
        position = read.position or position
        transaction = state.next(
            store_position(self.table.handle.store, position), streamer_checkpoint(self.source, position)
        )
        if transaction.position == state.position:
            raise DataError(
                f"{printable(self.source.name)} returned a plan whose position is the one before it, so the same rows "
                "would be read again without end. Its plan() must advance the position or return None.",
                position=state.position[:1000],
            )
        is_due = self.pace.next(start, len(read.rows) + read.bad, goes_on) <= time.monotonic()
        watch = Stopwatch(time.monotonic, prefetched.seconds)

        def prefetch() -> None:
            if is_due and getattr(self.source, "reads_ahead", False) and not self._stopped.is_set():
                self._ahead.begin(transaction.position, position)

        batch = replace(self._writer.commit(read, transaction, watch, prefetch), passed_over=self._skipped_names())
        self._add_to_report(batch)
        return batch

    def _read_next_batch(self, position: str) -> PrefetchedBatch | None:
        # None if all rows of the source were read.
        watch = Stopwatch(time.monotonic)
        planned = self._reading.source.plan(position, self._batch_limits(self.table.handle.config.schema))
        watch.ended("plan")
        if planned is None:
            return None
        config = self.table.handle.newest_config()
        batch: SourceBatch | TooManyBadRows
        try:
            batch = self._reading.read(planned, config)
        except TooManyBadRows as problem:
            batch = problem
        watch.ended("read")
        return PrefetchedBatch(planned, self._reading.columns(config), batch, watch.seconds)

    def _batch_limits(self, schema: pa.Schema) -> Limits:
        # The rows of a batch must fit into memory with all columns of the table.
        limits = self.pace.limit_rows_by_rate(self._limits)
        size = max(1, limits.bytes // _IN_MEMORY)
        width = sum(pa.nulls(64, field.type).nbytes for field in schema) // 64
        return replace(limits, bytes=size, rows=min(limits.rows, max(1, size // max(1, width))))

    def _skipped_names(self) -> tuple[str, ...]:
        # New names are also logged.
        names: Any = getattr(self.source, "passed_over", ())
        for name in sorted({*names} - self._skipped):
            log_event(self._level, "passed over", to=log, job=self.name, file=name)
        self._skipped |= {*names}
        return tuple(names)

    def _add_to_report(self, batch: BatchReport) -> None:
        # Columns that are left out for the first time are logged.
        for name in sorted({*batch.unknown} - {*self.report.unknown}):
            log_event(self._level, "column left out", to=log, job=self.name, column=name)
        self.report = add_batch_to_report(self.report, batch)


__all__ = ["Job"]
