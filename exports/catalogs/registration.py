"""Registration of an exported Iceberg table in a catalog.

A catalog entry points to one metadata file. The pointer is moved only by a conditional update. It is never dropped and
registered again, because readers would find no table in between, and grants would be lost. If another exporter moved
the pointer to a newer file, it stays there. `pointers.py` implements the conditional update for each type of catalog.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hoodoo.errors import CatalogRefused, HoodooError, TryAgainError
from hoodoo.exports.catalogs.opening import require_existing_namespace
from hoodoo.exports.catalogs.pointers import catalog_writes_metadata, mover_of
from hoodoo.exports.iceberg.iceberg_schema import Json
from hoodoo.exports.iceberg.manifest_files import table_location_uri
from hoodoo.exports.iceberg.metadata_files import HINT
from hoodoo.exports.iceberg.table_metadata import VERSION
from hoodoo.exports.results import CatalogEntry
from hoodoo.storage.store import Store

_ATTEMPTS = 10


@dataclass(frozen=True)
class IcebergRegistration:
    """Registration of an exported Iceberg table in a catalog.

    Attributes:
        identifier: The name of the table in the catalog, `namespace.table`.
        catalog: A pyiceberg catalog.
    """

    identifier: str
    catalog: Any

    def run(self, store: Store, metadata_key: str) -> CatalogEntry:
        """Create or update the catalog entry.

        Args:
            store: The store of the table.
            metadata_key: The metadata file, relative to the table.

        Returns:
            The change of the entry.

        Raises:
            CatalogRefused: The catalog has another table of this name, lacks the namespace, or rejects the update.
            TryAgainError: Other processes moved the pointer repeatedly.
        """
        try:
            return self._run(store, metadata_key)
        except HoodooError:
            raise
        except Exception as problem:  # each catalog raises its own errors
            message = (str(problem) or type(problem).__name__).rstrip(". ")
            raise CatalogRefused(
                f"The catalog rejected the entry {self.identifier!r}: {message}. {_advice_for_error(problem)}",
                identifier=self.identifier,
            ) from problem

    def _run(self, store: Store, metadata_key: str) -> CatalogEntry:
        from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

        ours: Json = json.loads(store.get(metadata_key))
        location = f"{table_location_uri(store)}/{metadata_key}"
        move = mover_of(self.catalog)
        for _ in range(_ATTEMPTS):
            try:
                entry = self.catalog.load_table(self.identifier)
            except NoSuchTableError:
                require_existing_namespace(self.catalog, self.identifier)
                try:
                    self.catalog.register_table(self.identifier, location)
                except TableAlreadyExistsError:  # another process was faster
                    continue
                return CatalogEntry(self.identifier, location, "registered")
            self._require_own_entry(entry, ours)
            version, newest = int(entry.properties.get(VERSION, 0)), int(ours["properties"][VERSION])
            if version > newest or (version == newest and self._is_up_to_date(entry, ours, location)):
                return CatalogEntry(self.identifier, entry.metadata_location, "kept")
            if new_location := move(self.catalog, entry, ours, location):
                return CatalogEntry(self.identifier, new_location, "moved")
        raise TryAgainError(
            f"Other processes changed the catalog entry {self.identifier!r} in each attempt. Export again.",
            identifier=self.identifier,
        )

    def _is_up_to_date(self, entry: Any, ours: Json, location: str) -> bool:
        # A REST server has metadata files of its own, so snapshots and columns are compared.
        if entry.metadata_location == location:
            return True
        schema = next(one for one in ours["schemas"] if one["schema-id"] == ours["current-schema-id"])
        return (
            catalog_writes_metadata(self.catalog)
            and entry.metadata.current_snapshot_id == ours["current-snapshot-id"]
            and [field.name for field in entry.schema().fields] == [field["name"] for field in schema["fields"]]
        )

    def _require_own_entry(self, entry: Any, ours: Json) -> None:
        # Raises CatalogRefused for an entry of another table, or of the original of a copied table. The entry of the
        # original has another location, where the table still exists.
        if str(entry.metadata.table_uuid) != ours["table-uuid"]:
            raise CatalogRefused(
                f"Catalog entry {self.identifier!r} belongs to another table, at {entry.metadata.location}. Register "
                "under another name, or drop the entry.",
                identifier=self.identifier,
            )
        entry_location = entry.metadata.location
        if entry_location != ours["location"] and entry.io.new_input(f"{entry_location}/{HINT}").exists():
            raise CatalogRefused(
                f"Catalog entry {self.identifier!r} belongs to the table at {entry_location}, of which this table is "
                "a copy. Register the copy under another name. If the copy replaces the table, drop the entry first.",
                identifier=self.identifier,
            )


def _advice_for_error(problem: Exception) -> str:
    # If the catalog is only unreachable, the advice is not to drop the entry, because its grants would be lost.
    kinds = {base_class.__name__ for base_class in type(problem).__mro__}
    if kinds & {"NoSuchIcebergTableError", "NoSuchPropertyException"}:
        return "The entry is not an Iceberg table. Register under another name."
    if isinstance(problem, FileNotFoundError) or "NotFoundException" in str(problem):  # the latter: a REST server
        return "If the table was moved here, drop the entry and export again."
    return "Check the catalog, then export again."
