"""Result of a write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hoodoo.errors import CallError, HoodooError
from hoodoo.writers.committed import Committed

if TYPE_CHECKING:
    from hoodoo.compactor.status.lag import Lag
    from hoodoo.readers.exact_counts import RowCounts


@dataclass
class WriteResult(Committed):
    """Result of a write.

    docs/semantics.md defines the counts. A result can be pickled.

    Attributes:
        cursor: The position of the commit, or the newest slot if nothing was written.
        instant: The instant of the commit, 17 digits UTC, or '' if nothing was written.
        inserted: The number of new rows.
        updated: The number of rows that replaced an older version.
        deleted: The number of deleted rows.
        stale: The number of rows in the batch that were older than the stored version and changed nothing.
        exact: False if `updated` and `deleted` are estimates, because exact counts would have cost extra reads: they
            may include stale rows. `exact_counts()` returns exact counts.
        files: The number of data files in the commit.
        bytes_written: The total size of the data files, in bytes.
        retries: The number of conflicts with other writers after which the write was rebased.
        rows_rewritten: The number of rows, changed or not, in the file groups that a restore rewrote. 0 for all other
            writes.
        skipped: True if the `transaction` was already committed, so this write did nothing.
        waited_seconds: The time in seconds that the write waited after its commit for lagging workers.
        quarantined: The number of bad rows of the batch that were stored in the quarantine.
        reasons: The number of quarantined rows by reason, such as 'null_key'.
    """

    waited_seconds: float = 0.0
    quarantined: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict, hash=False)
    _measure: Callable[[], Lag] | None = field(default=None, repr=False, compare=False)
    _lag: Lag | None = field(default=None, repr=False, compare=False)
    _count: Callable[[], RowCounts] | None = field(default=None, repr=False, compare=False)

    @property
    def lag(self) -> Lag | None:
        """The pending work of table services after the write.

        The first access measures it, as of the commit of this write.
        """
        if self._measure is not None:
            try:
                self._lag = self._measure()
            except (HoodooError, OSError):
                self._lag = None  # the commit is final anyway
            self._measure = None
        return self._lag

    def exact_counts(self) -> WriteResult:
        """Return the result with exact row counts.

        Counting may read data files. The call returns the result itself if `exact` is True. Otherwise it reads at most
        the keys and ordering values of the file groups that the commit wrote to.

        Returns:
            A result with exact counts. Its `stale` includes all rows that were older than the stored version.

        Raises:
            SnapshotExpired: The snapshot before the commit was cleaned away.
            TableReplaced: A different table is now at the path.
            TableNotFound: The table was deleted.
            CallError: The result was created in another process.
        """
        if self.exact:
            return self
        if self._count is None:
            raise CallError(
                "This result came from another process. Call exact_counts() in the process that wrote the rows.",
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
            return f"<{why}; newest slot {self.cursor.seq}{self._nonzero_counts()}>"
        bound = "" if self.exact else "<= "
        updated, deleted = (f"{bound if count else ''}{count:,}" for count in (self.updated, self.deleted))
        files = f"{self.files:,} file{'s' * (self.files != 1)}"
        return (
            f"<slot {self.cursor.seq}: {self.inserted:,} inserted, {updated} updated, {deleted} deleted"
            f"{self._nonzero_counts()}; {files}, {self.bytes_written:,} bytes, instant {self.instant}>"
        )

    def _nonzero_counts(self) -> str:
        rows, tries = {"stale": self.stale, "quarantined": self.quarantined}, {"retries": self.retries}
        counts = rows | {"rewritten": self.rows_rewritten} | tries
        said = [f"{count:,} {name}" for name, count in counts.items() if count]
        waited = [f"waited {self.waited_seconds:,.1f} s for workers"] if self.waited_seconds else []
        return "".join(f", {one}" for one in (*said, *waited))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_lag": self.lag, "_measure": None, "_count": None}
