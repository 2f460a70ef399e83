"""Values of a column whose type has changed, as the type that is asked for: one rule for data files, logs, statistics
and batches alike. Never a bare cast: Arrow's rounds between some types and refuses others.

A conversion of ours is exact; what only other engines allow is read as Apache Hudi's readers read it. Which change of
type a table may make is decided elsewhere (timeline/columns/alterations.py).
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

A = TypeVar("A", pa.Array, pa.ChunkedArray)


def convert(values: A, kind: pa.DataType) -> A:
    """`values`, of a flat type, as `kind`, for which `is_readable` holds.

    A float becomes the double with its shortest decimal text, so that 0.1 stays 0.1. Raises pa.ArrowInvalid for a value
    that does not fit, which occurs only where a type is the narrower one: a restore brings such types back.
    """
    if values.type == kind:
        return values
    if pa.types.is_float32(values.type) and pa.types.is_float64(kind):
        return values.cast(pa.string()).cast(kind)
    rounds = pa.types.is_integer(values.type) and pa.types.is_floating(kind)
    found = values.cast(kind, safe=not rounds)
    if is_exact(kind, values.type) and not _all_equal(convert(found, values.type), values):
        raise pa.ArrowInvalid(f"a value of type {values.type} cannot be converted exactly to {kind}")
    return found


def _all_equal(left: A, right: A) -> bool:
    same = pc.equal(left, right)
    if pa.types.is_floating(left.type):
        same = pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return pc.all(same).as_py() is not False


def is_exact(old: pa.DataType, new: pa.DataType) -> bool:
    """Tell whether every value of type `old` has one of type `new` that means the same.

    A column of a table may be widened from `old` to `new` where that is so. A float means its shortest decimal text.
    """
    if pa.types.is_decimal(new):
        whole = new.precision - new.scale
        if pa.types.is_decimal(old):
            return bool(new.scale >= old.scale and whole >= old.precision - old.scale)
        return bool(pa.types.is_int32(old) and whole >= 10 or pa.types.is_int64(old) and whole >= 19)
    return (str(old), str(new)) in _EXACT


_EXACT = {
    ("int32", "int64"),
    ("int32", "double"),
    ("float", "double"),
    ("int32", "string"),
    ("int64", "string"),
}
_FOREIGN = {
    ("int32", "float"),
    ("int64", "float"),
    ("int64", "double"),
    ("string", "binary"),
    ("binary", "string"),
    ("date32[day]", "string"),
}


def is_automatic(old: pa.DataType, new: pa.DataType) -> bool:
    """Tell whether a batch with values of type `new` widens a column of type `old` without being asked to.

    It does where the change is exact, no number becomes text, and no float becomes a double.
    """
    return is_exact(old, new) and not pa.types.is_string(new) and not pa.types.is_float32(old)


def is_readable(old: pa.DataType, new: pa.DataType) -> bool:
    """Tell whether values of type `old`, in a file, can be read as `new`.

    Some of these changes are made by other engines only. A restore may make a type narrower again; then each value
    that fits can be read.
    """
    if old == new or is_exact(old, new) or is_exact(new, old) or (str(old), str(new)) in _FOREIGN:
        return True
    if pa.types.is_decimal(old) and pa.types.is_string(new):
        return True
    both = pa.types.is_timestamp(old) and pa.types.is_timestamp(new) and bool(old.tz) == bool(new.tz)
    return both or pa.types.is_time(old) and pa.types.is_time(new)


def convert_bounds(low: Any, high: Any, old: pa.DataType, new: pa.DataType) -> tuple[Any, Any]:
    """Convert the bounds of a column of type `old` to bounds of the same values as type `new`.

    Both are None where they cannot be converted: texts of numbers have another order than the numbers, and bounds need
    not fit a narrower type.

    Args:
        low: The least value, as `statistics.to_json` writes it.
        high: The greatest value, likewise.
        old: The type that the bounds have.
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


__all__ = ["convert", "convert_bounds", "is_automatic", "is_exact", "is_readable"]
