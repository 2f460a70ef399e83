"""Space-filling curves that sort by several columns.

They are linear, Z-order and Hilbert curve. A space-filling curve puts rows with similar values in all columns near each
other. The functions take columns and return one int64 sort value per row.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LINEAR, ZORDER, HILBERT = "linear", "zorder", "hilbert"
ORDERS = (LINEAR, ZORDER, HILBERT)
_BITS_MAX = 31  # a rank of at most 2^31 rows can be scaled without exceeding 64 bits


def compute_sort_values(columns: pa.Table, order: str) -> np.ndarray:
    """Compute a sort value for each row.

    A stable sort by this value gives the requested order.

    Nulls come last in every column.
    """
    if not len(columns):
        return np.empty(0, np.int64)
    axes = [_dense_ranks(column) for column in columns.columns]
    if order == LINEAR:
        return _lexicographic(axes)
    bits = _bits_per_column(axes)
    scaled = np.stack([_scale_ranks(axis, bits) for axis in axes])
    return _interleave_bits(_hilbert_transform(scaled, bits) if order == HILBERT else scaled, bits)


def _dense_ranks(column: pa.ChunkedArray) -> np.ndarray:
    # Ranks begin with 0. NaN comes after all numbers, and nulls come last.
    ranks = pc.rank(column, sort_keys="ascending", tiebreaker="dense")
    return ranks.to_numpy().astype(np.int64) - 1


def _lexicographic(axes: list[np.ndarray]) -> np.ndarray:
    ranks = axes[0]
    for axis in axes[1:]:
        ranks = np.unique(ranks * (int(axis.max()) + 1) + axis, return_inverse=True)[1].astype(np.int64)
    return ranks


def _bits_per_column(axes: list[np.ndarray]) -> int:
    # The column with the most distinct values determines the number of bits, up to 63 bits for all columns together.
    needed = max(int(axis.max()).bit_length() for axis in axes)
    return max(1, min(needed, _BITS_MAX, 63 // len(axes)))


def _scale_ranks(axis: np.ndarray, bits: int) -> np.ndarray:
    # Columns with few distinct values get the same weight.
    values = int(axis.max()) + 1
    return (axis.astype(np.uint64) << np.uint64(bits)) // np.uint64(values)


def _interleave_bits(axes: np.ndarray, bits: int) -> np.ndarray:
    curve_values = np.zeros(axes.shape[1], np.uint64)
    for bit in range(bits - 1, -1, -1):
        for axis in axes:
            curve_values = (curve_values << np.uint64(1)) | ((axis >> np.uint64(bit)) & np.uint64(1))
    return curve_values.astype(np.int64)


def _hilbert_transform(axes: np.ndarray, bits: int) -> np.ndarray:
    """Apply Skilling's transform for Hilbert curves.

    See "Programming the Hilbert curve", 2004.
    """
    x, zero = axes.astype(np.uint64), np.uint64(0)
    count = len(x)
    for bit in range(bits - 1, 0, -1):
        high, low = np.uint64(1 << bit), np.uint64((1 << bit) - 1)
        for i in range(count):
            inverted = (x[i] & high) != zero
            swapped = np.where(inverted, zero, (x[0] ^ x[i]) & low)
            x[0] ^= np.where(inverted, low, swapped)
            x[i] ^= swapped
    for i in range(1, count):  # Gray code
        x[i] ^= x[i - 1]
    turned = np.zeros(x.shape[1], np.uint64)
    for bit in range(bits - 1, 0, -1):
        turned ^= np.where((x[count - 1] & np.uint64(1 << bit)) != zero, np.uint64((1 << bit) - 1), zero)
    return x ^ turned
