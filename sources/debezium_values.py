"""Values as Debezium spells them in JSON, or as Avro brings them, as values of a table's columns.

Arrow's JSON reader is asked for the type that a value is spelt in (`spelt`): days, numbers of a unit, texts. A whole
column of these is made what the table has (`meant`). What Arrow's reader refuses, such as "NaN" for a float, a value
made `plain` brings to the same types one by one.

Avro's values have types of their own, among them numbers that stand for times. Those that JSON spells otherwise
(decimals, bytes, numbers of another size) are made what the table has where that says the same.

What a schema in the message says of a column counts (`Said`). Without one a time is in
microseconds where it can be nothing else, and a decimal is text: in bytes, 12345 at scale 2 and at scale 4 look the
same. Knows neither messages nor tables.
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
from hoodoo.sources.debezium_schemas import DECIMAL, UNITS, Said

_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
SCALED = pa.struct([("scale", pa.int32()), ("value", pa.string())])
"""How a NUMERIC is spelt that has no scale of its own."""
FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_NEVER, _ALWAYS = -62_135_596_800_000_000, 253_402_300_799_999_999
_INFINITIES = {"infinity": _ALWAYS, "-infinity": _NEVER}
_ENDLESS = {9_223_372_036_825_200_000: _ALWAYS, -9_223_372_036_832_400_000: _NEVER}
"""In microseconds: tables hold the years 1 to 9999, and infinity is the last moment of these, or the first. Debezium
sends the words for timestamps with a zone, and such numbers for others.
"""
HSTORE = pa.map_(pa.string(), pa.string())
"""PostgreSQL's hstore as Avro has it."""
_ENDLESS_DAYS = {(-622_191_236, -622_191_231): 2_932_896, (-625_821_274, -625_821_269): -719_162}
"""What Debezium sends for an infinite date: the day overflows, and depends by one on the time zone of its process."""
_TIMESTAMP_MS, _DAY_MS = 10**14, 86_400_000
"""More milliseconds than timestamps have until the year 5138, and the milliseconds of a day. As microseconds that is
March 1973, and a minute and a half after midnight.
"""
_TINY = 1_000
"""Numbers nearer to zero are within a second of it in both units."""
_SCALE_MAX = 16_384
"""More than any database has: few bytes could stand for a text without end."""
UNFIT = (pa.ArrowException, ValueError, ArithmeticError, RecursionError)
"""How a value says that it is none of its column. A ColumnError is about the whole column."""


