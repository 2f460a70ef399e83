"""Reader for JSON lines files.

Bytes are base64 strings, and times of day are in ISO 8601 format. A column that is missing in all lines is missing in
the result. A column that is missing in some lines is null there, unless the caller requires it in every line.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.json

from hoodoo.errors import ColumnError, DataError
from hoodoo.format.names import IS_DELETED
from hoodoo.writers.batches.json_text import require_finite_numbers, require_shallow_values
from hoodoo.writers.batches.text_blocks import choose_block_size, choose_parse_type
from hoodoo.writers.batches.text_times import require_no_offsets

_VALUE = re.compile(r"\S")
# two patterns, because patterns that begin with a fixed byte are twenty times as fast as one combined pattern
_NO_FIRST_OBJECT = re.compile(rb"\s*(null\b[^\n]*)")
_NO_OBJECT = re.compile(rb"\}\s*(null\b[^\n]*)")
_LOOKS, _LINE = 10, 1 << 16  # maximum occurrences of a name to check, and bytes of a line on either side of it
_ESCAPED = re.compile(rb"\\u|\\/")  # escapes that allow another encoding of a name


def _is_inside_string(content: bytes, match: re.Match[bytes]) -> bool:
    # Detects only strings in objects that have their own line.
    begin = content.rfind(b"\n", 0, match.start(1)) + 1
    try:
        json.loads(content[begin : match.end(1)])
    except (ValueError, RecursionError):
        return False
    return match.start() >= begin


def json_rows(data: pa.Buffer, columns: pa.Schema, whole: Callable[[str], bool]) -> pa.Table:
    if not bytes(data[:4096]).strip() and not data.to_pybytes().strip():
        return columns.empty_table()
    match = _NO_FIRST_OBJECT.match(data) or _NO_OBJECT.search(data)
    if match is not None and match.re is _NO_OBJECT:
        content = data.to_pybytes()
        match = next(
            (candidate for candidate in _NO_OBJECT.finditer(content) if not _is_inside_string(content, candidate)), None
        )
    if match is not None:  # Arrow would crash the process
        row = bytes(data[: match.start(1)]).count(b"\n")
        raise DataError(
            f"Line {row + 1} contains {match[1].decode()[:20]!r}: expected a JSON object. Correct the file.", row=row
        )
    require_shallow_values(data)
    require_no_offsets(data, list(columns), choose_block_size(data))
    rows = _parse_json_lines(data, list(columns))
    require_finite_numbers(rows, data)
    unsure = [name for name in columns.names if rows[name].null_count == len(rows)]
    occurrence = {name: _occurs_in_lines(name, data) for name in unsure}
    rows = rows.drop_columns([name for name in unsure if occurrence[name] is False])
    unsure = [name for name in unsure if occurrence[name] is None]
    if unsure:  # Arrow fills a missing column with nulls if its type is given, but not without its type
        occurring = _parse_json_lines(data, [field for field in columns if field.name not in unsure]).column_names
        rows = rows.drop_columns([name for name in unsure if name not in occurring])
    _require_in_every_line(data, [name for name in rows.column_names if whole(name) and rows[name].null_count])
    for field in columns:
        if field.name in rows.column_names:
            rows = rows.set_column(
                rows.column_names.index(field.name), field.name, _convert_json_strings(rows[field.name], field)
            )
    return rows


def _occurs_in_lines(name: str, data: pa.Buffer) -> bool | None:
    # Returns None if only parsing all lines can tell.
    if _ESCAPED.search(data) is not None:
        return None  # the name may be encoded with escapes
    matches = re.finditer(re.escape(json.dumps(name, ensure_ascii=False).encode()) + rb"\s*:", data)
    for count, match in enumerate(matches):
        if count == _LOOKS:
            return None
        content = memoryview(data)
        start = bytes(content[max(0, match.start() - _LINE) : match.start()]).rfind(b"\n") + 1
        start += max(0, match.start() - _LINE) if start else 0
        stop = bytes(content[match.end() : match.end() + _LINE]).find(b"\n")
        try:
            if name in json.loads(bytes(content[start : None if stop < 0 else match.end() + stop])):
                return True
        except ValueError:
            return None  # the line is too long, or the object spans several lines
    return False


def _require_in_every_line(data: pa.Buffer, names: Sequence[str]) -> None:
    # Arrow reads a missing column as null. Call this only for columns with nulls, because it parses the whole file.
    if not names:
        return
    text, decoder, offset, number = data.to_pybytes().decode(), json.JSONDecoder(), 0, 0
    while start := _VALUE.search(text, offset):
        try:
            row, offset = decoder.raw_decode(text, start.start())
        except ValueError as problem:
            raise pa.ArrowInvalid(str(problem)) from None
        number += 1
        for name in names:
            if name not in row and not row.get(IS_DELETED):
                raise ColumnError(
                    f"Row {number} of the file has no {name!r}, but other rows have it. Add it, or write rows "
                    "with different columns to separate files and upsert them with missing='keep' (--missing "
                    "keep). missing='null' (--missing null) overwrites stored values of columns without a "
                    "default with null.",
                    column=name,
                    row=number,
                )


def _parse_json_lines(data: pa.Buffer, fields: Sequence[pa.Field]) -> pa.Table:
    # Raises ColumnError only if a column of an unsupported type has values.
    explicit, refused = list[pa.Field](), dict[str, ColumnError]()
    for field in fields:
        try:
            explicit.append(pa.field(field.name, _json_parse_type(field.type, field.name)))
        except ColumnError as problem:
            refused[field.name] = problem
    reading = pa.json.ReadOptions(block_size=choose_block_size(data))
    parsing = pa.json.ParseOptions(explicit_schema=pa.schema(explicit))
    rows = pa.json.read_json(pa.BufferReader(data), read_options=reading, parse_options=parsing)
    for name, problem_ in refused.items():
        if name in rows.column_names and rows[name].null_count < len(rows):
            raise problem_
    return rows


def _json_parse_type(kind: pa.DataType, name: str, top: bool = True) -> pa.DataType:
    # Dates, times and bytes are parsed as strings, and `_convert_json_strings` converts them.
    if pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_binary(kind):
        if top:
            return pa.string()
    elif pa.types.is_list(kind):
        return pa.list_(_json_parse_type(kind.value_type, name, top=False))
    elif pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _json_parse_type(field.type, name, top=False)) for field in kind])
    elif not pa.types.is_map(kind):
        return choose_parse_type(kind)
    raise ColumnError(
        f"Column {name!r}: JSON cannot represent a {kind}{'' if top else ' within another value'}. Use a Parquet file.",
        column=name,
    )


def _convert_json_strings(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    # Arrow can cast neither base64 nor times of day.
    if pa.types.is_binary(field.type):
        return _parse_strings(values, field, lambda text: base64.b64decode(text, validate=True))
    if pa.types.is_time(field.type):
        return _parse_strings(values, field, dt.time.fromisoformat)
    return values.cast(field.type) if pa.types.is_date(field.type) else values  # a cast of a struct would cut fields


def _parse_strings(values: pa.ChunkedArray, field: pa.Field, parse: Callable[[str], Any]) -> pa.ChunkedArray:
    try:
        return pa.chunked_array(
            [pa.array([None if text is None else parse(text) for text in values.to_pylist()], field.type)]
        )
    except ValueError:
        raise DataError(
            f"Column {field.name!r}: a value is not a valid {field.type}. JSON must contain bytes as base64, "
            "and times in ISO 8601.",
            column=field.name,
        ) from None


__all__ = ["json_rows"]
