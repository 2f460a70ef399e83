"""Record keys and partition paths: conversion of columns to Hudi's strings, and parsing (docs/format.md 8.2 and 8.3).

The functions process whole columns. Only the distinct values of a partition column are processed one by one.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import ColumnError, CorruptTable, KeyValueError, PartitionValueError, SchemaError
from hoodoo.nearest import hint
from hoodoo.redact import printable

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Partition of rows whose partition value is null or empty."""
KEY_CAP = 64 << 10
"""Maximum bytes of one record key. Keys are in every row, footer and index, so a longer key is probably a document."""
SEGMENT_CAP = 255
"""Maximum bytes of one folder name in common file systems."""

_PLACEHOLDERS = ("__null__", "__empty__")
"""Hudi's placeholders for null and for an empty string in a composite key. They are invalid as values."""
_URL_ENCODED = {ord(c): f"%{ord(c):02X}" for c in [*map(chr, range(0x20)), "\x7f", *"\"#%'*/:=?\\{[]^"]}
_URL_ESCAPE = re.compile("%([0-9A-F]{2})")
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), dtype=np.uint16)
_EPOCH = dt.datetime(1970, 1, 1)
_INTEGER = re.compile(r"-?\d+")


Refuse: TypeAlias = Callable[[pa.BooleanArray, pa.StringArray, str, str], None]
"""Function that handles invalid keys. It gets a mask of the invalid rows, the keys, the column and the reason."""


def record_keys(rows: pa.Table, key_columns: Sequence[str], partition_columns: Sequence[str]) -> pa.StringArray:
    """Compute the record key of each row (`_hoodie_record_key`) from its key columns, encoded as Hudi does.

    It is the plain value for one key column and at most one partition column. Otherwise it is `a:1,b:2` in declared
    order.

    Raises KeyValueError, which names column, row (from 0) and value, for a null, for a key of only empty strings, and
    for a key longer than `KEY_CAP`. In a composite key, it is also raised for a value that contains `,<key column>:` or
    is `__null__` or `__empty__`, because two keys could look equal. Raises ColumnError for a missing column. The keys
    of one call may have up to 2 GiB.
    """
    return _record_keys(rows, key_columns, partition_columns, _refuse_first)


def virtual_keys(rows: pa.Table, key_columns: Sequence[str]) -> pa.StringArray:
    """Compute the record keys of rows from their key columns, for tables whose files do not store keys.

    Several key columns are encoded as in `record_keys`. A single one is the plain value.
    """
    return record_keys(rows, key_columns, ())


