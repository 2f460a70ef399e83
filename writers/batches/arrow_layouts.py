"""Conversion between Arrow layouts.

Each function converts one array to another layout. Values are not validated.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.nested_arrays import as_list, get_list_offsets

_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def is_list(kind: pa.DataType) -> bool:
    plain = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(plain or pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def is_packed(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind) or isinstance(kind, pa.BaseExtensionType)
    )


def packed_type(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind.value_type


def packed(array: pa.Array) -> pa.Array:
    if isinstance(array.type, pa.BaseExtensionType):
        return array.storage
    return array.dictionary if pa.types.is_dictionary(array.type) else array.values


def plain_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.UuidType):
        return pa.string()
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if _can_take(kind):
        return kind
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    return pa.list_(plain_type(kind.value_type)) if is_list(kind) else kind


def uuid_texts(array: pa.Array) -> pa.Array:
    storage = array.storage
    count, nulls = len(storage), storage.is_null() if storage.null_count else None
    if not count:
        return pa.array([], pa.string())
    values = np.frombuffer(storage.buffers()[1], np.uint8)[storage.offset * 16 :][: count * 16].reshape(count, 16)
    digits = _DIGITS[np.stack([values >> 4, values & 15], axis=2).reshape(count, 32)]
    texts = np.insert(digits, [8, 12, 16, 20], ord("-"), axis=1)
    fixed = pa.Array.from_buffers(pa.binary(36), count, [None, pa.py_buffer(np.ascontiguousarray(texts))])
    texts_array = fixed.cast(pa.binary()).cast(pa.string())
    return texts_array if nulls is None else pc.if_else(nulls, None, texts_array)


def unpacked(array: pa.Array) -> pa.Array:
    if isinstance(array.type, pa.BaseExtensionType):
        return array.storage
    if pa.types.is_run_end_encoded(array.type):
        first, count = array.find_physical_offset(), array.find_physical_length()
        run_ends = array.run_ends.to_numpy()[first : first + count].astype(np.int64) - array.offset
        lengths = np.diff(np.minimum(run_ends, len(array)), prepend=0)
        return _take_any_layout(array.values.slice(first, count), pa.array(np.repeat(np.arange(count), lengths)))
    bounds, values = pc.min_max(array.indices), array.dictionary
    if bounds["min"].as_py() is not None and not 0 <= bounds["min"].as_py() <= bounds["max"].as_py() < len(values):
        raise pa.ArrowInvalid("an index of an array is outside of its dictionary")
    return _take_any_layout(values, array.indices)


def _take_any_layout(values: pa.Array, positions: pa.Array) -> pa.Array:
    # Arrow cannot take some types, such as views.
    return values.take(positions) if _can_take(values.type) else _to_plain_layout(values).take(positions)


def _can_take(kind: pa.DataType) -> bool:
    if is_packed(kind) or pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return False
    return all(_can_take(kind.field(n).type) for n in range(kind.num_fields))


def _to_plain_layout(array: pa.Array) -> pa.Array:
    kind = array.type
    nulls = array.is_null() if array.null_count else None
    if is_packed(kind):
        return _to_plain_layout(unpacked(array))
    if pa.types.is_string_view(kind):
        return array.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return array.cast(pa.large_binary())
    if pa.types.is_struct(kind):
        parts = [_to_plain_layout(part) for part in array.flatten()]
        return pa.StructArray.from_arrays(parts, names=[kind.field(n).name for n in range(len(parts))], mask=nulls)
    if pa.types.is_map(kind):
        entries = as_list(array).flatten()
        return pa.MapArray.from_arrays(
            get_list_offsets(array, pa.int32()),
            _to_plain_layout(entries.field(0)),
            _to_plain_layout(entries.field(1)),
            mask=nulls,
        )
    if is_list(kind):
        return pa.LargeListArray.from_arrays(
            get_list_offsets(array, pa.int64()), _to_plain_layout(array.flatten()), mask=nulls
        )
    return array


__all__ = ["is_list", "is_packed", "packed", "packed_type", "plain_type", "unpacked", "uuid_texts"]
