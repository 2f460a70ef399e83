"""Decoder of Avro records to Arrow columns.

All records are read field by field: a cursor contains the position of each record's next field, and reading a field
advances all positions. The bytes are not trusted. A position is only used after it was compared with the end of its
record. Damage therefore raises CorruptTable, and time and memory are proportional to the input. Inner records are read
in the same way. Arrays and maps are read value by value with fastavro, with a validated schema.

Source: Avro 1.12 specification, "Binary Encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import CorruptTable
from hoodoo.format.avro.avro_type import AvroType, parse_record
from hoodoo.format.avro.nested import read_nested
from hoodoo.format.avro.values import (
    MARGIN,
    UnreadableField,
    create_fixed_width_array,
    decode_decimals,
    number_present_rows,
    require_all_true,
    symbols,
)
from hoodoo.format.avro.varint import LENGTH_MAX, decode_varints, decode_zigzag
from hoodoo.format.buffers import view_overlapping_values

_ROWS = 1 << 15
# Maximum number of records decoded at a time, so that the arrays of the cursor stay in the CPU cache.
_BYTES = 1 << 26
# Maximum bytes of records decoded at a time, unless a single record is larger.

Buffer = bytes | memoryview | np.ndarray


def decode_records(
    data: Buffer, count: int, writer: dict[str, Any] | str, columns: Sequence[str] | None = None
) -> pa.Table:
    """Decode Avro records to an Arrow table.

    Args:
        data: The records. Each record is preceded by its length as a big-endian int32.
        count: The number of records.
        writer: The schema of the records.
        columns: The fields to return, in this order. Fields that are not in the schema are left out. Fields after the
            last requested field are not read.

    Raises:
        CorruptTable: `data` does not contain `count` valid records.
        UnsupportedTable: hoodoo does not support the schema.
    """
    raw = np.frombuffer(data, np.uint8)
    return decode_spans(raw, *_find_records(raw, count), parse_record(writer), columns)


def decode_spans(
    raw: np.ndarray, starts: np.ndarray, ends: np.ndarray, record: AvroType, columns: Sequence[str] | None = None
) -> pa.Table:
    """Decode Avro records at known positions.

    `starts` and `ends` are positions in `raw` (int64[n] each, ascending, within it).
    """
    stored_fields = {name: (number, field) for number, (name, field) in enumerate(record.children)}
    names = list(stored_fields) if columns is None else [name for name in columns if name in stored_fields]
    last = max((stored_fields[name][0] for name in names), default=-1)
    schema = pa.schema([pa.field(name, stored_fields[name][1].arrow) for name in names])
    fields = record.children[: last + 1]
    batches = [
        _decode_batch(raw, starts[a:b], ends[a:b], fields, schema, last + 1 == len(record.children))
        for a, b in _batch_ranges(starts, ends)
    ]
    return pa.Table.from_batches(batches, schema)


def _find_records(raw: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    # The length of a record determines where the next record starts, so this loop runs in Python. It takes a tenth of
    # the decoding time.
    if not 0 <= count <= len(raw) // 4:
        raise CorruptTable(
            f"Log block is damaged: it has {len(raw)} bytes, too few for {count} records. Restore the file from a "
            "backup."
        )
    length_at, view, limit = struct.Struct(">i").unpack_from, memoryview(raw.data), len(raw)
    starts, at = [0] * count, 4
    try:
        for i in range(count):
            starts[i] = at
            length = length_at(view, at - 4)[0]
            if length < 0:
                raise CorruptTable(
                    f"Log block is damaged: record {i} has the length {length}. Restore the file from a backup."
                )
            at += length + 4
    except struct.error:
        at = limit + 5  # a length reached past the end
    if at - 4 != limit:
        raise CorruptTable(
            f"Log block is damaged: its {count} records end at byte {at - 4} of {limit}. Restore the file from a "
            "backup."
        )
    begin = np.array(starts, np.int64)
    return begin, np.concatenate([begin[1:] - 4, np.full(min(count, 1), limit)])


def _batch_ranges(starts: np.ndarray, ends: np.ndarray) -> Iterator[tuple[int, int]]:
    first, total = 0, len(starts)
    while first < total:
        fitting = int(np.searchsorted(ends, starts[first] + _BYTES, side="right"))
        last = min(max(fitting, first + 1), first + _ROWS, total)
        yield first, last
        first = last


def _decode_batch(
    raw: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    fields: Sequence[tuple[str, AvroType]],
    schema: pa.Schema,
    complete: bool,
) -> pa.RecordBatch:
    # `complete` is True if `fields` are all fields of the records, so that every record must end after them.
    cursor = _FieldCursor(raw[starts[0] : ends[-1]], starts - starts[0], ends - starts[0])
    arrays: dict[str, pa.Array] = {}
    names = set(schema.names)
    for name, field in fields:
        array = cursor.read(name, field, name in names)
        if array is not None:
            arrays[name] = array
    if complete and (cursor.at != cursor.ends).any():
        raise CorruptTable(
            "Log block is damaged: a record has bytes after its last field. Restore the file from a backup."
        )
    return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


class _FieldCursor:
    # `at` has the position of the next field in each record. `at[i] <= ends[i]` always holds.

    def __init__(self, records: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> None:
        margin = np.zeros(MARGIN, np.uint8)
        self.data = np.concatenate([margin, records, margin])
        self.words = view_overlapping_values(self.data, "<u8")
        self.at, self.ends = starts + MARGIN, ends + MARGIN

    def inner(self, at: np.ndarray, ends: np.ndarray) -> _FieldCursor:
        cursor = object.__new__(_FieldCursor)
        cursor.data, cursor.words, cursor.at, cursor.ends = self.data, self.words, at, ends
        return cursor

    def read(self, name: str, field: AvroType, wanted: bool) -> pa.Array | None:
        try:
            present = self._read_union_branches(field)
            at, ends = (self.at, self.ends) if present is None else (self.at[present], self.ends[present])
            values, widths = _READERS[field.kind](self, at, ends, field, wanted)
            self._advance(present, at, ends, widths)
            if wanted and values is not None:
                return values if present is None else values.take(number_present_rows(present))
            return None
        except pa.ArrowInvalid as e:
            raise CorruptTable(
                f"Field {name!r} of a log block has a value that is invalid for type {field.arrow}: {e}. Restore the "
                "file from a backup."
            ) from e
        except UnreadableField as e:
            raise CorruptTable(f"Field {name!r} of a log block is damaged: {e}. Restore the file from a backup.") from e

    def _read_union_branches(self, field: AvroType) -> np.ndarray | None:
        if field.null_at is None:
            return None
        branch = self.data[self.at]  # may be a byte past the end of the record, which the next line checks
        require_all_true((self.at < self.ends) & ((branch == 0) | (branch == 2)), "the union branch is neither 0 nor 1")
        self.at = self.at + 1
        present = branch == 2 * (1 - field.null_at)
        return None if present.all() else present

    def _advance(self, present: np.ndarray | None, at: np.ndarray, ends: np.ndarray, widths: np.ndarray) -> None:
        require_all_true(widths <= ends - at, "the value exceeds its record")
        if present is None:
            self.at = at + widths
        else:
            self.at[present] = at + widths

    def varints(self, at: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        coded, lengths = decode_varints(self.words, self.data, at)
        require_all_true((lengths <= LENGTH_MAX) & (lengths <= ends - at), "an integer does not end")
        return decode_zigzag(coded), lengths

    def lengths(self, at: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        lengths, widths = self.varints(at, ends)
        begins = at + widths
        require_all_true((lengths >= 0) & (lengths <= ends - begins), "the string exceeds its record")
        return begins, lengths

    def strings(self, begins: np.ndarray, lengths: np.ndarray) -> pa.Array:
        # One offset array contains the gaps and the strings alternately, and Arrow takes every second element.
        count = len(begins)
        offsets = np.empty(2 * count + 1, np.int64)
        offsets[0], offsets[1::2], offsets[2::2] = 0, begins, begins + lengths
        if len(self.data) < 1 << 31:
            kind, offsets = pa.binary(), offsets.astype(np.int32)
        else:
            kind = pa.large_binary()
        turns = pa.Array.from_buffers(kind, 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(self.data)])
        taken = pc.take(turns, pa.array(np.arange(1, 2 * count, 2)), boundscheck=False)
        return taken.cast(pa.binary())


# ---------------------------------------- one reader per Avro type: values (None if not wanted) and widths

_Read = tuple[pa.Array | None, np.ndarray]


def _boolean(cursor: _FieldCursor, at: np.ndarray, ends: np.ndarray, field: AvroType, wanted: bool) -> _Read:
    bits = cursor.data[at]
    require_all_true((bits <= 1) | (at == ends), "a boolean is neither 0 nor 1")
    return pa.array(bits.view(bool)) if wanted else None, np.ones(len(at), np.int64)


def _int(cursor: _FieldCursor, at: np.ndarray, ends: np.ndarray, field: AvroType, wanted: bool) -> _Read:
    numbers, widths = cursor.varints(at, ends)
    values = numbers.astype(np.int32)
    require_all_true(values == numbers, "an int has more than 32 bits")
    return create_fixed_width_array(field.arrow, values) if wanted else None, widths


def _long(cursor: _FieldCursor, at: np.ndarray, ends: np.ndarray, field: AvroType, wanted: bool) -> _Read:
    numbers, widths = cursor.varints(at, ends)
    return create_fixed_width_array(field.arrow, numbers) if wanted else None, widths


def _floating(cursor: _FieldCursor, at: np.ndarray, ends: np.ndarray, field: AvroType, wanted: bool) -> _Read:
    width = field.arrow.bit_width // 8
    widths = np.full(len(at), width, np.int64)
    if not wanted:
        return None, widths
    words = cursor.words[at]
    return create_fixed_width_array(field.arrow, words if width == 8 else words.astype(np.uint32)), widths


def _bytes(cursor: _FieldCursor, at: np.ndarray, ends: np.ndarray, field: AvroType, wanted: bool) -> _Read:
    begins, lengths = cursor.lengths(at, ends)
    widths = begins + lengths - at
    if not wanted:
        return None, widths
    if pa.types.is_decimal(field.arrow):
        return decode_decimals(field.arrow, cursor.data, begins, lengths), widths
    # to string: the cast fails for bytes that are not UTF-8
    return cursor.strings(begins, lengths).cast(field.arrow), widths


def _fixed(cursor: _FieldCursor, at: np.ndarray, ends: np.ndarray, field: AvroType, wanted: bool) -> _Read:
    lengths = np.full(len(at), field.size, np.int64)
    require_all_true(lengths <= ends - at, "the value exceeds its record")
    if not wanted:
        return None, lengths
    decimal = pa.types.is_decimal(field.arrow)
    return decode_decimals(field.arrow, cursor.data, at, lengths) if decimal else cursor.strings(at, lengths), lengths


def _enum(cursor: _FieldCursor, at: np.ndarray, ends: np.ndarray, field: AvroType, wanted: bool) -> _Read:
    numbers, widths = cursor.varints(at, ends)
    return symbols(field.symbols, pa.array(numbers)) if wanted else None, widths


def _record(cursor: _FieldCursor, at: np.ndarray, ends: np.ndarray, field: AvroType, wanted: bool) -> _Read:
    inside = cursor.inner(at, ends)
    columns = [inside.read(name, child, wanted) for name, child in field.children]
    return pa.StructArray.from_arrays(columns, fields=list(field.arrow)) if wanted else None, inside.at - at


def _nested(cursor: _FieldCursor, at: np.ndarray, ends: np.ndarray, field: AvroType, wanted: bool) -> _Read:
    return read_nested(cursor.data, at, ends, field, wanted)


_READERS: dict[str, Callable[[_FieldCursor, np.ndarray, np.ndarray, AvroType, bool], _Read]] = {
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _floating,
    "double": _floating,
    "string": _bytes,
    "bytes": _bytes,
    "fixed": _fixed,
    "enum": _enum,
    "array": _nested,
    "map": _nested,
    "record": _record,
}
