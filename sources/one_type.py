"""Rows that were decoded apart as one table, and the words for a column whose values have several types.

Knows no source: where a value stands, its caller says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import ColumnError, SchemaError
from hoodoo.format.avro.schema import normalise
from hoodoo.format.column_text import column_text
from hoodoo.redact import printable

Unite = Callable[[pa.DataType, pa.DataType], pa.DataType]
"""The type of values of two types. Raises ArrowInvalid or ArrowTypeError where there is none."""
Place = Callable[[int, int], str]
"""Where a row of a part stands, by their numbers; '' where nobody knows."""
UNFIT_TYPES = (pa.ArrowInvalid, pa.ArrowTypeError)


def together(name: str, parts: Sequence[pa.Table], columns: pa.Schema, place: Place = lambda part, row: "") -> pa.Table:
    """Put rows of one source together.

    Args:
        name: What errors call the source.
        parts: Its rows.
        columns: The columns of the table, for where there are no rows.
        place: Where a row stands.

    Returns:
        All rows.

    Raises:
        ColumnError: A column has values of several types; `details` are those of `several_types`.
    """
    try:
        return pa.concat_tables(parts, promote_options="permissive") if parts else columns.empty_table()
    except UNFIT_TYPES as problem:
        advice = "Leave it out, or add it to the table with the right type."
        for column in dict.fromkeys(column for part in parts for column in part.column_names):
            try:
                type_of(column, parts, promoted, place)
            except ColumnError as found:
                raise ColumnError(
                    f"Column {column!r} of {printable(name)} is not in the table, and has values of several "
                    f"types: {seen(found)}. {advice}",
                    file=name,
                    **found.details,
                ) from None
        for column in dict.fromkeys(column for part in parts for column in part.column_names):
            try:
                there = [part.select([column]) for part in parts if column in part.column_names]
                pa.concat_tables(there, promote_options="permissive")
            except UNFIT_TYPES as wrong:
                raise ColumnError(
                    f"Column {column!r} of {printable(name)} is not in the table, and has values that no type "
                    f"can represent: {printable(str(wrong), 300)}. {advice}",
                    file=name,
                    column=column,
                ) from None
        raise ColumnError(f"{printable(name)} has {printable(str(problem), 300)}. {advice}", file=name) from None


def type_of(column: str, parts: Sequence[pa.Table], unite: Unite, place: Place) -> pa.DataType:
    """The type of a column in all parts that have it.

    Args:
        column: Its name.
        parts: Rows that were decoded apart.
        unite: How two types become one.
        place: Where a row stands.

    Returns:
        The type; that of nulls where no part has the column.

    Raises:
        ColumnError: There is none; `details` are those of `several_types`.
    """
    kinds = {number: part.schema.field(column).type for number, part in enumerate(parts) if column in part.column_names}
    whole, before = pa.null(), list[int]()
    for number, kind in kinds.items():
        try:
            whole = unite(whole, kind)
        except UNFIT_TYPES:
            first = next((one for one in before if not _go_together(unite, kinds[one], kind)), before[0])
            both = (first, number)
            places = [place(one, pc.index(parts[one][column].is_valid(), True).as_py()) for one in both]
            raise several_types(column, [_words(kinds[one]) for one in both], places) from None
        before.append(number)
    return whole


def several_types(column: str, types: Sequence[str], places: Sequence[str]) -> ColumnError:
    """The error for a column with values of several types.

    Args:
        column: Its name.
        types: The types, in words.
        places: Where a value of each stands; '' where nobody knows.

    Returns:
        The error, for a caller to raise or to say in words of its own: `details` has `column`, `types` and `places`.
    """
    found = ColumnError("", column=column, types=list(types), places=list(places))
    return ColumnError(f"Column {column!r} has values of several types: {seen(found)}.", **found.details)


def seen(problem: ColumnError) -> str:
    """The types and the places of an error of `several_types`, as a part of a sentence."""
    pairs = zip(problem.details["types"], problem.details["places"], strict=True)
    return " and ".join(f"{kind} (at {place})" if place else kind for kind, place in pairs)


def promoted(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """As Arrow unites types where it puts tables together."""
    return pa.unify_schemas([pa.schema([("", one)]), pa.schema([("", other)])], promote_options="permissive")[0].type


def _go_together(unite: Unite, one: pa.DataType, other: pa.DataType) -> bool:
    try:
        unite(one, other)
    except UNFIT_TYPES:
        return False
    return True


def _words(kind: pa.DataType) -> str:
    """A type as `create --schema` takes it, or as Arrow calls it where no table has it."""
    try:
        return column_text(normalise(pa.schema([("c", kind)]))).removeprefix("c ")
    except SchemaError:
        return str(kind)


__all__ = ["UNFIT_TYPES", "Place", "promoted", "seen", "several_types", "together", "type_of"]
