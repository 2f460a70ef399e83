"""Columns of a table as an Iceberg schema.

The ids come from hoodoo's slots, and hoodoo's base files contain them too. Base files of other engines contain no ids,
so readers find the columns of these files by the name mapping.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from hoodoo.errors import SchemaError
from hoodoo.exports.supported_types import require_supported_types
from hoodoo.format.names import META_COLUMNS
from hoodoo.format.table_schema import FIRST_META_ID, Column, TableSchema

Json = dict[str, Any]


def schema_of(columns: TableSchema) -> Json:
    require_supported_columns(columns)
    return {"type": "struct", "schema-id": columns.id, "fields": [_field(column) for column in columns.columns]}


def require_supported_columns(columns: TableSchema) -> None:
    require_supported_types(
        columns,
        lambda kind: not pa.types.is_time(kind) or kind.unit == "us",
        "Iceberg",
        ", because Iceberg stores times of day in microseconds. Drop the column, or write it as another type.",
    )


def require_supported_type_changes(file: TableSchema, now: TableSchema) -> None:
    """Require that Iceberg supports the type changes of columns.

    Raises SchemaError if Iceberg cannot read the old type of a column as its new type. `file` is the schema of the
    files, and `now` is the current schema.
    """
    for column_id, column in now.by_id.items():
        was = file.by_id.get(column_id)
        if was is None or isinstance(was.kind, str) or isinstance(column.kind, str):
            continue
        if not _is_promotable(was.kind, column.kind):
            raise SchemaError(
                f"Column {column.name!r} is {column.kind} now, but {was.kind} in older base files, which Iceberg "
                f"cannot read as {column.kind}. Rewrite these files, for example with "
                f"maintenance.cluster(sort_by={column.name!r}), and export again.",
                columns=[column.name],
                format="iceberg",
            )


def _is_promotable(was: pa.DataType, now: pa.DataType) -> bool:
    types = pa.types
    if was == now or types.is_int32(was) and types.is_int64(now) or types.is_float32(was) and types.is_float64(now):
        return True
    if types.is_timestamp(was) and types.is_timestamp(now):
        return bool(was.tz) == bool(now.tz)
    decimals = types.is_decimal(was) and types.is_decimal(now)
    return decimals and was.scale == now.scale and was.precision <= now.precision


def create_name_mapping(schemas: Iterable[TableSchema]) -> list[Json]:
    """Create Iceberg's name mapping.

    It gives readers the column ids for files without ids. `schemas` are the schemas of the base files, newest first. If
    two columns had the same name at different times, the name maps to the newer column. Hudi's meta columns get ids
    that are in no schema, so that readers ignore them.
    """
    levels = [schema.columns for schema in schemas]
    return [
        *_mapping(levels),
        *({"field-id": FIRST_META_ID + at, "names": [name]} for at, name in enumerate(META_COLUMNS)),
    ]


def _mapping(levels: Iterable[Iterable[Column]]) -> list[Json]:
    names: dict[str, int] = {}
    versions: dict[int, list[Column]] = {}
    for level in levels:
        for column in level:
            names.setdefault(column.name, column.id)
            versions.setdefault(column.id, []).append(column)
    mapped = []
    for column_id, columns in versions.items():
        if column_names := [name for name, owner in names.items() if owner == column_id]:
            mapped.append(_mapped(column_id, column_names, columns))
    return mapped


def _mapped(number: int, names: list[str], columns: list[Column]) -> Json:
    nested = [column for column in columns if column.kind == columns[0].kind and column.children]
    if not nested:
        return {"field-id": number, "names": names}
    if columns[0].kind == "struct":
        return {"field-id": number, "names": names, "fields": _mapping(column.children for column in nested)}
    inner = ("element", "array", "item"), ("key",), ("value",)
    roles = inner[:1] if columns[0].kind == "list" else inner[1:]
    children = [
        _mapped(nested[0].children[index].id, list(role), [column.children[index] for column in nested])
        for index, role in enumerate(roles)
    ]
    return {"field-id": number, "names": names, "fields": children}


def _field(column: Column) -> Json:
    return {"id": column.id, "name": column.name, "required": False, "type": _type(column)}


def _type(column: Column) -> Any:
    if column.kind == "struct":
        return {"type": "struct", "fields": [_field(child) for child in column.children]}
    if column.kind == "list":
        item = column.children[0]
        return {"type": "list", "element-id": item.id, "element": _type(item), "element-required": False}
    if column.kind == "map":
        key, value = column.children
        return {
            "type": "map",
            "key-id": key.id,
            "key": _type(key),
            "value-id": value.id,
            "value": _type(value),
            "value-required": False,
        }
    assert isinstance(column.kind, pa.DataType)
    return type_name(column.kind)


def type_name(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    return _NAMES[kind]


_NAMES = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.time64("us"): "time",
}
