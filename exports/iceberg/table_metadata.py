"""Table metadata of Iceberg.

The contents are JSON documents. Table properties store the state from which the next export continues. Other properties
keep other writers from writing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

from hoodoo.exports.base_files import AS_OF_COMPACTION
from hoodoo.exports.iceberg.iceberg_schema import Json, create_name_mapping, schema_of
from hoodoo.exports.iceberg.manifests import FIRST_PARTITION_ID, ROW_LINEAGE
from hoodoo.exports.partition_values import partition_columns
from hoodoo.format.table_schema import LAST_META_ID
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import View

BY_COLUMNS, UNPARTITIONED = 0, 1
"""Ids of the partition specs.

UNPARTITIONED is for files whose rows have different partition values.
"""
SLOT, INSTANT, TABLE, VERSION = "hoodoo.slot", "hoodoo.instant", "hoodoo.table_id", "hoodoo.version"
OVERLAYS = "hoodoo.overlays"
"""Table property with the digest of the current snapshot's overlays."""
OLDEST_VERSION = 2
"""The oldest format version that an export writes, which is also the default."""
SNAPSHOTS_MAX = 1000
"""Maximum number of snapshots in a metadata file.

Each export writes all kept snapshots, so tables without cleaning need a limit.
"""
METADATA_KEPT = 20
_GUARD = "none: hoodoo writes this table"
# Value of properties that only writers use. Other writers fail and show this value, and readers ignore it.


def create_empty_metadata(location: str, table: str, sequence: int = 0) -> Json:
    """Create Iceberg table metadata without snapshots.

    It has no schema and no snapshot. `sequence` is the last sequence number of the metadata that this metadata
    replaces.
    """
    return {
        "format-version": OLDEST_VERSION,
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
        "metadata-log": [],
    }


def set_format_version(metadata: Json, version: int, next_row_id: int = 0) -> Json:
    """Set the format version in Iceberg table metadata.

    `next_row_id` is the first unused row id, if version 3 metadata does not contain it yet.
    """
    lineage = {"next-row-id": metadata.get("next-row-id", next_row_id)} if version >= ROW_LINEAGE else {}
    return {**metadata, "format-version": version, **lineage}


def set_current_schema(metadata: Json, config: TableConfig, merges: bool = False) -> Json:
    """Set the current schema in Iceberg table metadata.

    `merges` is True if readers see the contents of logs.
    """
    schema = schema_of(config.columns)
    other_schemas = [existing for existing in metadata["schemas"] if existing["schema-id"] != schema["schema-id"]]
    names = partition_columns(config)
    all_schemas = [*config.schemas.newest_first(), config.created]
    mapping = create_name_mapping(
        [config.columns, *(existing for existing in all_schemas if existing.id != config.columns.id)]
    )
    properties = {
        "schema.name-mapping.default": json.dumps(mapping, separators=(",", ":")),
        "gc.enabled": "false",
        "write.format.default": "parquet",  # Trino checks the value also when it reads
        "write.delete.format.default": _GUARD,
        "write.location-provider.impl": _GUARD,
        "write.py-location-provider.impl": _GUARD,
        "write.metadata.delete-after-commit.enabled": "false",
        # Iceberg's Spark runtime up to 1.10 cannot read strings with separately encoded lengths in its vectorized
        # reader.
        "read.parquet.vectorization.enabled": "false",
    }
    kept_properties = {name: value for name, value in metadata["properties"].items() if name != "comment"}
    comment = {"comment": AS_OF_COMPACTION} if config.merge_on_read and not merges else {}
    return {
        **metadata,
        "schemas": [*other_schemas, schema],
        "current-schema-id": schema["schema-id"],
        # ClickHouse rejects files with column ids above the last one, and meta columns have such ids
        "last-column-id": max(LAST_META_ID, config.columns.last, metadata["last-column-id"]),
        "partition-specs": metadata["partition-specs"] or _specs(config, names),
        "last-partition-id": FIRST_PARTITION_ID - 1 + len(names),
        "properties": {**kept_properties, **properties, **comment},
    }


