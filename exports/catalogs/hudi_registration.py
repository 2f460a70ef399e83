"""Registration of a Hudi table in a Hive metastore or Glue, for engines that find Hudi tables there.

An entry records the newest commit that it describes. If this is the newest commit, nothing else is read.

Partitions are updated first, and then the entry. The entry is updated only if nobody changed it in the meantime. After
an interruption or a concurrent change, the update starts again with the current table. An entry that claims to be up to
date therefore is. Entries of other tables are not changed, and no entry is ever dropped.
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
    entries_of,
    partitions_of,
)
from hoodoo.exports.catalogs.in_glue import GlueEntries
from hoodoo.exports.catalogs.in_hive import HiveEntries
from hoodoo.exports.catalogs.metastore import FoundEntry, Metastore
from hoodoo.exports.catalogs.opening import require_identifier, require_namespace
from hoodoo.exports.iceberg.manifest_files import location_of
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
"""Function that returns the table's current configuration and view."""


def require_hudi_identifier(option: str, identifier: object) -> str:
    """Return the name of a table in a metastore. Raises OptionError unless it consists of one namespace and a name."""
    named = require_identifier(option, identifier)
    if named.count(".") > 1:
        raise OptionError(
            f"{option} takes one namespace and a table, as 'lake.rides', got {printable(named)}: Hive and Glue have no "
            "namespaces within namespaces.",
            option=option,
        )
    return named