def unfit_keys(rows: pa.Table, key_columns: Sequence[str], partition_columns: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return a boolean mask of the rows without a valid record key, for which `record_keys` raises an error."""
    found = np.zeros(len(rows), bool)

    def note(wrong: pa.BooleanArray, texts: pa.StringArray, column: str, why: str) -> None:
        found[:] |= pc.fill_null(wrong, False).to_numpy(zero_copy_only=False)

    _record_keys(rows, key_columns, partition_columns, note)
    return found


def _record_keys(
    rows: pa.Table, key_columns: Sequence[str], partition_columns: Sequence[str], refuse: Refuse
) -> pa.StringArray:
    texts = [_key_texts(rows, column, refuse) for column in key_columns]
    _refuse_empty_keys(texts, key_columns, refuse)
    if len(key_columns) == 1 and len(partition_columns) <= 1:
        keys = texts[0]
    else:
        keys = _composite(rows, key_columns, texts, refuse)
    refuse(
        pc.greater(pc.binary_length(keys), KEY_CAP), keys, ", ".join(key_columns), f"has more than {KEY_CAP:,} bytes"
    )
    return keys


def partition_paths(
    rows: pa.Table, partition_columns: Sequence[str], hive_style: bool = True, url_encode: bool = True
) -> pa.DictionaryArray:
    """Compute the partition path of each row (`_hoodie_partition_path`), encoded as Hudi does.

    Returns a dictionary array with int32 indices and each distinct path once.

    Without partition columns, the only path is ''. Raises PartitionValueError, which names column and value, for an
    invalid folder name: the text `__HIVE_DEFAULT_PARTITION__`, NUL, an empty, `.` or `..` segment, an unencoded
    backslash, `.hoodie` at the root, or more than `SEGMENT_CAP` bytes. Raises ColumnError for a missing column.
    """
    if not partition_columns:
        return pa.DictionaryArray.from_arrays(np.zeros(rows.num_rows, dtype=np.int32), pa.array([""]))
    encoded = [_column(rows, name).dictionary_encode(null_encoding="encode") for name in partition_columns]
    tuples, parts = _distinct_tuples(
        [_numpy(column.indices) for column in encoded], [len(column.dictionary) for column in encoded]
    )
    segments = [
        _segments(name, column.dictionary, hive_style, url_encode, is_first=name == partition_columns[0])
        for name, column in zip(partition_columns, encoded, strict=True)
    ]
    paths = pc.binary_join_element_wise(*(s.take(pa.array(part)) for s, part in zip(segments, parts, strict=True)), "/")
    distinct = paths.dictionary_encode()  # null and an empty string share a path
    return pa.DictionaryArray.from_arrays(distinct.indices.take(pa.array(tuples)), distinct.dictionary)


def unfit_partitions(
    rows: pa.Table, partition_columns: Sequence[str], hive_style: bool = True, url_encode: bool = True
) -> npt.NDArray[np.bool_]:
    """Return a boolean mask of the rows without a valid partition path, for which `partition_paths` raises an error.

    Each distinct value is checked once.
    """
    found = np.zeros(len(rows), bool)
    for name in partition_columns:
        column = _column(rows, name).dictionary_encode(null_encoding="encode")
        values, wrong = column.dictionary, np.zeros(len(column.dictionary), bool)
        for code in range(len(values)):
            try:
                _segments(name, values.slice(code, 1), hive_style, url_encode, is_first=name == partition_columns[0])
            except PartitionValueError:
                wrong[code] = True
        found |= wrong[_numpy(column.indices)]
    return found


def partition_values(
    path: str, partition_columns: Sequence[str], schema: pa.Schema, hive_style: bool = True, url_encode: bool = True
) -> dict[str, Any]:
    """Parse a partition path, such as 'day=2026-01-31', into typed values of the partition columns, by column name.

    The values are int, str, Decimal, date, datetime (UTC-aware if the column has a zone), bool or bytes. None is the
    default partition: null, or possibly the empty value in a string or binary column. Raises CorruptTable for a path
    that does not match the columns.
    """
    texts = partition_texts(path, partition_columns, hive_style, url_encode)
    return {
        name: _value(path, name, schema.field(name).type, text)
        for name, text in zip(partition_columns, texts, strict=True)
    }


def partition_texts(
    path: str, partition_columns: Sequence[str], hive_style: bool = True, url_encode: bool = True
) -> tuple[str, ...]:
    """Parse a partition path into one string per partition column, without column names and escapes.

    The string for null is `DEFAULT_PARTITION`. Raises CorruptTable for a path that does not match the columns.
    """
    if not partition_columns:
        return ()
    segments = path.split("/") if len(partition_columns) > 1 or url_encode else [path]
    if len(segments) != len(partition_columns):
        raise CorruptTable(
            (
                f"The partition path {path!r} has {len(segments)} segments; the table is partitioned by "
                f"{', '.join(partition_columns)}."
            ),
            path=path,
        )
    return tuple(
        _text(path, name, segment, hive_style, url_encode)
        for name, segment in zip(partition_columns, segments, strict=True)
    )


def check_key_columns(
    schema: pa.Schema, key: Sequence[str], partition_by: Sequence[str], order_by: Sequence[str]
) -> None:
    """Validate the key, partition and ordering columns of a new table.

    Raises SchemaError for a missing or repeated column, for no key column, for a key or partition column that is float,
    time or nested, and for an ordering column that is not integer, float, decimal, date, timestamp or string.
    """
    if not key:
        raise SchemaError("A table needs at least one key column. Pass key='<column>'.")
    for role, columns in (("key", key), ("partition", partition_by), ("ordering", order_by)):
        _check_names(schema, role, columns)
    for role, columns in (("key", key), ("partition", partition_by)):
        for name in columns:
            _check_type(schema, role, name, _can_be_key, "bool, integer, decimal, date, timestamp, string or binary")
    for name in order_by:
        _check_type(schema, "ordering", name, _can_order, "integer, float, decimal, date, timestamp or string")


# --- keys


def _key_texts(rows: pa.Table, name: str, refuse: Refuse) -> pa.StringArray:
    column = _column(rows, name)
    texts = _texts(column)
    if column.null_count:
        refuse(column.is_null(), texts, name, "is null")
    return texts


def _refuse_empty_keys(texts: list[pa.StringArray], key_columns: Sequence[str], refuse: Refuse) -> None:
    """Reject rows whose key columns are all empty strings, as Apache Hudi does."""
    empty = pc.equal(pc.binary_length(texts[0]), 0)
    for more in texts[1:]:
        empty = pc.and_(empty, pc.equal(pc.binary_length(more), 0))
    refuse(empty, texts[0], ", ".join(key_columns), "is empty")


def _composite(
    rows: pa.Table, key_columns: Sequence[str], texts: list[pa.StringArray], refuse: Refuse
) -> pa.StringArray:
    parts: list[Any] = []
    for name, text in zip(key_columns, texts, strict=True):
        if _is_text(rows.schema.field(name).type):
            _refuse_ambiguous(name, text, key_columns, refuse)
            text = pc.if_else(pc.equal(text, ""), "__empty__", text)
        parts += [f",{name}:" if parts else f"{name}:", text]
    return pc.binary_join_element_wise(*parts, "")


def _refuse_ambiguous(name: str, text: pa.StringArray, key_columns: Sequence[str], refuse: Refuse) -> None:
    for other in key_columns:
        mark = f",{other}:"
        refuse(
            pc.match_substring(text, mark),
            text,
            name,
            f"contains {mark!r}, which separates the columns of a composite key",
        )
    refuse(
        pc.is_in(text, pa.array(_PLACEHOLDERS)),
        text,
        name,
        "is the encoding of null or of an empty string in a composite key",
    )


def _refuse_first(wrong: pa.BooleanArray, texts: pa.StringArray, column: str, why: str) -> None:
    row = pc.index(wrong, True).as_py()
    if row >= 0:
        value = texts[row].as_py()
        if value is None:
            raise KeyValueError(
                f"Key column {column!r} is null in row {row}. Every row needs a key: fill or drop such rows.",
                column=column,
                row=row,
                value=None,
            )
        raise KeyValueError(
            f"Key column {column!r} in row {row} {why}: {_show(value)}. Give such rows another key, or drop them.",
            column=column,
            row=row,
            value=value[:1000],
        )


# --- partition paths


def _distinct_tuples(
    indices: list[npt.NDArray[np.int32]], sizes: list[int]
) -> tuple[npt.NDArray[np.int32], list[npt.NDArray[np.int64]]]:
    """Find the distinct combinations of values in several dictionary-encoded columns.

    Returns the number of each row's combination, and for each column the index of its value in each combination.

    Fewer than 2^31 tuples times fewer than 2^31 values fit into 64 bits, so no pair of tuples shares a code.
    """
    tuples = indices[0]
    parts = [np.arange(sizes[0], dtype=np.int64)]
    for column, size in zip(indices[1:], sizes[1:], strict=True):
        codes = pa.array(tuples.astype(np.int64) * size + column).dictionary_encode()
        tuples, found = _numpy(codes.indices), _numpy(codes.dictionary)
        parts = [part[found // size] for part in parts] + [found % size]
    return tuples, parts


def _segments(name: str, values: pa.Array, hive_style: bool, url_encode: bool, is_first: bool) -> pa.StringArray:
    """Return the folder name for each distinct value of a partition column, such as 'day=2026-01-31'."""
    out = []
    for value in _texts(values).to_pylist():
        text = _encode(name, value, values.type, url_encode) if value else DEFAULT_PARTITION
        segment = f"{name}={text}" if hive_style else text
        _check_segment(name, value, segment, is_first)
        out.append(segment)
    return pa.array(out, pa.string())


def _encode(name: str, value: str, type_: pa.DataType, url_encode: bool) -> str:
    if value == DEFAULT_PARTITION:
        raise _refused(name, value, "is the name of the partition for null values")
    if "\0" in value:
        raise _refused(name, value, "holds a NUL character")
    try:
        _from_text(value, type_)
    except (ValueError, ArithmeticError):
        raise _refused(name, value, "is outside the years 1 to 9999") from None
    return value.translate(_URL_ENCODED) if url_encode else value


def _check_segment(name: str, value: str, segment: str, is_first: bool) -> None:
    """Raise PartitionValueError if a partition value results in an invalid folder name.

    Without URL encoding, one value may result in several folders.
    """
    pieces = segment.split("/")
    for piece in pieces:
        if piece in ("", ".", ".."):
            raise _refused(name, value, f"gives the path segment {piece!r}")
        if len(piece.encode()) > SEGMENT_CAP:
            raise _refused(name, value, f"gives a folder name of more than {SEGMENT_CAP} bytes")
    if "\\" in segment or "://" in segment:
        raise _refused(name, value, "results in a path that other systems read differently")
    if is_first and pieces[0] == ".hoodie":
        raise _refused(name, value, "is the folder of the table's own metadata")


def _refused(name: str, value: str, why: str) -> PartitionValueError:
    return PartitionValueError(
        f"Partition column {name!r}: the value {_show(value)} {why}. Change or drop such rows.",
        column=name,
        value=value[:1000],
    )


def _text(path: str, name: str, segment: str, hive_style: bool, url_encode: bool) -> str:
    text = segment
    if hive_style:
        found, separator, text = segment.partition("=")
        if not separator or found != name:
            raise CorruptTable(f"The partition path {path!r} has {segment!r} where {name}=… belongs.", path=path)
    return _URL_ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), text) if url_encode else text


def _value(path: str, name: str, type_: pa.DataType, text: str) -> Any:
    if text == DEFAULT_PARTITION:
        return None
    try:
        return _from_text(text, type_)
    except (ValueError, ArithmeticError, KeyError):
        raise CorruptTable(
            f"The partition path {path!r} contains {text!r}, which is not a valid {type_} for column {name}.", path=path
        ) from None


def _from_text(text: str, type_: pa.DataType) -> Any:
    """Parse the string of a key or partition value into a typed value, the inverse of `_texts`."""
    types = pa.types
    if _is_text(type_):
        return text
    if types.is_boolean(type_):
        return {"true": True, "false": False}[text]
    if types.is_binary(type_) or types.is_large_binary(type_):
        return bytes.fromhex(text)
    if types.is_decimal(type_):
        return Decimal(text)
    if types.is_date(type_):
        return dt.date.fromisoformat(text)
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    if types.is_timestamp(type_):
        return (_EPOCH + dt.timedelta(microseconds=int(text))).replace(tzinfo=dt.timezone.utc if type_.tz else None)
    return int(text)


# --- texts of columns


def _column(rows: pa.Table, name: str) -> pa.Array:
    """Return a column as one Arrow array, without chunks and dictionary encoding."""
    if name not in rows.schema.names:
        raise ColumnError(f"The rows have no column {name!r}; {hint(name, rows.schema.names)}", column=name)
    column = rows.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.num_chunks == 1:
        return column.chunk(0)  # joining a single chunk would copy it
    try:
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    except pa.ArrowInvalid:
        raise ColumnError(
            f"The values of key or partition column {name!r} take more than 2 GiB in one batch. Write it in parts.",
            column=name,
        ) from None


def _texts(column: pa.Array) -> pa.StringArray:
    """Convert the values of a column to strings in Hudi's encoding for keys and paths. Nulls stay null.

    Raises SchemaError for a type that cannot be a key.
    """
    types, type_ = pa.types, column.type
    if not _can_be_key(type_):
        raise SchemaError(f"A column of type {type_} cannot be a key or partition column.")
    if types.is_timestamp(type_):
        return column.cast(pa.timestamp("us", type_.tz)).cast(pa.int64()).cast(pa.string())
    if types.is_date(type_):
        return column.cast(pa.date32()).cast(pa.string())
    if types.is_binary(type_) or types.is_large_binary(type_):
        return _hex(column.cast(pa.binary()))
    return column.cast(pa.string())


def _hex(column: pa.BinaryArray) -> pa.StringArray:
    """Convert binary values to lower-case hexadecimal strings. Raises KeyValueError for more than 1 GiB of bytes."""
    filled = column.fill_null(b"")
    if not len(filled):
        return pa.array([], pa.string())
    _, offsets_buffer, data = filled.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[filled.offset : filled.offset + len(filled) + 1].astype(np.int64)
    doubled = 2 * (offsets - offsets[0])
    if doubled[-1] > np.iinfo(np.int32).max:
        raise KeyValueError(
            "The binary key values of one batch have more than 1 GiB. Write them in several batches.",
            bytes=int(doubled[-1] // 2),
        )
    content = np.frombuffer(data or b"", np.uint8)[offsets[0] : offsets[-1]]
    texts = pa.StringArray.from_buffers(
        len(filled), pa.py_buffer(doubled.astype(np.int32)), pa.py_buffer(_HEX[content])
    )
    return pc.if_else(column.is_valid(), texts, None) if column.null_count else texts


def _numpy(array: pa.Array) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}… ({len(text)} characters)"


# --- types


def _is_text(type_: pa.DataType) -> bool:
    return pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_)


def _can_be_key(type_: pa.DataType) -> bool:
    types = pa.types
    numeric = types.is_boolean(type_) or types.is_integer(type_) or types.is_decimal(type_)
    text = _is_text(type_) or types.is_binary(type_) or types.is_large_binary(type_)
    return bool(numeric or text or types.is_date(type_) or types.is_timestamp(type_))


def _can_order(type_: pa.DataType) -> bool:
    types = pa.types
    numeric = types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_)
    return bool(numeric or types.is_date(type_) or types.is_timestamp(type_) or _is_text(type_))


def _check_names(schema: pa.Schema, role: str, columns: Sequence[str]) -> None:
    for name in columns:
        if name not in schema.names:
            raise SchemaError(
                f"The {role} column {printable(name)} is not in the schema; {hint(name, schema.names)}",
                column=printable(name),
            )
        if list(columns).count(name) > 1:
            raise SchemaError(f"The {role} column {name!r} is named twice. Name it once.", column=name)


def _check_type(schema: pa.Schema, role: str, name: str, allowed: Callable[[pa.DataType], bool], what: str) -> None:
    type_ = schema.field(name).type
    type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
    if not allowed(type_):
        article = "an" if role[0] in "aeiou" else "a"
        raise SchemaError(
            f"Column {name!r} has type {type_} and cannot be {article} {role} column. Choose one of type {what}.",
            column=name,
            type=str(type_),
        )
