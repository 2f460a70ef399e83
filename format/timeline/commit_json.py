"""Conversion of commit metadata from JSON to Avro.

Jackson writes the JSON from the same classes as Hudi's Avro records, so the field names are the same. The JSON also has
some fields that the Avro schemas lack.
"""

from __future__ import annotations

from typing import Any

from hoodoo.format.timeline import avro
from hoodoo.format.timeline.avro_schemas import SCHEMAS


def convert_json_to_avro(kind: str, said: Any) -> bytes:
    """Convert a JSON timeline file to Avro.

    Table version 6 has such files. Fields that the schema lacks are left out, and null fields take their defaults.
    Raises ValueError if `said` is not a record of the given `kind`.
    """
    try:
        return avro.encode_timeline_file(kind, _shaped(said, SCHEMAS[kind]()))
    except (AttributeError, KeyError, TypeError, OverflowError) as problem:
        raise ValueError(f"the JSON is not a valid {kind}: {problem}") from None


def _shaped(value: Any, schema: Any) -> Any:
    if isinstance(schema, list):
        return None if value is None else _shaped(value, next(branch for branch in schema if branch != "null"))
    if not isinstance(schema, dict):
        return value
    if schema["type"] == "record":
        types = {field["name"]: field["type"] for field in schema["fields"]}
        return {name: _shaped(part, types[name]) for name, part in value.items() if name in types and part is not None}
    if schema["type"] == "map":
        return {name: _shaped(part, schema["values"]) for name, part in value.items() if part is not None}
    if schema["type"] == "array":
        return [_shaped(part, schema["items"]) for part in value]
    return value


__all__ = ["convert_json_to_avro"]
