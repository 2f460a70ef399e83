"""Encoding of record keys and partition paths.

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
from hoodoo.nearest import suggest_name
from hoodoo.redact import printable

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Partition of rows whose partition value is null or empty."""
KEY_CAP = 64 << 10
"""Maximum bytes of one record key."""
SEGMENT_CAP = 255
"""Maximum bytes of one folder name in common file systems."""

_PLACEHOLDERS = ("__null__", "__empty__")
# Hudi's placeholders for null and for an empty string in a composite key. They are invalid as values.
_URL_ENCODED = {ord(c): f"%{ord(c):02X}" for c in [*map(chr, range(0x20)), "\x7f", *"\"#%'*/:=?\\{[]^"]}
_URL_ESCAPE = re.compile("%([0-9A-F]{2})")
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), dtype=np.uint16)
_EPOCH = dt.datetime(1970, 1, 1)
_INTEGER = re.compile(r"-?\d+")


Refuse: TypeAlias = Callable[[pa.BooleanArray, pa.StringArray, str, str], None]
"""Handler for invalid keys, which receives the invalid rows, the keys, the column and the reason."""


def compute_record_keys(rows: pa.Table, key_columns: Sequence[str], partition_columns: Sequence[str]) -> pa.StringArray:
    """Compute the record key of each row.

    Keys are encoded as in Hudi. With one key column and at most one partition column, the record key is the plain
    value. Otherwise it has the form `a:1,b:2`, in declared order.

    Raises KeyValueError with column, row (from 0) and value for a null, for a key of only empty strings, and for a key
    longer than `KEY_CAP`. In a composite key, a value must also not contain `,<key column>:` or be `__null__` or
    `__empty__`, because two keys could then look equal. Raises ColumnError for a missing column. The keys of one call
    may have up to 2 GiB.
    """
    return _record_keys(rows, key_columns, partition_columns, _refuse_first)


def compute_virtual_keys(rows: pa.Table, key_columns: Sequence[str]) -> pa.StringArray:
    """Compute record keys that files do not store.

    Several key columns are encoded as in `compute_record_keys`. A single key column is the plain value.
    """
    return compute_record_keys(rows, key_columns, ())


def rows_without_valid_key(
    rows: pa.Table, key_columns: Sequence[str], partition_columns: Sequence[str]
) -> npt.NDArray[np.bool_]:
    invalid = np.zeros(len(rows), bool)

    def note(mask: pa.BooleanArray, texts: pa.StringArray, column: str, why: str) -> None:
        invalid[:] |= pc.fill_null(mask, False).to_numpy(zero_copy_only=False)

    _record_keys(rows, key_columns, partition_columns, note)
    return invalid


def _record_keys(
    rows: pa.Table, key_columns: Sequence[str], partition_columns: Sequence[str], refuse: Refuse
) -> pa.StringArray:
    texts = [_key_texts(rows, column, refuse) for column in key_columns]
    _reject_empty_keys(texts, key_columns, refuse)
    if len(key_columns) == 1 and len(partition_columns) <= 1:
        keys = texts[0]
    else:
        keys = _composite(rows, key_columns, texts, refuse)
    refuse(
        pc.greater(pc.binary_length(keys), KEY_CAP), keys, ", ".join(key_columns), f"is longer than {KEY_CAP:,} bytes"
    )
    return keys


def compute_partition_paths(
    rows: pa.Table, partition_columns: Sequence[str], hive_style: bool = True, url_encode: bool = True
) -> pa.DictionaryArray:
    """Compute the partition path of each row.

    Returns a dictionary array with int32 indices and each distinct path once.

    Without partition columns, the only path is ''. Raises PartitionValueError with column and value for an invalid
    folder name: the string `__HIVE_DEFAULT_PARTITION__`, NUL, an empty, `.` or `..` segment, an unencoded
    backslash, `.hoodie` at the root, or more than `SEGMENT_CAP` bytes. Raises ColumnError for a missing column.
    """
    if not partition_columns:
        return pa.DictionaryArray.from_arrays(np.zeros(rows.num_rows, dtype=np.int32), pa.array([""]))
    encoded = [_flat_column(rows, name).dictionary_encode(null_encoding="encode") for name in partition_columns]
    tuples, parts = _distinct_combinations(
        [_numpy(column.indices) for column in encoded], [len(column.dictionary) for column in encoded]
    )
    segments = [
        _folders(name, column.dictionary, hive_style, url_encode, is_first=name == partition_columns[0])
        for name, column in zip(partition_columns, encoded, strict=True)
    ]
    paths = pc.binary_join_element_wise(*(s.take(pa.array(part)) for s, part in zip(segments, parts, strict=True)), "/")
    distinct = paths.dictionary_encode()  # null and an empty string share a path
    return pa.DictionaryArray.from_arrays(distinct.indices.take(pa.array(tuples)), distinct.dictionary)


