"""Where rows stand in an order over several columns: lexicographic, or along a space-filling curve that keeps what is
close in all columns close.

Takes columns, gives one int64 per row to sort by. Knows no files.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LINEAR, ZORDER, HILBERT = "linear", "zorder", "hilbert"
ORDERS = (LINEAR, ZORDER, HILBERT)
_BITS_MAX = 31  # so that a rank of at most 2^31 rows can be stretched in 64 bits


def positions(columns: pa.Table, order: str) -> np.ndarray:
    """int64 per row of `columns`: sorting by it, stably, puts the rows in `order`. Nulls come last in every column."""
    if not len(columns):
        return np.empty(0, np.int64)
    axes = [_dense_ranks(column) for column in columns.columns]
    if order == LINEAR:
        return _lexicographic(axes)
    bits = _bits(axes)
    scaled = np.stack([_stretched(axis, bits) for axis in axes])
    return _interleaved(_transposed(scaled, bits) if order == HILBERT else scaled, bits)


def _dense_ranks(column: pa.ChunkedArray) -> np.ndarray:
    """int64 from 0: equal values share one, NaN comes after all numbers, null last."""
    ranks = pc.rank(column, sort_keys="ascending", tiebreaker="dense")
    return ranks.to_numpy().astype(np.int64) - 1


def _lexicographic(axes: list[np.ndarray]) -> np.ndarray:
    ranks = axes[0]
    for axis in axes[1:]:
        ranks = np.unique(ranks * (int(axis.max()) + 1) + axis, return_inverse=True)[1].astype(np.int64)
    return ranks


def _bits(axes: list[np.ndarray]) -> int:
    """Bits per column: as many as the column with the most values needs, and as fit 63 bits together."""
    needed = max(int(axis.max()).bit_length() for axis in axes)
    return max(1, min(needed, _BITS_MAX, 63 // len(axes)))


def _stretched(axis: np.ndarray, bits: int) -> np.ndarray:
    """Ranks spread evenly over `bits` bits, so that every column counts alike however few values it has."""
    values = int(axis.max()) + 1
    return (axis.astype(np.uint64) << np.uint64(bits)) // np.uint64(values)


def _interleaved(axes: np.ndarray, bits: int) -> np.ndarray:
    """The bits of all axes by turns, the highest first: axis 0, axis 1, ..., then the next lower bit."""
    curve_values = np.zeros(axes.shape[1], np.uint64)
    for bit in range(bits - 1, -1, -1):
        for axis in axes:
            curve_values = (curve_values << np.uint64(1)) | ((axis >> np.uint64(bit)) & np.uint64(1))
    return curve_values.astype(np.int64)


def _transposed(axes: np.ndarray, bits: int) -> np.ndarray:
    """Skilling's transform (Programming the Hilbert curve, 2004): coordinates whose interleaved bits are the distance
    along the curve.
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
