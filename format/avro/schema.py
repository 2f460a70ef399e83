"""Conversion between Arrow and Avro schemas.

`normalize_schema` converts an input schema to the schema that a table returns, or rejects it. `create_avro_schema` and
`convert_to_arrow_schema` convert between the table schema and the Avro schema. Values are converted in `encode` and
`decode`. Facts: docs/format.md, "Base files", type map.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from hoodoo.errors import SchemaError
from hoodoo.format.avro.avro_type import DEPTH_MAX, LOGICAL, PLAIN, parse_record
from hoodoo.format.column_names import RESERVED, find_invalid_names, require_valid_names
from hoodoo.format.names import META_COLUMNS

_PRECISION_MAX = 38

Avro = dict[str, Any]


# ---------------------------------------------------------------- what a table returns


def normalize_schema(schema: pa.Schema) -> pa.Schema:
    """Convert an input schema to a table schema.

    Every field becomes nullable and loses its metadata. Integers become int32 or int64, all kinds of strings string,
    all kinds of binary binary, UUIDs strings, all kinds of lists list, dictionaries the type of their values, times
    microseconds, and time zones UTC.

    Raises SchemaError with the dotted path of a column that the format cannot store without loss. Also raises
    SchemaError for column names that are invalid in Avro, with all invalid names.
    """
    for field in schema:
        if field.name.lower().startswith(RESERVED):
            raise SchemaError(
                f"Column name {field.name!r} is reserved: names that begin with {RESERVED} are for Hudi's meta "
                "columns. Rename it.",
                column=field.name,
            )
    require_valid_names(find_invalid_names(schema))
    return pa.schema(_normal_fields(schema, (), 1))


def _normal_fields(fields: Iterable[pa.Field], path: tuple[str, ...], depth: int) -> list[pa.Field]:
    fields = list(fields)
    _check_names([field.name for field in fields], path)
    return [pa.field(field.name, _normal(field.type, (*path, field.name), depth)) for field in fields]


def _check_names(names: list[str], path: tuple[str, ...]) -> None:
    seen: dict[str, str] = {}
    twice = len(set(names)) < len(names)
    for name in names:
        column = ".".join((*path, name))
        if (other := seen.setdefault(name.lower(), name)) is not name or twice and names.count(name) > 1:
            raise SchemaError(
                (
                    f"Columns {column!r} and {other!r} have the same name except for case, which engines do not "
                    "distinguish. Rename one."
                ),
                column=column,
            )


def _normal(kind: pa.DataType, path: tuple[str, ...], depth: int) -> pa.DataType:
    if depth > DEPTH_MAX:
        raise _refusal(path, f"is nested deeper than {DEPTH_MAX} levels")
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    for is_kind, convert in _RULES:
        if is_kind(kind):
            return convert(kind, path, depth)
    raise _refusal(path, f"has type {kind}, which cannot be stored without loss")


def _refusal(path: tuple[str, ...], reason: str) -> SchemaError:
    column = ".".join(path)
    return SchemaError(f"Column {column!r} {reason}. Cast it to another type first, or drop it.", column=column)


def _dictionary(kind: pa.DataType, path: tuple[str, ...], depth: int) -> pa.DataType:
    return _normal(kind.value_type, path, depth)


def _timestamp(kind: pa.DataType, path: tuple[str, ...], depth: int) -> pa.DataType:
    return pa.timestamp("us", None if kind.tz is None else "UTC")


def _decimal(kind: pa.DataType, path: tuple[str, ...], depth: int) -> pa.DataType:
    if pa.types.is_decimal256(kind) or kind.precision > _PRECISION_MAX or not 0 <= kind.scale <= kind.precision:
        raise _refusal(
            path,
            f"has type {kind}, but decimals have at most {_PRECISION_MAX} digits and a scale from 0 to their precision",
        )
    return pa.decimal128(kind.precision, kind.scale)


def _list(kind: pa.DataType, path: tuple[str, ...], depth: int) -> pa.DataType:
    return pa.list_(_normal(kind.value_type, (*path, "item"), depth + 1))


def _map(kind: pa.DataType, path: tuple[str, ...], depth: int) -> pa.DataType:
    if not _is_text(kind.key_type):
        raise _refusal(path, f"is a map with keys of type {kind.key_type}, but keys must be strings")
    return pa.map_(pa.string(), _normal(kind.item_type, (*path, "value"), depth + 1))


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(_SIMPLE.get(kind) == pa.string())


def _struct(kind: pa.DataType, path: tuple[str, ...], depth: int) -> pa.DataType:
    if kind.num_fields == 0:
        raise _refusal(path, "is a struct without fields")
    return pa.struct(_normal_fields(kind, path, depth + 1))


_SIMPLE: dict[pa.DataType, pa.DataType] = {
    **{
        kind: kind
        for kind in (
            pa.bool_(),
            pa.int32(),
            pa.int64(),
            pa.float32(),
            pa.float64(),
            pa.string(),
            pa.binary(),
            pa.date32(),
            pa.time64("us"),
        )
    },
    **{kind: pa.int32() for kind in (pa.int8(), pa.int16(), pa.uint8(), pa.uint16())},
    pa.uint32(): pa.int64(),
    **{kind: pa.string() for kind in (pa.large_string(), pa.string_view(), pa.uuid())},
    **{kind: pa.binary() for kind in (pa.large_binary(), pa.binary_view())},
    pa.date64(): pa.date32(),
    **{kind: pa.time64("us") for kind in (pa.time32("s"), pa.time32("ms"), pa.time64("ns"))},
}

_RULES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, tuple[str, ...], int], pa.DataType]], ...] = (
    (pa.types.is_dictionary, _dictionary),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_fixed_size_binary, lambda kind, path, depth: pa.binary()),
    (lambda kind: pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind), _list),
    (lambda kind: pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind), _list),
    (pa.types.is_map, _map),
    (pa.types.is_struct, _struct),
)


# ---------------------------------------------------------------- Arrow to Avro


def avro_text(table_name: str, schema: pa.Schema, meta: bool) -> str:
    return json.dumps(create_avro_schema(table_name, schema, meta), separators=(",", ":"))


def create_avro_schema(table_name: str, schema: pa.Schema, meta: bool) -> Avro:
    """Create Hudi's Avro schema of a table.

    With `meta`, the five meta columns come first. Every field is `["null", T]` with default null. The record is
    `<table>_record` in namespace `hoodie.<table>`, and nested records are named by their path.

    Raises SchemaError for a type that `normalize_schema` does not return. Milliseconds are accepted, because tables of
    other writers may have them.
    """
    table = _avro_name(table_name)
    namespace, record = f"hoodie.{table}", f"{table}_record"
    fields = (
        [{"name": name, "type": ["null", "string"], "doc": "", "default": None} for name in META_COLUMNS]
        if meta
        else []
    )
    fields += [_avro_field(field, f"{namespace}.{record}") for field in schema]
    return {"type": "record", "name": record, "namespace": namespace, "fields": fields}


def _avro_name(name: str) -> str:
    # Hudi replaces invalid characters in the same way.
    name = re.sub(r"[^A-Za-z0-9_]", "__", name)
    return re.sub(r"\A[0-9]", "__", name)


def _avro_field(field: pa.Field, namespace: str) -> Avro:
    return {"name": field.name, "type": ["null", _avro_type(field.type, field.name, namespace)], "default": None}


def _avro_type(kind: pa.DataType, name: str, namespace: str) -> str | Avro:
    # Types of list items and map values use the same two names.
    if kind in _AVRO_PLAIN:
        return _AVRO_PLAIN[kind]
    if kind in _AVRO_LOGICAL:
        base, logical = _AVRO_LOGICAL[kind]
        return {"type": base, "logicalType": logical}
    if pa.types.is_decimal128(kind):
        size, scale = decimal_size_in_bytes(kind.precision), kind.scale
        named = {"type": "fixed", "name": "fixed", "namespace": f"{namespace}.{name}", "size": size}
        return named | {"logicalType": "decimal", "precision": kind.precision, "scale": scale}
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", _avro_type(kind.value_type, name, namespace)]}
    if pa.types.is_map(kind) and kind.key_type == pa.string():
        return {"type": "map", "values": ["null", _avro_type(kind.item_type, name, namespace)]}
    if pa.types.is_struct(kind):
        return {
            "type": "record",
            "name": name,
            "namespace": namespace,
            "fields": [_avro_field(f, f"{namespace}.{name}") for f in kind],
        }
    raise SchemaError(f"Column {name!r} has type {kind}, which is not supported in Avro. Cast it first.", column=name)


_AVRO_PLAIN = {arrow: name for name, arrow in PLAIN.items()}
_AVRO_LOGICAL = {arrow: names for names, arrow in LOGICAL.items()}


def decimal_size_in_bytes(precision: int) -> int:
    """Return the size of a decimal in bytes.

    This is the smallest number of bytes for `precision` digits. For example, 10 digits need 5 bytes, 15 need 7, and 38
    need 16.
    """
    largest = int(10**precision) - 1
    return (largest.bit_length() + 8) // 8


# ---------------------------------------------------------------- Avro to Arrow


def convert_to_arrow_schema(avro: Avro | str) -> pa.Schema:
    """Convert Hudi's Avro schema to an Arrow schema.

    For schemas that hoodoo writes, this is the inverse of `create_avro_schema`.

    Raises:
        UnsupportedTable: hoodoo does not support the schema. See `avro_type.parse_record`.
        CorruptTable: `avro` is not an Avro schema.
    """
    return pa.schema([pa.field(name, field.arrow) for name, field in parse_record(avro).children])