def _specs(config: TableConfig, names: tuple[str, ...]) -> list[Json]:
    fields = [
        {
            "name": name,
            "transform": "identity",
            "source-id": config.columns.by_name[name].id,
            "field-id": FIRST_PARTITION_ID + index,
        }
        for index, name in enumerate(names)
    ]
    unpartitioned = [{"spec-id": UNPARTITIONED, "fields": []}] if names else []
    return [{"spec-id": BY_COLUMNS, "fields": fields}, *unpartitioned]


def add_current_snapshot(metadata: Json, snapshot: Json) -> Json:
    number, at_ms = snapshot["snapshot-id"], snapshot["timestamp-ms"]
    parent = {"parent-snapshot-id": metadata["current-snapshot-id"]} if metadata["snapshots"] else {}
    lineage = {"next-row-id": snapshot["first-row-id"] + snapshot["added-rows"]} if "added-rows" in snapshot else {}
    return {
        **metadata,
        **lineage,
        "snapshots": [*metadata["snapshots"], {**snapshot, **parent}],
        "current-snapshot-id": number,
        "last-sequence-number": snapshot["sequence-number"],
        "refs": {"main": {"snapshot-id": number, "type": "branch"}},
        "snapshot-log": [*metadata["snapshot-log"], {"timestamp-ms": at_ms, "snapshot-id": number}],
    }


def record_exported_commit(metadata: Json, view: View, version: int, previous: str, overlays: str) -> Json:
    """Record an exported commit in Iceberg metadata.

    Args:
        metadata: The metadata so far.
        view: The table at the exported slot.
        version: The number of the metadata file.
        previous: The location of the previous metadata file, or '' if there is none.
        overlays: The digest of the overlays, or '' if logs are not exported.
    """
    log: list[Json] = list(metadata["metadata-log"])
    if previous:
        log.append({"timestamp-ms": metadata["last-updated-ms"] or view.completed_at, "metadata-file": previous})
    state = {SLOT: str(view.seq), INSTANT: view.instant, TABLE: view.table, VERSION: str(version)}
    state |= {OVERLAYS: overlays} if overlays else {}
    kept_properties = {name: value for name, value in metadata["properties"].items() if name != OVERLAYS}
    return {
        **metadata,
        "last-updated-ms": max(view.completed_at, metadata["last-updated-ms"]),
        "metadata-log": log[-METADATA_KEPT:],
        "properties": {**kept_properties, **state},
    }


def merged_logs_digest(metadata: Json) -> str:
    return str(metadata["properties"].get(OVERLAYS, ""))


def remove_expired_snapshots(metadata: Json, min_readable: int, unchanged: Callable[[int, int], bool]) -> Json:
    """Remove expired snapshots from Iceberg metadata.

    Cleaning may have deleted the files of these snapshots. The oldest snapshots beyond `SNAPSHOTS_MAX` are removed too.
    `unchanged` returns whether two slots have the same base files. If they do, the newest snapshot before slot
    `min_readable` shows that slot, and is kept.
    """
    snapshots = metadata["snapshots"]
    kept = [snapshot for snapshot in snapshots if slot_of(snapshot) >= min_readable]
    older = [snapshot for snapshot in snapshots if slot_of(snapshot) < min_readable]
    if older and (not kept or slot_of(kept[0]) > min_readable and unchanged(slot_of(older[-1]), min_readable)):
        kept.insert(0, older[-1])
    kept = kept[-SNAPSHOTS_MAX:]
    if len(kept) == len(snapshots):
        return metadata
    ids = {snapshot["snapshot-id"] for snapshot in kept}
    first_kept, *rest = kept  # its parent was removed
    first_kept = {name: value for name, value in first_kept.items() if name != "parent-snapshot-id"}
    log = [entry for entry in metadata["snapshot-log"] if entry["snapshot-id"] in ids]
    return {**metadata, "snapshots": [first_kept, *rest], "snapshot-log": log}


def slot_of(snapshot: Json) -> int:
    return int(snapshot["summary"][SLOT])


def is_written_by_hoodoo(metadata: Any, version: int) -> bool:
    """Check whether hoodoo wrote an Iceberg metadata file.

    Other writers copy the properties, but with the old version number.
    """
    properties = metadata.get("properties") if isinstance(metadata, dict) else None
    if not isinstance(properties, dict) or properties.get(VERSION) != str(version):
        return False
    slot = properties.get(SLOT)
    return isinstance(slot, str) and slot.isdecimal()
