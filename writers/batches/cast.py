"""Exact casts of batch columns.

A cast never rounds or guesses. A value that would change raises an error with its column and row. Values inside lists,
maps and structs follow the same rule. The result has Arrow's plain layout (`arrow_layouts`). The input must be valid
(`value_validation`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from hoodoo.errors import ColumnError
from hoodoo.format.known_types import remove_unknown_parts
from hoodoo.format.nested_arrays import as_list, get_list_offsets
from hoodoo.format.numbers import is_number, same
from hoodoo.redact import printable
from hoodoo.writers.batches.arrow_layouts import is_list, is_packed, unpacked, uuid_texts
from hoodoo.writers.batches.value_validation import find_bad_positions

_NUMBER, _TEXT, _BYTES, _TRUTH, _DATE, _CLOCK, _MOMENT, _LIST, _MAP, _STRUCT = range(10)
_FAMILIES: tuple[tuple[int, Callable[[pa.DataType], bool]], ...] = (
    (_NUMBER, is_number),
    (_TEXT, lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)),
    (_BYTES, lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind)),
    (_BYTES, lambda kind: pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind)),
    (_TRUTH, pa.types.is_boolean),
    (_DATE, pa.types.is_date),
    (_CLOCK, pa.types.is_time),
    (_MOMENT, pa.types.is_timestamp),
    (_LIST, is_list),
    (_MAP, pa.types.is_map),
    (_STRUCT, pa.types.is_struct),
)


class _IncompatibleType(Exception):
    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path, self.message = path, message


class _InexactValue(Exception):
    def __init__(self, path: str, values: pa.Array, target: pa.DataType) -> None:
        super().__init__(path, target)
        self.path, self.values, self.target = path, values, target


def cast_column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Cast a batch column to the table's type.

    Raises ColumnError with the dotted path of the column, and with the row if a value cannot be converted exactly.
    """
    if column.type == field.type:
        return column
    if not len(column):  # an empty pandas column may have any type
        return pa.chunked_array([], field.type)
    try:
        return _cast(column, field)
    except _IncompatibleType as problem:
        raise ColumnError(problem.message, column=problem.path) from None
    except _InexactValue:
        row = _bisect_first_inexact(len(column), lambda low, high: _cast(column.slice(low, high - low), field))
    try:
        _cast(column.slice(row, 1), field)
    except _InexactValue as problem:
        raise ColumnError(
            f"Column {problem.path!r}, row {row}: {_format_inexact_value(problem)} cannot be converted exactly from "
            f"{problem.values.type} to {problem.target}. Cast it in your code, or write null.",
            column=problem.path,
            row=row,
        ) from None
    raise AssertionError(
        f"Row {row} of column {field.name!r} can be cast alone, but not with other rows. This is a bug in hoodoo."
    )


def require_fields_once(kind: pa.DataType, path: str) -> None:
    if pa.types.is_struct(kind):
        if len({field.name for field in kind}) < kind.num_fields:
            raise ColumnError(_duplicate_field(path, kind), column=path)
        for field in kind:
            require_fields_once(field.type, f"{path}.{field.name}")
    elif is_list(kind):
        require_fields_once(kind.value_type, f"{path}.item")
    elif pa.types.is_map(kind):
        require_fields_once(kind.item_type, f"{path}.value")


def find_uncastable_rows(column: pa.ChunkedArray, field: pa.Field, most: int) -> list[int]:
    """Find the rows that cannot be cast.

    The search ends after more than `most` rows. The values of `column` must be valid. Raises ColumnError if the type
    itself is incompatible.
    """
    if column.type == field.type or not len(column):
        return []

    def fits(low: int, high: int) -> bool:
        try:
            _cast(column.slice(low, high - low), field)
        except _InexactValue:
            return False
        return True

    try:
        return find_bad_positions(len(column), fits, most)
    except _IncompatibleType as problem:
        raise ColumnError(problem.message, column=problem.path) from None


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    return pa.chunked_array([part for chunk in column.chunks for part in _cast_chunk(chunk, field)], field.type)


def _cast_chunk(array: pa.Array, field: pa.Field) -> list[pa.Array]:
    # An array whose text exceeds the 2 GiB of a plain Arrow array is split.
    try:
        return [_cast_array(array, field.type, field.name)]
    except pa.ArrowInvalid:  # for valid values, only the size can be the reason
        if len(array) < 2:
            raise ColumnError(
                f"Column {field.name!r} has a value of more than 2 GiB. Store the value in a separate file, "
                "and the file name in the table.",
                column=field.name,
            ) from None
    half = len(array) // 2
    return _cast_chunk(array.slice(0, half), field) + _cast_chunk(array.slice(half), field)


