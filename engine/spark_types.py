"""Conversion between Arrow types and Spark types.

It does not use PySpark's helper functions, because their results depend on versions and session settings.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from hoodoo.errors import SchemaError

_SIMPLE = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
_NAMES = {kind: name for name, kind in _SIMPLE.items() if name != "void"} | {pa.time64("us"): "time(6)"}


def arrow_schema_of(schema: Any) -> pa.Schema:
    """Convert a Spark schema to an Arrow schema.

    Timestamps become microseconds in UTC, and timestamp_ntz becomes a timestamp without a time zone. Raises SchemaError
    for a type that a table cannot store.
    """
    return pa.schema([pa.field(field.name, _arrow(field.name, field.dataType)) for field in schema.fields])


def _arrow(name: str, kind: Any) -> pa.DataType:
    type_name = type(kind).__name__
    if type_name == "DecimalType":
        return pa.decimal128(kind.precision, kind.scale)
    if type_name == "ArrayType":
        return pa.list_(_arrow(name, kind.elementType))
    if type_name == "MapType":
        return pa.map_(_arrow(name, kind.keyType), _arrow(name, kind.valueType))
    if type_name == "StructType":
        return pa.struct(
            [pa.field(field.name, _arrow(f"{name}.{field.name}", field.dataType)) for field in kind.fields]
        )
    if type_name in ("CharType", "VarcharType", "StringType"):
        return pa.string()
    if type_name == "DayTimeIntervalType":
        return pa.duration("us")  # as Spark passes it to Python
    text = kind.simpleString()
    if text.startswith("time("):
        return pa.time64("us")
    if text not in _SIMPLE:
        raise SchemaError(
            f"Column {name!r} has the Spark type {text}, which a table cannot store. Cast the column, or drop it.",
            column=name,
        )
    return _SIMPLE[text]


def contains_time_of_day(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(contains_time_of_day(kind.field(n).type) for n in range(kind.num_fields))
    return bool(pa.types.is_time(kind))


def require_spark_support(schema: pa.Schema) -> None:
    """Require that Spark supports the types of a schema.

    Raises SchemaError if it contains times of day. Spark's Parquet scan and Arrow conversion do not support TIME.
    """
    for field in schema:
        if contains_time_of_day(field.type):
            raise SchemaError(
                f"Column {field.name!r} contains times of day ({field.type}), which Spark cannot read. Select the "
                "other columns only, or read the column with to_arrow().",
                column=field.name,
            )


def schema_to_ddl(schema: pa.Schema) -> str:
    return ", ".join(f"`{field.name}` {type_to_spark_ddl(field.type)}" for field in schema)


def type_to_spark_ddl(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{type_to_spark_ddl(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<string,{type_to_spark_ddl(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'`{field.name}`: {type_to_spark_ddl(field.type)}' for field in kind)}>"
    return _NAMES[kind]
