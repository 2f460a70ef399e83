"""What the caller of a write asks for, beside its rows. Knows neither tables nor batches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hoodoo.arguments import ApplicationVersion
from hoodoo.merge.modes import REPLACES, MergeMode
from hoodoo.readers.cursor import PositionLike
from hoodoo.writers.batches.column_alignment import FAIL

_SHARE_FROM = 100  # rows of a batch from which on the share of bad ones counts


class NewKeys(StrEnum):
    """What becomes of rows whose key the table does not have, where stored rows are asked for."""

    INSERT = "insert"
    FAIL = "fail"
    IGNORE = "ignore"


@dataclass(frozen=True)
class BadRowLimits:
    """How many rows of a batch may be set aside.

    Attributes:
        rows: At most so many rows.
        share: At most this fraction of a batch of 100 rows or more.
    """

    rows: int = 1_000
    share: float = 0.01

    def exceeded(self, bad: int, of: int) -> bool:
        """Tell whether `bad` rows of a batch of `of` rows are too many."""
        return bad > self.rows or of >= _SHARE_FROM and bad > self.share * of


@dataclass(frozen=True)
class WriteOptions:
    """What the caller of a write asks for, beside its rows; already checked.

    Attributes:
        delete: True for a delete by key: only the key and partition columns count.
        duplicates: What becomes of several rows of one key: 'newest', 'fail', 'first' or 'each', where all stay.
        missing: What becomes of columns that the batch lacks and that have no default: 'fail' or 'null'.
        evolve: True if the batch may change the table's columns.
        limits: How many bad rows may be set aside. None: a bad row fails the batch.
        transaction: Application name and version of the write. None: it has no version.
        if_head: The position since which nobody may have written a row. None: that does not matter.
        columns: The columns that an upsert changes: 'given' or names. None: it writes whole rows.
        mode: How rows of an upsert and stored rows become one.
        zone: The time zone of the Spark session that computed the rows, for error messages. '': it is not known.
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
    def takes_over(self) -> bool:
        """True if rows of the write take values over from stored rows."""
        return self.columns is not None or not self.mode.replaces_rows
