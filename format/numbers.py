"""Exact conversion between number types.

Two values are equal if they are the same number. Two floats, or a decimal and a fractional float, are also equal if
they have the same shortest decimal string: 0.1 is equal in float32, float64 and decimal. Arrow's casts reject some type
pairs, round in others, and divide decimals inexactly. Their results are therefore verified.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.convert import convert_values

_DIGITS, _MORE = 38, 76  # maximum digits of decimals in tables, and in Arrow
_AT_ONCE = 9  # number of digits that Arrow can remove from a decimal without a division error
_FEW = 15  # number of digits that each double preserves
_WHOLE_HALF = 2.0**11  # all larger half floats are integers
# represents all floats below 2^53 that decimals can represent; Arrow misreads narrower strings
_TEXTS = pa.decimal256(_MORE, 55)


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def same(values: pa.Array, target: pa.DataType) -> pa.Array:
    values = _to_castable_type(values)
    kind = values.type
    if pa.types.is_floating(kind):
        if pa.types.is_floating(target):
            return _float_to_float(values, target)
        return _float_to_decimal(values, target) if pa.types.is_decimal(target) else _float_to_integer(values, target)
    if pa.types.is_floating(target):
        return _decimal_to_float(values, target) if pa.types.is_decimal(kind) else _integer_to_float(values, target)
    if pa.types.is_integer(kind) and pa.types.is_decimal(target):
        # Arrow rejects a decimal type that cannot represent every value of the integer type
        wide = pa.decimal128(_DIGITS, target.scale) if target.scale <= 18 else pa.decimal256(_MORE, target.scale)
        return values.cast(wide).cast(target)
    if pa.types.is_decimal(kind):
        return _change_scale(values, target) if pa.types.is_decimal(target) else _reduce_scale(values, 0).cast(target)
    return values.cast(target)  # Arrow checks each value here


def _to_castable_type(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_float16(kind):
        bits = np.frombuffer(values.buffers()[1], np.uint16)[values.offset :][: len(values)]
        return pa.array(_doubles_of_halves()[bits], mask=values.is_null().to_numpy(zero_copy_only=False))
    if pa.types.is_decimal(kind) and kind.scale < 0:  # Arrow cannot parse the strings that it creates for such numbers
        digits = kind.precision - kind.scale
        return values.cast(pa.decimal128(_DIGITS, 0) if digits <= _DIGITS else pa.decimal256(_MORE, 0))
    if pa.types.is_decimal(kind) and kind.bit_width < 128:
        return values.cast(pa.decimal128(kind.precision, kind.scale))
    return values


@lru_cache(1)
def _doubles_of_halves() -> np.ndarray:
    # The double has the same shortest decimal string as the half float. For large integers, it is the same number.
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    numbers = halves.astype(np.float64)
    return np.where(np.abs(numbers) < _WHOLE_HALF, halves.astype("U").astype(np.float64), numbers)


def _change_scale(decimals: pa.Array, target: pa.DataType) -> pa.Array:
    kind, added_digits = decimals.type, target.scale - decimals.type.scale
    if added_digits > 0 and kind.precision + added_digits > _DIGITS:  # Arrow returns wrong numbers after an overflow
        narrow = decimals.cast(pa.decimal128(_DIGITS, kind.scale)) if kind.precision > _DIGITS else decimals
        decimals = narrow.cast(pa.decimal256(_MORE, target.scale))
    return _reduce_scale(decimals, target.scale).cast(target)


def _reduce_scale(decimals: pa.Array, least: int) -> pa.Array:
    large = decimals.type.precision > _DIGITS
    for scale in range(decimals.type.scale - _AT_ONCE, least, -_AT_ONCE):
        decimals = decimals.cast(pa.decimal256(_MORE, scale) if large else pa.decimal128(_DIGITS, scale))
    return decimals


def _float_to_float(values: pa.Array, target: pa.DataType) -> pa.Array:
    if values.type.bit_width <= target.bit_width:
        return convert_values(values, target)  # 0.1 stays 0.1, as in the files of a widened column
    converted = values.cast(target)
    number = pc.or_(pc.equal(converted.cast(values.type), values), pc.is_nan(values))
    if not _all(number):
        _require(pc.equal(convert_values(_null_unless(pc.invert(number), converted), values.type), values))
    return converted


def _float_to_integer(values: pa.Array, target: pa.DataType) -> pa.Array:
    _require(_in_integer_range(values, target))
    converted = values.cast(target, safe=False)  # Arrow's safe cast rejects all values beyond 2^53
    _require(pc.equal(converted.cast(values.type, safe=False), values))
    return converted


def _integer_to_float(values: pa.Array, target: pa.DataType) -> pa.Array:
    converted = values.cast(target, safe=False)  # Arrow's safe cast rejects all values beyond 2^53
    _require(_in_integer_range(converted, values.type))
    _require(pc.equal(converted.cast(values.type, safe=False), values))
    return converted


def _in_integer_range(floats: pa.Array, integers: pa.DataType) -> pa.Array:
    signed = pa.types.is_signed_integer(integers)
    limit = 2.0 ** (integers.bit_width - signed)
    low = pc.greater_equal(floats, pa.scalar(-limit if signed else 0.0, floats.type))
    return pc.and_(low, pc.less(floats, pa.scalar(limit, floats.type)))


def _float_to_decimal(values: pa.Array, target: pa.DataType) -> pa.Array:
    short_decimals = _to_short_decimals(values, target.scale) if pa.types.is_float64(values.type) else None
    if short_decimals is not None and _all(
        pc.equal(_short_decimals_to_doubles(short_decimals), values)
    ):  # the decimals then equal the shortest decimal strings
        return _change_scale(short_decimals, target)
    large = pc.greater_equal(pc.abs(values), pa.scalar(_first_integers_only(values.type), values.type))
    decimals = _change_scale(_null_unless(pc.invert(large), values).cast(pa.string()).cast(_TEXTS), target)
    if not pc.any(large).as_py():
        return decimals
    integers = _null_unless(large, values).cast(pa.float64()).cast(pa.decimal128(_DIGITS, 0))
    return pc.coalesce(decimals, _change_scale(integers, target))


def _decimal_to_float(values: pa.Array, target: pa.DataType) -> pa.Array:
    short_decimals = _to_short_decimals(values, values.type.scale) if pa.types.is_float64(target) else None
    if short_decimals is not None:
        return _short_decimals_to_doubles(short_decimals)
    converted = values.cast(pa.string()).cast(target)
    doubles = converted.cast(pa.float64())
    scaled = pc.multiply(doubles, 2.0**values.type.scale)  # an integer if this number of digits is exact
    number = pc.and_(_is_whole(scaled), pc.equal(doubles.cast(values.type), values))
    if not _all(number):
        text = pc.invert(pc.or_(number, _is_whole(doubles)))
        texts = _null_unless(text, converted).cast(pa.string()).cast(_TEXTS)
        _require(pc.or_(number, pc.fill_null(pc.equal(texts, _null_unless(text, values).cast(_TEXTS)), False)))
    return converted


def _to_short_decimals(values: pa.Array, scale: int) -> pa.Array | None:
    # The decimals have at most `scale` fractional digits. Distinct decimals correspond to distinct doubles.
    bounds = pc.min_max(values).as_py()
    largest = max(-(bounds["min"] or 0), bounds["max"] or 0)
    if not largest < 10**_FEW:
        return None
    scale = min(scale, _FEW - len(str(int(largest))))
    try:
        digits = _reduce_scale(values, scale) if pa.types.is_decimal(values.type) else values
        return digits.cast(pa.decimal128(_FEW, scale))
    except pa.ArrowInvalid:
        return None


def _short_decimals_to_doubles(decimals: pa.Array) -> pa.Array:
    # The digits and the power of ten are exact doubles, so only one rounding occurs.
    digits = decimals.view(pa.decimal128(decimals.type.precision, 0)).cast(pa.int64()).cast(pa.float64())
    return pc.divide(digits, 10.0**decimals.type.scale)


def _first_integers_only(kind: pa.DataType) -> float:
    # From this number on, all floats of the type are integers. Their shortest decimal string may differ from their
    # exact value.
    return 2.0**24 if pa.types.is_float32(kind) else 2.0**53


def _is_whole(floats: pa.Array) -> pa.Array:
    return pc.equal(floats, pc.floor(floats))


def _null_unless(mask: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(mask, values, pa.scalar(None, values.type))


def _all(mask: pa.Array) -> bool:
    return bool(pc.all(mask, min_count=0).as_py())


def _require(mask: pa.Array) -> None:
    if not _all(mask):
        raise pa.ArrowInvalid("a number cannot be represented exactly in this type")


__all__ = ["is_number", "same"]
