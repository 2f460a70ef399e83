"""Conversion of nested Arrow arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def as_list(maps: pa.Array) -> pa.ListArray:
    entries = maps.values
    validity, offsets = maps.buffers()[:2]
    return pa.Array.from_buffers(
        pa.list_(entries.type), len(maps), [validity, offsets], offset=maps.offset, children=[entries]
    )


def get_list_offsets(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Get the offsets of the lists or maps in an array.

    The offsets refer to the flattened values. Nulls have the length 0. Raises pa.ArrowInvalid if the offsets exceed the
    range of `kind`.
    """
    lists = as_list(array) if pa.types.is_map(array.type) else array
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    return pa.array(np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])).cast(kind)


__all__ = ["as_list", "get_list_offsets"]
