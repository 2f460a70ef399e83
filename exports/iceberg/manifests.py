"""Encoding of Iceberg manifests and manifest lists.

Equal input gives equal bytes, because several exporters may write the same file.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

import fastavro
import pyarrow as pa

from hoodoo.exports.iceberg.iceberg_schema import Json
from hoodoo.exports.iceberg.single_values import avro_type_of_partition, encode_partition_bound

EXISTING, ADDED, DELETED = 0, 1, 2
DATA, POSITION_DELETES = 0, 1
"""Contents of a manifest: data files or position delete files."""
ROW_LINEAGE = 3
"""The first format version with row ids and deletion vectors."""
FIRST_PARTITION_ID = 1000
RANGES = "hoodoo.ranges"
"""Header of a manifest list with the range of slots and paths of the files in each manifest.

It shows which manifests may contain a file, so that other manifests need not be read. Readers ignore unknown headers.
"""


def create_manifest_schema(columns: Sequence[tuple[str, pa.DataType]], content: int, version: int) -> Json:
    """Create the Avro schema of an Iceberg manifest.

    `columns` are the partition columns. `content` is DATA or POSITION_DELETES, and `version` is the format version of
    the table.
    """
    lineage = [_optional("first_row_id", "long", 142)] if version >= ROW_LINEAGE else []
    deletes = [_optional("referenced_data_file", "string", 143)] if content == POSITION_DELETES else []
    if lineage and deletes:
        deletes += [_optional("content_offset", "long", 144), _optional("content_size_in_bytes", "long", 145)]
    partition = [
        _optional(name, avro_type_of_partition(kind, FIRST_PARTITION_ID + index), FIRST_PARTITION_ID + index)
        for index, (name, kind) in enumerate(columns)
    ]
    data_file = {
        "type": "record",
        "name": "r2",
        "fields": [
            _required("content", "int", 134),
            _required("file_path", "string", 100),
            _required("file_format", "string", 101),
            _required("partition", {"type": "record", "name": "r102", "fields": partition}, 102),
            _required("record_count", "long", 103),
            _required("file_size_in_bytes", "long", 104),
            _column_map_field("value_counts", 109, 119, 120, "long"),
            _column_map_field("null_value_counts", 110, 121, 122, "long"),
            _column_map_field("lower_bounds", 125, 126, 127, "bytes"),
            _column_map_field("upper_bounds", 128, 129, 130, "bytes"),
            _optional("sort_order_id", "int", 140),
            *lineage,
            *deletes,
        ],
    }
    return {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            _required("status", "int", 0),
            _optional("snapshot_id", "long", 1),
            _optional("sequence_number", "long", 3),
            _optional("file_sequence_number", "long", 4),
            _required("data_file", data_file, 2),
        ],
    }


def _required(name: str, kind: Any, number: int) -> Json:
    return {"name": name, "type": kind, "field-id": number}


def _optional(name: str, kind: Any, number: int) -> Json:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": number}


def _column_map_field(name: str, number: int, key: int, value: int, kind: str) -> Json:
    # Avro represents a map from column ids to values as an array of pairs.
    pair = {
        "type": "record",
        "name": f"k{key}_v{value}",
        "fields": [_required("key", "int", key), _required("value", kind, value)],
    }
    return _optional(name, {"type": "array", "logicalType": "map", "items": pair}, number)


_SUMMARY = {
    "type": "record",
    "name": "r508",
    "fields": [
        _required("contains_null", "boolean", 509),
        _optional("contains_nan", "boolean", 518),
        _optional("lower_bound", "bytes", 510),
        _optional("upper_bound", "bytes", 511),
    ],
}
_LIST_SCHEMA: Json = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        _required("manifest_path", "string", 500),
        _required("manifest_length", "long", 501),
        _required("partition_spec_id", "int", 502),
        _required("content", "int", 517),
        _required("sequence_number", "long", 515),
        _required("min_sequence_number", "long", 516),
        _required("added_snapshot_id", "long", 503),
        _required("added_files_count", "int", 504),
        _required("existing_files_count", "int", 505),
        _required("deleted_files_count", "int", 506),
        _required("added_rows_count", "long", 512),
        _required("existing_rows_count", "long", 513),
        _required("deleted_rows_count", "long", 514),
        _optional("partitions", {"type": "array", "element-id": 508, "items": _SUMMARY}, 507),
    ],
}


def encode_manifest(
    entries: Sequence[Json],
    schema: Json,
    spec: Json,
    columns: Sequence[tuple[str, pa.DataType]],
    content: int,
    version: int,
) -> bytes:
    """Encode an Iceberg manifest.

    Args:
        entries: The entries of the manifest.
        schema: The schema in the table metadata.
        spec: The partition spec in the table metadata.
        columns: The columns of the partition spec.
        content: DATA or POSITION_DELETES.
        version: The format version of the table.
    """
    header = {
        "schema": json.dumps(schema, separators=(",", ":")),
        "schema-id": str(schema["schema-id"]),
        # sorted, so that read specs and new specs give equal bytes
        "partition-spec": json.dumps(spec["fields"], separators=(",", ":"), sort_keys=True),
        "partition-spec-id": str(spec["spec-id"]),
        "format-version": str(version),
        "content": "deletes" if content == POSITION_DELETES else "data",
    }
    return _encode_avro_file(create_manifest_schema(columns, content, version), entries, header)


def encode_manifest_list(
    manifests: Sequence[Json], snapshot: int, parent: int | None, sequence: int, version: int
) -> bytes:
    """Encode an Iceberg manifest list.

    Args:
        manifests: The manifests, as results of `create_list_entry`.
        snapshot: The id of the snapshot.
        parent: The id of the previous snapshot, or None if there is none.
        sequence: The sequence number of the snapshot.
        version: The format version of the table.
    """
    header = {
        "snapshot-id": str(snapshot),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "sequence-number": str(sequence),
        "format-version": str(version),
        RANGES: json.dumps([manifest["range"] for manifest in manifests], separators=(",", ":")),
    }
    lineage = [_optional("first_row_id", "long", 520)] if version >= ROW_LINEAGE else []
    return _encode_avro_file({**_LIST_SCHEMA, "fields": [*_LIST_SCHEMA["fields"], *lineage]}, manifests, header)


def _encode_avro_file(schema: Json, records: Iterable[Json], header: dict[str, str]) -> bytes:
    # The sync marker of the file is a hash of the header, so that all exporters write equal bytes.
    mark = hashlib.md5(json.dumps(header, sort_keys=True).encode(), usedforsecurity=False).digest()
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), records, codec="deflate", metadata=header, sync_marker=mark)
    return out.getvalue()


def decode(data: bytes) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(data)))


def decode_manifest_list(data: bytes) -> list[Json]:
    """Decode an Iceberg manifest list.

    The list must come from hoodoo, because the ranges are in its header.
    """
    reader = fastavro.reader(io.BytesIO(data))
    ranges = json.loads(reader.metadata[RANGES])
    return [{**manifest, "range": span} for manifest, span in zip(reader, ranges, strict=True)]  # type: ignore[dict-item]


def select_live_entries(entries: Iterable[Json], manifest: Json) -> list[Json]:
    """Select the manifest entries of live files.

    Inherited sequence numbers and row ids are filled in.
    """
    live = []
    next_row_id = manifest.get("first_row_id")
    for entry in entries:
        if entry["status"] == DELETED:
            continue
        data_file = entry["data_file"]
        if next_row_id is not None and data_file.get("first_row_id") is None:
            data_file = {**data_file, "first_row_id": next_row_id}
            next_row_id += data_file["record_count"]
        inherited = {
            "status": EXISTING,
            "sequence_number": _first(entry["sequence_number"], manifest["sequence_number"]),
            "file_sequence_number": _first(entry["file_sequence_number"], manifest["sequence_number"]),
            "data_file": data_file,
        }
        live.append({**entry, **inherited})
    return live


def with_row_ids(manifests: Iterable[Json], next_row_id: int) -> tuple[list[Json], int]:
    numbered = []
    for manifest in manifests:
        if manifest["content"] == DATA and manifest.get("first_row_id") is None:
            numbered.append({**manifest, "first_row_id": next_row_id})
            next_row_id += count_manifest_rows(manifest)
        else:
            numbered.append(manifest)
    return numbered, next_row_id


def _first(number: int | None, inherited: int) -> int:
    return inherited if number is None else number


def create_list_entry(
    path: str,
    size: int,
    entries: Sequence[Json],
    spec: int,
    columns: Sequence[tuple[str, pa.DataType]],
    snapshot: int,
    sequence: int,
    span: list[Any],
    content: int = DATA,
) -> Json:
    """Create the manifest list entry of a manifest.

    `columns` are the columns of its spec, `span` is its value in `RANGES`, and `content` is DATA or POSITION_DELETES.
    """
    rows = {
        status: [entry["data_file"]["record_count"] for entry in entries if entry["status"] == status]
        for status in (EXISTING, ADDED, DELETED)
    }
    alive = [_first(entry["sequence_number"], sequence) for entry in entries if entry["status"] != DELETED]
    return {
        "manifest_path": path,
        "manifest_length": size,
        "partition_spec_id": spec,
        "content": content,
        "sequence_number": sequence,
        "min_sequence_number": min(alive, default=sequence),
        "added_snapshot_id": snapshot,
        "added_files_count": len(rows[ADDED]),
        "existing_files_count": len(rows[EXISTING]),
        "deleted_files_count": len(rows[DELETED]),
        "added_rows_count": sum(rows[ADDED]),
        "existing_rows_count": sum(rows[EXISTING]),
        "deleted_rows_count": sum(rows[DELETED]),
        "partitions": [_summary([e["data_file"]["partition"][name] for e in entries], kind) for name, kind in columns],
        "range": span,
    }


def _summary(values: list[Any], kind: pa.DataType) -> Json:
    filled = [value for value in values if value is not None]
    return {
        "contains_null": len(filled) < len(values),
        "contains_nan": False,
        "lower_bound": encode_partition_bound(min(filled), kind) if filled else None,
        "upper_bound": encode_partition_bound(max(filled), kind) if filled else None,
    }


def files_in(manifest: Json) -> int:
    count: int = manifest["added_files_count"] + manifest["existing_files_count"]
    return count


def count_manifest_rows(manifest: Json) -> int:
    """Count the rows of an Iceberg manifest.

    Rows of removed files do not count. For position deletes, this is the number of deleted rows.
    """
    count: int = manifest["added_rows_count"] + manifest["existing_rows_count"]
    return count
