"""Reader for CSV files.

An empty unquoted field is null, and a quoted empty field ("") is an empty string.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from hoodoo.errors import ColumnError
from hoodoo.redact import printable
from hoodoo.writers.batches.json_text import EXACT_BELOW, loses_digits
from hoodoo.writers.batches.text_blocks import choose_block_size, choose_parse_type
from hoodoo.writers.batches.text_times import times_of

_CODE = r"^\s*(?:[+-]?0[0-9]+(?:\.[0-9]*)?|0[xX].*)\s*$"
"""Pattern of numbers with a leading 0, such as a zip code, and of hexadecimal numbers."""
_HEX, _HEX_TEXT = re.compile(rb"0[xX]"), r"^\s*0[xX]"
_INTEGER = r"^\s*[+-]?[0-9]{16,}\s*$"
_CSV_PLACE = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to ([^:]+): invalid value (.*)")


def csv_rows(data: pa.Buffer, columns: pa.Schema, nulls: Sequence[str]) -> pa.Table:
    if not data.size:
        return pa.table({})
    if data[-1] != ord("\n"):  # otherwise Arrow reads an empty last field as an empty string
        data = pa.py_buffer(data.to_pybytes() + b"\n")
    options = pa.csv.ConvertOptions(
        column_types={field.name: choose_parse_type(field.type) for field in columns},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=["", *nulls],
    )
    parsing = pa.csv.ParseOptions(newlines_in_values=True)
    reading = pa.csv.ReadOptions(block_size=choose_block_size(data, csv=True))

    def texts(names: Sequence[str]) -> pa.Table:
        as_text = pa.csv.ConvertOptions(include_columns=list(names), column_types=dict.fromkeys(names, pa.string()))
        return pa.csv.read_csv(pa.BufferReader(data), reading, parsing, as_text)

    try:
        rows = _parse_csv(data, columns, reading, parsing, options)
        if len(set(rows.schema.names)) < rows.num_columns:
            return rows
        _require_no_hexadecimal(rows, columns, data, texts)
        if codes := _digit_string_columns(rows, columns, texts):
            options.column_types = {**options.column_types, **dict.fromkeys(codes, pa.string())}
            rows = _parse_csv(data, columns, reading, parsing, options)
        _require_no_overflow(rows, texts)
        return rows
    except pa.ArrowInvalid as problem:
        if not (location := _CSV_PLACE.match(str(problem))):
            raise
        names = pa.csv.open_csv(pa.BufferReader(data), reading, parsing).schema.names
        name, kind, value = names[int(location[1])], location[3], location[4]
        row = f", line {location[2]}" if location[2] else ""
        raise ColumnError(
            f"Column {name!r}{row}: {printable(value.strip(chr(39)))} is not a valid {kind}. Correct the file.",
            column=name,
        ) from None


def _parse_csv(
    data: pa.Buffer,
    columns: pa.Schema,
    reading: pa.csv.ReadOptions,
    parsing: pa.csv.ParseOptions,
    options: pa.csv.ConvertOptions,
) -> pa.Table:
    # Arrow requires a UTC offset in columns with a time zone, and rejects an offset in other columns.
    try:
        return pa.csv.read_csv(pa.BufferReader(data), reading, parsing, options)
    except pa.ArrowInvalid as problem:
        if "zone offset" not in str(problem):
            raise
    times = [field for field in columns if pa.types.is_timestamp(field.type)]
    options.column_types = {**options.column_types, **{field.name: pa.string() for field in times}}
    rows = pa.csv.read_csv(pa.BufferReader(data), reading, parsing, options)
    for field in times:
        if (index := rows.schema.get_field_index(field.name)) >= 0:
            rows = rows.set_column(index, field.name, times_of(rows.column(index), field))
    return rows


def _require_no_hexadecimal(
    rows: pa.Table, columns: pa.Schema, data: pa.Buffer, texts: Callable[[Sequence[str]], pa.Table]
) -> None:
    # Arrow would accept a hexadecimal number in an integer column.
    names = [field.name for field in rows.schema if field.name in columns.names and pa.types.is_integer(field.type)]
    if not names or _HEX.search(data) is None:
        return
    strings = texts(names)
    for name in names:
        if (row := pc.index(pc.match_substring_regex(strings[name], _HEX_TEXT), True).as_py()) >= 0:
            value = printable(strings[name][row].as_py(), 50)
            kind = rows.schema.field(name).type
            raise ColumnError(
                f"Column {name!r}, line {row + 2}: {value} is not a valid {kind}. Correct the file.", column=name
            )


def _digit_string_columns(rows: pa.Table, columns: pa.Schema, texts: Callable[[Sequence[str]], pa.Table]) -> list[str]:
    # These columns look like numbers, but are read as strings to keep all digits. A value begins with 0, like a zip
    # code, or is an integer that a double cannot represent exactly.
    numbers = [
        field.name
        for field in rows.schema
        if field.name not in columns.names and (pa.types.is_integer(field.type) or pa.types.is_floating(field.type))
    ]
    if not numbers:
        return []
    strings = texts(numbers)
    return [
        name
        for name in numbers
        if pc.any(pc.match_substring_regex(strings[name], _CODE)).as_py()
        or _has_rounded_integers(rows[name], strings[name])
    ]


def _has_rounded_integers(values: pa.ChunkedArray, texts: pa.ChunkedArray) -> bool:
    if not pa.types.is_floating(values.type):
        return False
    large = pc.and_(pc.greater_equal(pc.abs(values), EXACT_BELOW), pc.match_substring_regex(texts, _INTEGER))
    return any(loses_digits(text) for text in pc.unique(texts.filter(large)).to_pylist())


def _require_no_overflow(rows: pa.Table, texts: Callable[[Sequence[str]], pa.Table]) -> None:
    # Arrow converts a number that is too large for its column to infinity.
    floats = [field.name for field in rows.schema if pa.types.is_floating(field.type)]
    for name in floats:
        if not pc.any(pc.is_inf(rows[name])).as_py():
            continue
        strings = texts([name])[name]
        large = pc.and_(pc.is_inf(rows[name]), pc.invert(pc.match_substring_regex(strings, "(?i)inf")))
        if (row := pc.index(large, True).as_py()) >= 0:
            raise ColumnError(
                f"Column {name!r}, line {row + 2}: {printable(strings[row].as_py(), 50)} is too large for a "
                f"{rows.schema.field(name).type}. Correct the file.",
                column=name,
            )


__all__ = ["csv_rows"]
