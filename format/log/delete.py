"""Codec for deletes in log files.

A delete has a record key and its partition path. It may have an ordering value, in a small wrapper record that
determines the type of the value. In tables with several ordering columns, a delete has an array with one wrapper for
each column. A delete without a value, or with an IntWrapper of 0, deletes all earlier versions of the row. For every
Hudi reader, including hoodoo, the ordering value 0 of a single int32 column therefore makes a delete unconditional. An
ordered delete with that value must not be written to a log. A delete with an array is never unconditional.

Other modules decide what a delete does to rows. Facts: docs/format.md, "Log files" and "Deletes".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import CorruptTable, KeyValueError, OrderingError, UnsupportedTable
from hoodoo.format.avro.avro_type import AvroType, parse_record
from hoodoo.format.avro.decode import decode_spans
from hoodoo.format.avro.encode import encode_columns
from hoodoo.format.avro.values import UnreadableField
from hoodoo.format.avro.varint import encode_varints, encode_zigzag
from hoodoo.format.buffers import offsets_and_bytes

_VERSION = 3
_VALUE = "value"
_HEAD = struct.Struct(">ii")
_ROWS = 1 << 18
# Maximum number of deletes in one block. With keys of usual length, the block has about 16 MiB.
_SHAPES_MAX = 1000  # a null changes the shape, so n columns have up to 2^n shapes; undamaged deletes have few columns
_WRAPPED_DECIMAL = pa.decimal128(30, 15)

_INT, _BYTES, _DATE, _DECIMAL, _TIMESTAMP, _ARRAY, _LOCAL_DATE = 2, 6, 8, 9, 11, 12, 12
_BRANCHES: tuple[tuple[str, Any, pa.DataType], ...] = (
    ("BooleanWrapper", "boolean", pa.bool_()),
    ("IntWrapper", "int", pa.int32()),
    ("LongWrapper", "long", pa.int64()),
    ("FloatWrapper", "float", pa.float32()),
    ("DoubleWrapper", "double", pa.float64()),
    ("BytesWrapper", "bytes", pa.binary()),
    ("StringWrapper", "string", pa.string()),
    ("DateWrapper", {"type": "int", "logicalType": "date"}, pa.date32()),
    ("DecimalWrapper", {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}, _WRAPPED_DECIMAL),
    ("TimeMicrosWrapper", {"type": "long", "logicalType": "time-micros"}, pa.time64("us")),
    ("TimestampMicrosWrapper", {"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC")),
)
"""Branches 1 to 11 of the union `orderingVal`: the wrapper's name, and the type of its value in Avro and in Arrow.

