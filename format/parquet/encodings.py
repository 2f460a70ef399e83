"""Choice of Parquet encodings.

docs/format.md 7 lists the encodings that other engines read. Spark 3.5 cannot read BYTE_STREAM_SPLIT.
DELTA_LENGTH_BYTE_ARRAY stores the lengths of strings separately from their bytes, which halves the time of zstd.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.rows import take_from_column

_SAMPLE = 2048
_REPEATS = 4  # a dictionary saves bytes if a row group contains each value at least this often
_ALL_DIFFERENT = 0.98  # with a larger share of distinct values in a sample, their total number cannot be estimated
_DICTIONARY_BYTES = 900_000  # Arrow abandons a dictionary in the middle of a row group if it exceeds 1 MiB
_LENGTH_BYTES = 4  # bytes of the length of a string in a dictionary page
_DELTA_BITS = 0.75  # maximum share of the type's bits for differences of values; larger differences save nothing


class ParquetEncodings(NamedTuple):
    """Parquet encodings for the columns of a file.

    Attributes:
        dictionary: The columns that are encoded with a dictionary.
        others: The encodings of the other columns. Missing columns are encoded as PLAIN.
    """

    dictionary: list[str]
    others: dict[str, str]


def choose(rows: pa.Table, plain: Collection[str] = ()) -> ParquetEncodings:
    chosen = ParquetEncodings([], {})
    for field in rows.schema:
        if pa.types.is_dictionary(field.type):
            chosen.dictionary.append(field.name)
        elif field.name in plain or pa.types.is_nested(field.type) or pa.types.is_boolean(field.type):
            continue
        elif _is_whole_number(field.type):
            if _has_small_differences(_evenly_spaced_sample(rows[field.name])):
                chosen.others[field.name] = "DELTA_BINARY_PACKED"
        elif repeats(rows[field.name]):
            chosen.dictionary.append(field.name)
        elif _is_text(field.type):
            chosen.others[field.name] = "DELTA_LENGTH_BYTE_ARRAY"
    return chosen


def repeats(column: pa.ChunkedArray) -> bool:
    sample = _evenly_spaced_sample(column).drop_null()
    values, size = sample.unique(), len(sample)
    if not size:
        return len(column) > 0
    filled = len(column) * size / min(len(column), _SAMPLE)  # estimated number of rows with a value
    different = _estimate_distinct(len(values), size) if size < filled else len(values)
    if different * _REPEATS > filled:
        return False
    entry_bytes = values.nbytes / len(values) + _LENGTH_BYTES
    return different * entry_bytes <= _DICTIONARY_BYTES


def _estimate_distinct(distinct: int, size: int) -> float:
    # The estimate is the D with D (1 - exp(-size / D)) = `distinct` (the classical occupancy problem; Feller, An
    # Introduction to Probability Theory, volume 1, IV.2).
    if distinct >= _ALL_DIFFERENT * size:
        return math.inf
    low, high = float(distinct), float(size) ** 2
    while high - low > 0.01 * low:
        middle = (low + high) / 2
        if middle * -math.expm1(-size / middle) < distinct:
            low = middle
        else:
            high = middle
    return high


def _evenly_spaced_sample(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if len(column) <= _SAMPLE:
        return column
    return take_from_column(column, np.linspace(0, len(column) - 1, _SAMPLE).astype(np.int64))


def _is_whole_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_temporal(kind)


def _is_text(kind: pa.DataType) -> bool:
    return any(
        is_kind(kind)
        for is_kind in (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    )


def _has_small_differences(sample: pa.ChunkedArray) -> bool:
    width = sample.type.bit_width
    ends = pc.min_max(sample.cast(pa.int64() if width == 64 else pa.int32()))
    least, greatest = ends["min"].as_py(), ends["max"].as_py()
    return least is None or (greatest - least).bit_length() <= _DELTA_BITS * width


__all__ = ["ParquetEncodings", "choose", "repeats"]
