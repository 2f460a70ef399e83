"""Mapping between current and original column names.

A column may be created from a name that Avro does not allow ("Order ID"), which is then its original name. Callers may
use either name, and rows can be returned with the original names. An original name belongs to a column id, so it
survives a rename of the column. It never equals a current name, because current names are valid in Avro.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from hoodoo.errors import ColumnError
from hoodoo.format.column_names import suggest_names
from hoodoo.format.nested_arrays import as_list, get_list_offsets
from hoodoo.format.sql_tokens import TOKEN
from hoodoo.format.table_schema import Column
from hoodoo.redact import printable

T = TypeVar("T")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class LevelMapping:
    """Name mapping of one level: of the columns, or of a struct's fields.

    Attributes:
        columns: The columns by their names.
        made: The mapped names by column id.
        originals: The original names of all columns, by id.
        to_originals: True to map to original names, False to map to the table's names.
    """

    columns: Mapping[str, Column]
    made: Mapping[int, str]
    originals: Mapping[int, str]
    to_originals: bool

    @staticmethod
    def of(columns: Sequence[Column], originals: Mapping[int, str], to_originals: bool) -> LevelMapping:
        by_name = {column.name: column for column in columns}
        original = {column.id: originals.get(column.id, column.name) for column in columns}
        if to_originals:
            return LevelMapping(by_name, original, originals, True)
        by_name |= {original[column.id]: column for column in columns}
        return LevelMapping(by_name, {column.id: column.name for column in columns}, originals, False)

    def within(self, column: Column | None) -> LevelMapping | None:
        while column is not None and column.kind in ("list", "map"):
            column = column.children[-1]
        if column is None or column.kind != "struct":
            return None
        return LevelMapping.of(column.children, self.originals, self.to_originals)

    def name(self, given: str) -> str:
        column = self.columns.get(given)
        return given if column is None else self.made[column.id]

    def names(self, given: Sequence[str], around: str = "") -> list[str]:
        """Return the mapped names of columns.

        Args:
            given: The names of the columns. Repeated names stay repeated.
            around: The prefix of the names in error messages.

        Raises:
            ColumnError: Both names of one column are given.
        """
        mapped, seen = [], dict[str, str]()
        for name in given:
            mapped.append(self.name(name))
            if (other := seen.setdefault(mapped[-1], name)) != name:
                raise ColumnError(
                    f"Columns {printable(around + other)} and {printable(around + name)} are two names of the same "
                    "column. Drop one of them.",
                    column=around + name,
                )
        return mapped

    # ---- Arrow
    def changes(self, kind: pa.DataType) -> bool:
        if not pa.types.is_struct(kind):
            return pa.types.is_nested(kind) and any(self.changes(kind.field(n).type) for n in range(kind.num_fields))
        for field in kind:
            inner = self.within(self.columns.get(field.name))
            if self.name(field.name) != field.name or inner is not None and inner.changes(field.type):
                return True
        return False

    def kind(self, kind: pa.DataType, path: str) -> pa.DataType:
        """Rename the struct fields in an Arrow type."""
        if pa.types.is_struct(kind):
            names = self.names([field.name for field in kind], f"{path}.")
            return pa.struct([self._field(field, name, path) for field, name in zip(kind, names, strict=True)])
        if pa.types.is_map(kind):
            return pa.map_(kind.key_type, self.kind(kind.item_type, f"{path}{{}}"))
        if pa.types.is_large_list(kind):
            return pa.large_list(self.kind(kind.value_type, f"{path}[]"))
        return pa.list_(self.kind(kind.value_type, f"{path}[]")) if pa.types.is_list(kind) else kind

    def _field(self, field: pa.Field, name: str, path: str) -> pa.Field:
        inner = self.within(self.columns.get(field.name))
        kind = inner.kind(field.type, f"{path}.{field.name}") if inner else field.type
        return field.with_name(name).with_type(kind)

    def array(self, array: pa.Array, path: str) -> pa.Array:
        """Rename the struct fields in an Arrow array."""
        nulls = array.is_null() if array.null_count else None
        if pa.types.is_struct(array.type):
            return self._structs(array, nulls, path)
        if pa.types.is_map(array.type):
            entries = as_list(array).flatten()
            items = self.array(entries.field(1), f"{path}{{}}")
            return pa.MapArray.from_arrays(get_list_offsets(array, pa.int32()), entries.field(0), items, mask=nulls)
        if pa.types.is_large_list(array.type):
            items = self.array(array.flatten(), f"{path}[]")
            return pa.LargeListArray.from_arrays(get_list_offsets(array, pa.int64()), items, mask=nulls)
        if pa.types.is_list(array.type):
            items = self.array(array.flatten(), f"{path}[]")
            return pa.ListArray.from_arrays(get_list_offsets(array, pa.int32()), items, mask=nulls)
        return array

    def _structs(self, array: pa.StructArray, nulls: pa.Array | None, path: str) -> pa.Array:
        fields = dict[str, pa.Array]()
        for field, values in zip(array.type, array.flatten(), strict=True):
            if field.name in fields:
                return array  # the cast rejects a repeated name
            inner = self.within(self.columns.get(field.name))
            fields[field.name] = inner.array(values, f"{path}.{field.name}") if inner else values
        if not fields:
            return array
        kept = self._drop_empty_duplicates(fields)
        names = self.names(list(kept), f"{path}.")
        return pa.StructArray.from_arrays(list(kept.values()), names=names, mask=nulls)

    def _drop_empty_duplicates(self, given: dict[str, pa.Array]) -> dict[str, pa.Array]:
        # JSON lines may have such fields under both names.
        taken = dict[str, str]()
        for name, values in given.items():
            mapped = self.name(name)
            if mapped not in taken or given[taken[mapped]].null_count == len(values):
                taken[mapped] = name
        return {
            name: values
            for name, values in given.items()
            if taken[self.name(name)] == name or values.null_count < len(values)
        }


@dataclass(frozen=True)
class NameMapping:
    """Mapping between current and original column names.

    Attributes:
        columns: The columns of the table.
        originals: The original names by column id. Ids of dropped columns are ignored.
    """

    columns: tuple[Column, ...]
    originals: Mapping[int, str]
    travels_once: ClassVar[bool] = True  # tasks of a job share one pickled copy (engine/task_pickling)

    def __bool__(self) -> bool:
        return bool(self.paths)

    @cached_property
    def paths(self) -> Mapping[str, str]:
        return dict(self._paths(self.columns, ""))

    def _paths(self, columns: Sequence[Column], around: str) -> Iterator[tuple[str, str]]:
        for column in columns:
            if column.id in self.originals:
                yield around + column.name, self.originals[column.id]
            inner, path = column, around + column.name
            while inner.kind in ("list", "map"):
                path += "[]" if inner.kind == "list" else "{}"
                inner = inner.children[-1]
            yield from self._paths(inner.children, f"{path}.")

    @cached_property
    def taken(self) -> LevelMapping:
        """Mapping to the current column names."""
        return LevelMapping.of(self.columns, self.originals, False)

    @cached_property
    def to_original_names(self) -> LevelMapping:
        return LevelMapping.of(self.columns, self.originals, True)

    # ---- names
    def names(self, given: T) -> T:
        """Replace original column names by current names."""
        mapped: Any = given
        if not self or not isinstance(given, (list, tuple)):
            return mapped
        mapped = type(given)(self.taken.name(one) if isinstance(one, str) else one for one in given)
        return mapped

    def original_names(self, given: Iterable[str]) -> list[str]:
        return [self.to_original_names.name(name) for name in given if self.to_original_names.name(name) != name]

    def keys(self, given: T) -> T:
        """Replace original column names in dict keys.

        Raises:
            ColumnError: The mapping has both names of a column.
        """
        mapped: Any = given
        if not self or not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            return mapped
        mapped = dict(zip(self.taken.names(list(given)), given.values(), strict=True))
        return mapped

    def path(self, given: T) -> T:
        """Replace original names in a column path.

        The column need not exist yet.
        """
        mapped: Any = given
        if self and isinstance(given, str):
            mapped = _map_path(self.taken, given)
        return mapped

    def text(self, given: T) -> T:
        """Replace original column names in an SQL text.

        Other values are returned unchanged.
        """
        mapped: Any = given
        if self and isinstance(given, str):
            mapped = "".join(self._tokens(given))
        return mapped

    def expressions(self, given: T) -> T:
        """Replace original column names in SQL expressions.

        Other values are returned unchanged.

        Raises:
            ColumnError: The mapping has both names of a column.
        """
        return self.checks(self.keys(given))

    def checks(self, given: T) -> T:
        """Replace original column names in SQL conditions.

        Other values are returned unchanged.
        """
        mapped: Any = given
        if self and isinstance(given, Mapping):
            mapped = {name: self.text(text) for name, text in given.items()}
        return mapped

    def _tokens(self, text: str) -> Iterator[str]:
        level, after_dot = self.taken, False
        inner: LevelMapping | None = None
        for token in TOKEN.finditer(text):
            kind, text_of_token = token.lastgroup, token[0]
            if kind in ("quoted", "word"):
                name = (
                    text_of_token
                    if kind == "word"
                    else text_of_token[1:-1].replace(text_of_token[0] * 2, text_of_token[0])
                )
                current = inner if after_dot and inner else level
                column = current.columns.get(name)
                inner = current.within(column)
                mapped = current.name(name)
                yield (
                    text_of_token
                    if mapped == name
                    else mapped
                    if _PLAIN.fullmatch(mapped) and kind == "word"
                    else f'"{mapped}"'
                )
            else:
                yield text_of_token
            if kind != "space":
                after_dot = kind == "dot"

    # ---- rows
    def hints(self, schema: pa.Schema) -> pa.Schema:
        """Add renamed columns under their original names."""
        level = self.to_original_names
        renamed = [
            level._field(field, level.name(field.name), "")
            for field in schema
            if field.name in level.columns and level.name(field.name) != field.name
        ]
        return pa.schema([*schema, *renamed]) if renamed else schema

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Replace original column names in a schema.

        Raises ColumnError if the batch contains a column under both its current and its original name.
        """
        return _schema(schema, self.taken) if self else schema

    def rows(self, rows: pa.Table) -> pa.Table:
        """Replace original column names in rows.

        Raises ColumnError if the batch contains a column under both its current and its original name.
        """
        return _rows(rows, self.taken) if self else rows

    def schema_with_original_names(self, schema: pa.Schema) -> pa.Schema:
        return _schema(schema, self.to_original_names) if self else schema

    def rows_with_original_names(self, rows: pa.Table) -> pa.Table:
        return _rows(rows, self.to_original_names) if self else rows

    def mapping_for_structs(self, names: Iterable[str]) -> NameMapping:
        structs = (Column(-number, name, "struct", self.columns) for number, name in enumerate(names, 1))
        return replace(self, columns=tuple(structs))


