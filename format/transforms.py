"""Partition transforms such as day(ts).

They generate a partition column. Values are computed in UTC. A timestamp without a time zone is used unchanged.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import OptionError, SchemaError
from hoodoo.format.hashing import hash64, hash64_of_words
from hoodoo.redact import printable

YEAR, MONTH, DAY, HOUR, BUCKET, TRUNCATE = "year", "month", "day", "hour", "bucket", "truncate"
_TIMES = {YEAR: "Y", MONTH: "M", DAY: "D", HOUR: "h"}
# Time unit in numpy of each kind of transform.
_NUMBERED = {BUCKET: "the number of buckets", TRUNCATE: "the width"}
# Kinds of transforms that require a number, and the meaning of the number.
NUMBER_MAX = (1 << 31) - 1
_SUFFIXES = {TRUNCATE: "trunc"}
_LAST_CHARACTER = chr(0x10FFFF)
_SURROGATES = range(0xD800, 0xE000)
_TEXT = re.compile(r"\s*(\w+)\s*\(\s*(?:(-?\d{1,20})\s*,\s*)?([^()\s](?:[^()\n]*[^()\s])?)\s*\)\s*", re.ASCII)


class Bounds(NamedTuple):
    """Lower and upper bound of a column."""

    least: Any = None
    greatest: Any = None


@dataclass(frozen=True)
class Transform:
    """Rule for a generated partition column.

    An example is day(ts). Transforms are created by `hoodoo.day` and similar functions.

    Attributes:
        kind: 'year', 'month', 'day', 'hour', 'bucket' or 'truncate'.
        column: The column from which the partition column is generated.
        number: The number of buckets, or the width of a truncation; 0 for other kinds.
    """

    kind: str
    column: str
    number: int = 0

    def __post_init__(self) -> None:
        if self.kind not in _TAKES:
            raise OptionError(
                f"Transform is unknown: expected {', '.join(_TAKES)}, got {printable(self.kind)}.", option="kind"
            )
        is_integer = isinstance(self.number, int) and not isinstance(self.number, bool)
        if self.kind in _NUMBERED and not (is_integer and 1 <= self.number <= NUMBER_MAX):
            raise OptionError(
                f"Transform {self.kind} needs {_NUMBERED[self.kind]} as its first argument: expected an integer "
                f"from 1 to {NUMBER_MAX:,}, got {printable(self.number)}.",
                option=self.kind,
            )
        if self.kind not in _NUMBERED and self.number != 0:
            raise OptionError(
                f"Transform {self.kind} does not accept a number, got {printable(self.number)}. Remove it.",
                option=self.kind,
            )
        if not isinstance(self.column, str) or not self.column:
            raise OptionError(
                f"Transform {self.kind} needs a column name, got {printable(self.column)}.", option=self.kind
            )

    def __repr__(self) -> str:
        return f"hoodoo.{self.kind}({f'{self.number}, ' if self.number else ''}{self.column!r})"

    def __str__(self) -> str:
        return f"{self.kind}({self.number}, {self.column})" if self.number else f"{self.kind}({self.column})"

    @property
    def made(self) -> str:
        """Name of the generated partition column, such as 'ts_day'."""
        return f"{self.column}_{_SUFFIXES.get(self.kind, self.kind)}"


def year(column: str) -> Transform:
    """Partition by the year of a date or timestamp.

    Args:
        column: The column. The partition column `<column>_year` has integers, such as 2026, in UTC.

    Returns:
        The transform, for `partition_by` of `hoodoo.create`.

    Raises:
        OptionError: `column` is not the name of a column.
    """
    return Transform(YEAR, column)


def month(column: str) -> Transform:
    """Partition by the month of a date or timestamp.

    Args:
        column: The column. The partition column `<column>_month` has strings, such as '2026-03', in UTC.

    Returns:
        The transform, for `partition_by` of `hoodoo.create`.

    Raises:
        OptionError: `column` is not the name of a column.
    """
    return Transform(MONTH, column)


def day(column: str) -> Transform:
    """Partition by the day of a date or timestamp.

    Args:
        column: The column. The partition column `<column>_day` has dates in UTC.

    Returns:
        The transform, for `partition_by` of `hoodoo.create`.

    Raises:
        OptionError: `column` is not the name of a column.
    """
    return Transform(DAY, column)


def hour(column: str) -> Transform:
    """Partition by the hour of a timestamp.

    Args:
        column: The column. The partition column `<column>_hour` has strings, such as '2026-03-01-17', in UTC.

    Returns:
        The transform, for `partition_by` of `hoodoo.create`.

    Raises:
        OptionError: `column` is not the name of a column.
    """
    return Transform(HOUR, column)


def bucket(n: int, column: str) -> Transform:
    """Partition by a hash of a column.

    A row goes to bucket `pmod(xxhash64(value), n)`, in the notation of Spark SQL.

    Args:
        n: The number of buckets, from 1.
        column: The column: integers, strings, bytes, dates, timestamps, or decimals of at most 18 digits. The partition
            column `<column>_bucket` has integers from 0 to n - 1.

    Returns:
        The transform, for `partition_by` of `hoodoo.create`.

    Raises:
        OptionError: `n` is not an integer in this range, or `column` is not the name of a column.
    """
    return Transform(BUCKET, column, n)


def truncate(width: int, column: str) -> Transform:
    """Partition by prefixes of strings or ranges of integers.

    Args:
        width: The number of characters, or the number of integers in a partition. From 1.
        column: The column. The partition column `<column>_trunc` has the first characters, or the least number of the
            range: with width 10, it is 10 for 17 and -10 for -3.

    Returns:
        The transform, for `partition_by` of `hoodoo.create`.

    Raises:
        OptionError: `width` is not an integer in this range, or `column` is not the name of a column.
    """
    return Transform(TRUNCATE, column, width)


def transform_of(text: str) -> Transform:
    match = _TEXT.fullmatch(text)
    if match is None or match[1] not in _TAKES or (match[1] in _NUMBERED) != (match[2] is not None):
        raise OptionError(
            f"{printable(text)} is not a valid transform. Use year(column), month(column), day(column), "
            "hour(column), bucket(n, column) or truncate(width, column).",
            option="partition_by",
        )
    return Transform(match[1], match[3], int(match[2]) if match[2] else 0)


def generated_column_type(transform: Transform, kind: pa.DataType) -> pa.DataType:
    """Return the type of the generated partition column.

    Raises:
        SchemaError: The transform does not support columns of this type.
    """
    is_supported, description = _TAKES[transform.kind]
    if not is_supported(kind):
        raise SchemaError(
            f"Column {transform.column!r} has type {kind}, but {transform} needs {description}. Choose "
            "another column or another transform.",
            column=transform.column,
            type=str(kind),
        )
    types = {YEAR: pa.int32(), MONTH: pa.string(), DAY: pa.date32(), HOUR: pa.string(), BUCKET: pa.int32()}
    return types.get(transform.kind, kind)


def compute_partition_values(transform: Transform, column: pa.Array) -> pa.Array:
    """Compute the partition values of a column.

    Results for values that `unfit` selects are undefined.
    """
    if transform.kind == BUCKET:
        return _in_buckets(column, transform.number)
    if transform.kind == TRUNCATE:
        return _truncated(column, transform.number)
    return _TIME_VALUES[transform.kind](column)


def unfit(transform: Transform, column: pa.Array) -> np.ndarray:
    if transform.kind != TRUNCATE or not pa.types.is_integer(column.type):
        return np.zeros(len(column), bool)
    numbers, least = _to_int64(column), np.iinfo(column.type.to_pandas_dtype()).min
    too_small: np.ndarray = numbers < least + np.mod(numbers, transform.number)
    return too_small & column.is_valid().to_numpy(zero_copy_only=False)


def value(transform: Transform, of: Any, kind: pa.DataType) -> Any:
    return compute_partition_values(transform, pa.array([of], kind))[0].as_py()


def range_of_partition(transform: Transform, made: Any, kind: pa.DataType) -> Bounds:
    """Return the range of column values that a partition can contain.

    `kind` is the type of the column, and `made` must not be null.
    """
    if transform.kind in _TIMES:
        return _bounds_of_time(transform.kind, made, kind)
    if transform.kind == TRUNCATE and isinstance(made, str):
        return Bounds(made, made if len(made) < transform.number else _string_after_prefix(made))
    if transform.kind == TRUNCATE:
        return Bounds(made, made + transform.number - 1)
    return Bounds()


# ---- times


def _to_utc_moments(column: pa.Array) -> np.ndarray:
    unit, width = ("D", pa.int32()) if pa.types.is_date32(column.type) else ("us", pa.int64())
    if unit == "us":
        column = column.cast(pa.timestamp("us", column.type.tz))
    moments: np.ndarray = column.cast(width).fill_null(0).to_numpy().astype(np.int64).view(f"M8[{unit}]")
    return moments


def _units_since_1970(column: pa.Array, unit: str) -> np.ndarray:
    units: np.ndarray = _to_utc_moments(column).astype(f"M8[{unit}]").astype(np.int64)
    return units


def _years(column: pa.Array) -> pa.Array:
    return _with_nulls_of((_units_since_1970(column, "Y") + 1970).astype(np.int32), column)


def _days(column: pa.Array) -> pa.Array:
    return _with_nulls_of(_units_since_1970(column, "D").astype(np.int32), column).cast(pa.date32())


def _time_formatter(unit: str) -> Callable[[pa.Array], pa.Array]:
    # Each distinct value is formatted once.

    def texts(column: pa.Array) -> pa.Array:
        distinct, numbers = np.unique(_units_since_1970(column, unit), return_inverse=True)
        formatted = pc.replace_substring(pa.array(distinct.astype(f"M8[{unit}]").astype(str), pa.string()), "T", "-")
        return formatted.take(_with_nulls_of(numbers.reshape(-1), column))

    return texts


_TIME_VALUES: dict[str, Callable[[pa.Array], pa.Array]] = {
    YEAR: _years,
    MONTH: _time_formatter("M"),
    DAY: _days,
    HOUR: _time_formatter("h"),
}


def _bounds_of_time(kind: str, value: Any, of: pa.DataType) -> Bounds:
    if kind == HOUR:
        value = f"{value[:-3]}T{value[-2:]}"
    text = value.isoformat() if kind == DAY else str(value).zfill(4)
    try:
        unit = np.array([text], f"M8[{_TIMES[kind]}]")
    except ValueError:
        return Bounds()  # not a result of the transform
    least: dt.datetime = unit.astype("M8[us]")[0].item()
    last: dt.datetime = ((unit + 1).astype("M8[us]") - 1)[0].item()
    if pa.types.is_date(of):
        return Bounds(least.date(), last.date())
    zone = dt.timezone.utc if of.tz else None
    return Bounds(least.replace(tzinfo=zone), last.replace(tzinfo=zone))


# ---- buckets and truncation


def _in_buckets(column: pa.Array, n: int) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        hashes = hash64(column.fill_null("" if pa.types.is_string(kind) else b""))
    elif pa.types.is_date32(kind) or pa.types.is_int32(kind):
        hashes = hash64_of_words(column.cast(pa.int32()).fill_null(0).to_numpy())
    else:
        hashes = hash64_of_words(_to_int64(column))
    return _with_nulls_of(np.mod(hashes.view(np.int64), n).astype(np.int32), column)


def _to_int64(column: pa.Array) -> np.ndarray:
    # Timestamps are in microseconds, and decimals are unscaled. Nulls are arbitrary.
    kind = column.type
    if pa.types.is_decimal(kind):
        buffer = column.buffers()[1]
        halves = np.frombuffer(buffer if len(column) else b"", "<i8").reshape(-1, 2)
        words: np.ndarray = np.ascontiguousarray(halves[column.offset : column.offset + len(column), 0])
        return words
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz))
    words = column.cast(pa.int64()).fill_null(0).to_numpy()
    return words


def _truncated(column: pa.Array, width: int) -> pa.Array:
    if pa.types.is_string(column.type):
        return pc.utf8_slice_codeunits(column, 0, width)
    numbers = _to_int64(column)
    with np.errstate(over="ignore"):
        least = numbers - np.mod(numbers, width)
    return _with_nulls_of(least.astype(column.type.to_pandas_dtype()), column)


def _string_after_prefix(prefix: str) -> str | None:
    stem = prefix.rstrip(_LAST_CHARACTER)
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    return stem[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def _with_nulls_of(values: np.ndarray, like: pa.Array) -> pa.Array:
    return pa.array(values, mask=like.is_null().to_numpy(zero_copy_only=False) if like.null_count else None)


# ---- types


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def _is_text_or_integer(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_int32(kind) or pa.types.is_int64(kind))


def _is_hashed(kind: pa.DataType) -> bool:
    short = pa.types.is_decimal128(kind) and kind.precision <= 18  # Spark hashes the bytes of longer decimals
    return bool(_is_text_or_integer(kind) or pa.types.is_binary(kind) or _is_time(kind) or short)


_TAKES: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    **dict.fromkeys((YEAR, MONTH, DAY), (_is_time, "a date or timestamp")),
    HOUR: (lambda kind: bool(pa.types.is_timestamp(kind)), "a timestamp"),
    BUCKET: (_is_hashed, "an integer, string, binary, date, timestamp, or decimal of at most 18 digits"),
    TRUNCATE: (_is_text_or_integer, "a string or an integer"),
}
# Supported column types of each kind of transform, and their description.


__all__ = [
    "Bounds",
    "Transform",
    "range_of_partition",
    "bucket",
    "day",
    "hour",
    "month",
    "transform_of",
    "truncate",
    "generated_column_type",
    "unfit",
    "value",
    "compute_partition_values",
    "year",
]
