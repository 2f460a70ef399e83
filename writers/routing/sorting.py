"""Validation of sort columns, and sorting of rows by them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.arguments import names as column_names
from hoodoo.errors import ColumnError, OptionError
from hoodoo.nearest import hint
from hoodoo.redact import printable
from hoodoo.timeline.properties.config import TableConfig

_COLUMNS_MAX = 8  # with more columns, each would get less than 8 bits on a space-filling curve


def sortable(kind: pa.DataType) -> bool:
    """Return whether rows can be sorted by a column of this type."""
    t = pa.types
    plain = (
        t.is_integer(kind)
        or t.is_floating(kind)
        or t.is_boolean(kind)
        or t.is_decimal(kind)
        or t.is_date(kind)
        or t.is_timestamp(kind)
        or t.is_time(kind)
    )
    return plain or t.is_string(kind) or t.is_large_string(kind) or t.is_binary(kind)


def sort_columns(argument: str, given: str | Sequence[str] | None, config: TableConfig) -> tuple[str, ...]:
    """Validate the sort columns that the caller passed as `argument`, and return their names in the table.

    Raises ColumnError for an unknown column or one that cannot be sorted. Raises OptionError, which names the
    `argument`, for too many or repeated columns.
    """
    names = config.name_mapping.names(column_names(argument, given))
    if len(names) > _COLUMNS_MAX or len(set(names)) != len(names):
        raise OptionError(
            f"{argument} accepts up to {_COLUMNS_MAX} different columns, got {printable(names)}.", option=argument
        )
    for name in names:
        if name not in config.schema.names:
            raise ColumnError(
                f"Column {printable(name)} does not exist; {hint(name, config.schema.names)}", column=name
            )
        if not sortable(config.schema.field(name).type):
            raise ColumnError(
                f"Column {name!r} of type {config.schema.field(name).type} cannot be sorted. Choose another column.",
                column=name,
            )
    return names


def positions_in_order(rows: pa.Table, columns: Sequence[str]) -> np.ndarray:
    """Return the positions (int[n]) of `rows` sorted by `columns` in ascending order, with nulls last."""
    positions: np.ndarray = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in columns]).to_numpy()
    return positions


__all__ = ["positions_in_order", "sort_columns", "sortable"]
