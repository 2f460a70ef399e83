"""Replacement of column values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from hoodoo.format.rows import take_from_column

_INTEGERS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def replace_values(
    column: pa.ChunkedArray, at: np.ndarray, new: pa.ChunkedArray, chosen: np.ndarray | None = None
) -> pa.ChunkedArray | None:
    """Replace column values at given positions.

    Returns None without any difference. Values are compared bit by bit. Unused dictionary values are removed from the
    dictionary.

    Args:
        column: A column of the type of `new`, or a dictionary of strings.
        at: int[n], distinct positions in `column`.
        new: n values, which may be a dictionary.
        chosen: int[m], the indices of the entries of `at` and `new` to use. None: all.
    """
    if chosen is not None:
        if not len(chosen):
            return None
        at, new = at[chosen], take_from_column(new, chosen)
    if pa.types.is_dictionary(column.type):
        return _replace_codes(column, at, new)
    plain = new.cast(column.type) if pa.types.is_dictionary(new.type) else new
    width = _integer_width(column.type)
    if width and not column.null_count and not plain.null_count:
        return _replace_numbers(column, at, plain, _INTEGERS[width])
    old = take_from_column(column, at)
    if _has_exact_equality(column.type) and _has_equal_values(old, plain, width):
        return None
    source = np.arange(len(column))
    source[at] = len(column) + np.arange(len(at))
    return take_from_column(pa.chunked_array([*column.chunks, *plain.chunks], column.type), source)


def _replace_numbers(
    column: pa.ChunkedArray, at: np.ndarray, new: pa.ChunkedArray, bits: pa.DataType
) -> pa.ChunkedArray | None:
    values, new_values = (numbers.combine_chunks().view(bits).to_numpy() for numbers in (column, new))
    if (values[at] == new_values).all():
        return None
    values = values.copy()
    values[at] = new_values
    return pa.chunked_array([pa.array(values).view(column.type)])


def _replace_codes(column: pa.ChunkedArray, at: np.ndarray, new: pa.ChunkedArray) -> pa.ChunkedArray | None:
    encoded = new if pa.types.is_dictionary(new.type) else new.dictionary_encode()
    both = pa.chunked_array([*column.chunks, *encoded.cast(column.type).chunks], column.type)
    unified = both.unify_dictionaries().combine_chunks()
    codes = _dictionary_codes(unified)
    values, new_codes = codes[: len(column)], codes[len(column) :]
    if (values[at] == new_codes).all():
        return None
    values = values.copy()
    values[at] = new_codes
    return _create_dictionary(values, unified.dictionary)


def drop_unused_dictionary_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_dictionary(column.type):
        return column
    unified = column.unify_dictionaries().combine_chunks()
    return _create_dictionary(_dictionary_codes(unified), unified.dictionary)


def _dictionary_codes(array: pa.DictionaryArray) -> np.ndarray:
    codes: np.ndarray = array.indices.fill_null(-1).to_numpy()
    return codes


def _create_dictionary(codes: np.ndarray, values: pa.Array) -> pa.ChunkedArray:
    used = np.bincount(codes[codes >= 0], minlength=len(values)) > 0
    if not used.all():
        renumbered = np.append(np.cumsum(used) - 1, -1).astype(np.int32)  # the -1 of null stays last
        codes, values = renumbered[codes], values.filter(pa.array(used))
    indices = pa.array(codes, pa.int32(), mask=codes < 0)
    return pa.chunked_array([pa.DictionaryArray.from_arrays(indices, values)])


def _integer_width(kind: pa.DataType) -> int:
    # Values of these types can be compared as integers.
    if pa.types.is_boolean(kind) or not pa.types.is_primitive(kind):
        return 0
    return int(kind.bit_width) if kind.bit_width in _INTEGERS else 0


def _has_exact_equality(kind: pa.DataType) -> bool:
    # Arrow's equality does not compare every bit of floats in nested values.
    return not pa.types.is_nested(kind)


def _has_equal_values(old: pa.ChunkedArray, new: pa.ChunkedArray, width: int) -> bool:
    if width:
        old, new = (pa.chunked_array([one.combine_chunks().view(_INTEGERS[width])]) for one in (old, new))
    return bool(old.equals(new))


__all__ = ["replace_values", "drop_unused_dictionary_values"]
