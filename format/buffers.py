"""Buffers of Arrow string columns, as numpy arrays.

The codecs and hashes of this package process whole columns through these views.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

SLACK = 8
"""Number of padding bytes at the end of a buffer."""


def chunks_of_column(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]


def offsets_and_bytes(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the offsets and bytes of a string array.

    The bytes are not copied. Offsets are indexes into the returned bytes, even if the array is a slice. The length of a
    null is arbitrary.
    """
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    if len(array) == 0 or offsets is None:
        return np.zeros(len(array) + 1, np.int64), np.empty(0, np.uint8)
    raw = np.frombuffer(offsets, np.int64 if wide else np.int32, len(array) + 1 + array.offset)
    return raw[array.offset :].astype(np.int64), np.empty(0, np.uint8) if data is None else np.frombuffer(
        data, np.uint8
    )


def view_overlapping_values(data: np.ndarray, dtype: str) -> np.ndarray:
    """View a byte array as overlapping fixed-size values.

    The view has one value per start byte. The view is writable if `data` is.
    """
    width = np.dtype(dtype).itemsize
    return np.ndarray((max(len(data) - width + 1, 0),), dtype=dtype, buffer=data, strides=(1,))


class WordReader:
    """Reader of fixed-size values in a byte array.

    The values are at the same distance from several start positions. If the start positions are evenly spaced, as for
    keys of one length, the values are a view. Otherwise they are a copy, which takes several times as long.
    """

    def __init__(self, data: np.ndarray, starts: np.ndarray) -> None:
        self._data, self._starts = data, starts
        gaps = np.diff(starts)
        self._stride = int(gaps[0]) if len(gaps) and (gaps == gaps[0]).all() else None

    def at(self, distance: int, dtype: str) -> np.ndarray:
        """Read the value at a distance after each start position.

        The values start `distance` bytes after the positions. All values must be within the data.
        """
        if self._stride is None:
            return view_overlapping_values(self._data, dtype)[self._starts + distance]
        first = int(self._starts[0]) + distance
        return np.ndarray((len(self._starts),), dtype, self._data, first, (self._stride,))


def padded(data: np.ndarray) -> np.ndarray:
    return data if len(data) >= SLACK else np.concatenate([data, np.zeros(SLACK, np.uint8)])


def group_positions_by_value(sizes: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    if len(sizes) == 0:
        return
    least, most = int(sizes.min()), int(sizes.max())
    if least == most:
        yield most, np.arange(len(sizes))
        return
    # numpy uses a radix sort for 16 bits, which is ten times faster
    narrow = sizes.astype(np.uint16) if most < 1 << 16 else sizes
    order = np.argsort(narrow, kind="stable")
    distinct, counts = np.unique(narrow, return_counts=True)
    start = 0
    for size, count in zip(distinct.tolist(), counts.tolist(), strict=True):
        yield size, order[start : start + count]
        start += count
