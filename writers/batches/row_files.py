"""Reader for rows in local files.

The formats are Parquet, CSV, JSON lines and Avro. The extension determines the format: `.parquet`, `.csv`, `.json`,
`.jsonl`, `.ndjson` or `.avro`, optionally followed by `.gz`, `.bz2`, `.zst` or `.lz4`.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from hoodoo.errors import CallError, ColumnError, CorruptTable, DataError, EngineError, UnsupportedTable
from hoodoo.redact import printable
from hoodoo.writers.batches.avro_file import avro_rows
from hoodoo.writers.batches.csv_file import csv_rows
from hoodoo.writers.batches.json_file import json_rows
from hoodoo.writers.batches.json_text import require_exact_integers

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


def read_local_files(
    path: str | os.PathLike[str],
    columns: pa.Schema = NO_COLUMNS,
    whole: Callable[[str], bool] = lambda name: False,
    nulls: Sequence[str] = (),
) -> pa.Table:
    """Read the rows of local files.

    Args:
        path: A file, or a pattern with `*`, `?`, `[...]` or `**`. Matching files are read in order of their names.
        columns: The types of columns in CSV and JSON files. The types of other columns are inferred.
        whole: Function that returns whether every line of JSON must contain a column if any line has it. Default:
            never.
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
    with_columns = [number for number, table in enumerate(tables) if table.num_columns]
    if len(with_columns) < 2:
        return tables[with_columns[0] if with_columns else 0]
    files, tables = [files[number] for number in with_columns], [tables[number] for number in with_columns]
    for file, table in zip(files, tables, strict=True):
        if different := sorted(set(table.schema.names) ^ set(tables[0].schema.names)):
            raise ColumnError(
                f"Column {different[0]!r} is in only one of the files {printable(files[0])} and {printable(file)}: "
                "expected the same columns in all files. Pass the files one by one.",
                column=different[0],
                file=file,
            )
    ordered = [table.select(tables[0].schema.names).replace_schema_metadata(None) for table in tables]
    try:
        return pa.concat_tables(ordered, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as problem:
        raise ColumnError(
            f"The files of {printable(path)} have incompatible columns: {problem}. Pass the files one by one."
        ) from None


def has_supported_extension(text: str) -> bool:
    return _format_extension(text) in _KINDS


def kind_of(file: str) -> str:
    suffix = _format_extension(file)
    if suffix not in _KINDS:
        raise CallError(
            f"File {printable(file)} has an unknown format: expected a name that ends in {', '.join(_KINDS)}, "
            f"optionally followed by one of {', '.join(_COMPRESSED)}. Rename the file.",
            file=file,
        )
    return _KINDS[suffix]


def _format_extension(file: str) -> str:
    # For 'a.csv.gz', the extension is '.csv'.
    stem, suffix = os.path.splitext(file.lower())
    return os.path.splitext(stem)[1] if suffix in _COMPRESSED else suffix


def schema_in(file: str, nulls: Sequence[str] = ()) -> pa.Schema:
    if kind_of(file) != "parquet" or compression_of(file):
        return read_local_files(file, nulls=nulls).schema
    return _add_file_to_errors(file, "parquet", lambda: pa.parquet.read_schema(file).remove_metadata())


def _files(path: str) -> list[str]:
    if "://" in path:
        raise CallError(
            f"Cannot read {printable(path)}: rows can only be read from local files. Read remote files with "
            "pyarrow.dataset or DuckDB, and pass the result.",
            file=path,
        )
    if os.path.isdir(path):
        raise CallError(
            f"Path {printable(path)} is a folder. Pass its files, such as "
            f"{printable(os.path.join(path, '*.parquet'))}. If it is a table, pass hoodoo.open(...).scan().",
            file=path,
        )
    if os.path.exists(path) or not _PATTERN.search(path):
        return [path]
    _require_listable_folders(path)
    if not (matches := sorted(file for file in glob.glob(path, recursive=True) if os.path.isfile(file))):
        raise CallError(f"No file matches the pattern {printable(path)}. Correct the pattern.", file=path)
    return matches


def _require_listable_folders(pattern: str) -> None:
    # glob would silently skip a folder that this user may not list.
    folder = os.path.dirname(pattern)
    if folder in ("", pattern):
        return
    if glob.has_magic(folder):
        _require_listable_folders(folder)
    for match in glob.glob(folder, recursive=True):
        try:
            os.scandir(match).close()
        except PermissionError as problem:
            raise CallError(
                f"Folder {printable(match)} cannot be read ({problem.strerror}). Grant this user access, or pass a "
                "pattern without the folder.",
                file=match,
            ) from None
        except OSError:
            continue  # it is a file, or it was deleted


def compression_of(file: str) -> str | None:
    return _COMPRESSED.get(os.path.splitext(file)[1].lower())


def _read(file: str, kind: str, columns: pa.Schema, whole: Callable[[str], bool], nulls: Sequence[str]) -> pa.Table:
    if kind == "parquet" and not compression_of(file):
        return _add_file_to_errors(
            file,
            kind,
            lambda: pa.parquet.ParquetFile(
                file, page_checksum_verification=True, coerce_int96_timestamp_unit="us"
            ).read(),
        )
    return _add_file_to_errors(file, kind, lambda: _content_rows(kind, _content(file), columns, whole, nulls))


def _content_rows(
    kind: str, data: pa.Buffer, columns: pa.Schema, whole: Callable[[str], bool], nulls: Sequence[str]
) -> pa.Table:
    rows = _require_utf8_names(parse_rows(kind, data, columns, whole, nulls))
    if kind == "json":
        require_exact_integers(rows, data, columns)
    return rows


def _require_utf8_names(rows: pa.Table) -> pa.Table:
    # Access to the names raises UnicodeDecodeError if a name is not valid UTF-8.
    list(rows.schema.names)
    return rows


def _content(file: str) -> pa.Buffer:
    with pa.input_stream(file, compression=compression_of(file)) as source:
        return pa.py_buffer(source.read())


def _add_file_to_errors(file: str, kind: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except FileNotFoundError:
        raise CallError(f"File {printable(file)} does not exist. Correct the path.", file=file) from None
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
        raise DataError(f"Cannot read {printable(file)} as {kind}: {_first_message_line(problem)}", file=file) from None
    except (DataError, EngineError) as problem:
        raise type(problem)(f"{printable(file)}: {problem.message}", **problem.details, file=file) from None


def _first_message_line(problem: BaseException) -> str:
    text = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
    return printable(text, 500)


def parse_rows(
    kind: str, data: pa.Buffer, columns: pa.Schema, whole: Callable[[str], bool], nulls: Sequence[str] = ()
) -> pa.Table:
    """Parse the rows of a file.

    `read_local_files` describes the other arguments.

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
        return avro_rows(data)
    return csv_rows(data, columns, nulls) if kind == "csv" else json_rows(data, columns, whole)


def opened_parquet(source: Any, dictionaries: Sequence[str] = ()) -> pa.parquet.ParquetFile:
    return pa.parquet.ParquetFile(
        source,
        page_checksum_verification=True,
        coerce_int96_timestamp_unit="us",
        read_dictionary=list(dictionaries) or None,
    )


__all__ = [
    "compression_of",
    "has_supported_extension",
    "kind_of",
    "opened_parquet",
    "read_local_files",
    "parse_rows",
    "schema_in",
]
