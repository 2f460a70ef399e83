"""The tables of a quarantine: the one whose rows were bad, and its own, as far as a quarantine knows tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

from hoodoo.compactor.cleaning.purge import PurgeReport
from hoodoo.errors import TableNotFound
from hoodoo.readers.predicate.filter import Where
from hoodoo.readers.scan import Scan
from hoodoo.storage.store import Store
from hoodoo.table.handle import TableHandle
from hoodoo.table.quarantine.schema import SUFFIX
from hoodoo.table.results import WriteResult
from hoodoo.timeline.environment import Environment


class QuarantinedTable(Protocol):
    """A table, as far as its quarantine knows it."""

    handle: TableHandle

    def __init__(self, store: Store, environment: Environment = ...) -> None: ...

    @property
    def path(self) -> str:
        """Where the table is."""

    def scan(self, columns: Sequence[str] | None = None, where: Where | None = None) -> Scan:
        """As `Table.scan`."""

    def get(self, keys: pa.Table) -> pa.Table:
        """As `Table.get`, with Arrow in and out."""

    def upsert(self, data: pa.Table, *, missing: str = ..., unavailable: str | None = ...) -> WriteResult:
        """As `Table.upsert`, of an Arrow table."""

    def insert(self, data: pa.Table, *, missing: str = ...) -> WriteResult:
        """As `Table.insert`, of an Arrow table."""

    def purge(self, data: pa.Table, older_than_hours: float = 24.0) -> PurgeReport:
        """As `Table.purge`, of keys in an Arrow table."""


T = TypeVar("T", bound=QuarantinedTable)


def opened(target: T) -> T | None:
    """Open the table of the quarantine of `target`.

    Returns:
        The table, or None if no row was ever set aside.

    Raises:
        TableReplaced: Another table took the place of `target`.
        TableNotFound: `target` was deleted.
    """
    handle = target.handle
    handle.look()  # the quarantine that lies here may be another table's
    beside = handle.store.beside(SUFFIX)
    try:
        return type(target)(beside, handle.environment) if beside else None
    except TableNotFound:
        return None
