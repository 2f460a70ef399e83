"""Retyping, which converts values to another type exactly.

It implements `retype_column`. For example, a double with an integer value becomes an integer, and a string with a date
becomes a date. Numbers are compared by the rule for batches (`numbers`). A string must have the canonical form of the
value: '7' is a number, but '007', ' 7' and '7e0' are not.
"""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.convert import is_exact
from hoodoo.format.numbers import is_number, same

A = TypeVar("A", pa.Array, pa.ChunkedArray)
_INTEGER = r"^(0|-?[1-9][0-9]*)$"
_DECIMAL = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$"
_DATE = r"([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
_WIDE = pa.decimal256(76, 38)


def supports_type_change(old: pa.DataType, new: pa.DataType) -> bool:
    """Check whether `table.alter.retype_column` supports a type change.

    The change is supported if some values of both types are equal. `retype_values` checks the values themselves.
    """
    types = pa.types
    if old == new or is_exact(old, new):
        return True
    if is_number(old) and is_number(new):
        return True
    if types.is_string(old):
        return bool(is_number(new) or types.is_date32(new) or types.is_timestamp(new) or types.is_boolean(new))
    plain = [kind for kind in (old, new) if types.is_timestamp(kind) and not kind.tz]
    return len(plain) == 1 and any(types.is_date32(kind) for kind in (old, new))


def retype_values(values: A, kind: pa.DataType) -> A:
    """Retype values: convert them to another type exactly.

    Raises pa.ArrowInvalid if a value cannot be represented in the new type.
    """
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([_retyped(chunk, kind) for chunk in values.chunks], kind)
    return _retyped(values, kind)


def _retyped(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if values.type == kind:
        return values
    if is_number(values.type) and is_number(kind):
        return same(values, kind)
    if pa.types.is_string(values.type):
        return _of_text(values, kind)
    converted = values.cast(kind)
    _require(pc.equal(converted.cast(values.type), values))
    return converted


def _of_text(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    types = pa.types
    if types.is_boolean(kind):
        _require(pc.is_in(texts, value_set=pa.array(["true", "false", None])))
        return pc.equal(texts, "true")
    if types.is_integer(kind):
        _require(pc.match_substring_regex(texts, _INTEGER))
        return texts.cast(kind)
    if is_number(kind):
        _require(pc.match_substring_regex(texts, _DECIMAL))
        return same(texts.cast(_WIDE), kind)
    if types.is_date(kind):
        _require(pc.match_substring_regex(texts, f"^{_DATE}$"))
        return texts.cast(kind)
    zone = "(Z|[+-][0-9]{2}:?[0-9]{2})" if kind.tz else ""
    _require(pc.match_substring_regex(texts, f"^{_DATE}({_CLOCK}){'' if kind.tz else '?'}{zone}$"))
    return texts.cast(kind)


def _require(mask: pa.Array) -> None:
    if pc.all(mask, min_count=0).as_py() is False:
        raise pa.ArrowInvalid("a value cannot be represented exactly in this type")


__all__ = ["supports_type_change", "retype_values"]
