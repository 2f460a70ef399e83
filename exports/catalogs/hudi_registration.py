"""Registration of a Hudi table in a metastore.

The metastore is a Hive metastore or AWS Glue. An entry contains the newest commit that it describes. If this is the
newest commit, nothing else is read.

Partitions are updated first, and then the entry. The entry is updated only if nobody changed it since it was read.
After an interruption or a concurrent change, the update starts again with the current table. An entry with the newest
commit is therefore always complete. Entries of other tables are not changed, and no entry is ever dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hoodoo.errors import CatalogRefused, HoodooError, OptionError, TryAgainError
from hoodoo.exports.catalogs.hudi_entries import (
    COMPLETED,
    REQUESTED,
    SPARKS,
    WantedEntry,
    create_metastore_entries,
    partitions_of,
)
from hoodoo.exports.catalogs.in_glue import GlueMetastore
from hoodoo.exports.catalogs.in_hive import HiveEntries
from hoodoo.exports.catalogs.metastore import Metastore, StoredEntry
from hoodoo.exports.catalogs.opening import require_dotted_identifier, require_existing_namespace
from hoodoo.exports.iceberg.manifest_files import table_location_uri
from hoodoo.exports.results import RegisteredEntry, RegisterResult
from hoodoo.redact import printable
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import View

HUDI_KINDS = ("hive", "glue")
"""Types of catalogs that can store Hudi tables."""
_ATTEMPTS = 10
_HUDI = ("org.apache.hudi.", "com.uber.hoodie.")
_SCHEME = re.compile(r"^(?:s3[an]?://|file:/*(?=/))")
Look = Callable[[], tuple[TableConfig, View]]
"""Function that returns the table's current configuration and state."""


def require_namespace_and_name(option: str, identifier: object) -> str:
    name = require_dotted_identifier(option, identifier)
    if name.count(".") > 1:
        raise OptionError(
            f"Option {option} is invalid: expected one namespace and a table, such as 'lake.rides', got "
            f"{printable(name)}. Hive and Glue do not support nested namespaces.",
            option=option,
        )
    return name


def metastore_of(catalog: Any, identifier: str) -> Metastore:
    kinds = {base_class.__name__ for base_class in type(catalog).__mro__}
    namespace = identifier.partition(".")[0]
    if "HiveCatalog" in kinds:
        return HiveEntries(catalog, namespace)
    if "GlueCatalog" in kinds:
        return GlueMetastore(catalog, namespace)
    raise CatalogRefused(
        f"A {type(catalog).__name__} cannot store Hudi tables: expected a catalog of type {' or '.join(HUDI_KINDS)}. "
        "To register the table as Iceberg, call export(iceberg=True, register=...).",
        identifier=identifier,
    )