def original_names_by_id(fields: Iterable[pa.Field], columns: Iterable[Column]) -> dict[int, str]:
    originals = dict[int, str]()
    for field, column in zip(fields, columns, strict=False):
        if field.name != column.name:
            originals[column.id] = field.name
        kind, inner = field.type, column
        while inner.kind in ("list", "map") or pa.types.is_dictionary(kind):
            if pa.types.is_dictionary(kind):
                kind = kind.value_type
                continue
            kind, inner = kind.item_type if pa.types.is_map(kind) else kind.value_type, inner.children[-1]
        if inner.kind == "struct":
            originals |= original_names_by_id(kind, inner.children)
    return originals


def replace_invalid_names(fields: Iterable[pa.Field]) -> list[pa.Field]:
    fields = list(fields)
    suggested = suggest_names([field.name for field in fields])
    return [field.with_name(suggested.get(field.name, field.name)).with_type(_allowed(field.type)) for field in fields]


def _allowed(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(replace_invalid_names(kind))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _allowed(kind.item_type))
    if pa.types.is_dictionary(kind):
        return _allowed(kind.value_type)
    if pa.types.is_nested(kind) and kind.num_fields == 1:  # a list of any layout
        return pa.list_(_allowed(kind.field(0).type))
    return kind


def _schema(schema: pa.Schema, level: LevelMapping) -> pa.Schema:
    names = level.names(schema.names)
    return pa.schema([level._field(field, name, "") for field, name in zip(schema, names, strict=True)])


