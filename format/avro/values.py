"""Arrow arrays from raw numbers, checked against their type. The readers of flat and of nested Avro fields share it.

This module does not know records. Callers make sure that positions are inside the buffer.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from hoodoo.format.buffers import words_at

MARGIN = 16
"""The bytes that must be readable before and after the values, so that a word can be read around every position."""


class Damaged(Exception):
    """The reason why a field cannot be read. It becomes CorruptTable where the name of the field is known."""


def demand(holds: np.ndarray, otherwise: str) -> None:
    """Raise Damaged unless all of `holds` (bool[n]) are true."""
    if not holds.all():
        raise Damaged(otherwise)


def dense_positions(present: np.ndarray) -> pa.Array:
    """Return for each row the position of its value among the present values, or null for a row without a value.

    Values of the present rows alone, taken at these positions, become one value or null for each row.
    present: bool[n], which rows have a value.
    """
    return pa.array(np.cumsum(present) - 1, mask=~present)


def fixed_width(kind: pa.DataType, values: np.ndarray) -> pa.Array:
    """Return an array without nulls over the bytes of `values`.

    Raises pa.ArrowInvalid for a time or decimal that is outside the range of its type.
    """
    array = pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
    if pa.types.is_time(kind) or pa.types.is_decimal(kind):
        array.validate(full=True)
    return array


def decimals(kind: pa.DataType, data: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """Return the Decimal128 values that `data` has as big-endian two's complement of 1 to 16 bytes.

    MARGIN bytes around them must be readable.
    """
    demand((lengths > 0) & (lengths <= 16), "a decimal has 0 bytes, or more than 16")
    return fixed_width(kind, _two_words(data, begins, lengths))


def _two_words(data: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return big-endian two's complement of 1 to 16 bytes as 128-bit little-endian integers (int64[n, 2]).

    Each number is read as the 16 bytes before its end. A shift removes the bytes that do not belong to it and keeps the
    sign.
    """
    words, last = words_at(data, ">i8"), begins + lengths - 8
    low, high = words[last].astype(np.int64), words[last - 8].astype(np.int64)
    foreign_low, foreign_high = 64 - 8 * np.minimum(lengths, 8), 128 - 8 * np.maximum(lengths, 9)
    short = lengths <= 8
    low = (low << foreign_low) >> foreign_low
    high = np.where(short, low >> 63, (high << foreign_high) >> foreign_high)
    return np.stack([low, high], axis=1)


def symbols(names: tuple[str, ...], at: pa.Array) -> pa.Array:
    """Return the name at each index of `at` (int64); null stays null. Raises Damaged for an index that no name has."""
    present = at.drop_null().to_numpy()
    demand((present >= 0) & (present < len(names)), "an enum has a symbol that it does not declare")
    return pa.array(names, pa.string()).take(at)
