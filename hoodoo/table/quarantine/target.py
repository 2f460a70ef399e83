"""Target tables of a quarantine."""

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
    """Interface of a table that can purge rows."""

    def purge(self, data: pa.Table, *, older_than_hours: float = 24.0) -> PurgeReport: ...


class QuarantinedTable(Protocol):
    """Interface of a table with a quarantine."""

    handle: TableHandle

    def __init__(self, store: Store, environment: Environment = ...) -> None: ...

    @property
    def path(self) -> str: ...

    def scan(
        self, columns: Sequence[str] | None = None, *, where: Where | None = None, params: Params | None = None
    ) -> Scan: ...

    def get(self, keys: pa.Table) -> pa.Table: ...

    def upsert(self, data: pa.Table, *, missing: str = ..., unavailable: str | None = ...) -> WriteResult: ...

    def insert(self, data: pa.Table, *, missing: str = ...) -> WriteResult: ...

    @property
    def maintenance(self) -> Purging: ...


T = TypeVar("T", bound=QuarantinedTable)


def open_quarantine(target: T) -> T | None:
    """Open the quarantine of a table.

    It is None if no bad row was ever stored.

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
