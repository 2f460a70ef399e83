"""The actions of a Delta log, as its protocol writes them: what a version says. Equal input gives equal bytes.

It knows no store and no history.
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
from hoodoo.exports.delta.delta_schema import Json, has_local_times, partition_texts, schema_text
from hoodoo.exports.partition_values import bounds_of, partition_columns
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import DataFile

APPLICATION = "hoodoo"
"""Whose `txn` actions say up to which slot a log goes."""
_GUARD = "hoodooReadOnly"
"""A writer feature that nobody has: Delta's writers and VACUUM refuse the table, and readers do not look at it."""
_EPOCH = dt.datetime(1970, 1, 1)


def encode(actions: Sequence[Json]) -> bytes:
    """Return the bytes of a version: one action a line."""
    return b"".join(_text(action).encode() + b"\n" for action in actions)


def _text(value: Any) -> str:
    """As JSON, with letters as they are: delta-rs takes an escaped pair of surrogates for another letter."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def protocol(config: TableConfig, merges: bool) -> Json:
    """What readers and writers of the table must know. merges: files have deletion vectors."""
    asked = ["deletionVectors"] if merges else []
    asked += ["timestampNtz"] if has_local_times(config.columns) else []
    writer = ["appendOnly", "invariants", "inCommitTimestamp", *asked, _GUARD]
    if not asked:
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": writer}}
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    return {"protocol": versions | {"readerFeatures": asked, "writerFeatures": writer}}


def metadata(config: TableConfig, table: str, partitioned: bool, merges: bool) -> Json:
    """What the table is. table: its id. merges: files have deletion vectors."""
    described = {"description": AS_OF_COMPACTION} if config.merge_on_read and not merges else {}
    vectors = {"delta.enableDeletionVectors": "true"} if merges else {}
    return {
        "metaData": {
            "id": str(uuid.UUID(hex=table)),
            "name": config.name,
            **described,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema_text(config.columns),
            "partitionColumns": list(partition_columns(config)) if partitioned else [],
            "configuration": {
                "delta.enableInCommitTimestamps": "true",
                "delta.appendOnly": "true",
                "delta.enableExpiredLogCleanup": "false",
                **vectors,
            },
        }
    }


def commit_info(operation: str, at_ms: int, is_append: bool, more: Json) -> Json:
    """Who committed, when, and what. It has to come first in a version with an in-commit timestamp.

    at_ms: the in-commit timestamp. more: fields of ours.
    """
    return {
        "commitInfo": {
            "inCommitTimestamp": at_ms,
            "timestamp": at_ms,
            "operation": operation,
            "operationParameters": {},
            "isBlindAppend": is_append,
            "engineInfo": "hoodoo",
            **more,
        }
    }


def transaction(slot: int, at_ms: int) -> Json:
    """Up to which slot the log goes."""
    return {"txn": {"appId": APPLICATION, "version": slot, "lastUpdated": at_ms}}


def add(config: TableConfig, file: DataFile, partitioned: bool, at_ms: int, changes_rows: bool) -> Json:
    """That a base file is part of the table."""
    return {
        "add": {
            "path": path_text(file.path),
            "partitionValues": _partition(config, file, partitioned),
            "size": file.size,
            "modificationTime": at_ms,
            "dataChange": changes_rows,
            "stats": statistics_text(config, file, partition_columns(config) if partitioned else ()),
        }
    }


def remove(config: TableConfig, file: DataFile, partitioned: bool, at_ms: int, changes_rows: bool) -> Json:
    """That a base file is no part of the table any more."""
    return {
        "remove": {
            "path": path_text(file.path),
            "deletionTimestamp": at_ms,
            "dataChange": changes_rows,
            "extendedFileMetadata": True,
            "partitionValues": _partition(config, file, partitioned),
            "size": file.size,
        }
    }


def with_vector(added: Json, vector: Json) -> Json:
    """The same file as an action `add` says it, with a deletion vector. Its bounds are those of all its rows."""
    said = added["add"]
    stats = said["stats"][:-1] + ',"tightBounds":false}'
    return {"add": {**said, "stats": stats, "deletionVector": vector}}


def removal(added: Json, at_ms: int) -> Json:
    """That a file is no part of the table any more, from what its action `add` says: a file with another deletion
    vector counts as another one.
    """
    vector = {"deletionVector": added["deletionVector"]} if added.get("deletionVector") else {}
    return {"remove": {"path": added["path"], "deletionTimestamp": at_ms, "dataChange": True, **vector}}


def path_text(path: str) -> str:
    """A path as the log writes it: a URI, so that what is encoded in a folder's name is encoded once more."""
    return quote(path, safe="/=-_.~")


def _partition(config: TableConfig, file: DataFile, partitioned: bool) -> dict[str, str | None]:
    return (partition_texts(config, file) or {}) if partitioned else {}


def statistics_text(config: TableConfig, file: DataFile, without: Collection[str] = ()) -> str:
    """Rows, bounds and nulls of a file as JSON text; `without` some columns.

    Decimals are JSON numbers with all their digits.
    """
    least: list[str] = []
    greatest: list[str] = []
    nulls: list[str] = []
    for name, (low, high, missing) in bounds_of(config, file).items():
        if name in without:
            continue
        kind, key = config.columns.by_name[name].arrow, _text(name)
        nulls.append(f"{key}:{missing}")
        for bounds, value, is_upper in ((least, low, False), (greatest, high, True)):
            if text := _bound_text(value, kind, is_upper):
                bounds.append(f"{key}:{text}")
    parts = (f'"{key}":{{{",".join(found)}}}' for key, found in zip(_BOUNDS, (least, greatest, nulls), strict=True))
    return f'{{"numRecords":{file.rows},{",".join(parts)}}}'


_BOUNDS = ("minValues", "maxValues", "nullCount")
_LARGEST = sys.float_info.max
_LAST_TEXT = "\U0010ffff" * 16


def _bound_text(value: Any, kind: pa.DataType, is_upper: bool) -> str:
    """A bound in JSON, '' for none.

    deltalake's filters leave out a file where a bound of their column is missing. So a wide bound is told where none is
    known: of texts that are too long for statistics, and above floats, which may be NaN. Delta takes that for the
    greatest number, and Parquet's bounds pass over it.
    """
    t = pa.types
    if value is None:
        return _text(_LAST_TEXT if is_upper else "") if t.is_string(kind) else ""
    if t.is_floating(kind):
        return _text(_LARGEST if is_upper else value) if math.isfinite(value) else ""
    if t.is_decimal(kind):
        return _decimal(value)
    try:
        if t.is_timestamp(kind):  # milliseconds, as others write them: a bound must not come to lie within the values
            ms = -(-value // 1000) if is_upper else value // 1000
            text = (_EPOCH + dt.timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")
            return _text(text + "Z" if kind.tz else text)
        if t.is_date(kind):
            return _text((_EPOCH.date() + dt.timedelta(days=value)).isoformat())
    except OverflowError:  # a year that ISO 8601 has no four digits for
        return ""
    return _text(bool(value) if t.is_boolean(kind) else value)


def _decimal(text: str) -> str:
    """Without an exponent, which not all readers take."""
    return f"{Decimal(text):f}"
