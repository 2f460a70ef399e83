"""Iceberg's table metadata, a JSON document: how each export makes the next one. Values in, values out.

It knows no store. What an export goes on from lies in the properties, beside what keeps other writers out.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

from hoodoo.exports.base_files import AS_OF_COMPACTION
from hoodoo.exports.iceberg.iceberg_schema import Json, name_mapping, schema_of
from hoodoo.exports.iceberg.manifests import FIRST_PARTITION_ID
from hoodoo.exports.partition_values import partition_columns
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import View

BY_COLUMNS, UNPARTITIONED = 0, 1
"""Partition specs of a partitioned table. Files in which no one value holds for all rows are in the second."""
SLOT, INSTANT, TABLE, VERSION = "hoodoo.slot", "hoodoo.instant", "hoodoo.table_id", "hoodoo.version"
OVERLAYS = "hoodoo.overlays"
"""The property that tells which overlays the current snapshot has."""
SNAPSHOTS_MAX = 1000
"""Each export writes all snapshots that are kept, so a table without cleans must not keep them all."""
METADATA_KEPT = 20
_GUARD = "none: hoodoo writes this table"
"""Instead of a file format: other writers fail with this text, and readers do not look at it."""


def first(location: str, table: str, sequence: int = 0, log: list[Json] | None = None) -> Json:
    """Metadata without a schema or a snapshot. sequence, log: of metadata that it replaces."""
    return {
        "format-version": 2,
        "table-uuid": str(uuid.UUID(hex=table)),
        "location": location,
        "last-sequence-number": sequence,
        "last-updated-ms": 0,
        "last-column-id": 0,
        "current-schema-id": 0,
        "schemas": [],
        "default-spec-id": BY_COLUMNS,
        "partition-specs": [],
        "last-partition-id": FIRST_PARTITION_ID - 1,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {},
        "current-snapshot-id": -1,
        "refs": {},
        "snapshots": [],
        "statistics": [],
        "snapshot-log": [],
        "metadata-log": log or [],
    }


def with_columns(metadata: Json, config: TableConfig, merges: bool = False) -> Json:
    """With the table's columns as the current schema, and what follows from them. merges: readers see what logs say."""
    schema = schema_of(config.columns)
    others = [one for one in metadata["schemas"] if one["schema-id"] != schema["schema-id"]]
    names = partition_columns(config)
    known = [*config.schemas.newest_first(), config.created]
    mapping = name_mapping([config.columns, *(one for one in known if one.id != config.columns.id)])
    properties = {
        "schema.name-mapping.default": json.dumps(mapping, separators=(",", ":")),
        "gc.enabled": "false",
        "write.format.default": _GUARD,
        "write.delete.format.default": _GUARD,
        "write.metadata.delete-after-commit.enabled": "false",
        # Iceberg's Spark runtime 1.10 and older cannot read texts whose lengths stand apart into batches.
        "read.parquet.vectorization.enabled": "false",
    }
    before = {name: value for name, value in metadata["properties"].items() if name != "comment"}
    comment = {"comment": AS_OF_COMPACTION} if config.merge_on_read and not merges else {}
    return {
        **metadata,
        "schemas": [*others, schema],
        "current-schema-id": schema["schema-id"],
        "last-column-id": max(config.columns.last, metadata["last-column-id"]),
        "partition-specs": metadata["partition-specs"] or _specs(config, names),
        "last-partition-id": FIRST_PARTITION_ID - 1 + len(names),
        "properties": {**before, **properties, **comment},
    }


def _specs(config: TableConfig, names: tuple[str, ...]) -> list[Json]:
    fields = [
        {
            "name": name,
            "transform": "identity",
            "source-id": config.columns.by_name[name].id,
            "field-id": FIRST_PARTITION_ID + at,
        }
        for at, name in enumerate(names)
    ]
    unpartitioned = [{"spec-id": UNPARTITIONED, "fields": []}] if names else []
    return [{"spec-id": BY_COLUMNS, "fields": fields}, *unpartitioned]


def with_snapshot(metadata: Json, snapshot: Json) -> Json:
    """With a snapshot, which is the current one from now on."""
    number, at_ms = snapshot["snapshot-id"], snapshot["timestamp-ms"]
    parent = {"parent-snapshot-id": metadata["current-snapshot-id"]} if metadata["snapshots"] else {}
    return {
        **metadata,
        "snapshots": [*metadata["snapshots"], {**snapshot, **parent}],
        "current-snapshot-id": number,
        "last-sequence-number": snapshot["sequence-number"],
        "refs": {"main": {"snapshot-id": number, "type": "branch"}},
        "snapshot-log": [*metadata["snapshot-log"], {"timestamp-ms": at_ms, "snapshot-id": number}],
    }


def at_slot(metadata: Json, view: View, version: int, previous: str, overlays: str) -> Json:
    """As metadata of slot `view.seq`.

    Args:
        metadata: The metadata so far.
        view: The table as of the slot.
        version: The number of its file.
        previous: The location of the file before, '' for none.
        overlays: What tells which overlays it has, '' where it passes over logs.
    """
    log: list[Json] = list(metadata["metadata-log"])
    if previous:
        log.append({"timestamp-ms": metadata["last-updated-ms"] or view.completed_at, "metadata-file": previous})
    said = {SLOT: str(view.seq), INSTANT: view.instant, TABLE: view.table, VERSION: str(version)}
    said |= {OVERLAYS: overlays} if overlays else {}
    before = {name: value for name, value in metadata["properties"].items() if name != OVERLAYS}
    return {
        **metadata,
        "last-updated-ms": max(view.completed_at, metadata["last-updated-ms"]),
        "metadata-log": log[-METADATA_KEPT:],
        "properties": {**before, **said},
    }


def overlays_of(metadata: Json) -> str:
    """What tells which overlays the current snapshot has, '' where it passes over logs."""
    return str(metadata["properties"].get(OVERLAYS, ""))


def without_expired(metadata: Json, min_readable: int, unchanged: Callable[[int, int], bool]) -> Json:
    """Without the snapshots whose files a clean may have deleted, and without the oldest beyond `SNAPSHOTS_MAX`.

    unchanged: tells of two slots whether base files are the same. If they are, the newest snapshot before slot
    `min_readable` shows that slot, and stays.
    """
    snapshots = metadata["snapshots"]
    kept = [one for one in snapshots if slot_of(one) >= min_readable]
    older = [one for one in snapshots if slot_of(one) < min_readable]
    if older and (not kept or slot_of(kept[0]) > min_readable and unchanged(slot_of(older[-1]), min_readable)):
        kept.insert(0, older[-1])
    kept = kept[-SNAPSHOTS_MAX:]
    if len(kept) == len(snapshots):
        return metadata
    ids = {one["snapshot-id"] for one in kept}
    first_kept, *rest = kept  # its parent is not there any more
    first_kept = {name: value for name, value in first_kept.items() if name != "parent-snapshot-id"}
    log = [entry for entry in metadata["snapshot-log"] if entry["snapshot-id"] in ids]
    return {**metadata, "snapshots": [first_kept, *rest], "snapshot-log": log}


def slot_of(snapshot: Json) -> int:
    """The slot that a snapshot of ours shows."""
    return int(snapshot["summary"][SLOT])


def is_ours(metadata: Any, version: int) -> bool:
    """Tell whether an export wrote the metadata file of this number: others keep the properties that they find."""
    properties = metadata.get("properties") if isinstance(metadata, dict) else None
    if not isinstance(properties, dict) or properties.get(VERSION) != str(version):
        return False
    slot = properties.get(SLOT)
    return isinstance(slot, str) and slot.isdecimal()
