"""Validation of the values of a batch.

Arrow accepts some invalid values: invalid UTF-8 from a CSV file or a cast, a time of 24:00, or decimals with too many
digits. Arrow's own validation finds most of them. This module also checks time zone names, and that years are in the
range that Python, Hudi and Spark support.

Hidden values behind a null never count as invalid. If a column seems invalid, its nulls are pushed down to the child
values, and only the remaining values count.

A valid batch is checked once, column by column. Only an invalid batch is searched by row and value.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import ColumnError
from hoodoo.format.nested_arrays import as_list, get_list_offsets
from hoodoo.redact import printable
from hoodoo.writers.batches.arrow_layouts import is_list, is_packed, packed, packed_type, unpacked

_EPOCH = dt.date(1970, 1, 1).toordinal()
FIRST_DAY, LAST_DAY = dt.date.min.toordinal() - _EPOCH, dt.date.max.toordinal() - _EPOCH
"""First and last date that can be stored (in the years 1 and 9999), in days since 1970."""
_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def validate_columns(data: pa.Table, names: Sequence[str], key: Sequence[str]) -> pa.Table:
    """Validate the columns of a batch, value by value.

    Raises ColumnError for an invalid value, with the dotted path of the column, the row and the key of the row. Errors
    in key columns do not contain the key.
    """
    columns = {name: _validate_column(data, name, key) for name in sorted(names, key=lambda name: name not in key)}
    return pa.table([columns[name] for name in names], names=list(names))


def _validate_column(data: pa.Table, name: str, key: Sequence[str]) -> pa.ChunkedArray:
    column = _combine_nested_chunks(data[name])
    if _is_fully_valid(column):
        return column
    cleared = _without_hidden_values(column)
    if cleared is not None and _is_fully_valid(cleared):
        return cleared
    row = _bisect_first_bad(len(column), lambda low, high: _is_visibly_valid(column.slice(low, high - low)))
    path, reason = _locate_invalid_value(column.slice(row, 1), name)
    shown = "" if name in key else f" (key {printable({part: data[part][row].as_py() for part in key})})"
    raise ColumnError(f"Column {path!r}, row {row}{shown}: {reason}", column=path, row=row)


def unsound_rows(column: pa.ChunkedArray, most: int) -> list[int]:
    column = _combine_nested_chunks(column)
    if _is_fully_valid(column):
        return []
    cleared = _without_hidden_values(column)
    if cleared is not None and _is_fully_valid(cleared):
        return []
    return find_bad_positions(len(column), lambda low, high: _is_visibly_valid(column.slice(low, high - low)), most)


def find_bad_positions(count: int, is_good: Callable[[int, int], bool], most: int) -> list[int]:
    """Find all positions of bad values in a range.

    `is_good(begin, end)` returns whether all positions in a range are good.
    """
    bad: list[int] = []
    ranges = [(0, count)]
    while ranges and len(bad) <= most:
        low, high = ranges.pop()
        if low == high or is_good(low, high):
            continue
        if high - low == 1:
            bad.append(low)
            continue
        middle = (low + high) // 2
        ranges += [(middle, high), (low, middle)]
    return bad


def _combine_nested_chunks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # Chunks may share child values, which are then checked only once.
    if column.num_chunks < 2 or not pa.types.is_nested(column.type):
        return column
    try:
        column.validate()
        return pa.chunked_array([column.combine_chunks()])
    except (pa.ArrowException, TypeError):  # invalid, or too large for one array
        return column


# ---------------------------------------------------------------- validity


def _is_fully_valid(column: pa.ChunkedArray | pa.Array) -> bool:
    # Hidden values behind nulls count too.
    try:
        column.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowIndexError):
        return False
    return not _has_times(column.type) or all(_has_valid_times(part) for part in _chunks(column))


def _is_visibly_valid(column: pa.ChunkedArray) -> bool:
    cleared = _without_hidden_values(column)
    return cleared is not None and _is_fully_valid(cleared)


def _chunks(column: pa.ChunkedArray | pa.Array) -> list[pa.Array]:
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]


def _has_times(kind: pa.DataType) -> bool:
    if is_packed(kind):
        return _has_times(packed_type(kind))
    if pa.types.is_nested(kind):
        return any(_has_times(kind.field(n).type) for n in range(kind.num_fields))
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind)


def _has_valid_times(array: pa.Array) -> bool:
    # Dates must be in the years 1 to 9999, and time zones must exist. Hidden values behind nulls count too.
    kind = array.type
    if not _has_times(kind):
        return True
    if is_packed(kind):
        return _has_valid_times(packed(array))
    if pa.types.is_nested(kind):
        return all(map(_has_valid_times, _children_with_hidden(array)))
    per_day = 1 if pa.types.is_date32(kind) else _PER_DAY["ms" if pa.types.is_date64(kind) else kind.unit]
    bounds = pc.min_max(array.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64()))
    smallest, largest = bounds["min"].as_py(), bounds["max"].as_py()
    if smallest is None:
        return True
    zone_exists = not pa.types.is_timestamp(kind) or _is_valid_zone(kind.tz)
    return zone_exists and FIRST_DAY * per_day <= smallest and largest < (LAST_DAY + 1) * per_day


def _is_valid_zone(name: str | None) -> bool:
    # Only points in time are stored, so an unknown zone does no harm if no time zone database is installed.
    return name in (None, "UTC") or _is_known(str(name)) or not _is_known("Europe/Paris")


@lru_cache(maxsize=256)
def _is_known(zone: str) -> bool:
    try:
        pc.local_timestamp(pa.array([0], pa.timestamp("us", zone)))
    except pa.ArrowInvalid:
        return False
    return True


# ---------------------------------------------------------------- removal of values below nulls


def _without_hidden_values(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    try:
        column.validate()
        parts = [_remove_hidden_values(part) for part in column.chunks]
    except (pa.ArrowInvalid, pa.ArrowIndexError):
        return None
    return pa.chunked_array(parts, parts[0].type) if parts else column


def _remove_hidden_values(array: pa.Array) -> pa.Array:
    # Raises pa.ArrowInvalid for offsets or indices outside of their array.
    kind = array.type
    if is_packed(kind):
        return _remove_hidden_values(unpacked(array))
    if pa.types.is_struct(kind):
        parts = [_remove_hidden_values(child) for child in array.flatten()]
        fields = [pa.field(kind.field(n).name, part.type) for n, part in enumerate(parts)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null())
    if pa.types.is_map(kind):
        keys, items = (_remove_hidden_values(child) for _, child in _visible_children(array))
        return pa.MapArray.from_arrays(get_list_offsets(array, pa.int32()), keys, items, mask=array.is_null())
    if is_list(kind):
        [(_, items)] = _visible_children(array)
        large = pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind)
        array_class = pa.LargeListArray if large else pa.ListArray
        return array_class.from_arrays(
            get_list_offsets(array, pa.int64() if large else pa.int32()),
            _remove_hidden_values(items),
            mask=array.is_null(),
        )
    _require_ascending_offsets(array)
    return array


def _visible_children(array: pa.Array) -> list[tuple[str, pa.Array]]:
    # The names are the parts of dotted column paths in error messages.
    kind = array.type
    if pa.types.is_struct(kind):
        return [(kind.field(n).name, child) for n, child in enumerate(array.flatten())]
    _require_ascending_offsets(array)
    if pa.types.is_map(kind):
        entries = as_list(array).flatten()
        return [("key", entries.field(0)), ("value", entries.field(1))]
    return [("item", array.flatten())] if is_list(kind) else []


def _children_with_hidden(array: pa.Array) -> list[pa.Array]:
    # Nothing is copied. The arrays include hidden values behind nulls, and values outside of a slice.
    kind = array.type
    if pa.types.is_map(kind):
        return [array.keys, array.items]
    if pa.types.is_struct(kind):
        return [array.field(n) for n in range(kind.num_fields)]
    return [array.values] if is_list(kind) else []  # unsupported types raise an error elsewhere


def _require_ascending_offsets(array: pa.Array) -> None:
    # Arrow copies arrays without checking them.
    kind = array.type
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) or pa.types.is_large_list(kind)
    narrow = pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_list(kind) or pa.types.is_map(kind)
    buffer = array.buffers()[1] if len(array) and (wide or narrow) else None
    if buffer is None:
        return
    stored = np.frombuffer(buffer, np.int64 if wide else np.int32)
    offsets = stored[array.offset : array.offset + len(array) + 1].astype(np.int64)
    if offsets[0] < 0 or (np.diff(offsets) < 0).any():
        raise pa.ArrowInvalid("an array offset is smaller than the offset before it")


def plain_row(column: pa.ChunkedArray, row: int) -> pa.Array:
    [piece] = [chunk for chunk in column.slice(row, 1).chunks if len(chunk)]
    piece.validate()
    value = _remove_hidden_values(piece)
    plain = _without_views(value.type)
    return (value.cast(plain) if plain != value.type else value).take(pa.array([0]))


def _without_views(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([kind.field(n).with_type(_without_views(kind.field(n).type)) for n in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_without_views(kind.key_type), _without_views(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_without_views(kind.value_type))
    return pa.large_list(_without_views(kind.value_type)) if pa.types.is_large_list(kind) else kind


# ---------------------------------------------------------------- search for the invalid value


def _bisect_first_bad(count: int, is_sound: Callable[[int, int], bool]) -> int:
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        if is_sound(low, middle):
            low = middle
        else:
            high = middle
    return low


def _locate_invalid_value(row: pa.ChunkedArray, path: str) -> tuple[str, str]:
    cleared = _without_hidden_values(row)
    if cleared is None:
        return path, "its Arrow structure is invalid: offsets, indices or buffers are inconsistent. Recreate the array."
    return _innermost(cleared.chunk(0), path)


def _innermost(array: pa.Array, path: str) -> tuple[str, str]:
    for name, child in _visible_children(array) if pa.types.is_nested(array.type) else []:
        if not _is_fully_valid(child):
            return _innermost(child, f"{path}.{name}")
    index = _bisect_first_bad(len(array), lambda low, high: _is_fully_valid(array.slice(low, high - low)))
    return path, _describe_invalid_value(array.slice(index, 1))


def _describe_invalid_value(value: pa.Array) -> str:
    kind = value.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        shown = printable(value.cast(pa.binary())[0].as_py())
        return f"{shown} is not valid UTF-8. Decode it with its own encoding first, or store it as binary."
    try:
        value.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowIndexError) as problem:
        return f"the value is not a valid {kind}: {str(problem).rstrip('.')}. Correct it, or write null."
    if pa.types.is_timestamp(kind) and not _is_valid_zone(kind.tz):
        return f"its type {kind} has an unknown time zone. Use a name from the IANA database, or UTC."
    if _has_times(kind):
        count = value.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())[0].as_py()
        return (
            f"{count} as {kind} since 1970 is outside of the years 1 to 9999. Write null, or 9999-12-31 for an "
            "open end."
        )
    return f"the value is not a valid {kind}. Correct it, or write null."


__all__ = ["find_bad_positions", "plain_row", "validate_columns", "unsound_rows"]