def _bisect_first_inexact(count: int, cast_range: Callable[[int, int], object]) -> int:
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        try:
            cast_range(low, middle)
            low = middle
        except _InexactValue:
            high = middle
    return low


# ---------------------------------------------------------------- one array


def _cast_array(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    # Raises pa.ArrowInvalid if the result exceeds the size of an Arrow array.
    kind = array.type
    if kind == target:
        return array
    if pa.types.is_null(kind):
        return pa.nulls(len(array), target)
    if isinstance(kind, pa.UuidType) and pa.types.is_string(target):
        return uuid_texts(array)
    if is_packed(kind):
        return _cast_array(unpacked(array), target, path)
    family = _family(kind)
    zones = family == _MOMENT and pa.types.is_timestamp(target) and bool(kind.tz) != bool(target.tz)
    if zones or family < 0 or family != _family(target):
        raise _IncompatibleType(
            path, f"Column {path!r} has the wrong type: expected {target}, got {kind}. {_cast_advice(kind, target)}"
        )
    if family == _LIST:
        items = _cast_array(array.flatten(), target.value_type, f"{path}.item")
        return pa.ListArray.from_arrays(get_list_offsets(array, pa.int32()), items, type=target, mask=_nulls(array))
    if family == _MAP:
        return _fit_map(array, target, path)
    if family == _STRUCT:
        return _fit_struct(array, target, path)
    return _fit_text(array, target) if family in (_TEXT, _BYTES) else _fit_scalars(array, target, path)


def _fit_struct(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    parts = dict(zip((field.name for field in array.type), array.flatten(), strict=False))
    field_names = [field.name for field in target]
    if len(parts) != array.type.num_fields:
        raise _IncompatibleType(path, _duplicate_field(path, array.type))
    if missing := [name for name in field_names if name not in parts]:
        raise _IncompatibleType(
            path, f"Column {path!r} lacks the field {missing[0]!r} of the table's type {target}. Add the field."
        )
    # an extra field of only nulls and empty lists is accepted, because JSON produces such fields
    if extra := [
        name for name in parts if name not in set(field_names) and remove_unknown_parts(parts[name].type) is not None
    ]:
        raise _IncompatibleType(
            path,
            f"Column {path!r} has the field {extra[0]!r}, which is not in the table's type {target}. Drop the field.",
        )
    fitted = [_cast_array(parts[field.name], field.type, f"{path}.{field.name}") for field in target]
    return pa.StructArray.from_arrays(fitted, fields=list(target), mask=_nulls(array))


def _duplicate_field(path: str, kind: pa.DataType) -> str:
    return f"Column {path!r} has a field more than once: {kind}. Use each field name once."


def _fit_map(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    entries = as_list(array).flatten()
    keys = _cast_array(entries.field(0), target.key_type, f"{path}.key")
    items = _cast_array(entries.field(1), target.item_type, f"{path}.value")
    return pa.MapArray.from_arrays(get_list_offsets(array, pa.int32()), keys, items, type=target, mask=_nulls(array))


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _fit_text(array: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        return array.cast(target)
    except pa.ArrowInvalid:  # a slice may end beyond 2 GiB of its parent array; a copy starts at 0
        if not pa.types.is_large_string(array.type) and not pa.types.is_large_binary(array.type):
            raise
        return array.take(pa.array(np.arange(len(array)))).cast(target)


def _fit_scalars(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    try:
        return same(array, target) if is_number(array.type) else array.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise _InexactValue(path, array, target) from None


def _format_inexact_value(problem: _InexactValue) -> str:
    values = problem.values
    index = _bisect_first_inexact(
        len(values), lambda low, high: _fit_scalars(values.slice(low, high - low), problem.target, "")
    )
    try:
        return printable(values[index].as_py())
    except (ValueError, OverflowError, TypeError, ImportError, pa.ArrowException):  # such as a distant year
        return printable(str(values[index]))


def _family(kind: pa.DataType) -> int:
    return next((family for family, test in _FAMILIES if test(kind)), -1)


def _cast_advice(kind: pa.DataType, target: pa.DataType) -> str:
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(target):
        return (
            "Add a time zone to the values, such as value.replace(tzinfo=datetime.timezone.utc) in Python or "
            "pyarrow.compute.assume_timezone(column, 'UTC') in Arrow."
            if target.tz
            else (
                "The values have a time zone, but the column of the table does not. Convert them: "
                "pyarrow.compute.local_timestamp(column)."
            )
        )
    return f"Cast the column to {target}, or read it with this type."


__all__ = ["cast_column", "require_fields_once", "find_uncastable_rows"]
