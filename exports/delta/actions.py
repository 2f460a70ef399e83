"""Actions of a Delta log.

The Delta protocol defines them. Equal input gives equal bytes.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import sys
import uuid
from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from hoodoo.exports.base_files import AS_OF_COMPACTION
from hoodoo.exports.delta.delta_schema import Json, format_partition_values, has_timestamps_without_zone, schema_text
from hoodoo.exports.partition_values import column_statistics_of_file, partition_columns
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import DataFile

APPLICATION = "hoodoo"
"""Application id of the `txn` actions, which record the newest exported commit."""
_GUARD = "hoodooReadOnly"
# A writer feature that no writer supports. Delta writers and VACUUM therefore refuse the table. Readers ignore it.
_EPOCH = dt.datetime(1970, 1, 1)


def encode(actions: Sequence[Json]) -> bytes:
    return b"".join(_json_text(action).encode() + b"\n" for action in actions)


def _json_text(value: Any) -> str:
    # Non-ASCII characters are not escaped, because delta-rs misreads escaped surrogate pairs.
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def create_protocol_action(config: TableConfig, merges: bool, feed: bool) -> Json:
    """Create the Delta action `protocol`, with the required reader features.

    It lists required features. `merges` is True if files have deletion vectors, and `feed` if the change data feed is
    enabled.
    """
    reader_features = ["deletionVectors"] if merges else []
    reader_features += ["timestampNtz"] if has_timestamps_without_zone(config.columns) else []
    feed_feature = ["changeDataFeed"] if feed else []
    writer_features = ["appendOnly", "invariants", "inCommitTimestamp", *feed_feature, *reader_features, _GUARD]
    if not reader_features:
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": writer_features}}
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    return {"protocol": versions | {"readerFeatures": reader_features, "writerFeatures": writer_features}}


def create_metadata_action(config: TableConfig, table: str, partitioned: bool, merges: bool, feed: bool) -> Json:
    """Create the Delta action `metaData`, with columns and properties.

    It contains the schema of the table. `table` is the table's id. `merges` is True if files have deletion vectors, and
    `feed` if the change data feed is enabled.
    """
    description = {"description": AS_OF_COMPACTION} if config.merge_on_read and not merges else {}
    vectors = {"delta.enableDeletionVectors": "true"} if merges else {}
    changes = {"delta.enableChangeDataFeed": "true"} if feed else {}
    return {
        "metaData": {
            "id": str(uuid.UUID(hex=table)),
            "name": config.name,
            **description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema_text(config.columns),
            "partitionColumns": list(partition_columns(config)) if partitioned else [],
            "configuration": {
                "delta.enableInCommitTimestamps": "true",
                "delta.appendOnly": "true",
                "delta.enableExpiredLogCleanup": "false",
                **vectors,
                **changes,
            },
        }
    }


def create_commit_info(operation: str, at_ms: int, is_append: bool, fields: Json) -> Json:
    """Create the Delta action `commitInfo`, which describes a commit.

    It is the first action of a version. `at_ms` is the in-commit timestamp, and `fields` contains hoodoo's own fields.
    """
    return {
        "commitInfo": {
            "inCommitTimestamp": at_ms,
            "timestamp": at_ms,
            "operation": operation,
            "operationParameters": {},
            "isBlindAppend": is_append,
            "engineInfo": "hoodoo",
            **fields,
        }
    }


def transaction(slot: int, at_ms: int) -> Json:
    return {"txn": {"appId": APPLICATION, "version": slot, "lastUpdated": at_ms}}


def add(config: TableConfig, file: DataFile, partitioned: bool, at_ms: int, changes_rows: bool) -> Json:
    return {
        "add": {
            "path": encode_delta_path(file.path),
            "partitionValues": _partition(config, file, partitioned),
            "size": file.size,
            "modificationTime": at_ms,
            "dataChange": changes_rows,
            "stats": format_delta_statistics(config, file, partition_columns(config) if partitioned else ()),
        }
    }


def remove(config: TableConfig, file: DataFile, partitioned: bool, at_ms: int, changes_rows: bool) -> Json:
    return {
        "remove": {
            "path": encode_delta_path(file.path),
            "deletionTimestamp": at_ms,
            "dataChange": changes_rows,
            "extendedFileMetadata": True,
            "partitionValues": _partition(config, file, partitioned),
            "size": file.size,
        }
    }


def add_deletion_vector(added: Json, vector: Json) -> Json:
    """Add a deletion vector to a Delta action.

    The column bounds in the action still cover all rows of the file, so they are marked as not tight.
    """
    add_action = added["add"]
    stats = add_action["stats"][:-1] + ',"tightBounds":false}'
    return {"add": {**add_action, "stats": stats, "deletionVector": vector}}


def create_remove_action(added: Json, at_ms: int) -> Json:
    """Create the Delta action that removes a file.

    A file with another deletion vector is another file in a Delta log.
    """
    vector = {"deletionVector": added["deletionVector"]} if added.get("deletionVector") else {}
    return {
        "remove": {
            "path": added["path"],
            "deletionTimestamp": at_ms,
            "dataChange": True,
            "extendedFileMetadata": True,
            "partitionValues": added["partitionValues"],
            "size": added["size"],
            **vector,
        }
    }


def encode_delta_path(path: str) -> str:
    """Encode a file path for a Delta log.

    Delta paths are URIs, so characters that are already encoded in a folder name are encoded again.
    """
    return quote(path, safe="/=-_.~")


def _partition(config: TableConfig, file: DataFile, partitioned: bool) -> dict[str, str | None]:
    return (format_partition_values(config, file) or {}) if partitioned else {}


def format_delta_statistics(config: TableConfig, file: DataFile, without: Collection[str] = ()) -> str:
    """Format file statistics as JSON for Delta.

    Columns in `without` are left out. Decimals are JSON numbers with all digits.
    """
    lower_bounds: list[str] = []
    upper_bounds: list[str] = []
    nulls: list[str] = []
    for name, (low, high, missing) in column_statistics_of_file(config, file).items():
        if name in without:
            continue
        kind, key = config.columns.by_name[name].arrow, _json_text(name)
        nulls.append(f"{key}:{missing}")
        for bounds, value, is_upper in ((lower_bounds, low, False), (upper_bounds, high, True)):
            if text := _bound_text(value, kind, is_upper):
                bounds.append(f"{key}:{text}")
    parts = (
        f'"{key}":{{{",".join(values)}}}'
        for key, values in zip(_BOUNDS, (lower_bounds, upper_bounds, nulls), strict=True)
    )
    return f'{{"numRecords":{file.rows},{",".join(parts)}}}'


_BOUNDS = ("minValues", "maxValues", "nullCount")
_LARGEST = sys.float_info.max
_LAST_TEXT = "\U0010ffff" * 16


def _bound_text(value: Any, kind: pa.DataType, is_upper: bool) -> str:
    # Returns '' if no bound should be written. deltalake's filters skip a file if a bound of their column is missing. A
    # wide bound is therefore written for an unknown bound, such as that of a long string.
    types = pa.types
    if value is None:
        return _json_text(_LAST_TEXT if is_upper else "") if types.is_string(kind) else ""
    if types.is_floating(kind):
        return _json_text(_LARGEST if is_upper else value) if math.isfinite(value) else ""
    if types.is_decimal(kind):
        return _format_decimal(value)
    try:
        # in milliseconds, as other writers do; rounded outwards, so that the bounds still include the values
        if types.is_timestamp(kind):
            ms = -(-value // 1000) if is_upper else value // 1000
            text = (_EPOCH + dt.timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")
            return _json_text(text + "Z" if kind.tz else text)
        if types.is_date(kind):
            return _json_text((_EPOCH.date() + dt.timedelta(days=value)).isoformat())
    except OverflowError:  # the year has no four-digit form
        return ""
    return _json_text(bool(value) if types.is_boolean(kind) else value)


def _format_decimal(text: str) -> str:
    # Some readers do not accept an exponent.
    return f"{Decimal(text):f}"
