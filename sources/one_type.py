"""Concatenation of tables whose columns get one common type."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import ColumnError, SchemaError
from hoodoo.format.avro.schema import normalize_schema
from hoodoo.format.column_text import column_text
from hoodoo.redact import printable

Unite = Callable[[pa.DataType, pa.DataType], pa.DataType]
"""Function that returns the common type of two types.

Raises ArrowInvalid or ArrowTypeError if there is no common type.
"""
Place = Callable[[int, int], str]
"""Function that returns the location of a row, or '' if it is unknown.

The arguments are the indexes of its part and row.
"""
UNFIT_TYPES = (pa.ArrowInvalid, pa.ArrowTypeError)


def concatenate_tables(
    name: str, parts: Sequence[pa.Table], columns: pa.Schema, place: Place = lambda part, row: ""
) -> pa.Table:
    """Concatenate tables with common column types.

    Args:
        name: The name of the source, for errors.
        parts: The tables to concatenate.
        columns: The columns of the table, used for an empty result.
        place: Function that returns the location of a row in the source, for errors.

    Returns:
        All rows in one table.

    Raises:
        ColumnError: A column has values of several types. `details` are those of `several_types_error`.
    """
    try:
        return pa.concat_tables(parts, promote_options="permissive") if parts else columns.empty_table()
    except UNFIT_TYPES as problem:
        advice = "Leave it out, or add it to the table with the right type."
        for column in dict.fromkeys(column for part in parts for column in part.column_names):
            try:
                common_column_type(column, parts, common_arrow_type, place)
            except ColumnError as mismatch:
                raise ColumnError(
                    f"Column {column!r} of {printable(name)} is not in the table, and its values have several "
                    f"types: {describe_conflicting_types(mismatch)}. {advice}",
                    file=name,
                    **mismatch.details,
                ) from None
        for column in dict.fromkeys(column for part in parts for column in part.column_names):
            try:
                tables = [part.select([column]) for part in parts if column in part.column_names]
                pa.concat_tables(tables, promote_options="permissive")
            except UNFIT_TYPES as arrow_problem:
                raise ColumnError(
                    f"Column {column!r} of {printable(name)} is not in the table, and no type can represent all "
                    f"its values: {printable(str(arrow_problem), 300)}. {advice}",
                    file=name,
                    column=column,
                ) from None
        raise ColumnError(f"{printable(name)} has {printable(str(problem), 300)}. {advice}", file=name) from None


def common_column_type(column: str, parts: Sequence[pa.Table], unite: Unite, place: Place) -> pa.DataType:
    """Return the common type of a column.

    Args:
        column: The name of the column.
        parts: Tables of rows that were decoded separately.
        unite: Function that returns the common type of two types.
        place: Function that returns the location of a row in the source, for errors.

    Returns:
        The type. The null type if no part has the column.

    Raises:
        ColumnError: There is no common type. `details` are those of `several_types_error`.
    """
    kinds = {number: part.schema.field(column).type for number, part in enumerate(parts) if column in part.column_names}
    common, before = pa.null(), list[int]()
    for number, kind in kinds.items():
        try:
            common = unite(common, kind)
        except UNFIT_TYPES:
            first = next((one for one in before if not _have_common_type(unite, kinds[one], kind)), before[0])
            pair = (first, number)
            places = [place(one, pc.index(parts[one][column].is_valid(), True).as_py()) for one in pair]
            raise several_types_error(column, [_type_text(kinds[one]) for one in pair], places) from None
        before.append(number)
    return common


def several_types_error(column: str, types: Sequence[str], places: Sequence[str]) -> ColumnError:
    """Create the error for a column with several types.

    `places` are the locations of a value of each type, or '' if unknown. A caller may raise the error, or use its
    `details` (`column`, `types` and `places`) for another message.
    """
    base = ColumnError("", column=column, types=list(types), places=list(places))
    return ColumnError(
        f"Column {column!r} has values of several types: {describe_conflicting_types(base)}.", **base.details
    )


def describe_conflicting_types(problem: ColumnError) -> str:
    """Describe the conflicting types of a column."""
    pairs = zip(problem.details["types"], problem.details["places"], strict=True)
    return " and ".join(f"{kind} (at {place})" if place else kind for kind, place in pairs)


def common_arrow_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    return pa.unify_schemas([pa.schema([("", one)]), pa.schema([("", other)])], promote_options="permissive")[0].type


def _have_common_type(unite: Unite, one: pa.DataType, other: pa.DataType) -> bool:
    try:
        unite(one, other)
    except UNFIT_TYPES:
        return False
    return True


def _type_text(kind: pa.DataType) -> str:
    # `create --schema` accepts this text. Types that tables do not support keep Arrow's name.
    try:
        return column_text(normalize_schema(pa.schema([("c", kind)]))).removeprefix("c ")
    except SchemaError:
        return str(kind)


__all__ = [
    "UNFIT_TYPES",
    "Place",
    "common_arrow_type",
    "describe_conflicting_types",
    "several_types_error",
    "concatenate_tables",
    "common_column_type",
]
