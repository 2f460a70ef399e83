"""Detection of the columns of a source.

Parquet, Avro, a schema registry and Debezium's schemas declare types, which are kept. The type of a text column is the
type that matches all inspected values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import ColumnError, DataError, SchemaError, TooManyBadRows
from hoodoo.format.avro.schema import normalize_schema
from hoodoo.format.names import IS_DELETED
from hoodoo.redact import printable
from hoodoo.sources.debezium import NOT_SENT
from hoodoo.sources.one_type import Place, common_arrow_type, common_column_type, describe_conflicting_types
from hoodoo.sources.source import Limits, Planned, Source

_BYTES_MAX = 16 << 20
_ARROW_TEXT_TIME = pa.timestamp("s")
# Arrow's type for both timestamps and dates in text. No other reader returns seconds.
_UTC_TIMESTAMP = pa.timestamp("us", "UTC")
_UNITS = ("s", "ms", "us", "ns")
_ZONE = r"(?:Z|[+-]\d\d:?\d\d)"
_MOMENT = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?"
_TIME_PATTERNS: tuple[tuple[str, pa.DataType], ...] = (
    (r"^\d{4}-\d\d-\d\d$", pa.date32()),
    (f"^{_MOMENT}{_ZONE}$", _UTC_TIMESTAMP),
    (f"^{_MOMENT}$", pa.timestamp("us")),
)


@dataclass(frozen=True)
class SourceColumns:
    """Columns and types of a source.

    Attributes:
        schema: The columns, with the types that a table would have.
        rows: The number of inspected rows.
        guessed: The columns without a value in the inspected rows. Their type (string) is a guess.
        bad: The number of bad lines or messages, by reason.
    """

    schema: pa.Schema
    rows: int
    guessed: tuple[str, ...]
    bad: Mapping[str, int]


_ORIGIN = b"hoodoo.origin"


def columns_of(source: Source, rows: int = 10_000) -> SourceColumns:
    """Detect the columns and types of a source.

    Only the first rows are read. Nothing is written, and no job's position changes.

    Args:
        source: The source.
        rows: The approximate number of rows to inspect.

    Returns:
        The detected columns, and the number of rows that were inspected.

    Raises:
        DataError: The source is empty, or its rows cannot be read.
        ColumnError: A column has values of several types.
    """
    planned = source.plan("", Limits(rows=rows, bytes=_BYTES_MAX, bad_rows=rows))
    if planned is None:
        raise DataError(
            f"{printable(source.name)} does not have rows yet. Wait until it has some. A new file in a folder is "
            "read after it was not changed for settle_seconds seconds (--settle-seconds)."
        )
    try:
        first_parts, bad = _read_first_rows(source, planned, {}, rows)
        if not (names := _column_names(first_parts)):
            raise DataError(
                f"{printable(source.name)}: the first records are not valid rows: {printable(dict(bad))}. "
                "Correct them, or set the right format."
            )
        parts = _detect_times(source, planned, first_parts, rows)
        place = _file_of_row(parts)
        fields = [
            pa.field(name, _replace_unknown_types(common_column_type(name, parts, _common_type, place)))
            for name in names
        ]
    except ColumnError as problem:
        if "types" not in problem.details:
            raise
        raise ColumnError(
            f"{printable(source.name)}: column {problem.details['column']!r} has values of several types: "
            f"{describe_conflicting_types(problem)}. Set the type yourself (hoodoo create --schema), or give the job a "
            "transform that converts the values to one type.",
            **problem.details,
        ) from None
    guessed = tuple(name for name in names if not any(_non_null_chunks(first_parts, name)))
    return SourceColumns(_to_stored_types(pa.schema(fields)), _count_rows(first_parts), guessed, bad)


def _read_first_rows(
    source: Source, planned: Planned, types: Mapping[str, pa.DataType], rows_max: int
) -> tuple[list[pa.Table], Counter[str]]:
    # The source reads `rows_max` rows. `types` contains the types for columns that are text in the source.
    parts, bad = list[pa.Table](), Counter[str]()
    try:
        for part in source.read(planned, pa.schema(list(types.items())), True):
            bad.update(part.bad["reason"].to_pylist())
            if part.rows.num_columns:
                dropped = [one for one in part.rows.column_names if one == IS_DELETED or one.startswith(NOT_SENT)]
                rows = part.rows.drop_columns(dropped)
                parts.append(rows.replace_schema_metadata({_ORIGIN: part.origin}))
            if _count_rows(parts) >= rows_max:
                break
    except TooManyBadRows as problem:
        if (bad_rows := problem.details.get("found")) is not None:
            bad.update(bad_rows["reason"].to_pylist())
    return parts, bad


def _count_rows(parts: Iterable[pa.Table]) -> int:
    return sum(map(len, parts))


def _column_names(parts: Iterable[pa.Table]) -> list[str]:
    return list(dict.fromkeys(name for part in parts for name in part.column_names))


def _non_null_chunks(parts: Iterable[pa.Table], name: str) -> list[pa.Array]:
    columns = (part[name].drop_null() for part in parts if name in part.column_names)
    return [chunk for column in columns for chunk in column.chunks if len(chunk)]


def _string_chunks(parts: Iterable[pa.Table], name: str) -> list[pa.Array]:
    return [chunk for chunk in _non_null_chunks(parts, name) if pa.types.is_string(chunk.type)]


def _chunk_types(parts: Iterable[pa.Table], name: str) -> set[pa.DataType]:
    return {chunk.type for chunk in _non_null_chunks(parts, name)}


def _file_of_row(parts: Sequence[pa.Table]) -> Place:
    # The location is '' for sources without files.
    origins = [(part.schema.metadata or {}).get(_ORIGIN, b"").decode() for part in parts]
    return lambda part, row: printable(origins[part]) if origins[part] else ""


def _detect_times(source: Source, planned: Planned, found: Sequence[pa.Table], rows_max: int) -> Sequence[pa.Table]:
    # Text columns become timestamps or dates if all their values match. Columns with values of several types become
    # strings.
    moments = [one.name for part in found for one in part.schema if one.type == _ARROW_TEXT_TIME]
    texts: Sequence[pa.Table] = found
    if moments:
        texts, _ = _read_first_rows(source, planned, dict.fromkeys(moments, pa.string()), rows_max)
    kinds = dict[str, pa.DataType]()
    for name in _column_names(texts):
        values = _string_chunks(texts, name)
        for pattern, kind in _TIME_PATTERNS if values else ():
            if all(pc.all(pc.match_substring_regex(chunk, pattern)).as_py() for chunk in values):
                kinds[name] = kind
        if kinds.get(name) == pa.timestamp("us") and any(map(_has_time_zone, _chunk_types(texts, name))):
            kinds[name] = _UTC_TIMESTAMP  # as a job reads text if the table's column is a timestamp in UTC
        if values and len(_chunk_types(found, name)) > 1:
            kinds.setdefault(name, pa.string())
    if not kinds:
        return found
    read, _ = _read_first_rows(source, planned, kinds, rows_max)
    mixed_names = [name for name in kinds if len(types := _chunk_types(read, name)) > 1 and pa.string() in types]
    if mixed_names:  # some text cannot be read as another type, such as strings in Parquet
        kinds |= dict.fromkeys(mixed_names, pa.string())
        read, _ = _read_first_rows(source, planned, kinds, rows_max)
    return read if _count_rows(read) == _count_rows(found) else found


def _has_time_zone(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    # Raises ArrowInvalid or ArrowTypeError if there is none. Timestamps of several zones become timestamps in UTC. Text
    # read as timestamps gets the zone of the other values.
    if pa.types.is_timestamp(left) and pa.types.is_timestamp(right):
        unit = max(left.unit, right.unit, key=_UNITS.index)
        if left.tz and right.tz or _ARROW_TEXT_TIME in (left, right):
            return pa.timestamp(unit, "UTC" if left.tz or right.tz else None)
        return common_arrow_type(left, right)
    if pa.types.is_struct(left) and pa.types.is_struct(right):
        kinds = {field.name: field.type for field in left}
        for field in right:
            kinds[field.name] = _common_type(kinds.get(field.name, pa.null()), field.type)
        return pa.struct(list(kinds.items()))
    if pa.types.is_list(left) and pa.types.is_list(right):
        return pa.list_(_common_type(left.value_type, right.value_type))
    return common_arrow_type(left, right)


def _to_stored_types(schema: pa.Schema) -> pa.Schema:
    # If a table rejects the schema, `hoodoo.create` raises the error.
    try:
        return normalize_schema(schema)
    except SchemaError:
        return schema


def _replace_unknown_types(kind: pa.DataType) -> pa.DataType:
    # String is a guess for columns without values, also in structs and lists.
    if pa.types.is_null(kind) or (pa.types.is_struct(kind) and not kind.num_fields):
        return pa.string()
    if kind == _ARROW_TEXT_TIME:
        return _UTC_TIMESTAMP
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _replace_unknown_types(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(_replace_unknown_types(kind.value_type))
    return kind


__all__ = ["SourceColumns", "columns_of"]
