"""Reports of ingestion jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class BatchReport:
    """Report of one batch of an ingestion job.

    Attributes:
        application: Name of the job.
        version: Number of the commit, counted per job.
        position: Position of the source after the batch.
        rows: Number of rows read.
        bad: Number of rows quarantined.
        skipped: Number of messages that change no row.
        bytes: Number of bytes read from the source; 0 if the source does not count bytes.
        seconds: Duration of each phase in seconds: 'plan', 'read' (with decoding), 'transform', 'write', and 'wait',
            the time that the write waited for compaction.
        reasons: Number of quarantined rows by reason, such as 'cast'.
        unknown: Columns that were left out because the table does not have them.
        passed_over: Files and subfolders that were skipped, because they cannot be read or their names do not show
            their format. For a database table: an entry if rows have null in the growing column.
        lost: Number of messages that were deleted from the source before they were read.
    """

    application: str
    version: int
    position: str
    rows: int
    bad: int
    skipped: int
    bytes: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()
    lost: int = 0


@dataclass(frozen=True)
class IngestReport:
    """Report of an ingestion job.

    It covers everything since the `Job` object was created.

    Attributes:
        batches: Number of commits.
        rows: Number of rows read.
        bad: Number of rows quarantined.
        lost_races: Number of batches that were discarded because another process of the job committed first.
        version: Number of the newest commit of the job; -1 before the first commit.
        position: Position of the source after the newest commit; '' before the first commit.
        unknown: Columns that were left out because the table does not have them.
        passed_over: Files and subfolders that were skipped, because they cannot be read or their names do not show
            their format. For a database table: an entry if rows have null in the growing column.
        lost: Number of messages that were deleted from the source before they were read.
        skipped: Number of messages that change no row, such as the tombstones of Debezium.
        retries: Number of retries after the store or the source did not respond.
        bytes: Number of bytes read from the source; 0 if the source does not count bytes.
        seconds: Duration of each phase in seconds, summed over all batches. `BatchReport` lists the phases.
        reasons: Number of quarantined rows by reason, such as 'cast'.
    """

    batches: int = 0
    rows: int = 0
    bad: int = 0
    lost_races: int = 0
    version: int = -1
    position: str = ""
    unknown: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()
    skipped: int = 0
    retries: int = 0
    bytes: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    lost: int = 0


@dataclass(frozen=True)
class CheckReport:
    """Report of a dry run of an ingestion job.

    Attributes:
        application: Name of the job.
        version: Number of the newest commit of the job; -1 before the first commit.
        position: Position of the source after the newest commit; '' before the first commit.
        rows: Number of rows read.
        bad: Number of rows that would be quarantined.
        problems: Descriptions of the first ten bad rows.
        columns: Columns that would be written.
        unknown: Columns that would be left out because the table does not have them.
        skipped: Number of messages that change no row.
        waiting: Number of unread items in the source.
        unit: Kind of the unread items, such as 'files'.
        lag_seconds: Age of the oldest unread item in seconds.
    """

    application: str
    version: int
    position: str
    rows: int
    bad: int
    problems: tuple[str, ...]
    columns: tuple[str, ...]
    unknown: tuple[str, ...]
    skipped: int
    waiting: int
    unit: str
    lag_seconds: float


def add_batch_to_report(report: IngestReport, batch: BatchReport) -> IngestReport:
    return replace(
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
