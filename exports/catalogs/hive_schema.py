"""Schema of a table for a Hive metastore.

The results are Hive types and a Spark schema. The types match Apache Hudi's own sync. Timestamps and times of day are
`bigint` in Hive, which is the default of Hudi's sync. Column names are in lower case in Hive, and unchanged in the
Spark schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from hoodoo.errors import SchemaError

_PART_LENGTH = 4_000
# Maximum number of characters of one parameter, because the databases of metastores limit its length.
_OF_HIVE = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}
_OF_SPARK = {
    pa.bool_(): "boolean",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}


def hive_types_by_column(fields: Iterable[pa.Field]) -> tuple[tuple[str, str], ...]:
    columns = list(fields)
    _require_distinct("", columns)
    return tuple((field.name.lower(), _hive_type(field.name, field.type)) for field in columns)


def _require_distinct(path: str, fields: Iterable[pa.Field]) -> None:
    names_by_lower_case: dict[str, str] = {}
    for field in fields:
        other = names_by_lower_case.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise SchemaError(
                f"Columns '{path}{other}' and '{path}{field.name}' differ only in case, which a Hive metastore "
                "ignores. Rename one of them.",
                column=f"{path}{field.name}",
            )


def _hive_type(path: str, kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return "bigint"
    if pa.types.is_list(kind):
        return f"array<{_hive_type(path, kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_hive_type(path, kind.key_type)},{_hive_type(path, kind.item_type)}>"
    if pa.types.is_struct(kind):
        _require_distinct(f"{path}.", kind)
        fields = (f"{field.name.lower()}:{_hive_type(f'{path}.{field.name}', field.type)}" for field in kind)
        return f"struct<{','.join(fields)}>"
    return _OF_HIVE[kind]


def create_spark_parameters(schema: pa.Schema, partition_by: Iterable[str]) -> dict[str, str]:
    """Create the parameters with which Spark reads a metastore entry.

    `schema` contains the meta columns, then the table's columns, with the partition columns last.
    """
    text = json.dumps(_spark_struct(schema), separators=(",", ":"), ensure_ascii=False)
    parts = [text[start : start + _PART_LENGTH] for start in range(0, len(text), _PART_LENGTH)]
    names = list(partition_by)
    prefix = "spark.sql.sources."
    parameters = {f"{prefix}provider": "hudi", f"{prefix}schema.numParts": str(len(parts))}
    parameters |= {f"{prefix}schema.part.{number}": part for number, part in enumerate(parts)}
    if names:
        parameters[f"{prefix}schema.numPartCols"] = str(len(names))
    return parameters | {f"{prefix}schema.partCol.{number}": name for number, name in enumerate(names)}


def _spark_struct(fields: Iterable[pa.Field]) -> dict[str, Any]:
    described = [
        {"name": field.name, "type": _spark_type(field.type), "nullable": True, "metadata": {}} for field in fields
    ]
    return {"type": "struct", "fields": described}


def _spark_type(kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_time(kind):
        return "long"
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": _spark_type(kind.value_type), "containsNull": True}
    if pa.types.is_map(kind):
        return {
            "type": "map",
            "keyType": _spark_type(kind.key_type),
            "valueType": _spark_type(kind.item_type),
            "valueContainsNull": True,
        }
    return _spark_struct(kind) if pa.types.is_struct(kind) else _OF_SPARK[kind]
