"""Creation of Arrow arrays from Avro values.

The decoders of flat and nested fields use these functions. Callers ensure that positions are inside the buffer.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from hoodoo.format.buffers import view_overlapping_values

MARGIN = 16
"""Number of padding bytes before and after the values."""


class UnreadableField(Exception):
    """Internal exception for an unreadable field of an Avro record.

    A caller that has the name of the field converts it to CorruptTable.
    """


def require_all_true(holds: np.ndarray, otherwise: str) -> None:
    if not holds.all():
        raise UnreadableField(otherwise)


def number_present_rows(present: np.ndarray) -> pa.Array:
    """Number the rows that have a value.

    Rows without a value get null. `take` with these indices converts an array of the present values to one value or
    null per row. `present` (bool[n]) marks the rows with a value.
    """
    return pa.array(np.cumsum(present) - 1, mask=~present)


def create_fixed_width_array(kind: pa.DataType, values: np.ndarray) -> pa.Array:
    """Create an Arrow array of fixed-width values.

    Raises pa.ArrowInvalid for a time or decimal that is outside the range of its type.
    """
    array = pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
    if pa.types.is_time(kind) or pa.types.is_decimal(kind):
        array.validate(full=True)
    return array


def decode_decimals(kind: pa.DataType, data: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """Decode big-endian decimals.

    They have 1 to 16 bytes in two's complement. MARGIN bytes before and after them must be readable.
    """
    require_all_true((lengths > 0) & (lengths <= 16), "a decimal has 0 bytes, or more than 16")
    return create_fixed_width_array(kind, _decode_int128(data, begins, lengths))


def _decode_int128(data: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    # Each number is read as the 16 bytes before its end. A shift removes the bytes before the number and keeps the
    # sign.
    words, last = view_overlapping_values(data, ">i8"), begins + lengths - 8
    low, high = words[last].astype(np.int64), words[last - 8].astype(np.int64)
    excess_low, excess_high = 64 - 8 * np.minimum(lengths, 8), 128 - 8 * np.maximum(lengths, 9)
    short = lengths <= 8
    low = (low << excess_low) >> excess_low
    high = np.where(short, low >> 63, (high << excess_high) >> excess_high)
    return np.stack([low, high], axis=1)


def symbols(names: tuple[str, ...], at: pa.Array) -> pa.Array:
    present = at.drop_null().to_numpy()
    require_all_true((present >= 0) & (present < len(names)), "an enum index has no symbol")
    return pa.array(names, pa.string()).take(at)
