"""Columns of a schema as text.

An example is `id string, at timestamp, price decimal(10,2), tags list<string>`. Type names of SQL and of Arrow are
supported. The length in `varchar(n)` is not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from hoodoo.errors import SchemaError
from hoodoo.redact import printable

_NAMED = {
    "string": pa.string(),
    "text": pa.string(),
    "varchar": pa.string(),
    "bool": pa.bool_(),
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "tinyint": pa.int8(),
    "int16": pa.int16(),
    "smallint": pa.int16(),
    "int32": pa.int32(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "int64": pa.int64(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float32": pa.float32(),
    "float": pa.float32(),
    "real": pa.float32(),
    "float64": pa.float64(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "date32": pa.date32(),
    "time": pa.time64("us"),
    "time64": pa.time64("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_TYPE_NAMES = {
    _NAMED[name]: name
    for name in (
        *("string", "boolean", "tinyint", "smallint", "int", "long", "float", "double", "binary"),
        *("date", "time", "timestamp", "timestamp_ntz"),
    )
}
# Type names that schemas have in text format.
_CHARACTERS = re.compile(r"(?:var)?char\s*\(\s*\d{1,9}\s*\)")
_DECIMAL = re.compile(r"(?:decimal|numeric)\s*\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")
_NESTED = re.compile(r"(list|array|struct|map)\s*<(.*)>", re.DOTALL)


def parse_schema_text(text: str) -> pa.Schema:
    """Parse a schema from text.

    An example is 'id string, at timestamp'. `timestamp` is in UTC, and `timestamp_ntz` has no time zone.
    """
    return pa.schema(list(_fields(text)))


def column_text(schema: pa.Schema) -> str:
    return ", ".join(_field_text(field) for field in schema)


def parse_column_type(text: str, column: str) -> pa.DataType:
    return _type(text.strip(), column)


def _fields(text: str) -> Iterator[pa.Field]:
    for column in _split_outside_brackets(text):
        name, _, kind = re.sub(r"\s*:\s*", " ", column, count=1).strip().partition(" ")
        if not name or not kind.strip():
            raise SchemaError(
                f"Column {printable(column.strip())} is invalid: expected a name and a type, such as 'id string'.",
                column=printable(name),
            )
        yield pa.field(name, _type(kind.strip(), name))


def _field_text(field: pa.Field) -> str:
    text = f"{field.name} {_type_text(field.type)}"
    try:
        if parse_schema_text(text) == pa.schema([field]):
            return text
    except SchemaError:
        pass
    raise SchemaError(
        f"Column {printable(field.name)} with type {field.type} cannot be written as text. Create the table in Python "
        "with a pyarrow schema.",
        column=field.name,
    )


def _type_text(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name} {_type_text(field.type)}' for field in kind)}>"
    if pa.types.is_list(kind):
        return f"list<{_type_text(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_type_text(kind.key_type)}, {_type_text(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _TYPE_NAMES.get(kind, str(kind))


def _split_outside_brackets(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for index, sign in enumerate(text):
        depth += (sign in "(<") - (sign in ")>")
        if sign == "," and depth == 0:
            yield text[start:index]
            start = index + 1
    if depth:
        raise SchemaError(f"Brackets in {printable(text)} do not match. Close each bracket that is opened.")
    yield text[start:]


def _type(text: str, column: str) -> pa.DataType:
    kind = text.lower()
    if kind in _NAMED:
        return _NAMED[kind]
    if _CHARACTERS.fullmatch(kind):  # the length is not checked, as in DuckDB
        return pa.string()
    if match := _DECIMAL.fullmatch(kind):
        try:
            return pa.decimal128(int(match[1]), int(match[2]))
        except ValueError as problem:
            raise SchemaError(
                f"Column {printable(column)} has an invalid decimal type: {problem}.", column=column
            ) from None
    if match := _NESTED.fullmatch(text):
        return _nested(match[1].lower(), match[2], column)
    supported = ", ".join(
        [*_NAMED, "varchar(n)", "decimal(p,s)", "list<...>", "map<string, ...>", "struct<name type, ...>"]
    )
    raise SchemaError(
        f"Column {printable(column)} has the unknown type {printable(text)}. Valid types: {supported}.", column=column
    )


def _nested(kind: str, inner: str, column: str) -> pa.DataType:
    if kind == "struct":
        return pa.struct(list(_fields(inner)))
    parts = [part.strip() for part in _split_outside_brackets(inner)]
    if kind == "map" and len(parts) == 2:
        return pa.map_(_type(parts[0], column), _type(parts[1], column))
    if kind != "map" and len(parts) == 1:
        return pa.list_(_type(parts[0], column))
    raise SchemaError(
        (
            f"Column {printable(column)} has an invalid {kind}: expected "
            f"{'two types' if kind == 'map' else 'one type'} in brackets, got {printable(inner)}."
        ),
        column=column,
    )
