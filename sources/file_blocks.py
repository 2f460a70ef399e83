"""Readers that split a file into blocks.

Memory holds only one block, so a file may be much larger than memory. A reader can begin at the offset where an earlier
reader stopped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import DataError
from hoodoo.writers.batches.avro_file import avro_batches
from hoodoo.writers.batches.row_files import opened_parquet

_RECORD_MAX = 64 << 20  # bytes of a line or a CSV record, if max_bytes is smaller
_BATCH_ROWS = 65_536
_TEXT = (pa.string(), pa.binary())
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34
_FIELD_BORDERS = np.frombuffer(b',\r\n"', np.uint8)  # bytes next to the quotes of a CSV field
_QUOTED = re.compile(rb'(?:\A|(?<=[,\r\n]))"(?:[^"]++|"")*+("|\Z)')


class TextBlocks:
    """Reader of a JSON or CSV file in blocks.

    Attributes:
        header: First record of a CSV file; empty for JSON.
        offset: Number of decoded bytes that were read.
        line: Number of lines that were read.
    """

    def __init__(self, stream: Any, csv: bool, offset: int = 0, line: int = 0, record_max: int = _RECORD_MAX) -> None:
        """Create a reader that begins at an offset.

        Args:
            stream: The decompressed text of the file.
            csv: True for CSV with a header, False for one JSON object per line.
            offset: Decoded byte to begin at: 0, or the `offset` at which an earlier reader stopped.
            line: Number of lines before the offset: the `line` of that earlier reader.
            record_max: Maximum size of one record in bytes. At least 64 MiB are allowed.

        Raises:
            DataError: A CSV header has a quote that is never closed, or a zero byte.
        """
        self._stream, self._csv, self._record_max = stream, csv, max(record_max, _RECORD_MAX)
        self._rest, self._ended = b"", False
        self.header, self.offset, self.line = b"", 0, 0
        while csv and not self.header.strip() and (record := self.next(64 << 10, 1)) is not None:
            self.header += record
        if b"\0" in self.header:
            raise DataError("Its header contains a zero byte: expected text in UTF-8.")
        while self.offset < offset:
            if not self._rest:
                self._rest = self._stream.read(min(4 << 20, offset - self.offset)) or b""
                if not self._rest:
                    raise DataError(f"Its text ends at byte {self.offset:,}: expected more than {offset:,} bytes.")
            skipped = min(len(self._rest), offset - self.offset)
            self._rest, self.offset = self._rest[skipped:], self.offset + skipped
        self.line = max(self.line, line)

    def next(self, bytes_max: int, rows_max: int) -> bytes | None:
        """Read the next block of whole records.

        Args:
            bytes_max: Maximum size of the block in bytes. The block has at least one record.
            rows_max: Maximum number of records in the block.

        Returns:
            The block, or None at the end of the file.

        Raises:
            DataError: A CSV quote is never closed, or a record is too large.
        """
        buffer_size = max(1, bytes_max)
        while True:
            self._fill_buffer(buffer_size)
            if not self._rest:
                return None
            ends, open_at = find_record_ends(self._rest, self._csv)
            if self._ended and open_at >= 0:
                line = self.line + self.count_line_ends(self._rest[:open_at]) + 1
                raise DataError(f'The quote (") that opens in line {line} is not closed.')
            if self._ended and (not len(ends) or ends[-1] < len(self._rest)):
                ends = np.append(ends, len(self._rest))
            count = int(np.searchsorted(ends, max(1, bytes_max), "right"))
            if not count and len(ends):
                count = 1
            if count:
                end = int(ends[min(count, rows_max) - 1])
                block, self._rest = self._rest[:end], self._rest[end:]
                self.offset, self.line = self.offset + end, self.line + self.count_line_ends(block)
                return block
            if buffer_size >= self._record_max:
                raise DataError(
                    f"The record that begins in line {self.line + 1} is larger than {buffer_size:,} bytes. If it is "
                    "valid, raise max_bytes."
                )
            buffer_size = min(2 * max(buffer_size, 64 << 10), self._record_max)

    def ended(self) -> bool:
        self._fill_buffer(0)
        return not self._rest

    def count_line_ends(self, text: bytes) -> int:
        return text.count(b"\n") + (text.count(b"\r") - text.count(b"\r\n") if self._csv else 0)

    def _fill_buffer(self, size: int) -> None:
        # More than `size` bytes are buffered, unless the file ends.
        parts, buffered = [self._rest], len(self._rest)
        while not self._ended and buffered <= size:  # one byte more tells whether the file ends here
            data = self._stream.read(size + 1 - buffered)
            self._ended = not data
            parts.append(data)
            buffered += len(data)
        self._rest = b"".join(parts) if len(parts) > 1 else self._rest


def find_record_ends(data: bytes, csv: bool) -> tuple[np.ndarray, int]:
    """Find the ends of complete records.

    Also returns the start of an unclosed CSV quote, or -1. A quote opens a CSV field only at the beginning of the
    field. In other positions it is an ordinary character. A carriage return ends a CSV record, except at the end of
    `data`, because a newline may follow.
    """
    text = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(text == _NEWLINE) + 1
    if csv and b"\r" in data:
        returns = np.flatnonzero(text[:-1] == _RETURN) + 1
        ends = np.union1d(ends, returns[text[returns] != _NEWLINE])
    if not csv or b'"' not in data:
        return ends, -1
    quotes = np.flatnonzero(text == _QUOTE)
    opening, closing = quotes[::2], quotes[1::2]
    before = text[opening[opening > 0] - 1]
    after = text[closing[closing + 1 < len(text)] + 1]
    if np.isin(before, _FIELD_BORDERS).all() and np.isin(after, _FIELD_BORDERS).all():
        outside = np.searchsorted(quotes, ends) % 2 == 0
        return ends[outside], int(quotes[-1]) if len(quotes) % 2 else -1
    fields = list(_QUOTED.finditer(data))  # rare: quotes within fields that are not quoted
    open_at = fields[-1].start() if fields and not fields[-1][1] else -1
    starts, stops = (np.array([field_match.span()[side] for field_match in fields], np.int64) for side in (0, 1))
    field = np.searchsorted(starts, ends - 1, "right") - 1
    inside = (field >= 0) & (ends - 1 < np.append(stops, 0)[field])
    return ends[~inside], open_at


class RowBatches:
    """Reader of a Parquet or Avro file in batches.

    Attributes:
        offset: Number of rows that were read.
        line: Always 0, since Parquet and Avro files do not consist of lines.
    """

    def __init__(self, source: pa.NativeFile, kind: str, columns: pa.Schema, offset: int = 0) -> None:
        """Create a reader that begins at a row.

        Args:
            source: The file, decompressed and seekable.
            kind: 'parquet' or 'avro'.
            columns: Columns of the table.
            offset: Row to begin at: 0, or the `offset` at which an earlier reader stopped.
        """
        self.offset, self.line = offset, 0
        self._left: pa.Table | None = None
        self._file: Any = opened_parquet(source) if kind == "parquet" else None
        self._columns = columns
        self.schema: pa.Schema = self._file.schema_arrow if self._file else None
        if self._file and (names := self._dictionary_columns()):
            self._file = opened_parquet(source, names)
        self._batches: Iterator[pa.Table] | None = None
        if self._file is None:
            self.schema, self._batches = avro_batches(source, offset)

    def next(self, bytes_max: int, rows_max: int) -> pa.Table | None:
        """Read the next batch of rows.

        The batch has about `bytes_max` bytes in memory and at most `rows_max` rows, but at least one row. Returns None
        at the end of the file.
        """
        self._load_rows(bytes_max, rows_max)
        if self._left is None:
            return None
        rows = self._left
        bytes_per_row = max(1, _decoded_bytes(rows) // max(1, len(rows)))
        count = min(len(rows), rows_max, max(1, bytes_max // bytes_per_row))
        self._left = rows.slice(count) if count < len(rows) else None
        self.offset += count
        rows = rows.slice(0, count)
        return self._cast_int96_to_utc(self._decode_dictionaries(rows)) if self._file is not None else rows

    def ended(self) -> bool:
        self._load_rows(_RECORD_MAX, _BATCH_ROWS)
        return self._left is None

    def _load_rows(self, bytes_max: int, rows_max: int) -> None:
        if self._batches is None:
            is_small = self.offset == 0 and self._fits_in_block(bytes_max, rows_max)
            self._batches = iter([self._file.read()]) if is_small else self._read_row_groups(bytes_max)
        while self._left is None and (rows := next(self._batches, None)) is not None:
            self._left = rows if len(rows) else None

    def _fits_in_block(self, bytes_max: int, rows_max: int) -> bool:
        metadata = self._file.metadata
        size = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
        return size <= bytes_max and metadata.num_rows <= rows_max

    def _read_row_groups(self, bytes_max: int) -> Iterator[pa.Table]:
        skip = self.offset
        for number in range(self._file.metadata.num_row_groups):
            group = self._file.metadata.row_group(number)
            if skip >= group.num_rows:
                skip -= group.num_rows
                continue
            bytes_per_row = max(1, group.total_byte_size // max(1, group.num_rows))
            at_once = max(1, min(_BATCH_ROWS, bytes_max // bytes_per_row))
            for batch in self._file.iter_batches(at_once, [number]):
                rows = pa.Table.from_batches([batch])
                if skip < len(rows):
                    yield rows.slice(skip)
                skip = max(0, skip - len(rows))

    def _dictionary_columns(self) -> list[str]:
        # Dictionaries make these text and binary columns much smaller in the file than in memory. They stay
        # dictionaries until it is known how many rows fit into a batch.
        metadata, names = self._file.metadata, set[str]()
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            for index in range(group.num_columns):
                column = group.column(index)
                if column.has_dictionary_page and column.num_values * column.total_uncompressed_size > _RECORD_MAX:
                    names.add(column.path_in_schema)
        return [field.name for field in self.schema if field.name in names and field.type in _TEXT]

    def _decode_dictionaries(self, rows: pa.Table) -> pa.Table:
        for index, field in enumerate(rows.schema):
            if _is_text_dictionary(field.type):
                rows = rows.set_column(index, field.name, rows.column(index).cast(field.type.value_type))
        return rows

    def _cast_int96_to_utc(self, rows: pa.Table) -> pa.Table:
        # INT96 values have no zone, and the programs that write them store UTC.
        for name in self._int96_columns():
            if name in self._columns.names and name in rows.column_names:
                kind = self._columns.field(name).type
                if pa.types.is_timestamp(kind) and kind.tz:
                    index = rows.column_names.index(name)
                    rows = rows.set_column(index, name, rows[name].cast(pa.timestamp("us", "UTC")))
        return rows

    def _int96_columns(self) -> list[str]:
        columns = (self._file.schema.column(index) for index in range(len(self._file.schema)))
        return [column.path for column in columns if column.physical_type == "INT96"]


def _is_text_dictionary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind)) and kind.value_type in _TEXT


def _decoded_bytes(rows: pa.Table) -> int:
    size = 0
    for column in rows.columns:
        size += column.nbytes
        if _is_text_dictionary(column.type):
            for chunk in column.chunks:
                lengths = pc.binary_length(chunk.dictionary).cast(pa.int64()).take(chunk.indices)
                size += (pc.sum(lengths).as_py() or 0) - chunk.dictionary.nbytes
    return size


__all__ = ["RowBatches", "TextBlocks", "find_record_ends"]
