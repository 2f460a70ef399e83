"""Recovery of damaged log files.

The length of a record determines where the next record starts, so an unreadable record does not affect other records.
The key of an unreadable record can usually be read, because it precedes the table's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hoodoo.errors import CorruptTable
from hoodoo.format.avro.avro_type import AvroType, parse_record
from hoodoo.format.avro.decode import decode_spans
from hoodoo.format.log.block import (
    _AVRO,
    _DELETE,
    _INSTANT_TIME,
    _SCHEMA,
    DataBlock,
    DeleteBlock,
    RollbackBlock,
    _decode_frame,
    _Frame,
    _frames,
    _is_partial,
    _split_record_count,
)


@dataclass(frozen=True)
class UnreadableRecords:
    """Unreadable records of a damaged log file.

    Attributes:
        row: The index of the first unreadable record in the block, or None if it is unknown.
        count: Number of unreadable records, or 0 if it is unknown.
        why: The reason why the records cannot be read.
        known: The columns of the records that could be read, or None.
        deletes: True if the records are deletes.
    """

    row: int | None
    count: int
    why: str
    known: pa.Table | None = None
    deletes: bool = False


Found = DataBlock | DeleteBlock | RollbackBlock | UnreadableRecords
_Spans = tuple[np.ndarray, np.ndarray]


def read_damaged_log(
    data: bytes | memoryview, columns: Sequence[str], known: Sequence[Sequence[str]], strict: bool
) -> Iterator[tuple[int, Found]]:
    """Read a damaged log file.

    Yields its readable and its unreadable blocks. Results are in the order of the file, each with the index of its
    block.

    Args:
        data: The bytes of the log file.
        columns: The columns to read of each row.
        known: Alternative sets of columns to read if `columns` cannot be read. The first readable set is used.
        strict: As in `decode_log`.

    Raises:
        UnsupportedTable: The log contains a block that hoodoo does not support.
    """
    frames = _frames(memoryview(data).cast("B"), strict)
    number = 0
    while True:
        try:
            frame = next(frames)
        except StopIteration:
            return
        except CorruptTable as problem:
            yield number, UnreadableRecords(None, 0, problem.message)
            return
        for found in _read_block(frame, columns, known, strict):
            yield number, found
        number += 1


def _read_block(frame: _Frame, columns: Sequence[str], known: Sequence[Sequence[str]], strict: bool) -> Iterator[Found]:
    try:
        yield from _decode_frame(frame, columns, strict, False)
    except CorruptTable as problem:
        if frame.kind == _AVRO and _SCHEMA in frame.header and len(frame.content) >= 8:
            yield from _read_avro_records(frame, columns, known)
        else:
            yield UnreadableRecords(None, 0, problem.message, deletes=frame.kind == _DELETE)


def _read_avro_records(frame: _Frame, columns: Sequence[str], known: Sequence[Sequence[str]]) -> Iterator[Found]:
    count, content = _split_record_count(frame)
    record, raw = parse_record(frame.text(_SCHEMA)), np.frombuffer(content, np.uint8)
    starts, ends = _find_valid_records(raw, count)
    reasons: dict[int, str] = {}

    def read(low: int, high: int) -> pa.Table | None:
        try:
            return decode_spans(raw, starts[low:high], ends[low:high], record, columns)
        except CorruptTable as problem:
            reasons[low] = problem.message
            return None

    for low, high, rows in split_by_readability(len(starts), read):
        if rows is not None:
            yield DataBlock(frame.header.get(_INSTANT_TIME, ""), rows, _is_partial(frame))
        else:
            span = (starts[low:high], ends[low:high])
            yield UnreadableRecords(low, 1, reasons[low], _read_known(raw, span, record, known))
    if len(starts) < count:
        yield UnreadableRecords(
            len(starts), count - len(starts), "the lengths of the records do not match the length of the block."
        )


def split_by_readability(
    count: int, read: Callable[[int, int], pa.Table | None]
) -> Iterator[tuple[int, int, pa.Table | None]]:
    """Split records by readability: readable runs and unreadable records.

    Yields (start, end, rows) in order. `rows` is None for an unreadable record.
    """
    todo = [(0, count)] if count else []
    while todo:
        low, high = todo.pop()
        rows = read(low, high)
        if rows is not None or high - low == 1:
            yield low, high, rows
        else:
            middle = (low + high) // 2
            todo += [(middle, high), (low, middle)]


def _find_valid_records(raw: np.ndarray, count: int) -> _Spans:
    starts, ends, at = list[int](), list[int](), 0
    while len(starts) < count and at + 4 <= len(raw):
        length = int.from_bytes(raw[at : at + 4].tobytes(), "big", signed=True)
        if not 0 <= length <= len(raw) - at - 4:
            break
        starts.append(at + 4)
        at += 4 + length
        ends.append(at)
    return np.array(starts, np.int64), np.array(ends, np.int64)


def _read_known(raw: np.ndarray, span: _Spans, record: AvroType, known: Sequence[Sequence[str]]) -> pa.Table | None:
    for columns in known:
        try:
            rows = decode_spans(raw, *span, record, columns)
        except CorruptTable:
            continue
        if not rows.column(0).null_count:
            return rows
    return None
