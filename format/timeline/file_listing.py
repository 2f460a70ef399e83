"""Encoder for file lists in Hudi's metadata table.

The records are encoded with the metadata table's own schema, which the caller passes. Facts: docs/format.md 13.6.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Mapping
from typing import Any

import fastavro

from hoodoo.format.names import META_COLUMNS

ALL_PARTITIONS = "__all_partitions__"
"""Key of the record that lists the partitions."""
ROOT = "."
"""Name of the only partition of a table without partitions."""
_PARTITION_LIST, _FILES = 1, 2
_FIELDS = ("key", "type", "filesystemMetadata")
Changes = Mapping[str, Mapping[str, int | None]]
"""Size in bytes of each added file, or None for a removed file."""


def metadata_record_schema(text: str) -> str | None:
    """Return the record schema of the metadata table.

    Args:
        text: The schema in the metadata table's commits, as Avro JSON, with or without the meta columns.

    Returns:
        The schema as Avro JSON. None if `encode_file_list` does not support it.
    """
    try:
        schema = json.loads(text)
        own = [field for field in schema["fields"] if field["name"] not in META_COLUMNS]
        if not _is_supported_schema(own):
            return None
        meta = [{"name": name, "type": ["null", "string"], "doc": "", "default": None} for name in META_COLUMNS]
        full = json.dumps({**schema, "fields": [*meta, *own]}, separators=(",", ":"))
        _parsed(full)
    except Exception:  # noqa: BLE001  whatever a parser makes of such a text, it is no schema that is known here
        return None
    return full


def _is_supported_schema(fields: list[dict[str, Any]]) -> bool:
    if tuple(field["name"] for field in fields[:3]) != _FIELDS:
        return False
    key, kind, files = (field["type"] for field in fields[:3])
    if _plain(key) != "string" or _plain(kind) != "int" or not isinstance(files, list) or len(files) != 2:
        return False
    info = files[1].get("values", {}).get("fields", [])
    return (
        files[0] == "null"
        and files[1]["type"] == "map"
        and [(info_field["name"], _plain(info_field["type"])) for info_field in info]
        == [("size", "long"), ("isDeleted", "boolean")]
        and all(isinstance(field["type"], list) and field["type"][0] == "null" for field in fields[3:])
    )


def _plain(kind: Any) -> Any:
    return kind["type"] if isinstance(kind, dict) else kind


@functools.lru_cache(maxsize=8)
def _parsed(schema: str) -> tuple[Any, tuple[str, ...]]:
    fields = json.loads(schema)["fields"]
    return fastavro.parse_schema(json.loads(schema)), tuple(field["name"] for field in fields)


def encode_file_list(schema: str, changes: Changes) -> dict[str, bytes]:
    """Encode a list of added and removed files as records.

    The records are for Hudi's metadata table. Equal changes give equal bytes.

    Args:
        schema: A schema that `metadata_record_schema` returned.
        changes: For each partition, the added files with their sizes, and the removed files.

    Returns:
        The records by key: one for each partition, and one that lists the partitions with added files.
    """
    parsed, names = _parsed(schema)

    def record(kind: int, files: Mapping[str, tuple[int, bool]]) -> bytes:
        listed = {name: {"size": files[name][0], "isDeleted": files[name][1]} for name in sorted(files)}
        out = io.BytesIO()
        values = dict.fromkeys(names) | {"key": "", "type": kind, "filesystemMetadata": listed}
        fastavro.schemaless_writer(out, parsed, values)
        return out.getvalue()

    found = {
        partition or ROOT: record(_FILES, {name: (size or 0, size is None) for name, size in files.items()})
        for partition, files in changes.items()
    }
    came = [
        partition or ROOT for partition, files in changes.items() if any(size is not None for size in files.values())
    ]
    listed = {ALL_PARTITIONS: record(_PARTITION_LIST, dict.fromkeys(came, (0, False)))} if came else {}
    return listed | found
