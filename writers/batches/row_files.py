"""Reader of rows from Parquet, CSV, JSON lines and Avro files, plain or compressed, by path or glob pattern.

The extension determines the format: `.parquet`, `.csv`, `.json`, `.jsonl`, `.ndjson` or `.avro`, optionally followed by
`.gz`, `.bz2`, `.zst` or `.lz4`.

- CSV: an empty unquoted field is null, and a quoted empty field ("") is an empty string.
- JSON: bytes are base64 strings, and times of day are in ISO 8601 format. A column that is missing in all lines is
  missing. A column that is missing in some lines is null there, unless the caller requires it.
"""

from __future__ import annotations

import base64
import datetime as dt
import glob
import io
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from hoodoo.errors import (
    CallError,
    ColumnError,
    CorruptTable,
    DataError,
    EngineError,
    HoodooError,
    UnsupportedTable,
)
from hoodoo.format.avro.schema import arrow_schema
from hoodoo.format.names import IS_DELETED
from hoodoo.redact import printable
from hoodoo.writers.batches.json_text import EXACT_BELOW, loses_digits, require_exact, require_finite, require_shallow
from hoodoo.writers.batches.text_times import require_local_times, times_of

NO_COLUMNS = pa.schema([])
_KINDS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".avro": "avro",
}
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_PATTERN = re.compile(r"[*?\[]")
_VALUE = re.compile(r"\S")
# two patterns, because patterns that begin with a fixed byte are twenty times as fast as one combined pattern
_NO_FIRST_OBJECT = re.compile(rb"\s*(null\b[^\n]*)")
_NO_OBJECT = re.compile(rb"\}\s*(null\b[^\n]*)")
_LOOKS, _LINE = 10, 1 << 16  # maximum occurrences of a name to check, and bytes of a line on either side of it
_ESCAPED = re.compile(rb"\\u|\\/")  # escapes that allow another encoding of a name
_CODE = r"^\s*(?:[+-]?0[0-9]+(?:\.[0-9]*)?|0[xX].*)\s*$"
"""Digits that begin with 0, such as a zip code, and hexadecimal digits. A number would lose the 0 or 0x."""
_HEX, _HEX_TEXT = re.compile(rb"0[xX]"), r"^\s*0[xX]"
_INTEGER = r"^\s*[+-]?[0-9]{16,}\s*$"
_CSV_PLACE = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to ([^:]+): invalid value (.*)")
_NO_CODEC = " codec is supported but you need to install"
"""Part of fastavro's error for a codec whose package is missing. The extras of fastavro are named after codecs."""
_AVRO_HEADER = {
    "type": "record",
    "name": "header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
    ],
}
_CODEC = re.compile(r"(?s)^(\w+) codec is supported.*")
_BLOCK = 64 << 20  # bytes that are parsed at a time
_AVRO_ROWS = 10_000  # maximum number of records held as Python objects


