"""Codec for the blocks of Hudi's log files.

Lengths at the start and the end of each block make damage detectable. Other modules decide which instants are
committed, and which version of a row is current. Facts: docs/format.md, "Log files". The layout of a block, with all
numbers big-endian:

    6  magic #HUDI#
    8  length of all that follows
    4  format version 1
    4  type: 0 command, 1 delete, 2 corrupt, 3 Avro rows, 4 HFile, 5 Parquet rows, 6 change data
    .  header: int32 count, then int32 key, int32 length, UTF-8 text each
    8  content length, and the content
    .  footer, encoded as the header, empty
    8  distance from the magic to this field: length + 6
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from hoodoo.errors import ColumnError, CorruptTable, SchemaError, UnsupportedTable
from hoodoo.format.avro.codec import decode_records, encode_records
from hoodoo.format.avro.schema import avro_text, convert_to_arrow_schema
from hoodoo.format.log.delete import DeleteBlock, decode_deletes, encode_deletes, split_by_size, supports_ordering_type
from hoodoo.format.log.parquet_block import decode_parquet, encode_parquet
from hoodoo.format.names import META_COLUMNS
from hoodoo.format.position_bitmap import decode_positions, encode_positions
from hoodoo.format.resolve import NO_CHANGES

__all__ = [
    "DataBlock",
    "DeleteBlock",
    "RollbackBlock",
    "decode_log",
    "decode_logs",
    "encode_log",
    "iter_log",
    "rolled_back",
    "supports_ordering_type",
]

MAGIC = b"#HUDI#"
BLOCK_MAX = 8 << 20
"""Maximum size in bytes of the content of a written block with several records."""

BLOCK_READ_MAX = 1 << 30
"""Maximum size in bytes of the content of a block that can be read."""
_PARQUET_FROM = 32  # rows; fewer rows are smaller in Avro, and can be decoded together with those of other files
_SMALL = 1 << 18  # bytes of content; blocks up to this size are decoded together
_FORMAT, _DATA_VERSION, _ROLLBACK = 1, 3, "0"
_COMMAND, _DELETE, _CORRUPT, _AVRO, _HFILE, _PARQUET, _CDC = 0, 1, 2, 3, 4, 5, 6
_INSTANT_TIME, _TARGET_INSTANT_TIME, _SCHEMA, _COMMAND_TYPE, _POSITIONS, _IS_PARTIAL, _BASE_INSTANT = (
    0,
    1,
    2,
    3,
    5,
    7,
    8,
)
_ENTRIES_MAX = 64
# Maximum number of header entries in a block. Hudi defines nine keys.


@dataclass(frozen=True)
class DataBlock:
    """Block of rows in a log file.

    Attributes:
        instant: The instant that wrote the rows.
        rows: The rows.
        partial: True if the rows only contain the meta columns and the updated columns.
        positions: The position of each row in the base file. None if positions were not requested.
    """

    instant: str
    rows: pa.Table
    partial: bool
    positions: np.ndarray | None = None


@dataclass(frozen=True)
class RollbackBlock:
    """Rollback block of a log file.

    It makes readers ignore the blocks of the instant `target`. Only tables of version 6 have rollback blocks.
    """

    instant: str
    target: str


# ---------------------------------------------------------------- encode


def encode_log(
    instant: str,
    table_name: str,
    schema: pa.Schema,
    rows: pa.Table | None,
    deletes: Sequence[DeleteBlock] = (),
    positions: np.ndarray | None = None,
    base_instant: str = "",
    parquet: bool = False,
    blocks: Sequence[DataBlock] = (),
) -> bytes:
    """Encode a log file.

    It has blocks for `rows`, followed by the rows of `blocks` and then `deletes`. A block has at most 8 MiB, because a
    reader holds one block in memory.

    Args:
        instant: The instant that writes the file. The instants in `deletes` and `blocks` are ignored.
        table_name: The name of the table, for the Avro schema.
        schema: The schema of the table, with the five meta columns first.
        rows: Rows with the columns of `schema`.
        deletes: The deleted records.
        positions: The row positions of `rows` in the base file, ascending.
        base_instant: The instant of the base file that the positions refer to, or '' if some positions are unknown. The
            positions in `rows`, in each of `blocks` and in each of `deletes` must be ascending.
        parquet: True to write Parquet blocks. Fewer than 32 rows are still written in Avro, which is then smaller. With
            Parquet, string columns of `rows` may be dictionaries.
        blocks: Blocks with further rows. Partial blocks have the meta columns and the updated columns.

    Raises:
        SchemaError: `schema` does not begin with the meta columns.
        ColumnError: A row is too large to be read. `encode_records` and `encode_deletes` can raise further errors.
    """
    if tuple(schema.names[: len(META_COLUMNS)]) != META_COLUMNS:
        raise SchemaError(
            "Schema of a log file must begin with Hudi's five meta columns.", columns=schema.names[: len(META_COLUMNS)]
        )
    pieces: list[bytes | memoryview] = []

    def head(columns: pa.Schema) -> dict[int, str]:
        text = avro_text(table_name, pa.schema(list(columns)[len(META_COLUMNS) :]), meta=True)
        return {_SCHEMA: text, _INSTANT_TIME: instant} | ({_BASE_INSTANT: base_instant} if base_instant else {})

    def add(kind: int, header: dict[int, str], content: Sequence[bytes | memoryview], at: np.ndarray | None) -> None:
        positions_entry = {_POSITIONS: encode_positions(at)} if base_instant and at is not None else {}
        pieces.extend(_encode_block(kind, _header_bytes(header | positions_entry), content))

    def add_rows(block_rows: pa.Table, columns: pa.Schema, header: dict[int, str], at: np.ndarray | None) -> None:
        in_parquet = parquet and len(block_rows) >= _PARQUET_FROM
        contents = _parquet_contents if in_parquet else _avro_contents
        for begin, end, content in contents(block_rows, columns):
            add(_PARQUET if in_parquet else _AVRO, header, content, None if at is None else at[begin:end])

    full_header = head(schema)
    if rows is not None:
        add_rows(rows, schema, full_header, positions)
    for block in blocks:
        columns = pa.schema([field for field in schema if field.name in block.rows.schema.names])
        block_header = head(columns) | {_IS_PARTIAL: "true"} if block.partial else full_header
        add_rows(block.rows, columns if block.partial else schema, block_header, block.positions)
    for delete_block in deletes:
        for begin, end, deleted in encode_deletes(delete_block, BLOCK_MAX):
            add(
                _DELETE,
                full_header,
                [deleted],
                None if delete_block.positions is None else delete_block.positions[begin:end],
            )
    return b"".join(pieces)


_Contents = Iterator[tuple[int, int, list[bytes | memoryview]]]


def _avro_contents(rows: pa.Table, schema: pa.Schema) -> _Contents:
    plain = NO_CHANGES.to_requested_columns(rows, list(schema))
    data, offsets = encode_records(plain, schema)
    for begin, end in split_by_size(offsets, BLOCK_MAX):
        _require_readable(begin, 8 + int(offsets[end] - offsets[begin]))
        yield begin, end, [struct.pack(">ii", _DATA_VERSION, end - begin), data.data[offsets[begin] : offsets[end]]]


def _parquet_contents(rows: pa.Table, schema: pa.Schema) -> _Contents:
    for begin, end, content in encode_parquet(rows.select(schema.names), BLOCK_MAX):
        _require_readable(begin, len(content))
        yield begin, end, [memoryview(content)]


def _require_readable(row: int, size: int) -> None:
    if size > BLOCK_READ_MAX:
        raise ColumnError(
            f"Row {row} is too large for a log file: expected at most {BLOCK_READ_MAX} bytes, got {size}. Store large "
            "values in separate files, and their paths in the table.",
            row=row,
            bytes=size,
        )


def encode_change_block(instant: str, schema: str, count: int, records: bytes | memoryview) -> list[bytes | memoryview]:
    """Encode a log block of change data.

    Returns its bytes in pieces. The block contains `count` Avro records with the schema `schema` (Avro JSON). Each
    record in `records` is preceded by its length.
    """
    return _encode_block(
        _CDC,
        _header_bytes({_SCHEMA: schema, _INSTANT_TIME: instant}),
        [struct.pack(">ii", _DATA_VERSION, count), records],
    )


def encode_metadata_block(instant: str, schema: str, content: bytes) -> bytes:
    return b"".join(_encode_block(_HFILE, _header_bytes({_INSTANT_TIME: instant, _SCHEMA: schema}), [content]))


def _header_bytes(texts: dict[int, str]) -> bytes:
    coded = [(key, text.encode()) for key, text in texts.items()]
    return struct.pack(">i", len(coded)) + b"".join(struct.pack(">ii", key, len(text)) + text for key, text in coded)


def _encode_block(kind: int, header: bytes, content: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    size, footer = sum(map(len, content)), _header_bytes({})
    length = 8 + len(header) + 8 + size + len(footer) + 8
    head = MAGIC + struct.pack(">qii", length, _FORMAT, kind) + header + struct.pack(">q", size)
    return [head, *content, footer + struct.pack(">q", length + len(MAGIC))]


# ---------------------------------------------------------------- decode


def decode_log(
    data: bytes | memoryview,
    columns: Sequence[str] | None = None,
    max_block: int = BLOCK_READ_MAX,
    strict: bool = True,
    positions: bool = False,
) -> list[DataBlock | DeleteBlock | RollbackBlock]:
    """Decode the blocks of a log file.

    Blocks of change data are left out. A delete block may be returned as several blocks.

    Args:
        data: The bytes of the log file.
        columns: The columns of the rows to return, in this order, as in `decode_records`.
        max_block: The largest content of a block that may be read, in bytes.
        strict: True to raise CorruptTable for any damage. False to skip a block with damaged lengths, as Hudi's readers
            do. Damage inside a block with correct lengths still raises CorruptTable.
        positions: True to also return the position of each record in the base file (int64).

    Raises:
        CorruptTable: The file is damaged, or a block lacks positions although `positions` is True.
        UnsupportedTable: The file contains a block that hoodoo does not support, or a block of more than `max_block`
            bytes.
    """
    return list(iter_log(data, columns, max_block, strict, positions))


def iter_log(
    data: bytes | memoryview,
    columns: Sequence[str] | None = None,
    max_block: int = BLOCK_READ_MAX,
    strict: bool = True,
    positions: bool = False,
    counts: Callable[[str], bool] | None = None,
) -> Iterator[DataBlock | DeleteBlock | RollbackBlock]:
    """Yield the blocks of a log file.

    The other arguments are as in `decode_log`. `counts` returns whether to read the rows and deletes of an instant. If
    it is passed, commands are left out.
    """
    for frame in _frames(memoryview(data).cast("B"), strict):
        if counts and (frame.kind == _COMMAND or not counts(frame.header.get(_INSTANT_TIME, ""))):
            continue
        if len(frame.content) > max_block:
            raise UnsupportedTable(
                f"Log block is too large: expected at most {max_block} bytes, got {len(frame.content)}. Compact the "
                "table with Hudi."
            )
        yield from _decode_frame(frame, columns, strict, positions)


def decode_logs(
    files: Sequence[bytes | memoryview], columns: Sequence[str] | None = None, positions: bool = False
) -> list[DataBlock | DeleteBlock | RollbackBlock]:
    """Decode several undamaged log files at once.

    Small blocks with the same schema are decoded together, because the cost of a block is mostly a fixed cost per
    column. Consecutive blocks are returned as one block.
    """
    frames = [frame for data in files for frame in _frames(memoryview(data).cast("B"), True)]
    by_schema: dict[str, list[int]] = {}
    for number, frame in enumerate(frames):
        if frame.kind == _AVRO and 8 <= len(frame.content) <= _SMALL and not _is_partial(frame):
            by_schema.setdefault(frame.text(_SCHEMA), []).append(number)
    decoded: dict[int, _Blocks] = {}
    for schema, numbers in by_schema.items():
        heads = [struct.unpack_from(">ii", frames[number].content) for number in numbers]
        if any(version != _DATA_VERSION for version, _ in heads):
            continue  # _decode_frame raises for each of them below
        rows = decode_records(
            b"".join(frames[number].content[8:] for number in numbers),
            sum(count for _, count in heads),
            schema,
            columns,
        )
        counts = dict(zip(numbers, (count for _, count in heads), strict=True))
        begin = 0
        for run, count in _consecutive_runs(numbers, list(counts.values())):
            decoded |= dict.fromkeys(run, [])
            run_positions = [_row_positions(frames[number], counts[number]) for number in run] if positions else None
            instant, run_rows = frames[run[0]].text(_INSTANT_TIME), rows.slice(begin, count)
            decoded[run[0]] = [
                DataBlock(instant, run_rows, False, None if run_positions is None else np.concatenate(run_positions))
            ]
            begin += count
    return [
        block
        for number, frame in enumerate(frames)
        for block in (decoded[number] if number in decoded else _decode_frame(frame, columns, True, positions))
    ]


def _consecutive_runs(numbers: Sequence[int], counts: Sequence[int]) -> Iterator[tuple[list[int], int]]:
    run: list[int] = []
    total = 0
    for number, count in zip(numbers, counts, strict=True):
        if run and number != run[-1] + 1:
            yield run, total
            run, total = [], 0
        run.append(number)
        total += count
    if run:
        yield run, total


def yield_change_blocks(data: bytes | memoryview) -> Iterator[tuple[str, str, int, memoryview]]:
    """Yield the blocks of a change log.

    Yields instant, Avro schema, record count and records.

    Raises:
        CorruptTable: The file is damaged, or contains a block of another type.
        UnsupportedTable: hoodoo does not support the version of a block.
    """
    for frame in _frames(memoryview(data).cast("B"), True):
        if frame.kind != _CDC:
            raise CorruptTable(
                f"Change log contains a block of type {frame.kind}: expected type {_CDC}. Restore the file from a "
                "backup."
            )
        count, records = _split_record_count(frame)
        yield frame.text(_INSTANT_TIME), frame.text(_SCHEMA), count, records


@dataclass(frozen=True)
class _Frame:
    kind: int
    header: dict[int, str]
    content: memoryview
    end: int

    def text(self, key: int) -> str:
        if key not in self.header:
            raise CorruptTable(
                f"Log block of type {self.kind} lacks the header entry {key}. Restore the file from a backup."
            )
        return self.header[key]


class _InvalidBlock(Exception):
    pass


def _frames(data: memoryview, strict: bool) -> Iterator[_Frame]:
    at = 0
    while at < len(data):
        try:
            frame = _parse_block(data, at)
        except _InvalidBlock as e:
            if strict:
                raise CorruptTable(
                    f"Log file is damaged at byte {at} of {len(data)}: {e}. Restore it from a backup.", at=at
                ) from e
            at = _find_next_magic(data, at + 1)
            continue
        yield frame
        at = frame.end


def _find_next_magic(data: memoryview, start: int) -> int:
    # The search copies one window after another, because a memoryview lacks `find`.
    window = 1 << 20
    for first in range(start, len(data), window):
        offset = bytes(data[first : first + window + len(MAGIC) - 1]).find(MAGIC)
        if offset >= 0:
            return first + offset
    return len(data)


def _parse_block(data: memoryview, at: int) -> _Frame:
    reader = _FrameReader(data, at, len(data))
    if bytes(reader.take(len(MAGIC))) != MAGIC:
        raise _InvalidBlock("the block does not start with the bytes #HUDI#")
    length = reader.int64()
    if not 0 <= length <= len(data) - reader.at:
        raise _InvalidBlock(f"the block length {length} exceeds the file")
    reader.end = reader.at + length
    version, kind = reader.int32(), reader.int32()
    if version != _FORMAT:
        raise _InvalidBlock(f"the block has the format version {version}, expected {_FORMAT}")
    header = reader.entries()
    content = reader.take(reader.int64())
    reader.entries()
    pointer = reader.int64()
    if pointer != length + len(MAGIC) or reader.at != reader.end:
        raise _InvalidBlock("the block has different lengths at its start and at its end")
    return _Frame(kind, header, content, reader.end)


class _FrameReader:
    # Nothing is read beyond `end`.

    def __init__(self, data: memoryview, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def take(self, size: int) -> memoryview:
        if not 0 <= size <= self.end - self.at:
            raise _InvalidBlock(f"a length of {size} bytes at byte {self.at} exceeds the block")
        self.at += size
        return self.data[self.at - size : self.at]

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self.take(8), "big", signed=True)

    def entries(self) -> dict[int, str]:
        count = self.int32()
        if not 0 <= count <= _ENTRIES_MAX:
            raise _InvalidBlock(f"the block has an invalid number of header entries, {count}")
        try:
            return {self.int32(): str(self.take(self.int32()), "utf-8") for _ in range(count)}
        except UnicodeDecodeError as e:
            raise _InvalidBlock("a block header is not valid UTF-8") from e


_Blocks = Sequence[DataBlock | DeleteBlock | RollbackBlock]


def _decode_frame(frame: _Frame, columns: Sequence[str] | None, strict: bool, positions: bool) -> _Blocks:
    if frame.kind == _CDC or (frame.kind == _CORRUPT and not strict):
        return []  # change data repeats rows of other blocks; a block marked as corrupt contains no rows
    if frame.kind == _CORRUPT:
        raise CorruptTable(
            "Log file contains a block that its writer marked as corrupt. Restore the file from a backup."
        )
    if frame.kind not in _DECODERS:
        raise UnsupportedTable(
            f"Log file contains a block of the unsupported type {frame.kind}. Compact the table with Hudi."
        )
    if not positions:
        return _DECODERS[frame.kind](frame, columns)
    return _add_row_positions(frame, _DECODERS[frame.kind](frame, columns))


def _row_positions(frame: _Frame, count: int) -> np.ndarray:
    rows = decode_positions(frame.text(_POSITIONS))
    if len(rows) != count:
        raise CorruptTable(
            f"Log block has {len(rows)} row positions for {count} records. Restore the file from a backup."
        )
    return rows


def _add_row_positions(frame: _Frame, blocks: _Blocks) -> _Blocks:
    block = blocks[0] if len(blocks) == 1 else None
    if block is None or isinstance(block, RollbackBlock):
        raise CorruptTable(
            f"Log block of type {frame.kind} lacks the row positions of its records. Restore the file from a backup."
        )
    count = len(block.rows) if isinstance(block, DataBlock) else len(block.keys)
    return [replace(block, positions=_row_positions(frame, count))]


def _split_record_count(frame: _Frame) -> tuple[int, memoryview]:
    if len(frame.content) < 8:
        raise CorruptTable(
            f"Data block is truncated: expected at least 8 bytes, got {len(frame.content)}. Restore the file from a "
            "backup."
        )
    version, count = struct.unpack_from(">ii", frame.content)
    if version != _DATA_VERSION:
        raise UnsupportedTable(
            f"Data block has an unsupported version: expected {_DATA_VERSION}, got {version}. Upgrade hoodoo."
        )
    return count, frame.content[8:]


def _avro_rows(frame: _Frame, columns: Sequence[str] | None) -> _Blocks:
    count, records = _split_record_count(frame)
    rows = decode_records(records, count, frame.text(_SCHEMA), columns)
    return [DataBlock(frame.text(_INSTANT_TIME), rows, _is_partial(frame))]


def _parquet_rows(frame: _Frame, columns: Sequence[str] | None) -> _Blocks:
    schema = _schema_of(frame.text(_SCHEMA))
    try:
        rows = decode_parquet(frame.content, schema, columns)
    except (pa.ArrowException, OSError, ValueError) as e:
        raise CorruptTable(
            f"Parquet block of instant {frame.header.get(_INSTANT_TIME)} is damaged: {e}. Restore the file from a "
            "backup."
        ) from e
    return [DataBlock(frame.text(_INSTANT_TIME), rows, _is_partial(frame))]


@lru_cache(maxsize=64)
def _schema_of(text: str) -> pa.Schema:
    # Many log files have the same schema.
    return convert_to_arrow_schema(text)


def _is_partial(frame: _Frame) -> bool:
    return frame.header.get(_IS_PARTIAL, "").lower() == "true"


def _deletes(frame: _Frame, columns: Sequence[str] | None) -> _Blocks:
    return decode_deletes(frame.text(_INSTANT_TIME), frame.content)


def rolled_back(data: bytes | memoryview) -> frozenset[str]:
    commands = (frame for frame in _frames(memoryview(data).cast("B"), False) if frame.kind == _COMMAND)
    return frozenset(frame.text(_TARGET_INSTANT_TIME) for frame in commands)


def find_base_instants(data: bytes | memoryview) -> list[str]:
    """Find the instant of the base file to which each log block belongs.

    The base file is identified by its instant, which is '' for a block without one. Raises CorruptTable if the file is
    damaged.
    """
    return [frame.header.get(_BASE_INSTANT, "") for frame in _frames(memoryview(data).cast("B"), True)]


def _command(frame: _Frame, columns: Sequence[str] | None) -> _Blocks:
    if (command := frame.text(_COMMAND_TYPE)) != _ROLLBACK:
        raise UnsupportedTable(
            f"Log file contains the unsupported command {command[:20]!r}. Compact the table with Hudi."
        )
    return [RollbackBlock(frame.text(_INSTANT_TIME), frame.text(_TARGET_INSTANT_TIME))]


_DECODERS: dict[int, Callable[[_Frame, Sequence[str] | None], _Blocks]] = {
    _COMMAND: _command,
    _DELETE: _deletes,
    _AVRO: _avro_rows,
    _PARQUET: _parquet_rows,
}
