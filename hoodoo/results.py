"""What a write says it did, as its caller gets it. Knows nothing of how it was done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hoodoo.compactor.status.lag import Lag
from hoodoo.errors import HoodooError
from hoodoo.readers.cursor import Cursor


@dataclass
class WriteResult:
    """Counts as docs/semantics.md says. Pickles.

    cursor: this commit's slot, or the head if nothing was written. instant: 17 digits UTC, '' if nothing was written.
    inserted, updated, deleted, stale: rows. exact: False where reading more than the write needed would have told.
    retries: conflicts that it rebased over. skipped: its transaction was committed before. waited_s: after the commit,
    for workers that are far behind. quarantined: bad rows of the batch, which are in the quarantine table.
    """

    cursor: Cursor
    instant: str = ""
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    stale: int = 0
    exact: bool = True
    files: int = 0
    bytes_written: int = 0
    retries: int = 0
    skipped: bool = False
    waited_s: float = 0.0
    quarantined: int = 0
    _measure: Callable[[], Lag] | None = field(default=None, repr=False, compare=False)
    _lag: Lag | None = field(default=None, repr=False, compare=False)

    @property
    def lag(self) -> Lag | None:
        """The work that table services owed right after this commit, measured when it is first asked for. None where
        the store did not say.
        """
        if self._measure is not None:
            try:
                self._lag = self._measure()
            except (HoodooError, OSError):
                self._lag = None  # the commit is final all the same
            self._measure = None
        return self._lag

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_lag": self.lag, "_measure": None}