def rows_in(
    path: str | os.PathLike[str],
    columns: pa.Schema = NO_COLUMNS,
    whole: Callable[[str], bool] = lambda name: False,
    nulls: Sequence[str] = (),
) -> pa.Table:
    """Read the rows of one or more files.

    Args:
        path: A file, or a pattern with `*`, `?`, `[...]` or `**`. Matching files are read in order of their names.
        columns: The types of columns in CSV and JSON files. The types of other columns are inferred.
        whole: Returns whether every line of JSON needs the column if one of the lines has it. Default: never.
        nulls: Strings that represent null in CSV, in addition to an empty field.

    Returns:
        The rows, file by file.

    Raises:
        CallError: A file does not exist or cannot be opened, or its extension is unknown.
        EngineError: An Avro file has a codec whose package is not installed.
        DataError: The contents of a file do not match its extension.
        ColumnError: Files have different columns, a value is not convertible to its column, or a line lacks a column
            that `whole` requires.
    """
    files = _files(os.fspath(path))
    kinds = [kind_of(file) for file in files]  # check all names before reading any file
    tables = [_read(file, kind, columns, whole, nulls) for file, kind in zip(files, kinds, strict=True)]
    some = [number for number, table in enumerate(tables) if table.num_columns]
    if len(some) < 2:
        return tables[some[0] if some else 0]
    files, tables = [files[number] for number in some], [tables[number] for number in some]
    for file, table in zip(files, tables, strict=True):
        if odd := sorted(set(table.schema.names) ^ set(tables[0].schema.names)):
            raise ColumnError(
                f"Column {odd[0]!r} is in only one of the files {printable(files[0])} and {printable(file)}. "
                "Files that are read together need the same columns. Pass the files one by one.",
                column=odd[0],
                file=file,
            )
    ordered = [table.select(tables[0].schema.names).replace_schema_metadata(None) for table in tables]
    try:
        return pa.concat_tables(ordered, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as problem:
        raise ColumnError(
            f"The files of {printable(path)} have incompatible columns: {problem}. Pass the files one by one."
        ) from None


def is_file_name(text: str) -> bool:
    """Return whether a string has the extension of a supported file format."""
    return _suffix(text) in _KINDS


def kind_of(file: str) -> str:
    """Return the format of a file by its extension: 'parquet', 'csv', 'json' or 'avro'.

    Raises CallError for an unknown extension.
    """
    suffix = _suffix(file)
    if suffix not in _KINDS:
        raise CallError(
            f"The format of {printable(file)} is unknown: its name must end in {', '.join(_KINDS)}, optionally "
            f"followed by one of {', '.join(_COMPRESSED)}.",
            file=file,
        )
    return _KINDS[suffix]


def _suffix(file: str) -> str:
    """Return the extension of a file name, without the extension of its compression."""
    stem, suffix = os.path.splitext(file.lower())
    return os.path.splitext(stem)[1] if suffix in _COMPRESSED else suffix


def schema_in(file: str, nulls: Sequence[str] = ()) -> pa.Schema:
    """Return the schema of a file. The schema is inferred unless the file is an uncompressed Parquet file.

    Raises the same exceptions as `rows_in`.
    """
    if kind_of(file) != "parquet" or compression_of(file):
        return rows_in(file, nulls=nulls).schema
    return _reported(file, "parquet", lambda: pa.parquet.read_schema(file).remove_metadata())


def _files(path: str) -> list[str]:
    if "://" in path:
        raise CallError(
            f"Cannot read {printable(path)}: rows can only be read from local files. Read remote files with "
            "pyarrow.dataset or DuckDB, and pass the result.",
            file=path,
        )
    if os.path.isdir(path):
        raise CallError(
            f"{printable(path)} is a folder. Pass its files, such as "
            f"{printable(os.path.join(path, '*.parquet'))}. If it is a table, pass hoodoo.open(...).scan().",
            file=path,
        )
    if os.path.exists(path) or not _PATTERN.search(path):
        return [path]
    if not (found := sorted(file for file in glob.glob(path, recursive=True) if os.path.isfile(file))):
        raise CallError(f"No file matches {printable(path)}.", file=path)
    return found


def compression_of(file: str) -> str | None:
    """Return Arrow's name of a file's compression by its extension, or None for an uncompressed file."""
    return _COMPRESSED.get(os.path.splitext(file)[1].lower())


def _read(file: str, kind: str, columns: pa.Schema, whole: Callable[[str], bool], nulls: Sequence[str]) -> pa.Table:
    if kind == "parquet" and not compression_of(file):
        return _reported(
            file,
            kind,
            lambda: pa.parquet.ParquetFile(
                file, page_checksum_verification=True, coerce_int96_timestamp_unit="us"
            ).read(),
        )
    return _reported(file, kind, lambda: _content_rows(kind, _content(file), columns, whole, nulls))


def _content_rows(
    kind: str, data: pa.Buffer, columns: pa.Schema, whole: Callable[[str], bool], nulls: Sequence[str]
) -> pa.Table:
    rows = _legible(rows_of(kind, data, columns, whole, nulls))
    if kind == "json":
        require_exact(rows, data, columns)
    return rows


def _legible(rows: pa.Table) -> pa.Table:
    """Return `rows` after decoding their column names. Raises UnicodeDecodeError for an invalid name."""
    list(rows.schema.names)
    return rows


def _content(file: str) -> pa.Buffer:
    with pa.input_stream(file, compression=compression_of(file)) as source:
        return pa.py_buffer(source.read())


def _reported(file: str, kind: str, read: Callable[[], Any]) -> Any:
    """Return the result of `read`. Converts exceptions to errors that contain the file name."""
    try:
        return read()
    except FileNotFoundError:
        raise CallError(f"File {printable(file)} does not exist.", file=file) from None
    except (PermissionError, IsADirectoryError) as problem:
        raise CallError(f"Cannot read {printable(file)}: {problem.strerror or problem}.", file=file) from None
    except (
        pa.ArrowInvalid,
        pa.ArrowNotImplementedError,
        OSError,
        ValueError,
        CorruptTable,
        UnsupportedTable,
    ) as problem:
        raise DataError(f"Cannot read {printable(file)} as {kind}: {_line(problem)}", file=file) from None
    except (DataError, EngineError) as problem:
        raise type(problem)(f"{printable(file)}: {problem.message}", **problem.details, file=file) from None


def _line(problem: BaseException) -> str:
    text = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
    return printable(text, 500)


def rows_of(
    kind: str, data: pa.Buffer, columns: pa.Schema, whole: Callable[[str], bool], nulls: Sequence[str] = ()
) -> pa.Table:
    """Read the rows from the contents of a file. The other arguments are described in `rows_in`.

    Raises:
        EngineError: The contents are Avro with a codec whose package is not installed.
        DataError: The contents do not have the format `kind`.
        ColumnError: A value is not convertible to its column, or a line lacks a column that `whole` requires.
        ArrowInvalid: Arrow cannot read the contents.
    """
    if kind == "parquet":
        return pa.parquet.ParquetFile(
            pa.BufferReader(data), page_checksum_verification=True, coerce_int96_timestamp_unit="us"
        ).read()
    if kind == "avro":
        return _of_avro(data)
    return _of_csv(data, columns, nulls) if kind == "csv" else _of_json(data, columns, whole)


def opened_parquet(source: Any, dictionaries: Sequence[str] = ()) -> pa.parquet.ParquetFile:
    """Open a Parquet file. INT96 timestamps are read in microseconds, because nanoseconds only reach the year 2262.

    dictionaries: columns to read as dictionaries.
    """
    return pa.parquet.ParquetFile(
        source,
        page_checksum_verification=True,
        coerce_int96_timestamp_unit="us",
        read_dictionary=list(dictionaries) or None,
    )


def _block_size(data: pa.Buffer, csv: bool = False) -> int:
    """Return the number of bytes that Arrow parses at a time. A row must not span more than two adjacent blocks."""
    if data.size <= _BLOCK:
        return max(1 << 20, data.size)
    text = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    if csv:
        ends = ends[np.searchsorted(np.flatnonzero(text == ord('"')), ends) % 2 == 0]
    longest = int(np.diff(ends, prepend=-1, append=data.size).max())
    return _BLOCK if longest < _BLOCK // 2 else min(data.size, 2**31 - 1)


def _parsed_as(kind: pa.DataType) -> pa.DataType:
    """Return the type to parse text as. A float32 is parsed as float64, so that the later cast detects lost digits."""
    return pa.float64() if pa.types.is_float32(kind) else kind


# ---- CSV
def _of_csv(data: pa.Buffer, columns: pa.Schema, nulls: Sequence[str]) -> pa.Table:
    if not data.size:
        return pa.table({})
    if data[-1] != ord("\n"):  # otherwise Arrow reads an empty last field as an empty string
        data = pa.py_buffer(data.to_pybytes() + b"\n")
    options = pa.csv.ConvertOptions(
        column_types={field.name: _parsed_as(field.type) for field in columns},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=["", *nulls],
    )
    parsing = pa.csv.ParseOptions(newlines_in_values=True)
    reading = pa.csv.ReadOptions(block_size=_block_size(data, csv=True))

    def texts(names: Sequence[str]) -> pa.Table:
        as_text = pa.csv.ConvertOptions(include_columns=list(names), column_types=dict.fromkeys(names, pa.string()))
        return pa.csv.read_csv(pa.BufferReader(data), reading, parsing, as_text)

    try:
        rows = _typed_csv(data, columns, reading, parsing, options)
        if len(set(rows.schema.names)) < rows.num_columns:
            return rows
        _require_decimal_digits(rows, columns, data, texts)
        if codes := _codes(rows, columns, texts):
            options.column_types = {**options.column_types, **dict.fromkeys(codes, pa.string())}
            rows = _typed_csv(data, columns, reading, parsing, options)
        _require_finite_texts(rows, texts)
        return rows
    except pa.ArrowInvalid as problem:
        if not (place := _CSV_PLACE.match(str(problem))):
            raise
        names = pa.csv.open_csv(pa.BufferReader(data), reading, parsing).schema.names
        name, kind, value = names[int(place[1])], place[3], place[4]
        row = f", line {place[2]}" if place[2] else ""
        raise ColumnError(
            f"Column {name!r}{row}: {printable(value.strip(chr(39)))} is not a valid {kind}. Correct the file.",
            column=name,
        ) from None


def _typed_csv(
    data: pa.Buffer,
    columns: pa.Schema,
    reading: pa.csv.ReadOptions,
    parsing: pa.csv.ParseOptions,
    options: pa.csv.ConvertOptions,
) -> pa.Table:
    """Read CSV, with times with or without an offset.

    Arrow alone would require an offset in columns with a time zone, and no offset in other columns.
    """
    try:
        return pa.csv.read_csv(pa.BufferReader(data), reading, parsing, options)
    except pa.ArrowInvalid as problem:
        if "zone offset" not in str(problem):
            raise
    times = [field for field in columns if pa.types.is_timestamp(field.type)]
    options.column_types = {**options.column_types, **{field.name: pa.string() for field in times}}
    rows = pa.csv.read_csv(pa.BufferReader(data), reading, parsing, options)
    for field in times:
        if (at := rows.schema.get_field_index(field.name)) >= 0:
            rows = rows.set_column(at, field.name, times_of(rows.column(at), field))
    return rows


def _require_decimal_digits(
    rows: pa.Table, columns: pa.Schema, data: pa.Buffer, texts: Callable[[Sequence[str]], pa.Table]
) -> None:
    """Raise ColumnError for a hexadecimal number, which Arrow would read as an integer."""
    names = [one.name for one in rows.schema if one.name in columns.names and pa.types.is_integer(one.type)]
    if not names or _HEX.search(data) is None:
        return
    found = texts(names)
    for name in names:
        if (at := pc.index(pc.match_substring_regex(found[name], _HEX_TEXT), True).as_py()) >= 0:
            value = printable(found[name][at].as_py(), 50)
            kind = rows.schema.field(name).type
            raise ColumnError(
                f"Column {name!r}, line {at + 2}: {value} is not a valid {kind}. Correct the file.", column=name
            )


def _codes(rows: pa.Table, columns: pa.Schema, texts: Callable[[Sequence[str]], pa.Table]) -> list[str]:
    """Return the inferred number columns that have to be read as strings.

    A value in such a column begins with 0, like a zip code, or is an integer that a double cannot represent exactly.
    """
    numbers = [
        field.name
        for field in rows.schema
        if field.name not in columns.names and (pa.types.is_integer(field.type) or pa.types.is_floating(field.type))
    ]
    if not numbers:
        return []
    found = texts(numbers)
    return [
        name
        for name in numbers
        if pc.any(pc.match_substring_regex(found[name], _CODE)).as_py() or _is_rounded(rows[name], found[name])
    ]


def _is_rounded(values: pa.ChunkedArray, texts: pa.ChunkedArray) -> bool:
    """Return whether an integer in a column of doubles has lost digits."""
    if not pa.types.is_floating(values.type):
        return False
    large = pc.and_(pc.greater_equal(pc.abs(values), EXACT_BELOW), pc.match_substring_regex(texts, _INTEGER))
    return any(loses_digits(text) for text in pc.unique(texts.filter(large)).to_pylist())


def _require_finite_texts(rows: pa.Table, texts: Callable[[Sequence[str]], pa.Table]) -> None:
    """Raise ColumnError if a number is too large for its column. Arrow would convert it to infinity."""
    floats = [field.name for field in rows.schema if pa.types.is_floating(field.type)]
    for name in floats:
        if not pc.any(pc.is_inf(rows[name])).as_py():
            continue
        found = texts([name])[name]
        large = pc.and_(pc.is_inf(rows[name]), pc.invert(pc.match_substring_regex(found, "(?i)inf")))
        if (at := pc.index(large, True).as_py()) >= 0:
            raise ColumnError(
                f"Column {name!r}, line {at + 2}: {printable(found[at].as_py(), 50)} is too large for a "
                f"{rows.schema.field(name).type}. Correct the file.",
                column=name,
            )


# ---- Avro
def _of_avro(data: pa.Buffer) -> pa.Table:
    schema, batches = avro_batches(pa.BufferReader(data))
    return pa.concat_tables([schema.empty_table(), *batches])


def avro_batches(source: Any, skip: int = 0) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """Read an Avro file.

    Args:
        source: The file, open for reading.
        skip: Number of rows to skip at the beginning. Default 0.

    Returns:
        The columns of the file, and its rows in tables of at most 10,000 rows.

    Raises:
        EngineError: The file has a codec whose package is not installed. The iterator may also raise it.
        ValueError: The file is damaged. The iterator may also raise it.
    """
    import fastavro

    with _avro_errors():
        header: Any = fastavro.schemaless_reader(source, _AVRO_HEADER)
        if header["magic"] != b"Obj\x01":
            raise ValueError("not an Avro file")
        written = json.loads(header["meta"]["avro.schema"])
        schema = arrow_schema(json.dumps(written))
        header["meta"]["avro.schema"] = json.dumps(_without_moments(written)).encode()
        beginning = io.BytesIO()
        fastavro.schemaless_writer(beginning, _AVRO_HEADER, header)
        beginning.seek(0)
        stream: Any = _Behind(beginning, source)
        reader = fastavro.reader(stream)

    def batches() -> Iterator[pa.Table]:
        rows = itertools.islice(reader, skip, None)
        while True:
            with _avro_errors(reader.codec):
                some = list(itertools.islice(rows, _AVRO_ROWS))
                if not some:
                    return
                found = pa.Table.from_pylist(some, schema)
            yield found

    return schema, batches()


class _Behind:
    """Stream of an Avro file with a replaced header, because the header controls how fastavro converts values."""

    def __init__(self, beginning: io.BytesIO, rest: Any) -> None:
        self._beginning, self._rest = beginning, rest

    def read(self, size: int) -> bytes:
        """Read `size` bytes, or fewer at the end of the stream."""
        data = self._beginning.read(size)
        return data + self._rest.read(size - len(data)) if len(data) < size else data


@contextmanager
def _avro_errors(codec: str = "") -> Iterator[None]:
    """Convert exceptions of fastavro to EngineError or ValueError. Passes through hoodoo's and Arrow's exceptions."""
    try:
        yield
    except HoodooError:
        raise
    except Exception as problem:
        if _NO_CODEC in str(problem):
            codec = codec or _CODEC.sub(r"\1", str(problem))
            raise EngineError(
                f"The Avro codec {codec} needs an additional package. Install it: pip install 'fastavro[{codec}]'.",
                library=codec,
            ) from None
        if isinstance(problem, pa.ArrowInvalid):
            raise
        raise ValueError(f"{type(problem).__name__}: {problem}") from None


def _without_moments(schema: Any) -> Any:
    """Return an Avro schema without logical types except decimals.

    Times and UUIDs are then read as stored, so that Arrow can convert times of any year.
    """
    if isinstance(schema, list):
        return [_without_moments(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        name: _without_moments(value) if name in ("type", "items", "values", "fields") else value
        for name, value in schema.items()
        if name != "logicalType" or value == "decimal"
    }
    return kept


# ---- JSON lines
def _is_in_text(content: bytes, found: re.Match[bytes]) -> bool:
    """Return whether a match is inside a string of an object that has its own line."""
    begin = content.rfind(b"\n", 0, found.start(1)) + 1
    try:
        json.loads(content[begin : found.end(1)])
    except (ValueError, RecursionError):
        return False
    return found.start() >= begin


def _of_json(data: pa.Buffer, columns: pa.Schema, whole: Callable[[str], bool]) -> pa.Table:
    if not bytes(data[:4096]).strip() and not data.to_pybytes().strip():
        return columns.empty_table()
    found = _NO_FIRST_OBJECT.match(data) or _NO_OBJECT.search(data)
    if found is not None and found.re is _NO_OBJECT:
        content = data.to_pybytes()
        found = next((one for one in _NO_OBJECT.finditer(content) if not _is_in_text(content, one)), None)
    if found is not None:  # Arrow would crash the process
        row = bytes(data[: found.start(1)]).count(b"\n")
        raise DataError(
            f"Line {row + 1} is {found[1].decode()[:20]!r}, which is not a JSON object. Correct the file.", row=row
        )
    require_shallow(data)
    require_local_times(data, list(columns), _block_size(data))
    rows = _parse_json(data, list(columns))
    require_finite(rows, data)
    unsure = [name for name in columns.names if rows[name].null_count == len(rows)]
    told = {name: _occurs(name, data) for name in unsure}
    rows = rows.drop_columns([name for name in unsure if told[name] is False])
    unsure = [name for name in unsure if told[name] is None]
    if unsure:  # Arrow fills a missing column with nulls if its type is given, but not without its type
        occurring = _parse_json(data, [field for field in columns if field.name not in unsure]).column_names
        rows = rows.drop_columns([name for name in unsure if name not in occurring])
    _require_in_each_line(data, [name for name in rows.column_names if whole(name) and rows[name].null_count])
    for field in columns:
        if field.name in rows.column_names:
            rows = rows.set_column(rows.column_names.index(field.name), field.name, _from_json(rows[field.name], field))
    return rows


def _occurs(name: str, data: pa.Buffer) -> bool | None:
    """Return whether a line has the column `name`, or None if all lines have to be parsed to find out."""
    if _ESCAPED.search(data) is not None:
        return None  # the name may be encoded with escapes
    places = re.finditer(re.escape(json.dumps(name, ensure_ascii=False).encode()) + rb"\s*:", data)
    for count, place in enumerate(places):
        if count == _LOOKS:
            return None
        content = memoryview(data)
        start = bytes(content[max(0, place.start() - _LINE) : place.start()]).rfind(b"\n") + 1
        start += max(0, place.start() - _LINE) if start else 0
        stop = bytes(content[place.end() : place.end() + _LINE]).find(b"\n")
        try:
            if name in json.loads(bytes(content[start : None if stop < 0 else place.end() + stop])):
                return True
        except ValueError:
            return None  # the line is too long, or the object spans several lines
    return False


def _require_in_each_line(data: pa.Buffer, names: Sequence[str]) -> None:
    """Raise ColumnError if a line lacks one of the columns `names`. Arrow would read it as null.

    Call it only for columns with nulls, because it parses the whole file.
    """
    if not names:
        return
    text, decoder, at, number = data.to_pybytes().decode(), json.JSONDecoder(), 0, 0
    while start := _VALUE.search(text, at):
        try:
            row, at = decoder.raw_decode(text, start.start())
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


def _parse_json(data: pa.Buffer, fields: Sequence[pa.Field]) -> pa.Table:
    """Parse JSON. Columns in `fields` have the given types, and the types of other columns are inferred.

    Raises ColumnError if a column has values and its type is not supported in JSON.
    """
    explicit, refused = list[pa.Field](), dict[str, ColumnError]()
    for field in fields:
        try:
            explicit.append(pa.field(field.name, _json_type(field.type, field.name)))
        except ColumnError as problem:
            refused[field.name] = problem
    reading = pa.json.ReadOptions(block_size=_block_size(data))
    parsing = pa.json.ParseOptions(explicit_schema=pa.schema(explicit))
    rows = pa.json.read_json(pa.BufferReader(data), read_options=reading, parse_options=parsing)
    for name, why in refused.items():
        if name in rows.column_names and rows[name].null_count < len(rows):
            raise why
    return rows


def _json_type(kind: pa.DataType, name: str, top: bool = True) -> pa.DataType:
    """Return the type to request from Arrow's JSON reader. Raises ColumnError for an unsupported type."""
    if pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_binary(kind):
        if top:
            return pa.string()
    elif pa.types.is_list(kind):
        return pa.list_(_json_type(kind.value_type, name, top=False))
    elif pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _json_type(field.type, name, top=False)) for field in kind])
    elif not pa.types.is_map(kind):
        return _parsed_as(kind)
    raise ColumnError(
        f"Column {name!r}: JSON cannot represent a {kind}{'' if top else ' within another value'}. Use a Parquet file.",
        column=name,
    )


def _from_json(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Convert strings to bytes, times or dates. Arrow can cast neither base64 nor times of day."""
    if pa.types.is_binary(field.type):
        return _parsed(values, field, lambda text: base64.b64decode(text, validate=True))
    if pa.types.is_time(field.type):
        return _parsed(values, field, dt.time.fromisoformat)
    return values.cast(field.type) if pa.types.is_date(field.type) else values  # a cast of a struct would cut fields


def _parsed(values: pa.ChunkedArray, field: pa.Field, parse: Callable[[str], Any]) -> pa.ChunkedArray:
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


__all__ = [
    "avro_batches",
    "compression_of",
    "is_file_name",
    "kind_of",
    "opened_parquet",
    "rows_in",
    "rows_of",
    "schema_in",
]