Branch 0 is null. Branch 12 is an array of this union, for several ordering columns. Within the array, branch 12 is a
LocalDateWrapper, which is encoded like a DateWrapper.
"""

_VARINT, _SIZED = -1, -2
_WIDTHS = (0, 1, _VARINT, _VARINT, 4, 8, _SIZED, _SIZED, _VARINT, _SIZED, _VARINT, _VARINT)
# Size in bytes of a value of each branch, or the encoding of its size.

_WRITTEN: dict[pa.DataType, int] = {
    **{kind: branch for branch, (_, _, kind) in enumerate(_BRANCHES, 1) if branch not in (1, _BYTES, _DECIMAL, 10)},
    pa.timestamp("us"): _TIMESTAMP,
}
# Union branch that is written for each type of ordering column, except decimals.
_Shape: TypeAlias = "tuple[int, ...]"
# Structure of an array of ordering values: _VARINT for a count or size, or the union branch of a value.


@dataclass(frozen=True)
class DeleteBlock:
    """Block of deletes in a log file.

    Attributes:
        instant: The instant that deletes the keys.
        keys: The record keys, as strings.
        partitions: The partition path of each key.
        ordering: Empty if the deletes are unconditional. Otherwise one array for each ordering column. A row is deleted
            only if its ordering values are not greater than these. No value may be null in a block that is written.
        positions: The position of each key's row in the base file (int64), or None if positions are unknown.
    """

    instant: str
    keys: pa.Array
    partitions: pa.Array
    ordering: tuple[pa.Array, ...] = ()
    positions: np.ndarray | None = None


def supports_ordering_type(kind: pa.DataType) -> bool:
    """Check whether deletes in log files support an ordering type.

    Tests showed that Java and Rust readers apply the wrappers of these types.
    """
    return bool(kind in (pa.int32(), pa.int64(), pa.string()) or (pa.types.is_timestamp(kind) and kind.unit == "us"))


# ---------------------------------------------------------------- encode


def encode_deletes(block: DeleteBlock, limit: int) -> Iterator[tuple[int, int, bytes]]:
    """Encode deletes for a log file.

    Yields the content of each delete block with its range of records. A content has at most `limit` bytes, unless a
    single record is longer. All records of a content have ordering values of the same types.

    Raises:
        KeyValueError: A key or a partition path is null.
        OrderingError: An ordering value is null, or its type has no wrapper.
    """
    keys, partitions = _text(block.keys), _text(block.partitions)
    if keys.null_count or partitions.null_count:
        raise KeyValueError("Delete has a null record key or partition path, so it would delete nothing. Drop it.")
    for first in range(0, len(keys), _ROWS):
        ordering = [_contiguous(column).slice(first, _ROWS) for column in block.ordering]
        wrapped = _encode_ordering(ordering, len(keys.slice(first, _ROWS)))
        records = encode_columns([keys.slice(first, _ROWS), partitions.slice(first, _ROWS)]), wrapped
        offsets, data = offsets_and_bytes(pc.binary_join_element_wise(*records, b""))
        for begin, end in split_by_size(offsets, limit):
            yield first + begin, first + end, _content(end - begin, data.data[offsets[begin] : offsets[end]])


def split_by_size(offsets: np.ndarray, limit: int) -> Iterator[tuple[int, int]]:
    """Split encoded records by size.

    A range has at most `limit` bytes. `offsets` (int64[n + 1]) contains the start of each record and the end of the
    last one.
    """
    begin, total = 0, len(offsets) - 1
    while begin < total:
        end = max(int(np.searchsorted(offsets, offsets[begin] + limit, side="right")) - 1, begin + 1)
        yield begin, end
        begin = end


def _content(count: int, records: memoryview) -> bytes:
    matrix, _ = encode_varints(encode_zigzag(np.array([count])))
    avro = b"".join((matrix.tobytes(), records, b"\0"))
    return _HEAD.pack(_VERSION, len(avro)) + avro


def _contiguous(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _text(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return _contiguous(column).cast(pa.string())


def _encode_ordering(ordering: Sequence[pa.Array], count: int) -> pa.Array:
    if not ordering:
        return pa.array([b"\x04\x00"], pa.binary()).take(
            pa.array(np.zeros(count, np.int32))
        )  # IntWrapper(0), as Java writes it
    if len(ordering) == 1:
        return _encode_values(ordering[0], count)
    # Hudi does not unwrap a TimestampMicrosWrapper in an array, and writes a LongWrapper.
    values = [_encode_values(each.cast(pa.int64()) if _is_time(each.type) else each, count) for each in ordering]
    numbers, _ = encode_varints(encode_zigzag(np.array([_ARRAY, 1, len(values)])))
    head, end = pa.scalar(numbers.tobytes(), pa.binary()), pa.scalar(b"\0", pa.binary())
    return pc.binary_join_element_wise(head, *values, end, b"")


def _is_time(kind: pa.DataType) -> bool:
    return _WRITTEN.get(kind) == _TIMESTAMP


def _encode_values(ordering: pa.Array, count: int) -> pa.Array:
    if ordering.null_count or len(ordering) != count:
        raise OrderingError(
            f"Ordering value is null in {ordering.null_count} of {count} ordered deletes. Fill in the ordering column."
        )
    if pa.types.is_decimal(ordering.type):
        return _replace_branch(encode_columns([_to_java_decimals(ordering)]), _DECIMAL)
    if ordering.type not in _WRITTEN:
        raise OrderingError(
            f"Type {ordering.type} is not supported for ordering values in Hudi's delete blocks. Cast the ordering "
            "column.",
            type=str(ordering.type),
        )
    return _replace_branch(encode_columns([ordering]), _WRITTEN[ordering.type])


def _replace_branch(fields: pa.Array, branch: int) -> pa.Array:
    offsets, data = offsets_and_bytes(fields)
    data = data.copy()
    data[offsets[:-1]] = 2 * branch
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(fields), buffers)


def _to_java_decimals(ordering: pa.Array) -> pa.Array:
    try:
        scaled = ordering.cast(_WRAPPED_DECIMAL)
    except pa.ArrowInvalid as e:
        raise OrderingError(
            f"Ordering value exceeds the range of Hudi's delete blocks, decimal(30, 15): {e}. Use smaller values."
        ) from e
    raw = np.frombuffer(scaled.buffers()[1], np.uint8, len(scaled) * 16, scaled.offset * 16).reshape(-1, 16)[:, ::-1]
    sign = raw[:, :1] >> 7
    repeats = (raw[:, :-1] == sign * np.uint8(0xFF)) & (raw[:, 1:] >> 7 == sign)
    skipped = np.logical_and.accumulate(repeats, axis=1).sum(axis=1)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(16 - skipped)])
    data = raw[np.arange(16) >= skipped[:, None]]
    return pa.Array.from_buffers(
        pa.binary(), len(raw), [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    )


# ---------------------------------------------------------------- decode


def decode_deletes(instant: str, content: memoryview) -> list[DeleteBlock]:
    """Decode the deletes of a log file.

    Raises:
        CorruptTable: The bytes are damaged.
        UnsupportedTable: The content was written before Hudi 0.13.
    """
    if len(content) < _HEAD.size:
        raise CorruptTable(
            f"Delete block of instant {instant} is truncated: expected at least {_HEAD.size} bytes, got "
            f"{len(content)}. Restore the file from a backup."
        )
    version, length = _HEAD.unpack_from(content)
    if version in (1, 2):
        raise UnsupportedTable(
            f"Delete block of instant {instant} has the unsupported version {version}, from before Hudi 0.13. Compact "
            "the table with Hudi first."
        )
    if version != _VERSION or length != len(content) - _HEAD.size:
        raise CorruptTable(
            f"Delete block of instant {instant} is damaged: its header records version {version} and {length} bytes, "
            f"but it has {len(content) - _HEAD.size} bytes. Restore the file from a backup."
        )
    try:
        return _decode_by_kind(instant, content[_HEAD.size :])
    except UnreadableField as e:
        raise CorruptTable(f"Delete block of instant {instant} is damaged: {e}. Restore the file from a backup.") from e


class _RecordSpans(NamedTuple):
    # The kind of a record is the branch of the union `orderingVal`. For a record with several values, it is _ARRAY plus
    # the index of its shape in `shapes`.
    starts: list[int]
    ends: list[int]
    kinds: list[int]
    shapes: dict[_Shape, int]


def _find_records(avro: bytes) -> _RecordSpans:
    # The format does not store the lengths of records, so this loop finds them. The values are then read by column.
    # Each record has at least three bytes, so the loop ends at the end of the bytes even if a count is wrong.
    spans = _RecordSpans([], [], [], {})
    try:
        count, at = _read_varint(avro, 0)
        while count:
            if count < 0:
                # a negative count is followed by the size of the group in bytes
                _, at = _read_varint(avro, at)
            at = _find_block_records(avro, at, abs(count), spans)
            count, at = _read_varint(avro, at)
    except IndexError as e:
        raise UnreadableField("the block ends inside a record") from e
    if at != len(avro):
        raise UnreadableField("there are bytes after the last record")
    return spans


def _find_block_records(avro: bytes, at: int, count: int, spans: _RecordSpans) -> int:
    for _ in range(count):
        spans.starts.append(at)
        for _ in ("recordKey", "partitionPath"):
            if (
                avro[at] == 2 and (size := avro[at + 1]) < 0x80 and not size & 1
            ):  # a string of less than 64 bytes, the usual case
                at += 2 + (size >> 1)
            else:
                at = _skip_string(avro, at)
        kind, at = _read_varint(avro, at)
        if kind == _ARRAY:
            at, shape = _skip_ordering_array(avro, at)
            kind = spans.shapes.setdefault(shape, _ARRAY + len(spans.shapes))
        else:
            at = _skip_value(avro, at, kind)
        spans.kinds.append(kind)
        spans.ends.append(at)
    if at > len(avro):
        raise UnreadableField("the block ends inside a record")
    return at


def _read_varint(avro: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = avro[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
        if shift >= 70:
            raise UnreadableField("an integer does not end")


def _skip_sized(avro: bytes, at: int) -> int:
    size, at = _read_varint(avro, at)
    if size < 0:
        raise UnreadableField(f"a string has the negative length {size}")
    return at + size


def _skip_string(avro: bytes, at: int) -> int:
    branch, at = _read_varint(avro, at)
    if branch not in (0, 1):
        raise UnreadableField(f"a string has the unknown Avro type {branch}")
    return _skip_sized(avro, at) if branch else at


def _skip_value(avro: bytes, at: int, branch: int) -> int:
    if not 0 <= branch <= len(_BRANCHES):
        raise UnreadableField(f"an ordering value has the unknown Avro type {branch}")
    width = _WIDTHS[branch]
    if width >= 0:
        return at + width
    return _read_varint(avro, at)[1] if width == _VARINT else _skip_sized(avro, at)


def _skip_ordering_array(avro: bytes, at: int) -> tuple[int, _Shape]:
    # As in a list, each group of values is preceded by its count. The count 0 ends the array, and a negative count is
    # followed by a size in bytes.
    is_present, at = _read_varint(avro, at)
    if is_present != 1:
        raise UnreadableField("an array of ordering values is missing")
    shape = [_VARINT]
    count, at = _read_varint(avro, at)
    while count:
        if count < 0:
            _, at = _read_varint(avro, at)
            shape.append(_VARINT)
        for _ in range(abs(count)):
            branch, at = _read_varint(avro, at)
            at = _skip_value(avro, at, _DATE if branch == _LOCAL_DATE else branch)
            shape.append(branch)
        count, at = _read_varint(avro, at)
        shape.append(_VARINT)
    if not any(part >= 0 for part in shape):
        raise UnreadableField("an array of ordering values is empty")
    return at, tuple(shape)


def _decode_by_kind(instant: str, avro: memoryview) -> list[DeleteBlock]:
    spans = _find_records(bytes(avro))
    if len(spans.shapes) > _SHAPES_MAX:
        raise UnreadableField(f"the deletes have too many types of ordering values, {len(spans.shapes)}")
    raw, shapes = np.frombuffer(avro, np.uint8), list(spans.shapes)
    starts, ends, kinds = (np.array(part, np.int64) for part in spans[:3])
    blocks: list[DeleteBlock] = []
    for kind in dict.fromkeys(spans.kinds):
        shape = shapes[kind - _ARRAY] if kind >= _ARRAY else ()
        at, record = kinds == kind, _array_delete_type(shape) if shape else _RECORDS[kind]
        records = decode_spans(raw, starts[at], ends[at], record)
        if records["recordKey"].null_count:
            raise UnreadableField("a record lacks a key")
        blocks += (
            [_block(instant, records, _ordering_arrays(records, shape))]
            if shape
            else _branch_blocks(instant, kind, records)
        )
    return blocks


def _branch_blocks(instant: str, branch: int, records: pa.Table) -> list[DeleteBlock]:
    # Unconditional deletes get a separate block.
    if branch == 0:
        return [_block(instant, records)]
    if branch != _INT:
        return [_block(instant, records, (records[_VALUE].combine_chunks(),))]
    zero = pc.equal(records[_VALUE], 0)
    unconditional, ordered = records.filter(zero), records.filter(pc.invert(zero))
    blocks = [_block(instant, unconditional)] if len(unconditional) else []
    return [*blocks, _block(instant, ordered, (ordered[_VALUE].combine_chunks(),))] if len(ordered) else blocks


def _block(instant: str, records: pa.Table, ordering: tuple[pa.Array, ...] = ()) -> DeleteBlock:
    keys, partitions = records["recordKey"].combine_chunks(), records["partitionPath"].combine_chunks()
    return DeleteBlock(instant, keys, pc.fill_null(partitions, ""), ordering)


def _ordering_arrays(records: pa.Table, shape: _Shape) -> tuple[pa.Array, ...]:
    return tuple(
        records[f"{_VALUE}{at}"].combine_chunks() if part else pa.nulls(len(records))
        for at, part in enumerate(shape)
        if part != _VARINT
    )


def _delete_record_type(branch: int) -> AvroType:
    # The branch itself is read as an integer before the value.
    return _parse_delete_type({_VALUE: _BRANCHES[branch - 1][1]} if branch else {})


def _array_delete_type(shape: _Shape) -> AvroType:
    kinds: dict[str, Any] = {"there": "int"}
    for at, part in enumerate(shape):
        if part == _VARINT:
            kinds[f"number{at}"] = "long"
            continue
        kinds[f"branch{at}"] = "int"
        if part:
            kinds[f"{_VALUE}{at}"] = _BRANCHES[(_DATE if part == _LOCAL_DATE else part) - 1][1]
    return _parse_delete_type(kinds)


def _parse_delete_type(value: dict[str, Any]) -> AvroType:
    kinds = {"recordKey": ["null", "string"], "partitionPath": ["null", "string"], "branch": "int", **value}
    return parse_record(
        {"type": "record", "name": "delete", "fields": [{"name": name, "type": kind} for name, kind in kinds.items()]}
    )


_RECORDS = [_delete_record_type(branch) for branch in range(len(_BRANCHES) + 1)]
