"""Lossless casts of batch columns to the table's types.

A cast never rounds or guesses. A value that would change raises an error with its column and row. Values inside lists,
maps and structs follow the same rule. The result has Arrow's plain layout (`arrow_layouts`). The input must be valid
(`value_validation`).

"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from hoodoo.errors import ColumnError
from hoodoo.format.known_types import known_type
from hoodoo.format.nested_arrays import as_list, ends
from hoodoo.format.numbers import is_number, same
from hoodoo.redact import printable
from hoodoo.writers.batches.arrow_layouts import is_list, is_packed, unpacked, uuid_texts
from hoodoo.writers.batches.value_validation import every_bad

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


class _UnfitType(Exception):
    """Internal exception for a column or nested field at `path` whose type cannot be cast to the table's type."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(path, what)
        self.path, self.what = path, what


class _UnfitValue(Exception):
    """Internal exception for a column or nested field at `path` with a value that `target` cannot represent exactly."""

    def __init__(self, path: str, values: pa.Array, target: pa.DataType) -> None:
        super().__init__(path, target)
        self.path, self.values, self.target = path, values, target


def cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Cast a batch column to the type of the table's column. The values of `column` must be valid.

    Raises ColumnError with the dotted path of the column, and with the row if a value cannot be converted exactly.

    """
    if column.type == field.type:
        return column
    if not len(column):  # an empty pandas column may have any type
        return pa.chunked_array([], field.type)
    try:
        return _cast(column, field)
    except _UnfitType as problem:
        raise ColumnError(f"Column {problem.path!r} {problem.what}", column=problem.path) from None
    except _UnfitValue:
        row = _first_unfit(len(column), lambda low, high: _cast(column.slice(low, high - low), field))
    try:
        _cast(column.slice(row, 1), field)
    except _UnfitValue as problem:
        raise ColumnError(
            f"Column {problem.path!r}, row {row}: {_shown(problem)} cannot be converted exactly from "
            f"{problem.values.type} to {problem.target}. Cast it in your code, or write null.",
            column=problem.path,
            row=row,
        ) from None
    raise AssertionError(f"row {row} of column {field.name!r} fits alone and not among others")


def require_fields_once(kind: pa.DataType, path: str) -> None:
    """Raise ColumnError if a struct type at any level of a column has two fields with the same name.

    The error is the one that `cast` raises.
    """
    if pa.types.is_struct(kind):
        if len({field.name for field in kind}) < kind.num_fields:
            raise ColumnError(f"Column {path!r} {_twice(kind)}", column=path)
        for field in kind:
            require_fields_once(field.type, f"{path}.{field.name}")
    elif is_list(kind):
        require_fields_once(kind.value_type, f"{path}.item")
    elif pa.types.is_map(kind):
        require_fields_once(kind.item_type, f"{path}.value")


def unfit_rows(column: pa.ChunkedArray, field: pa.Field, most: int) -> list[int]:
    """Return the numbers of the rows whose values cannot be cast exactly to the type of the table's column, in order.

    The search ends after more than `most` rows. The values of `column` must be valid. Raises ColumnError if the type
    itself is incompatible.

    """
    if column.type == field.type or not len(column):
        return []

    def fits(low: int, high: int) -> bool:
        try:
            _cast(column.slice(low, high - low), field)
        except _UnfitValue:
            return False
        return True

    try:
        return every_bad(len(column), fits, most)
    except _UnfitType as problem:
        raise ColumnError(f"Column {problem.path!r} {problem.what}", column=problem.path) from None


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    return pa.chunked_array([part for chunk in column.chunks for part in _parts(chunk, field)], field.type)


def _parts(array: pa.Array, field: pa.Field) -> list[pa.Array]:
    """Cast an array to the field's type. An array whose text exceeds the 2 GiB of a plain Arrow array is split."""
    try:
        return [_fit(array, field.type, field.name)]
    except pa.ArrowInvalid:  # for valid values, only the size can be the reason
        if len(array) < 2:
            raise ColumnError(
                f"Column {field.name!r} has a value of more than 2 GiB. Store the value in a separate file, "
                "and the file name in the table.",
                column=field.name,
            ) from None
    half = len(array) // 2
    return _parts(array.slice(0, half), field) + _parts(array.slice(half), field)


