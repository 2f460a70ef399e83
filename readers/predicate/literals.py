"""Conversion of literals to column types.

The literals are in `where` conditions. A value that would have to be rounded raises an error.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import pyarrow as pa

Kind = Literal["number", "text", "boolean", "binary", "date", "timestamp", "time"]


class LiteralText(NamedTuple):
    """Literal of a condition.

    The syntax determines the kind: `DATE '…'` is a date.
    """

    kind: Kind
    text: str


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d\d:\d\d(:\d\d(\.\d{1,6})?)?")
_TIMESTAMP = re.compile(
    rf"(?P<date>{_DATE.pattern})([ T](?P<time>{_TIME.pattern}))?(?P<zone> ?(Z|UTC|[+-]\d\d(:?\d\d)?))?"
)


def convert_literal(literal: LiteralText, type_: pa.DataType) -> Any:
    """Convert a literal to the type of its column.

    If the column has a time zone, the datetime is aware, and a timestamp without a zone is in UTC. A number for a float
    column need not be exact in binary, but the float must preserve all written digits.

    Raises ValueError. Its message continues a sentence that ends with "which".
    """
    types = pa.types
    if types.is_floating(type_):
        return _float(literal, type_)
    if types.is_integer(type_):
        value: Any = _integer(literal)
    elif types.is_decimal(type_):
        value = _number(literal)
    elif types.is_string(type_) or types.is_large_string(type_):
        value = _require_kind(literal, ("text",), f"is not a string; put strings in single quotes: '{literal.text}'")
    elif types.is_boolean(type_):
        value = _boolean(literal)
    elif types.is_binary(type_) or types.is_large_binary(type_):
        value = _binary(literal)
    elif types.is_date(type_):
        value = _date(literal)
    elif types.is_timestamp(type_):
        value = _timestamp(literal, type_)
    elif types.is_time(type_):
        value = _time(literal)
    else:
        raise ValueError("cannot be compared with a literal; only IS NULL works for such a column")
    return _require_lossless(value, type_)


def format_sql_constant(value: Any, type_: pa.DataType) -> str | None:
    """Format a literal as an SQL constant.

    Returns None if DuckDB itself converts the original literal to the same value.
    """
    types = pa.types
    if types.is_floating(type_):
        return f"CAST('{value!r}' AS {'DOUBLE' if type_.bit_width == 64 else 'FLOAT'})"
    if types.is_integer(type_):
        return str(value)
    if types.is_decimal(type_):
        return f"CAST('{value:f}' AS DECIMAL({type_.precision}, {type_.scale}))" if type_.precision <= 38 else None
    if types.is_boolean(type_):
        return "TRUE" if value else "FALSE"
    if types.is_date(type_):
        return f"CAST('{value.isoformat()}' AS DATE)"
    if types.is_timestamp(type_):
        return f"CAST('{value.isoformat(' ')}' AS {'TIMESTAMPTZ' if type_.tz else 'TIMESTAMP'})"
    return f"CAST('{value.isoformat()}' AS TIME)" if types.is_time(type_) else None


def _require_lossless(value: Any, type_: pa.DataType) -> Any:
    try:
        if (converted := pa.scalar(value, type_).as_py()) == value:
            return converted if isinstance(value, Decimal) else value  # a Decimal gets the column's scale
    except (pa.ArrowInvalid, OverflowError):
        pass
    raise ValueError("cannot be converted to that type without loss")


def _require_kind(literal: LiteralText, kinds: tuple[Kind, ...], reason: str) -> str:
    if literal.kind not in kinds:
        raise ValueError(reason)
    return literal.text


def _boolean(literal: LiteralText) -> bool:
    text = _require_kind(literal, ("boolean", "text"), "is neither TRUE nor FALSE").lower()
    if text not in ("true", "false"):
        raise ValueError("is neither TRUE nor FALSE")
    return text == "true"


def _number(literal: LiteralText) -> Decimal:
    text = _require_kind(literal, ("number", "text"), "is not a number")
    if not _NUMBER.fullmatch(text):
        raise ValueError("is not a number")
    return Decimal(text)


def _integer(literal: LiteralText) -> int:
    number = _number(literal)
    if number != number.to_integral_value():
        raise ValueError("is not an integer")
    return int(number)


def _float(literal: LiteralText, type_: pa.DataType) -> float:
    number = _number(literal)
    value = float(number)
    if type_.bit_width == 32 and math.isfinite(value):
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            value = math.inf
    digits = len(number.normalize().as_tuple().digits)
    if not math.isfinite(value) or Decimal(f"{value:.{digits - 1}e}") != number:
        raise ValueError("cannot be converted to that type without loss")
    return value


def _binary(literal: LiteralText) -> bytes:
    text = _require_kind(literal, ("binary",), "is not binary; write it as X'6162'")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ValueError("does not have two hex digits for each byte") from None


def _date(literal: LiteralText) -> dt.date:
    text = _require_kind(literal, ("text", "date"), "is not a date")
    if not _DATE.fullmatch(text):
        raise ValueError("is not a date like '2026-01-31'")
    return dt.date.fromisoformat(text)


def _time(literal: LiteralText) -> dt.time:
    text = _require_kind(literal, ("text", "time"), "is not a time")
    if not _TIME.fullmatch(text):
        raise ValueError("is not a time like '09:30:00'")
    return dt.time.fromisoformat(text)


def _timestamp(literal: LiteralText, type_: pa.DataType) -> dt.datetime:
    text = _require_kind(literal, ("text", "date", "timestamp"), "is not a timestamp")
    parts = _TIMESTAMP.fullmatch(text)
    if not parts:
        raise ValueError("is not a timestamp like '2026-01-31 09:30:00' with at most six decimals")
    moment = dt.datetime.fromisoformat(f"{parts['date']} {parts['time'] or '00:00'}")
    zone = (parts["zone"] or "").strip()
    if not type_.tz:
        if zone:
            raise ValueError("names a time zone, but the column has none")
        return moment
    offset = dt.datetime.fromisoformat("2000-01-01T00:00:00" + zone).tzinfo if zone not in ("", "Z", "UTC") else None
    return moment.replace(tzinfo=offset or dt.timezone.utc).astimezone(dt.timezone.utc)