def rows_without_valid_partition(
    rows: pa.Table, partition_columns: Sequence[str], hive_style: bool = True, url_encode: bool = True
) -> npt.NDArray[np.bool_]:
    invalid = np.zeros(len(rows), bool)
    for name in partition_columns:
        column = _flat_column(rows, name).dictionary_encode(null_encoding="encode")
        values, invalid_values = column.dictionary, np.zeros(len(column.dictionary), bool)
        for code in range(len(values)):
            try:
                _folders(name, values.slice(code, 1), hive_style, url_encode, is_first=name == partition_columns[0])
            except PartitionValueError:
                invalid_values[code] = True
        invalid |= invalid_values[_numpy(column.indices)]
    return invalid


def parse_partition_values(
    path: str, partition_columns: Sequence[str], schema: pa.Schema, hive_style: bool = True, url_encode: bool = True
) -> dict[str, Any]:
    """Parse the values in a partition path.

    An example of a path is 'day=2026-01-31'. The values are int, str, Decimal, date, datetime (UTC-aware if the column
    has a time zone), bool or bytes. None stands for the default partition, whose values are null or, in a string or
    binary column, empty. Raises CorruptTable for a path that does not match the columns.
    """
    texts = split_partition_path(path, partition_columns, hive_style, url_encode)
    return {
        name: _value(path, name, schema.field(name).type, text)
        for name, text in zip(partition_columns, texts, strict=True)
    }


