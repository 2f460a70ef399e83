"""Brings a catalog's entry of the exported Iceberg table up to the newest metadata file.

A catalog holds a pointer to one metadata file. The pointer is moved by a conditional update only, never by dropping and
registering anew: readers would find no table meanwhile, and grants would be lost. A pointer that another exporter moved
further stays. How an update is conditional is known by the module of each kind of catalog.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hoodoo.errors import CatalogRefused, HoodooError, TryAgainError
from hoodoo.exports.catalogs.opening import require_namespace
from hoodoo.exports.catalogs.pointers import mover_of
from hoodoo.exports.iceberg.iceberg_schema import Json
from hoodoo.exports.iceberg.manifest_files import location_of
from hoodoo.exports.iceberg.metadata_files import HINT
from hoodoo.exports.iceberg.table_metadata import VERSION
from hoodoo.exports.results import CatalogEntry
from hoodoo.storage.store import Store

_ATTEMPTS = 10


@dataclass(frozen=True)
class Registration:
    """Where an export registers its table.

    Attributes:
        identifier: The table in the catalog, `namespace.table`.
        catalog: A catalog of pyiceberg.
    """

    identifier: str
    catalog: Any

    def run(self, store: Store, metadata_key: str) -> CatalogEntry:
        """Let the catalog's entry name a metadata file.

        Args:
            store: Where the table is.
            metadata_key: The metadata file, relative to the table.

        Returns:
            What was done.

        Raises:
            CatalogRefused: The catalog has another table of this name, or no such namespace, or does not take the
                update.
            TryAgainError: Others moved the pointer again and again.
        """
        try:
            return self._run(store, metadata_key)
        except HoodooError:
            raise
        except Exception as problem:  # of any kind: each catalog has its own
            said = (str(problem) or type(problem).__name__).rstrip(". ")
            raise CatalogRefused(
                f"The catalog rejected the entry {self.identifier!r}: {said}. {_advice(problem)}",
                identifier=self.identifier,
            ) from problem

    def _run(self, store: Store, metadata_key: str) -> CatalogEntry:
        from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

        ours: Json = json.loads(store.get(metadata_key))
        location = f"{location_of(store)}/{metadata_key}"
        move = mover_of(self.catalog)
        for _ in range(_ATTEMPTS):
            try:
                there = self.catalog.load_table(self.identifier)
            except NoSuchTableError:
                require_namespace(self.catalog, self.identifier)
                try:
                    self.catalog.register_table(self.identifier, location)
                except TableAlreadyExistsError:  # somebody else was faster
                    continue
                return CatalogEntry(self.identifier, location, "registered")
            self._require_ours(there, ours)
            if int(there.properties.get(VERSION, 0)) >= int(ours["properties"][VERSION]):
                return CatalogEntry(self.identifier, there.metadata_location, "kept")
            if moved := move(self.catalog, there, ours, location):
                return CatalogEntry(self.identifier, moved, "moved")
        raise TryAgainError(
            f"Other processes changed the catalog's entry {self.identifier!r} in each attempt. Export again.",
            identifier=self.identifier,
        )

    def _require_ours(self, there: Any, ours: Json) -> None:
        """Raise CatalogRefused where the entry is another table, or this one at a place where it still is: a copy must
        not take the entry of what it was copied from.
        """
        if str(there.metadata.table_uuid) != ours["table-uuid"]:
            raise CatalogRefused(
                f"The catalog's entry {self.identifier!r} is another table, at {there.metadata.location}. Register "
                "under another name, or drop that entry.",
                identifier=self.identifier,
            )
        old = there.metadata.location
        if old != ours["location"] and there.io.new_input(f"{old}/{HINT}").exists():
            raise CatalogRefused(
                f"The catalog's entry {self.identifier!r} is this table at {old}, of which this one is a copy. "
                "Register the copy under another name; or, if it is the one to go on with, drop that entry.",
                identifier=self.identifier,
            )


def _advice(problem: Exception) -> str:
    """What to do: never to drop an entry where the catalog is away only, for its grants would be lost."""
    kinds = {one.__name__ for one in type(problem).__mro__}
    if kinds & {"NoSuchIcebergTableError", "NoSuchPropertyException"}:
        return "The entry is not an Iceberg table. Register under another name."
    if isinstance(problem, FileNotFoundError) or "NotFoundException" in str(problem):  # the second: of a REST server
        return "If the table was moved here, drop that entry and export again."
    return "Check the catalog, then export again."
