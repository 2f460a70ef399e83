"""Converts commit metadata in JSON, which tables of version 6 have, to the same record in Avro.

The JSON has the fields of the same classes from which Hudi makes its Avro records, because Jackson writes it. It also
has some fields that the Avro schemas do not have.
"""

from __future__ import annotations

from typing import Any

from hoodoo.format.timeline import avro
from hoodoo.format.timeline.avro_schemas import SCHEMAS


def in_avro(kind: str, said: Any) -> bytes:
    """Return the bytes of a timeline file with the record of `kind` in the parsed JSON `said`.

    Fields that the schema does not have are left out, and null fields take their defaults. Raises ValueError if `said`
    is
    not such a record.
    """
    try:
        return avro.encode(kind, _shaped(said, SCHEMAS[kind]()))
    except (AttributeError, KeyError, TypeError, OverflowError) as problem:
        raise ValueError(f"it is not a {kind}: {problem}") from None


def _shaped(value: Any, schema: Any) -> Any:
    if isinstance(schema, list):
        return None if value is None else _shaped(value, next(one for one in schema if one != "null"))
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


__all__ = ["in_avro"]
