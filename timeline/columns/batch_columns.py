"""Column changes that a table needs to accept a batch: new columns, new fields and wider types.

alterations.py applies the changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from hoodoo.errors import SchemaError
from hoodoo.format.avro.schema import normalise
from hoodoo.format.column_names import Misnamed, misnamed, require_allowed
from hoodoo.format.convert import is_automatic
from hoodoo.format.known_types import known_type
from hoodoo.format.table_schema import Column
from hoodoo.timeline.columns.alterations import AddColumn, Alteration, WidenColumn, require_name
from hoodoo.timeline.properties.config import TableConfig


def by_batch(config: TableConfig, schema: pa.Schema, fits: Callable[[str], bool]) -> list[Alteration]:
    """Return the column changes that let the table accept a batch: new columns, new struct fields and wider types.

    Types are only widened where this is exact. Columns are never dropped, renamed or narrowed.

    fits(column): returns whether the batch's values are convertible to the column's current type.

    Raises SchemaError for an unsupported type, and for invalid names. The error lists all invalid names.
    """
    require_allowed(_misnamed_beside(config.columns.columns, schema, ""))
    found: list[Alteration] = []
    fixed = {*config.key, *config.placing, *config.order_by}
    for field in schema:
        column, said = config.columns.by_name.get(field.name), known_type(field.type)
        if said is None or field.name in fixed:
            continue
        try:
            wanted = normalise(pa.schema([pa.field(field.name, said)])).field(0).type
        except SchemaError:
            if column is None or isinstance(column.kind, str):
                raise
            continue  # the values may be convertible to the existing column, whatever their type
        if column is None:
            require_name(field.name, field.name)  # a name with dots would be read as a path
            found.append(AddColumn(field.name, wanted, default=None))
        else:
            found += _grown(column, wanted, field.name)
            if not isinstance(column.kind, str) and _may_widen(column.kind, wanted) and not fits(field.name):
                found.append(WidenColumn(field.name, wanted))
    return found


def _misnamed_beside(known: Sequence[Column], given: Iterable[pa.Field], around: str) -> Iterator[Misnamed]:
    """Yield the new columns and struct fields of a batch that have invalid names, at any level.

    Args:
        known: The table's columns at this level.
        given: The batch's columns at this level.
        around: The prefix for paths of columns at this level, such as 's.'.
    """
    there, given = {column.name: column for column in known}, list(given)
    yield from misnamed([field for field in given if field.name not in there], around, there)
    for field in given:
        if field.name in there:
            yield from _misnamed_in(there[field.name], field.type, around + field.name)


def _misnamed_in(column: Column, kind: pa.DataType, path: str) -> Iterator[Misnamed]:
    if column.kind == "struct" and pa.types.is_struct(kind):
        yield from _misnamed_beside(column.children, kind, f"{path}.")
    elif column.kind == "list" and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        yield from _misnamed_in(column.children[0], kind.value_type, f"{path}[]")
    elif column.kind == "map" and pa.types.is_map(kind):
        yield from _misnamed_in(column.children[1], kind.item_type, f"{path}{{}}")


def _grown(column: Column, wanted: pa.DataType, path: str) -> Iterable[Alteration]:
    """Yield the column changes that add new struct fields, at any level. Existing fields are never widened, to avoid
    rewrites.
    """
    if column.kind == "struct" and pa.types.is_struct(wanted):
        there = {child.name: child for child in column.children}
        for field in wanted:
            if field.name in there:
                yield from _grown(there[field.name], field.type, f"{path}.{field.name}")
            else:
                require_name(field.name, f"{path}.{field.name}")
                yield AddColumn(f"{path}.{field.name}", field.type, default=None)
    elif column.kind == "list" and pa.types.is_list(wanted):
        yield from _grown(column.children[0], wanted.value_type, f"{path}[]")
    elif column.kind == "map" and pa.types.is_map(wanted):
        yield from _grown(column.children[1], wanted.item_type, f"{path}{{}}")


def _may_widen(was: pa.DataType, wanted: pa.DataType) -> bool:
    return was != wanted and is_automatic(was, wanted)


__all__ = ["by_batch"]
