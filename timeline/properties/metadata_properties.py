"""Table properties of Hudi's metadata table: its enabled partitions, and disabling it."""

from __future__ import annotations

from collections.abc import Mapping

from hoodoo.storage.store import Store
from hoodoo.timeline.layout import INDEX_DEFINITIONS, METADATA_TABLE, PROPERTIES
from hoodoo.timeline.properties import hoodie_properties
from hoodoo.timeline.properties.config import METADATA_PARTITIONS

METADATA_INFLIGHT = "hoodie.table.metadata.partitions.inflight"
_METADATA_KEYS = (METADATA_PARTITIONS, METADATA_INFLIGHT, "hoodie.table.index.defs.path")


def with_files_only(values: Mapping[str, str]) -> dict[str, str]:
    """Return table properties that enable only the partition `files` of Hudi's metadata table.

    If the metadata table is disabled, it stays disabled.
    """
    return {**values, METADATA_PARTITIONS: "files"} if values.get(METADATA_PARTITIONS) else dict(values)


def without_metadata_table(values: Mapping[str, str]) -> dict[str, str]:
    """Return table properties that disable Hudi's metadata table. Hudi then lists folders, and rebuilds it."""
    return {name: value for name, value in values.items() if name not in _METADATA_KEYS}


def remove_metadata_table(store: Store, now_ms: int) -> None:
    """Disable Hudi's metadata table, then delete its files. The reverse order would break the next Spark write.

    A concurrent commit may enable the metadata table again from old properties. In that case, both steps are repeated.
    A commit that does so later finds no files, and disables the metadata table itself.
    """
    while True:
        values = hoodie_properties.read_properties(store)
        kept = without_metadata_table(values)
        if kept != values:
            store.put(PROPERTIES, hoodie_properties.render(kept, now_ms))
        for folder in (METADATA_TABLE + "/", INDEX_DEFINITIONS + "/"):
            for key, _ in list(store.list(folder)):
                store.delete(key)
        if METADATA_PARTITIONS not in hoodie_properties.read_properties(store):
            return
