"""Encoder of Arrow columns to Avro records.

Each field of a record becomes one or more binary arrays with one element per row. At the end, Arrow joins the arrays
row by row, so no Python code handles a single row. Nested values are encoded in the same way, from the inside out: the
items of all lists of a column are one long array, and the bytes of one list are a range of that array.

Every field is the union `["null", T]`, as in `avro_schema`. Source: Avro 1.12 specification, "Binary Encoding".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import SchemaError
from hoodoo.format.avro.schema import decimal_size_in_bytes
from hoodoo.format.avro.varint import encode_varints, encode_zigzag
from hoodoo.format.buffers import offsets_and_bytes
from hoodoo.format.rows import compact

_ROWS = 1 << 15
# Maximum number of rows encoded at a time, so that intermediate arrays stay in the CPU cache.
_BYTES = 1 << 26
# Maximum Arrow bytes encoded at a time. A bit may become two bytes, and a binary array is limited to 2 GiB.

_NULL, _VALUE = 0, 2  # branch 0 and 1, zigzagged


def encode_records(rows: pa.Table, schema: pa.Schema) -> tuple[np.ndarray, np.ndarray]:
    """Encode rows as Avro records.

    Returns the bytes and the start of each record. Each record is preceded by its length as a big-endian int32.

    Args:
        rows: The rows, with the columns of `schema`.
        schema: The fields in order, with types that `normalize_schema` returns.

    Raises:
        SchemaError: A column is missing or has another type.
    """
    rows = _require_columns(rows, schema)
    parts = [_encode_batch(piece) for batch in _batches(rows) for piece in _split_large_batch(batch)]
    buffers = [data for _, data in parts]
    ends = np.concatenate([np.zeros(1, np.int64), *[offsets[1:] for offsets, _ in parts]])
    first = 1
    for (offsets, _), base in zip(parts, np.cumsum([0, *map(len, buffers)]), strict=False):
        ends[first : first + len(offsets) - 1] += base
        first += len(offsets) - 1
    return (np.concatenate(buffers) if buffers else np.empty(0, np.uint8)), ends


def encode_columns(columns: list[pa.Array], prefixes: list[pa.Array] | None = None) -> pa.Array:
    """Encode columns as Avro fields.

    The result has one binary value per row. `prefixes` are binary arrays that precede the fields unchanged.
    """
    return _joined([*(prefixes or []), *(part for column in columns for part in _encode_column(column))])


def _require_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    existing = set(rows.column_names)
    if missing := [name for name in schema.names if name not in existing]:
        raise SchemaError(f"Columns {missing} are missing in the rows. Add them.", columns=missing)
    rows = rows.select(schema.names)
    for have, want in zip(rows.schema, schema, strict=True):
        if not have.type.equals(want.type):
            raise SchemaError(
                f"Column {want.name!r} has the wrong type: expected {want.type}, got {have.type}. Cast it first.",
                column=want.name,
            )
    return rows


def _batches(rows: pa.Table) -> list[pa.RecordBatch]:
    batches = rows.to_batches(max_chunksize=_ROWS)
    if len(batches) > 8 + 2 * (len(rows) // _ROWS):  # many small chunks: one copy costs less than many small batches
        batches = compact(rows).to_batches(max_chunksize=_ROWS)
    return [batch for batch in batches if batch.num_rows]


def _split_large_batch(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    if batch.num_rows < 2 or batch.nbytes <= _BYTES:
        return [batch]
    half = batch.num_rows // 2
    return _split_large_batch(batch.slice(0, half)) + _split_large_batch(batch.slice(half))


def _encode_batch(batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
    parts = [part for column in batch.columns for part in _encode_column(column)]
    sizes = np.sum([np.diff(offsets_and_bytes(part)[0]) for part in parts], axis=0)
    prefix = _binary_of_rows(sizes.astype(">i4").view(np.uint8).reshape(-1, 4))
    return offsets_and_bytes(_joined([prefix, *parts]))


# ---------------------------------------------------------------- binary arrays


def _binary(offsets: np.ndarray, data: np.ndarray | pa.Buffer) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _binary_of_rows(matrix: np.ndarray) -> pa.Array:
    count, width = matrix.shape
    return _binary(np.arange(count + 1) * width, np.ascontiguousarray(matrix))


def _ragged_binary(matrix: np.ndarray, widths: np.ndarray) -> pa.Array:
    # Element i is the first `widths[i]` bytes of row i of `matrix` (uint8[n, w]).
    columns = matrix.shape[1]
    if (widths == columns).all():
        return _binary_of_rows(matrix)
    return _binary(_offsets(widths), matrix[np.arange(columns) < widths[:, None]])


def _offsets(widths: np.ndarray) -> np.ndarray:
    offsets = np.zeros(len(widths) + 1, np.int64)
    np.cumsum(widths, out=offsets[1:])
    return offsets


def _joined(parts: list[pa.Array]) -> pa.Array:
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"")


def _expand_nulls(dense: pa.Array, valid: np.ndarray | None) -> pa.Array:
    # Null rows get an empty element.
    if valid is None:
        return dense
    offsets, data = offsets_and_bytes(dense)
    return _binary(offsets[_offsets(valid)], data)


# ---------------------------------------------------------------- one field


def _encode_column(column: pa.Array) -> list[pa.Array]:
    kind = column.type
    valid = None if column.null_count == 0 else column.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _encode_strings(column, valid)
    if pa.types.is_list(kind):
        return _encode_lists(column, valid)
    if pa.types.is_map(kind):
        return _encode_maps(column, valid)
    if pa.types.is_struct(kind):
        return _encode_structs(column, valid)
    matrix, widths = _encode_scalars(column)
    return [_encode_with_branch(valid, matrix, widths)]


def _encode_with_branch(valid: np.ndarray | None, matrix: np.ndarray, widths: np.ndarray) -> pa.Array:
    encoded_rows = np.empty((len(matrix), matrix.shape[1] + 1), np.uint8)
    encoded_rows[:, 0] = _VALUE if valid is None else np.where(valid, _VALUE, _NULL)
    encoded_rows[:, 1:] = matrix
    return _ragged_binary(encoded_rows, widths + 1 if valid is None else np.where(valid, widths + 1, 1))


def _encode_scalars(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    # Returns the bytes as uint8[n, w], and the number of bytes used in each row (int64[n]).
    kind = column.type
    if kind in _INTEGERS:
        return encode_varints(encode_zigzag(_raw_values(column, _INTEGERS[kind]).astype(np.int64, copy=False)))
    if pa.types.is_boolean(kind):
        matrix = _raw_values(column.cast(pa.uint8()), "u1").reshape(-1, 1)
    elif pa.types.is_floating(kind) and kind.bit_width in (32, 64):
        width = kind.bit_width // 8
        matrix = _raw_values(column, f"<f{width}").view(np.uint8).reshape(-1, width)
    elif pa.types.is_decimal128(kind):
        matrix = (
            _raw_values(column, "V16")
            .view(np.uint8)
            .reshape(-1, 16)[:, : decimal_size_in_bytes(kind.precision)][:, ::-1]
        )
    else:
        raise SchemaError(f"Type {kind} is not supported in Avro. Cast the column first.", type=str(kind))
    return matrix, np.full(len(column), matrix.shape[1], np.int64)


_INTEGERS: dict[pa.DataType, str] = {
    **{kind: "<i4" for kind in (pa.int32(), pa.date32(), pa.time32("ms"))},
    **{kind: "<i8" for kind in (pa.int64(), pa.time64("us"))},
    **{pa.timestamp(unit, zone): "<i8" for unit in ("ms", "us") for zone in (None, "UTC")},
}


def _raw_values(column: pa.Array, dtype: str) -> np.ndarray:
    # The values of nulls are arbitrary.
    data = column.buffers()[1]
    if data is None or len(column) == 0:
        return np.zeros(len(column), dtype)
    width = np.dtype(dtype).itemsize
    return np.frombuffer(data, dtype, len(column), column.offset * width)


def _encode_strings(column: pa.Array, valid: np.ndarray | None) -> list[pa.Array]:
    offsets, data = offsets_and_bytes(column)
    sizes = np.diff(offsets)
    if valid is not None and sizes[~valid].any():
        dense = column.drop_null()
        column, sizes = _expand_nulls(dense, valid), np.where(valid, sizes, 0)
        offsets, data = offsets_and_bytes(column)
    matrix, widths = encode_varints(encode_zigzag(sizes))
    return [_encode_with_branch(valid, matrix, widths), _binary(offsets, data)]


def _encode_lists(column: pa.Array, valid: np.ndarray | None) -> list[pa.Array]:
    dense = column.drop_null()
    offsets = _list_offsets(dense)
    items = dense.values.slice(offsets[0], offsets[-1] - offsets[0])
    return _encode_blocks(encode_columns([items]), offsets - offsets[0], valid)


def _encode_maps(column: pa.Array, valid: np.ndarray | None) -> list[pa.Array]:
    dense = column.drop_null()
    offsets = _list_offsets(dense)
    first, count = offsets[0], offsets[-1] - offsets[0]
    keys, values = dense.keys.slice(first, count), dense.items.slice(first, count)
    key_offsets, key_bytes = offsets_and_bytes(keys)
    lengths = _ragged_binary(*encode_varints(encode_zigzag(np.diff(key_offsets))))
    return _encode_blocks(encode_columns([values], [lengths, _binary(key_offsets, key_bytes)]), offsets - first, valid)


def _list_offsets(lists: pa.Array) -> np.ndarray:
    if len(lists) == 0:
        return np.zeros(1, np.int64)
    return np.frombuffer(lists.buffers()[1], "<i4", len(lists) + 1, lists.offset * 4).astype(np.int64)


def _encode_blocks(items: pa.Array, ends: np.ndarray, valid: np.ndarray | None) -> list[pa.Array]:
    # `ends` (int64[lists + 1]) counts items. An empty list is only the end mark.
    item_offsets, data = offsets_and_bytes(items)
    counts = np.diff(ends)
    matrix, widths = encode_varints(encode_zigzag(counts))
    head = _expand_nulls(_ragged_binary(matrix, widths), valid)
    body = _expand_nulls(_binary(item_offsets[ends], data), valid)
    tail = _expand_nulls(_ragged_binary(np.zeros((len(counts), 1), np.uint8), (counts > 0).astype(np.int64)), valid)
    return [_branches(valid, len(head)), head, body, tail]


def _encode_structs(column: pa.Array, valid: np.ndarray | None) -> list[pa.Array]:
    dense = column.drop_null()
    if dense.type.num_fields == 0:
        raise SchemaError("Structs without fields are not supported in Avro. Drop the column.")
    body = encode_columns([dense.field(i) for i in range(dense.type.num_fields)])
    return [_branches(valid, len(column)), _expand_nulls(body, valid)]


def _branches(valid: np.ndarray | None, count: int) -> pa.Array:
    return _encode_with_branch(valid, np.empty((count, 0), np.uint8), np.zeros(count, np.int64))
