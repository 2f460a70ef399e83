"""Decoder of nested Avro values.

fastavro receives a schema without logical types, because Python's dates and decimals have smaller ranges than Arrow's.
fastavro only receives the bytes of one record at a time, and each item has at least one byte (see `avro_type`). A wrong
item count therefore ends at the end of the record instead of in a long loop.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import count as counter
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.avro.avro_type import PLAIN, AvroType
from hoodoo.format.avro.values import MARGIN, UnreadableField, decode_decimals, number_present_rows, symbols


def read_nested(
    data: np.ndarray, at: np.ndarray, ends: np.ndarray, field: AvroType, wanted: bool = True
) -> tuple[pa.Array | None, np.ndarray]:
    """Decode a nested field of each Avro record.

    Returns the values and their sizes. The values start at `at` (int64[n]), and are not read past `ends` (int64[n]). If
    `wanted` is False, the returned values are None.

    Raises Damaged, or pa.ArrowInvalid for a value that is outside the range of its type.
    """
    schema = fastavro.parse_schema(_read_schema(field, counter(), inner=False))
    view = memoryview(data.data)
    values: list[Any] = []
    widths = np.empty(len(at), np.int64)
    for i, (begin, end) in enumerate(zip(at.tolist(), ends.tolist(), strict=True)):
        stream = io.BytesIO(view[begin:end])
        try:
            values.append(fastavro.schemaless_reader(stream, schema, None))
        except Exception as e:  # fastavro raises various errors, such as EOFError, IndexError and OverflowError
            raise UnreadableField(f"value {i} is truncated or invalid ({type(e).__name__})") from e
        widths[i] = stream.tell()
    return python_values_to_arrow(values, field) if wanted else None, widths


def schema_without_logical_types(field: AvroType, names: Iterator[int]) -> Any:
    return _read_schema(field, names)


def python_values_to_arrow(values: list[Any], field: AvroType) -> pa.Array:
    """Convert decoded Python values to Arrow.

    Raises Damaged, or pa.ArrowInvalid for a value that is outside the range of its type.
    """
    return _apply_logical_types(_physical_array(values, field), field)


def _physical_array(values: list[Any], field: AvroType) -> pa.Array:
    try:
        return pa.array(values, _read_type(field))
    except (OverflowError, TypeError, ValueError, MemoryError) as e:
        raise UnreadableField(f"{type(e).__name__}: {e}") from e


def _read_schema(field: AvroType, names: Iterator[int], inner: bool = True) -> Any:
    # A map is encoded like an array of key-value records. Reading it as an array keeps the order and repeated keys, as
    # Arrow does.
    plain = _physical_value(field, names)
    if field.null_at is None or not inner:
        return plain
    return ["null", plain] if field.null_at == 0 else [plain, "null"]


def _physical_value(field: AvroType, names: Iterator[int]) -> Any:
    if field.kind in ("array", "map"):
        item = _read_schema(field.children[0][1], names)
        if field.kind == "map":
            item = _record([("key", "string"), ("value", item)], names)
        return {"type": "array", "items": item}
    if field.kind == "record":
        return _record([(f"f{i}", _read_schema(child, names)) for i, (_, child) in enumerate(field.children)], names)
    if field.kind == "fixed":
        return {"type": "fixed", "name": f"t{next(names)}", "size": field.size}
    return "long" if field.kind == "enum" else field.kind


def _record(fields: list[tuple[str, Any]], names: Iterator[int]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": f"t{next(names)}",
        "fields": [{"name": name, "type": kind} for name, kind in fields],
    }


_STORAGE = PLAIN | {"fixed": pa.binary(), "enum": pa.int64()}


def _read_type(field: AvroType) -> pa.DataType:
    if field.kind == "array":
        return pa.list_(_read_type(field.children[0][1]))
    if field.kind == "map":
        return pa.list_(
            pa.struct(
                [
                    pa.field("key", pa.string(), nullable=False),
                    pa.field("value", _read_type(field.children[0][1])),
                ]
            )
        )
    if field.kind == "record":
        return pa.struct([pa.field(f"f{i}", _read_type(child)) for i, (_, child) in enumerate(field.children)])
    return _STORAGE[field.kind]


def _apply_logical_types(array: pa.Array, field: AvroType) -> pa.Array:
    if field.kind == "array":
        children = [_apply_logical_types(array.values, field.children[0][1])]
    elif field.kind == "map":
        entries = array.values
        pairs = [entries.field(0), _apply_logical_types(entries.field(1), field.children[0][1])]
        children = [pa.StructArray.from_arrays(pairs, fields=[field.arrow.key_field, field.arrow.item_field])]
    elif field.kind == "record":
        parts = array.flatten()  # flatten also sets null where the record is null
        children = [_apply_logical_types(part, child) for part, (_, child) in zip(parts, field.children, strict=True)]
    else:
        return _logical_scalar(array, field)
    own = array.buffers()[: 1 if field.kind == "record" else 2]
    return pa.Array.from_buffers(field.arrow, len(array), own, array.null_count, children=children)


def _logical_scalar(array: pa.Array, field: AvroType) -> pa.Array:
    if pa.types.is_decimal(field.arrow):
        return _nested_decimals(array, field)
    if field.kind == "enum":
        return symbols(field.symbols, array)
    if array.type == field.arrow:
        return array
    array = array.view(field.arrow)
    array.validate(full=True)
    return array


def _nested_decimals(array: pa.Array, field: AvroType) -> pa.Array:
    present = array.is_valid().to_numpy(zero_copy_only=False)
    dense = array.drop_null()
    margin = bytes(MARGIN)
    data = np.frombuffer(margin + b"".join(dense.to_pylist()) + margin, np.uint8)
    lengths = pc.binary_length(dense).to_numpy().astype(np.int64)
    begins = np.cumsum(lengths) - lengths + MARGIN
    return decode_decimals(field.arrow, data, begins, lengths).take(number_present_rows(present))
