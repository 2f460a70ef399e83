"""Which columns a source has, found by a look at its first rows: for whoever is about to make a table for it.

What the source knows of types is kept: those of Parquet, of Avro, of a registry, of Debezium's schemas. Text says
nothing of them, so there a type is what all values that were looked at are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import ColumnError, DataError, SchemaError, TooManyBadRows
from hoodoo.format.avro.schema import normalise
from hoodoo.format.names import IS_DELETED
from hoodoo.redact import printable
from hoodoo.sources.source import Limits, Planned, Source

_BYTES_MAX = 16 << 20
_READ_AS_MOMENT = pa.timestamp("s")
"""What Arrow makes of a moment and of a day in text alike; no other reader gives seconds."""
_ZONE = r"(?:Z|[+-]\d\d:?\d\d)"
_MOMENT = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?"
_MEANT: tuple[tuple[str, pa.DataType], ...] = (
    (r"^\d{4}-\d\d-\d\d$", pa.date32()),
    (f"^{_MOMENT}{_ZONE}$", pa.timestamp("us", "UTC")),
    (f"^{_MOMENT}$", pa.timestamp("us")),
)


@dataclass(frozen=True)
class SourceColumns:
    """The columns of a source.

    Attributes:
        schema: They, with the types that a table gives them.
        rows: How many rows were looked at.
        guessed: Those of which no row had a value, so that their type (string) is a guess.
        bad: How many lines or messages were no rows, for each reason.
    """

    schema: pa.Schema
    rows: int
    guessed: tuple[str, ...]
    bad: Mapping[str, int]


def columns_of(source: Source, rows: int = 10_000) -> SourceColumns:
    """Look at the first rows of a source. Nothing is written, and no job moves on.

    Args:
        source: The source.
        rows: At how many rows to look, about.

    Returns:
        Its columns.

    Raises:
        DataError: It has no row to look at, or none of them can be read.
        ColumnError: A column has values of several types.
    """
    planned = source.plan("", Limits(rows=rows, bytes=_BYTES_MAX, bad_rows=rows))
    if planned is None:
        raise DataError(
            f"{printable(source.name)} has no row to look at yet. Wait until it has some; a new file of a folder is "
            "taken once it has not changed for settle_s seconds."
        )
    found, bad = _read(source, planned, {}, rows)
    if not found.num_columns:
        raise DataError(f"{printable(source.name)}: none of what was looked at is a row: {printable(dict(bad))}.")
    meant = _meant(source, planned, found, rows)
    fields = [pa.field(one.name, meant.get(one.name) or _known(one.type)) for one in found.schema]
    guessed = tuple(name for name in found.column_names if found[name].null_count == len(found))
    return SourceColumns(_stored(pa.schema(fields)), len(found), guessed, bad)


def _read(
    source: Source, planned: Planned, asked: Mapping[str, pa.DataType], most: int
) -> tuple[pa.Table, Counter[str]]:
    """The first rows of a part, and how much of it is bad for each reason. asked: the types to read text as."""
    parts, bad = list[pa.Table](), Counter[str]()
    try:
        for part in source.read(planned, pa.schema(list(asked.items())), True):
            bad.update(part.bad["reason"].to_pylist())
            if part.rows.num_columns:
                parts.append(part.rows)
            if sum(map(len, parts)) >= most:
                break
    except TooManyBadRows as problem:
        if (found := problem.details.get("found")) is not None:
            bad.update(found["reason"].to_pylist())
    try:
        rows = pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({})
    except (pa.ArrowInvalid, pa.ArrowTypeError) as problem:
        raise ColumnError(
            f"{printable(source.name)}: what was looked at does not go together: {printable(str(problem), 500)}."
        ) from None
    return rows.drop_columns([one for one in rows.column_names if one == IS_DELETED]), bad


def _meant(source: Source, planned: Planned, found: pa.Table, most: int) -> dict[str, pa.DataType]:
    """The types of columns whose text is a moment or a day in each row, as far as the source reads them as such."""
    moments = [one.name for one in found.schema if one.type == _READ_AS_MOMENT]
    texts = found
    if moments:
        texts, _ = _read(source, planned, dict.fromkeys(moments, pa.string()), most)
    kinds = dict[str, pa.DataType]()
    for field in texts.schema:
        values = texts[field.name].drop_null() if pa.types.is_string(field.type) else ()
        for pattern, kind in _MEANT if len(values) else ():
            if pc.all(pc.match_substring_regex(values, pattern)).as_py():
                kinds[field.name] = kind
    if not kinds:
        return {}
    read, _ = _read(source, planned, kinds, most)
    known = {field.name: field.type for field in read.schema}
    same = len(read) == len(found)
    return {name: kind for name, kind in kinds.items() if same and known.get(name) == kind}


def _stored(schema: pa.Schema) -> pa.Schema:
    """`schema` as a table has it; as it is where no table can: `hoodoo.create` says why."""
    try:
        return normalise(schema)
    except SchemaError:
        return schema


def _known(kind: pa.DataType) -> pa.DataType:
    """`kind`, and where no value told what is in it, a guess."""
    if pa.types.is_null(kind) or (pa.types.is_struct(kind) and not kind.num_fields):
        return pa.string()
    if kind == _READ_AS_MOMENT:
        return pa.timestamp("us", "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _known(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(_known(kind.value_type))
    return kind


__all__ = ["SourceColumns", "columns_of"]
