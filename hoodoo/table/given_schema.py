"""Schemas given by callers, and their conversion."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from hoodoo.errors import OptionError, SchemaError
from hoodoo.nearest import join_names
from hoodoo.redact import printable
from hoodoo.writers.batches.input import ArrowLike, to_arrow

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SchemaLike: TypeAlias = "pa.Schema | StructType | Mapping[str, pa.DataType | type | str] | ArrowLike"
"""Columns of a table: a schema, a dict of names and types, a string, or sample rows."""
_PYTHON_TYPES: dict[type, str] = {
    int: "bigint",
    float: "double",
    str: "string",
    bool: "boolean",
    bytes: "binary",
    dt.date: "date",
    dt.datetime: "timestamp",
    dt.time: "time",
}
"""Column types by Python type, for schemas such as {"id": int}."""


def convert_schema(schema: SchemaLike, key: object) -> tuple[pa.Schema, pa.Table | None]:
    """Convert the schema of a new table to a pyarrow schema.

    Args:
        schema: The schema, or rows that have the columns.
        key: The key columns. An index level of a pandas DataFrame with one of these names is a column, too.

    Raises:
        OptionError: `schema` does not describe columns.
        SchemaError: A column contains only nulls or empty lists, so its type is unknown.
        ColumnError: The rows cannot be read as columns.
    """
    from hoodoo.format.column_text import parse_schema_text
    from hoodoo.format.known_types import remove_unknown_parts
    from hoodoo.readers.output import Rows
    from hoodoo.writers.batches.arrow_layouts import plain_type
    from hoodoo.writers.batches.row_files import has_supported_extension, schema_in

    if isinstance(schema, pa.Schema):
        return schema, None
    if type(schema).__module__.startswith("pyspark."):
        from hoodoo.engine.spark_types import arrow_schema_of

        found: pa.Schema = arrow_schema_of(getattr(schema, "schema", schema))  # schema of a DataFrame, or a StructType
        return found, None
    if isinstance(schema, (str, os.PathLike)):
        path = os.fspath(schema)
        return (schema_in(path) if has_supported_extension(path) else parse_schema_text(path)), None
    if isinstance(schema, Mapping) and all(isinstance(kind, (str, type, pa.DataType)) for kind in schema.values()):
        return pa.schema([(name, _arrow_type(kind, name)) for name, kind in schema.items()]), None
    rows: Any = schema
    unread = isinstance(rows, (pa.RecordBatchReader, Rows))  # not read: the caller inserts its rows later
    said = [key] if isinstance(key, str) else key if isinstance(key, (list, tuple)) else ()
    index = dict.fromkeys(name for name in said if isinstance(name, str))
    here = None if unread else to_arrow(rows, pa.schema([(name, pa.null()) for name in index]))
    known: pa.Schema = rows.schema if here is None else here.schema
    if not len(known):
        raise OptionError(
            f"Option schema must be a pyarrow or Spark schema, a dict of names and types such as {{'id': 'string'}}, "
            f"or rows with the columns, got {printable(schema)}.",
            option="schema",
        )
    for field in known:
        if remove_unknown_parts(field.type) is None:
            raise SchemaError(
                f"Column {field.name!r} contains only nulls or empty lists, so its type is unknown. Give the "
                "column a type, or pass a schema.",
                column=field.name,
            )
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in known]), here


def _arrow_type(kind: pa.DataType | type | str, name: str) -> pa.DataType:
    from hoodoo.format.column_text import parse_column_type

    if isinstance(kind, type):
        if kind not in _PYTHON_TYPES:
            raise SchemaError(
                f"Column {printable(name)}: {printable(kind.__name__)} is not a supported type: expected "
                f"{join_names(sorted(one.__name__ for one in _PYTHON_TYPES))}. Pass an Arrow type or a name such as "
                "'decimal(18,2)' or 'list<string>'.",
                column=printable(name),
            )
        return parse_column_type(_PYTHON_TYPES[kind], name)
    return parse_column_type(kind, name) if isinstance(kind, str) else kind


__all__ = ["SchemaLike", "convert_schema"]
