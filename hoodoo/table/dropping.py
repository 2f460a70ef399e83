"""Dropping of tables with `hoodoo.drop`."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from hoodoo.errors import TableNotFound
from hoodoo.exports.exported_files import find_exported_files
from hoodoo.format.names import PARTITION_METADATA, parse_data_file
from hoodoo.hints import takes
from hoodoo.storage.store import Store
from hoodoo.storage.store_of_path import open_store
from hoodoo.timeline import create_table
from hoodoo.timeline.environment import SYSTEM
from hoodoo.timeline.layout import HOODIE, PROPERTIES, PROPERTIES_BACKUP
from hoodoo.timeline.properties.nesting import inner_tables

_PASSES = 2  # the second one deletes files that writers created during the first


@dataclass
class DropResult:
    """Result of `hoodoo.drop`.

    Attributes:
        path: The path of the deleted table.
        files: The number of deleted files.
        bytes: The total size of the deleted files, in bytes.
        kept: The paths, relative to the table, of files that neither hoodoo nor Apache Hudi wrote. They stay.
    """

    path: str
    files: int = 0
    bytes: int = 0
    kept: list[str] = field(default_factory=list)


@takes
def drop(path: str | os.PathLike[str], *, storage: Mapping[str, object] | None = None) -> DropResult:
    """Delete a table.

    This deletes its data files, its history, and the Delta and Iceberg metadata of its exports. A deleted table cannot
    be restored, so stop all writers and workers of the table first. Files that neither hoodoo nor Apache Hudi wrote
    stay, and so do tables inside the folder, metadata that another writer of Delta or Iceberg committed to, the
    quarantine table at `<path>__quarantine`, and entries in catalogs. On a local disk, folders that are empty
    afterwards are removed.

    The table properties are deleted last. If the call is interrupted, call it again: it deletes the remaining files. A
    damaged table can be deleted, too.

    Args:
        path: The location of the table: a local folder or 's3://bucket/prefix'.
        storage: Store options, see `open`. None (default): no options.

    Returns:
        The number of deleted files, and the paths of the files that stay.

    Raises:
        OptionError: An argument has an invalid value.
        TableNotFound: There is no table at the path.
        CorruptTable: A folder of the table is a symbolic link.
        StoreDenied: The store does not allow this process to delete a file.
        StoreRefused: The path is on a network file system.
        BucketNotFound: The bucket does not exist.
        CredentialsError: The store rejects the credentials, or no credentials are available.
    """
    store = open_store(path, storage)
    _require_table(store)
    result = DropResult(store.uri)
    store.delete(PROPERTIES_BACKUP)  # fails before any other file is deleted if .hoodie is a symbolic link
    for _ in range(_PASSES):
        sizes = dict(store.list(""))
        owned = _table_files(store, sizes) - {PROPERTIES}
        result.kept = sorted(sizes.keys() - owned - {PROPERTIES})
        _delete_with_empty_folders(store, [key for key in sorted(owned) if not key.startswith(HOODIE)])
        _delete_with_empty_folders(store, [key for key in sorted(owned) if key.startswith(HOODIE)])
        result.files += len(owned)
        result.bytes += sum(sizes[key] for key in owned)
    result.files += 1
    result.bytes += sizes.get(PROPERTIES, 0)
    store.delete(PROPERTIES)
    store.remove_empty_folders(HOODIE if result.kept else "")
    return result


def _require_table(store: Store) -> None:
    if not any(map(store.exists, (PROPERTIES, PROPERTIES_BACKUP))) and not create_table.exists(store):
        raise TableNotFound(
            f"Path {store.uri} is not a table: expected the file {PROPERTIES}, found none. Correct the path. If the "
            "table was deleted before, nothing is left to delete.",
            path=store.uri,
        )


def _table_files(store: Store, keys: Collection[str]) -> set[str]:
    inner = tuple(inner_tables(keys))
    exported = find_exported_files(store, keys)
    found = {key for key in keys if key in exported or not key.startswith(inner) and _is_table_file(key)}
    return found | {key for key in keys if _file_of_checksum(key) in found}


def _is_table_file(key: str) -> bool:
    name = key.rpartition("/")[2]
    return key.startswith(HOODIE) or name.startswith(PARTITION_METADATA) or parse_data_file(name) is not None


def _file_of_checksum(key: str) -> str:
    folder, slash, name = key.rpartition("/")
    return folder + slash + name[1:-4] if name.startswith(".") and name.endswith(".crc") else ""


def _delete_with_empty_folders(store: Store, keys: Collection[str]) -> None:
    SYSTEM.together([lambda key=key: store.delete(key) for key in keys])  # type: ignore[misc]  # mypy has no type
    for key in keys:
        store.prune_folders(key)


__all__ = ["DropResult", "drop"]
