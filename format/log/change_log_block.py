"""Codec for the blocks of Hudi's change logs.

They record the rows that a rewrite changed.

The format is Hudi's supplemental logging. This module converts between bytes and Arrow tables. Other modules decide
which rows changed, and when a change log is written. Facts: docs/format.md 10.6. There are three modes, with these
fields:

    DATA_BEFORE_AFTER   op, ts_ms (contains the instant), before, after
    DATA_BEFORE         op, record_key, before
    OP_KEY_ONLY         op, record_key

A table of changes has the column OP, and the columns among KEY, BEFORE and AFTER that its mode has. The images in
BEFORE and AFTER are structs of the table's own columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import CorruptTable, UnsupportedTable
from hoodoo.format.avro.codec import decode_records, encode_records
from hoodoo.format.avro.schema import create_avro_schema
from hoodoo.format.log.block import BLOCK_MAX, encode_change_block, yield_change_blocks
from hoodoo.format.log.delete import split_by_size
from hoodoo.format.parquet.base_file import constant
from hoodoo.format.resolve import NO_CHANGES, ColumnMapping
from hoodoo.format.rows import compact

DATA_BEFORE_AFTER, DATA_BEFORE, OP_KEY_ONLY = "DATA_BEFORE_AFTER", "DATA_BEFORE", "OP_KEY_ONLY"
ENABLED, MODE = "hoodie.table.cdc.enabled", "hoodie.table.cdc.supplemental.logging.mode"
OP, KEY, BEFORE, AFTER = "op", "record_key", "before", "after"
INSERT, UPDATE, DELETE = "i", "u", "d"
_TS = "ts_ms"
_FIELDS = {DATA_BEFORE_AFTER: (OP, _TS, BEFORE, AFTER), DATA_BEFORE: (OP, KEY, BEFORE), OP_KEY_ONLY: (OP, KEY)}
_OPS = (INSERT, UPDATE, DELETE)


def change_log_mode(properties: Mapping[str, str]) -> str:
    """Return the change log mode of a table.

    It is '' without a change log. Raises UnsupportedTable for an unknown mode.
    """
    if properties.get(ENABLED, "false").lower() != "true":
        return ""
    mode = properties.get(MODE, DATA_BEFORE_AFTER).upper()
    if mode not in _FIELDS:
        raise UnsupportedTable(
            f"Table property {MODE} is invalid: expected {', '.join(_FIELDS)}, got {properties[MODE]}. Correct it "
            "with Hudi.",
            property=MODE,
        )
    return mode


def columns_of(mode: str) -> tuple[str, ...]:
    return tuple(name for name in _FIELDS[mode] if name != _TS)


def change_log_schema(table_name: str, schema: pa.Schema, mode: str) -> str:
    """Return the Avro schema of a change log.

    The type of the second row image refers to the type of the first by name, as Avro requires.
    """
    image: dict[str, Any] = create_avro_schema(table_name, schema, meta=False)
    images: dict[str, Any] = {BEFORE: image, AFTER: f"{image['namespace']}.{image['name']}"}
    fields = [
        {"name": name, "type": ["null", images.get(name, "string")], "doc": "", "default": None}
        for name in _FIELDS[mode]
    ]
    named = {
        "type": "record",
        "name": "Record" if mode == OP_KEY_ONLY else "CDC",
        "namespace": image["namespace"],
        "fields": fields,
    }
    return json.dumps(named, separators=(",", ":"))


def encode_changes(
    instant: str, table_name: str, schema: pa.Schema, mode: str, changes: pa.Table
) -> Iterator[bytes | memoryview]:
    """Encode row changes as a change log.

    Yields the bytes in pieces. `schema` has the table's own columns. A block has at most 8 MiB. Without changes, one
    block without records is written.
    """
    text = change_log_schema(table_name, schema, mode)
    kinds = {BEFORE: pa.struct(list(schema)), AFTER: pa.struct(list(schema))}
    layout = pa.schema([pa.field(name, kinds.get(name, pa.string())) for name in _FIELDS[mode]])
    rows = (
        changes.append_column(_TS, constant(instant, len(changes)).cast(pa.string()))
        if _TS in layout.names
        else changes
    )
    data, offsets = encode_records(rows, layout)
    if not len(changes):
        yield from encode_change_block(instant, text, 0, b"")
    for begin, end in split_by_size(offsets, BLOCK_MAX) if len(changes) else ():
        yield from encode_change_block(instant, text, end - begin, data.data[offsets[begin] : offsets[end]])


@dataclass(frozen=True)
class ChangeBlock:
    """Block of a change log, with the row changes of one commit."""

    instant: str
    mode: str
    rows: pa.Table


def decode_changes(data: bytes | memoryview) -> Iterator[ChangeBlock]:
    """Decode the blocks of a change log.

    Raises CorruptTable for damage, and UnsupportedTable for unknown fields.
    """
    for instant, text, count, records in yield_change_blocks(data):
        rows = decode_records(records, count, text)
        mode = next((mode for mode, fields in _FIELDS.items() if tuple(rows.column_names) == fields), "")
        if not mode:
            raise UnsupportedTable(
                f"Change log of instant {instant} has unsupported fields: {', '.join(rows.column_names)[:200]}. "
                "Upgrade hoodoo.",
                instant=instant,
            )
        rows = rows.select(columns_of(mode))
        _require_valid_changes(rows, instant)
        yield ChangeBlock(instant, mode, rows)


def _require_valid_changes(rows: pa.Table, instant: str) -> None:
    if not pc.all(pc.is_in(rows[OP], value_set=pa.array(_OPS)), min_count=0).as_py():
        raise CorruptTable(
            f"Change log of instant {instant} contains an unknown operation: expected {', '.join(_OPS)}. Restore the "
            "file from a backup.",
            instant=instant,
        )
    invalid = [
        pc.not_equal(rows[name].is_null(), pc.equal(rows[OP], imageless))
        for name, imageless in ((BEFORE, INSERT), (AFTER, DELETE))
        if name in rows.column_names
    ]
    invalid += [rows[KEY].is_null()] if KEY in rows.column_names else []
    if any(pc.any(mask, min_count=0).as_py() for mask in invalid):
        raise CorruptTable(
            f"Change log of instant {instant} contains a change without a row image or a key. Restore the file from a "
            "backup.",
            instant=instant,
        )


def images(rows: pa.Table, absent: np.ndarray) -> pa.ChunkedArray:
    fields, parts, at = list(rows.schema), [], 0
    for batch in compact(rows).to_batches():
        mask = pa.array(absent[at : at + len(batch)])
        parts.append(pa.StructArray.from_arrays(batch.columns, fields=fields, mask=mask))
        at += len(batch)
    return pa.chunked_array(parts, pa.struct(fields))


def convert_images_to_columns(
    image: pa.ChunkedArray, schema: pa.Schema, resolution: ColumnMapping = NO_CHANGES
) -> pa.Table:
    """Convert row images (structs) of a change log to columns.

    A column that the image lacks is null. A null image becomes a row of nulls. `resolution` maps the columns of the
    image to the columns of `schema`.
    """
    flat = pa.table(image.flatten(), names=[field.name for field in image.type])
    return resolution.to_requested_columns(flat, list(schema))


__all__ = [
    "AFTER",
    "BEFORE",
    "DATA_BEFORE",
    "DATA_BEFORE_AFTER",
    "KEY",
    "OP",
    "OP_KEY_ONLY",
    "ChangeBlock",
    "columns_of",
    "decode_changes",
    "encode_changes",
    "convert_images_to_columns",
    "images",
    "change_log_mode",
]
