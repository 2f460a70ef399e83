"""What a job did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class IngestReport:
    """What a run of a job did.

    Attributes:
        batches: Commits.
        rows: Rows in these commits, as they were read.
        bad: Rows that were set aside.
        lost_races: How often another process of the same application committed first, so that what was read was thrown
            away.
        version: The number of the newest commit of the application; -1 where it has made none.
        position: How far the source was read, as its commits say; '' where it was not.
        unknown: Columns that the table does not have, and that were left out.
        passed_over: Files whose names do not tell what they hold.
        skipped: Messages in these commits that change no row, such as the tombstones of Debezium.
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
