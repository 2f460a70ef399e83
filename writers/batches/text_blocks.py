"""Block sizes for parsing text files with Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_BLOCK = 64 << 20  # bytes that are parsed at a time


def choose_block_size(data: pa.Buffer, csv: bool = False) -> int:
    """Choose the block size for a CSV or JSON parser.

    A row must not span more than two adjacent blocks.
    """
    if data.size <= _BLOCK:
        return max(1 << 20, data.size)
    text = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    if csv:
        ends = ends[np.searchsorted(np.flatnonzero(text == ord('"')), ends) % 2 == 0]
    longest = int(np.diff(ends, prepend=-1, append=data.size).max())
    return _BLOCK if longest < _BLOCK // 2 else min(data.size, 2**31 - 1)


def choose_parse_type(kind: pa.DataType) -> pa.DataType:
    """Choose the type with which a column is parsed.

    A float32 is parsed as float64, so that the later cast detects lost digits.
    """
    return pa.float64() if pa.types.is_float32(kind) else kind


__all__ = ["choose_block_size", "choose_parse_type"]
