"""Conversion of Debezium values to column types.

Arrow's JSON reader reads a value in its encoding type (`json_type_of_column`): days, numbers of a unit, or strings.
`convert_event_values` then converts a whole column to the type of the table. If Arrow's reader rejects a value, such as
"NaN" for a float, `convert_json_value` converts single values to the encoding type.

Avro values have their own types, which include numbers that represent times. Values that JSON encodes differently
(decimals, bytes, numbers of another size) are converted if the value stays the same.

The schema in a message defines the meaning of a column (`ConnectColumn`). Without a schema, a time is in microseconds
if no other unit is possible. A decimal must then be a string, because as bytes, the same number has the same bytes with
every scale.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import ColumnError
from hoodoo.redact import printable
from hoodoo.sources.debezium_schemas import DECIMAL, UNITS, ConnectColumn

_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
SCALED = pa.struct([("scale", pa.int32()), ("value", pa.string())])
"""Encoding of a NUMERIC value without a fixed scale."""
FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_FIRST_MOMENT, _LAST_MOMENT = -62_135_596_800_000_000, 253_402_300_799_999_999
_INFINITIES = {"infinity": _LAST_MOMENT, "-infinity": _FIRST_MOMENT}
_INFINITE_TIMESTAMPS = {9_223_372_036_825_200_000: _LAST_MOMENT, -9_223_372_036_832_400_000: _FIRST_MOMENT}
# Infinite timestamps in microseconds, and the values that are stored for them. Tables store the years 1 to 9999, so an
# infinite timestamp becomes the first or the last moment of these years. Debezium sends words for timestamps with a
# zone.
HSTORE = pa.map_(pa.string(), pa.string())
"""Arrow type of PostgreSQL's hstore in Avro."""
_INFINITE_DATES = {(-622_191_236, -622_191_231): 2_932_896, (-625_821_274, -625_821_269): -719_162}
# Numbers that Debezium sends for an infinite date. The day overflows, and varies by one with the time zone of
# Debezium's process.
_TIMESTAMP_MS, _DAY_MS = 10**14, 86_400_000
# Limits for values in milliseconds: timestamps until the year 5138, and the milliseconds of a day. In microseconds, the
# same numbers are March 1973, and one and a half minutes after midnight.
_YEAR_9999_MS = (253_370_764_800_000, 253_402_300_799_999)
# The milliseconds of the year 9999, which stands for an open end. In microseconds, they are hours of January 1978.
_TINY = 1_000
# Numbers below this are times within a second of 1970, both in milliseconds and in microseconds.
_SCALE_MAX = 16_384
# No database has a larger scale of a decimal. Without a maximum, a few bytes could become an endless string.
UNFIT = (pa.ArrowException, ValueError, ArithmeticError, RecursionError)
"""Errors for a value that does not match its column.

A ColumnError, in contrast, concerns the whole column.
"""


