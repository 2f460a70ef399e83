"""A pinned snapshot: scans of one slot whose files no clean deletes while the pin lasts."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from hoodoo.readers.cursor import Cursor
from hoodoo.readers.predicate.filter import Where
from hoodoo.readers.scan import Scan
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.history import History
from hoodoo.timeline.leases import Lease
from hoodoo.timeline.view import View


class Pin:
    """Made by Table.pin(). Once it has ended, scan() raises SnapshotExpired; scans begun before may, but never give
    part of the rows.
    """

    def __init__(self, history: History, config: TableConfig, lease: Lease, view: View) -> None:
        self._history, self._config, self._lease, self._view = history, config, lease, view
        self.cursor = Cursor(view.table, view.seq)

    def __repr__(self) -> str:
        return f"<pin of {self._history.store.uri} at slot {self.cursor.seq}>"

    def __enter__(self) -> Pin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        read_optimized: bool = False,
        meta: bool = False,
    ) -> Scan:
        """Rows of the pinned snapshot; arguments as of Table.scan. Raises SnapshotExpired once the pin has ended."""
        self._lease.require()
        return Scan(self._history, self._config, self._view, columns, where, meta, read_optimized)

    def renew(self, hours: float = 1.0) -> None:
        """Hold the snapshot for `hours` from now. Raises SnapshotExpired if the pin has ended: files may be gone by
        then.
        """
        self._lease.require()
        self._lease.renew(hours)

    def release(self) -> None:
        """Give the snapshot back; a second time does nothing."""
        self._lease.release()
