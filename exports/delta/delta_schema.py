"""Columns of a table as a Delta schema.

Types that Delta does not support are rejected. Delta column names are hoodoo's column names, so no column mapping is
needed.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from hoodoo.errors import SchemaError
from hoodoo.exports.partition_values import partition_columns, partition_values_of_file
from hoodoo.exports.supported_types import require_supported_types
from hoodoo.format.table_schema import Column, TableSchema
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import DataFile

Json = dict[str, Any]


def schema_text(columns: TableSchema) -> str:
    require_supported_columns(columns)
    return json.dumps(
        {"type": "struct", "fields": [_field(column) for column in columns.columns]}, separators=(",", ":")
    )


def require_supported_columns(columns: TableSchema) -> None:
    """Require that Delta supports all columns of a table.

    Raises SchemaError for an unsupported type or name. The error names the columns.
    """
    require_supported_types(
        columns,
        lambda kind: not pa.types.is_time(kind),
        "Delta",
        ". Export to Iceberg, which supports times of day in microseconds, or change the type of the column.",
    )
    names_by_lower_case: dict[str, str] = {}
    for column in columns.columns:
        other = names_by_lower_case.setdefault(column.name.lower(), column.name)
        if other != column.name:
            raise SchemaError(
                f"Columns {other!r} and {column.name!r} differ only in case, which Delta ignores. Rename one of them, "
                "or export to Iceberg.",
                columns=[other, column.name],
                format="delta",
            )


def has_timestamps_without_zone(columns: TableSchema) -> bool:
    kinds = [column.kind for column in columns.by_id.values() if not isinstance(column.kind, str)]
    return any(pa.types.is_timestamp(kind) and kind.tz is None for kind in kinds)


def supports_partition_values(config: TableConfig) -> bool:
    """Check whether Delta supports the types of the partition values.

    Some readers misread negative decimals, timestamps and binary values.
    """
    types = pa.types
    kinds = [config.schema.field(name).type for name in partition_columns(config)]
    supported = (types.is_string, types.is_int32, types.is_int64, types.is_date, types.is_boolean)
    return bool(kinds) and all(any(is_kind(kind) for is_kind in supported) for kind in kinds)


def format_partition_values(config: TableConfig, file: DataFile) -> dict[str, str | None] | None:
    """Format a file's partition values as text.

    Returns None if Delta cannot represent them. Delta treats an empty string as null, so an empty string cannot be
    represented.
    """
    values = partition_values_of_file(config, file)
    if values is None or "" in values.values():
        return None
    return {name: _text(value) for name, value in values.items()}


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _field(column: Column) -> Json:
    return {"name": column.name, "type": _type(column), "nullable": True, "metadata": {}}


def _type(column: Column) -> Any:
    if column.kind == "struct":
        return {"type": "struct", "fields": [_field(child) for child in column.children]}
    if column.kind == "list":
        return {"type": "array", "elementType": _type(column.children[0]), "containsNull": True}
    if column.kind == "map":
        key, value = (_type(child) for child in column.children)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    assert isinstance(column.kind, pa.DataType)
    if pa.types.is_decimal(column.kind):
        return f"decimal({column.kind.precision},{column.kind.scale})"
    if pa.types.is_timestamp(column.kind):
        return "timestamp" if column.kind.tz else "timestamp_ntz"
    return _NAMES[column.kind]


_NAMES = {
    pa.bool_(): "boolean",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}
