"""Pins, which keep snapshots readable for some time."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from hoodoo.readers.cursor import cursor_of
from hoodoo.readers.output import CURRENT, choose_column_names
from hoodoo.readers.predicate.filter import Params, Where
from hoodoo.readers.scan import Scan
from hoodoo.timeline.history import History
from hoodoo.timeline.holds.leases import Lease
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import View


class Pin:
    """Pin, which keeps a snapshot readable for some time.

    Cleaning keeps its files until the pin is released. Returned by `Table.pin`. Use it in a `with` statement, or call
    `release` at the end. A scan that was created before the pin ended, and is read afterwards, returns all rows or
    raises SnapshotExpired.

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
        *,
        where: Where | None = None,
        params: Params | None = None,
        read_optimized: bool = False,
        meta: bool = False,
        names: str = CURRENT,
    ) -> Scan:
        """Read the rows of the pinned snapshot.

        Args:
            columns: Names of the columns to read, as in `Table.scan`. None (default): all.
            where: A condition for the rows, as in `Table.scan`. None (default): all rows.
            params: The values of the parameters in `where`, as in `Table.scan`. None (default): no parameters.
            read_optimized: True reads the base files only. Default False.
            meta: True also reads Hudi's five meta columns. Default False.
            names: 'original' or 'current' (default), as in `Table.scan`.

        Returns:
            The rows, which are read when one of their methods is called.

        Raises:
            SnapshotExpired: The pin has ended.
            ColumnError: `columns` is empty, is a string, contains a name twice, or contains an unknown name.
            PredicateError: `where` cannot be parsed or does not match the columns.
            OptionError: `where` is neither a string nor a pyarrow expression, or `params` or `names` is invalid.
        """
        self._lease.require()
        rows = Scan(self._history, self._config, self._view, columns, where, meta, read_optimized, params=params)
        return choose_column_names(rows, names, self._config.name_mapping)

    def renew(self, hours: float = 1.0) -> None:
        """Extend the pin of the snapshot.

        It then ends `hours` hours from now.

        Args:
            hours: The number of hours, above 0. Default 1.0.

        Raises:
            SnapshotExpired: The pin has ended, so files may be missing.
            OptionError: `hours` is not a positive number, or is too large.
        """
        self._lease.require()
        self._lease.renew(hours)

    def release(self) -> None:
        """End the pin of the snapshot.

        Cleaning may then delete the files of the snapshot. A second call does nothing.
        """
        self._lease.release()