def metastore_of(catalog: Any, identifier: str) -> Metastore:
    """Return the Hive metastore or Glue catalog behind a pyiceberg catalog.

    Raises CatalogRefused for a kind of catalog that cannot store Hudi tables.
    """
    kinds = {one.__name__ for one in type(catalog).__mro__}
    namespace = identifier.partition(".")[0]
    if "HiveCatalog" in kinds:
        return HiveEntries(catalog, namespace)
    if "GlueCatalog" in kinds:
        return GlueEntries(catalog, namespace)
    raise CatalogRefused(
        f"A {type(catalog).__name__} holds no Hudi tables. Kinds that do: {', '.join(HUDI_KINDS)}. "
        "The Iceberg entry of a table comes from export(iceberg=True, register=...).",
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

    def run(self, store: Store, look: Look) -> RegisterResult:
        """Create or update the metastore entries of the table.

        Args:
            store: The store of the table.
            look: Returns the table's current configuration and view.

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
            require_namespace(self.catalog, self.identifier)
            return self._run(metastore, location_of(store), look)
        except HoodooError:
            raise
        except Exception as problem:  # each catalog raises its own errors
            raise CatalogRefused(
                f"The catalog did not take the entry {self.identifier!r}: "
                f"{(str(problem) or type(problem).__name__).rstrip('. ')}.",
                identifier=self.identifier,
            ) from problem

    def _run(self, metastore: Metastore, location: str, look: Look) -> RegisterResult:
        config, view = look()
        wanted = entries_of(config, view, location)
        for entry in wanted:  # check all entries before the first one is written
            found = metastore.find(self._name(entry.suffix))
            if found:
                self._require_ours(found, entry)
        done = [self._bring(metastore, entry.suffix, location, (config, view), look) for entry in wanted]
        return RegisterResult(view.seq, tuple(done))

    def _name(self, suffix: str) -> str:
        return self.identifier.partition(".")[2].lower() + suffix

    def _bring(
        self, metastore: Metastore, suffix: str, location: str, seen: tuple[TableConfig, View], look: Look
    ) -> RegisteredEntry:
        """Create or update one metastore entry and its partitions."""
        name = self._name(suffix)
        identifier = f"{self.identifier.partition('.')[0]}.{name}"
        change, touched = "refreshed", False
        added = dropped = 0
        for _ in range(_ATTEMPTS):
            config, view = seen
            found = metastore.find(name)
            if not found:
                if metastore.create(name, _without_newest_commit(_entry(config, view, location, suffix))):
                    change = "registered"
                found = metastore.find(name)
            if found:
                spelled = _spelled(location, found)
                entry = _entry(config, view, spelled, suffix)
                self._require_ours(found, entry)
                count = len(view.partitions) if entry.keys else 0
                if not touched and found.parameters.get(COMPLETED, "") >= entry.parameters[COMPLETED]:
                    return RegisteredEntry(identifier, "kept", count, added, dropped)
                wanted = partitions_of(config, view, spelled)
                there = metastore.partitions(name) if entry.keys else set()
                new = {values: place for values, place in wanted.items() if values not in there}
                gone = sorted(there - wanted.keys())
                touched |= bool(new or gone)
                metastore.add(name, entry, new)
                metastore.drop(name, gone)
                added, dropped = added + len(new), dropped + len(gone)
                if metastore.change(name, found, entry, _parameters(found, entry)):
                    return RegisteredEntry(identifier, change, count, added, dropped)
            seen = look()
        raise TryAgainError(
            f"Other processes changed the catalog's entry {identifier!r} in each attempt. Register again.",
            identifier=identifier,
        )

    def _require_ours(self, found: FoundEntry, entry: WantedEntry) -> None:
        """Raise CatalogRefused if an existing metastore entry does not belong to this table."""
        identifier = f"{self.identifier}{entry.suffix}"
        if found.parameters.get("table_type", "").upper() == "ICEBERG":
            raise CatalogRefused(
                f"The catalog's entry {identifier!r} is an Iceberg table. Register under another name.",
                identifier=identifier,
            )
        if _place(found.location) != _place(entry.location):
            raise CatalogRefused(
                f"The catalog's entry {identifier!r} is another table, at {found.location or 'no place'}. Register "
                "under another name; or, if the table was moved here, drop that entry.",
                identifier=identifier,
            )
        if not found.input_format.startswith(_HUDI):
            raise CatalogRefused(
                f"The catalog's entry {identifier!r} is not a Hudi table: its files are read by "
                f"{found.input_format or 'nothing'}. Register under another name, or drop that entry.",
                identifier=identifier,
            )
        if found.input_format != entry.input_format:
            raise CatalogRefused(
                f"The catalog's entry {identifier!r} reads this table by {found.input_format}, as Hudi's sync may "
                f"make it, and hoodoo's reads by {entry.input_format}. Register under another name, or drop "
                "that entry.",
                identifier=identifier,
            )
        were, are = ([name for name, _ in keys] for keys in (found.keys, entry.keys))
        if were != are:
            raise CatalogRefused(
                f"The catalog's entry {identifier!r} is partitioned by {', '.join(were) or 'nothing'}, and the table "
                f"by {', '.join(are) or 'nothing'}. No catalog can change that: drop that entry and register again.",
                identifier=identifier,
            )


def _entry(config: TableConfig, view: View, location: str, suffix: str) -> WantedEntry:
    return next(one for one in entries_of(config, view, location) if one.suffix == suffix)


def _spelled(location: str, found: FoundEntry) -> str:
    """Return the table's location with the S3 scheme of the existing entry, because its readers may know only that
    scheme.
    """
    return found.location if found.location.startswith(("s3a://", "s3n://")) else location


def _place(location: str) -> str:
    """Normalize a location for comparisons. Metastores rewrite `file:` URIs, and S3 has several schemes."""
    return _SCHEME.sub("", location).rstrip("/")


def _without_newest_commit(entry: WantedEntry) -> WantedEntry:
    """Return a new entry without the newest commit in its parameters, because it does not have partitions yet."""
    return replace(
        entry,
        parameters={name: value for name, value in entry.parameters.items() if name not in (REQUESTED, COMPLETED)},
    )


def _parameters(found: FoundEntry, entry: WantedEntry) -> dict[str, str]:
    """Merge hoodoo's parameters into the parameters of an existing entry. Old parameters for Spark are removed."""
    theirs = {name: value for name, value in found.parameters.items() if not name.startswith(SPARKS)}
    return {**theirs, **entry.parameters}