def split_partition_path(
    path: str, partition_columns: Sequence[str], hive_style: bool = True, url_encode: bool = True
) -> tuple[str, ...]:
    """Split a partition path into strings.

    There is one string per partition column. The string for null is `DEFAULT_PARTITION`. Raises CorruptTable for a path
    that does not match the columns.
    """
    if not partition_columns:
        return ()
    segments = path.split("/") if len(partition_columns) > 1 or url_encode else [path]
    if len(segments) != len(partition_columns):
        raise CorruptTable(
            (
                f"Partition path {path!r} does not match the partition columns {', '.join(partition_columns)}: "
                f"expected {len(partition_columns)} segments, got {len(segments)}. Rename the folder or remove it."
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
    """Check key, partition and ordering columns.

    Raises SchemaError for a missing or repeated column, for no key column, for a key or partition column that is float,
    time or nested, and for an ordering column that is not integer, float, decimal, date, timestamp or string.
    """
    if not key:
        raise SchemaError("Key is missing: a table requires at least one key column. Pass key='<column>'.")
    for role, columns in (("key", key), ("partition", partition_by), ("ordering", order_by)):
        _check_names(schema, role, columns)
    for role, columns in (("key", key), ("partition", partition_by)):
        for name in columns:
            _check_type(schema, role, name, _can_be_key, "bool, integer, decimal, date, timestamp, string or binary")
    for name in order_by:
        _check_type(schema, "ordering", name, _can_order, "integer, float, decimal, date, timestamp or string")


# --- keys


def _key_texts(rows: pa.Table, name: str, refuse: Refuse) -> pa.StringArray:
    column = _flat_column(rows, name)
    texts = _encode_values(column)
    if column.null_count:
        refuse(column.is_null(), texts, name, "is null")
    return texts


def _reject_empty_keys(texts: list[pa.StringArray], key_columns: Sequence[str], refuse: Refuse) -> None:
    empty = pc.equal(pc.binary_length(texts[0]), 0)
    for other in texts[1:]:
        empty = pc.and_(empty, pc.equal(pc.binary_length(other), 0))
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


def _refuse_first(wrong: pa.BooleanArray, texts: pa.StringArray, column: str, reason: str) -> None:
    row = pc.index(wrong, True).as_py()
    if row >= 0:
        value = texts[row].as_py()
        if value is None:
            raise KeyValueError(
                f"Key column {column!r} is null in row {row}. Fill or drop rows without a key.",
                column=column,
                row=row,
                value=None,
            )
        raise KeyValueError(
            f"Key column {column!r} has an invalid value in row {row}: {_show(value)} {reason}. Change the key of "
            "such rows, or drop them.",
            column=column,
            row=row,
            value=value[:1000],
        )


# --- partition paths


def _distinct_combinations(
    indices: list[npt.NDArray[np.int32]], sizes: list[int]
) -> tuple[npt.NDArray[np.int32], list[npt.NDArray[np.int64]]]:
    # Returns the index of each row's combination, and for each column the index of its value in each combination. There
    # are fewer than 2^31 tuples and 2^31 values, so their products fit into 64 bits and codes are unique.
    tuples = indices[0]
    parts = [np.arange(sizes[0], dtype=np.int64)]
    for column, size in zip(indices[1:], sizes[1:], strict=True):
        codes = pa.array(tuples.astype(np.int64) * size + column).dictionary_encode()
        tuples, dictionary = _numpy(codes.indices), _numpy(codes.dictionary)
        parts = [part[dictionary // size] for part in parts] + [dictionary % size]
    return tuples, parts


def _folders(name: str, values: pa.Array, hive_style: bool, url_encode: bool, is_first: bool) -> pa.StringArray:
    out = []
    for value in _encode_values(values).to_pylist():
        text = _encode(name, value, values.type, url_encode) if value else DEFAULT_PARTITION
        segment = f"{name}={text}" if hive_style else text
        _require_valid_folder(name, value, segment, is_first)
        out.append(segment)
    return pa.array(out, pa.string())


def _encode(name: str, value: str, type_: pa.DataType, url_encode: bool) -> str:
    if value == DEFAULT_PARTITION:
        raise _refused(name, value, "is reserved for the partition of null values")
    if "\0" in value:
        raise _refused(name, value, "contains a NUL character")
    try:
        _parse_value(value, type_)
    except (ValueError, ArithmeticError):
        raise _refused(name, value, "is outside the years 1 to 9999") from None
    return value.translate(_URL_ENCODED) if url_encode else value


def _require_valid_folder(name: str, value: str, segment: str, is_first: bool) -> None:
    # Without URL encoding, one value may result in several folders.
    pieces = segment.split("/")
    for piece in pieces:
        if piece in ("", ".", ".."):
            raise _refused(name, value, f"results in the invalid path segment {piece!r}")
        if len(piece.encode()) > SEGMENT_CAP:
            raise _refused(name, value, f"results in a folder name of more than {SEGMENT_CAP} bytes")
    if "\\" in segment or "://" in segment:
        raise _refused(name, value, "contains a backslash or '://', which other systems interpret differently")
    if is_first and pieces[0] == ".hoodie":
        raise _refused(name, value, "is the name of the table's metadata folder")


def _refused(name: str, value: str, reason: str) -> PartitionValueError:
    return PartitionValueError(
        f"Partition column {name!r} has an invalid value: {_show(value)} {reason}. Change or drop such rows.",
        column=name,
        value=value[:1000],
    )


def _text(path: str, name: str, segment: str, hive_style: bool, url_encode: bool) -> str:
    text = segment
    if hive_style:
        column, separator, text = segment.partition("=")
        if not separator or column != name:
            raise CorruptTable(
                f"Partition path {path!r} has an invalid segment: expected {name}=…, got {segment!r}. Rename the "
                "folder.",
                path=path,
            )
    return _URL_ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), text) if url_encode else text


def _value(path: str, name: str, type_: pa.DataType, text: str) -> Any:
    if text == DEFAULT_PARTITION:
        return None
    try:
        return _parse_value(text, type_)
    except (ValueError, ArithmeticError, KeyError):
        raise CorruptTable(
            f"Partition path {path!r} has an invalid value for column {name}: expected {type_}, got {text!r}. Rename "
            "the folder.",
            path=path,
        ) from None


def _parse_value(text: str, type_: pa.DataType) -> Any:
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


def _flat_column(rows: pa.Table, name: str) -> pa.Array:
    if name not in rows.schema.names:
        raise ColumnError(f"The rows have no column {name!r}; {suggest_name(name, rows.schema.names)}", column=name)
    column = rows.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.num_chunks == 1:
        return column.chunk(0)  # joining a single chunk would copy it
    try:
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    except pa.ArrowInvalid:
        raise ColumnError(
            f"Key or partition column {name!r} has more than 2 GiB of values in one batch. Write smaller batches.",
            column=name,
        ) from None


def _encode_values(column: pa.Array) -> pa.StringArray:
    types, type_ = pa.types, column.type
    if not _can_be_key(type_):
        raise SchemaError(
            f"Type {type_} is not supported for key or partition columns. Cast the column to a string or an integer."
        )
    if types.is_timestamp(type_):
        return column.cast(pa.timestamp("us", type_.tz)).cast(pa.int64()).cast(pa.string())
    if types.is_date(type_):
        return column.cast(pa.date32()).cast(pa.string())
    if types.is_binary(type_) or types.is_large_binary(type_):
        return _encode_hex(column.cast(pa.binary()))
    return column.cast(pa.string())


def _encode_hex(column: pa.BinaryArray) -> pa.StringArray:
    filled = column.fill_null(b"")
    if not len(filled):
        return pa.array([], pa.string())
    _, offsets_buffer, data = filled.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[filled.offset : filled.offset + len(filled) + 1].astype(np.int64)
    doubled = 2 * (offsets - offsets[0])
    if doubled[-1] > np.iinfo(np.int32).max:
        raise KeyValueError(
            "Binary key column has more than 1 GiB of values in one batch. Write smaller batches.",
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
                f"The {role} column {printable(name)} is not in the schema; {suggest_name(name, schema.names)}",
                column=printable(name),
            )
        if list(columns).count(name) > 1:
            raise SchemaError(f"Column {name!r} is listed twice as {role} column. List it once.", column=name)


def _check_type(
    schema: pa.Schema, role: str, name: str, allowed: Callable[[pa.DataType], bool], description: str
) -> None:
    type_ = schema.field(name).type
    type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
    if not allowed(type_):
        article = "an" if role[0] in "aeiou" else "a"
        raise SchemaError(
            f"Column {name!r} of type {type_} cannot be {article} {role} column. Choose a column of type "
            f"{description}.",
            column=name,
            type=str(type_),
        )
