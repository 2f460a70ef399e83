"""A checkpoint of a Delta log: the whole state as of a version in one Parquet file, made from a view of the table.

No log is read for it. Removed files are left out: they serve Delta's VACUUM, which is kept out.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from hoodoo.exports.delta.delta_schema import Json

_TEXTS = pa.list_(pa.string())
_PAIRS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
_ADD = pa.struct(
    {
        "path": pa.string(),
        "partitionValues": _PAIRS,
        "size": pa.int64(),
        "modificationTime": pa.int64(),
        "dataChange": pa.bool_(),
        "stats": pa.string(),
        "deletionVector": _VECTOR,
    }
)
_REMOVE = pa.struct(
    {
        "path": pa.string(),
        "deletionTimestamp": pa.int64(),
        "dataChange": pa.bool_(),
        "extendedFileMetadata": pa.bool_(),
        "partitionValues": _PAIRS,
        "size": pa.int64(),
    }
)
_METADATA = pa.struct(
    {
        "id": pa.string(),
        "name": pa.string(),
        "description": pa.string(),
        "format": pa.struct({"provider": pa.string(), "options": _PAIRS}),
        "schemaString": pa.string(),
        "partitionColumns": _TEXTS,
        "createdTime": pa.int64(),
        "configuration": _PAIRS,
    }
)
_PROTOCOL = pa.struct(
    {
        "minReaderVersion": pa.int32(),
        "minWriterVersion": pa.int32(),
        "readerFeatures": _TEXTS,
        "writerFeatures": _TEXTS,
    }
)
_SCHEMA = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": _ADD,
        "remove": _REMOVE,
        "metaData": _METADATA,
        "protocol": _PROTOCOL,
    }
)


def checkpoint(heads: Sequence[Json], adds: Sequence[Json]) -> bytes:
    """Return the bytes of a checkpoint. heads: the actions `protocol`, `metaData` and `txn`; adds: those of files."""
    rows = [_with_pairs(action) for action in (*heads, *adds)]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), out, compression="snappy")
    return out.getvalue()


def _with_pairs(action: Json) -> Json:
    """Arrow takes the entries of a map as a list of pairs."""
    [(name, said)] = action.items()
    if name == "metaData":
        kind = {**said["format"], "options": list(said["format"]["options"].items())}
        return {name: {**said, "format": kind, "configuration": list(said["configuration"].items())}}
    if name == "add":
        return {name: {**said, "partitionValues": list(said["partitionValues"].items())}}
    return action


def last_checkpoint(version: int, adds: int, heads: int) -> bytes:
    """Return the bytes of the file that names the newest checkpoint."""
    return json.dumps({"version": version, "size": adds + heads, "numOfAddFiles": adds}).encode()
