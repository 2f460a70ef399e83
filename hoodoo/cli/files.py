"""Rows from files and into files, for the command line: Parquet, CSV, JSON lines. Knows nothing of tables.

CSV: an empty unquoted field is null, a quoted one ("") is the empty text. JSON: bytes are base64, NaN and infinities
become null, decimals and times are text; a column that occurs in no line is missing, one that lacks in some lines is
null there, unless the caller says that it may not lack.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
import os
import re
import secrets
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from hoodoo.errors import CallError, ColumnError, DataError
from hoodoo.format.names import IS_DELETED
from hoodoo.redact import printable

STDIN = "-"
_JSON = (".json", ".jsonl", ".ndjson")
_VALUE = re.compile(r"\S")


def _kind(file: str) -> str:
    suffix = os.path.splitext(file)[1].lower()
    if file == STDIN or suffix in _JSON:
        return "json"
    if suffix in (".parquet", ".csv"):
        return suffix[1:]
    raise CallError(
        (
            f"Cannot tell what {printable(file)} holds: its name must end in .parquet, .csv, .json or .jsonl; '-' is "
            "JSON lines on stdin."
        ),
        file=file,
    )


# ---- reading
def require_writable(file: str) -> None:
    """Raise CallError where the name of a file to write does not say in which format."""
    if file == STDIN or os.path.splitext(file)[1].lower() not in (".parquet", ".csv", *_JSON):
        raise CallError(
            f"Cannot write {printable(file)}: give it a name that ends in .parquet, .csv, .json or .jsonl. Without a "
            "file the rows go to stdout.",
            file=file,
        )


def read(
    file: str, schema: pa.Schema | None = None, nulls: Sequence[str] = (), whole: Collection[str] = ()
) -> pa.Table:
    """All rows of `file`. schema: types of the columns that text must be read as; those that are not in it are
    inferred.

    nulls: texts that stand for null in CSV, besides an empty field. whole: columns that each line of JSON has, or none.
    Raises CallError for a file that cannot be opened, DataError for one that does not hold what its name says,
    ColumnError for a line without a column of `whole` that others have.
    """
    kind = _kind(file)
    try:
        if kind == "parquet":
            return pa.parquet.ParquetFile(file).read()
        return _read_csv(file, schema, nulls) if kind == "csv" else _read_json(file, schema, whole)
    except OSError as problem:
        raise CallError(f"Cannot read {printable(file)}: {problem.strerror or problem}.", file=file) from None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as problem:
        raise DataError(f"Cannot read {printable(file)} as {kind}: {problem}", file=file) from None


def read_schema(file: str, nulls: Sequence[str] = ()) -> pa.Schema:
    """The columns of `file`: of a Parquet file its own, of text what its values look like."""
    if _kind(file) != "parquet":
        return read(file, None, nulls).schema
    try:
        return pa.parquet.read_schema(file).remove_metadata()
    except OSError as problem:
        raise CallError(f"Cannot read {printable(file)}: {problem.strerror or problem}.", file=file) from None
    except pa.ArrowInvalid as problem:
        raise DataError(f"Cannot read {printable(file)} as parquet: {problem}", file=file) from None


def _read_csv(file: str, schema: pa.Schema | None, nulls: Sequence[str]) -> pa.Table:
    types = {field.name: field.type for field in schema or ()}
    options = pa.csv.ConvertOptions(
        column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=["", *nulls]
    )
    return pa.csv.read_csv(file, parse_options=pa.csv.ParseOptions(newlines_in_values=True), convert_options=options)


def _read_json(file: str, schema: pa.Schema | None, whole: Collection[str]) -> pa.Table:
    if file == STDIN:
        data = pa.py_buffer(sys.stdin.buffer.read())
    else:
        with pa.OSFile(file) as source:
            data = source.read_buffer()
    if not bytes(data[:4096]).strip() and not data.to_pybytes().strip():
        return (schema or pa.schema([])).empty_table()
    if schema is None:
        return _parse_json(data, [])
    rows = _parse_json(data, list(schema))
    unsure = [name for name in schema.names if rows[name].null_count == len(rows)]
    if unsure:  # Arrow makes nulls of a column that does not occur; read without its type, it stays away
        occurring = _parse_json(data, [field for field in schema if field.name not in unsure]).column_names
        rows = rows.drop_columns([name for name in unsure if name not in occurring])
    _require_in_each_line(data, [name for name in rows.column_names if name in whole and rows[name].null_count])
    for field in schema:
        if field.name in rows.column_names:
            rows = rows.set_column(rows.column_names.index(field.name), field.name, _from_json(rows[field.name], field))
    return rows


def _require_in_each_line(data: pa.Buffer, names: Sequence[str]) -> None:
    """Raise ColumnError where a line says nothing of one of `names`: to Arrow that is a null like any other. Only files
    with nulls in such columns are looked through.
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
                    f"Row {number} of the file has no {name!r}, which other rows have. Add it, or upsert rows with "
                    "other columns from a file of their own, with --missing keep. --missing null overwrites stored "
                    "values with null where there is no default.",
                    column=name,
                    row=number,
                )


