"""Conversion between Arrow types and Spark types.

The conversion is independent of PySpark's helpers, because these depend on versions and session settings.
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
    """Convert the schema of a Spark DataFrame (StructType) to an Arrow schema. Raises SchemaError.

    Timestamps are microseconds in UTC, and timestamp_ntz has no zone.
    """
    return pa.schema([pa.field(field.name, _arrow(field.name, field.dataType)) for field in schema.fields])


def _arrow(name: str, kind: Any) -> pa.DataType:
    what = type(kind).__name__
    if what == "DecimalType":
        return pa.decimal128(kind.precision, kind.scale)
    if what == "ArrayType":
        return pa.list_(_arrow(name, kind.elementType))
    if what == "MapType":
        return pa.map_(_arrow(name, kind.keyType), _arrow(name, kind.valueType))
    if what == "StructType":
        return pa.struct(
            [pa.field(field.name, _arrow(f"{name}.{field.name}", field.dataType)) for field in kind.fields]
        )
    if what in ("CharType", "VarcharType", "StringType"):
        return pa.string()
    if what == "DayTimeIntervalType":
        return pa.duration("us")  # as Spark passes it to Python
    text = kind.simpleString()
    if text.startswith("time("):
        return pa.time64("us")
    if text not in _SIMPLE:
        raise SchemaError(
            f"Column {name!r} has Spark's type {text}, which a table cannot hold. Cast it, or leave it out.",
            column=name,
        )
    return _SIMPLE[text]


def holds_time(kind: pa.DataType) -> bool:
    """Return whether a type contains times of day, which Spark supports only from Python and in literals.

    Spark supports them only from Python and in literals.
    """
    if pa.types.is_nested(kind):
        return any(holds_time(kind.field(n).type) for n in range(kind.num_fields))
    return bool(pa.types.is_time(kind))


def require_readable(schema: pa.Schema) -> None:
    """Raise SchemaError if a schema contains times of day, which Spark cannot read.

    Its Parquet scan and its Arrow conversion do not support TIME.
    """
    for field in schema:
        if holds_time(field.type):
            raise SchemaError(
                f"Column {field.name!r} holds times of day ({field.type}), which Spark reads neither from files nor "
                "from Python. Leave it out by naming the other columns, or read it with to_arrow().",
                column=field.name,
            )


def spark_ddl(schema: pa.Schema) -> str:
    """Convert the Arrow schema of a table to a Spark DDL string."""
    return ", ".join(f"`{field.name}` {spark_type(field.type)}" for field in schema)


def spark_type(kind: pa.DataType) -> str:
    """Convert an Arrow type to a type name in Spark DDL."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<string,{spark_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'`{field.name}`: {spark_type(field.type)}' for field in kind)}>"
    return _NAMES[kind]
