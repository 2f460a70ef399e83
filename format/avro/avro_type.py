"""Parser for Avro schemas of other writers, which returns type trees that are safe to traverse.

The trees have no references and no recursion, and every size is limited. Other modules create an Arrow schema or a
decoder from a tree.
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
"""Maximum number of types in one Avro schema after references are resolved.

A few hundred bytes of text can stand for billions of types.
"""
_SIZE_MAX = 1 << 20
"""Maximum size in bytes of a `fixed` value."""

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
    """Parsed Avro type: its kind, its Arrow type, and the types of its fields or items.

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
    """Parse an Avro record schema, given as JSON text or in parsed form.

    Raises:
        CorruptTable: `avro` is not an Avro schema.
        UnsupportedTable: hoodoo does not support the schema. Examples are unions other than of null and one type,
            recursive or empty records, unknown logical types, and schemas with more than 1 MiB of text, 64 levels or
            65,536 types.
    """
    return _parse_text(avro) if isinstance(avro, str) else _parse(avro)


@lru_cache(maxsize=16)  # the log files of a table have the same text again and again
def _parse_text(text: str) -> AvroType:
    return _parse(_load(text))


def _parse(avro: Any) -> AvroType:
    top = _Parser().type(avro, "", 0)
    if top.kind != "record" or top.null_at is not None:
        raise UnsupportedTable(f"A table's Avro schema is a {top.kind} where a record belongs.")
    return top


def _load(text: str) -> Any:
    if len(text) > TEXT_MAX:
        raise UnsupportedTable(f"An Avro schema has {len(text)} characters; hoodoo reads at most {TEXT_MAX}.")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as e:
        raise CorruptTable(f"An Avro schema is not JSON: {e}.") from e


