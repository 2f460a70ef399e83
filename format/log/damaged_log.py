"""What can still be read of a log with damage in it, and what cannot: block by block, within a block record by record.

A block's lengths say where each record stands, so that a record that cannot be read costs itself only; its key can
mostly be read all the same, because it stands before the table's columns.
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
    _counted,
    _decode_frame,
    _Frame,
    _frames,
    _is_partial,
)


@dataclass(frozen=True)
class Unreadable:
    """Records of a block that cannot be read.

    row: the number of the first of them in its block, None where it is not known.
    count: how many they are, 0 where that is not known.
    why: why they cannot be read.
    known: of rows, the columns that could be read all the same.
    deletes: True where the records are deletes.
    """

    row: int | None
    count: int
    why: str
    known: pa.Table | None = None
    deletes: bool = False


Found = DataBlock | DeleteBlock | RollbackBlock | Unreadable
_Spans = tuple[np.ndarray, np.ndarray]


def read_what_is_sound(
    data: bytes | memoryview, columns: Sequence[str], known: Sequence[Sequence[str]], strict: bool
) -> Iterator[tuple[int, Found]]:
    """Number of its block, and what was found, in the order of the file.

    columns: those that a sound row must have; known: sets of columns to read of the others, the first that can be.
    strict: as for `decode_log`. Raises UnsupportedTable for what hoodoo does not read.
    """
    frames = _frames(memoryview(data).cast("B"), strict)
    number = 0
    while True:
        try:
            frame = next(frames)
        except StopIteration:
            return
        except CorruptTable as problem:
            yield number, Unreadable(None, 0, problem.message)
            return
        for found in _of_frame(frame, columns, known, strict):
            yield number, found
        number += 1


def _of_frame(frame: _Frame, columns: Sequence[str], known: Sequence[Sequence[str]], strict: bool) -> Iterator[Found]:
    try:
        yield from _decode_frame(frame, columns, strict, False)
    except CorruptTable as problem:
        if frame.kind == _AVRO and _SCHEMA in frame.header and len(frame.content) >= 8:
            yield from _records(frame, columns, known)
        else:
            yield Unreadable(None, 0, problem.message, deletes=frame.kind == _DELETE)


def _records(frame: _Frame, columns: Sequence[str], known: Sequence[Sequence[str]]) -> Iterator[Found]:
    """An Avro block, record by record where it must be."""
    count, content = _counted(frame)
    record, raw = parse_record(frame.text(_SCHEMA)), np.frombuffer(content, np.uint8)
    starts, ends = _walked(raw, count)
    reasons: dict[int, str] = {}

    def read(low: int, high: int) -> pa.Table | None:
        try:
            return decode_spans(raw, starts[low:high], ends[low:high], record, columns)
        except CorruptTable as problem:
            reasons[low] = problem.message
            return None

    for low, high, rows in sound_runs(len(starts), read):
        if rows is not None:
            yield DataBlock(frame.header.get(_INSTANT_TIME, ""), rows, _is_partial(frame))
        else:
            span = (starts[low:high], ends[low:high])
            yield Unreadable(low, 1, reasons[low], _known(raw, span, record, known))
    if len(starts) < count:
        yield Unreadable(len(starts), count - len(starts), "the lengths of the records do not fit the block.")


def sound_runs(count: int, read: Callable[[int, int], pa.Table | None]) -> Iterator[tuple[int, int, pa.Table | None]]:
    """`count` records in order, as long runs that can be read, and single ones that cannot (None)."""
    todo = [(0, count)] if count else []
    while todo:
        low, high = todo.pop()
        rows = read(low, high)
        if rows is not None or high - low == 1:
            yield low, high, rows
        else:
            middle = (low + high) // 2
            todo += [(middle, high), (low, middle)]


def _walked(raw: np.ndarray, count: int) -> _Spans:
    """Begins and ends of the records whose lengths lie within the block."""
    starts, ends, at = list[int](), list[int](), 0
    while len(starts) < count and at + 4 <= len(raw):
        length = int.from_bytes(raw[at : at + 4].tobytes(), "big", signed=True)
        if not 0 <= length <= len(raw) - at - 4:
            break
        starts.append(at + 4)
        at += 4 + length
        ends.append(at)
    return np.array(starts, np.int64), np.array(ends, np.int64)


def _known(raw: np.ndarray, span: _Spans, record: AvroType, known: Sequence[Sequence[str]]) -> pa.Table | None:
    for columns in known:
        try:
            rows = decode_spans(raw, *span, record, columns)
        except CorruptTable:
            continue
        if not rows.column(0).null_count:
            return rows
    return None
