"""Numbers instead of keys: equal keys have the same one, and others do not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def key_codes(keys: pa.Table) -> np.ndarray:
    """Number keys.

    Args:
        keys: The columns of the keys, a key in each row.

    Returns:
        A number for each row, from 0 on.
    """
    codes = np.zeros(len(keys), np.int64)
    for column in keys.columns:
        found = column.combine_chunks().dictionary_encode()
        part = pc.fill_null(found.indices, -1).to_numpy().astype(np.int64) + 1
        _, codes = np.unique(codes * (len(found.dictionary) + 1) + part, return_inverse=True)
    return codes


__all__ = ["key_codes"]
