"""Table schema with permanent column ids.

This module converts schemas from and to JSON, assigns ids, and returns Arrow schemas. `timeline/columns/alterations.py`
decides which changes are allowed and what they cost. `resolve.py` maps the columns of a file to requested columns.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from hoodoo.format.convert import convert_bounds
from hoodoo.format.names import META_COLUMNS

FIRST_ID = 5
"""First column id.

Lower ids are those of Hudi's meta columns in Hudi's internal schema.
"""
FIELD_ID = b"PARQUET:field_id"
FIRST_META_ID = 100_001
"""First id of meta columns in Parquet files, larger than all column ids."""
LAST_META_ID = FIRST_META_ID + len(META_COLUMNS) - 1
_META_IDS = {name: FIRST_META_ID + number for number, name in enumerate(META_COLUMNS)}
_LEAVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "time_millis": pa.time32("ms"),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_millis": pa.timestamp("ms", "UTC"),
    "local_timestamp": pa.timestamp("us"),
    "local_timestamp_millis": pa.timestamp("ms"),
}
_LEAF_NAMES = {kind: name for name, kind in _LEAVES.items()}
_DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")
Json = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """Column or nested field of a table.

    Attributes:
        id: The permanent id.
        name: The name.
        kind: 'struct', 'list', 'map', or the Arrow type of a leaf.
        children: The fields of a struct; the item of a list; the key and value of a map.
        required: True if nulls are not allowed.
        has_default: True if the column has a default.
        default: The value for batches without the column, in the form of `statistics.to_json`.
        retyped: Earlier types whose stored values `retype_column` found to be convertible exactly to this type.
    """

    id: int
    name: str
    kind: str | pa.DataType
    children: tuple[Column, ...] = ()
    required: bool = False
    has_default: bool = False
    default: Any = None
    retyped: tuple[str, ...] = ()

    @cached_property
    def arrow(self) -> pa.DataType:
        if self.kind == "struct":
            return pa.struct([pa.field(child.name, child.arrow) for child in self.children])
        if self.kind == "list":
            return pa.list_(self.children[0].arrow)
        if self.kind == "map":
            return pa.map_(self.children[0].arrow, self.children[1].arrow)
        return self.kind

    def field(self) -> pa.Field:
        return pa.field(self.name, self._with_ids(), metadata=_id(self.id))

    def _with_ids(self) -> pa.DataType:
        inner = [child.field() for child in self.children]
        if self.kind == "struct":
            return pa.struct(inner)
        if self.kind == "list":
            return pa.list_(inner[0].with_name("element"))
        if self.kind == "map":
            return pa.map_(inner[0].with_name("key").with_nullable(False), inner[1].with_name("value"))
        return self.arrow

    def walk(self) -> Iterator[Column]:
        yield self
        for child in self.children:
            yield from child.walk()

    def of_kind(self, kind: str | pa.DataType) -> Column:
        if self.kind == kind or self.default is None or isinstance(kind, str):
            return replace(self, kind=kind)
        if pa.types.is_string(kind):
            return replace(self, kind=kind, default=str(self.default))
        return replace(self, kind=kind, default=convert_bounds(self.default, None, self.arrow, kind)[0])

    def to_json(self) -> Json:
        encoded: Json = {"id": self.id, "name": self.name}
        if self.kind == "struct":
            encoded["fields"] = [child.to_json() for child in self.children]
        elif self.kind == "list":
            encoded["item"] = self.children[0].to_json()
        elif self.kind == "map":
            encoded["key"], encoded["value"] = (child.to_json() for child in self.children)
        else:
            encoded["type"] = _leaf_name(self.arrow)
        encoded |= {"required": True} if self.required else {}
        encoded |= {"retyped": list(self.retyped)} if self.retyped else {}
        return encoded | ({"default": self.default} if self.has_default else {})

    @staticmethod
    def from_json(said: Any) -> Column:
        """Create a column from its JSON object.

        Raises ValueError, TypeError or KeyError for any other value.
        """
        if not isinstance(said, dict) or not isinstance(said["name"], str) or type(said["id"]) is not int:
            raise ValueError(f"{str(said)[:50]} is not a column")
        kind, inner = _parse_kind(said)
        return Column(
            said["id"],
            said["name"],
            kind,
            tuple(map(Column.from_json, inner)),
            said.get("required", False) is True,
            "default" in said,
            said.get("default"),
            tuple(map(str, said.get("retyped", ()))),
        )


def _parse_kind(encoded: Json) -> tuple[str | pa.DataType, list[Any]]:
    if "fields" in encoded:
        return "struct", list(encoded["fields"])
    if "item" in encoded:
        return "list", [encoded["item"]]
    if "value" in encoded:
        return "map", [encoded["key"], encoded["value"]]
    if decimal := _DECIMAL.fullmatch(encoded["type"]):
        return pa.decimal128(int(decimal[1]), int(decimal[2])), []
    return _LEAVES[encoded["type"]], []


def _leaf_name(kind: pa.DataType) -> str:
    return f"decimal({kind.precision},{kind.scale})" if pa.types.is_decimal(kind) else _LEAF_NAMES[kind]


def _id(number: int) -> dict[bytes, bytes]:
    return {FIELD_ID: str(number).encode()}


@dataclass(frozen=True)
class TableSchema:
    """Table schema with permanent column ids.

    Attributes:
        id: The number of the schema, counted from 1.
        columns: The columns.
        last: The largest id that any column of the table ever had.
        hudi: Pairs of column id and id in Hudi's internal schema, if the newest commit has an internal schema. Empty
            if another engine later wrote without an internal schema. None if no commit has had an internal schema.
    """

    id: int
    columns: tuple[Column, ...]
    last: int
    hudi: tuple[tuple[int, int], ...] | None = None

    @cached_property
    def arrow(self) -> pa.Schema:
        return pa.schema([pa.field(column.name, column.arrow) for column in self.columns])

    @cached_property
    def arrow_fields_with_ids(self) -> dict[str, pa.Field]:
        meta = {name: pa.field(name, pa.string(), metadata=_id(number)) for name, number in _META_IDS.items()}
        return meta | {column.name: column.field() for column in self.columns}

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        return {column.name: column for column in self.columns}

    @cached_property
    def by_id(self) -> Mapping[int, Column]:
        return {nested.id: nested for column in self.columns for nested in column.walk()}

    @cached_property
    def parent_and_name(self) -> Mapping[int, tuple[int, str]]:
        parents = {column.id: (0, column.name) for column in self.columns}
        for parent in self.by_id.values():
            parents |= {child.id: (parent.id, child.name) for child in parent.children}
        return parents

    def with_columns(self, columns: Iterable[Column], last: int | None = None) -> TableSchema:
        return TableSchema(self.id + 1, tuple(columns), self.last if last is None else last)

    def with_schema_id(self, number: int, last: int) -> TableSchema:
        return TableSchema(number, self.columns, last, self.hudi)

    def to_json(self) -> Json:
        encoded = {"id": self.id, "max": self.last, "columns": [column.to_json() for column in self.columns]}
        return encoded if self.hudi is None else encoded | {"hudi": [list(pair) for pair in self.hudi]}

    @staticmethod
    def from_json(said: Any) -> TableSchema:
        """Create a table schema from its JSON object.

        Raises ValueError, TypeError or KeyError for any other value.
        """
        if not isinstance(said, dict) or type(said["id"]) is not int or type(said["max"]) is not int:
            raise ValueError(f"{str(said)[:50]} is not a schema")
        pairs = said.get("hudi")
        hudi = None if pairs is None else tuple((int(own), int(theirs)) for own, theirs in pairs)
        schema = TableSchema(said["id"], tuple(map(Column.from_json, said["columns"])), said["max"], hudi)
        ids = [one.id for column in schema.columns for one in column.walk()]
        if len(set(ids)) != len(ids) or any(not FIRST_ID <= one <= schema.last for one in ids):
            raise ValueError("column ids are duplicated, or larger than the largest assigned id")
        if len(set(schema.parent_and_name.values())) != len(ids):
            raise ValueError("two columns have the same name")
        return schema

    @staticmethod
    def first(schema: pa.Schema, required: Iterable[str] = ()) -> TableSchema:
        required_names = set(required)
        columns, last = numbered(list(schema), FIRST_ID)
        return TableSchema(
            1, tuple(replace(column, required=column.name in required_names) for column in columns), last
        )


def numbered(fields: Iterable[pa.Field], first: int) -> tuple[list[Column], int]:
    drafts = [_ColumnDraft(field.name, field.type) for field in fields]
    waiting, number = deque(drafts), first
    while waiting:
        draft = waiting.popleft()
        draft.id, number = number, number + 1
        waiting.extend(draft.children)
    return [draft.column() for draft in drafts], number - 1


class _ColumnDraft:
    id = 0

    def __init__(self, name: str, kind: pa.DataType) -> None:
        self.name, self.kind = name, kind
        self.children = [_ColumnDraft(*one) for one in child_names_and_types(kind)]

    def column(self) -> Column:
        return Column(self.id, self.name, kind_of(self.kind), tuple(child.column() for child in self.children))


def kind_of(kind: pa.DataType) -> str | pa.DataType:
    if pa.types.is_struct(kind):
        return "struct"
    if pa.types.is_list(kind):
        return "list"
    return "map" if pa.types.is_map(kind) else kind


def child_names_and_types(kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
    if pa.types.is_struct(kind):
        return [(field.name, field.type) for field in kind]
    if pa.types.is_list(kind):
        return [("item", kind.value_type)]
    return [("key", kind.key_type), ("value", kind.item_type)] if pa.types.is_map(kind) else []


def assign_column_ids(before: TableSchema, schema: pa.Schema, known: Iterable[TableSchema] = ()) -> TableSchema:
    """Assign column ids to the columns of a schema by their names.

    Another engine changed the table to the columns `schema`. The result is the schema that follows `before`. A column
    whose name exists at its level keeps its id. A column that was dropped and added again gets its earlier id from
    `known`, the schemas of existing files, newest first, because engines that match by name also return its old values.
    This does not apply to a column that was renamed, because no valid file contains it under the old name. All other
    columns get new ids.
    """
    by_parent_and_name: dict[tuple[int, str], Column] = {}
    seen: set[int] = set()
    for older in (before, *known):
        for column in older.by_id.values():
            if column.id not in seen:
                by_parent_and_name.setdefault(older.parent_and_name[column.id], column)
        seen |= older.by_id.keys()
    schema_by_name = create_next_schema(before, schema, lambda path, around: by_parent_and_name.get((around, path[-1])))
    return schema_by_name if before.hudi is None else replace(schema_by_name, hudi=())


Find = Callable[[tuple[str, ...], int], Column | None]
"""Function that returns the column of the earlier schema, or None for a new column.

