"""What a job did: each batch, and all of them together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class BatchReport:
    """What one commit of a job brought.

    Attributes:
        application: The name of the job.
        version: The number of the commit.
        position: How far the source was read by it.
        rows: Rows, as they were read.
        bad: Rows that were set aside.
        skipped: Messages that change no row.
        bytes: How many bytes they had in the source; 0 where that does not count them.
        seconds: How long each phase took: 'plan', 'read' (with decoding), 'transform', 'write', and 'wait', for
            workers that are far behind.
        reasons: How many rows were set aside for each reason, such as 'cast'.
        unknown: Columns that the table does not have, and that were left out.
        passed_over: Files and subfolders that were skipped, because their names do not say their format or they cannot
            be read; of a table of a database, an entry for its rows with null in the growing column.
        lost: Messages that are gone from the source and were not read.
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
    """What a job has done since it was made.

    Attributes:
        batches: Commits.
        rows: Rows in these commits, as they were read.
        bad: Rows that were set aside.
        lost_races: How often another process of the same application committed first, so that what was read was thrown
            away.
        version: The number of the newest commit of the application; -1 where it has made none.
        position: How far the source was read, as its commits say; '' where it was not.
        unknown: Columns that the table does not have, and that were left out.
        passed_over: Files and subfolders that were skipped, because their names do not say their format or they cannot
            be read; of a table of a database, an entry for its rows with null in the growing column.
        lost: Messages that are gone from the source and were not read.
        skipped: Messages in these commits that change no row, such as the tombstones of Debezium.
        retries: How often the store or the source did not answer, so that the job looked again.
        bytes: How many bytes these commits had in the source; 0 where that does not count them.
        seconds: How long each phase of all batches took, as `BatchReport` names them.
        reasons: How many rows were set aside for each reason, such as 'cast'.
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
    """What a job would do: a few rows were read as a batch would read them, and nothing was written.

    Attributes:
        application: The name of the job.
        version: The number of its newest commit; -1 where it has made none.
        position: How far the source was read, as that commit says; '' where it was not.
        rows: Rows that were read, at most about a hundred.
        bad: How many of them would be set aside.
        problems: What is wrong with the first ten of these.
        columns: The columns that would be written.
        unknown: Columns that the table does not have, and that would be left out.
        skipped: Messages that change no row.
        waiting: How much the source has that is not in the table.
        unit: What of, such as 'files'.
        lag_seconds: How long the oldest of it has been waiting.
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
