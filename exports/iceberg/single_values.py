"""Encoding of single values in Iceberg manifests.

The values are column bounds and partition values. Bounds are bytes, as in appendix D of the specification.
"""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa

from hoodoo.exports.iceberg.iceberg_schema import Json

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_MICROSECOND = dt.timedelta(microseconds=1)


def encode_bound(value: Any, kind: pa.DataType) -> bytes | None:
    """Encode a minimum or maximum for Iceberg.

    Returns None without a bound. `value` comes from a slot's statistics, where times are numbers and decimals are text.
    """
    types = pa.types
    if value is None:
        return None
    if types.is_boolean(kind):
        return b"\x01" if value else b"\x00"
    if types.is_int32(kind) or types.is_date(kind):
        return struct.pack("<i", value)
    if types.is_int64(kind) or types.is_timestamp(kind):
        return struct.pack("<q", value)
    if types.is_float32(kind) or types.is_float64(kind):
        return struct.pack("<f" if types.is_float32(kind) else "<d", value)
    if types.is_decimal(kind):
        return _decimal_bytes(Decimal(value), kind.scale)
    return str(value).encode() if types.is_string(kind) else None


def encode_partition_bound(value: Any, kind: pa.DataType) -> bytes | None:
    if isinstance(value, bytes):
        return value
    if isinstance(value, dt.datetime):
        return encode_bound((value - _EPOCH) // _MICROSECOND, kind)
    if isinstance(value, dt.date):
        return encode_bound((value - _EPOCH.date()).days, kind)
    return encode_bound(value, kind)


def partition_value_to_avro(value: Any) -> Any:
    if isinstance(value, dt.datetime) and value.tzinfo is None:
        return value.replace(tzinfo=dt.timezone.utc)
    return value


def avro_type_of_partition(kind: pa.DataType, number: int) -> Any:
    """Return the Avro type of a partition column.

    `number` is the id of the field, which is part of the name of a named type.
    """
    types = pa.types
    if types.is_decimal(kind):
        size = next(size for size in range(1, 17) if 10**kind.precision <= 1 << (8 * size - 1))
        decimal_type: Json = {"type": "fixed", "size": size, "name": f"decimal_{number}", "logicalType": "decimal"}
        return decimal_type | {"precision": kind.precision, "scale": kind.scale}
    if types.is_timestamp(kind):
        return {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": kind.tz is not None}
    if types.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    return _AVRO[kind]


_AVRO = {pa.bool_(): "boolean", pa.int32(): "int", pa.int64(): "long", pa.string(): "string", pa.binary(): "bytes"}


def _decimal_bytes(value: Decimal, scale: int) -> bytes:
    # The unscaled value has the fewest bytes of two's complement, big-endian, for any precision.
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits))) * 10 ** (exponent + scale) * (-1 if sign else 1)
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)
