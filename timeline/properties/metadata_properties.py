"""Properties that say which partitions of Hudi's metadata table are in use, and how the table is taken out of use."""

from __future__ import annotations

from collections.abc import Mapping

from hoodoo.storage.store import Store
from hoodoo.timeline.layout import INDEX_DEFINITIONS, METADATA_TABLE, PROPERTIES
from hoodoo.timeline.properties import config
from hoodoo.timeline.properties.config import METADATA_PARTITIONS

METADATA_INFLIGHT = "hoodie.table.metadata.partitions.inflight"
_METADATA_KEYS = (METADATA_PARTITIONS, METADATA_INFLIGHT, "hoodie.table.index.defs.path")


def with_files_only(values: Mapping[str, str]) -> dict[str, str]:
    """Return properties in which only the partition `files` of Hudi's metadata table is in use, if any partition is."""
    return {**values, METADATA_PARTITIONS: "files"} if values.get(METADATA_PARTITIONS) else dict(values)


def without_metadata_table(values: Mapping[str, str]) -> dict[str, str]:
    """Return properties in which Hudi's metadata table is not in use. Hudi lists folders then, and rebuilds it."""
    return {name: value for name, value in values.items() if name not in _METADATA_KEYS}


def remove_metadata_table(store: Store, now_ms: int) -> None:
    """Take Hudi's metadata table out of use, then delete its files (the other order breaks the next Spark write).

    A publisher may have put it back in use meanwhile, by what it had read before; then all of it again. One that does
    so later finds no files, and takes it out of use itself.
    """
    while True:
        values = config.read_properties(store)
        kept = without_metadata_table(values)
        if kept != values:
            store.put(PROPERTIES, config.render(kept, now_ms))
        for folder in (METADATA_TABLE + "/", INDEX_DEFINITIONS + "/"):
            for key, _ in list(store.list(folder)):
                store.delete(key)
        if METADATA_PARTITIONS not in config.read_properties(store):
            return
