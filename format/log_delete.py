"""Content of delete blocks: Hudi's HoodieDeleteRecordList, version 3.

A delete names a record key and its partition, and may carry an ordering value, wrapped in a small record that tells its type.
No value, or an IntWrapper of 0, deletes whatever came before. That makes an int32 ordering value of 0 unconditional for every Hudi reader,
ours included; who needs it ordered must not log it.

What a delete does to rows is decided elsewhere. Facts: docs/format.md, "Log files" and "Deletes".
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import CorruptTable, KeyValueError, OrderingError, UnsupportedTable
from hoodoo.format.avro_encode import encode_columns
from hoodoo.format.avro_values import MARGIN, Damaged, decimals
from hoodoo.format.avro_varint import encoded, zigzag
from hoodoo.format.buffers import byte_strings

_VERSION = 3
_HEAD = struct.Struct(">ii")
_ROWS = 1 << 18
"""Most deletes of one block: some 16 MiB of keys as they are common."""
_WRAPPED_DECIMAL = pa.decimal128(30, 15)

_INT, _BYTES, _DECIMAL, _ARRAY = 2, 6, 9, 12
_BRANCHES: tuple[tuple[str, str, pa.DataType], ...] = (
    ("BooleanWrapper", "boolean", pa.bool_()),
    ("IntWrapper", "int", pa.int32()),
    ("LongWrapper", "long", pa.int64()),
    ("FloatWrapper", "float", pa.float32()),
    ("DoubleWrapper", "double", pa.float64()),
    ("BytesWrapper", "bytes", pa.binary()),
    ("StringWrapper", "string", pa.string()),
    ("DateWrapper", "int", pa.date32()),
    ("DecimalWrapper", "bytes", _WRAPPED_DECIMAL),
    ("TimeMicrosWrapper", "long", pa.time64("us")),
    ("TimestampMicrosWrapper", "long", pa.timestamp("us", "UTC")),
)
"""Branches 1 to 11 of the union `orderingVal`: wrapper, Avro type of its value, Arrow type of its meaning. 0 is null, 12 several values."""

_WRITTEN: dict[pa.DataType, int] = {
    **{kind: branch for branch, (_, _, kind) in enumerate(_BRANCHES, 1) if branch not in (1, _BYTES, _DECIMAL, 10)},
    pa.timestamp("us"): 11,
}
"""Branch for each type of ordering column, decimals apart."""


@dataclass(frozen=True)
class DeleteBlock:
    """Keys that `instant` deletes: `keys` and `partitions` are string arrays of one length.

    `ordering` is None if they go unconditionally; else an array without nulls whose value a row must not exceed to be deleted.
    """

    instant: str
    keys: pa.Array
    partitions: pa.Array
    ordering: pa.Array | None


def loggable_ordering(kind: pa.DataType) -> bool:
    """Whether ordered deletes by a column of this type may go to a log: types whose wrapper Java and Rust readers were seen to honour."""
    return bool(kind in (pa.int32(), pa.int64(), pa.string()) or (pa.types.is_timestamp(kind) and kind.unit == "us"))


# ---------------------------------------------------------------- encode


def encode_deletes(block: DeleteBlock, limit: int) -> Iterator[bytes]:
    """Contents of as many delete blocks as `block` needs, none longer than `limit` bytes unless one record is.

    All records of a content share one branch of the union. Raises KeyValueError for a null key, OrderingError for an ordering value
    that is null or has no wrapper.
    """
    keys, partitions = _text(block.keys), _text(block.partitions)
    if keys.null_count or partitions.null_count:
        raise KeyValueError("A delete has a null record key or partition path; it would delete nothing. Drop it.")
    for first in range(0, len(keys), _ROWS):
        ordering = None if block.ordering is None else _contiguous(block.ordering).slice(first, _ROWS)
        wrapped = _wrapped(ordering, len(keys.slice(first, _ROWS)))
        records = encode_columns([keys.slice(first, _ROWS), partitions.slice(first, _ROWS)]), wrapped
        offsets, data = byte_strings(pc.binary_join_element_wise(*records, b""))
        for begin, end in ranges(offsets, limit):
            yield _content(end - begin, data.data[offsets[begin] : offsets[end]])


def ranges(offsets: np.ndarray, limit: int) -> Iterator[tuple[int, int]]:
    """Cut records at `offsets` (int64[n + 1]) into ranges of at most `limit` bytes, or one record."""
    begin, total = 0, len(offsets) - 1
    while begin < total:
        end = max(int(np.searchsorted(offsets, offsets[begin] + limit, side="right")) - 1, begin + 1)
        yield begin, end
        begin = end


def _content(count: int, records: memoryview) -> bytes:
    matrix, _ = encoded(zigzag(np.array([count])))
    avro = b"".join((matrix.tobytes(), records, b"\0"))
    return _HEAD.pack(_VERSION, len(avro)) + avro


def _contiguous(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _text(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return _contiguous(column).cast(pa.string())


def _wrapped(ordering: pa.Array | None, count: int) -> pa.Array:
    """The union `orderingVal` of each record as a binary array."""
    if ordering is None:
        return pa.array([b"\x04\x00"], pa.binary()).take(pa.array(np.zeros(count, np.int32)))  # IntWrapper(0), as Java writes it
    if ordering.null_count or len(ordering) != count:
        raise OrderingError(f"An ordered delete needs an ordering value for each of {count} keys; {ordering.null_count} are null.")
    if pa.types.is_decimal(ordering.type):
        return _rebranched(encode_columns([_minimal(ordering)]), _DECIMAL)
    if ordering.type not in _WRITTEN:
        raise OrderingError(f"Hudi's delete blocks have no wrapper for an ordering value of type {ordering.type}.", type=str(ordering.type))
    return _rebranched(encode_columns([ordering]), _WRITTEN[ordering.type])


def _rebranched(fields: pa.Array, branch: int) -> pa.Array:
    """Encoded fields of `["null", T]` with another branch in place of their first byte."""
    offsets, data = byte_strings(fields)
    data = data.copy()
    data[offsets[:-1]] = 2 * branch
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(fields), buffers)


def _minimal(ordering: pa.Array) -> pa.Array:
    """Decimals as binary: two's complement, big-endian, without the leading bytes that only repeat the sign, as Java's BigInteger has it."""
    try:
        scaled = ordering.cast(_WRAPPED_DECIMAL)
    except pa.ArrowInvalid as e:
        raise OrderingError(f"An ordering value does not fit Hudi's wrapper of decimals, which has 30 digits and a scale of 15: {e}") from e
    raw = np.frombuffer(scaled.buffers()[1], np.uint8, len(scaled) * 16, scaled.offset * 16).reshape(-1, 16)[:, ::-1]
    sign = raw[:, :1] >> 7
    repeats = (raw[:, :-1] == sign * np.uint8(0xFF)) & (raw[:, 1:] >> 7 == sign)
    skipped = np.logical_and.accumulate(repeats, axis=1).sum(axis=1)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(16 - skipped)])
    data = raw[np.arange(16) >= skipped[:, None]]
    return pa.Array.from_buffers(pa.binary(), len(raw), [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)])


# ---------------------------------------------------------------- decode


def decode_deletes(instant: str, content: memoryview) -> list[DeleteBlock]:
    """The deletes of one block, one DeleteBlock for each kind of ordering value in it.

    Raises CorruptTable for damaged bytes, UnsupportedTable for contents before Hudi 0.13 and for several ordering fields.
    """
    if len(content) < _HEAD.size:
        raise CorruptTable(f"A delete block of instant {instant} has {len(content)} bytes.")
    version, length = _HEAD.unpack_from(content)
    if version in (1, 2):
        raise UnsupportedTable(
            f"A delete block of instant {instant} has version {version}, written before Hudi 0.13. Compact the table with Hudi first."
        )
    if version != _VERSION or length != len(content) - _HEAD.size:
        raise CorruptTable(f"A delete block of instant {instant} claims version {version} and {length} bytes of {len(content) - _HEAD.size}.")
    return _grouped(instant, _records(instant, content[_HEAD.size :]))


def _records(instant: str, avro: memoryview) -> list[dict[str, Any]]:
    """fastavro reads the whole list at once. Each record takes three bytes or more, so a false count ends with the bytes."""
    stream = io.BytesIO(avro)
    try:
        whole: Any = fastavro.schemaless_reader(stream, _SCHEMA, None, return_record_name=True)
    except Exception as e:  # fastavro raises whatever Python raised: EOFError, IndexError, UnicodeDecodeError, ...
        raise CorruptTable(f"A delete block of instant {instant} is not a list of deletes: {type(e).__name__}.") from e
    if stream.tell() != len(avro):
        raise CorruptTable(f"A delete block of instant {instant} goes on after its last record.")
    return list(whole["deleteRecordList"])


def _grouped(instant: str, records: list[dict[str, Any]]) -> list[DeleteBlock]:
    groups: dict[int, list[tuple[str, str, Any]]] = {}
    for record in records:
        branch, value = _unwrapped(record["orderingVal"])
        if record["recordKey"] is None:
            raise CorruptTable(f"A delete block of instant {instant} has a record without a key.")
        groups.setdefault(branch, []).append((record["recordKey"], record["partitionPath"] or "", value))
    return [_block(instant, branch, *zip(*rows, strict=True)) for branch, rows in groups.items()]


def _unwrapped(ordering: tuple[str, dict[str, Any]] | None) -> tuple[int, Any]:
    """Branch and value; branch 0 for an unconditional delete."""
    if ordering is None:
        return 0, None
    branch = _BRANCH_OF[ordering[0]]
    if branch == _ARRAY:
        raise UnsupportedTable("A delete has several ordering values; hoodoo handles tables with one ordering field.")
    value = ordering[1]["value"]
    return (0, None) if branch == _INT and value == 0 else (branch, value)


def _block(instant: str, branch: int, keys: tuple[str, ...], partitions: tuple[str, ...], values: tuple[Any, ...]) -> DeleteBlock:
    try:
        ordering = _ordering(branch, values)
    except (pa.ArrowInvalid, Damaged, OverflowError) as e:
        raise CorruptTable(f"A delete block of instant {instant} has an impossible ordering value: {e}.") from e
    return DeleteBlock(instant, pa.array(keys, pa.string()), pa.array(partitions, pa.string()), ordering)


def _ordering(branch: int, values: tuple[Any, ...]) -> pa.Array | None:
    if branch == 0:
        return None
    _, avro, kind = _BRANCHES[branch - 1]
    if branch == _DECIMAL:
        return _decimal_values(values)
    array = pa.array(values, {"int": pa.int32(), "long": pa.int64()}.get(avro, kind)).view(kind)
    array.validate(full=True)
    return array


def _decimal_values(values: tuple[bytes, ...]) -> pa.Array:
    margin = bytes(MARGIN)
    lengths = np.array([len(value) for value in values], np.int64)
    data = np.frombuffer(margin + b"".join(values) + margin, np.uint8)
    return decimals(_WRAPPED_DECIMAL, data, np.cumsum(lengths) - lengths + MARGIN, lengths)


def _wrapper(name: str, value: Any, field: str = "value") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": value}]}


def _schema() -> Any:
    """HoodieDeleteRecordList without logical types: Python's dates and decimals hold less than Arrow's."""
    wrappers = [_wrapper(name, avro) for name, avro, _ in _BRANCHES]
    items = ["null", *(name for name, _, _ in _BRANCHES), _wrapper("LocalDateWrapper", "int")]
    several = _wrapper("ArrayWrapper", ["null", {"type": "array", "items": items}], "wrappedValues")
    kinds = {"recordKey": ["null", "string"], "partitionPath": ["null", "string"], "orderingVal": ["null", *wrappers, several]}
    record = {"type": "record", "name": "HoodieDeleteRecord", "fields": [{"name": name, "type": kind} for name, kind in kinds.items()]}
    whole = _wrapper("HoodieDeleteRecordList", {"type": "array", "items": record}, "deleteRecordList")
    return fastavro.parse_schema(whole | {"namespace": "org.apache.hudi.avro.model"})


_SCHEMA = _schema()
_BRANCH_OF = {f"org.apache.hudi.avro.model.{name}": branch for branch, (name, _, _) in enumerate(_BRANCHES, 1)}
_BRANCH_OF["org.apache.hudi.avro.model.ArrayWrapper"] = _ARRAY
