"""The columns of a file as those asked for: by their ids, whatever each is called and typed in either schema.

One `Resolution` for each pair of schemas; it knows no file, no table and no row, and costs nothing per row where
nothing differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hoodoo.errors import UnsupportedTable
from hoodoo.format.convert import convert, convert_bounds, is_readable
from hoodoo.format.nested_arrays import as_list, ends
from hoodoo.format.retype import retyped
from hoodoo.format.table_schema import Column, TableSchema


@dataclass(frozen=True)
class ColumnSource:
    """Where in a file the values of a column come from.

    name: what the column is called in the file.
    was: its type in the file.
    column: the column as it is asked for.
    children: of a nested column, the source of each field asked for, in their order; a field that the file lacks is
        None. The whole is None where the file has the fields as they are asked for.
    problem: why the file's values cannot be read as that column; None where they can.
    """

    name: str
    was: pa.DataType
    column: Column
    children: tuple[ColumnSource | None, ...] | None = None
    problem: UnsupportedTable | None = None

    @property
    def is_as_it_stands(self) -> bool:
        """Tell whether the file has the column under the same name, with the same type and the same fields."""
        return self.children is None and self.name == self.column.name and self.was == self.column.arrow

    @property
    def is_retyped(self) -> bool:
        """Tell whether the file has values of a type that `retype_column` made into the column's."""
        return str(self.was) in self.column.retyped and self.was != self.column.arrow


class Resolution:
    """How to read a file written under one schema as another. `sources`: name asked for -> where it is; None: the file
    has no such column, whatever stands there under the same name.
    """

    def __init__(self, sources: Mapping[str, ColumnSource | None] | None = None, gone: Iterable[str] = ()) -> None:
        """gone: what columns of the file are called that nobody asks for any more."""
        self._gone = frozenset(gone)
        self.sources = {
            name: source for name, source in (sources or {}).items() if source is None or not source.is_as_it_stands
        }

    @property
    def changes_nothing(self) -> bool:
        """Tell whether the file has all columns as they are asked for."""
        return not self.sources

    def name_of(self, name: str) -> str | None:
        """What the column `name` is called in the file, None where it has none. Raises UnsupportedTable where its type
        became one that the file's values cannot be read as.
        """
        if name not in self.sources:
            return name
        source = self.sources[name]
        if source and source.problem:
            raise UnsupportedTable(source.problem.message, **source.problem.details)
        return source.name if source else None

    def names_of(self, names: Iterable[str]) -> list[str]:
        """What columns are called in the file, without those that it has not."""
        return [found for name in names if (found := self.name_of(name)) is not None]

    def asked(self, names: Iterable[str]) -> list[str]:
        """What columns of the file are called that a reader asks for; those that are gone are left out."""
        back = {source.name: name for name, source in self.sources.items() if source}
        return [
            back.get(name, name)
            for name in names
            if name in back or name not in self.sources and name not in self._gone
        ]

    def conform(self, table: pa.Table, fields: Sequence[pa.Field]) -> pa.Table:
        """`table`, read from the file, with exactly `fields`: null where the file has no such column."""
        there = dict(zip(table.column_names, table.columns, strict=True))
        columns = []
        for field in fields:
            name = self.name_of(field.name)
            column = there.get(name) if name is not None else None
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

    def stats(self, stats: dict[str, list[Any]], rows: int) -> dict[str, list[Any]]:
        """Statistics of `rows` rows of the file as those of the columns asked for: one that the file has not is null in
        every row.
        """
        if self.changes_nothing:
            return stats
        found = {name: bounds for name, bounds in stats.items() if name not in self.sources}
        for name, source in self.sources.items():
            if source is None:
                found[name] = [None, None, rows]
            elif source.is_retyped and source.name in stats:
                found[name] = [None, None, stats[source.name][2]]
            elif source.children is None and not source.problem and source.name in stats:
                low, high, nulls = stats[source.name]
                found[name] = [*convert_bounds(low, high, source.was, source.column.arrow), nulls]
        return found


