"""A job of ingestion: takes what a source has into a table, batch by batch, each row once.

The position of the source is part of the commit of the rows that were read up to it. So there is nothing beside the
table that could disagree with it: a process that dies leaves rows and position, or neither; and of several processes of
one job that read the same part one commits, while the others are told, throw their rows away, and look again. What is
no row is set aside before that commit, so that it is never in neither place.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from hoodoo.arguments import ApplicationVersion, flag, number_from, one_of, port, require_application
from hoodoo.compactor.service_log import say
from hoodoo.errors import CommitConflict, CommitUnknown, DataError, HoodooError, OptionError, TooManyBadRows
from hoodoo.ingestion.ahead import Ahead, Taken
from hoodoo.ingestion.arrival_order import in_arrival_order
from hoodoo.ingestion.aside import Aside
from hoodoo.ingestion.asking import Asked
from hoodoo.ingestion.change_rows import ChangeContext
from hoodoo.ingestion.checking import check
from hoodoo.ingestion.pace import Pace, Stopwatch
from hoodoo.ingestion.positions import stored, whole
from hoodoo.ingestion.reading import Read, Reading, RowTransform
from hoodoo.ingestion.replaying import resolve_deleted
from hoodoo.ingestion.report import BatchReport, CheckReport, IngestReport
from hoodoo.ingestion.restarts import go_on_from, reset
from hoodoo.ingestion.same_table import require_other
from hoodoo.ingestion.stopping import signals_stop
from hoodoo.ingestion.stored_places import placeable, placed
from hoodoo.ingestion.turns import EachBatch, Turns, log, run
from hoodoo.ingestion.unsent_values import completed, lacks_values
from hoodoo.merge.modes import REPLACES, MergeMode
from hoodoo.redact import printable
from hoodoo.sources.source import Limits, Source, SourceLag, hudi_place
from hoodoo.table import Table
from hoodoo.table.results import WriteResult
from hoodoo.timeline.applications import Application
from hoodoo.writers.batches.write_options import BadRowLimits

_OPERATIONS = ("upsert", "insert", "bulk_insert")
_IN_MEMORY = 3  # batches in memory: one that is written, its sorted copy, and one that is read ahead


def ingest(
    source: Source,
    table: Table,
    name: str | None = None,
    operation: str = "upsert",
    transform: RowTransform | None = None,
    new_columns: str = "ignore",
    missing: str = "null",
    max_rows: int = 500_000,
    max_bytes: int = 512 << 20,
    max_bad_rows: int = 1_000,
    max_bad_share: float = 0.01,
    min_seconds: float = 5.0,
    max_rows_per_second: float | None = None,
) -> Job:
    """Make a job that takes what a source has into a table, each row once. Nothing is read yet: call its `run`.

    Args:
        source: Where the rows come from: one of `hoodoo.sources`, or an object with the methods of
            `hoodoo.sources.Source`.
        table: The table.
        name: The application by which the table knows how far the source was read. Two jobs of one name are two
            processes of one job. None (default): the name of the source.
        operation: 'upsert' (default) inserts new keys and replaces rows of known ones, 'insert' and 'bulk_insert' keep
            the rows that are there.
        transform: A function that is given the rows of a batch, as a pyarrow Table, and returns those to write. Rows of
            which `_hoodie_is_deleted` is true are deleted by an upsert. None (default): all rows as they are.
        new_columns: What to do about columns that the table does not have: 'ignore' (default) leaves them out, 'add'
            adds them to the table, 'fail' stops.
        missing: What to do about columns that a batch lacks and that have no default: 'null' (default), 'fail', or
            'keep', by which an upsert keeps the stored values.
        max_rows: How many rows a batch has at most, where the source can count them before. Default 500,000.
        max_bytes: Decoded bytes of the source that are in memory at most. A batch has a third of it, at least one item:
            the next batch is read while one batch is written from a sorted copy. The process needs about 200 MiB and
            three times `max_bytes`. Default 512 MiB.
        max_bad_rows: How many rows of a batch may be set aside. Default 1,000; 0: none.
        max_bad_share: Which share of a batch of 100 rows or more may be. Default 0.01.
        min_seconds: How many seconds lie between two commits of a job that goes on (`run(once=False)`), from beginning
            to beginning. Default 5: at most 17,280 commits a day.
        max_rows_per_second: How many rows come in a second in the mean, where the source can count them before. None
            (default): as many as there are.

    Returns:
        The job.

    Raises:
        OptionError: An argument does not have one of the values above, or the source is the table itself.
    """
    bad_limits = BadRowLimits(
        number_from("max_bad_rows", max_bad_rows, 0, whole=True, optional=False),
        number_from("max_bad_share", max_bad_share, 0, optional=False),
    )
    limits = Limits(
        number_from("max_rows", max_rows, 1, whole=True, optional=False),
        number_from("max_bytes", max_bytes, 1, whole=True, optional=False),
        bad_limits.rows,
    )
    pace = Pace(
        number_from("min_seconds", min_seconds, 0, optional=False),
        number_from("max_rows_per_second", max_rows_per_second, 0),
    )
    if pace.rows_per_second == 0:
        raise OptionError("max_rows_per_second takes a number above 0, got 0.", option="max_rows_per_second")
    _require(source, table, operation, transform, new_columns, missing)
    require_other(source, table)
    reading = Reading(Asked(source), table, operation, transform, new_columns, missing, bad_limits.rows)
    named: Any = getattr(source, "name", None) if name is None else name
    return Job(reading, source, named, limits, bad_limits, pace)


class Job:
    """One source, one table, and how the rows of one get into the other.

    Attributes:
        name: The application of its commits.
        source: Where the rows come from.
        table: Where they go.
        report: What it has done so far.
        pace: How fast it may go.
        lag: What the source has that is not in the table, as it was measured last. None: it was not measured.
        quarantined: How many rows wait in the table's quarantine, as counted last. None: they were not counted.
        fine: False where the store or the source did not answer at the last look.
    """

    def __init__(
        self, reading: Reading, source: Source, name: str, limits: Limits, bad_limits: BadRowLimits, pace: Pace
    ) -> None:
        require_application(name)
        self.name, self.source, self.table, self.pace = name, source, reading.table, pace
        self.report = IngestReport()
        self.lag: SourceLag | None = None
        self.fine = True
        self._reading, self._limits, self._bad_limits = reading, limits, bad_limits
        self.quarantined: int | None = None
        self._skipped = set[str]()
        self._level = logging.INFO
        self._stopped = threading.Event()
        self._ahead = Ahead(self._taken)

    def __repr__(self) -> str:
        return f"<job {self.name!r} into {self.table.path}, {self.report.batches} batches so far>"

    def stop(self) -> None:
        """Let `run` return once the batch in hand is committed. It can be called in signal handlers and threads."""
        self._stopped.set()

    def run(
        self,
        once: bool = True,
        poll_s: float = 5.0,
        each_batch: EachBatch | None = None,
        metrics_port: int | None = None,
    ) -> IngestReport:
        """Take in what the source has.

        SIGTERM and SIGINT stop it as `stop` does, where it runs in the main thread; the second one ends it at once,
        which leaves nothing to see of the batch in hand.

        Args:
            once: True (default) returns when the source has nothing new. False goes on until `stop` is called, and
                waits out a store or a source that does not answer, and a store that is full; a process that comes
                second to another one of the same job stands by.
            poll_s: How many seconds pass between two looks at a source that has nothing new. Default 5.
            each_batch: A function that is given a `BatchReport` after each commit. What it raises ends the run.
            metrics_port: The port on 127.0.0.1 that serves metrics in Prometheus' text form, 0 for any free port. None
                (default): no metrics.

        Returns:
            What the job has done since it was made.

        Raises:
            TooManyBadRows: A batch has more bad rows than it may have. The first hundred are set aside, nothing is
                committed, and the job stands before that batch.
            SourceLost: What comes next is gone from the source.
            DataError: A file is damaged, or a transformation raises or does not return rows of the table.
            CommitConflict: With `once`, another process of this job was first thirty times in a row: one is enough.
            TryAgainError: With `once`, the store or the source did not answer several times in a row.
            StoreFull: With `once`, the store was full several times in a row.
        """
        flag("once", once)
        if number_from("poll_s", poll_s, 0, optional=False) == 0:
            raise OptionError("poll_s takes a number above 0, got 0.", option="poll_s")
        port("metrics_port", metrics_port)
        if each_batch is not None and not callable(each_batch):
            raise OptionError(
                f"each_batch takes a function of a BatchReport, got {printable(each_batch)}.", option="each_batch"
            )
        with signals_stop(self._stopped), metrics_of([self], metrics_port):
            run([Turns(self, once, poll_s, each_batch, metrics_port is not None)], self._stopped)
        return self.reported()

    def check(self) -> CheckReport:
        """Read about a hundred rows of what comes next, as a batch would read them. Nothing is written.

        Returns:
            What would become of them.

        Raises:
            SourceLost: What comes next is gone from the source.
            SourceUnavailable: The source does not answer.
            DataError: A file is damaged, or a transformation raises or does not return rows of the table.
        """
        at = self.table.application(self.name)
        return check(self._reading, at, whole(self.table.handle.store, at.position))

    def position(self) -> str:
        """Look how far the source was read.

        Returns:
            The position of the newest commit, as the source says it; '' where it was not read.
        """
        return whole(self.table.handle.store, self.table.application(self.name).position)

    def reset(self, place: str, expect_number: int) -> Application:
        """Go on from another place of the source. It is a commit with no rows: what was read stays in the table.

        Args:
            place: 'earliest', 'latest', a time as ISO 8601 writes it, from which on rows are read, or a position; not
                every source has all of them.
            expect_number: The number of the job's newest commit, as `table.application` tells it; -1 where it has made
                none. So of two who reset a job one is told.

        Returns:
            How far the job is now.

        Raises:
            CommitConflict: The newest commit has another number.
            OptionError: The source has no such place.
            SourceLost: The position is that of another source.
        """
        number_from("expect_number", expect_number, -1, whole=True, optional=False)
        if not isinstance(place, str) or not place:
            raise OptionError(f"place takes a text such as 'earliest', got {printable(place)}.", option="place")
        return reset(self.source, self.table, self.name, place, expect_number)

    def go_on_from(self, other: str) -> Application:
        """Begin where another application has read to, such as 'hudi-streamer', Apache Hudi's.

        Args:
            other: The name of the application. One of them may go on at a time.

        Returns:
            How far the job is now.

        Raises:
            OptionError: This job has read something itself, the other one has not, or has read another source.
            SourceLost: The other one's position is none of this source.
        """
        require_application(other)
        return go_on_from(self.source, self.table, self.name, other)

    def measure_lag(self) -> None:
        """Ask the source what is not in the table yet: `lag` is that from now on.

        Raises:
            SourceUnavailable: The source does not answer.
        """
        self._ahead.wait()
        self.lag = self._reading.source.lag(self.position())
        self.quarantined = self.table.quarantine().count()
        self._passed_over()

    def count(self, lost_races: int = 0, retries: int = 0) -> None:
        """Add to what the report says of looks that brought nothing.

        Args:
            lost_races: How often another process was first.
            retries: How often the store or the source did not answer.
        """
        report = self.report
        self.report = replace(report, lost_races=report.lost_races + lost_races, retries=report.retries + retries)

    def ended(self) -> None:
        """Throw away what was read of a batch that is not taken any more."""
        self._ahead.drop()

    def reported(self) -> IngestReport:
        """Look how far the job is.

        Returns:
            What it has done since it was made, and its position now.
        """
        at = self.table.application(self.name)
        self.report = replace(self.report, version=at.version, position=at.position, passed_over=self._passed_over())
        return self.report

    # ---- one batch
    def take(self, goes_on: bool = False) -> BatchReport | None:
        """Read what is new and commit it.

        Args:
            goes_on: Does the job go on when the source has nothing new?

        Returns:
            What it was; None where there was nothing new.

        Raises:
            CommitConflict: Another process of the job was first.
            TryAgainError: The store or the source did not answer.
        """
        self._level = logging.WARNING if goes_on else logging.INFO  # the report of a job that ends has it, too
        try:
            return self._take(goes_on)
        except HoodooError:
            raise
        except Exception as problem:  # a library's: it ends this job, and no other one
            raise DataError(
                f"Job {printable(self.name)} failed on a batch of {printable(self._reading.source.name)}: "
                f"{type(problem).__name__}: {printable(str(problem), 500)}. Run the job again: it "
                "continues after its last commit.",
                job=self.name,
            ) from problem

    def _take(self, goes_on: bool) -> BatchReport | None:
        began, at = time.monotonic(), self.table.application(self.name)
        taken = self._ahead.of(at.position, lambda: self._reading.columns(self.table.handle.newest_config()))
        if taken is None:
            taken = self._taken(whole(self.table.handle.store, at.position))
        if taken is None:
            return None
        found, position = taken.found, taken.planned.position
        if isinstance(found, TooManyBadRows):
            self._aside(at.next(position)).first_messages(found)
            raise found
        position = found.position or position
        transaction = at.next(stored(self.table.handle.store, position), hudi_place(self.source, position))
        if transaction.position == at.position:
            raise DataError(
                f"{printable(self.source.name)} plans a part whose position is the one before it, so that it would be "
                "read again for ever. Its plan() has to move on, or return None.",
                position=at.position[:1000],
            )
        late = self.pace.next(began, len(found.rows) + found.bad, goes_on) <= time.monotonic()
        watch = Stopwatch(time.monotonic, taken.seconds)
        return self._commit(found, transaction, watch, position if late else "")

    def _taken(self, position: str) -> Taken | None:
        """Read what comes after a position."""
        watch = Stopwatch(time.monotonic)
        planned = self._reading.source.plan(position, self._bounds(self.table.handle.config.schema))
        watch.ended("plan")
        if planned is None:
            return None
        config = self.table.handle.newest_config()
        found: Read | TooManyBadRows
        try:
            found = self._reading.read(planned, config)
        except TooManyBadRows as problem:
            found = problem
        watch.ended("read")
        return Taken(planned, self._reading.columns(config), found, watch.seconds)

    def _bounds(self, schema: pa.Schema) -> Limits:
        """Return the limits of a batch. Its rows must fit into memory with all columns of the table, null or not."""
        limits = self.pace.limited(self._limits)
        size = max(1, limits.bytes // _IN_MEMORY)
        width = sum(pa.nulls(64, field.type).nbytes for field in schema) // 64
        return replace(limits, bytes=size, rows=min(limits.rows, max(1, size // max(1, width))))

    def _commit(self, found: Read, transaction: ApplicationVersion, watch: Stopwatch, ahead: str) -> BatchReport:
        """Commit what was read. Raises CommitConflict where another process was first.

        ahead: the position after which the next part is read meanwhile; '' where none is.
        """
        aside = self._aside(transaction)
        if found.unavailable is not None:
            aside = replace(aside, changes=ChangeContext(found.unavailable, found.unplaced))
        aside.read(found)
        bad, read = found.reasons, len(found.rows) + found.bad
        left = replace(self._bad_limits, rows=max(0, self._bad_limits.rows - found.bad))
        rows, strange = self._reading.transformed(found.rows)
        rows = in_arrival_order(rows, self.table)
        if found.unavailable is not None or found.emptied:
            resolve_deleted(self.table, rows, found.emptied, transaction)
        mode = MergeMode(unavailable=found.unavailable)
        watch.ended("transform")
        if found.unplaced:
            config = self.table.handle.newest_config()
            rows, more = aside.fitting(placeable(config.spellings.rows(rows), config), left)
            bad += more
            rows = placed(completed(rows, self.table, config, mode), self.table, config)
        if lacks_values(rows, mode):
            rows, more = aside.completable(rows, mode, left)
            bad += more
        else:
            mode = REPLACES
        if ahead and getattr(self.source, "reads_ahead", False) and not self._stopped.is_set():
            self._ahead.begin(transaction.position, ahead)
        write = partial(self._write, found.emptied, transaction=transaction, unavailable=mode.unavailable)
        try:
            result = self._written(lambda: write(rows))
        except DataError:
            rows, more = aside.fitting(rows, left, found.origins)
            if not more:
                raise
            bad += more
            result = self._written(lambda: write(rows))
        watch.ended("write")
        if result is not None:
            if result.skipped:
                raise CommitConflict(
                    f"Another process of application {printable(self.name)} has committed the same rows."
                )
            watch.waited(result.waited_s)
        batch = BatchReport(
            transaction.application,
            transaction.version,
            transaction.position,
            read,
            bad.total(),
            found.skipped,
            found.bytes,
            dict(watch.seconds),
            dict(bad),
            tuple(sorted({*found.unknown, *strange})),
            self._passed_over(),
            found.lost,
        )
        self._add(batch)
        return batch

    def _passed_over(self) -> tuple[str, ...]:
        """Return what the source skipped, and log what it skipped for the first time."""
        names: Any = getattr(self.source, "passed_over", ())
        for name in sorted({*names} - self._skipped):
            say(self._level, "passed over", to=log, job=self.name, file=name)
        self._skipped |= {*names}
        return tuple(names)

    def _aside(self, transaction: ApplicationVersion) -> Aside:
        return Aside(self._reading, self._bad_limits, transaction)

    def _add(self, batch: BatchReport) -> None:
        """Count a batch in the report, and log columns that are left out for the first time."""
        report = self.report
        for name in sorted({*batch.unknown} - {*report.unknown}):
            say(self._level, "column left out", to=log, job=self.name, column=name)
        self.report = replace(
            report,
            batches=report.batches + 1,
            rows=report.rows + batch.rows,
            bad=report.bad + batch.bad,
            unknown=tuple(sorted({*report.unknown, *batch.unknown})),
            passed_over=batch.passed_over,
            lost=report.lost + batch.lost,
            skipped=report.skipped + batch.skipped,
            bytes=report.bytes + batch.bytes,
            seconds={phase: report.seconds.get(phase, 0.0) + took for phase, took in batch.seconds.items()},
            reasons=dict(Counter(report.reasons) + Counter(batch.reasons)),
        )

    def _write(
        self, emptied: bool, rows: pa.Table, transaction: ApplicationVersion, unavailable: str | None
    ) -> WriteResult:
        """Write rows and the position.

        Args:
            emptied: True if the source was emptied.
            rows: The rows.
            transaction: What the commit carries.
            unavailable: String that stands for values that were not sent. None: there is no such string.

        Returns:
            The result of the write.

        Raises:
            DataError: A row does not match the table. Nothing was written.
        """
        if emptied:
            return self.table.insert_overwrite(rows, whole_table=True, transaction=transaction)
        how: dict[str, Any] = {
            "transaction": transaction,
            "evolve": self._reading.new_columns == "add",
            "missing": self._reading.missing,
        }
        if unavailable is not None:
            how["unavailable"] = unavailable
        if self._reading.operation == "upsert":
            return self.table.upsert(rows, **how)
        written: WriteResult = getattr(self.table, self._reading.operation)(rows, existing="keep", **how)
        return written

    def _written(self, write: Callable[[], WriteResult]) -> WriteResult | None:
        """Write; None where it is committed, and nobody says how."""
        try:
            return write()
        except CommitUnknown as problem:
            if not problem.resolve():
                raise
            return None


@contextmanager
def metrics_of(jobs: Sequence[Job], number: int | None) -> Iterator[str]:
    """Serve metrics of jobs.

    Args:
        jobs: The jobs.
        number: The port on 127.0.0.1, 0 for any free one. None: nothing is served.

    Yields:
        Where they are; '' where nothing is served.

    Raises:
        OptionError: The port is in use, or this process may not have it.
    """
    if number is None:
        yield ""
        return
    from hoodoo.compactor.status.metrics import Endpoint  # its package is only loaded where it is used
    from hoodoo.ingestion.metrics import JobCollector

    try:
        endpoint = Endpoint(JobCollector(jobs), number)
    except OSError as problem:
        raise OptionError(
            f"metrics_port (--metrics-port) {number} of 127.0.0.1 cannot be served: {problem.strerror}. Choose another "
            "one, or 0 for any that is free.",
            option="metrics_port",
        ) from None
    say(logging.INFO, "metrics", to=log, metrics=endpoint.url)
    try:
        yield endpoint.url
    finally:
        endpoint.close()


def _require(source: Any, table: Any, operation: str, transform: Any, new_columns: str, missing: str) -> None:
    """Raise OptionError for an argument that a job cannot take."""
    for method in ("plan", "read", "lag"):
        if not callable(getattr(source, method, None)):
            raise OptionError(
                f"source takes one of hoodoo.sources, such as hoodoo.sources.Files('landing'), got "
                f"{printable(source)}, which has no {method}().",
                option="source",
            )
    if not isinstance(table, Table):
        raise OptionError(f"table takes what hoodoo.open() returns, got {printable(table)}.", option="table")
    if transform is not None and not callable(transform):
        raise OptionError(
            f"transform takes a function of a pyarrow Table, got {printable(transform)}.", option="transform"
        )
    one_of("operation", operation, _OPERATIONS)
    one_of("new_columns", new_columns, ("ignore", "add", "fail"))
    one_of("missing", missing, ("null", "fail", "keep"))
    if missing == "keep" and operation != "upsert":
        raise OptionError("missing='keep' keeps stored values, which only an upsert does.", option="missing")


__all__ = ["Job", "ingest", "metrics_of"]
