"""Checks of JSON text before it is parsed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

DEPTH_MAX = 64
"""Maximum nesting depth of JSON values, because Arrow's reader has no limit."""
_AT_ONCE = 4 << 20
_INFINITY = re.compile(rb"Inf")
EXACT_BELOW = 2.0**53
"""Integers below this value are exactly representable as doubles."""
_OPEN, _CLOSE, _QUOTE, _ESCAPE = (ord("{"), ord("[")), (ord("}"), ord("]")), ord('"'), ord("\\")


def count_objects(text: pa.Buffer) -> int:
    """Count the objects in a JSON lines file.

    Returns -1 if a line is not an object. If the result equals the number of parsed rows, each line is one object. The
    line count alone is not enough, because an object may span two lines, and a line may contain two objects.
    """
    data = np.frombuffer(text, np.uint8)
    starts, last = _line_bounds(data)
    last -= data[last] == ord("\r")
    sound = (data[starts] == ord("{")) & (data[last] == ord("}")) & (last > starts)
    return len(starts) if sound.all() else -1


def _line_bounds(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    ends = np.append(np.flatnonzero(data == ord("\n")), data.size)
    starts = np.append(0, ends[:-1] + 1)
    is_not_empty = ends > starts
    return starts[is_not_empty], ends[is_not_empty] - 1


def require_shallow_values(text: pa.Buffer) -> None:
    """Check that JSON values have at most the allowed nesting.

    If each line is an object, only lines with more than DEPTH_MAX opening brackets are checked in detail.
    """
    data = np.frombuffer(text, np.uint8)
    brackets = np.count_nonzero(data == _OPEN[0]) + np.count_nonzero(data == _OPEN[1])
    if brackets <= DEPTH_MAX:
        return
    lines = count_objects(text)
    if lines >= 0:
        if brackets - lines < DEPTH_MAX:  # each line has at least one bracket, so no line can be too deep
            return
        opened = np.flatnonzero((data == _OPEN[0]) | (data == _OPEN[1]))
        starts, last = _line_bounds(data)
        counts = np.searchsorted(opened, last, "right") - np.searchsorted(opened, starts)
        many = np.flatnonzero(counts > DEPTH_MAX)
        if not len(many):
            return
        data = np.concatenate([data[starts[line] : last[line] + 1] for line in many.tolist()])
    if _max_nesting_depth(data) > DEPTH_MAX:
        raise pa.ArrowInvalid(f"the JSON has more than {DEPTH_MAX} nested levels")


def _max_nesting_depth(data: np.ndarray) -> int:
    deepest = depth = 0
    inside, escaping = 0, False
    for start in range(0, len(data), _AT_ONCE):
        block = data[start : start + _AT_ONCE]
        quotes = block == _QUOTE
        escapes = block == _ESCAPE
        if escaping or escapes.any():
            indexes = np.arange(len(block))
            # number of consecutive backslashes up to each byte
            run = indexes - np.maximum.accumulate(np.where(escapes, -1, indexes))
            if escaping:
                first = len(block) if escapes.all() else int(np.argmin(escapes))
                run[:first] = np.arange(1, first + 1) + 1
            before = np.concatenate([[int(escaping)], run[:-1]])
            quotes &= before % 2 == 0
            escaping = bool(run[-1] % 2)
        within = (np.cumsum(quotes, dtype=np.int32) + inside) & 1
        inside = int(within[-1])
        step = ((block == _OPEN[0]) | (block == _OPEN[1])).astype(np.int8)
        step -= (block == _CLOSE[0]) | (block == _CLOSE[1])
        step[within.astype(bool)] = 0
        levels = depth + np.cumsum(step, dtype=np.int32)
        deepest, depth = max(deepest, int(levels.max())), int(levels[-1])
    return deepest


def require_finite_numbers(rows: pa.Table, text: pa.Buffer) -> None:
    """Check that JSON numbers are not too large.

    The word Infinity is allowed, because many programs write it. `rows` are the rows that were read from `text`.
    """
    for field, values in zip(rows.schema, rows.columns, strict=True):
        if not pa.types.is_floating(field.type) or not pc.any(pc.is_inf(values)).as_py():
            continue
        infinite = np.flatnonzero(pc.is_inf(values).fill_null(False).to_numpy())
        if _INFINITY.search(text) is not None and count_objects(text) == len(rows):
            starts, last = _line_bounds(np.frombuffer(text, np.uint8))
            infinite = np.array(
                [
                    row
                    for row in infinite.tolist()
                    if _is_written_in_digits(text[starts[row] : last[row] + 1], field.name)
                ]
            )
        elif _INFINITY.search(text) is not None:
            continue
        if len(infinite):
            raise pa.ArrowInvalid(f"a number is too large for column {field.name!r} in row {infinite[0]}")


def _is_written_in_digits(line: bytes, name: str) -> bool:
    value = json.loads(bytes(line), parse_constant=str, parse_int=float).get(name)
    return isinstance(value, float)


class _Integer(str):
    """Integer of a JSON file with all its digits."""


def require_exact_integers(rows: pa.Table, text: pa.Buffer, columns: pa.Schema) -> None:
    """Check that JSON integers lose no digits.

    Arrow infers the type of a new column, so the user has not chosen to round its values to doubles.

    Args:
        rows: The rows that were read from `text`.
        text: Text with one JSON object per line. Other text is not checked.
        columns: The columns of the table.

    Raises:
        ArrowInvalid: An integer would be rounded, at any level of a column.
    """
    for field, values in zip(rows.schema, rows.columns, strict=True):
        if field.name in columns.names or not (large_rows := list(_rows_with_large_doubles(values))):
            continue
        if count_objects(text) != len(rows):
            continue
        starts, last = _line_bounds(np.frombuffer(text, np.uint8))
        for row in np.unique(np.concatenate(large_rows)).tolist():
            line = json.loads(bytes(text[starts[row] : last[row] + 1]), parse_int=_Integer)
            for number in _integers_in_doubles(line.get(field.name), field.type):
                if loses_digits(number):
                    raise pa.ArrowInvalid(
                        f"the integer {number} cannot be stored exactly as a double in column {field.name!r}, "
                        "which is not in the table. Add the column with a suitable type, such as "
                        "decimal(38,0) or string"
                    )


def loses_digits(integer: str) -> bool:
    value = float(integer)
    return Decimal(integer) != (Decimal(value) if abs(value) < 1e16 else Decimal(repr(value)))


def _rows_with_large_doubles(values: pa.ChunkedArray) -> Iterator[np.ndarray]:
    before = 0
    for chunk in values.chunks:
        yield from (before + rows for rows in _find_large_doubles(chunk, np.arange(len(chunk))))
        before += len(chunk)


def _find_large_doubles(values: pa.Array, rows: np.ndarray) -> Iterator[np.ndarray]:
    # `rows` contains the row number of each value, which differs from its position inside lists.
    kind = values.type
    if pa.types.is_floating(kind):
        large = pc.greater_equal(pc.abs(values), EXACT_BELOW).fill_null(False).to_numpy(zero_copy_only=False)
        if large.any():
            yield rows[large]
    elif pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            yield from _find_large_doubles(values.field(index), rows)
    elif pa.types.is_list(kind):
        parents = pc.list_parent_indices(values).to_numpy()
        yield from _find_large_doubles(values.flatten(), rows[parents])


def _integers_in_doubles(value: Any, kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_floating(kind) and isinstance(value, _Integer):
        yield value
    elif pa.types.is_struct(kind) and isinstance(value, dict):
        for field in kind:
            yield from _integers_in_doubles(value.get(field.name), field.type)
    elif pa.types.is_list(kind) and isinstance(value, list):
        for element in value:
            yield from _integers_in_doubles(element, kind.value_type)


__all__ = [
    "DEPTH_MAX",
    "EXACT_BELOW",
    "loses_digits",
    "count_objects",
    "require_exact_integers",
    "require_finite_numbers",
    "require_shallow_values",
]
