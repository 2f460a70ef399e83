"""The result of a write, as its caller gets it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hoodoo.errors import CallError, HoodooError
from hoodoo.writers.operations import Committed

if TYPE_CHECKING:
    from hoodoo.compactor.status.lag import Lag
    from hoodoo.readers.exact_counts import RowCounts


@dataclass
class WriteResult(Committed):
    """What a write did.

    docs/semantics.md defines the counts. A result pickles.

    Attributes:
        cursor: The position of the commit, or the newest slot where nothing was written.
        instant: The instant of the commit, 17 digits UTC, or '' where nothing was written.
        inserted: How many rows are new.
        updated: How many rows replaced an older version.
        deleted: How many rows were deleted.
        stale: How many rows of the batch were older than the stored version and changed nothing.
        exact: False where `updated` and `deleted` are bounds, because exact counts would have cost reads that the
            write did not need: rows that they count may be stale. `exact_counts()` tells.
        files: How many data files the commit has.
        bytes_written: The size of these files, in bytes.
        retries: How many conflicts with other writers the write rebased over.
        rows_rewritten: How many rows a restore wrote, changed or not: all of the file groups that differed. 0 of other
            writes.
        skipped: True if the `transaction` was committed before, so that this write did nothing.
        waited_s: How many seconds the write waited after its commit for workers that are far behind.
        quarantined: How many bad rows of the batch are in the quarantine.
        reasons: How many of these for each reason, such as 'null_key'.
    """

    waited_s: float = 0.0
    quarantined: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict, hash=False)
    _measure: Callable[[], Lag] | None = field(default=None, repr=False, compare=False)
    _lag: Lag | None = field(default=None, repr=False, compare=False)
    _count: Callable[[], RowCounts] | None = field(default=None, repr=False, compare=False)

    @property
    def lag(self) -> Lag | None:
        """The work that table services owed right after this commit, or None where the store did not say.

        It is measured when it is first asked for.
        """
        if self._measure is not None:
            try:
                self._lag = self._measure()
            except (HoodooError, OSError):
                self._lag = None  # the commit is final all the same
            self._measure = None
        return self._lag

    def exact_counts(self) -> WriteResult:
        """Count the rows exactly where `exact` is False, by a look at the rows that were there before the commit.

        It reads keys and ordering values of the file groups that the commit wrote to, at most.

        Returns:
            The same result with exact counts: rows that lost to stored ones are `stale`.

        Raises:
            SnapshotExpired: The snapshot before the commit was cleaned away.
            TableReplaced: There is another table at the path by now.
            TableNotFound: The table was deleted.
            CallError: The result came from another process.
        """
        if self.exact:
            return self
        if self._count is None:
            raise CallError(
                "This result came from another process, which knows the table; call exact_counts() there.",
                instant=self.instant,
            )
        found = self._count()
        return replace(
            self,
            inserted=found.inserted,
            updated=found.updated,
            deleted=found.deleted,
            stale=self.stale + found.stale,
            exact=True,
        )

    def __repr__(self) -> str:
        if not self.instant:
            why = "the transaction was committed before" if self.skipped else "nothing was written"
            return f"<{why}; newest slot {self.cursor.seq}{self._remarks()}>"
        bound = "" if self.exact else "<= "
        updated, deleted = (f"{bound if count else ''}{count:,}" for count in (self.updated, self.deleted))
        files = f"{self.files:,} file{'s' * (self.files != 1)}"
        return (
            f"<slot {self.cursor.seq}: {self.inserted:,} inserted, {updated} updated, {deleted} deleted"
            f"{self._remarks()}; {files}, {self.bytes_written:,} bytes, instant {self.instant}>"
        )

    def _remarks(self) -> str:
        """What is not there in most writes."""
        rows, tries = {"stale": self.stale, "quarantined": self.quarantined}, {"retries": self.retries}
        counts = rows | {"rewritten": self.rows_rewritten} | tries
        said = [f"{count:,} {name}" for name, count in counts.items() if count]
        waited = [f"waited {self.waited_s:,.1f} s for workers"] if self.waited_s else []
        return "".join(f", {one}" for one in (*said, *waited))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_lag": self.lag, "_measure": None, "_count": None}
