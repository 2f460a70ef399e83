"""Conversion of file blocks to rows.

A block is decoded as a whole, which is fast. If this fails, a line is bad or the file is damaged. The text is then
split in halves until each bad line is alone, so a few bad lines cost little and the other lines become rows. A damaged
file raises an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.csv
import xxhash

from hoodoo.errors import ColumnError, DataError
from hoodoo.redact import printable
from hoodoo.sources.bad_messages import BadMessages, said
from hoodoo.sources.file_blocks import find_record_ends
from hoodoo.sources.json_messages import AT_ONCE, PROBLEMS, JsonDecoder, repair_rows
from hoodoo.sources.one_type import concatenate_tables
from hoodoo.sources.source import BAD, Part
from hoodoo.writers.batches.json_text import count_objects
from hoodoo.writers.batches.row_files import parse_rows
from hoodoo.writers.batches.value_validation import find_bad_positions, unsound_rows

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # byte order mark, which some editors write first
_BAD_FILE_ADVICE = "Replace or remove the file, or pass on_bad_file='quarantine' (--on-bad-file quarantine)."
_FIELDS = re.compile(r"Expected (\d+) columns, got (\d+)")
_PARSING = pa.csv.ParseOptions(newlines_in_values=True)
_Parse = Callable[[pa.Buffer], pa.Table]


@dataclass(frozen=True)
class FileRows:
    """Decoder for the blocks of one file.

    Attributes:
        name: Path of the file. It is part of the location of a bad row.
        columns: Columns of the table. Text is converted to their types.
        unknown: True to keep columns that the table does not have.
        bad_max: Maximum number of bad rows in a block. One more raises TooManyBadRows.
    """

    name: str
    columns: pa.Schema
    unknown: bool
    bad_max: int

    @property
    def _printable_name(self) -> str:
        return shown(self.name)

    def table(self, rows: pa.Table) -> Part:
        _require_columns(self.name, rows.schema.names, self.columns, len(rows))
        decoder = JsonDecoder(self.columns, self.unknown)
        rows = decoder.drop_unknown_columns(repair_rows(rows))
        return Part(rows, unknown=tuple(sorted(decoder.left_out)), origin=self._printable_name)

    def json(self, text: bytes, line: int = 0) -> Part:
        """Decode lines with JSON objects.

        Args:
            text: The lines of the block.
            line: The number of lines of the file before the block.

        Returns:
            The rows, the bad lines, and the columns that were left out.

        Raises:
            TooManyBadRows: There are more than `bad_max` bad lines. `details` contains them as `found`.
        """
        decoder = JsonDecoder(self.columns, self.unknown)
        text = text[3:] if not line and text.startswith(_BYTE_ORDER_MARK) else text
        data = pa.py_buffer(text)
        try:
            rows = decoder.parse(data)
            if len(rows) == count_objects(data) and not decoder.lacking(rows):
                return Part(rows, unknown=tuple(sorted(decoder.left_out)), origin=self._printable_name)
        except PROBLEMS:
            pass
        bad = self._bad_collector("line")
        lines = [(number, content) for number, content in enumerate(text.split(b"\n"), line + 1) if content.strip()]
        parts = list(decoder.rows(lines, bad))

        def place(part: int, row: int) -> str:
            return f"line {parts[part][1][row]} of {printable(self.name)}"

        rows = concatenate_tables(self.name, [rows for rows, _ in parts], self.columns, place)
        return Part(rows, bad.table(), tuple(sorted(decoder.left_out)), origin=self._printable_name)

    def csv(self, header: bytes, text: bytes, line: int = 0) -> Part:
        """Decode a block of CSV records.

        Args:
            header: The first record of the file.
            text: The records of the block.
            line: The number of lines of the file before the block, without the header.

        Returns:
            The rows, the bad records, and the columns that were left out.

        Raises:
            DataError: The file is not CSV.
            TooManyBadRows: There are more than `bad_max` bad records. `details` contains them as `found`.
        """
        decoder = JsonDecoder(self.columns, self.unknown)
        data = pa.py_buffer(header + text)

        def parse(content: pa.Buffer) -> pa.Table:
            return decoder.drop_unknown_columns(parse_rows("csv", content, self.columns, lambda column: False))

        try:
            rows = repair_rows(parse_rows("csv", data, self.columns, lambda column: False))
            _require_columns(self.name, rows.schema.names, self.columns, len(rows))
            rows = decoder.drop_unknown_columns(rows)
            return Part(rows, unknown=tuple(sorted(decoder.left_out)), origin=self._printable_name)
        except PROBLEMS:
            pass
        bad = self._bad_collector("row")
        rows = concatenate_tables(self.name, list(_read_csv_text(data, self.columns, parse, bad, line)), self.columns)
        return Part(rows, bad.table(), tuple(sorted(decoder.left_out)), origin=self._printable_name)

    def _bad_collector(self, unit: str) -> BadMessages:
        return BadMessages(
            self._printable_name,
            self.bad_max,
            lambda number, payload: _record_location(self._printable_name, unit, number, payload),
        )


def shown(name: str) -> str:
    return name.encode(errors="backslashreplace").decode()


def bad_row_of_file(name: str, stamp: str, problem: BaseException) -> pa.Table:
    """Create the quarantine row of an unreadable file.

    `stamp` identifies the content of the file, so that a rewritten file gets another row.
    """
    row = {
        "place": _record_location(shown(name), "file", 0, stamp.encode()),
        "reason": "file",
        "detail": said(problem)[:500],
        "payload": shown(name).encode(),
    }
    return pa.Table.from_pylist([row], BAD)


def _require_columns(name: str, names: Sequence[str], columns: pa.Schema, rows: int) -> None:
    if duplicates := [column for column in names if names.count(column) > 1]:
        raise ColumnError(
            f"File {printable(name)} has the column {duplicates[0]!r} twice. {_BAD_FILE_ADVICE}",
            file=name,
            column=duplicates[0],
        )
    if rows and (missing := [field.name for field in columns if not field.nullable and field.name not in names]):
        raise ColumnError(
            f"File {printable(name)} lacks the key column {missing[0]!r}: expected it among its columns "
            f"{printable(list(names))}. Give the job a transform that adds the column. {_BAD_FILE_ADVICE}",
            file=name,
            column=missing[0],
        )


def _record_location(name: str, unit: str, number: int, payload: bytes) -> str:
    # The digest distinguishes the record from other records, because the file may be rewritten.
    return f"{name}:{unit}:{number}:{xxhash.xxh3_64_hexdigest(payload)[:8]}"


def damaged(name: str, kind: str, problem: BaseException) -> DataError:
    return DataError(
        f"File {printable(name)} cannot be read as {kind}: {printable(said(problem) or type(problem).__name__, 500)} "
        f"{_BAD_FILE_ADVICE}",
        file=name,
    )


# ---- CSV
def _read_csv_text(
    data: pa.Buffer, columns: pa.Schema, parse: _Parse, bad: BadMessages, line: int
) -> Iterator[pa.Table]:
    # The bad rows are added to `bad`. All rows are first read as strings. A row is bad if it has the wrong number of
    # fields, a cell that is not UTF-8, or a value that does not match its column. `line` is the number of lines before
    # `data`.
    if data[-1] != ord("\n"):  # otherwise Arrow reads an empty last field as an empty string
        data = pa.py_buffer(data.to_pybytes() + b"\n")
    content = data.to_pybytes()
    ends, _ = find_record_ends(content, True)
    starts = np.append(0, ends[:-1])
    try:
        header = _column_names(content, starts, ends)
    except (pa.ArrowInvalid, UnicodeDecodeError) as problem:
        raise damaged(bad.where, "csv", problem) from None
    _require_columns(bad.where, header, columns, 1)
    data, numbers = _remove_invalid_utf8(data, header, starts, ends, bad, line)

    def odd(row: pa.csv.InvalidRow) -> str:
        field_counts = f"{row.actual_columns} fields instead of {row.expected_columns}"
        text = row.text.encode()
        bad.add_at_location(
            _record_location(bad.where, "line", line + numbers(row.number - 1) + 1, text), field_counts, text
        )
        return "skip"

    try:
        rows = _read_csv_as_strings(data, header, odd)
    except (pa.ArrowInvalid, UnicodeDecodeError) as problem:
        raise damaged(bad.where, "csv", problem) from None
    for start in range(0, len(rows), AT_ONCE):
        some = rows.slice(start, AT_ONCE)
        yield from _parse_good_rows(
            some, [line + numbers(at + 1) for at in range(start, start + len(some))], parse, bad
        )


def _read_csv_as_strings(
    data: pa.Buffer, header: Sequence[str], odd: Callable[[pa.csv.InvalidRow], str] | None
) -> pa.Table:
    # `odd` is called for each row with a wrong number of fields. None: such a row raises an error.
    texts = pa.csv.ConvertOptions(
        check_utf8=False,
        column_types=dict.fromkeys(header, pa.string()),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )
    parsing = pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=odd)
    reading = pa.csv.ReadOptions(use_threads=False, block_size=max(1 << 20, data.size))
    return pa.csv.read_csv(pa.BufferReader(data), reading, parsing, texts)


def _remove_invalid_utf8(
    data: pa.Buffer, header: Sequence[str], starts: np.ndarray, ends: np.ndarray, bad: BadMessages, line: int
) -> tuple[pa.Buffer, Callable[[int], int]]:
    # Adds the removed CSV records to `bad`. Also returns a function that maps the number of a remaining record to its
    # number in `data`. The search uses the bytes, because Arrow would decode each invalid record alone.
    content = data.to_pybytes()

    def is_text(low: int, high: int) -> bool:
        try:
            content[starts[low] : ends[high - 1]].decode()
        except UnicodeDecodeError:
            return False
        return True

    undecodable = find_bad_positions(len(ends), is_text, bad.most)
    if not undecodable:
        return data, lambda number: number
    records = [content[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    filled = [index for index, record in enumerate(records) if record.strip(b"\r\n")]
    for index in undecodable:
        reason = _describe_invalid_utf8(header, records[filled[0]] + records[index])
        bad.note(line + int(np.searchsorted(filled, index)), reason, records[index].rstrip(b"\r\n"))
    remaining = np.setdiff1d(filled, undecodable)
    kept = np.searchsorted(filled, remaining)
    rest_of_data = pa.py_buffer(b"".join(records[index] for index in remaining.tolist()))
    return rest_of_data, lambda number: int(kept[number]) if number < len(kept) else number


def _describe_invalid_utf8(header: Sequence[str], record: bytes) -> str:
    # `record` is the header followed by the record.
    try:
        rows = _read_csv_as_strings(pa.py_buffer(record), header, None)
    except pa.ArrowInvalid as problem:
        if (match := _FIELDS.search(str(problem))) is None:
            return "the row has bytes that are not UTF-8"
        return f"{match[2]} fields instead of {match[1]}, and bytes that are not UTF-8"
    name = next((name for name in rows.column_names if unsound_rows(rows[name], 0)), "")
    return f"column {name!r} has bytes that are not UTF-8"


def _column_names(content: bytes, starts: np.ndarray, ends: np.ndarray) -> list[str]:
    # `starts` and `ends` are the byte ranges of all records.
    records = (content[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True))
    first = next((record for record in records if record.strip(b"\r\n")), b"")
    return list(pa.csv.read_csv(pa.BufferReader(first), parse_options=_PARSING).schema.names)


def _parse_good_rows(
    rows: pa.Table, numbers: Sequence[int], parse: Callable[[pa.Buffer], pa.Table], bad: BadMessages
) -> Iterator[pa.Table]:
    sink = pa.BufferOutputStream()
    pa.csv.write_csv(rows, sink)
    text = sink.getvalue()
    try:
        yield parse(text)
        return
    except PROBLEMS as error:
        problem = error
    if len(rows) > 1:
        middle = len(rows) // 2
        yield from _parse_good_rows(rows.slice(0, middle), numbers[:middle], parse, bad)
        yield from _parse_good_rows(rows.slice(middle), numbers[middle:], parse, bad)
        return
    reason = said(problem)
    if isinstance(problem, ColumnError):  # remove the position in the single-row file
        reason = reason.replace(", line 2", "").replace(" Correct the file.", "")
    bad.note(
        numbers[0], reason, text.to_pybytes().rstrip(b"\n")
    )  # includes the header, so that it can be decoded again
