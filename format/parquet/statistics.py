"""Least and greatest value and null count per column, as JSON values that slots and checkpoints carry and readers skip
files by.

A bound that JSON cannot carry exactly, or that is long, is left out: absent means "anything", never a wrong bound.
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


def has_bounds(kind: pa.DataType) -> bool:
    """Types whose order is the same in Parquet's statistics, in Arrow and in Python."""
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


def to_json(value: Any) -> Any:
    """A bound as a JSON value, None if it cannot be one. Times are microseconds since 1970, dates
    days, decimals text.
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


def from_json(value: Any, kind: pa.DataType) -> Any:
    """Inverse of `to_json` for a column of type `kind`; None, no bound, for a time that Python's own cannot be."""
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
    return comparable(value, kind)


def comparable(value: Any, kind: pa.DataType) -> Any:
    """A bound that is no None, as it compares to others of its column: times as the numbers that they are, of any
    year.
    """
    return Decimal(value) if pa.types.is_decimal(kind) else value


def bound(value: pa.Scalar) -> Any:
    """`to_json` of one Arrow value, None also where Python has no such value: years before 1 and beyond 9999."""
    try:
        return to_json(value.as_py())
    except (OverflowError, ValueError):
        return None


def of_parquet(metadata: pq.FileMetaData, schema: pa.Schema, groups: Sequence[int] | None = None) -> Stats:
    """Bounds of the flat columns of `schema` over `groups` (default: all row groups), from the footer alone."""
    numbers = (
        {metadata.row_group(0).column(i).path_in_schema: i for i in range(metadata.num_columns)}
        if metadata.num_row_groups
        else {}
    )
    groups = range(metadata.num_row_groups) if groups is None else groups
    found: Stats = {}
    for field in schema:
        if field.name in numbers and has_bounds(field.type):
            parts = [metadata.row_group(g).column(numbers[field.name]).statistics for g in groups]
            if all(part is not None and part.has_null_count for part in parts):
                found[field.name] = _union(parts)
    return found


def _union(parts: list[Any]) -> list[Any]:
    nulls = sum(part.null_count for part in parts)
    filled = [part for part in parts if part.num_values]
    if not filled or not all(part.has_min_max for part in filled):
        return [None, None, nulls]
    try:
        return [to_json(min(part.min for part in filled)), to_json(max(part.max for part in filled)), nulls]
    except (OverflowError, ValueError):
        return [None, None, nulls]  # times beyond the years that Python's own can hold


def of_table(rows: pa.Table) -> Stats:
    """Bounds of the flat columns of `rows`, computed."""
    found: Stats = {}
    for field in rows.schema:
        if has_bounds(field.type):
            column = rows[field.name]
            bounds = pc.min_max(column)
            found[field.name] = [bound(bounds["min"]), bound(bounds["max"]), column.null_count]
    return found


def union(
    whole: Sequence[Mapping[str, list[Any]]], schema: pa.Schema, partial: Sequence[Mapping[str, list[Any]]] = ()
) -> Stats:
    """Bounds that hold for all rows of some files; a column that one with `whole` rows lacks is left out.

    partial: of files whose rows set no other columns than these, of rows that the other files have, too.
    """
    found: Stats = {}
    for field in schema:
        if whole and all(field.name in stats for stats in whole):
            many, kind = [*whole, *(stats for stats in partial if field.name in stats)], field.type
            lows, highs = [stats[field.name][0] for stats in many], [stats[field.name][1] for stats in many]
            low = None if None in lows else min(lows, key=lambda v: comparable(v, kind))
            high = None if None in highs else max(highs, key=lambda v: comparable(v, kind))
            found[field.name] = [low, high, sum(stats[field.name][2] for stats in many)]
    return found
