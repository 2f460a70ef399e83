"""The content of one file as rows, and what in it is no row.

A file is read as a whole, fast. One that cannot be is text with a bad line in it, or it is damaged. Of text, lines are
cut in halves until each bad one stands alone, so that a few bad lines cost little and the others are rows. What is
damaged is an error of the file.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.csv
import xxhash

from hoodoo.errors import ColumnError, DataError, EngineError
from hoodoo.redact import printable
from hoodoo.sources.bad_messages import BadMessages, said
from hoodoo.sources.json_messages import AT_ONCE, PROBLEMS, JsonDecoder, sound
from hoodoo.sources.one_type import together
from hoodoo.sources.source import Part
from hoodoo.writers.batches.json_text import objects_in
from hoodoo.writers.batches.row_files import rows_of
from hoodoo.writers.batches.value_validation import unsound_rows

_MARK = b"\xef\xbb\xbf"  # of UTF-8, which some editors put first
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
        EngineError: It is Avro with a codec whose package is not installed.
        DataError: The file is not what its name says, or is damaged.
        TooManyBadRows: It has more bad rows. `details` has them as `found`.
    """
    decoder = JsonDecoder(columns, unknown)
    if kind == "json" and data.size > 2 and bytes(data[:3]) == _MARK:
        data = data.slice(3)

    def parse(content: pa.Buffer) -> pa.Table:
        return decoder.wanted(sound(rows_of(kind, content, columns, lambda column: False)))

    try:
        found = sound(rows_of(kind, data, columns, lambda column: False))
    except EngineError as problem:
        raise EngineError(f"{printable(name)}: {problem.message}", **problem.details, file=name) from None
    except (*PROBLEMS, OSError) as problem:  # Arrow meets damage behind the footer of Parquet with the latter
        if kind not in ("json", "csv"):
            raise damaged(name, kind, problem) from None
    else:
        if kind != "json":
            _require_columns(name, found.column_names, columns, len(found))
        rows = decoder.wanted(found)
        if kind != "json" or len(found) == objects_in(data) and not decoder.lacking(rows):
            return Part(rows, unknown=tuple(sorted(decoder.left_out)))
    shown = name.encode(errors="backslashreplace").decode()
    unit = "line" if kind == "json" else "row"
    bad = BadMessages(shown, bad_max, lambda number, payload: _place(shown, unit, number, payload))
    if kind == "json":
        lines = [(number, line) for number, line in enumerate(data.to_pybytes().split(b"\n"), 1) if line.strip()]
        found = list(decoder.rows(lines, bad))

        def place(part: int, row: int) -> str:
            return f"line {found[part][1][row]} of {printable(name)}"

        rows = together(name, [rows for rows, _ in found], columns, place)
    else:
        rows = together(name, list(_csv_parts(data, columns, parse, bad)), columns)
    return Part(rows, bad.table(), tuple(sorted(decoder.left_out)))


def _require_columns(name: str, there: Sequence[str], columns: pa.Schema, rows: int) -> None:
    """Raise ColumnError where a file has a column twice, or lacks one that each row needs."""
    if twice := [one for one in there if there.count(one) > 1]:
        raise ColumnError(f"{printable(name)} has the column {twice[0]!r} twice.", file=name, column=twice[0])
    if rows and (lacks := [field.name for field in columns if not field.nullable and field.name not in there]):
        raise ColumnError(
            f"{printable(name)} has no column {lacks[0]!r}, which is a key column; it has {printable(list(there))}. "
            "Take it away, or give the job a transform that makes the column.",
            file=name,
            column=lacks[0],
        )


def _place(name: str, unit: str, number: int, payload: bytes) -> str:
    """Where something stands in a file, with a digest of it: the file may be written anew, and read again."""
    return f"{name}:{unit}:{number}:{xxhash.xxh3_64_hexdigest(payload)[:8]}"


def damaged(name: str, kind: str, problem: BaseException) -> DataError:
    """Return the error that a file is not what its name says. kind: what that is."""
    return DataError(
        f"{printable(name)} cannot be read as {kind}: {printable(said(problem), 500)} Take it away, or put a sound "
        "one in its place.",
        file=name,
    )


# ---- CSV
def _csv_parts(data: pa.Buffer, columns: pa.Schema, parse: _Parse, bad: BadMessages) -> Iterator[pa.Table]:
    """Rows as texts first: a row with too few or too many fields, with a cell that is no text, or with one that is no
    value of its column, is bad alone.
    """
    if data[-1] != ord("\n"):  # else Arrow takes an empty last field for an empty text
        data = pa.py_buffer(data.to_pybytes() + b"\n")

    def odd(row: pa.csv.InvalidRow) -> str:
        fields = f"{row.actual_columns} fields instead of {row.expected_columns}"
        text = row.text.encode()
        bad.note_at(_place(bad.where, "line", row.number, text), fields, text)
        return "skip"

    reading = pa.csv.ReadOptions(use_threads=False, block_size=max(1 << 20, min(data.size, 64 << 20)))
    try:
        header = _header(data, reading)
    except (pa.ArrowInvalid, UnicodeDecodeError) as problem:
        raise damaged(bad.where, "csv", problem) from None
    _require_columns(bad.where, header, columns, 1)
    try:
        texts = pa.csv.ConvertOptions(
            check_utf8=False,
            column_types=dict.fromkeys(header, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        )
        parsing = pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=odd)
        rows = pa.csv.read_csv(pa.BufferReader(data), reading, parsing, texts)
    except (pa.ArrowInvalid, UnicodeDecodeError) as problem:
        raise damaged(bad.where, "csv", problem) from None
    no_text = _no_text(rows, bad)
    for low, high in itertools.pairwise([-1, *no_text, len(rows)]):
        for start in range(low + 1, high, AT_ONCE):
            yield from _good_rows(rows.slice(start, min(AT_ONCE, high - start)), start + 1, parse, bad)


def _no_text(rows: pa.Table, bad: BadMessages) -> list[int]:
    """The rows with a cell that is no UTF-8, in order; they are noted."""
    found = dict[int, str]()
    for name in rows.column_names:
        for row in unsound_rows(rows[name], bad.most):
            found.setdefault(row, name)
    for row, name in sorted(found.items()):
        cells = [column.cast(pa.binary())[0].as_py() or b"" for column in rows.slice(row, 1).columns]
        bad.note(row + 1, f"column {name!r} has bytes that are no UTF-8", b",".join(cells))
    return sorted(found)


def _header(data: pa.Buffer, reading: pa.csv.ReadOptions) -> list[str]:
    parsing = pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda row: "skip")
    cells = pa.csv.ConvertOptions(check_utf8=False)
    with pa.csv.open_csv(pa.BufferReader(data), reading, parsing, cells) as found:
        return list(found.schema.names)


def _good_rows(
    rows: pa.Table, first: int, parse: Callable[[pa.Buffer], pa.Table], bad: BadMessages
) -> Iterator[pa.Table]:
    sink = pa.BufferOutputStream()
    pa.csv.write_csv(rows, sink)
    text = sink.getvalue()
    try:
        yield parse(text)
        return
    except PROBLEMS as found:
        problem = found
    if len(rows) > 1:
        middle = len(rows) // 2
        yield from _good_rows(rows.slice(0, middle), first, parse, bad)
        yield from _good_rows(rows.slice(middle), first + middle, parse, bad)
        return
    why = said(problem)
    if isinstance(problem, ColumnError):  # of a file of one row
        why = why.replace(", line 2", "").replace(" Correct the file.", "")
    bad.note(first, why, text.to_pybytes().partition(b"\n")[2].rstrip(b"\n"))