Its arguments are the path of the column, and the id of the parent column or 0.
"""


def create_next_schema(before: TableSchema, schema: pa.Schema, find: Find) -> TableSchema:
    """Create the next schema from new columns.

    It has the names and types of `schema`. `find` returns the earlier column, whose id is kept, or None for a new
    column.
    """
    last = before.last

    def column(path: tuple[str, ...], around: int, kind: pa.DataType) -> Column:
        nonlocal last
        old = find(path, around)
        if old is None or _shape(old.kind) != _shape(kind_of(kind)):
            [new], last = numbered([pa.field(path[-1], kind)], last + 1)
            return new
        inner = tuple(column((*path, name), old.id, child) for name, child in child_names_and_types(kind))
        return replace(old.of_kind(kind_of(kind)), name=path[-1], children=inner)

    columns = [column((field.name,), 0, field.type) for field in schema]
    return before.with_columns(columns, last)


def _shape(kind: str | pa.DataType) -> str:
    return kind if isinstance(kind, str) else "leaf"


__all__ = [
    "FIELD_ID",
    "FIRST_ID",
    "FIRST_META_ID",
    "LAST_META_ID",
    "Column",
    "TableSchema",
    "assign_column_ids",
    "child_names_and_types",
    "kind_of",
    "numbered",
    "create_next_schema",
]
