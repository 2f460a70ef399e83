"""Messages of Kafka Connect that are JSON with schemas, as its converter for Avro writes them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from change_events import Event
from registry_server import KnownSchemas, wire

_TYPES = {"int8": "int", "int16": "int", "int32": "int", "int64": "long", "float32": "float", "float64": "double"}
_LOGICAL = {"Date": "date", "Time": "time-millis", "Timestamp": "timestamp-millis", "Decimal": "decimal"}
_CONNECT = "org.apache.kafka.connect.data."


def avro_schema(schema: Mapping[str, Any], names: set[str]) -> Any:
    """The schema of Avro that stands for one of Connect. names: of the records that are defined already."""
    kind, name = schema["type"], schema.get("name")
    if kind == "struct":
        found: Any = name
        if name not in names:
            names.add(name)
            space, _, own = name.rpartition(".")
            fields = [
                {"name": one["field"], "type": avro_schema(one, names)}
                | ({"default": None} if one.get("optional") and "default" not in one else {})
                for one in schema["fields"]
            ]
            found = {"type": "record", "name": own, "namespace": space, "fields": fields, "connect.name": name}
    elif kind == "array":
        found = {"type": "array", "items": avro_schema(schema["items"], names)}
    else:
        found = {"type": _TYPES.get(kind, kind)}
        if kind in ("int8", "int16"):
            found["connect.type"] = kind
        if name:
            found |= {"connect.version": 1, "connect.name": name}
        if parameters := schema.get("parameters"):
            found["connect.parameters"] = parameters
        if name and name.startswith(_CONNECT) and (logical := _LOGICAL.get(name.removeprefix(_CONNECT))):
            found["logicalType"] = logical
        if name == f"{_CONNECT}Decimal":  # 64 digits where nobody says how many
            digits = int(parameters.get("connect.decimal.precision", 64))
            found |= {"scale": int(parameters["scale"]), "precision": digits}
    return ["null", found] if schema.get("optional") else found


def avro_value(value: Any, schema: Mapping[str, Any]) -> Any:
    """A value as Python writes it by that schema, from JSON."""
    if value is None:
        return None
    if schema["type"] == "struct":
        return {one["field"]: avro_value(value.get(one["field"]), one) for one in schema["fields"]}
    if schema["type"] == "array":
        return [avro_value(one, schema["items"]) for one in value]
    if schema["type"] in ("float", "double"):
        return float(value)
    return base64.b64decode(value) if schema["type"] == "bytes" else value


def _physical(schema: Any) -> Any:
    """A schema without logical types: values stand as they are written."""
    if isinstance(schema, list):
        return [_physical(one) for one in schema]
    if isinstance(schema, dict):
        return {
            name: _physical(one) for name, one in schema.items() if name not in ("logicalType", "scale", "precision")
        }
    return schema


def as_avro(events: Sequence[Event]) -> tuple[KnownSchemas, list[Event]]:
    """Events as Avro, and the registry that knows their schemas."""
    registry, numbers = KnownSchemas(), dict[str, int]()

    def written(content: bytes | None) -> bytes | None:
        if content is None:
            return None
        message = json.loads(content)
        avro = avro_schema(message["schema"], set())
        text = json.dumps(avro)
        if text not in numbers:
            numbers[text] = len(registry.texts)
            registry.texts.append(text)
        return wire(numbers[text], _physical(avro), avro_value(message["payload"], message["schema"]))

    return registry, [(written(key), written(value)) for key, value in events]


__all__ = ["as_avro", "avro_schema", "avro_value"]
