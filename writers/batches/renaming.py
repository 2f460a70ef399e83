"""Renaming of stored columns to their current names.

Types stay unchanged; cast.py casts the values.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from hoodoo.errors import ColumnError
from hoodoo.format.nested_arrays import as_list, get_list_offsets
from hoodoo.format.table_schema import Column
from hoodoo.writers.batches.arrow_layouts import is_list

Ids: TypeAlias = dict[str, tuple[int, "Ids"]]
"""Column ids by name, as pairs of an id and the ids of the nested fields."""
_IDS = b"hoodoo.ids"


def ids_of(columns: Sequence[Column]) -> Ids:
    return {column.name: (column.id, ids_of(_struct_fields(column))) for column in columns}


def _struct_fields(column: Column) -> Sequence[Column]:
    if column.kind in ("list", "map"):
        return _struct_fields(column.children[-1])
    return column.children


def labelled(rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
    return rows.replace_schema_metadata({_IDS: json.dumps(ids_of(columns), separators=(",", ":"))})


def rename_columns(rows: pa.Table, now: Sequence[Column], leave_out: bool = False) -> pa.Table:
    """Rename stored columns to their current names.

    Columns without a stored id keep their name. Raises ColumnError if the rows have values for a dropped column, or for
    a column whose name another column now has. If `leave_out` is True, such values are left out instead.
    """
    stored_ids = (rows.schema.metadata or {}).get(_IDS)
    rows = rows.replace_schema_metadata(None)
    if stored_ids is None:
        return rows
    struct = pa.StructArray.from_arrays([column.combine_chunks() for column in rows.columns], names=rows.schema.names)
    renamed_struct = _Renaming(leave_out).struct(struct, json.loads(stored_ids), now, "")
    return pa.table(renamed_struct.flatten(), names=[field.name for field in renamed_struct.type])


@dataclass(frozen=True)
class _Renaming:
    leave_out: bool

    def struct(self, array: pa.StructArray, ids: Ids, now: Sequence[Column], path: str) -> pa.StructArray:
        by_id = {column.id: column for column in now}
        columns = {field.name: by_id.get(ids[field.name][0]) for field in array.type if field.name in ids}
        taken = {column.name for column in columns.values() if column}
        names, parts = list[str](), list[pa.Array]()
        for field, values in zip(array.type, array.flatten(), strict=True):
            column = columns.get(field.name)
            if not column and (field.name in columns or field.name in taken):
                self._leave_out(values, path + field.name, "was dropped from" if field.name in columns else "is not in")
                continue
            names.append(column.name if column else field.name)
            if column:
                values = self._rename_nested(values, ids[field.name][1], _struct_fields(column), f"{path}{field.name}.")
            parts.append(values)
        if not parts:
            return pa.array([{} if is_valid else None for is_valid in array.is_valid().to_pylist()], pa.struct([]))
        return pa.StructArray.from_arrays(parts, names=names, mask=array.is_null() if array.null_count else None)

    def _leave_out(self, values: pa.Array, path: str, reason: str) -> None:
        if not self.leave_out and values.null_count < len(values):
            raise ColumnError(
                f"Column {path!r} {reason} the table, but the row has a value for it. Leave the value out.", column=path
            )

    def _rename_nested(self, array: pa.Array, ids: Ids, now: Sequence[Column], path: str) -> pa.Array:
        nulls = array.is_null() if array.null_count else None
        if not ids:
            return array
        if pa.types.is_struct(array.type):
            return self.struct(array, ids, now, path)
        if is_list(array.type):
            items = self._rename_nested(array.flatten(), ids, now, path)
            return pa.LargeListArray.from_arrays(get_list_offsets(array, pa.int64()), items, mask=nulls)
        if pa.types.is_map(array.type):
            entries = as_list(array).flatten()
            items = self._rename_nested(entries.field(1), ids, now, path)
            return pa.MapArray.from_arrays(get_list_offsets(array, pa.int32()), entries.field(0), items, mask=nulls)
        return array


__all__ = ["Ids", "ids_of", "labelled", "rename_columns"]
