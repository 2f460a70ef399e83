"""Codes that represent keys of several columns as integers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def assign_key_codes(keys: pa.Table) -> np.ndarray:
    """Assign an integer code to each key.

    Args:
        keys: The key columns, with one key per row.

    Returns:
        A code for each row, from 0. Two codes are equal only if the keys are equal.
    """
    codes = np.zeros(len(keys), np.int64)
    for column in keys.columns:
        encoded = column.combine_chunks().dictionary_encode()
        column_codes = pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int64) + 1
        _, codes = np.unique(codes * (len(encoded.dictionary) + 1) + column_codes, return_inverse=True)
    return codes


__all__ = ["assign_key_codes"]
