"""Options of a write."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hoodoo.arguments import ApplicationVersion, check_allowed_value, check_number
from hoodoo.merge.modes import REPLACES, MergeMode
from hoodoo.readers.cursor import PositionLike
from hoodoo.writers.batches.column_alignment import FAIL

_SHARE_FROM = 100  # the share of invalid rows is limited only in batches of at least this many rows


class NewKeys(StrEnum):
    INSERT = "insert"
    FAIL = "fail"
    IGNORE = "ignore"


@dataclass(frozen=True)
class BadRowLimits:
    """Limits on invalid rows in a batch.

    The invalid rows within the limits may be quarantined.

    Attributes:
        rows: Maximum number of invalid rows.
        share: Maximum fraction of invalid rows in a batch of 100 rows or more.
    """

    rows: int = 1_000
    share: float = 0.01

    def __post_init__(self) -> None:
        check_number("rows", self.rows, 0, whole=True, optional=False)
        check_number("share", self.share, 0, optional=False)


def has_too_many_bad_rows(limits: BadRowLimits, bad: int, rows: int) -> bool:
    return bad > limits.rows or rows >= _SHARE_FROM and bad > limits.share * rows


def limits_of(on_bad_rows: str | BadRowLimits) -> BadRowLimits | None:
    if isinstance(on_bad_rows, BadRowLimits):
        return on_bad_rows
    check_allowed_value("on_bad_rows", on_bad_rows, ("fail", "quarantine"))
    return BadRowLimits() if on_bad_rows == "quarantine" else None


@dataclass(frozen=True)
class WriteOptions:
    """Options of a write.

    Attributes:
        delete: True for a delete by key, which uses only the key and partition columns.
        duplicates: Handling of several rows with one key: 'newest', 'fail', 'first', or 'each' (all rows are kept).
        missing: Handling of missing columns without a default: 'fail' or 'null'.
        evolve: True if the batch may change the table's columns.
        limits: Limits on the number of quarantined rows. None: an invalid row fails the batch.
        transaction: Application name and version of the write, or None for a write without a version.
        if_head: The position after which no row may have been written, or the write fails. None: no condition.
        columns: The columns that an upsert changes: 'given' or names. None: the upsert writes whole rows.
        mode: The merge mode, which determines how rows of an upsert are merged with stored rows.
        zone: The time zone of the Spark session that computed the rows, for error messages. '' if unknown.
    """

    delete: bool = False
    duplicates: str = "newest"
    missing: str = FAIL
    evolve: bool = False
    limits: BadRowLimits | None = None
    transaction: ApplicationVersion | None = None
    if_head: PositionLike | None = None
    columns: str | tuple[str, ...] | None = None
    mode: MergeMode = REPLACES
    zone: str = ""

    @property
    def keeps_stored_values(self) -> bool:
        """True if the write keeps some stored values.

        A partial update does so.
        """
        return self.columns is not None or not self.mode.replaces_rows