@dataclass(frozen=True)
class HudiRegistration:
    """Registration of a Hudi table in a metastore.

    Attributes:
        identifier: The name of the table in the catalog, `namespace.table`.
        catalog: A pyiceberg catalog.
    """

    identifier: str
    catalog: Any

    def update_entries(self, store: Store, look: Look) -> RegisterResult:
        """Create or update the metastore entries of the table.

        Args:
            store: The store of the table.
            look: Function that returns the table's current configuration and view.

        Returns:
            The changes.

        Raises:
            CatalogRefused: The catalog has another table of this name, lacks the namespace, cannot store Hudi tables,
                or rejects the change.
            SchemaError: Column names differ only in case. Nothing was written.
            TryAgainError: Other processes changed an entry repeatedly.
            UnsupportedTable: Partition folders do not contain the values of partition columns. Nothing was written.
        """
        try:
            metastore = metastore_of(self.catalog, self.identifier)
            require_existing_namespace(self.catalog, self.identifier)
            return self._run(metastore, table_location_uri(store), look)
        except HoodooError:
            raise
        except Exception as problem:  # each catalog raises its own errors
            raise CatalogRefused(
                f"The catalog rejected the entry {self.identifier!r}: "
                f"{(str(problem) or type(problem).__name__).rstrip('. ')}. Check the catalog, then register again.",
                identifier=self.identifier,
            ) from problem

    def _run(self, metastore: Metastore, location: str, look: Look) -> RegisterResult:
        config, view = look()
        wanted_entries = create_metastore_entries(config, view, location)
        for entry in wanted_entries:  # check all entries before the first one is written
            existing = metastore.find(self._name(entry.suffix))
            if existing:
                self._require_own_entry(existing, entry)
        registered = [
            self._update_entry(metastore, entry.suffix, location, (config, view), look) for entry in wanted_entries
        ]
        return RegisterResult(view.seq, tuple(registered))

    def _name(self, suffix: str) -> str:
        return self.identifier.partition(".")[2].lower() + suffix

    def _update_entry(
        self, metastore: Metastore, suffix: str, location: str, seen: tuple[TableConfig, View], look: Look
    ) -> RegisteredEntry:
        name = self._name(suffix)
        identifier = f"{self.identifier.partition('.')[0]}.{name}"
        change, changed_partitions = "refreshed", False
        added = dropped = 0
        for _ in range(_ATTEMPTS):
            config, view = seen
            existing = metastore.find(name)
            if not existing:
                if metastore.create_entry(name, _without_newest_commit(_entry(config, view, location, suffix))):
                    change = "registered"
                existing = metastore.find(name)
            if existing:
                entry_location = _with_existing_scheme(location, existing)
                entry = _entry(config, view, entry_location, suffix)
                self._require_own_entry(existing, entry)
                count = len(view.partitions) if entry.keys else 0
                if not changed_partitions and existing.parameters.get(COMPLETED, "") >= entry.parameters[COMPLETED]:
                    return RegisteredEntry(identifier, "kept", count, added, dropped)
                partitions = partitions_of(config, view, entry_location)
                known_partitions = metastore.list_partitions(name) if entry.keys else set()
                new = {
                    values: partition_location
                    for values, partition_location in partitions.items()
                    if values not in known_partitions
                }
                obsolete = sorted(known_partitions - partitions.keys())
                changed_partitions |= bool(new or obsolete)
                metastore.add_partitions(name, entry, new)
                metastore.drop_partitions(name, obsolete)
                added, dropped = added + len(new), dropped + len(obsolete)
                if metastore.update_entry(name, existing, entry, _merge_parameters(existing, entry)):
                    return RegisteredEntry(identifier, change, count, added, dropped)
            seen = look()
        raise TryAgainError(
            f"Other processes changed the catalog entry {identifier!r} in each attempt. Register again.",
            identifier=identifier,
        )

    def _require_own_entry(self, existing: StoredEntry, entry: WantedEntry) -> None:
        identifier = f"{self.identifier}{entry.suffix}"
        if existing.parameters.get("table_type", "").upper() == "ICEBERG":
            raise CatalogRefused(
                f"Catalog entry {identifier!r} belongs to an Iceberg table. Register under another name.",
                identifier=identifier,
            )
        if _normalize_location(existing.location) != _normalize_location(entry.location):
            raise CatalogRefused(
                f"Catalog entry {identifier!r} belongs to another table, at {existing.location or 'no location'}. "
                "Register under another name. If the table was moved here, drop the entry.",
                identifier=identifier,
            )
        if not existing.input_format.startswith(_HUDI):
            raise CatalogRefused(
                f"Catalog entry {identifier!r} is not a Hudi table: its input format is "
                f"{existing.input_format or 'empty'}. Register under another name, or drop the entry.",
                identifier=identifier,
            )
        if existing.input_format != entry.input_format:
            raise CatalogRefused(
                f"Catalog entry {identifier!r} has another input format for this table: expected "
                f"{entry.input_format}, got {existing.input_format}, maybe from Hudi's sync. Register under another "
                "name, or drop the entry.",
                identifier=identifier,
            )
        entry_keys, table_keys = ([name for name, _ in keys] for keys in (existing.keys, entry.keys))
        if entry_keys != table_keys:
            raise CatalogRefused(
                f"Catalog entry {identifier!r} has other partition columns: expected "
                f"{', '.join(table_keys) or 'none'}, got {', '.join(entry_keys) or 'none'}. Catalogs cannot change "
                "them: drop the entry and register again.",
                identifier=identifier,
            )


def _entry(config: TableConfig, view: View, location: str, suffix: str) -> WantedEntry:
    return next(entry for entry in create_metastore_entries(config, view, location) if entry.suffix == suffix)


def _with_existing_scheme(location: str, existing: StoredEntry) -> str:
    # Readers may support only the S3 scheme of the existing entry.
    return existing.location if existing.location.startswith(("s3a://", "s3n://")) else location


def _normalize_location(location: str) -> str:
    # Metastores rewrite `file:` URIs, and S3 has several schemes.
    return _SCHEME.sub("", location).rstrip("/")


def _without_newest_commit(entry: WantedEntry) -> WantedEntry:
    # The partitions of a new entry do not exist yet.
    return replace(
        entry,
        parameters={name: value for name, value in entry.parameters.items() if name not in (REQUESTED, COMPLETED)},
    )


def _merge_parameters(existing: StoredEntry, entry: WantedEntry) -> dict[str, str]:
    # Old parameters for Spark are removed.
    kept = {name: value for name, value in existing.parameters.items() if not name.startswith(SPARKS)}
    return {**kept, **entry.parameters}