def spelt(kind: pa.DataType) -> pa.DataType | None:
    """Return the type in which values of a type are spelt in JSON; None where Arrow's reader cannot bring them."""
    if pa.types.is_timestamp(kind):
        return pa.string() if kind.tz else pa.int64()
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_time(kind):
        return pa.int64()
    if pa.types.is_decimal(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.string()
    if pa.types.is_list(kind):
        inner = spelt(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(kind):
        fields = [(field.name, spelt(field.type)) for field in kind]
        return None if any(inner is None for _, inner in fields) else pa.struct(fields)
    return None if pa.types.is_map(kind) else kind


# ---- a column
def meant(values: pa.Array, field: pa.Field, said: Said | None) -> pa.Array:
    """Make values what the table has.

    Args:
        values: They, in the type that `spelt` gives, or in one of Avro's.
        field: The column of the table.
        said: What a schema says of the column.

    Returns:
        The values, in the column's type.

    Raises:
        ColumnError: It is a decimal in bytes, and nothing says its scale.
        ArrowInvalid: A value is none of that type. Others of UNFIT say the same.
    """
    kind = field.type
    if values.type != spelt(kind):
        values = _of_its_type(values, field, said)
        if values.type == kind:
            return values
    unit = UNITS.get(said.meaning) if said else None
    if pa.types.is_timestamp(kind):
        return _zoned(values, kind) if kind.tz else _local(values, unit, kind)
    if pa.types.is_date(kind):
        return _dates(values).cast(kind)
    if pa.types.is_time(kind):
        unit = unit or _unit_of(values, kind, _DAY_MS)
        if unit in ("s", "ms"):
            return values.cast(pa.int32()).cast(pa.time32(unit)).cast(kind)
        return values.cast(pa.time64(unit)).cast(kind)
    if pa.types.is_decimal(kind):
        return _decimals(values, field, said)
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        decoded = [None if text is None else base64.b64decode(text, validate=True) for text in values.to_pylist()]
        return pa.array(decoded, kind)
    if pa.types.is_list(kind) and values.type != kind:
        return _lists(values, field, said)
    if pa.types.is_struct(kind) and values.type != kind:
        parts = [
            meant(part, pa.field(f"{field.name}.{inner.name}", inner.type), None)
            for part, inner in zip(values.flatten(), kind, strict=True)
        ]
        return pa.StructArray.from_arrays(
            parts, fields=list(kind), mask=values.is_null() if values.null_count else None
        )
    if pa.types.is_string(kind) and said is not None and said.meaning == DECIMAL and said.type == "bytes":
        return pa.array([None if text is None else _unscaled(text, said.scale) for text in values.to_pylist()], kind)
    return values.cast(kind)


def _of_its_type(values: pa.Array, field: pa.Field, said: Said | None) -> pa.Array:
    """Values of Avro as the column's type, or as JSON spells it. Raises ArrowInvalid where that would be another value,
    such as a number for a text.
    """
    types, own, kind = pa.types, values.type, field.type
    if values.null_count == len(values):
        return pa.nulls(len(values), kind)
    if types.is_decimal(own):
        if types.is_decimal(kind):
            return values.cast(kind)
        if types.is_string(kind):
            return pa.array([None if one is None else format(one, "f") for one in values.to_pylist()], kind)
    elif types.is_binary(own) or types.is_fixed_size_binary(own):
        if types.is_binary(kind) or types.is_fixed_size_binary(kind):
            return values.cast(kind)
    elif types.is_integer(own) or types.is_floating(own):
        spelling = spelt(kind) or kind
        if types.is_floating(kind) or types.is_integer(own) and types.is_integer(spelling):
            return values.cast(spelling)
        if types.is_decimal(kind):
            return values.cast(pa.string())
    elif types.is_list(own) and types.is_list(kind):
        return _lists(values, field, said)
    elif own == kind == HSTORE:
        return values
    elif types.is_struct(own):
        fields = {part.name: at for at, part in enumerate(own)}
        if fields.keys() == {"scale", "value"} and not types.is_struct(kind):
            return texts_of(values)
        if types.is_struct(kind):
            parts = [_part(values, inner, fields.get(inner.name), field.name) for inner in kind]
            mask = values.is_null() if values.null_count else None
            return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    raise pa.ArrowInvalid(f"it comes as {own}")


def _part(values: pa.Array, inner: pa.Field, at: int | None, name: str) -> pa.Array:
    """One field of structs."""
    if at is None:
        return pa.nulls(len(values), inner.type)
    return meant(pc.struct_field(values, [at]), pa.field(f"{name}.{inner.name}", inner.type), None)


def _lists(values: pa.Array, field: pa.Field, said: Said | None) -> pa.Array:
    kind = field.type
    inner = meant(values.flatten(), pa.field(field.name, kind.value_type), said.items if said else None)
    counts = pc.fill_null(pc.list_value_length(values), 0)
    ends = pc.cumulative_sum(pa.concat_arrays([pa.array([0], pa.int32()), counts.cast(pa.int32())]))
    return pa.ListArray.from_arrays(ends, inner, type=kind, mask=values.is_null() if values.null_count else None)


def _dates(days: pa.Array) -> pa.Array:
    """Days since 1970, with the last and the first day of tables for the infinities."""
    for (least, greatest), kept in _ENDLESS_DAYS.items():
        endless = pc.and_(pc.greater_equal(days, least), pc.less_equal(days, greatest))
        if pc.any(endless).as_py():
            days = pc.if_else(endless, pa.scalar(kept, days.type), days)
    return days


def _local(numbers: pa.Array, unit: str | None, kind: pa.DataType) -> pa.Array:
    """Times without a zone from numbers of a unit. None: the numbers have to show it."""
    known, units = unit, {"s": 1_000_000, "ms": 1_000, "us": 1}
    unit = unit or _unit_of(numbers, kind, _TIMESTAMP_MS)
    per = units.get(unit, 1)
    for sent, kept in _ENDLESS.items():
        for sent_per in {per} if known else {per, 1_000}:
            endless = pc.equal(numbers, sent // sent_per)
            if pc.any(endless).as_py():
                kept = kept // 1_000 * 1_000 if kind.unit == "ms" else kept
                numbers = pc.if_else(endless, kept // per, numbers)
    return numbers.cast(pa.timestamp(unit)).cast(kind)


def _unit_of(numbers: pa.Array, kind: pa.DataType, most_ms: int) -> str:
    """Tell the unit of numbers whose schema says none: microseconds, as PostgreSQL has them unless a column or a
    connector says milliseconds.

    Args:
        numbers: The numbers.
        kind: The type of the column.
        most_ms: Numbers up to this one may be milliseconds, and larger ones are not.

    Returns:
        The unit.

    Raises:
        ArrowInvalid: A number may be either.
    """
    if kind.unit not in ("ms", "us"):
        return str(kind.unit)
    small = pc.and_(pc.less_equal(numbers, most_ms), pc.greater_equal(numbers, -most_ms))
    unsure = pc.and_(small, pc.or_(pc.greater_equal(numbers, _TINY), pc.less_equal(numbers, -_TINY)))
    if not pc.any(unsure).as_py():
        return "us"
    if kind.unit == "ms" and pc.all(small).as_py():
        return "ms"
    raise pa.ArrowInvalid(
        "no schema tells whether it is in milliseconds or microseconds. Pass time_unit= to the source (--time-unit), "
        "such as time_unit={'COLUMN': 'ms'}, or send events with schemas (value.converter.schemas.enable=true, or "
        "Avro)."
    )


def _zoned(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Moments from ISO 8601, or from the words for what lies beyond all of them."""
    moments = pa.timestamp("us", "UTC")
    endless = pc.is_in(texts, value_set=pa.array(list(_INFINITIES)))
    if not pc.any(endless).as_py():
        return texts.cast(kind)
    words = texts.filter(endless).to_pylist()
    finite = pc.if_else(endless, pa.scalar(None, pa.string()), texts).cast(moments)
    ends = pa.array([_INFINITIES[word] for word in words], moments)
    return pc.replace_with_mask(finite, endless, ends).cast(kind, safe=False)


def _decimals(texts: pa.Array, field: pa.Field, said: Said | None) -> pa.Array:
    if said is not None and said.meaning == DECIMAL and said.type == "bytes":
        texts = pa.array([None if text is None else _unscaled(text, said.scale) for text in texts.to_pylist()])
        return texts.cast(pa.string()).cast(field.type)
    try:
        return texts.cast(field.type)
    except pa.ArrowInvalid:
        if said is None and (found := next((one for one in texts.to_pylist() if _is_bytes(one)), None)):
            raise ColumnError(
                f"Column {field.name!r} is a decimal, and its values come as bytes such as {printable(found)}, whose "
                "scale only a schema says. Set decimal.handling.mode=string of the connector, and take the topic into "
                "a new table: some bytes look like numbers.",
                column=field.name,
            ) from None
        raise


def _is_bytes(text: str | None) -> bool:
    """Is this no number, and base64?"""
    if not text or text in FLOATS or not _BASE64.fullmatch(text):
        return False
    try:
        Decimal(text)
    except ArithmeticError:
        return True
    return False


def _unscaled(content: str | bytes, scale: int) -> str:
    """The number of which these are the bytes, as text. Raises ValueError for a scale that no database has."""
    if abs(scale) > _SCALE_MAX:
        raise ValueError(f"a decimal has the scale {scale}")
    if isinstance(content, str):
        content = base64.b64decode(content, validate=True)
    number = int.from_bytes(content, "big", signed=True)
    with localcontext() as exact:
        exact.prec = max(28, len(content) * 3)
        return format(Decimal(number).scaleb(-scale), "f")


def texts_of(scaled: pa.Array) -> pa.Array:
    """Write decimals that say their own scale as decimals are spelt otherwise.

    Args:
        scaled: They, as SCALED; the value may also be the bytes.

    Returns:
        The numbers, as text.

    Raises:
        ValueError: One is none.
    """
    return pa.array(
        [None if one is None else _unscaled(one["value"] or "", one["scale"] or 0) for one in scaled.to_pylist()],
        pa.string(),
    )


# ---- a value
def is_scaled(value: object) -> bool:
    """Tell whether a value is a decimal that says its own scale.

    Args:
        value: The value, as Python reads JSON.

    Returns:
        True if it is.
    """
    return isinstance(value, dict) and value.keys() == {"scale", "value"}


def plain(value: Any, kind: pa.DataType) -> Any:
    """Make one value, as Python reads JSON, what `spelt` says of its type.

    Args:
        value: The value.
        kind: The type that the table has.

    Returns:
        The value.

    Raises:
        ValueError: It is none of that type.
    """
    if value is None:
        return None
    types = pa.types
    if types.is_decimal(kind) or types.is_string(kind):
        if is_scaled(value):
            return _unscaled(value["value"], int(value["scale"]))
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
            return [plain(one, kind.value_type) for one in value]
    elif types.is_struct(kind):
        if isinstance(value, dict):
            return {field.name: plain(value.get(field.name), field.type) for field in kind}
    elif types.is_integer(number := spelt(kind) or kind):
        whole = isinstance(value, int) and not isinstance(value, bool)
        if whole and -1 << number.bit_width - 1 <= value < 1 << number.bit_width - 1:
            return value
    if isinstance(value, str) and types.is_string(spelt(kind) or kind):
        value.encode()  # JSON can bring half a character, which is no text
        return value
    raise ValueError(f"{printable(value)} is no {kind}")


def unfit(values: pa.Array, field: pa.Field, said: Said | None) -> Sequence[tuple[int, str]]:
    """Find the values that are none of a column.

    Args:
        values: As `meant` takes them.
        field: The column of the table.
        said: What a schema says of the column.

    Returns:
        The position of each, and what is wrong with it.
    """
    try:
        meant(values, field, said)
    except UNFIT as problem:
        if len(values) == 1:
            return [(0, f"Column {field.name!r}: {_shown(values)} is not a valid {field.type}: {_line(problem)}")]
        half = len(values) // 2
        after = unfit(values.slice(half), field, said)
        return [*unfit(values.slice(0, half), field, said), *((at + half, why) for at, why in after)]
    return []


def _shown(values: pa.Array) -> str:
    try:
        return printable(values[0].as_py())
    except UnicodeDecodeError:  # Arrow's reader takes what is no UTF-8
        return "a value"


def _line(problem: BaseException) -> str:
    return str(problem).partition("\n")[0]


__all__ = ["FLOATS", "HSTORE", "SCALED", "UNFIT", "is_scaled", "meant", "plain", "spelt", "texts_of", "unfit"]