AS_IT_STANDS = Resolution()
"""Of a file that has the columns asked for."""


def resolve(file: TableSchema, asked: TableSchema) -> Resolution:
    """How a file written under `file` is read as `asked`. A column whose type became one that its old values cannot be
    read as stands in the way of nobody who does not ask for it.
    """
    sources: dict[str, ColumnSource | None] = {}
    for column in asked.columns:
        try:
            sources[column.name] = _source(file, column, 0, column.name)
        except UnsupportedTable as problem:
            found = file.by_id[column.id]
            sources[column.name] = ColumnSource(found.name, found.arrow, column, problem=problem)
    return Resolution(sources, file.by_name.keys() - {source.name for source in sources.values() if source})


def _source(file: TableSchema, column: Column, around: int, path: str) -> ColumnSource | None:
    """Return where the file has `column`, None where it lacks it.

    around: the id of the column that `column` is nested in, 0 for none. path: the names that lead to `column`.
    """
    found = file.by_id.get(column.id)
    if found is None or file.parent_and_name[column.id][0] != around:
        return None
    if isinstance(column.kind, str) or isinstance(found.kind, str):
        if column.kind != found.kind:
            raise _unreadable(path, found.arrow, column.arrow)
        children = tuple(_source(file, child, column.id, f"{path}.{child.name}") for child in column.children)
        same = len(found.children) == len(children) and all(
            child is not None and child.is_as_it_stands and child.name == there.name
            for child, there in zip(children, found.children, strict=True)
        )
        return ColumnSource(found.name, found.arrow, column, None if same else children)
    if not is_readable(found.kind, column.kind) and str(found.kind) not in column.retyped:
        raise _unreadable(path, found.kind, column.kind)
    return ColumnSource(found.name, found.kind, column)


def _unreadable(path: str, old: pa.DataType, new: pa.DataType) -> UnsupportedTable:
    return UnsupportedTable(
        f"Column {path!r} is {new}, and was {old} when some of the table's files were written, whose values cannot "
        f"all be read as {new}. Name other columns to read those. Read the snapshots before and after a restore by "
        "themselves; where another engine changed the column, change it back there, or give its values up by "
        "drop_column().",
        column=path,
    )


def _read(column: pa.ChunkedArray, source: ColumnSource | None, kind: pa.DataType) -> pa.ChunkedArray:
    if source is not None and source.is_retyped:
        return retyped(column, kind)
    if source is None or source.children is None:
        return _as(column, kind)
    return pa.chunked_array([_rebuilt(chunk, source) for chunk in column.chunks], kind)


def _as(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return values.cast(kind) if pa.types.is_nested(kind) and values.type != kind else convert(values, kind)


def _rebuilt(array: pa.Array, source: ColumnSource | None) -> pa.Array:
    """A nested array with the fields asked for."""
    assert source is not None
    column, kind = source.column, source.column.arrow
    if source.children is None:
        return convert(array, kind) if not pa.types.is_nested(kind) else array.cast(kind)
    nulls = array.is_null() if array.null_count else None
    if column.kind == "struct":
        there = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
        parts = [
            _rebuilt(there[child.name], child) if child else pa.nulls(len(array), asked.arrow)
            for child, asked in zip(source.children, column.children, strict=True)
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=nulls)
    offsets = ends(array, pa.int32())
    if column.kind == "list":
        items = _rebuilt(array.flatten(), source.children[0])
        return pa.ListArray.from_arrays(offsets, items, type=kind, mask=nulls)
    entries = as_list(array).flatten()
    keys, items = (_rebuilt(entries.field(n), source.children[n]) for n in (0, 1))
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=nulls)


__all__ = ["AS_IT_STANDS", "Resolution", "ColumnSource", "resolve"]
