"""Parsed Avro types of untrusted schemas.

It returns type trees that are safe to traverse. The trees contain no references and no recursion, and every size is
limited. Other modules create an Arrow schema or a decoder from a tree.

Source: Avro 1.12 specification, "Schema Declaration" and "Logical Types".
"""

from __future__ import annotations

import json
import reprlib
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from hoodoo.errors import CorruptTable, UnsupportedTable
from hoodoo.format.column_names import NAME

TEXT_MAX = 1 << 20
"""Maximum number of characters of an Avro schema in JSON."""
DEPTH_MAX = 64
"""Maximum nesting depth of an Avro schema."""
_NODES_MAX = 1 << 16
# Maximum number of types in one Avro schema. A schema of a few hundred bytes can expand to billions of types.
_SIZE_MAX = 1 << 20
# Maximum size in bytes of a `fixed` value.

PLAIN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
"""The Arrow type of each primitive Avro type, except null."""

LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
"""The Arrow type of each logical type that has no attributes."""


@dataclass(frozen=True, slots=True)
class AvroType:
    """Parsed Avro type.

    `kind` is the name of a primitive type, or fixed, enum, array, map or record. `null_at` is the index of null in a
    union of two types, or None without a union. `children` are the fields of a record in order, or the item type of an
    array or map under the name "item".
    """

    kind: str
    arrow: pa.DataType
    null_at: int | None = None
    size: int = 0
    symbols: tuple[str, ...] = ()
    children: tuple[tuple[str, AvroType], ...] = ()


def parse_record(avro: dict[str, Any] | str) -> AvroType:
    """Parse an Avro record schema.

    Raises:
        CorruptTable: `avro` is not an Avro schema.
        UnsupportedTable: hoodoo does not support the schema. Examples are unions other than of null and one type,
            recursive or empty records, unknown logical types, and schemas with more than 1 Mi characters, 64 levels or
            65,536 types.
    """
    return _parse_text(avro) if isinstance(avro, str) else _parse(avro)


@lru_cache(maxsize=16)  # most log files of a table have the same schema
def _parse_text(text: str) -> AvroType:
    return _parse(_load(text))


def _parse(avro: Any) -> AvroType:
    top = _SchemaParser().type(avro, "", 0)
    if top.kind != "record" or top.null_at is not None:
        raise UnsupportedTable(f"Avro schema of a table has the wrong type: expected a record, got {top.kind}.")
    return top


def _load(text: str) -> Any:
    if len(text) > TEXT_MAX:
        raise UnsupportedTable(f"Avro schema is too large: expected at most {TEXT_MAX} characters, got {len(text)}.")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as e:
        raise CorruptTable(f"Avro schema is not valid JSON: {e}. Restore the file from a backup.") from e


