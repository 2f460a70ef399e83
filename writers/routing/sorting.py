"""Sorting of rows by columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.arguments import convert_names as column_names
from hoodoo.errors import ColumnError, OptionError
from hoodoo.nearest import suggest_name
from hoodoo.redact import printable
from hoodoo.timeline.properties.config import TableConfig

_COLUMNS_MAX = 8  # with more columns, each would get less than 8 bits on a space-filling curve


def sortable(kind: pa.DataType) -> bool:
    types = pa.types
    is_plain = (
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
        or types.is_date(kind)
        or types.is_timestamp(kind)
        or types.is_time(kind)
    )
    return is_plain or types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind)


def sort_columns(columns: str | Sequence[str] | None, config: TableConfig) -> tuple[str, ...]:
    names = config.name_mapping.names(column_names("sort_by", columns))
    if len(names) > _COLUMNS_MAX or len(set(names)) != len(names):
        raise OptionError(
            f"Option sort_by is invalid: expected up to {_COLUMNS_MAX} different columns, got {printable(names)}.",
            option="sort_by",
        )
    for name in names:
        if name not in config.schema.names:
            raise ColumnError(
                f"Column {printable(name)} does not exist; {suggest_name(name, config.schema.names)}", column=name
            )
        if not sortable(config.schema.field(name).type):
            raise ColumnError(
                f"Column {name!r} of type {config.schema.field(name).type} cannot be sorted. Choose another column.",
                column=name,
            )
    return names


def positions_in_order(rows: pa.Table, columns: Sequence[str]) -> np.ndarray:
    positions: np.ndarray = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in columns]).to_numpy()
    return positions


__all__ = ["positions_in_order", "sort_columns", "sortable"]
