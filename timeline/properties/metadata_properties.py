"""Properties of Hudi's metadata table."""

from __future__ import annotations

from collections.abc import Mapping

from hoodoo.storage.store import Store
from hoodoo.timeline.layout import INDEX_DEFINITIONS, METADATA_TABLE, PROPERTIES
from hoodoo.timeline.properties import hoodie_properties
from hoodoo.timeline.properties.config import METADATA_PARTITIONS

METADATA_INFLIGHT = "hoodie.table.metadata.partitions.inflight"
_METADATA_KEYS = (METADATA_PARTITIONS, METADATA_INFLIGHT, "hoodie.table.index.defs.path")


def with_files_only(values: Mapping[str, str]) -> dict[str, str]:
    return {**values, METADATA_PARTITIONS: "files"} if values.get(METADATA_PARTITIONS) else dict(values)


def without_metadata_table(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if name not in _METADATA_KEYS}


def remove_metadata_table(store: Store, now_ms: int) -> None:
    """Disable and delete Hudi's metadata table.

    The reverse order would break the next Spark write.

    If a concurrent commit enables the metadata table again with outdated properties, both steps are repeated. A later
    commit finds no files, and disables the metadata table itself.
    """
    while True:
        values = hoodie_properties.read_properties(store)
        disabled = without_metadata_table(values)
        if disabled != values:
            store.put(PROPERTIES, hoodie_properties.render(disabled, now_ms))
        for folder in (METADATA_TABLE + "/", INDEX_DEFINITIONS + "/"):
            for key, _ in list(store.list(folder)):
                store.delete(key)
        if METADATA_PARTITIONS not in hoodie_properties.read_properties(store):
            return
