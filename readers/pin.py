"""A pinned snapshot: scans of one slot whose files no clean deletes while the pin lasts."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from hoodoo.readers.cursor import cursor_of
from hoodoo.readers.output import CURRENT, named
from hoodoo.readers.predicate.filter import Where
from hoodoo.readers.scan import Scan
from hoodoo.timeline.history import History
from hoodoo.timeline.holds.leases import Lease
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import View


class Pin:
    """A snapshot whose files no clean deletes while the pin lasts.

    `Table.pin` makes it. Use it in a `with` statement, or call `release` at the end. A scan that was made before the
    pin ended and is read after it gives all rows, or raises SnapshotExpired.

    Attributes:
        cursor: The position of the snapshot.
    """

    def __init__(self, history: History, config: TableConfig, lease: Lease, view: View) -> None:
        self._history, self._config, self._lease, self._view = history, config, lease, view
        self.cursor = cursor_of(view)

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
        names: str = CURRENT,
    ) -> Scan:
        """Read the rows of the pinned snapshot.

        Args:
            columns: Names of the columns to read, as `Table.scan` takes them. None (default): all.
            where: A condition for the rows, as `Table.scan` takes it. None (default): all rows.
            read_optimized: True reads the base files only. Default False.
            meta: True reads Hudi's five meta columns too. Default False.
            names: 'original' or 'current' (default), as `Table.scan` takes them.

        Returns:
            The rows, which are read when one of their methods is called.

        Raises:
            SnapshotExpired: The pin has ended.
            ColumnError: `columns` is empty, is a text, or has a name twice or one that the table does not have.
            PredicateError: `where` cannot be parsed or does not fit the columns.
            OptionError: `where` is neither text nor a pyarrow expression, or `names` is neither of its values.
        """
        self._lease.require()
        found = Scan(self._history, self._config, self._view, columns, where, meta, read_optimized)
        return named(found, names, self._config.spellings)

    def renew(self, hours: float = 1.0) -> None:
        """Let the pin last for some hours from now.

        Args:
            hours: The number of hours, above 0. Default 1.0.

        Raises:
            SnapshotExpired: The pin has ended, so that files may be gone.
            OptionError: `hours` is not such a number, or is too large.
        """
        self._lease.require()
        self._lease.renew(hours)

    def release(self) -> None:
        """End the pin.

        A second call does nothing.
        """
        self._lease.release()
