"""Column statistics of data files.

Readers use them to skip files. Statistics are JSON values in slots and checkpoints. A bound that is long, or that JSON
cannot represent exactly, is left out. A missing bound means that any value is possible.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_TEXT_MAX = 64
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
Stats = dict[str, list[Any]]


def has_comparable_bounds(kind: pa.DataType) -> bool:
    t = pa.types
    return (
        t.is_integer(kind)
        or t.is_floating(kind)
        or t.is_string(kind)
        or t.is_boolean(kind)
        or t.is_date(kind)
        or t.is_timestamp(kind)
        or t.is_decimal(kind)
    )


def bound_to_json(value: Any) -> Any:
    """Convert a bound (minimum or maximum) to JSON.

    Returns None for unsupported or long values. Times become microseconds since 1970, dates days since 1970, and
    decimals strings.
    """
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value if len(value) <= _TEXT_MAX else None
    if isinstance(value, dt.datetime):
        return (value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
    if isinstance(value, dt.date):
        return (value - _EPOCH.date()).days
    return str(value) if isinstance(value, Decimal) else None


def bound_from_json(value: Any, kind: pa.DataType) -> Any:
    """Convert a bound (minimum or maximum) from JSON.

    Returns None (no bound) for a time that Python cannot represent.
    """
    if value is None:
        return None
    try:
        if pa.types.is_timestamp(kind):
            moment = _EPOCH + value * _MICROSECOND
            return moment.replace(tzinfo=dt.timezone.utc) if kind.tz else moment
        if pa.types.is_date(kind):
            return _EPOCH.date() + dt.timedelta(days=value)
    except OverflowError:
        return None
    return make_comparable(value, kind)


def make_comparable(value: Any, kind: pa.DataType) -> Any:
    """Make a bound (minimum or maximum) comparable.

    Times stay numbers, so that every year is possible.
    """
    return Decimal(value) if pa.types.is_decimal(kind) else value


def arrow_value_to_json(value: pa.Scalar) -> Any:
    """Convert an Arrow value to JSON.

    The value is a minimum or maximum. Returns None for a value that Python cannot represent, such as a year before 1 or
    after 9999.
    """
    try:
        return bound_to_json(value.as_py())
    except (OverflowError, ValueError):
        return None


def statistics_from_footer(metadata: pq.FileMetaData, schema: pa.Schema, groups: Sequence[int] | None = None) -> Stats:
    """Read column statistics from a Parquet footer.

    `groups` contains the indices of row groups, by default all.
    """
    numbers = (
        {metadata.row_group(0).column(i).path_in_schema: i for i in range(metadata.num_columns)}
        if metadata.num_row_groups
        else {}
    )
    groups = range(metadata.num_row_groups) if groups is None else groups
    stats: Stats = {}
    for field in schema:
        if field.name in numbers and has_comparable_bounds(field.type):
            parts = [metadata.row_group(g).column(numbers[field.name]).statistics for g in groups]
            if all(part is not None and part.has_null_count for part in parts):
                stats[field.name] = _union(parts)
    return stats


def _union(parts: list[Any]) -> list[Any]:
    nulls = sum(part.null_count for part in parts)
    filled = [part for part in parts if part.num_values]
    if not filled or not all(part.has_min_max for part in filled):
        return [None, None, nulls]
    try:
        return [bound_to_json(min(part.min for part in filled)), bound_to_json(max(part.max for part in filled)), nulls]
    except (OverflowError, ValueError):
        return [None, None, nulls]  # years that Python cannot represent


def statistics_of_rows(rows: pa.Table) -> Stats:
    stats: Stats = {}
    for field in rows.schema:
        if has_comparable_bounds(field.type):
            column = rows[field.name]
            bounds = pc.min_max(column)
            stats[field.name] = [
                arrow_value_to_json(bounds["min"]),
                arrow_value_to_json(bounds["max"]),
                column.null_count,
            ]
    return stats


def combine_statistics(
    whole: Sequence[Mapping[str, list[Any]]], schema: pa.Schema, partial: Sequence[Mapping[str, list[Any]]] = ()
) -> Stats:
    """Combine the column statistics of several files.

    `partial` contains the statistics of files that only have some columns, and whose rows are also in other files.
    """
    combined: Stats = {}
    for field in schema:
        if whole and all(field.name in stats for stats in whole):
            all_stats, kind = [*whole, *(stats for stats in partial if field.name in stats)], field.type
            lows, highs = [stats[field.name][0] for stats in all_stats], [stats[field.name][1] for stats in all_stats]
            low = None if None in lows else min(lows, key=lambda v: make_comparable(v, kind))
            high = None if None in highs else max(highs, key=lambda v: make_comparable(v, kind))
            combined[field.name] = [low, high, sum(stats[field.name][2] for stats in all_stats)]
    return combined
