"""Equality of Arrow values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def equal_values(left: pa.Array, right: pa.Array) -> np.ndarray:
    """Compare two arrays value by value.

    Returns a mask of equal values. Null equals null, and NaN equals NaN.
    """
    kind = left.type
    valid = left.is_valid().to_numpy(zero_copy_only=False)
    same: np.ndarray = valid == right.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            same = same & (
                equal_values(left.field(number), right.field(number)) | ~valid
            )  # values below a null are ignored
        return same
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return same & (_equal_lists(_map_as_list(left), _map_as_list(right)) | ~valid)
    if pa.types.is_null(kind):
        return same
    equal = pc.equal(left, right)
    if pa.types.is_floating(kind):
        equal = pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return same & (equal.fill_null(False).to_numpy(zero_copy_only=False) | ~valid)


def _map_as_list(values: pa.Array) -> pa.Array:
    if not pa.types.is_map(values.type):
        return values
    entries = pa.StructArray.from_arrays(
        [values.keys, values.items],
        fields=[pa.field("key", values.type.key_type), pa.field("value", values.type.item_type)],
    )
    mask = pa.array(values.is_null()) if values.null_count else None
    return pa.ListArray.from_arrays(pa.array(_offsets(values), pa.int32()), entries, mask=mask)


def _offsets(values: pa.Array) -> np.ndarray:
    return np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]


def _equal_lists(left: pa.Array, right: pa.Array) -> np.ndarray:
    lengths = pc.list_value_length(left).fill_null(-1).to_numpy(zero_copy_only=False)
    same = lengths == pc.list_value_length(right).fill_null(-1).to_numpy(zero_copy_only=False)
    filled = np.flatnonzero(same & (lengths > 0))
    if not len(filled):
        return same
    items = [pc.list_flatten(side.take(pa.array(filled))) for side in (left, right)]
    starts = np.concatenate([[0], np.cumsum(lengths[filled])[:-1]])
    same[filled] = np.logical_and.reduceat(equal_values(items[0], items[1]), starts)
    return same
