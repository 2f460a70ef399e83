"""The content of one file as rows, and what in it is no row.

A file is read as a whole, fast. One that cannot be is text with a bad line in it, or it is damaged. Of text, lines are
cut in halves until each bad one stands alone, so that a few bad lines cost little and the others are rows. What is
damaged is an error of the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.csv

from hoodoo.errors import ColumnError, DataError, HoodooError, TooManyBadRows
from hoodoo.format.names import IS_DELETED
from hoodoo.redact import printable
from hoodoo.sources.source import BAD, Part
from hoodoo.writers.batches.row_files import rows_of

_LINES = 20_000  # lines that are tried together once a file has a bad one
_DETAIL_MAX = 500
_PROBLEMS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, DataError, UnicodeDecodeError, ValueError)
_Parse = Callable[[pa.Buffer], pa.Table]


def file_rows(name: str, kind: str, data: pa.Buffer, columns: pa.Schema, unknown: bool, bad_max: int) -> Part:
    """Read the content of a file.

    Args:
        name: Of the file, by which its bad rows are known.
        kind: 'json', 'csv', 'parquet' or 'avro'.
        data: Its bytes, not compressed any more.
        columns: What text is read as.
        unknown: Are columns wanted that `columns` does not have?
        bad_max: With more bad rows than this the search ends.

    Returns:
        The rows, what is none, and the columns that were left out.

    Raises:
        DataError: The file is not what its name says, or is damaged.
        TooManyBadRows: It has more bad rows. `details` has them as `found`.
    """
    left_out = set[str]()

    def parse(content: pa.Buffer) -> pa.Table:
        rows = rows_of(kind, content, columns, lambda column: False)
        names = list(rows.schema.names)  # Arrow decodes the names only now
        if unknown:
            return rows
        left_out.update(one for one in names if one not in columns.names and one != IS_DELETED)
        return rows.select([one for one in names if one not in left_out])

    try:
        return Part(parse(data), unknown=tuple(sorted(left_out)))
    except _PROBLEMS as problem:
        if kind not in ("json", "csv"):
            raise damaged(name, kind, problem) from None
    bad = _Bad(name, bad_max)
    parts = list((_json_parts if kind == "json" else _csv_parts)(data, parse, bad))
    rows = pa.concat_tables(parts, promote_options="permissive") if parts else columns.empty_table()
    return Part(rows, bad.table(), tuple(sorted(left_out)))


def damaged(name: str, kind: str, problem: BaseException) -> DataError:
    """Return the error that a file is not what its name says. kind: what that is."""
    return DataError(
        f"{printable(name)} cannot be read as {kind}: {printable(_said(problem), 500)} Take it away, or put a sound "
        "one in its place.",
        file=name,
    )


def _said(problem: BaseException) -> str:
    return problem.message if isinstance(problem, HoodooError) else str(problem).partition("\n")[0]


class _Bad:
    """The bad rows of one file."""

    def __init__(self, name: str, most: int) -> None:
        self.name, self.most = name.encode(errors="backslashreplace").decode(), most
        self.found: list[dict[str, object]] = []

    def note(self, place: str, detail: str, payload: bytes) -> None:
        said = detail.encode(errors="backslashreplace").decode()[:_DETAIL_MAX]
        self.found.append({"place": f"{self.name}:{place}", "reason": "decode", "detail": said, "payload": payload})
        if len(self.found) > self.most:
            first = self.found[0]
            raise TooManyBadRows(
                f"{printable(self.name)} has more than {self.most:,} bad rows, the first at {first['place']}: "
                f"{first['detail']}",
                file=self.name,
                bad=len(self.found),
                found=self.table(),
            )

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(self.found, BAD)


# ---- JSON lines
def _json_parts(data: pa.Buffer, parse: _Parse, bad: _Bad) -> Iterator[pa.Table]:
    lines = [(number, line) for number, line in enumerate(data.to_pybytes().split(b"\n"), 1) if line.strip()]
    for start in range(0, len(lines), _LINES):
        yield from _good_lines(lines[start : start + _LINES], parse, bad)


def _good_lines(lines: Sequence[tuple[int, bytes]], parse: _Parse, bad: _Bad) -> Iterator[pa.Table]:
    problem: BaseException
    try:
        rows = parse(pa.py_buffer(b"\n".join(line for _, line in lines) + b"\n"))
        if len(rows) == len(lines) or len(lines) == 1 and len(rows):
            yield rows
            return
        problem = ValueError("no object")  # or lines among these hold parts of objects, which stand for no line
    except _PROBLEMS as found:
        problem = found
    if len(lines) > 1:
        middle = len(lines) // 2
        yield from _good_lines(lines[:middle], parse, bad)
        yield from _good_lines(lines[middle:], parse, bad)
        return
    [(number, line)] = lines
    bad.note(f"line:{number}", _why(line, problem), line)


def _why(line: bytes, problem: BaseException) -> str:
    """What is wrong with a line, in words that point into it where it is no JSON at all."""
    try:
        json.loads(line)
    except ValueError as syntax:
        return f"no JSON object: {syntax}"
    return _said(problem)


# ---- CSV
def _csv_parts(data: pa.Buffer, parse: _Parse, bad: _Bad) -> Iterator[pa.Table]:
    """Rows as texts first: a row with too few or too many fields, or with a cell that is no value of its column, is bad
    alone.
    """
    if data[-1] != ord("\n"):  # else Arrow takes an empty last field for an empty text
        data = pa.py_buffer(data.to_pybytes() + b"\n")

    def odd(row: pa.csv.InvalidRow) -> str:
        said = f"{row.actual_columns} fields instead of {row.expected_columns}"
        bad.note(f"line:{row.number}", said, row.text.encode())
        return "skip"

    reading = pa.csv.ReadOptions(use_threads=False, block_size=max(1 << 20, min(data.size, 64 << 20)))
    try:
        texts = pa.csv.ConvertOptions(
            column_types=dict.fromkeys(_header(data, reading), pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        )
        parsing = pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=odd)
        rows = pa.csv.read_csv(pa.BufferReader(data), reading, parsing, texts)
    except (pa.ArrowInvalid, UnicodeDecodeError) as problem:
        raise damaged(bad.name, "csv", problem) from None
    for start in range(0, len(rows), _LINES):
        yield from _good_rows(rows.slice(start, _LINES), start + 1, parse, bad)


def _header(data: pa.Buffer, reading: pa.csv.ReadOptions) -> list[str]:
    parsing = pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda row: "skip")
    with pa.csv.open_csv(pa.BufferReader(data), reading, parsing) as found:
        return list(found.schema.names)


def _good_rows(rows: pa.Table, first: int, parse: _Parse, bad: _Bad) -> Iterator[pa.Table]:
    sink = pa.BufferOutputStream()
    pa.csv.write_csv(rows, sink)
    text = sink.getvalue()
    try:
        yield parse(text)
        return
    except _PROBLEMS as found:
        problem = found
    if len(rows) > 1:
        middle = len(rows) // 2
        yield from _good_rows(rows.slice(0, middle), first, parse, bad)
        yield from _good_rows(rows.slice(middle), first + middle, parse, bad)
        return
    said = _said(problem)
    if isinstance(problem, ColumnError):  # of a file of one row
        said = said.replace(", line 2", "").replace(" Correct the file.", "")
    bad.note(f"row:{first}", said, text.to_pybytes().partition(b"\n")[2].rstrip(b"\n"))
