"""Search for exported metadata files."""

from __future__ import annotations

from collections.abc import Callable, Collection

from hoodoo.exports.delta import log
from hoodoo.exports.iceberg import metadata_files, table_metadata
from hoodoo.storage.store import Store
from hoodoo.timeline.layout import VECTORS


def find_exported_files(store: Store, keys: Collection[str]) -> set[str]:
    """Find metadata files that hoodoo exported.

    If another writer wrote the newest version in a metadata folder, no file of this folder is returned, because that
    version may need all of them.

    Args:
        store: The store of the table.
        keys: The paths of the files to choose from.
    """
    own_files = {key for key in keys if key.startswith(VECTORS)}
    if any(key.startswith(log.FOLDER) for key in keys) and not log.newest(store).external:
        own_files |= _named(keys, log.FOLDER, log.is_delta_log_file_name)
    if any(key.startswith(metadata_files.FOLDER) for key in keys):
        version, metadata = metadata_files.find_newest_metadata(store)
        if not version or table_metadata.is_written_by_hoodoo(metadata, version):
            own_files |= _named(keys, metadata_files.FOLDER, metadata_files.is_iceberg_metadata_name)
    return own_files


def _named(keys: Collection[str], folder: str, is_wanted: Callable[[str], bool]) -> set[str]:
    return {key for key in keys if key.startswith(folder) and is_wanted(key.removeprefix(folder))}