def _rows(rows: pa.Table, level: LevelMapping) -> pa.Table:
    names, columns = level.names(rows.schema.names), list(rows.columns)
    for number, field in enumerate(rows.schema):
        inner = level.within(level.columns.get(field.name))
        if inner is not None and inner.changes(field.type):
            columns[number] = _rename_struct_values(columns[number], inner, field.name)
    return pa.table(columns, names=names)


def _rename_struct_values(values: pa.ChunkedArray, inner: LevelMapping, path: str) -> pa.ChunkedArray:
    parts = [inner.array(chunk, path) for chunk in values.chunks] or [inner.array(pa.array([], values.type), path)]
    if any(part.type != parts[0].type for part in parts):  # the chunks had values under different names
        parts = [inner.array(pa.concat_arrays(values.chunks), path)]
    return pa.chunked_array(parts)


def _map_path(level: LevelMapping, given: str) -> str:
    for name in sorted(level.columns, key=len, reverse=True):
        rest = given[len(name) :]
        if not given.startswith(name) or rest and rest[0] not in ".[{":
            continue
        into = re.match(r"(?:\[\]|\{\})*", rest)
        steps = into[0] if into else ""
        inner, rest = level.within(level.columns[name]), rest[len(steps) :]
        if rest.startswith(".") and inner:
            rest = f".{_map_path(inner, rest[1:])}"
        return f"{level.name(name)}{steps}{rest}"
    return given


__all__ = ["LevelMapping", "NameMapping", "original_names_by_id", "replace_invalid_names"]
