"""Alignment of a batch with the table's columns.

The functions fill in columns that a batch lacks, and convert a batch that was prepared before a column change. Columns
are matched by column id, as in data files. cast.py casts the values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa

from hoodoo.errors import ColumnError, UnsupportedTable
from hoodoo.format.convert import is_automatic_widening
from hoodoo.format.names import RECORD_KEY
from hoodoo.format.nested_arrays import as_list, get_list_offsets
from hoodoo.format.parquet import statistics
from hoodoo.format.resolve import map_columns
from hoodoo.format.table_schema import Column, TableSchema
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.arrow_layouts import is_list
from hoodoo.writers.batches.generated_columns import computable_partition_columns

FAIL, NULL, KEEP = "fail", "null", "keep"
"""Values of `missing=`: what to do about a missing column without a default.

KEEP keeps the stored values of the column, and adds nothing to the batch.
"""


def fill_missing_columns(data: pa.Table, config: TableConfig, missing: str) -> pa.Table:
    """Fill in missing columns with their defaults.

    Does not add partition columns that are generated later. Raises ColumnError for a missing column that is required.
    """
    names = set(data.schema.names)
    generated = computable_partition_columns(names, config)
    for column in config.columns.columns:
        if column.name not in names and column.name not in generated:
            require_optional_column(column, column.name, config, missing)
            data = data.append_column(pa.field(column.name, column.arrow), _repeat_default(column, len(data)))
    return data


def fill_missing_fields(data: pa.Table, config: TableConfig, missing: str) -> pa.Table:
    """Fill in missing struct fields with null.

    Raises ColumnError, with the path of the field, for a missing field that is required.
    """
    for index, field in enumerate(data.schema):
        column = config.columns.by_name.get(field.name)
        if column is not None and _lacks_struct_field(field.type, column):
            chunks = [
                _add_struct_fields(chunk, column, field.name, config, missing) for chunk in data.column(index).chunks
            ]
            data = data.set_column(index, field.name, pa.chunked_array(chunks or [pa.nulls(0, column.arrow)]))
    return data


def require_optional_column(
    column: Column, path: str, config: TableConfig, missing: str, defaults: bool = True
) -> None:
    """Check that a column is optional in a batch.

    Raises ColumnError if it may not. `defaults` is True if the default value of the column may be used.
    """
    role = "key" if path in config.key else "partition" if path in config.partition_by else "table"
    generated = [name for name, transform in config.transforms.items() if transform.column == path]
    fixed = role != "table" or path in config.order_by or bool(generated)
    if defaults and column.has_default or missing == NULL and not fixed and not column.required:
        return
    description = (
        f"the source of partition column {generated[0]!r}" if generated and role == "table" else f"a {role} column"
    )
    remedy = _missing_column_advice(column, path, fixed, missing)
    if transform := config.transforms.get(path):
        remedy = f"Add it, or its source column {transform.column!r}."
    raise ColumnError(f"Column {path!r} ({description}) is not in the batch. {remedy}", column=path)


def _missing_column_advice(column: Column, path: str, fixed: bool, missing: str) -> str:
    if missing == NULL and column.required:
        return (
            "The column is not nullable. Add it to the batch. Or call alter.make_nullable(), so that the batch "
            "overwrites stored values with null."
        )
    if fixed or missing == NULL:
        return "Add it. This column is never filled with null automatically."
    if path != column.name:
        return 'Add it. missing="null" overwrites stored values of this field with null.'
    return (
        'Add it. Or pass columns="given" in an upsert to keep stored values. missing="null" overwrites stored '
        "values with null."
    )


def _repeat_default(column: Column, rows: int) -> pa.Array:
    value = default_value_of(column)
    return pa.nulls(rows, column.arrow) if value is None else pa.repeat(pa.scalar(value, column.arrow), rows)


def default_value_of(column: Column) -> Any:
    return statistics.bound_from_json(column.default, column.arrow) if column.has_default else None


def _lacks_struct_field(kind: pa.DataType, column: Column) -> bool:
    if column.kind == "struct" and pa.types.is_struct(kind):
        types = {field.name: field.type for field in kind}
        if len(types) < kind.num_fields:
            return False  # the cast raises an error for a duplicate field
        return any(
            child.name not in types or _lacks_struct_field(types[child.name], child) for child in column.children
        )
    if column.kind == "list" and is_list(kind):
        return _lacks_struct_field(kind.value_type, column.children[0])
    return column.kind == "map" and pa.types.is_map(kind) and _lacks_struct_field(kind.item_type, column.children[1])


def _add_struct_fields(array: pa.Array, column: Column, path: str, config: TableConfig, missing: str) -> pa.Array:
    if not _lacks_struct_field(array.type, column):
        return array
    nulls = array.is_null() if array.null_count else None
    if column.kind == "struct":
        parts = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
        for child in column.children:
            if child.name in parts:
                parts[child.name] = _add_struct_fields(
                    parts[child.name], child, f"{path}.{child.name}", config, missing
                )
            else:
                require_optional_column(child, f"{path}.{child.name}", config, missing)
                parts[child.name] = pa.nulls(len(array), child.arrow)
        return pa.StructArray.from_arrays(list(parts.values()), names=list(parts), mask=nulls)
    if column.kind == "list":
        items = _add_struct_fields(array.flatten(), column.children[0], f"{path}[]", config, missing)
        return pa.LargeListArray.from_arrays(get_list_offsets(array, pa.int64()), items, mask=nulls)
    entries = as_list(array).flatten()
    items = _add_struct_fields(entries.field(1), column.children[1], f"{path}{{}}", config, missing)
    return pa.MapArray.from_arrays(get_list_offsets(array, pa.int32()), entries.field(0), items, mask=nulls)


def align_columns(
    rows: pa.Table, was: TableSchema, settled: int, absent: Collection[int], now: TableSchema
) -> pa.Table:
    """Align the columns of rows with the table's columns.

    Renamed columns get the new name, values of columns with a wider type are converted, and added columns get their
    default.

    Args:
        rows: The rows: the record key, then the columns of `was`.
        was: The columns when the batch was prepared.
        settled: The largest column id that the table had assigned at that time. Columns and fields with a larger id are
            new in the batch, and match by name.
        absent: The ids of columns that the batch lacked, and that were filled in.
        now: The current columns of the table.

    Raises:
        ColumnError: The batch has values for a dropped column, or values that cannot be converted to a new type.
    """
    if was.columns == now.columns:
        return rows
    aligned = _align_new_ids(was, settled, now)
    for column in aligned.columns:
        if column.id in absent:
            continue
        for chunk in rows[column.name].chunks:
            _require_no_dropped_values(chunk, column, now, column.name)
    try:
        converted = map_columns(aligned, now).to_requested_columns(rows, list(now.arrow))
    except UnsupportedTable as problem:
        raise ColumnError(
            "The type of a column changed while the batch was written, and the batch cannot be converted. "
            f"Nothing was written. {problem.message}",
            **problem.details,
        ) from None
    known_ids = aligned.by_id
    for index, column in enumerate(now.columns):
        if column.id not in known_ids and default_value_of(column) is not None:
            converted = converted.set_column(index, column.name, _repeat_default(column, len(converted)))
    return converted.add_column(0, RECORD_KEY, rows[RECORD_KEY])


def _align_new_ids(was: TableSchema, settled: int, now: TableSchema) -> TableSchema:
    # Another writer may have added the same columns. A new column gets the id of the table's column with its name, or
    # an unused id if there is no such column.
    unused = count(max(was.last, now.last) + 1)

    def aligned(column: Column, candidates: Iterable[Column]) -> Column:
        is_new = column.id > settled
        match = next(
            (
                candidate
                for candidate in candidates
                if (candidate.name == column.name if is_new else candidate.id == column.id)
            ),
            None,
        )
        column_id = column.id if not is_new else match.id if match else next(unused)
        if is_new and match and not column.children and not _is_convertible(column.arrow, match.arrow):
            raise ColumnError(
                f"Column {column.name!r} is new in the batch with type {column.arrow}, but another writer added it "
                f"with type {match.arrow}. Nothing was written. Convert the column to this type, or rename it.",
                column=column.name,
            )
        match_children = match.children if match else ()
        return replace(
            column, id=column_id, children=tuple(aligned(child, match_children) for child in column.children)
        )

    return replace(was, columns=tuple(aligned(column, now.columns) for column in was.columns))


def _is_convertible(kind: pa.DataType, now: pa.DataType) -> bool:
    return kind == now or is_automatic_widening(kind, now)


def _require_no_dropped_values(array: pa.Array, column: Column, now: TableSchema, path: str) -> None:
    if column.id not in now.by_id:
        if array.null_count < len(array):
            raise ColumnError(
                f"Column {path!r} was dropped from the table while the batch was written, but the batch has "
                "values for it. Nothing was written. Leave the column out.",
                column=path,
            )
    elif column.kind == "struct":
        for child, values in zip(column.children, array.flatten(), strict=True):
            _require_no_dropped_values(values, child, now, f"{path}.{child.name}")
    elif column.kind == "list":
        _require_no_dropped_values(array.flatten(), column.children[0], now, f"{path}[]")
    elif column.kind == "map":
        _require_no_dropped_values(as_list(array).flatten().field(1), column.children[1], now, f"{path}{{}}")


__all__ = [
    "FAIL",
    "KEEP",
    "NULL",
    "default_value_of",
    "fill_missing_columns",
    "align_columns",
    "fill_missing_fields",
    "require_optional_column",
]
