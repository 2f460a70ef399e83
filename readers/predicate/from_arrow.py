"""Conversion from Arrow expressions to file filters.

Arrow exposes the structure of an expression only in its serialized form. Unsupported parts become Opaque nodes, which
prune nothing. The Arrow expression itself decides which rows match.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.readers.predicate.tree import FLIPPED, And, Compare, In, IsNull, Like, Not, Opaque, Or, Predicate

_COMPARISONS = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_ANDS, _ORS = ("and_kleene", "and"), ("or_kleene", "or")
_MATCH, _SKIP, _EMIT_NULL = 0, 1, 2  # Arrow's SetLookupOptions: the result of is_in for null
_SPECIAL = re.compile(r"([\\%_])")
_FIELD_BY_INDEX = "FieldPath("  # Arrow's text for a field that is referenced by index
_IN_LIST_MAX = 1000  # an IN with more values is replaced by its bounds


@dataclass(frozen=True)
class _Field:
    name: str


@dataclass(frozen=True)
class _Literal:
    value: pa.Scalar


@dataclass(frozen=True)
class _Call:
    name: str
    arguments: tuple[_Node, ...]
    options: pa.StructScalar | None


_Node: TypeAlias = "_Field | _Literal | _Call"


def convert_arrow_expression(expression: pc.Expression, schema: pa.Schema) -> Predicate | None:
    """Convert an Arrow expression to a file filter.

    Returns None if file statistics cannot evaluate any part of the expression. The tree is only for pruning: it is
    never false for a row for which `expression` is true, and never true for a row for which `expression` is false. The
    columns are those of `schema`.
    """
    node = _parse_expression(expression)
    return None if node is None else _none_if_opaque(_convert_node(node, schema))


def find_columns(expression: pc.Expression, schema: pa.Schema) -> frozenset[str]:
    """Find the columns that an Arrow expression uses.

    The result may contain unused columns.
    """
    node = _parse_expression(expression)
    if node is not None:
        return frozenset(_columns_of_node(node))
    text = str(expression)  # a nested field, shown with its path
    if _FIELD_BY_INDEX in text:  # an index refers to the list of all columns
        return frozenset(schema.names)
    named = [name for name in schema.names if name in text]
    if not _can_evaluate(expression, schema, named):
        return frozenset(schema.names)
    for name in list(named):
        others = [one for one in named if one != name]
        named = others if _can_evaluate(expression, schema, others) else named
    return frozenset(named)


def _can_evaluate(expression: pc.Expression, schema: pa.Schema, names: Sequence[str]) -> bool:
    try:
        pa.schema([schema.field(name) for name in names]).empty_table().filter(expression)
    except (pa.ArrowException, ValueError, TypeError):
        return False
    return True


def may_use_column_index(expression: pc.Expression) -> bool:
    """Check whether an Arrow expression may use column indexes.

    Such an index is wrong if the read leaves out columns.
    """
    return _parse_expression(expression) is None and _FIELD_BY_INDEX in str(expression)


# ---- parts of an expression
class _ArrowSchema(ctypes.Structure):
    # First fields of the ArrowSchema struct of Arrow's C data interface.
    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


def _parse_expression(expression: pc.Expression) -> _Node | None:
    # None if Arrow cannot serialize the expression.
    try:
        batch = pa.ipc.open_file(expression.__reduce__()[1][0]).get_batch(0)
        words = _metadata_entries(batch.schema)
        kind, text = next(words)
        return _parse_node(kind, text, words, batch)
    except (pa.ArrowException, LookupError, ValueError, TypeError, StopIteration, RecursionError):
        return None


def _metadata_entries(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    # pyarrow's dict of metadata would drop duplicate names.
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = ctypes.cast(pointer(capsule, b"arrow_schema"), ctypes.POINTER(_ArrowSchema)).contents.metadata
    if not address:
        return

    def number() -> int:
        nonlocal address
        (value,) = struct.unpack("=i", ctypes.string_at(address, 4))
        address += 4
        return int(value)

    def text() -> str:
        nonlocal address
        length = number()
        value = ctypes.string_at(address, length).decode()
        address += length
        return value

    entries = [(text(), text()) for _ in range(number())]
    del capsule  # keeps the memory valid until here
    yield from entries


def _parse_node(kind: str, text: str, words: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> _Node:
    if kind == "field_ref":
        return _Field(text)
    if kind == "literal":
        return _Literal(batch.column(int(text))[0])
    if kind != "call":
        raise ValueError(kind)
    arguments, options = list[_Node](), None
    for kind, inner in words:
        if kind == "end":
            return _Call(text, tuple(arguments), options)
        if kind == "options":
            options = batch.column(int(inner))[0]
        else:
            arguments.append(_parse_node(kind, inner, words, batch))
    raise ValueError(text)


def _columns_of_node(node: _Node) -> Iterator[str]:
    match node:
        case _Field(name):
            yield name
        case _Call(arguments=arguments):
            for argument in arguments:
                yield from _columns_of_node(argument)


# ---- conditions that statistics can evaluate
def _none_if_opaque(tree: Predicate) -> Predicate | None:
    return None if isinstance(tree, Opaque) else tree


def _convert_node(node: _Node, schema: pa.Schema) -> Predicate:
    match node:
        case _Field(name) if pa.types.is_boolean(schema.field(name).type):
            return Compare(name, "=", True, schema.field(name).type)
        case _Literal(value) if pa.types.is_boolean(value.type):
            return And(()) if value.as_py() else Or(())
        case _Call("invert", (part,)):
            return Not(_convert_node(part, schema))
        case _Call(name, parts) if name in _ANDS:
            return And(tuple(_convert_node(part, schema) for part in parts))
        case _Call(name, parts) if name in _ORS:
            return Or(tuple(_convert_node(part, schema) for part in parts))
        case _Call("if_else", (_, part, _Literal(value))) if not value.is_valid:
            return _convert_node(part, schema)  # DuckDB's form of IN: null if the condition is not true
        case _Call(name, (_Field(column), _Literal(value))) if name in _COMPARISONS:
            return comparison(column, _COMPARISONS[name], value, schema)
        case _Call(name, (_Literal(value), _Field(column))) if name in _COMPARISONS:
            return comparison(column, FLIPPED[_COMPARISONS[name]], value, schema)
        case _Call("is_valid", (_Field(column),)):
            return Not(IsNull(column))
        case _Call("is_null", (_Field(column),), options) if (
            options is not None and not _options_dict(options)["nan_is_null"]
        ):
            return IsNull(column)
        case _Call("is_in", (_Field(column),), options) if options is not None:
            return _convert_is_in(column, options, schema)
        case _Call("match_like" | "starts_with" as name, (_Field(column),), options) if options is not None:
            return _convert_like(column, name, _options_dict(options), schema)
    return Opaque()


def _options_dict(options: pa.StructScalar) -> Mapping[str, Any]:
    values: Mapping[str, Any] = options.as_py()
    return values


def comparison(column: str, op: str, value: pa.Scalar, schema: pa.Schema) -> Predicate:
    kind = schema.field(column).type
    literal = _convert_literal(value, kind)
    return Opaque() if literal is None else Compare(column, op, literal, kind)


def one_of(column: str, values: pa.Array, schema: pa.Schema) -> Predicate:
    kind = schema.field(column).type
    literals = [_convert_literal(value, kind) for value in values if value.is_valid]
    if None in literals:
        return Opaque()
    if len(literals) > _IN_LIST_MAX:
        if any(value != value for value in literals):
            return Opaque()
        ends = Compare(column, ">=", min(literals), kind), Compare(column, "<=", max(literals), kind)
        return And((*ends, Opaque()))  # a value within the bounds need not be in the list
    return In(column, tuple(literals), kind)


def _convert_is_in(column: str, options: pa.StructScalar, schema: pa.Schema) -> Predicate:
    values, nulls = options["value_set"].values, options["null_matching_behavior"].as_py()
    membership = one_of(column, values, schema)
    if nulls == _EMIT_NULL:
        return membership
    if nulls == _MATCH and values.null_count:
        return Or((membership, IsNull(column)))
    if nulls in (_MATCH, _SKIP):  # the result for null is false, so its negation is true
        return And((membership, Not(IsNull(column))))
    return Opaque()


def _convert_like(column: str, name: str, options: Mapping[str, Any], schema: pa.Schema) -> Predicate:
    if options["ignore_case"] or not pa.types.is_string(schema.field(column).type):
        return Opaque()
    pattern = options["pattern"]
    return Like(column, pattern if name == "match_like" else like_prefix_pattern(pattern))


def like_prefix_pattern(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text) + "%"


def _convert_literal(value: pa.Scalar, kind: pa.DataType) -> Any:
    # None if the conversion could change the comparison. Arrow may compare differently, because it first converts both
    # sides to a common type.
    types, literal_type = pa.types, value.type
    if not value.is_valid:
        return None
    try:
        if types.is_string(kind) and (
            types.is_string(literal_type) or types.is_large_string(literal_type) or types.is_string_view(literal_type)
        ):
            return value.as_py()
        if kind == literal_type and (types.is_boolean(kind) or types.is_date32(kind) or types.is_decimal(kind)):
            return value.as_py()
        if types.is_timestamp(kind) and types.is_timestamp(literal_type) and bool(kind.tz) == bool(literal_type.tz):
            return None if kind.unit == "ns" else value.cast(pa.timestamp("us", kind.tz and "UTC")).as_py()
        if types.is_decimal(kind) and (types.is_decimal(literal_type) or types.is_integer(literal_type)):
            return Decimal(value.as_py())
        if _is_number(kind) and _is_number(literal_type):
            return _convert_number(value.as_py(), kind, literal_type)
    except (pa.ArrowException, ValueError, OverflowError):
        return None  # fractions of a microsecond, or a time outside Python's range
    return None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind))


def _convert_number(value: Any, kind: pa.DataType, literal_type: pa.DataType) -> Any:
    floats = [candidate for candidate in (kind, literal_type) if pa.types.is_floating(candidate)]
    if len(floats) == 1:  # integers become floats
        exact = 1 << (24 if pa.types.is_float32(floats[0]) else 53)
        if not -exact <= value <= exact:
            return None
    return float(value) if pa.types.is_floating(kind) else value


__all__ = [
    "find_columns",
    "comparison",
    "may_use_column_index",
    "one_of",
    "like_prefix_pattern",
    "convert_arrow_expression",
]
