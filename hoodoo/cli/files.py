"""Row files in Parquet, CSV and JSON lines.

writers/batches/row_files.py defines the formats for reading. Written CSV has one column for each struct field, named
`struct.field`. JSON output has bytes as base64, decimals and times as strings, and null for NaN and infinities. JSON
files with NaN or infinities are rejected.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
import os
import secrets
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import CallError, ColumnError, DataError
from hoodoo.redact import printable

STDIN = "-"
_JSON = (".json", ".jsonl", ".ndjson")


def _kind(file: str) -> str:
    suffix = os.path.splitext(file)[1].lower()
    return "json" if file == STDIN or suffix in _JSON else suffix[1:]


# ---- reading
def require_writable(file: str) -> None:
    """Check that a file has a supported extension."""
    if file == STDIN or os.path.splitext(file)[1].lower() not in (".parquet", ".csv", *_JSON):
        raise CallError(
            f"Cannot write {printable(file)}: its name must end in .parquet, .csv, .json or .jsonl. Leave out "
            "--output to print the rows to stdout.",
            file=file,
        )


def read_rows(
    file: str, schema: pa.Schema | None = None, nulls: Sequence[str] = (), whole: Collection[str] = ()
) -> pa.Table:
    """Read the rows of files or of stdin.

    Args:
        file: The path, a pattern, or STDIN for JSON lines. See `row_files.read_local_files`.
        schema: Column types for parsing text. None (default): the types are inferred.
        nulls: Strings that represent null in CSV.
        whole: Columns that must be present in either all JSON lines or no line.
    """
    from hoodoo.writers.batches.row_files import NO_COLUMNS, parse_rows, read_local_files

    schema = NO_COLUMNS if schema is None else schema
    if file != STDIN:
        return read_local_files(file, schema, whole.__contains__, nulls)
    try:
        return parse_rows("json", pa.py_buffer(sys.stdin.buffer.read()), schema, whole.__contains__)
    except (pa.ArrowInvalid, UnicodeDecodeError) as problem:
        raise DataError(f"Cannot read stdin as JSON lines: {problem}") from None


def read_schema(file: str, nulls: Sequence[str] = ()) -> pa.Schema:
    """Return the columns of a row file."""
    from hoodoo.writers.batches.row_files import schema_in

    return read_rows(file, nulls=nulls).schema if file == STDIN else schema_in(file, nulls)


# ---- writing
class RowWriter(Protocol):
    def write(self, batch: pa.RecordBatch) -> None: ...


class _JsonLines:
    def __init__(self, file: Any) -> None:
        self.file = file

    def write(self, batch: pa.RecordBatch) -> None:
        try:
            for row in convert_to_python(batch, lambda: batch.to_pylist(maps_as_pydicts="strict")):
                self.file.write(json.dumps(row, default=_plain, allow_nan=False) + "\n")
        except ValueError:
            raise ColumnError(
                "JSON cannot represent NaN or infinity, and a row contains such a value. Write to a .parquet "
                "or .csv file, or exclude such rows with --where.",
                file=self.file.name,
            ) from None


def format_json_lines(batch: pa.RecordBatch) -> Iterator[str]:
    """Format the rows of a batch as JSON lines."""
    for row in convert_to_python(batch, lambda: batch.to_pylist(maps_as_pydicts="strict")):
        yield format_json(row)


def convert_to_python(batch: pa.RecordBatch | pa.Table, values: Callable[[], list[Any]]) -> list[Any]:
    """Convert a batch to Python values.

    Args:
        batch: The batch, which the error message refers to.
        values: Function that converts the batch.
    """
    try:
        return values()
    except (OverflowError, ValueError) as problem:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                column.to_pylist()
            except (OverflowError, ValueError):
                raise ColumnError(
                    f"Column {name!r} has a value that cannot be shown: {problem}. Dates in Python end with "
                    "the year 9999. Write the rows to a Parquet or Arrow file, or leave the column out.",
                    column=name,
                ) from None
        raise


def format_json(value: Any) -> str:
    """Format a value as JSON.

    NaN and infinities become null.
    """
    try:
        return json.dumps(value, default=_plain, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, decimal.Decimal) else repr(value)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, (list, tuple)) else value


def write_rows(file: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write rows to a file, and return their number.

    The file appears only when it is complete.
    """
    require_writable(file)
    kind, rows = _kind(file), 0
    if kind == "csv":
        schema = _flat_schema(schema)
        _require_flat(schema)
    partial = f"{file}.{secrets.token_hex(4)}.partial"
    try:
        with _row_writer(partial, kind, schema) as writer:
            for batch in batches:
                writer.write(_with_iso_times(_flatten_structs(batch, schema)) if kind == "csv" else batch)
                rows += len(batch)
        os.replace(partial, file)
    except pa.ArrowInvalid as problem:
        raise ColumnError(
            f"{kind.upper()} cannot represent a value: {problem}. Write to a .parquet file, or leave the "
            "column out with --columns.",
            file=file,
        ) from None
    except OSError as problem:
        raise CallError(f"Cannot write {printable(file)}: {problem.strerror or problem}.", file=file) from None
    finally:
        if os.path.exists(partial):
            os.unlink(partial)
    return rows


@contextmanager
def _row_writer(path: str, kind: str, schema: pa.Schema) -> Iterator[RowWriter]:
    if kind == "parquet":
        from pyarrow.parquet import ParquetWriter

        with ParquetWriter(path, schema, compression="zstd") as writer:
            yield writer
    elif kind == "csv":
        from pyarrow.csv import CSVWriter

        with CSVWriter(path, _csv_schema(schema)) as writer:
            yield writer
    else:
        with open(path, "w", encoding="ascii") as file:
            yield _JsonLines(file)


def _flat_schema(schema: pa.Schema) -> pa.Schema:
    fields = list(schema)
    while any(pa.types.is_struct(field.type) for field in fields):
        fields = [one for field in fields for one in (field.flatten() if pa.types.is_struct(field.type) else [field])]
    return pa.schema(fields)


def _flatten_structs(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = list(batch.columns)
    while any(pa.types.is_struct(column.type) for column in columns):
        columns = [
            one for column in columns for one in (column.flatten() if pa.types.is_struct(column.type) else [column])
        ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _csv_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        [pa.field(field.name, pa.string() if pa.types.is_timestamp(field.type) else field.type) for field in schema]
    )


def _with_iso_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [_iso(column) if pa.types.is_timestamp(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=_csv_schema(batch.schema))


def _iso(times: pa.Array) -> pa.Array:
    text = pc.strftime(times, "%Y-%m-%dT%H:%M:%S")
    return pc.binary_join_element_wise(text, "Z", "") if times.type.tz else text


def _require_flat(schema: pa.Schema) -> None:
    for field in schema:
        if pa.types.is_nested(field.type):
            raise ColumnError(
                f"CSV cannot represent column {field.name!r} of type {field.type}. Write to a .parquet or .jsonl file.",
                column=field.name,
            )
