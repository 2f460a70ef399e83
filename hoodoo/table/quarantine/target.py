"""Interface through which a quarantine accesses its own table and the table that owns the quarantine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

from hoodoo.compactor.cleaning.purge_report import PurgeReport
from hoodoo.errors import TableNotFound
from hoodoo.readers.predicate.filter import Params, Where
from hoodoo.readers.scan import Scan
from hoodoo.storage.store import Store
from hoodoo.table.handle import TableHandle
from hoodoo.table.quarantine.schema import SUFFIX
from hoodoo.table.results import WriteResult
from hoodoo.timeline.environment import Environment


class Purging(Protocol):
    """Interface of the namespace `maintenance` of a table that a quarantine uses."""

    def purge(self, data: pa.Table, *, older_than_hours: float = 24.0) -> PurgeReport:
        """Purge the keys in an Arrow table, see `Table.maintenance.purge`."""


class QuarantinedTable(Protocol):
    """Interface of the tables that a quarantine uses: the quarantine table, and the table that owns the quarantine."""

    handle: TableHandle

    def __init__(self, store: Store, environment: Environment = ...) -> None: ...

    @property
    def path(self) -> str:
        """The full path of the table: a local folder or an s3:// URL."""

    def scan(
        self, columns: Sequence[str] | None = None, *, where: Where | None = None, params: Params | None = None
    ) -> Scan:
        """Read rows, see `Table.scan`."""

    def get(self, keys: pa.Table) -> pa.Table:
        """Look up rows by keys in an Arrow table, see `Table.get`."""

    def upsert(self, data: pa.Table, *, missing: str = ..., unavailable: str | None = ...) -> WriteResult:
        """Upsert an Arrow table, see `Table.upsert`."""

    def insert(self, data: pa.Table, *, missing: str = ...) -> WriteResult:
        """Insert an Arrow table, see `Table.insert`."""

    @property
    def maintenance(self) -> Purging:
        """Table services and repair, see `Table.maintenance`."""


T = TypeVar("T", bound=QuarantinedTable)


def opened(target: T) -> T | None:
    """Open the quarantine table of the table `target`, or return None if it does not exist yet.

    Returns:
        The table, or None if the quarantine has never had a row.

    Raises:
        TableReplaced: A different table is at the path of `target`.
        TableNotFound: `target` was deleted.
    """
    handle = target.handle
    handle.look()  # raises if the table was replaced: the quarantine may belong to the new table
    beside = handle.store.beside(SUFFIX)
    try:
        return type(target)(beside, handle.environment) if beside else None
    except TableNotFound:
        return None