def _parse_json(data: pa.Buffer, fields: Sequence[pa.Field]) -> pa.Table:
    """Columns of `fields` as their types, others as their values look. Raises ColumnError where one occurs that JSON
    cannot bring.
    """
    explicit, refused = list[pa.Field](), dict[str, ColumnError]()
    for field in fields:
        try:
            explicit.append(pa.field(field.name, _json_type(field.type, field.name)))
        except ColumnError as problem:
            refused[field.name] = problem
    reading = pa.json.ReadOptions(block_size=max(1 << 20, min(data.size, 64 << 20)))
    parsing = pa.json.ParseOptions(explicit_schema=pa.schema(explicit))
    rows = pa.json.read_json(pa.BufferReader(data), read_options=reading, parse_options=parsing)
    for name, why in refused.items():
        if name in rows.column_names and rows[name].null_count < len(rows):
            raise why
    return rows


def _json_type(kind: pa.DataType, name: str, top: bool = True) -> pa.DataType:
    """The type that Arrow's JSON reader is asked for."""
    if pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_binary(kind):
        if top:
            return pa.string()
    elif pa.types.is_list(kind):
        return pa.list_(_json_type(kind.value_type, name, top=False))
    elif pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _json_type(field.type, name, top=False)) for field in kind])
    elif not pa.types.is_map(kind):
        return kind
    raise ColumnError(
        f"Column {name!r}: JSON cannot bring a {kind}{'' if top else ' within another value'}; use a Parquet file.",
        column=name,
    )


def _from_json(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Text as what it stands for; Arrow casts neither base64 nor times of day."""
    if pa.types.is_binary(field.type):
        return _parsed(values, field, lambda text: base64.b64decode(text, validate=True))
    return _parsed(values, field, dt.time.fromisoformat) if pa.types.is_time(field.type) else values.cast(field.type)


def _parsed(values: pa.ChunkedArray, field: pa.Field, parse: Callable[[str], Any]) -> pa.ChunkedArray:
    try:
        return pa.chunked_array(
            [pa.array([None if text is None else parse(text) for text in values.to_pylist()], field.type)]
        )
    except ValueError:
        raise DataError(
            f"Column {field.name!r}: a value is no {field.type} (JSON brings bytes as base64, times as ISO 8601).",
            column=field.name,
        ) from None


# ---- writing
class RowWriter(Protocol):
    """Writes batches of rows into a file."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch."""


class _JsonLines:
    def __init__(self, file: Any) -> None:
        self.file = file

    def write(self, batch: pa.RecordBatch) -> None:
        self.file.writelines(f"{line}\n" for line in json_lines(batch))


def json_lines(batch: pa.RecordBatch) -> Iterator[str]:
    """Each row as a JSON object in ASCII, so that no control character of a value reaches a terminal."""
    for row in python_values(batch, lambda: batch.to_pylist(maps_as_pydicts="strict")):
        yield json_text(row)


def python_values(batch: pa.RecordBatch | pa.Table, values: Callable[[], list[Any]]) -> list[Any]:
    """What `values` makes of `batch`. Raises ColumnError for a time that Python does not have."""
    try:
        return values()
    except (OverflowError, ValueError) as problem:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                column.to_pylist()
            except (OverflowError, ValueError):
                raise ColumnError(
                    f"Column {name!r} has a value that cannot be shown: {problem}. Python's dates end with the year "
                    "9999; write the rows to a Parquet or Arrow file, or leave the column out.",
                    column=name,
                ) from None
        raise


def json_text(value: Any) -> str:
    """Make JSON text of a value."""
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


def write(file: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write `batches` to `file`, which appears, or is replaced, only when it is whole. Returns the number of rows."""
    require_writable(file)
    kind, rows = _kind(file), 0
    if kind == "csv":
        _require_flat(schema)
    partial = f"{file}.{secrets.token_hex(4)}.partial"
    try:
        with _row_writer(partial, kind, schema) as writer:
            for batch in batches:
                writer.write(_for_csv(batch) if kind == "csv" else batch)
                rows += len(batch)
        os.replace(partial, file)
    except OSError as problem:
        raise CallError(f"Cannot write {printable(file)}: {problem.strerror or problem}.", file=file) from None
    finally:
        if os.path.exists(partial):
            os.unlink(partial)
    return rows


@contextmanager
def _row_writer(path: str, kind: str, schema: pa.Schema) -> Iterator[RowWriter]:
    if kind == "parquet":
        with pa.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
            yield writer
    elif kind == "csv":
        with pa.csv.CSVWriter(path, _csv_schema(schema)) as writer:
            yield writer
    else:
        with open(path, "w", encoding="ascii") as file:
            yield _JsonLines(file)


def _csv_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        [pa.field(field.name, pa.string() if pa.types.is_timestamp(field.type) else field.type) for field in schema]
    )


def _for_csv(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Times as ISO 8601 with the zone, which is what reading them back takes."""
    arrays = [_iso(column) if pa.types.is_timestamp(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=_csv_schema(batch.schema))


def _iso(times: pa.Array) -> pa.Array:
    text = pc.strftime(times, "%Y-%m-%dT%H:%M:%S")
    return pc.binary_join_element_wise(text, "Z", "") if times.type.tz else text


def _require_flat(schema: pa.Schema) -> None:
    for field in schema:
        if pa.types.is_nested(field.type):
            raise ColumnError(
                f"CSV cannot hold column {field.name!r} of type {field.type}; choose .parquet or .jsonl.",
                column=field.name,
            )