def _first_unfit(count: int, cast_range: Callable[[int, int], object]) -> int:
    """Bisect `count` values for the first one that `cast_range(begin, end)` rejects with _UnfitValue."""
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        try:
            cast_range(low, middle)
            low = middle
        except _UnfitValue:
            high = middle
    return low


# ---------------------------------------------------------------- one array


def _fit(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    """Cast an array, including its nested values, to the table type `target`.

    Raises _UnfitType or _UnfitValue, or pa.ArrowInvalid if the result exceeds the size of an Arrow array.
    """
    kind = array.type
    if kind == target:
        return array
    if pa.types.is_null(kind):
        return pa.nulls(len(array), target)
    if isinstance(kind, pa.UuidType) and pa.types.is_string(target):
        return uuid_texts(array)
    if is_packed(kind):
        return _fit(unpacked(array), target, path)
    family = _family(kind)
    zones = family == _MOMENT and pa.types.is_timestamp(target) and bool(kind.tz) != bool(target.tz)
    if zones or family < 0 or family != _family(target):
        raise _UnfitType(path, f"has the wrong type: expected {target}, got {kind}. {_remedy(kind, target)}")
    if family == _LIST:
        items = _fit(array.flatten(), target.value_type, f"{path}.item")
        return pa.ListArray.from_arrays(ends(array, pa.int32()), items, type=target, mask=_nulls(array))
    if family == _MAP:
        return _fit_map(array, target, path)
    if family == _STRUCT:
        return _fit_struct(array, target, path)
    return _fit_text(array, target) if family in (_TEXT, _BYTES) else _fit_scalars(array, target, path)


def _fit_struct(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    parts = dict(zip((field.name for field in array.type), array.flatten(), strict=False))
    field_names = [field.name for field in target]
    if len(parts) != array.type.num_fields:
        raise _UnfitType(path, _twice(array.type))
    if missing := [name for name in field_names if name not in parts]:
        raise _UnfitType(path, f"lacks the field {missing[0]!r} of the table's type {target}. Add the field.")
    # an extra field of only nulls and empty lists is accepted, because JSON produces such fields
    if extra := [name for name in parts if name not in set(field_names) and known_type(parts[name].type) is not None]:
        raise _UnfitType(
            path, f"has the field {extra[0]!r}, which is not in the table's type {target}. Drop the field."
        )
    fitted = [_fit(parts[field.name], field.type, f"{path}.{field.name}") for field in target]
    return pa.StructArray.from_arrays(fitted, fields=list(target), mask=_nulls(array))


def _twice(kind: pa.DataType) -> str:
    return f"has a field more than once: {kind}. Use each field name once."


def _fit_map(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    entries = as_list(array).flatten()
    keys = _fit(entries.field(0), target.key_type, f"{path}.key")
    items = _fit(entries.field(1), target.item_type, f"{path}.value")
    return pa.MapArray.from_arrays(ends(array, pa.int32()), keys, items, type=target, mask=_nulls(array))


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
        raise _UnfitValue(path, array, target) from None


def _shown(problem: _UnfitValue) -> str:
    """Format the value that cannot be cast, for an error message.

    Values that Python cannot represent, such as distant years, use Arrow's format.
    """
    values = problem.values
    index = _first_unfit(len(values), lambda low, high: _fit_scalars(values.slice(low, high - low), problem.target, ""))
    try:
        return printable(values[index].as_py())
    except (ValueError, OverflowError, TypeError, ImportError, pa.ArrowException):
        return printable(str(values[index]))


def _family(kind: pa.DataType) -> int:
    return next((family for family, test in _FAMILIES if test(kind)), -1)


def _remedy(kind: pa.DataType, target: pa.DataType) -> str:
    """Return the advice in the error for a column of type `kind` that cannot be cast to the table's type `target`."""
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(target):
        return (
            "Add the time zone of the values: pyarrow.compute.assume_timezone(column, 'UTC')."
            if target.tz
            else (
                "The values have a time zone, but the column of the table does not. Convert them: "
                "pyarrow.compute.local_timestamp(column)."
            )
        )
    return f"Cast the column to {target}, or read it with this type."


__all__ = ["cast", "require_fields_once", "unfit_rows"]
