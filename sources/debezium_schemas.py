"""Column descriptions in the schemas of Debezium messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

UNITS = {
    "io.debezium.time.Time": "ms",
    "io.debezium.time.MicroTime": "us",
    "io.debezium.time.NanoTime": "ns",
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "org.apache.kafka.connect.data.Time": "ms",
    "org.apache.kafka.connect.data.Timestamp": "ms",
}
_MEANINGS = {
    "io.debezium.time.Date": pa.date32(),
    "org.apache.kafka.connect.data.Date": pa.date32(),
    "io.debezium.time.ZonedTimestamp": pa.timestamp("us", "UTC"),
}
_TYPES = {
    "int8": pa.int32(),
    "int16": pa.int32(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
DECIMAL = "org.apache.kafka.connect.data.Decimal"


@dataclass(frozen=True)
class ConnectColumn:
    """Description of a column in a Kafka Connect schema.

    Attributes:
        type: The name of the type in Kafka Connect: 'int64', 'bytes', 'array', ...
        meaning: The semantic type, such as 'io.debezium.time.Date'. '' for plain values.
        scale: The scale of a decimal in bytes.
        items: The description of the items of a column with type 'array'.
    """

    type: str
    meaning: str = ""
    scale: int = 0
    items: ConnectColumn | None = None


def read_column_descriptions(schema: Any, image: str = "") -> Mapping[str, ConnectColumn] | None:
    """Read column descriptions from a message schema.

    `image` is the message field that contains the columns, such as 'after', or '' for the message itself. Returns None
    if the schema does not describe columns.
    """
    try:
        fields = schema["fields"]
        if image:
            fields = next(field["fields"] for field in fields if field["field"] == image)
        return {field["field"]: _describe_column(field) for field in fields}
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration):
        return None


def _describe_column(node: Any) -> ConnectColumn:
    scale = int((node.get("parameters") or {}).get("scale", 0))
    items = _describe_column(node["items"]) if node["type"] == "array" and isinstance(node.get("items"), dict) else None
    return ConnectColumn(node["type"], node.get("name") or "", scale, items)


def type_of_new_column(said: ConnectColumn) -> pa.DataType | None:
    """Return the type of a new table column.

    Returns None if the description does not determine the type.
    """
    unit = UNITS.get(said.meaning)
    if said.meaning == DECIMAL:
        return pa.decimal128(38, said.scale) if 0 <= said.scale <= 38 else None
    if unit and "Timestamp" in said.meaning:
        return pa.timestamp("ms" if unit == "ms" else "us")
    if unit:
        return pa.time64("us")
    return _MEANINGS.get(said.meaning) or _TYPES.get(said.type)


__all__ = ["DECIMAL", "UNITS", "ConnectColumn", "type_of_new_column", "read_column_descriptions"]
