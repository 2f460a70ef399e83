"""Resolution of file columns to table columns.

A `ColumnMapping` is created for each pair of schemas. If the schemas are equal, it costs nothing per row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hoodoo.errors import UnsupportedTable
from hoodoo.format.convert import convert_bounds, convert_values, is_readable_as
from hoodoo.format.nested_arrays import as_list, get_list_offsets
from hoodoo.format.retype import retype_values
from hoodoo.format.table_schema import Column, TableSchema


@dataclass(frozen=True)
class ColumnSource:
    """File column with the values of a requested column.

    Attributes:
        name: The name of the column in the file.
        was: The type of the column in the file.
        column: The requested column.
        children: For a nested column, the source of each requested field, in order, or None for a missing field. The
            attribute itself is None if the file has exactly the requested fields.
        problem: The error if the values in the file cannot be converted to the requested column, or None.
    """

    name: str
    was: pa.DataType
    column: Column
    children: tuple[ColumnSource | None, ...] | None = None
    problem: UnsupportedTable | None = None

    @property
    def is_unchanged_in_file(self) -> bool:
        return self.children is None and self.name == self.column.name and self.was == self.column.arrow

    @property
    def has_earlier_type(self) -> bool:
        return str(self.was) in self.column.retyped and self.was != self.column.arrow


class ColumnMapping:
    """Resolution of file columns to table columns.

    `sources` contains the source of each requested column by name. None means that the file does not have the column,
    even if another column of the file has this name.
    """

    def __init__(self, sources: Mapping[str, ColumnSource | None] | None = None, gone: Iterable[str] = ()) -> None:
        self._gone = frozenset(gone)
        self.sources = {
            name: source
            for name, source in (sources or {}).items()
            if source is None or not source.is_unchanged_in_file
        }

    @property
    def changes_nothing(self) -> bool:
        return not self.sources

    def name_of(self, name: str) -> str | None:
        """Return a column's name in the file.

        Returns None for a missing column. Raises UnsupportedTable if the file's values cannot be read as the column's
        current type.
        """
        if name not in self.sources:
            return name
        source = self.sources[name]
        if source and source.problem:
            raise UnsupportedTable(source.problem.message, **source.problem.details)
        return source.name if source else None

    def names_of(self, names: Iterable[str]) -> list[str]:
        return [file_name for name in names if (file_name := self.name_of(name)) is not None]

    def asked(self, names: Iterable[str]) -> list[str]:
        back = {source.name: name for name, source in self.sources.items() if source}
        return [
            back.get(name, name)
            for name in names
            if name in back or name not in self.sources and name not in self._gone
        ]

    def to_requested_columns(self, table: pa.Table, fields: Sequence[pa.Field]) -> pa.Table:
        by_name = dict(zip(table.column_names, table.columns, strict=True))
        columns = []
        for field in fields:
            name = self.name_of(field.name)
            column = by_name.get(name) if name is not None else None
            if column is None:
                columns.append(pa.nulls(len(table), field.type))
            else:
                columns.append(self._converted(column, field))
        return pa.table(columns, schema=pa.schema(fields)) if columns else table.select([])

    def _converted(self, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
        source = self.sources.get(field.name)
        try:
            return _read(column, source, field.type)
        except pa.ArrowInvalid:
            if source is None:
                raise
            raise _unreadable(field.name, source.was, field.type) from None

    def convert_statistics(self, stats: dict[str, list[Any]], rows: int) -> dict[str, list[Any]]:
        """Convert column statistics of a file to the requested columns.

        A missing column is null in all `rows` rows.
        """
        if self.changes_nothing:
            return stats
        converted = {name: bounds for name, bounds in stats.items() if name not in self.sources}
        for name, source in self.sources.items():
            if source is None:
                converted[name] = [None, None, rows]
            elif source.has_earlier_type and source.name in stats:
                converted[name] = [None, None, stats[source.name][2]]
            elif source.children is None and not source.problem and source.name in stats:
                low, high, nulls = stats[source.name]
                converted[name] = [*convert_bounds(low, high, source.was, source.column.arrow), nulls]
        return converted


NO_CHANGES = ColumnMapping()
"""Mapping for a file whose columns equal the requested columns."""


def map_columns(file: TableSchema, asked: TableSchema) -> ColumnMapping:
    """Map columns of a file to requested columns by id.

    A column whose old values cannot be converted to its current type only causes an error when it is read.
    """
    sources: dict[str, ColumnSource | None] = {}
    for column in asked.columns:
        try:
            sources[column.name] = _find_source(file, column, 0, column.name)
        except UnsupportedTable as problem:
            file_column = file.by_id[column.id]
            sources[column.name] = ColumnSource(file_column.name, file_column.arrow, column, problem=problem)
    return ColumnMapping(sources, file.by_name.keys() - {source.name for source in sources.values() if source})


def _find_source(file: TableSchema, column: Column, around: int, path: str) -> ColumnSource | None:
    # `around` is the id of the parent column, or 0. `path` is the dotted path of `column`.
    file_column = file.by_id.get(column.id)
    if file_column is None or file.parent_and_name[column.id][0] != around:
        return None
    if isinstance(column.kind, str) or isinstance(file_column.kind, str):
        if column.kind != file_column.kind:
            raise _unreadable(path, file_column.arrow, column.arrow)
        children = tuple(_find_source(file, child, column.id, f"{path}.{child.name}") for child in column.children)
        same = len(file_column.children) == len(children) and all(
            child is not None and child.is_unchanged_in_file and child.name == file_child.name
            for child, file_child in zip(children, file_column.children, strict=True)
        )
        return ColumnSource(file_column.name, file_column.arrow, column, None if same else children)
    if not is_readable_as(file_column.kind, column.kind) and str(file_column.kind) not in column.retyped:
        raise _unreadable(path, file_column.kind, column.kind)
    return ColumnSource(file_column.name, file_column.kind, column)


def _unreadable(path: str, old: pa.DataType, new: pa.DataType) -> UnsupportedTable:
    return UnsupportedTable(
        f"Column {path!r} of type {new} cannot be read from files that store it as {old}, because {new} cannot "
        "represent all values. Read the other columns. For a diff, pass the older position first. Read the snapshots "
        "before and after a restore separately. If another engine changed the type, change it back there, or drop the "
        "column with alter.drop_column().",
        column=path,
    )


def _read(column: pa.ChunkedArray, source: ColumnSource | None, kind: pa.DataType) -> pa.ChunkedArray:
    if source is not None and source.has_earlier_type:
        return retype_values(column, kind)
    if source is None or source.children is None:
        return _as(column, kind)
    return pa.chunked_array([_convert_nested(chunk, source) for chunk in column.chunks], kind)


def _as(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return values.cast(kind) if pa.types.is_nested(kind) and values.type != kind else convert_values(values, kind)


def _convert_nested(array: pa.Array, source: ColumnSource | None) -> pa.Array:
    assert source is not None
    column, kind = source.column, source.column.arrow
    if source.children is None:
        return convert_values(array, kind) if not pa.types.is_nested(kind) else array.cast(kind)
    nulls = array.is_null() if array.null_count else None
    if column.kind == "struct":
        fields_by_name = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
        parts = [
            _convert_nested(fields_by_name[child.name], child) if child else pa.nulls(len(array), requested.arrow)
            for child, requested in zip(source.children, column.children, strict=True)
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=nulls)
    offsets = get_list_offsets(array, pa.int32())
    if column.kind == "list":
        items = _convert_nested(array.flatten(), source.children[0])
        return pa.ListArray.from_arrays(offsets, items, type=kind, mask=nulls)
    entries = as_list(array).flatten()
    keys, items = (_convert_nested(entries.field(n), source.children[n]) for n in (0, 1))
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=nulls)


__all__ = ["NO_CHANGES", "ColumnMapping", "ColumnSource", "map_columns"]
