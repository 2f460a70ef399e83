"""Parameters of a condition.

An example is `$low` in `where="fare > $low"`. Values never become part of the text of the condition. The parsers insert
them into their trees as typed literals.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from hoodoo.arguments import is_utf8
from hoodoo.errors import OptionError, PredicateError
from hoodoo.format.sql_tokens import TOKEN
from hoodoo.readers.predicate import literals
from hoodoo.readers.predicate.literals import LiteralText
from hoodoo.readers.predicate.quoting import as_text
from hoodoo.redact import printable

_OPTION = "params"
_TYPES = "a str, int, float, bool, bytes, Decimal, date, datetime, time, UUID or None, or a list, tuple or set of these"


def validate_parameters(where: object, params: object, expressions: Collection[str] = ()) -> dict[str, Any]:
    """Validate the parameters of a condition.

    Returns a copy with values of plain Python types. Lists and sets become tuples. The result is empty if there are no
    parameters.

    Args:
        where: The condition that uses the parameters.
        params: The values by parameter name, or None.
        expressions: SQL expressions that may also use the parameters.

    Raises:
        OptionError: `params` is not a dict with supported values, contains an unused name, or belongs to a condition
            that is not a string.
        PredicateError: A parameter has no value.
    """
    if params is None and (not isinstance(where, str) or "$" not in where):
        return {}
    values = {} if params is None else params
    if not isinstance(values, Mapping):
        raise OptionError(
            f"Option params is invalid: expected a dict of values by name, such as {{'low': 3}}, got "
            f"{printable(values)}.",
            option=_OPTION,
        )
    for name in values:
        if not isinstance(name, str) or not name.isidentifier():
            raise OptionError(
                "Name of a parameter is invalid: expected a Python identifier, such as 'low' for $low, got "
                f"{printable(name)}.",
                option=_OPTION,
            )
    if values and not isinstance(where, str) and not expressions:
        raise OptionError(
            f"Option params requires a condition as a string, such as where='fare > $low', got {printable(where)}.",
            option=_OPTION,
        )
    texts = [text for text in (where, *(expressions if params is not None else ())) if isinstance(text, str)]
    used = dict.fromkeys(name for text in texts for name in _parameter_names(text))
    if missing := next((name for name in used if name not in values), None):
        raise PredicateError(
            f"Parameter ${missing} has no value: expected params={{{missing!r}: ...}}, got "
            f"{_format_names(values) or 'no parameters'}. Add the value to params, or put the text in single "
            "quotes if a string is meant.",
            where=str(where)[:1000],
            parameter=missing,
        )
    if unused := next((name for name in values if name not in used), None):
        raise OptionError(
            f"Option params contains {unused!r}, which no condition or expression uses: expected "
            f"{_format_names(used) or 'no parameters'}. Write ${unused} in the condition, outside quotes, or "
            "remove the value.",
            option=_OPTION,
            parameter=unused,
        )
    return {name: _to_plain_values(name, value) for name, value in values.items()}


def select_sql_expressions(values: object) -> list[str]:
    """Select the SQL expressions among new column values."""
    return [value for value in values.values() if isinstance(value, str)] if isinstance(values, Mapping) else []


def select_used_parameters(where: object, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Select the parameters that a condition uses."""
    names = set(_parameter_names(where)) if isinstance(where, str) else set()
    return {name: value for name, value in parameters.items() if name in names}


def _parameter_names(where: str) -> Iterator[str]:
    return (token[0][1:] for token in TOKEN.finditer(where) if token.lastgroup == "parameter")


def _format_names(names: Mapping[str, object]) -> str:
    return ", ".join(f"${name}" for name in names)


def _to_plain_values(name: str, value: object) -> Any:
    if isinstance(value, (list, tuple, set, frozenset)):
        return tuple(_to_plain_value(name, element) for element in value)
    return _to_plain_value(name, value)


def _to_plain_value(name: str, value: Any) -> Any:
    # Subclasses, such as enums and pandas timestamps, are converted too.
    if value is None or isinstance(value, (bool, UUID)):
        return value
    if isinstance(value, str):
        if not is_utf8(value):
            raise _invalid_value_error(name, value, "a string that can be encoded as UTF-8")
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if math.isnan(value):
            raise _invalid_value_error(name, value, "a number, because a comparison with NaN is never true")
        return float(value)
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise _invalid_value_error(name, value, "a finite number")
        return value
    if isinstance(value, dt.datetime):
        return _to_plain_datetime(name, value)
    if isinstance(value, dt.time) and value.tzinfo is not None:
        raise _invalid_value_error(name, value, "a time without a time zone")
    if isinstance(value, (bytes, dt.date, dt.time)):
        return value
    raise _invalid_value_error(name, value, _TYPES)


def _to_plain_datetime(name: str, value: Any) -> dt.datetime:
    # Raises OptionError for nanoseconds, for NaT, and for a time that is outside the years 1 to 9999 in UTC.
    if value != value or getattr(value, "nanosecond", 0):
        raise _invalid_value_error(name, value, "a time in microseconds, or None")
    try:
        moment = value.astimezone(dt.timezone.utc) if value.tzinfo is not None else value
    except OverflowError:
        raise _invalid_value_error(name, value, "a time in the years 1 to 9999 in UTC") from None
    return dt.datetime.combine(moment.date(), moment.time(), dt.timezone.utc if value.tzinfo is not None else None)


def _invalid_value_error(name: str, value: object, expected: str) -> OptionError:
    return OptionError(
        f"Parameter ${name} has an invalid value: expected {expected}, got {printable(value)}.",
        option=_OPTION,
        parameter=name,
    )


def parameter_to_literal(value: Any) -> LiteralText:
    match value:
        case bool():
            return LiteralText("boolean", "true" if value else "false")
        case int() | float() | Decimal():
            return LiteralText("number", str(value))
        case bytes():
            return LiteralText("binary", value.hex())
        case dt.datetime():
            return LiteralText("timestamp", value.isoformat(" "))
        case dt.date():
            return LiteralText("date", value.isoformat())
        case dt.time():
            return LiteralText("time", value.isoformat())
    return LiteralText("text", str(value))


def convert_parameter(value: Any, type_: pa.DataType) -> Any:
    """Convert a parameter to the type of its column.

    Raises ValueError. Its message continues a sentence that ends with "which".
    """
    if isinstance(value, float) and pa.types.is_floating(type_) and pa.scalar(value, type_).as_py() == value:
        return value
    try:
        return literals.convert_literal(parameter_to_literal(value), type_)
    except ValueError as problem:
        raise ValueError(str(problem).partition(";")[0]) from None  # the rest explains how to write a literal


def in_sql(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case Decimal():
            return format(value, "f") if abs(value.adjusted()) < 100 else str(value)
        case bytes():
            return f"from_hex('{value.hex()}')"
        case dt.datetime():
            return f"CAST('{value.isoformat(' ')}' AS {'TIMESTAMPTZ' if value.tzinfo else 'TIMESTAMP'})"
        case dt.date():
            return f"CAST('{value.isoformat()}' AS DATE)"
        case dt.time():
            return f"CAST('{value.isoformat()}' AS TIME)"
    parts = [as_text(part) for part in str(value).split("\0")]  # DuckDB's parser stops at a NUL character
    return parts[0] if len(parts) == 1 else f"({' || chr(0) || '.join(parts)})"


__all__ = ["validate_parameters", "convert_parameter", "in_sql", "parameter_to_literal"]
