"""Automatic column changes for a new batch.

alterations.py applies the changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from hoodoo.errors import SchemaError
from hoodoo.format.avro.schema import normalize_schema
from hoodoo.format.column_names import InvalidColumnName, find_invalid_names, require_valid_names
from hoodoo.format.convert import is_automatic_widening
from hoodoo.format.known_types import remove_unknown_parts
from hoodoo.format.table_schema import Column
from hoodoo.timeline.columns.alterations import AddColumn, Alteration, WidenColumn, require_name
from hoodoo.timeline.properties.config import TableConfig


def find_column_changes(config: TableConfig, schema: pa.Schema, fits: Callable[[str], bool]) -> list[Alteration]:
    """Find the column changes that a batch needs.

    Types are only widened if all values stay exact. Columns are never dropped, renamed or narrowed. `fits(column)`
    returns whether the batch's values are convertible to the column's current type.

    Raises SchemaError for an unsupported type, and for invalid names. The error lists all invalid names.
    """
    require_valid_names(_misnamed_columns(config.columns.columns, schema, ""))
    changes: list[Alteration] = []
    key_columns = {*config.key, *config.partition_sources, *config.order_by}
    for field in schema:
        column, batch_type = config.columns.by_name.get(field.name), remove_unknown_parts(field.type)
        if batch_type is None or field.name in key_columns:
            continue
        try:
            new_type = normalize_schema(pa.schema([pa.field(field.name, batch_type)])).field(0).type
        except SchemaError:
            if column is None or isinstance(column.kind, str):
                raise
            continue  # the values may still be convertible to the existing column
        if column is None:
            require_name(field.name, field.name)  # a name with dots would be read as a path
            changes.append(AddColumn(field.name, new_type, default=None))
        else:
            changes += _new_struct_fields(column, new_type, field.name)
            if not isinstance(column.kind, str) and _may_widen(column.kind, new_type) and not fits(field.name):
                changes.append(WidenColumn(field.name, new_type))
    return changes


def _misnamed_columns(
    columns: Sequence[Column], fields: Iterable[pa.Field], around: str
) -> Iterator[InvalidColumnName]:
    # `around` is the prefix for paths of columns at this level, such as 's.'.
    by_name, fields = {column.name: column for column in columns}, list(fields)
    yield from find_invalid_names([field for field in fields if field.name not in by_name], around, by_name)
    for field in fields:
        if field.name in by_name:
            yield from _misnamed_in(by_name[field.name], field.type, around + field.name)


def _misnamed_in(column: Column, kind: pa.DataType, path: str) -> Iterator[InvalidColumnName]:
    if column.kind == "struct" and pa.types.is_struct(kind):
        yield from _misnamed_columns(column.children, kind, f"{path}.")
    elif column.kind == "list" and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        yield from _misnamed_in(column.children[0], kind.value_type, f"{path}[]")
    elif column.kind == "map" and pa.types.is_map(kind):
        yield from _misnamed_in(column.children[1], kind.item_type, f"{path}{{}}")


def _new_struct_fields(column: Column, kind: pa.DataType, path: str) -> Iterable[Alteration]:
    if column.kind == "struct" and pa.types.is_struct(kind):
        by_name = {child.name: child for child in column.children}
        for field in kind:
            if field.name in by_name:
                yield from _new_struct_fields(by_name[field.name], field.type, f"{path}.{field.name}")
            else:
                require_name(field.name, f"{path}.{field.name}")
                yield AddColumn(f"{path}.{field.name}", field.type, default=None)
    elif column.kind == "list" and pa.types.is_list(kind):
        yield from _new_struct_fields(column.children[0], kind.value_type, f"{path}[]")
    elif column.kind == "map" and pa.types.is_map(kind):
        yield from _new_struct_fields(column.children[1], kind.item_type, f"{path}{{}}")


def _may_widen(old: pa.DataType, new: pa.DataType) -> bool:
    return old != new and is_automatic_widening(old, new)


__all__ = ["find_column_changes"]
