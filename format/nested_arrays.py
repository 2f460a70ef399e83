"""Lists and maps of Arrow taken apart to be put together anew, whatever they are slices of."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def as_list(maps: pa.Array) -> pa.ListArray:
    """A map array as the list of entries that it is: Arrow flattens lists only."""
    entries = maps.values
    validity, offsets = maps.buffers()[:2]
    return pa.Array.from_buffers(
        pa.list_(entries.type), len(maps), [validity, offsets], offset=maps.offset, children=[entries]
    )


def ends(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Offsets (of type `kind`) of lists that stand one after the other and have the lengths of those in `array`, lists
    or maps; nulls have none. Raises pa.ArrowInvalid where there are more items than `kind` counts.
    """
    lists = as_list(array) if pa.types.is_map(array.type) else array
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    return pa.array(np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])).cast(kind)


__all__ = ["as_list", "ends"]
