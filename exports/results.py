"""What an export wrote, and how far one is behind, as callers are told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeltaExport:
    """What an export wrote of the Delta log.

    Attributes:
        version: The newest version of the Delta table.
        versions: How many versions were written. 0 where nothing had changed.
        files: How many files were written.
        bytes: The size of these files, in bytes.
    """

    version: int
    versions: int
    files: int
    bytes: int


@dataclass(frozen=True)
class IcebergExport:
    """What an export wrote of the Iceberg metadata.

    Attributes:
        metadata: The newest metadata file, relative to the table. Catalogs and some readers ask for it.
        snapshot: The id of the current snapshot.
        snapshots: How many snapshots were written. 0 where nothing had changed.
        files: How many files were written.
        bytes: The size of these files, in bytes.
    """

    metadata: str
    snapshot: int
    snapshots: int
    files: int
    bytes: int


@dataclass(frozen=True)
class CatalogEntry:
    """What became of the entry in a catalog.

    Attributes:
        identifier: The table in the catalog.
        metadata: The metadata file that the entry names.
        change: 'registered' where there was no entry before, 'moved' where it named an older file, 'kept' where it
            named this one or a newer one.
    """

    identifier: str
    metadata: str
    change: str


@dataclass(frozen=True)
class ExportResult:
    """What an export wrote.

    Attributes:
        slot: The slot as of which the exported formats show the table.
        delta: The Delta log, None where it was not asked for.
        iceberg: The Iceberg metadata, None where it was not asked for.
        catalog: The entry in a catalog, None where it was not asked for.
    """

    slot: int
    delta: DeltaExport | None = None
    iceberg: IcebergExport | None = None
    catalog: CatalogEntry | None = None


@dataclass(frozen=True)
class RegisteredEntry:
    """What became of one of Hudi's entries in a metastore.

    Attributes:
        identifier: The entry in the catalog.
        change: 'registered' where there was no entry before, 'refreshed' where it described an older commit, 'kept'
            where it described this one or a newer one.
        partitions: How many partitions the table has.
        added: How many partitions were added to the entry.
        dropped: How many partitions were taken out of it.
    """

    identifier: str
    change: str
    partitions: int
    added: int
    dropped: int


@dataclass(frozen=True)
class RegisterResult:
    """What became of Hudi's entries of a table in a metastore.

    Attributes:
        slot: The slot as of which the entries show the table's columns and partitions.
        entries: One entry of a copy-on-write table; of a merge-on-read table that of its base files, and two of its
            rows.
    """

    slot: int
    entries: tuple[RegisteredEntry, ...]


@dataclass(frozen=True)
class ExportLag:
    """What readers of an exported format do not see yet.

    Attributes:
        slot: The slot that the newest version or snapshot shows. 0: there is none, or another writer made it.
        slots: How many slots since then changed what readers see.
        seconds: The age of the oldest of them, in seconds.
    """

    slot: int
    slots: int
    seconds: float
