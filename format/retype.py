"""Values of a column as a type that has not all of them, where each is exactly one of it: what `retype_column` makes of
them. A double that is whole is an integer, a text that says a date is that date.

Numbers are the same by the rule of batches (`numbers`). A text has to be written as the value would be, so that nobody
wonders what became of it: '7' is a number, '007', ' 7' and '7e0' are none. Knows arrays, no columns.
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


def is_retype(old: pa.DataType, new: pa.DataType) -> bool:
    """Tell whether values of type `old` may be exactly one of type `new`; which of them are, `retyped` tells."""
    types = pa.types
    if old == new or is_exact(old, new):
        return True
    if is_number(old) and is_number(new):
        return True
    if types.is_string(old):
        return bool(is_number(new) or types.is_date32(new) or types.is_timestamp(new) or types.is_boolean(new))
    plain = [kind for kind in (old, new) if types.is_timestamp(kind) and not kind.tz]
    return len(plain) == 1 and any(types.is_date32(kind) for kind in (old, new))


def retyped(values: A, kind: pa.DataType) -> A:
    """Return `values`, for whose type `is_retype` holds, as `kind`. Raises pa.ArrowInvalid where one of them is none of
    that type.
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
    found = values.cast(kind)
    _require(pc.equal(found.cast(values.type), values))
    return found


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
        raise pa.ArrowInvalid("a value cannot be converted exactly to this type")


__all__ = ["is_retype", "retyped"]
