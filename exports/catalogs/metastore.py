"""What registering asks of a catalog that holds entries of Hudi tables, whichever kind it is.

A change is made on condition that nobody changed the entry since it was read. No call deletes data.
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
class FoundEntry:
    """An entry as a catalog has it.

    location, input_format: '' where it has none. raw: what the catalog's client said.
    """

    location: str
    input_format: str
    columns: Columns
    keys: Columns
    parameters: Mapping[str, str]
    raw: Any


class Metastore(Protocol):
    """Entries of one namespace. Each call raises CatalogRefused where the catalog does not do it."""

    def find(self, name: str) -> FoundEntry | None:
        """Return an entry."""

    def create(self, name: str, entry: WantedEntry) -> bool:
        """Create an entry without partitions; False if there is one by now."""

    def change(self, name: str, found: FoundEntry, entry: WantedEntry, parameters: Mapping[str, str]) -> bool:
        """Make `found` say what `entry` says, its partitions too; False if somebody changed it since it was found."""

    def partitions(self, name: str) -> set[Values]:
        """Return the values of each partition that the entry has."""

    def add(self, name: str, entry: WantedEntry, partitions: Mapping[Values, str]) -> None:
        """Add partitions, values -> location. Those that are there stay as they are."""

    def drop(self, name: str, partitions: Sequence[Values]) -> None:
        """Take partitions out of the entry. Those that are gone are none of its business."""


def chunks(given: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Yield `given` in pieces of at most `size`."""
    for start in range(0, len(given), size):
        yield given[start : start + size]


def owner() -> str:
    """Return whom a new entry belongs to: the user of this process, as for entries that pyiceberg makes."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user whom the system does not know
        return ""
