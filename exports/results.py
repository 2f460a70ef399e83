"""Results of exports and catalog registrations."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeltaExport:
    """Result of an export to Delta.

    Attributes:
        version: The newest version of the Delta table.
        versions: The number of written versions. 0 if nothing had changed.
        files: The number of written files.
        bytes: The total size of these files, in bytes.
    """

    version: int
    versions: int
    files: int
    bytes: int


@dataclass(frozen=True)
class IcebergExport:
    """Result of an export to Iceberg.

    Attributes:
        metadata: The newest metadata file, relative to the table. Catalogs and some readers need it.
        snapshot: The id of the current snapshot.
        snapshots: The number of written snapshots. 0 if nothing had changed.
        files: The number of written files.
        bytes: The total size of these files, in bytes.
    """

    metadata: str
    snapshot: int
    snapshots: int
    files: int
    bytes: int


@dataclass(frozen=True)
class CatalogEntry:
    """Result of registering an Iceberg table in a catalog.

    Attributes:
        identifier: The name of the table in the catalog.
        metadata: The metadata file that the catalog entry points to.
        change: 'registered' for a new entry, 'moved' if the entry pointed to an older file, 'kept' if it already
            pointed to this file or a newer one.
    """

    identifier: str
    metadata: str
    change: str


@dataclass(frozen=True)
class ExportResult:
    """Result of exporting a table.

    Attributes:
        slot: The slot whose rows readers of the exported formats see.
        delta: The Delta export, or None if not requested.
        iceberg: The Iceberg export, or None if not requested.
        catalog: The catalog entry, or None if not requested.
    """

    slot: int
    delta: DeltaExport | None = None
    iceberg: IcebergExport | None = None
    catalog: CatalogEntry | None = None


@dataclass(frozen=True)
class RegisteredEntry:
    """Result of registering one catalog entry.

    Attributes:
        identifier: The name of the entry in the catalog.
        change: 'registered' for a new entry, 'refreshed' if the entry described an older commit, 'kept' if it already
            described this commit or a newer one.
        partitions: The number of partitions of the table.
        added: The number of partitions added to the entry.
        dropped: The number of partitions removed from the entry.
    """

    identifier: str
    change: str
    partitions: int
    added: int
    dropped: int


@dataclass(frozen=True)
class RegisterResult:
    """Result of registering a table in a metastore.

    Attributes:
        slot: The slot whose columns and partitions the entries show.
        entries: One entry for a copy-on-write table. For a merge-on-read table, one entry for its base files and two
            for its rows.
    """

    slot: int
    entries: tuple[RegisteredEntry, ...]


@dataclass(frozen=True)
class ExportLag:
    """Lag of an export.

    Attributes:
        slot: The slot that the newest version or snapshot shows. 0 if there is none, or if another writer wrote it.
        slots: The number of later slots that changed what readers see.
        seconds: The age of the oldest of these slots, in seconds.
    """

    slot: int
    slots: int
    seconds: float
