"""Parser for times in text files.

A column without a time zone accepts times without an offset and times in UTC (`Z`, `+00:00`). Other offsets raise an
error, because to apply or drop them would change the time. A column in UTC accepts all times. Times without an offset
count as UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from hoodoo.errors import ColumnError
from hoodoo.redact import printable

_OFFSET = r"[T ]\d\d.*(Z|[+-]\d\d(?::?\d\d)?)$"
_IN_UTC = r"(Z|[+-]00(?::?00)?)$"
_SHIFTED = rb"(?!00(?::?00)?)\d\d(?::?\d\d)?\""
# Two patterns, because patterns that begin with a fixed byte are much faster. The second pattern skips plain dates.
_SHIFTED_IN_JSON = (re.compile(rb"\+" + _SHIFTED), re.compile(rb"-(?<!-\d\d-)" + _SHIFTED), re.compile(rb"\\u|\\/"))


def times_of(texts: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    texts = pc.utf8_trim(texts, " \t")
    has_offset = pc.match_substring_regex(texts, _OFFSET)
    try:
        if field.type.tz is None:
            _require_utc(field.name, texts.filter(has_offset), field.type)
            return pc.if_else(has_offset, pc.replace_substring_regex(texts, _IN_UTC, ""), texts).cast(field.type)
        local = pc.if_else(has_offset, None, texts).cast(pa.timestamp(field.type.unit))
        return pc.coalesce(
            pc.if_else(has_offset, texts, None).cast(field.type), pc.assume_timezone(local, "UTC").cast(field.type)
        )
    except pa.ArrowInvalid as problem:
        raise ColumnError(f"Column {field.name!r}: {printable(str(problem), 300)}", column=field.name) from None


def require_no_offsets(data: pa.Buffer, columns: Sequence[pa.Field], block_size: int) -> None:
    """Check that times in a JSON file have no unsupported UTC offset.

    Arrow would silently shift a time with an offset.

    Args:
        data: The text with the JSON objects.
        columns: The columns of the table.
        block_size: Number of bytes that are parsed at a time.

    Raises:
        ColumnError: A time has an offset, at any level of a column without a time zone.
    """
    if not any(_is_local(field.type) for field in columns):
        return
    if not any(pattern.search(data) for pattern in _SHIFTED_IN_JSON):
        return
    fields = [(field, kind) for field in columns if (kind := _local_times_as_strings(field.type)) is not None]
    parsing = pa.json.ParseOptions(
        explicit_schema=pa.schema([(field.name, kind) for field, kind in fields]), unexpected_field_behavior="ignore"
    )
    reading = pa.json.ReadOptions(block_size=block_size)
    rows = pa.json.read_json(pa.BufferReader(data), read_options=reading, parse_options=parsing)
    for field, _ in fields:
        for chunk in rows[field.name].chunks:
            for texts, kind in _iter_local_times(chunk, field.type):
                _require_utc(field.name, texts.filter(pc.match_substring_regex(texts, _OFFSET)), kind)


def _require_utc(name: str, texts: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> None:
    shifted = texts.filter(pc.invert(pc.match_substring_regex(texts, _IN_UTC)))
    if len(shifted):
        raise ColumnError(
            f"Column {name!r}: {printable(shifted[0].as_py(), 50)} has an offset from UTC, but the column has "
            f"no time zone: expected a {kind}, such as '2026-01-31T12:00:00'. Write the time without an offset "
            "or in UTC, or use a column with a time zone.",
            column=name,
        )


def _is_local(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return _is_local(kind.value_type)
    if pa.types.is_struct(kind):
        return any(_is_local(field.type) for field in kind)
    return bool(pa.types.is_timestamp(kind)) and kind.tz is None


def _local_times_as_strings(kind: pa.DataType) -> pa.DataType | None:
    if not _is_local(kind):
        return None
    if pa.types.is_list(kind):
        return pa.list_(_local_times_as_strings(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct(
            [(field.name, inner) for field in kind if (inner := _local_times_as_strings(field.type)) is not None]
        )
    return pa.string()


def _iter_local_times(values: pa.Array, kind: pa.DataType) -> Iterator[tuple[pa.Array, pa.DataType]]:
    if pa.types.is_list(kind):
        yield from _iter_local_times(values.flatten(), kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            if values.type.get_field_index(field.name) >= 0:
                yield from _iter_local_times(pc.struct_field(values, field.name), field.type)
    else:
        yield values, kind


__all__ = ["require_no_offsets", "times_of"]