class _SchemaParser:
    def __init__(self) -> None:
        self._named: dict[str, tuple[AvroType, int] | None] = {}
        self._nodes = 0

    def type(self, avro: Any, namespace: str, depth: int) -> AvroType:
        self._count(1)
        if depth > DEPTH_MAX:
            raise UnsupportedTable(f"Avro schema is nested too deeply: expected at most {DEPTH_MAX} levels.")
        if isinstance(avro, list):
            return self._union(avro, namespace, depth)
        if isinstance(avro, str):
            return _plain(avro) or self._reference(avro, namespace)
        if isinstance(avro, dict) and "type" in avro:
            return self._object(avro, namespace, depth)
        raise CorruptTable(f"Avro type {reprlib.repr(avro)} is invalid. Restore the file from a backup.")

    def _count(self, types: int) -> None:
        self._nodes += types
        if self._nodes > _NODES_MAX:
            raise UnsupportedTable(
                f"Avro schema has too many types: expected at most {_NODES_MAX} after references are resolved."
            )

    def _union(self, branches: list[Any], namespace: str, depth: int) -> AvroType:
        if len(branches) != 2 or branches.count("null") != 1:
            raise UnsupportedTable(
                f"Avro union {reprlib.repr(branches)} is not supported: expected null and one other type."
            )
        null_at = branches.index("null")
        value = self.type(branches[1 - null_at], namespace, depth)
        if value.null_at is not None:
            raise CorruptTable(
                "Avro schema is invalid: it contains a union inside a union. Restore the file from a backup."
            )
        return replace(value, null_at=null_at)

    def _reference(self, name: str, namespace: str) -> AvroType:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self._named else name
        if full not in self._named:
            raise UnsupportedTable(f"Avro type {reprlib.repr(name)} is unknown.")
        definition = self._named[full]
        if definition is None:
            raise UnsupportedTable(f"Avro record {reprlib.repr(name)} is recursive, which is not supported.")
        self._count(definition[1])
        return definition[0]

    def _object(self, avro: dict[str, Any], namespace: str, depth: int) -> AvroType:
        kind = avro["type"]
        if kind in ("array", "map") and isinstance(kind, str):
            return self._collection(kind, avro, namespace, depth)
        if kind in ("record", "fixed", "enum") and isinstance(kind, str):
            return self._define(kind, avro, namespace, depth)
        inner = self.type(
            kind, namespace, depth if isinstance(kind, str) else depth + 1
        )  # {"type": "string", ...}, or a type wrapped once more
        return _with_logical(inner, avro) if "logicalType" in avro else inner

    def _collection(self, kind: str, avro: dict[str, Any], namespace: str, depth: int) -> AvroType:
        member = "items" if kind == "array" else "values"
        if member not in avro:
            raise CorruptTable(f"Avro {kind} lacks the attribute {member!r}. Restore the file from a backup.")
        item = self.type(avro[member], namespace, depth + 1)
        arrow = pa.list_(item.arrow) if kind == "array" else pa.map_(pa.string(), item.arrow)
        return AvroType(kind, arrow, children=(("item", item),))

    def _define(self, kind: str, avro: dict[str, Any], namespace: str, depth: int) -> AvroType:
        name, space = avro.get("name"), avro.get("namespace", namespace)
        if not isinstance(name, str) or not isinstance(space, str):
            raise CorruptTable(f"Avro {kind} lacks a name. Restore the file from a backup.")
        full = name if "." in name or not space else f"{space}.{name}"
        if full in self._named:
            raise CorruptTable(f"Avro type {reprlib.repr(full)} is defined twice. Restore the file from a backup.")
        self._named[full] = None
        before = self._nodes
        parsed = {"record": self._record, "fixed": _fixed, "enum": _enum}[kind](avro, full.rpartition(".")[0], depth)
        self._named[full] = parsed, self._nodes - before
        return parsed

    def _record(self, avro: dict[str, Any], namespace: str, depth: int) -> AvroType:
        fields = avro.get("fields")
        if not isinstance(fields, list) or not all(
            isinstance(f, dict) and isinstance(f.get("name"), str) and "type" in f for f in fields
        ):
            raise CorruptTable(
                f"Avro record {reprlib.repr(avro['name'])} does not have a valid list of fields. Restore the file "
                "from a backup."
            )
        if not fields:
            raise UnsupportedTable(f"Avro record {reprlib.repr(avro['name'])} has no fields, which is not supported.")
        if bad := [f["name"] for f in fields if not NAME.match(f["name"])]:
            raise UnsupportedTable(
                f"Avro record {reprlib.repr(avro['name'])} has fields with invalid names: {reprlib.repr(bad)}. Names "
                "must consist of letters, digits and _, and must not start with a digit."
            )
        if len({f["name"] for f in fields}) != len(fields):
            raise CorruptTable(
                f"Avro record {reprlib.repr(avro['name'])} has two fields with the same name. Restore the file from a "
                "backup."
            )
        children = tuple((f["name"], self.type(f["type"], namespace, depth + 1)) for f in fields)
        return AvroType(
            "record", pa.struct([pa.field(name, child.arrow) for name, child in children]), children=children
        )


def _plain(name: str) -> AvroType | None:
    if name == "null":
        raise UnsupportedTable("Avro type null is only supported in a union with another type.")
    return AvroType(name, PLAIN[name]) if name in PLAIN else None


def _fixed(avro: dict[str, Any], namespace: str, depth: int) -> AvroType:
    size = avro.get("size")
    if not isinstance(size, int) or not 0 < size <= _SIZE_MAX:
        raise CorruptTable(
            f"Avro type {reprlib.repr(avro['name'])} has an invalid size: expected 1 to {_SIZE_MAX}, got "
            f"{reprlib.repr(size)}."
        )
    plain = AvroType("fixed", pa.binary(), size=size)
    return _with_logical(plain, avro) if "logicalType" in avro else plain


def _enum(avro: dict[str, Any], namespace: str, depth: int) -> AvroType:
    symbols = avro.get("symbols")
    if not isinstance(symbols, list) or not symbols or not all(isinstance(s, str) and NAME.match(s) for s in symbols):
        raise CorruptTable(
            f"Avro enum {reprlib.repr(avro['name'])} does not have a valid list of symbols. Restore the file from a "
            "backup."
        )
    return AvroType("enum", pa.string(), symbols=tuple(symbols))


def _with_logical(base: AvroType, avro: dict[str, Any]) -> AvroType:
    logical = avro["logicalType"]
    if logical == "decimal" and base.kind in ("bytes", "fixed"):
        return replace(base, arrow=_decimal(avro.get("precision"), avro.get("scale", 0), base))
    if logical == "uuid" and base.kind == "string":
        return base
    if not isinstance(logical, str) or (base.kind, logical) not in LOGICAL or base.null_at is not None:
        raise UnsupportedTable(f"Avro logical type {reprlib.repr(logical)} is not supported for {base.kind}.")
    return replace(base, arrow=LOGICAL[base.kind, logical])


def _decimal(precision: Any, scale: Any, base: AvroType) -> pa.DataType:
    if (
        not isinstance(precision, int)
        or not isinstance(scale, int)
        or not 0 < precision <= 38
        or not 0 <= scale <= precision
    ):
        shown = f"decimal({reprlib.repr(precision)}, {reprlib.repr(scale)})"
        raise UnsupportedTable(
            f"Avro type {shown} is not supported: expected a precision from 1 to 38 and a scale from 0 to the "
            "precision."
        )
    if base.kind == "fixed" and base.size > 16:
        raise UnsupportedTable(f"Avro decimal is too large: expected at most 16 bytes, got {base.size}.")
    return pa.decimal128(precision, scale)
