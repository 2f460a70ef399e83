"""Which numbers of one type another type has, by Python's own arithmetic: the oracle for casts of batches."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa

Number = int | float | Decimal

GIVEN = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.decimal32(5, 2), pa.decimal64(12, 0), pa.decimal128(5, 0), pa.decimal128(10, 2), pa.decimal128(17, 17)),
    *(pa.decimal128(38, 0), pa.decimal128(38, 18), pa.decimal128(38, 38), pa.decimal256(50, 5), pa.decimal256(76, 0)),
    *(pa.decimal32(5, -2), pa.decimal128(5, -2), pa.decimal128(38, -4), pa.decimal256(60, -3)),
)
"""Types that batches have."""

KEPT = (
    *(pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.decimal128(5, 0), pa.decimal128(10, 2), pa.decimal128(15, 15), pa.decimal128(17, 17), pa.decimal128(22, 2)),
    *(pa.decimal128(38, 0), pa.decimal128(38, 10), pa.decimal128(38, 30), pa.decimal128(38, 38)),
)
"""Types that columns have."""

_WHOLE = (
    0,
    1,
    2,
    5,
    99_999,
    100_000,
    99_999_997_952,
    10**11,
    10**15,
    10**23,
    10**38 - 1,
    10**38,
    1_152_921_504_606_847_000,
)
_LIMITS = (7, 8, 15, 16, 24, 31, 32, 53, 60, 63, 64)  # powers of two next to which types end
_PARTS = (
    "0.1",
    "0.3",
    "0.7",
    "0.105",
    "0.5",
    "1441.6",
    "12345.67",
    "9.99",
    "1677721.7",
    "0.10000000000000001",
    "1e-17",
)
_DYADIC = (7, 24, 30)  # exact where there are so many digits, and longer than the shortest text


def near() -> list[Fraction]:
    """Numbers that types just have or have not, and random ones of all sizes; the same ones each time."""
    chance = random.Random(5)
    found = [Fraction(number) for number in _WHOLE]
    found += [Fraction(2**power + more) for power in _LIMITS for more in (-1, 0, 1, 2)]
    found += [Fraction(text) for text in _PARTS] + [Fraction(1, 2**power) for power in _DYADIC] + [Fraction(1, 3)]
    for digits in (3, 9, 16, 17, 25, 38) * 6:
        found.append(Fraction(chance.randrange(10**digits), 10 ** chance.randrange(digits + 1)))
    found += [Fraction(chance.random() * 10.0**power) for power in range(-6, 24)]
    found += [Fraction(float(np.float32(chance.random() * 10.0**power))) for power in range(-6, 24)]
    return [*found, *(-number for number in found if number)]


def of_type(kind: pa.DataType) -> list[Number]:
    """The numbers that `kind` has nearest to those of `near`."""
    return list(dict.fromkeys(value for number in near() if (value := _rounded(number, kind)) is not None))


def _rounded(number: Fraction, kind: pa.DataType) -> Number | None:
    if pa.types.is_integer(kind):
        return round(number) if _holds(kind, round(number)) else None
    if pa.types.is_decimal(kind):
        return _decimal(round(number * 10**kind.scale), kind)
    with np.errstate(over="ignore"):
        value = float(kind.to_pandas_dtype()(float(number)))
    return value if math.isfinite(value) else None


def same(value: Number, kind: pa.DataType, target: pa.DataType) -> Number | None:
    """What `value` of type `kind` is as `target`; None where that type has none that is the same."""
    number = Fraction(value)
    if pa.types.is_integer(target):
        return int(number) if number.denominator == 1 and _holds(target, int(number)) else None
    if pa.types.is_decimal(target):
        if pa.types.is_floating(kind) and number.denominator != 1:
            number = _text(float(value), kind)
        digits = number * 10**target.scale
        return _decimal(int(digits), target) if digits.denominator == 1 else None
    if isinstance(value, float) and kind.bit_width <= target.bit_width:
        return value if kind == target else _nearest(_text(value, kind), target)
    found = _nearest(number, target)
    if found is None or Fraction(found) == number:
        return found
    if isinstance(value, float):
        return found if _text(found, target) == _text(value, kind) else None
    exact_text = isinstance(value, Decimal) and not found.is_integer() and _text(found, target) == number
    return found if exact_text else None


def _holds(kind: pa.DataType, number: int) -> bool:
    signed = pa.types.is_signed_integer(kind)
    limit = 2 ** (kind.bit_width - signed)
    return (-limit if signed else 0) <= number < limit


def _decimal(digits: int, kind: pa.DataType) -> Decimal | None:
    return Decimal(digits).scaleb(-kind.scale, Context(100)) if abs(digits) < 10**kind.precision else None


def _text(value: float, kind: pa.DataType) -> Fraction:
    """The number that the shortest decimal text of a float says; a whole half float is its own."""
    if kind.bit_width == 16:
        return Fraction(value if value.is_integer() else str(np.float16(value)))
    return Fraction(str(np.float32(value)) if kind.bit_width == 32 else repr(value))


def _nearest(number: Fraction, kind: pa.DataType) -> float | None:
    """The float nearest to `number`, rounded once, to even; None where it is none."""
    first = float(number)
    if kind.bit_width == 64:
        return first
    around = [float(value) for value in _parts_by_minimum(np.float32(first)) if np.isfinite(value)]
    least = min(abs(Fraction(value) - number) for value in around)
    nearest = [value for value in around if abs(Fraction(value) - number) == least]
    return min(nearest, key=lambda value: int(np.float32(value).view(np.uint32)) & 1)


def _parts_by_minimum(value: np.float32) -> Iterator[np.float32]:
    yield value
    yield np.nextafter(value, np.float32(np.inf))
    yield np.nextafter(value, np.float32(-np.inf))
