"""Column types that an export format supports."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from hoodoo.errors import SchemaError
from hoodoo.format.table_schema import Column, TableSchema


def require_supported_types(columns: TableSchema, holds: Callable[[pa.DataType], bool], name: str, advice: str) -> None:
    """Require that an export format supports the column types.

    Raises SchemaError for an unsupported type.

    Args:
        columns: The columns of the table.
        holds: Function that returns whether the format supports the type of a leaf column.
        name: The name of the format.
        advice: A remedy for the error message.
    """
    unsupported = [(path, kind) for column in columns.columns for path, kind in _refused(column, column.name, holds)]
    if unsupported:
        column_list = ", ".join(f"{path!r} ({kind})" for path, kind in unsupported)
        raise SchemaError(
            f"{name} has no type for column {column_list}{advice}",
            columns=[path for path, _ in unsupported],
            format=name.lower(),
        )


def _refused(column: Column, path: str, holds: Callable[[pa.DataType], bool]) -> Iterator[tuple[str, pa.DataType]]:
    if isinstance(column.kind, str):
        for child in column.children:
            yield from _refused(child, f"{path}.{child.name}", holds)
    elif not holds(column.kind):
        yield path, column.kind