def json_type_of_column(kind: pa.DataType) -> pa.DataType | None:
    """Return the type that a column has in Debezium's JSON.

    For example, the JSON value of a date is int32 (days). Returns None if Arrow's JSON reader cannot read such values.
    """
    if pa.types.is_timestamp(kind):
        return pa.string() if kind.tz else pa.int64()
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_time(kind):
        return pa.int64()
    if pa.types.is_decimal(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.string()
    if pa.types.is_list(kind):
        inner = json_type_of_column(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(kind):
        fields = [(field.name, json_type_of_column(field.type)) for field in kind]
        return None if any(inner is None for _, inner in fields) else pa.struct(fields)
    return None if pa.types.is_map(kind) else kind


# ---- a column
def convert_event_values(values: pa.Array, field: pa.Field, said: ConnectColumn | None) -> pa.Array:
    """Convert event values to the column type.

    Args:
        values: The values, in the type that `json_type_of_column` returns, or in an Avro type.
        field: The column of the table.
        said: The description of the column in the event's schema, or None.

    Returns:
        The values, in the column's type.

    Raises:
        ColumnError: The column is a decimal in bytes, and its scale is unknown.
        ArrowInvalid: A value does not match the type. The other errors of UNFIT mean the same.
    """
    kind = field.type
    if values.type != json_type_of_column(kind):
        values = _convert_avro_values(values, field, said)
        if values.type == kind:
            return values
    unit = UNITS.get(said.meaning) if said else None
    if pa.types.is_timestamp(kind):
        return _to_zoned_timestamps(values, kind) if kind.tz else _to_local_timestamps(values, unit, kind)
    if pa.types.is_date(kind):
        return _replace_infinite_dates(values).cast(kind)
    if pa.types.is_time(kind):
        unit = unit or _derive_unit(values, kind, _DAY_MS)
        if unit in ("s", "ms"):
            return values.cast(pa.int32()).cast(pa.time32(unit)).cast(kind)
        return values.cast(pa.time64(unit)).cast(kind)
    if pa.types.is_decimal(kind):
        return _convert_decimals(values, field, said)
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        decoded = [None if text is None else base64.b64decode(text, validate=True) for text in values.to_pylist()]
        return pa.array(decoded, kind)
    if pa.types.is_list(kind) and values.type != kind:
        return _convert_lists(values, field, said)
    if pa.types.is_struct(kind) and values.type != kind:
        parts = [
            convert_event_values(part, pa.field(f"{field.name}.{inner.name}", inner.type), None)
            for part, inner in zip(values.flatten(), kind, strict=True)
        ]
        return pa.StructArray.from_arrays(
            parts, fields=list(kind), mask=values.is_null() if values.null_count else None
        )
    if pa.types.is_string(kind) and said is not None and said.type == "bytes":
        if said.meaning != DECIMAL and values.null_count < len(values):
            raise pa.ArrowInvalid("the event contains bytes, but the column is not binary")
        return pa.array(
            [None if text is None else _decimal_text(text, said.scale) for text in values.to_pylist()], kind
        )
    return values.cast(kind)


def _convert_avro_values(values: pa.Array, field: pa.Field, said: ConnectColumn | None) -> pa.Array:
    # The result has the type of the table's column, or of its JSON encoding. Raises ArrowInvalid if the conversion
    # would change the value, such as from a number to a string.
    types, value_type, kind = pa.types, values.type, field.type
    if values.null_count == len(values):
        return pa.nulls(len(values), kind)
    if types.is_decimal(value_type):
        if types.is_decimal(kind):
            return values.cast(kind)
        if types.is_string(kind):
            return pa.array([None if value is None else format(value, "f") for value in values.to_pylist()], kind)
    elif types.is_binary(value_type) or types.is_fixed_size_binary(value_type):
        if types.is_binary(kind) or types.is_fixed_size_binary(kind):
            return values.cast(kind)
    elif types.is_integer(value_type) or types.is_floating(value_type):
        encoding_type = json_type_of_column(kind) or kind
        if types.is_floating(kind) or types.is_integer(value_type) and types.is_integer(encoding_type):
            return values.cast(encoding_type)
        if types.is_decimal(kind):
            return values.cast(pa.string())
    elif types.is_list(value_type) and types.is_list(kind):
        return _convert_lists(values, field, said)
    elif value_type == kind == HSTORE:
        return values
    elif types.is_struct(value_type):
        fields = {part.name: index for index, part in enumerate(value_type)}
        if fields.keys() == {"scale", "value"} and not types.is_struct(kind):
            return decimals_to_strings(values)
        if types.is_struct(kind):
            parts = [_convert_struct_field(values, inner, fields.get(inner.name), field.name) for inner in kind]
            mask = values.is_null() if values.null_count else None
            return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    raise pa.ArrowInvalid(f"the event contains values of type {value_type}, which does not match the column")


def _convert_struct_field(values: pa.Array, inner: pa.Field, index: int | None, name: str) -> pa.Array:
    # If the index is None, all values are null.
    if index is None:
        return pa.nulls(len(values), inner.type)
    return convert_event_values(pc.struct_field(values, [index]), pa.field(f"{name}.{inner.name}", inner.type), None)


def _convert_lists(values: pa.Array, field: pa.Field, said: ConnectColumn | None) -> pa.Array:
    kind = field.type
    inner = convert_event_values(values.flatten(), pa.field(field.name, kind.value_type), said.items if said else None)
    counts = pc.fill_null(pc.list_value_length(values), 0)
    ends = pc.cumulative_sum(pa.concat_arrays([pa.array([0], pa.int32()), counts.cast(pa.int32())]))
    return pa.ListArray.from_arrays(ends, inner, type=kind, mask=values.is_null() if values.null_count else None)


def _replace_infinite_dates(days: pa.Array) -> pa.Array:
    # Infinite dates become the first or the last day that tables support.
    for (first, last), limit in _INFINITE_DATES.items():
        is_infinite = pc.and_(pc.greater_equal(days, first), pc.less_equal(days, last))
        if pc.any(is_infinite).as_py():
            days = pc.if_else(is_infinite, pa.scalar(limit, days.type), days)
    return days


def _to_local_timestamps(numbers: pa.Array, unit: str | None, kind: pa.DataType) -> pa.Array:
    # If `unit` is None, it is derived from the numbers.
    given_unit, units = unit, {"s": 1_000_000, "ms": 1_000, "us": 1}
    unit = unit or _derive_unit(numbers, kind, _TIMESTAMP_MS)
    per_unit = units.get(unit, 1)
    for sent, limit in _INFINITE_TIMESTAMPS.items():
        for sent_per in {per_unit} if given_unit else {per_unit, 1_000}:
            is_infinite = pc.equal(numbers, sent // sent_per)
            if pc.any(is_infinite).as_py():
                limit = limit // 1_000 * 1_000 if kind.unit == "ms" else limit
                numbers = pc.if_else(is_infinite, limit // per_unit, numbers)
    return numbers.cast(pa.timestamp(unit)).cast(kind)


def _derive_unit(numbers: pa.Array, kind: pa.DataType, max_ms: int) -> str:
    # Microseconds are the default of PostgreSQL, but columns and connectors may use milliseconds. Numbers above
    # `max_ms` cannot be milliseconds. Raises ArrowInvalid if both units are possible.
    if kind.unit not in ("ms", "us"):
        return str(kind.unit)
    is_small = pc.and_(pc.less_equal(numbers, max_ms), pc.greater_equal(numbers, -max_ms))
    first, last = _YEAR_9999_MS
    is_small = pc.or_(is_small, pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last)))
    is_unsure = pc.and_(is_small, pc.or_(pc.greater_equal(numbers, _TINY), pc.less_equal(numbers, -_TINY)))
    if not pc.any(is_unsure).as_py():
        return "us"
    if kind.unit == "ms" and pc.all(is_small).as_py():
        return "ms"
    raise pa.ArrowInvalid(
        "Time unit is unknown, because the event has no schema: expected milliseconds or microseconds. Pass time_unit= "
        "to the source (--time-unit), such as time_unit={'COLUMN': 'ms'}, or send events with schemas "
        "(value.converter.schemas.enable=true, or Avro)."
    )


def _to_zoned_timestamps(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    # Infinity becomes the first or the last supported moment.
    moments = pa.timestamp("us", "UTC")
    is_infinite = pc.is_in(texts, value_set=pa.array(list(_INFINITIES)))
    if not pc.any(is_infinite).as_py():
        return texts.cast(kind)
    words = texts.filter(is_infinite).to_pylist()
    finite = pc.if_else(is_infinite, pa.scalar(None, pa.string()), texts).cast(moments)
    ends = pa.array([_INFINITIES[word] for word in words], moments)
    return pc.replace_with_mask(finite, is_infinite, ends).cast(kind, safe=False)


def _convert_decimals(texts: pa.Array, field: pa.Field, said: ConnectColumn | None) -> pa.Array:
    if said is not None and said.meaning == DECIMAL and said.type == "bytes":
        texts = pa.array([None if text is None else _decimal_text(text, said.scale) for text in texts.to_pylist()])
        return texts.cast(pa.string()).cast(field.type)
    try:
        return texts.cast(field.type)
    except pa.ArrowInvalid:
        if said is None and (sample := next((one for one in texts.to_pylist() if _is_base64(one)), None)):
            raise ColumnError(
                f"Column {field.name!r} is a decimal, but its values are sent as bytes, such as {printable(sample)}, "
                "without a schema that contains their scale. Set decimal.handling.mode=string in the connector, and "
                "read the topic into a new table, because some bytes look like numbers.",
                column=field.name,
            ) from None
        raise


def _is_base64(text: str | None) -> bool:
    # A base64 string that is not a number shows that a decimal was sent as bytes.
    if not text or text in FLOATS or not _BASE64.fullmatch(text):
        return False
    try:
        Decimal(text)
    except ArithmeticError:
        return True
    return False


def _decimal_text(content: str | bytes, scale: int) -> str:
    # The bytes are an integer without the scale. A string contains them in base64. Raises ValueError for an unsupported
    # scale or invalid base64.
    if abs(scale) > _SCALE_MAX:
        raise ValueError(f"Decimal has the unsupported scale {scale}")
    if isinstance(content, str):
        content = base64.b64decode(content, validate=True)
    number = int.from_bytes(content, "big", signed=True)
    with localcontext() as exact:
        exact.prec = max(28, len(content) * 3)
        return format(Decimal(number).scaleb(-scale), "f")


def decimals_to_strings(scaled: pa.Array) -> pa.Array:
    """Convert decimals with a scale to strings.

    The decimals have the type SCALED, and may also be bytes. Raises ValueError for an invalid value.
    """
    return pa.array(
        [
            None if value is None else _decimal_text(value["value"] or "", value["scale"] or 0)
            for value in scaled.to_pylist()
        ],
        pa.string(),
    )


# ---- a value
def is_scaled_decimal_object(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == {"scale", "value"}


def convert_json_value(value: Any, kind: pa.DataType) -> Any:
    """Convert a JSON value for a table column.

    Raises ValueError if the value does not match the type.
    """
    if value is None:
        return None
    types = pa.types
    if types.is_decimal(kind) or types.is_string(kind):
        if is_scaled_decimal_object(value):
            return _decimal_text(value["value"], int(value["scale"]))
        if types.is_decimal(kind) and isinstance(value, (int, Decimal)) and not isinstance(value, bool):
            return str(value)
    elif types.is_floating(kind):
        if isinstance(value, str) and value in FLOATS:
            return FLOATS[value]
        if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
            return float(value)
    elif types.is_boolean(kind):
        if isinstance(value, bool):
            return value
    elif types.is_list(kind):
        if isinstance(value, list):
            return [convert_json_value(element, kind.value_type) for element in value]
    elif types.is_struct(kind):
        if isinstance(value, dict):
            return {field.name: convert_json_value(value.get(field.name), field.type) for field in kind}
    elif types.is_integer(number := json_type_of_column(kind) or kind):
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if is_integer and -1 << number.bit_width - 1 <= value < 1 << number.bit_width - 1:
            return value
    if isinstance(value, str) and types.is_string(json_type_of_column(kind) or kind):
        value.encode()  # raises for an unpaired surrogate, which is valid in JSON
        return value
    raise ValueError(f"{printable(value)} is not a valid {kind}")


def find_unconvertible_values(
    values: pa.Array, field: pa.Field, said: ConnectColumn | None
) -> Sequence[tuple[int, str]]:
    """Find event values that cannot be converted.

    The arguments are as in `convert_event_values`. Returns the index of each such value, and the reason.
    """
    try:
        convert_event_values(values, field, said)
    except UNFIT as problem:
        if len(values) == 1:
            return [
                (
                    0,
                    f"Column {field.name!r}: {_printable(values)} is not a valid {field.type}: {_first_line(problem)}",
                )
            ]
        half = len(values) // 2
        after = find_unconvertible_values(values.slice(half), field, said)
        return [
            *find_unconvertible_values(values.slice(0, half), field, said),
            *((index + half, reason) for index, reason in after),
        ]
    return []


def _printable(values: pa.Array) -> str:
    try:
        return printable(values[0].as_py())
    except UnicodeDecodeError:  # Arrow's reader accepts bytes that are not UTF-8
        return "a value"


def _first_line(problem: BaseException) -> str:
    return str(problem).partition("\n")[0]


__all__ = [
    "FLOATS",
    "HSTORE",
    "SCALED",
    "UNFIT",
    "is_scaled_decimal_object",
    "convert_event_values",
    "convert_json_value",
    "json_type_of_column",
    "decimals_to_strings",
    "find_unconvertible_values",
]