class _Parser:
    """Parser for one Avro schema. It remembers the named types so far, with the number of types in each."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[AvroType, int] | None] = {}
        self._nodes = 0

    def type(self, avro: Any, namespace: str, depth: int) -> AvroType:
        self._count(1)
        if depth > DEPTH_MAX:
            raise UnsupportedTable(f"An Avro schema is nested deeper than {DEPTH_MAX} levels.")
        if isinstance(avro, list):
            return self._union(avro, namespace, depth)
        if isinstance(avro, str):
            return _plain(avro) or self._reference(avro, namespace)
        if isinstance(avro, dict) and "type" in avro:
            return self._object(avro, namespace, depth)
        raise CorruptTable(f"An Avro type is invalid: got {reprlib.repr(avro)}. Restore the file from a backup.")

    def _count(self, types: int) -> None:
        self._nodes += types
        if self._nodes > _NODES_MAX:
            raise UnsupportedTable(f"An Avro schema stands for more than {_NODES_MAX} types.")

    def _union(self, branches: list[Any], namespace: str, depth: int) -> AvroType:
        if len(branches) != 2 or branches.count("null") != 1:
            raise UnsupportedTable(
                f"An Avro schema has the union {reprlib.repr(branches)}; hoodoo handles null with one other type."
            )
        null_at = branches.index("null")
        value = self.type(branches[1 - null_at], namespace, depth)
        if value.null_at is not None:
            raise CorruptTable("An Avro schema has a union inside a union.")
        return replace(value, null_at=null_at)

    def _reference(self, name: str, namespace: str) -> AvroType:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self._named else name
        if full not in self._named:
            raise UnsupportedTable(f"An Avro schema names the type {reprlib.repr(name)}, which hoodoo does not know.")
        known = self._named[full]
        if known is None:
            raise UnsupportedTable(f"The Avro record {reprlib.repr(name)} contains itself.")
        self._count(known[1])
        return known[0]

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
            raise CorruptTable(f"An Avro {kind} does not say what its {member} are.")
        item = self.type(avro[member], namespace, depth + 1)
        arrow = pa.list_(item.arrow) if kind == "array" else pa.map_(pa.string(), item.arrow)
        return AvroType(kind, arrow, children=(("item", item),))

    def _define(self, kind: str, avro: dict[str, Any], namespace: str, depth: int) -> AvroType:
        name, space = avro.get("name"), avro.get("namespace", namespace)
        if not isinstance(name, str) or not isinstance(space, str):
            raise CorruptTable(f"An Avro {kind} lacks its name. Restore the file from a backup.")
        full = name if "." in name or not space else f"{space}.{name}"
        if full in self._named:
            raise CorruptTable(f"An Avro schema defines {reprlib.repr(full)} twice.")
        self._named[full] = None
        before = self._nodes
        made = {"record": self._record, "fixed": _fixed, "enum": _enum}[kind](avro, full.rpartition(".")[0], depth)
        self._named[full] = made, self._nodes - before
        return made

    def _record(self, avro: dict[str, Any], namespace: str, depth: int) -> AvroType:
        fields = avro.get("fields")
        if not isinstance(fields, list) or not all(
            isinstance(f, dict) and isinstance(f.get("name"), str) and "type" in f for f in fields
        ):
            raise CorruptTable(
                f"The fields of the Avro record {reprlib.repr(avro['name'])} are not a list. Restore the file "
                "from a backup."
            )
        if not fields:
            raise UnsupportedTable(f"The Avro record {reprlib.repr(avro['name'])} is not supported: it lacks fields.")
        if bad := [f["name"] for f in fields if not NAME.match(f["name"])]:
            raise UnsupportedTable(
                f"The Avro record {reprlib.repr(avro['name'])} has fields whose names Avro does not allow: "
                f"{reprlib.repr(bad)}."
            )
        if len({f["name"] for f in fields}) != len(fields):
            raise CorruptTable(f"The Avro record {reprlib.repr(avro['name'])} has two fields of one name.")
        children = tuple((f["name"], self.type(f["type"], namespace, depth + 1)) for f in fields)
        return AvroType(
            "record", pa.struct([pa.field(name, child.arrow) for name, child in children]), children=children
        )


def _plain(name: str) -> AvroType | None:
    if name == "null":
        raise UnsupportedTable("An Avro schema has a field that can only be null.")
    return AvroType(name, PLAIN[name]) if name in PLAIN else None


def _fixed(avro: dict[str, Any], namespace: str, depth: int) -> AvroType:
    size = avro.get("size")
    if not isinstance(size, int) or not 0 < size <= _SIZE_MAX:
        raise CorruptTable(f"The Avro type {reprlib.repr(avro['name'])} is fixed to {reprlib.repr(size)} bytes.")
    plain = AvroType("fixed", pa.binary(), size=size)
    return _with_logical(plain, avro) if "logicalType" in avro else plain


def _enum(avro: dict[str, Any], namespace: str, depth: int) -> AvroType:
    symbols = avro.get("symbols")
    if not isinstance(symbols, list) or not symbols or not all(isinstance(s, str) and NAME.match(s) for s in symbols):
        raise CorruptTable(
            f"The symbols of the Avro enum {reprlib.repr(avro['name'])} are not a list of names. Restore the "
            "file from a backup."
        )
    return AvroType("enum", pa.string(), symbols=tuple(symbols))


def _with_logical(base: AvroType, avro: dict[str, Any]) -> AvroType:
    logical = avro["logicalType"]
    if logical == "decimal" and base.kind in ("bytes", "fixed"):
        return replace(base, arrow=_decimal(avro.get("precision"), avro.get("scale", 0), base))
    if logical == "uuid" and base.kind == "string":
        return base
    if not isinstance(logical, str) or (base.kind, logical) not in LOGICAL or base.null_at is not None:
        raise UnsupportedTable(
            f"An Avro schema has the logical type {reprlib.repr(logical)} on {base.kind}, which hoodoo does not know."
        )
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
            f"An Avro schema has a {shown}; at most 38 digits, and a scale from 0 to their number, are handled."
        )
    if base.kind == "fixed" and base.size > 16:
        raise UnsupportedTable(f"An Avro schema has a decimal of {base.size} bytes; at most 16 are handled.")
    return pa.decimal128(precision, scale)
