"""Conversion of untrusted Avro schemas.

A message may name any schema in the registry. Each schema is therefore expanded first: a reference is replaced by the
type that it names. Types that could make a short message endless are rejected. These are types that contain themselves,
and arrays or maps whose items have zero bytes.

The fields are then mapped to Arrow types. A field without an Arrow type, such as a union of three types, is read by
fastavro and converted to the type of the table's column.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

import fastavro

from hoodoo.errors import DataError, TableError
from hoodoo.format.avro.avro_type import DEPTH_MAX, LOGICAL, PLAIN, TEXT_MAX, AvroType, parse_record
from hoodoo.format.avro.nested import schema_without_logical_types

_NODES_MAX = 1 << 16
_DIGITS_MAX = 38
_SIZE_MAX = 1 << 20
_KEPT_MAX = 1_000
_CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_KEPT_ATTRIBUTES = ("connect.name", "connect.parameters")


@dataclass(frozen=True)
class AvroColumn:
    """Field of an Avro record.

    Attributes:
        name: The name of the field.
        aliases: Former names of the field.
        node: The Avro type of the field, without references to named types.
        type: The Arrow type, or None if it depends on the values.
    """

    name: str
    aliases: tuple[str, ...]
    node: Any
    type: AvroType | None


@dataclass(frozen=True)
class MessageSchema:
    """Parsed Avro schema of messages.

    Attributes:
        columns: The fields of the record, in order.
        record: The record type for decoding all messages together, or None if a field has no Arrow type.
        by_value: The record type for decoding messages one by one with fastavro. Its fields are named 'f0', 'f1', ...
    """

    columns: tuple[AvroColumn, ...]
    record: AvroType | None
    by_value: Any


class SchemaLookup(Protocol):
    """Interface for looking up Avro schemas."""

    def schema(self, number: int) -> list[str]: ...


class AvroSchemas:
    def __init__(self, registry: SchemaLookup, times: bool = True) -> None:
        """Create an empty cache of Avro schemas.

        Args:
            registry: The registry that returns the schemas.
            times: True to convert values with logical time types to times. False keeps them as numbers, as in Kafka
                Connect.
        """
        self._registry, self._times = registry, times
        self._parsed_schemas = dict[int, MessageSchema | str]()

    def texts(self, number: int) -> list[str]:
        return self._registry.schema(number)

    def of(self, number: int) -> MessageSchema:
        """Return a parsed Avro schema.

        Raises DataError if the schema does not exist or cannot decode rows, SourceUnavailable if the registry does not
        respond, and OptionError if the registry denies access.
        """
        schema = self._parsed_schemas.get(number)
        if schema is None:
            texts = self._registry.schema(number)
            try:
                schema = message_schema(texts, self._times)
            except DataError as problem:
                schema = problem.message
            while len(self._parsed_schemas) >= _KEPT_MAX:
                self._parsed_schemas.pop(next(iter(self._parsed_schemas)))
            self._parsed_schemas[number] = schema
        if isinstance(schema, str):
            raise DataError(f"Messages of schema {number} cannot be read: {schema}", schema=number)
        return schema


def message_schema(texts: Sequence[str], times: bool = True) -> MessageSchema:
    """Parse an Avro schema of messages.

    Args:
        texts: The schema as JSON strings: the referenced schemas, each before the schemas that refer to it, and last
            the schema itself.
        times: True to convert values with logical time types to times, as in `AvroSchemas`.

    Returns:
        The parsed schema.

    Raises:
        DataError: The schema is invalid, or rows cannot be decoded with it.
    """
    expansion = _SchemaExpander(times)
    try:
        *_, top = (expansion.expand(_parse_json(text)) for text in texts)
    except RecursionError:
        raise DataError("Avro schema is nested too deeply.") from None
    if not isinstance(top, dict) or top["type"] != "record":
        raise DataError("Avro schema is not a record.")
    columns = tuple(
        AvroColumn(field["name"], tuple(field["aliases"]), field["type"], _arrow_type(field)) for field in top["fields"]
    )
    record = None
    if all(column.type is not None for column in columns):
        try:
            record = parse_record(top)
        except TableError:  # names that Arrow's readers reject
            record = None
    names = count()
    fields = [
        {
            "name": f"f{index}",
            "type": _decimals_as_bytes(column.node)
            if column.type is None
            else schema_without_logical_types(column.type, names),
        }
        for index, column in enumerate(columns)
    ]
    try:
        by_value = fastavro.parse_schema({"type": "record", "name": "message", "fields": fields})
    except Exception as problem:  # fastavro raises various Python errors
        raise DataError(f"Avro schema is invalid: {reprlib.repr(str(problem))}.") from None
    return MessageSchema(columns, record, by_value)


def _parse_json(text: str) -> Any:
    if len(text) > TEXT_MAX:
        raise DataError(f"Avro schema has {len(text):,} characters: expected at most {TEXT_MAX:,}.")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        if text.strip().replace(".", "").isidentifier():  # some registries return the name of a type without quotes
            return text.strip()
        raise DataError("Avro schema is not valid JSON.") from None


def _arrow_type(field: dict[str, Any]) -> AvroType | None:
    # None if the type depends on the values.
    try:
        return parse_record({"type": "record", "name": "one", "fields": [{**field, "name": "f"}]}).children[0][1]
    except TableError:
        return None


def _decimals_as_bytes(node: Any) -> Any:
    # fastavro rounds decimals, so it reads them as bytes.
    if isinstance(node, list):
        return [_decimals_as_bytes(branch) for branch in node]
    if not isinstance(node, dict):
        return node
    converted = {
        name: _decimals_as_bytes(part) if name in ("type", "items", "values") else part for name, part in node.items()
    }
    if "fields" in converted:
        converted["fields"] = [_decimals_as_bytes(branch) for branch in converted["fields"]]
    if converted.get("logicalType") == "decimal":
        del converted["logicalType"]
    return converted


class _SchemaExpander:
    # All named types are remembered, because a later schema may refer to them.
    def __init__(self, times: bool) -> None:
        self._times = times
        self._named_types = dict[str, tuple[dict[str, Any], str]]()
        self._enclosing_types, self._nodes, self._names = set[str](), 0, count()

    def expand(self, schema: Any) -> Any:
        """Replace references to named types.

        Raises DataError if the schema is unsafe.
        """
        self._nodes = 0
        return self._expand_type(schema, "", 0, False)

    def _expand_type(self, avro: Any, space: str, depth: int, repeated: bool, branch: bool = False) -> Any:
        # `repeated` is True inside an array or a map. `branch` is True for a type of a union.
        self._nodes += 1
        if self._nodes > _NODES_MAX or depth > DEPTH_MAX:
            raise DataError(f"Avro schema has more than {_NODES_MAX:,} types, or more than {DEPTH_MAX} levels.")
        if isinstance(avro, list):
            if branch or not avro:
                raise DataError("Avro union contains another union, or is empty.")
            return [self._expand_type(one, space, depth + 1, repeated, branch=True) for one in avro]
        if isinstance(avro, str):
            if avro == "null" and repeated and not branch:
                raise DataError(
                    "Avro array or map has items of zero bytes, so a short message could contain any number of items."
                )
            return avro if avro == "null" or avro in PLAIN else self._expand_reference(avro, space, depth, repeated)
        if not isinstance(avro, dict):
            raise DataError(f"{reprlib.repr(avro)} is not an Avro type.")
        kind = avro.get("type")
        if kind in ("record", "error", "enum", "fixed"):
            return self._expand_definition(avro, space, depth, repeated)
        if kind in ("array", "map"):
            member = "items" if kind == "array" else "values"
            return {"type": kind, member: self._expand_type(avro.get(member), space, depth + 1, True)}
        inner = self._expand_type(kind, space, depth + 1, repeated, branch)
        return self._copy_logical_type(avro, {"type": inner}) if isinstance(inner, str) else inner

    def _expand_reference(self, name: str, space: str, depth: int, repeated: bool) -> Any:
        full = next((candidate for candidate in (f"{space}.{name}", name) if candidate in self._named_types), None)
        if full is None:
            raise DataError(f"Avro type {reprlib.repr(name)} is not defined in the schema.")
        if full in self._enclosing_types:
            raise DataError(f"Avro type {reprlib.repr(full)} contains itself.")
        definition, outside = self._named_types[full]
        return self._expand_named_type(definition, full, outside, depth, repeated)

    def _expand_definition(self, avro: dict[str, Any], space: str, depth: int, repeated: bool) -> Any:
        name, namespace = avro.get("name"), avro.get("namespace", space)
        if not isinstance(name, str) or not name or not isinstance(namespace, str):
            raise DataError(f"Avro type {reprlib.repr(avro)} has no name.")
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if self._named_types.setdefault(full, (avro, full.rpartition(".")[0]))[0] != avro:
            raise DataError(f"Avro type {reprlib.repr(full)} has two definitions.")
        if full in self._enclosing_types:
            raise DataError(f"Avro type {reprlib.repr(full)} contains itself.")
        return self._expand_named_type(avro, full, full.rpartition(".")[0], depth, repeated)

    def _expand_named_type(self, avro: dict[str, Any], full: str, space: str, depth: int, repeated: bool) -> Any:
        # Each occurrence gets a unique name that `schema_without_logical_types` does not use.
        expanded: dict[str, Any] = {"type": avro["type"], "name": f"w{next(self._names)}"}
        if avro["type"] == "enum":
            symbols = avro.get("symbols")
            if not isinstance(symbols, list) or not symbols or not all(isinstance(symbol, str) for symbol in symbols):
                raise DataError(f"Symbols of Avro enum {reprlib.repr(full)} are not a list of names.")
            return expanded | {"symbols": symbols}
        if avro["type"] == "fixed":
            size = avro.get("size")
            if type(size) is not int or not 0 < size <= _SIZE_MAX:
                raise DataError(f"Avro type {reprlib.repr(full)} has an invalid size in bytes: {reprlib.repr(size)}.")
            return self._copy_logical_type(avro, expanded | {"size": size})
        self._enclosing_types.add(full)
        fields = self._expand_fields(avro.get("fields"), full, space, depth, repeated)
        self._enclosing_types.discard(full)
        return self._copy_kept_attributes(avro, expanded | {"type": "record", "fields": fields})

    def _expand_fields(self, fields: Any, full: str, space: str, depth: int, repeated: bool) -> list[dict[str, Any]]:
        fields_ = list[dict[str, Any]]()
        for field in fields if isinstance(fields, list) else ():
            name, aliases = (field.get("name"), field.get("aliases", ())) if isinstance(field, dict) else (None, ())
            if not isinstance(name, str) or not isinstance(aliases, (list, tuple)):
                raise DataError(f"Avro record {reprlib.repr(full)} has a field without a valid name.")
            kind = self._expand_type(field.get("type"), space, depth + 1, repeated)
            fields_.append({"name": name, "aliases": [old for old in aliases if isinstance(old, str)], "type": kind})
        if not fields_ or len({field["name"] for field in fields_}) < len(fields_):
            raise DataError(f"Avro record {reprlib.repr(full)} has no fields, or two fields with the same name.")
        return fields_

    # ---- logical types
    def _copy_logical_type(self, avro: dict[str, Any], expanded: dict[str, Any]) -> dict[str, Any]:
        # Only logical types that decoding needs are copied.
        logical, base = avro.get("logicalType"), expanded["type"]
        if avro.get("connect.name") == _CONNECT_DECIMAL and base == "bytes":
            logical = "decimal"
        if logical == "decimal" and base in ("bytes", "fixed"):
            precision, scale = avro.get("precision", _DIGITS_MAX), avro.get("scale", 0)
            if type(precision) is int and type(scale) is int and 0 <= scale <= min(precision, _DIGITS_MAX):
                # Kafka Connect uses 64 digits for an unknown precision; a value with too many digits is a bad message
                return self._copy_kept_attributes(avro, expanded) | {
                    "logicalType": "decimal",
                    "precision": min(precision, _DIGITS_MAX),
                    "scale": scale,
                }
        elif self._times and isinstance(logical, str) and (base, logical) in LOGICAL:
            return self._copy_kept_attributes(avro, expanded) | {"logicalType": logical}
        return self._copy_kept_attributes(avro, expanded) | ({"said": logical} if isinstance(logical, str) else {})

    def _copy_kept_attributes(self, avro: dict[str, Any], expanded: dict[str, Any]) -> dict[str, Any]:
        return expanded | {name: avro[name] for name in _KEPT_ATTRIBUTES if name in avro}


__all__ = ["AvroColumn", "AvroSchemas", "MessageSchema", "message_schema"]
