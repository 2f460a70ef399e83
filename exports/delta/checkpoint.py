"""Checkpoints of a Delta log.

A checkpoint contains all files of one version in a Parquet file. A checkpoint is built from all actions, or from the
previous checkpoint and the changes since then. Removed files are left out, because only Delta's VACUUM needs them,
which the export prevents.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hoodoo.exports.delta.delta_schema import Json
from hoodoo.exports.delta.log import identity
from hoodoo.format.parquet.small import read_small

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


class DeltaCheckpoint(NamedTuple):
    """Delta checkpoint: the content of its Parquet file."""

    data: bytes
    files: int


def create_delta_checkpoint(heads: Sequence[Json], adds: Sequence[Json]) -> bytes:
    """Create a Delta checkpoint.

    `heads` are the actions `protocol`, `metaData` and `txn`. `adds` are the `add` actions of all files.
    """
    return _bytes(_rows([*heads, *adds]))


def update_delta_checkpoint(
    before: bytes | None, heads: Sequence[Json], changed: Mapping[tuple[str, str], Json | None]
) -> DeltaCheckpoint:
    """Update a Delta checkpoint with newer changes.

    Args:
        before: The bytes of a checkpoint written by hoodoo, or None for an empty one.
        heads: The actions `protocol`, `metaData` and `txn`.
        changed: The contents of the `add` action by path and deletion vector of a file. None for a removed file.

    Raises:
        ArrowInvalid: The older checkpoint is damaged, or was written by another writer.
    """
    table = _SCHEMA.empty_table() if before is None else read_small(before)
    if table.schema != _SCHEMA:
        raise pa.ArrowInvalid("Another engine wrote the checkpoint")
    files = table.filter(pc.field("add").is_valid())
    paths = pc.struct_field(files["add"], "path")
    is_changed = pc.is_in(paths, pa.array([path for path, _ in changed], pa.string()))
    changed_rows = files.filter(is_changed)
    is_kept = [identity(add_action) not in changed for add_action in changed_rows["add"].to_pylist()]
    added = [
        {"add": {**add_action, "dataChange": False}}
        for _, add_action in sorted(changed.items())
        if add_action is not None
    ]
    kept = pa.concat_tables(
        [files.filter(pc.invert(is_changed)), changed_rows.filter(pa.array(is_kept, pa.bool_())), _rows(added)]
    )
    kept = kept.take(pc.sort_indices(pc.struct_field(kept["add"], "path")))
    return DeltaCheckpoint(_bytes(pa.concat_tables([_rows(heads), kept])), len(kept))


def _rows(actions: Sequence[Json]) -> pa.Table:
    return pa.Table.from_pylist([_maps_to_pairs(action) for action in actions], schema=_SCHEMA)


def _bytes(rows: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(rows, out, compression="snappy")
    return out.getvalue()


def _maps_to_pairs(action: Json) -> Json:
    # Arrow requires lists of pairs.
    [(name, content)] = action.items()
    if name == "metaData":
        kind = {**content["format"], "options": list(content["format"]["options"].items())}
        return {name: {**content, "format": kind, "configuration": list(content["configuration"].items())}}
    if name == "add":
        return {name: {**content, "partitionValues": list(content["partitionValues"].items())}}
    return action


def last_checkpoint_content(version: int, adds: int, heads: int) -> bytes:
    return json.dumps({"version": version, "size": adds + heads, "numOfAddFiles": adds}).encode()
