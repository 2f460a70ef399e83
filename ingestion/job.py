"""A job of ingestion: takes what a source has into a table, batch by batch, each row once.

The position of the source is part of the commit of the rows that were read up to it. So there is nothing beside the
table that could disagree with it: a process that dies leaves rows and position, or neither; and of several processes of
one job that read the same part one commits, while the others are told, throw their rows away, and look again. What is
no row is set aside before that commit, so that it is never in neither place.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from hoodoo.arguments import ApplicationVersion, flag, number_from, one_of, require_application
from hoodoo.errors import (
    ColumnError,
    CommitConflict,
    CommitUnknown,
    DataError,
    OptionError,
    TooManyBadRows,
    TryAgainError,
)
from hoodoo.format.names import IS_DELETED
from hoodoo.ingestion.positions import stored, whole
from hoodoo.ingestion.report import IngestReport
from hoodoo.ingestion.unsent_values import homeless, lacks_values
from hoodoo.merge.modes import REPLACES, MergeMode
from hoodoo.readers.predicate import checks
from hoodoo.redact import printable
from hoodoo.sources.source import BAD, Limits, Part, Placing, Planned, Source, hudi_place
from hoodoo.table import Table
from hoodoo.table.quarantine.setting_aside import set_aside, set_aside_messages
from hoodoo.table.results import WriteResult
from hoodoo.timeline.applications import Application
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.bad_rows import KEPT, BadRows, bad_rows, none_of, together, without
from hoodoo.writers.batches.cast import cast
from hoodoo.writers.batches.column_alignment import filled
from hoodoo.writers.batches.write_options import BadRowLimits, WriteOptions

_RACES_MAX = 30  # of three processes that are equally fast none loses so many in a row
_TRIES = 5
_WAIT_MAX_S = 30.0
_OPERATIONS = ("upsert", "insert", "bulk_insert")
RowTransform = Callable[[pa.Table], pa.Table]


def ingest(
    source: Source,
    table: Table,
    name: str | None = None,
    operation: str = "upsert",
    transform: RowTransform | None = None,
    new_columns: str = "ignore",
    missing: str = "null",
    max_rows: int = 500_000,
    max_bytes: int = 256 << 20,
    max_bad_rows: int = 1_000,
    max_bad_share: float = 0.01,
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
        max_bytes: How many bytes of the source a batch takes at most, at least one item. Default 256 MiB.
        max_bad_rows: How many rows of a batch may be set aside. Default 1,000; 0: none.
        max_bad_share: Which share of a batch of 100 rows or more may be. Default 0.01.

    Returns:
        The job.

    Raises:
        OptionError: An argument does not have one of the values above.
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
    return Job(source, table, name, operation, transform, new_columns, missing, limits, bad_limits)


@dataclass(frozen=True)
class _Read:
    """What a part of a source brought: rows, what was none, rows that do not fit, columns that were left out, how many
    messages change nothing, and the text that stands for a value that was not sent.
    """

    rows: pa.Table
    messages: pa.Table
    misfits: BadRows
    unknown: Collection[str]
    skipped: int
    unavailable: str | None


class Job:
    """One source, one table, and how the rows of one get into the other.

    Attributes:
        name: The application of its commits.
        report: What it has done so far.
    """

    def __init__(
        self,
        source: Source,
        table: Table,
        name: str | None,
        operation: str,
        transform: RowTransform | None,
        new_columns: str,
        missing: str,
        limits: Limits,
        bad_limits: BadRowLimits,
    ) -> None:
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
        self.name = source.name if name is None else name
        require_application(self.name)
        self.source, self.table, self.operation, self.transform = source, table, operation, transform
        self.new_columns, self.missing = new_columns, missing
        self.limits, self.bad_limits = limits, bad_limits
        self.report = IngestReport()
        self._stopped = threading.Event()

    def __repr__(self) -> str:
        return f"<job {self.name!r} into {self.table.path}, {self.report.batches} batches so far>"

    def stop(self) -> None:
        """Let `run` return once the batch in hand is committed. It can be called in signal handlers and threads."""
        self._stopped.set()

    def run(self, once: bool = True, poll_s: float = 5.0) -> IngestReport:
        """Take in what the source has.

        SIGTERM and SIGINT stop it as `stop` does, where it runs in the main thread; the second one ends it at once,
        which leaves nothing to see of the batch in hand.

        Args:
            once: True (default) returns when the source has nothing new. False goes on until `stop` is called, and
                waits out a store or a source that does not answer.
            poll_s: How many seconds pass between two looks at a source that has nothing new. Default 5.

        Returns:
            What the job has done since it was made.

        Raises:
            TooManyBadRows: A batch has more bad rows than it may have. The first hundred are set aside, nothing is
                committed, and the job stands before that batch.
            SourceLost: What comes next is gone from the source.
            DataError: A file is damaged, or a transformation does not return rows of the table.
            CommitConflict: Another process of this job was first thirty times in a row: one is enough.
            TryAgainError: With `once`, the store or the source did not answer several times in a row.
        """
        flag("once", once)
        number_from("poll_s", poll_s, 0, optional=False)
        failed = lost = 0
        with self._signals():
            while not self._stopped.is_set():
                try:
                    at = self.table.application(self.name)
                    planned = self.source.plan(whole(self.table.handle.store, at.position), self.limits)
                    if planned is not None:
                        self._take(at, planned)
                    failed = lost = 0
                except CommitConflict:
                    lost += 1
                    self.report = replace(self.report, lost_races=self.report.lost_races + 1)
                    if lost >= _RACES_MAX:
                        raise
                except TryAgainError:
                    failed += 1
                    if once and failed >= _TRIES:
                        raise
                    self._stopped.wait(min(_WAIT_MAX_S, 0.1 * 2 ** min(failed, 20)) * random.uniform(0.5, 1))
                else:
                    if planned is None:
                        if once:
                            break
                        self._stopped.wait(poll_s)
        return self._reported()

    def position(self) -> str:
        """Look how far the source was read.

        Returns:
            The position of the newest commit, as the source says it; '' where it was not read.
        """
        return whole(self.table.handle.store, self.table.application(self.name).position)

    # ---- one batch
    def _take(self, at: Application, planned: Planned) -> None:
        """Read a part and commit it. Raises CommitConflict where another process was first."""
        position = planned.position
        transaction = at.next(stored(self.table.handle.store, position), hudi_place(self.source, position))
        found = self._read(planned, transaction)
        bad = len(found.messages) + found.misfits.count
        read = len(found.rows) + bad
        if bad:
            self._set_aside(found, self.bad_limits.exceeded(bad, read), transaction)
        left = replace(self.bad_limits, rows=max(0, self.bad_limits.rows - bad))
        rows, mode = self._transformed(found.rows), MergeMode(unavailable=found.unavailable)
        if lacks_values(rows, mode):
            rows, more = self._completable(rows, mode, left, transaction)
            bad += more
        else:
            mode = REPLACES
        result = self._write(rows, left, transaction, mode.unavailable)
        if result is None:
            return  # nobody knows what became of it: the next look at the position tells
        if result.skipped:
            raise CommitConflict(f"Another process of application {printable(self.name)} has committed the same rows.")
        self.report = replace(
            self.report,
            batches=self.report.batches + 1,
            rows=self.report.rows + read,
            bad=self.report.bad + bad + result.quarantined,
            unknown=tuple(sorted({*self.report.unknown, *found.unknown})),
            skipped=self.report.skipped + found.skipped,
        )

    def _read(self, planned: Planned, transaction: ApplicationVersion) -> _Read:
        """Read a part. Raises TooManyBadRows where the source gave up, once the first of them are set aside."""
        config = self.table.handle.newest_config()
        columns = _placing(config).noted_on(self._columns(config))
        parts, messages, misfits, unknown = list[pa.Table](), [BAD.empty_table()], list[BadRows](), set[str]()
        skipped, unavailable = 0, None
        try:
            for part in self.source.read(planned, columns, self.new_columns == "add" or self.transform is not None):
                self._require_known(part)
                unknown.update(part.unknown)
                messages.append(part.bad)
                if not part.rows.num_columns and part.unknown:
                    raise ColumnError(
                        f"{printable(self.source.name)} has no column of the table; it has {printable(part.unknown)}. "
                        "Give the job a transform that makes the columns.",
                        column=part.unknown[0],
                    )
                skipped += part.skipped
                if part.unavailable is not None:
                    self._require_upsert()
                    unavailable = part.unavailable
                if part.rows.num_columns:
                    rows, bad = part.rows, none_of(0)
                    if self.transform is None:
                        rows, bad = self._aligned(rows, columns, config)
                    parts.append(rows)
                    misfits.append(bad)
        except TooManyBadRows as problem:
            found = problem.details.get("found")
            if found is not None:
                set_aside_messages(self.table.handle, pa.concat_tables([*messages, found]).slice(0, KEPT), transaction)
            raise
        try:
            # types of known columns are equal by now; those of others are what their values look like
            how = "permissive" if self.transform is None else "default"
            rows = pa.concat_tables(parts, promote_options=how) if parts else config.schema.empty_table()
        except (pa.ArrowInvalid, pa.ArrowTypeError) as problem:
            raise ColumnError(
                f"What was read together does not go together: {printable(str(problem), 500)}. Take it in by jobs of "
                "their own."
            ) from None
        return _Read(rows, pa.concat_tables(messages), together(misfits), unknown, skipped, unavailable)

    def _columns(self, config: TableConfig) -> pa.Schema:
        """The columns of the table as a source is told them: a row needs those of the key, unless a transform makes
        them.
        """
        hints = config.spellings.hints(config.schema).append(pa.field(IS_DELETED, pa.bool_()))
        if self.transform is not None or config.spellings:  # the key may come under another name
            return hints
        return pa.schema([field.with_nullable(field.name not in config.key) for field in hints])

    def _aligned(self, rows: pa.Table, columns: pa.Schema, config: TableConfig) -> tuple[pa.Table, BadRows]:
        """`rows` with the types of the table, so that parts of a batch have equal ones, and the rows that do not fit.

        No common type is looked for: numbers of two types would be made doubles, which do not hold all of them.
        """
        try:
            return _typed(rows, columns), none_of(len(rows))
        except DataError as problem:
            if self.missing == "keep":
                raise
            why = problem
        known = config.spellings.rows(rows.select([name for name in rows.column_names if name in columns.names]))
        most = max(self.bad_limits.rows, KEPT)
        bad = bad_rows(known, filled(known, config, self.missing), config, checks.of(config), most, self.missing)
        if not bad.count:
            raise why
        if bad.partial:
            return _typed(rows.slice(0, 0), columns), bad
        return _typed(without(rows, bad.found["row"].to_numpy()), columns), bad

    def _set_aside(self, found: _Read, too_many: bool, transaction: ApplicationVersion) -> None:
        """Keep what is bad, of too many the first hundred. Raises TooManyBadRows."""
        handle, messages, misfits = self.table.handle, found.messages, found.misfits
        if len(messages):
            set_aside_messages(handle, messages.slice(0, KEPT) if too_many else messages, transaction)
        limits = self.bad_limits if too_many else BadRowLimits(misfits.count, 1.0)
        if misfits.count and not (too_many and len(messages)):
            set_aside(handle, misfits, WriteOptions(limits=limits, transaction=transaction))
        if too_many:
            raise self._too_many(messages, misfits, len(found.rows))

    def _require_upsert(self) -> None:
        if self.operation != "upsert":
            raise OptionError(
                f"The source brings changes of rows, and operation={self.operation!r} would keep the rows that are "
                "there. Leave it out.",
                option="operation",
            )

    def _completable(
        self, rows: pa.Table, mode: MergeMode, limits: BadRowLimits, transaction: ApplicationVersion
    ) -> tuple[pa.Table, int]:
        """`rows` by the names of the table, of which some lack values that neither rows before them nor the table have:
        without these and others that do not fit, which are set aside, and how many those are.
        """
        handle, config = self.table.handle, self.table.handle.newest_config()
        rows, bad = config.spellings.rows(rows), none_of(len(rows))
        if self.missing != "keep":
            known = rows.select([name for name in rows.column_names if name in {*config.schema.names, IS_DELETED}])
            most = max(limits.rows, KEPT)
            bad = bad_rows(known, filled(known, config, self.missing), config, checks.of(config), most, self.missing)
            set_aside(handle, bad, WriteOptions(limits=limits, transaction=transaction))
            rows = without(rows, bad.found["row"].to_numpy())
        positions, lost = homeless(rows, self.table, config, mode)
        if len(lost):
            too_many = limits.exceeded(bad.count + len(lost), bad.rows)
            set_aside_messages(handle, lost.slice(0, KEPT) if too_many else lost, transaction)
            if too_many:
                raise self._too_many(lost, bad, len(rows) - len(lost))
            rows = without(rows, positions)
        return rows, bad.count + len(lost)

    def _require_known(self, part: Part) -> None:
        if part.unknown and self.new_columns == "fail":
            raise ColumnError(
                f"The table does not have column {printable(part.unknown[0])}. Pass new_columns='add' "
                "(--new-columns add) to add it, or 'ignore' to leave it out.",
                column=part.unknown[0],
            )

    def _transformed(self, rows: pa.Table) -> pa.Table:
        if self.transform is None or not len(rows):
            return rows
        made = self.transform(rows)
        if not isinstance(made, pa.Table):
            raise DataError(f"transform returned {printable(made)} instead of a pyarrow Table.")
        if self.new_columns == "add":
            return made
        hints = self.table.handle.config.spellings.hints(self.table.schema)
        known = {*self.table.schema.names, *hints.names, IS_DELETED}
        strange = [name for name in made.column_names if name not in known]
        self._require_known(Part(made, unknown=tuple(strange)))
        return made.drop_columns(strange) if strange else made

    def _write(
        self,
        rows: pa.Table,
        limits: BadRowLimits,
        transaction: ApplicationVersion,
        unavailable: str | None = None,
    ) -> WriteResult | None:
        """Write rows and the position. unavailable: what stands for values that were not sent; then all rows fit."""
        how: dict[str, Any] = {
            "transaction": transaction,
            "evolve": self.new_columns == "add",
            "missing": self.missing,
        }
        if unavailable is not None:
            how["unavailable"] = unavailable
        elif self.missing != "keep":
            how |= {"on_bad_rows": "quarantine", "max_bad_rows": max(0, limits.rows), "max_bad_share": limits.share}
        try:
            if self.operation == "upsert":
                return self.table.upsert(rows, **how)
            return getattr(self.table, self.operation)(rows, existing="keep", **how)
        except CommitUnknown as problem:
            problem.resolve()
            return None  # whatever became of it, the position tells

    def _too_many(self, messages: pa.Table, misfits: BadRows, good: int) -> TooManyBadRows:
        bad = len(messages) + misfits.count
        first = (
            f"the first at {messages['place'][0]}: {messages['detail'][0]}"
            if len(messages)
            else f"the first: {misfits.found['detail'][0]}"
        )
        return TooManyBadRows(
            f"{bad:,} of {good + bad:,} rows are bad, {first} At most {self.bad_limits.rows:,} rows and "
            f"{self.bad_limits.share:.4g} of a batch may be. Nothing was committed; the first of them are in the "
            "quarantine of the table. Mend the source, or raise max_bad_rows or max_bad_share.",
            bad=bad,
            rows=good + bad,
        )

    def _reported(self) -> IngestReport:
        at = self.table.application(self.name)
        passed_over: Any = getattr(self.source, "passed_over", ())
        self.report = replace(self.report, version=at.version, position=at.position, passed_over=tuple(passed_over))
        return self.report

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[int, Any] = {}

        def told(number: int, frame: object) -> None:
            if self._stopped.is_set():
                signal.signal(number, before[number])
                signal.raise_signal(number)
            self.stop()

        for each in (signal.SIGTERM, signal.SIGINT):
            before[each] = signal.signal(each, told)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _placing(config: TableConfig) -> Placing:
    """How a table tells rows apart, by both names of each column."""

    def names(name: str) -> tuple[str, ...]:
        return (name, *config.spellings.original_names([name]))

    told = [name for name in config.placing if name not in config.transforms]
    made = tuple(str(one) for one in config.transforms.values() if one.column not in config.partition_by)
    key = tuple(names(name) for name in config.key)
    return Placing(key, tuple(one for name in told for one in names(name)), config.order_by, made)


def _typed(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """`rows` with the types of the table. Raises DataError where a value does not fit."""
    for at, name in enumerate(rows.column_names):
        if name in columns.names and rows.schema.field(at).type != columns.field(name).type:
            field = pa.field(name, columns.field(name).type)
            rows = rows.set_column(at, field, cast(rows.column(at), field))
    return rows
