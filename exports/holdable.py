"""Columns that a format has no type for, refused by their names. It knows neither of the formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from hoodoo.errors import SchemaError
from hoodoo.format.table_schema import Column, TableSchema


def require_types(columns: TableSchema, holds: Callable[[pa.DataType], bool], name: str, advice: str) -> None:
    """Raise SchemaError, which names them by their dotted paths, where there are columns whose type a format lacks.

    Args:
        columns: The columns of the table.
        holds: Tells whether the format has a type for that of a leaf.
        name: What the format is called.
        advice: What to do.
    """
    refused = [(path, kind) for column in columns.columns for path, kind in _refused(column, column.name, holds)]
    if refused:
        said = ", ".join(f"{path!r} ({kind})" for path, kind in refused)
        raise SchemaError(
            f"{name} has no type for column {said}{advice}",
            columns=[path for path, _ in refused],
            format=name.lower(),
        )


def _refused(column: Column, path: str, holds: Callable[[pa.DataType], bool]) -> Iterator[tuple[str, pa.DataType]]:
    if isinstance(column.kind, str):
        for child in column.children:
            yield from _refused(child, f"{path}.{child.name}", holds)
    elif not holds(column.kind):
        yield path, column.kind
