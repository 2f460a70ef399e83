"""Conversion of values to a changed column type.

Arrow's casts are not used directly, because they round between some types and reject others. hoodoo's type changes are
exact. Values of type changes that only other engines allow are converted as in Apache Hudi's readers.
timeline/columns/alterations.py decides which type changes a table may make.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

A = TypeVar("A", pa.Array, pa.ChunkedArray)


def convert_values(values: A, kind: pa.DataType) -> A:
    """Convert values to a changed column type.

    A float becomes the double with the same shortest decimal string, so that 0.1 stays 0.1. Raises pa.ArrowInvalid for
    a value that is out of range, which occurs only after a restore to a narrower type.
    """
    if values.type == kind:
        return values
    if pa.types.is_float32(values.type) and pa.types.is_float64(kind):
        return values.cast(pa.string()).cast(kind)
    rounds = pa.types.is_integer(values.type) and pa.types.is_floating(kind)
    converted = values.cast(kind, safe=not rounds)
    if is_exact(kind, values.type) and not _all_equal(convert_values(converted, values.type), values):
        raise pa.ArrowInvalid(f"a value of type {values.type} cannot be converted exactly to {kind}")
    return converted


def _all_equal(left: A, right: A) -> bool:
    same = pc.equal(left, right)
    if pa.types.is_floating(left.type):
        same = pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return pc.all(same).as_py() is not False


def is_exact(old: pa.DataType, new: pa.DataType) -> bool:
    """Check whether a type change is exact.

    It is exact if `new` can represent every value of `old`. A float and a double are equal if they have the same
    shortest decimal string.
    """
    if pa.types.is_decimal(new):
        integer_digits = new.precision - new.scale
        if pa.types.is_decimal(old):
            return bool(new.scale >= old.scale and integer_digits >= old.precision - old.scale)
        return bool(pa.types.is_int32(old) and integer_digits >= 10 or pa.types.is_int64(old) and integer_digits >= 19)
    return (str(old), str(new)) in _EXACT


_EXACT = {
    ("int32", "int64"),
    ("int32", "double"),
    ("float", "double"),
    ("int32", "string"),
    ("int64", "string"),
}
_EXTERNAL = {
    ("int32", "float"),
    ("int64", "float"),
    ("int64", "double"),
    ("string", "binary"),
    ("binary", "string"),
    ("date32[day]", "string"),
}


def is_automatic_widening(old: pa.DataType, new: pa.DataType) -> bool:
    return is_exact(old, new) and not pa.types.is_string(new) and not pa.types.is_float32(old)


def is_readable_as(old: pa.DataType, new: pa.DataType) -> bool:
    """Check whether one type can be read as another.

    Some of these changes are only made by other engines. After a restore to a narrower type, values within its range
    can be read.
    """
    if old == new or is_exact(old, new) or is_exact(new, old) or (str(old), str(new)) in _EXTERNAL:
        return True
    if pa.types.is_decimal(old) and pa.types.is_string(new):
        return True
    both = pa.types.is_timestamp(old) and pa.types.is_timestamp(new) and bool(old.tz) == bool(new.tz)
    return both or pa.types.is_time(old) and pa.types.is_time(new)


def convert_bounds(low: Any, high: Any, old: pa.DataType, new: pa.DataType) -> tuple[Any, Any]:
    """Convert a minimum and maximum to another type.

    Both bounds are unknown after a conversion of numbers to strings, which changes the order, or to a narrower type.

    Args:
        low: The least value, in the form of `statistics.to_json`.
        high: The greatest value, in the form of `statistics.to_json`.
        old: The type of the bounds.
        new: The type to convert them to.
    """
    if old == new:
        return low, high
    if is_exact(new, old):
        return None, None
    if pa.types.is_string(new) or pa.types.is_binary(new) or pa.types.is_temporal(new):
        return None, None
    return _bound(low, old, new), _bound(high, old, new)


def _bound(value: Any, old: pa.DataType, new: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_decimal(new):
        return str(Decimal(value))
    if pa.types.is_floating(new):
        narrow = pa.types.is_float32(old)
        return float(str(np.float32(value))) if narrow else float(np.float32(value)) if _is_float(new) else float(value)
    return value


def _is_float(kind: pa.DataType) -> bool:
    return bool(pa.types.is_float32(kind))


__all__ = ["convert_values", "convert_bounds", "is_automatic_widening", "is_exact", "is_readable_as"]
