"""Interface to the metastore entries of tables.

An entry is changed only if nobody changed it since it was read. No call deletes data.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hoodoo.exports.catalogs.hudi_entries import Columns, WantedEntry

Values = tuple[str, ...]
ENTRY_TYPE = "EXTERNAL_TABLE"


@dataclass(frozen=True)
class StoredEntry:
    """Stored metastore entry of a table.

    `location` and `input_format` are '' if the entry does not have them. `raw` is the object that the client of the
    catalog returned.
    """

    location: str
    input_format: str
    columns: Columns
    keys: Columns
    parameters: Mapping[str, str]
    raw: Any


class Metastore(Protocol):
    """Interface to the entries of a metastore.

    The entries are in one namespace. Each method raises CatalogRefused if the catalog rejects the request.
    """

    def find(self, name: str) -> StoredEntry | None: ...

    def create_entry(self, name: str, entry: WantedEntry) -> bool:
        """Create an entry without partitions.

        Returns False if an entry of this name already exists.
        """

    def update_entry(self, name: str, found: StoredEntry, entry: WantedEntry, parameters: Mapping[str, str]) -> bool:
        """Update an existing entry and its partitions.

        Returns False if the entry was changed since it was read.
        """

    def list_partitions(self, name: str) -> set[Values]:
        """List the partitions of an entry."""

    def add_partitions(self, name: str, entry: WantedEntry, partitions: Mapping[Values, str]) -> None:
        """Add partitions to an entry.

        Existing partitions are not changed. `list_partitions` maps values to locations.
        """

    def drop_partitions(self, name: str, partitions: Sequence[Values]) -> None:
        """Remove existing partitions from an entry."""


def chunks(given: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(given), size):
        yield given[start : start + size]


def owner() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # the system does not know the user
        return ""
