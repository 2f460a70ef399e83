"""Renaming of Spark DataFrame columns between the table's current names and the original names.

The original name of a column is its name at its creation (format/name_mapping.py). Columns are selected without reading
rows.

"""

from __future__ import annotations

from typing import Any

from hoodoo.format.name_mapping import Level, NameMapping


def by_table_names(frame: Any, name_mapping: NameMapping) -> Any:
    """Rename the columns of a Spark DataFrame to the table's current names.

    Raises ColumnError if the DataFrame contains a column under both names.
    """
    return _renamed(frame, name_mapping.taken) if name_mapping else frame


def by_originals(frame: Any, name_mapping: NameMapping) -> Any:
    """Rename the columns of a Spark DataFrame to the names that they had when they were created."""
    return _renamed(frame, name_mapping.given_back) if name_mapping else frame


def _renamed(frame: Any, level: Level) -> Any:
    names = level.names(frame.columns)
    kinds = [_kind_within(field.dataType, level, field.name, field.name) for field in frame.schema.fields]
    if any(kind is not None for kind in kinds):
        indexed = frame.toDF(*(f"c{number}" for number in range(len(names))))
        columns = [
            indexed[f"c{number}"] if kind is None else indexed[f"c{number}"].cast(kind)
            for number, kind in enumerate(kinds)
        ]
        return indexed.select(*columns).toDF(*names)
    return frame if names == list(frame.columns) else frame.toDF(*names)


def _kind_within(kind: Any, around: Level, name: str, path: str) -> Any:
    """Return the Spark type of a column with renamed struct fields, or None if no field is renamed."""
    level = around.within(around.columns.get(name))
    if level is None:
        return None
    renamed_kind = _kind(kind, level, path)
    return None if renamed_kind == kind else renamed_kind


def _kind(kind: Any, level: Level, path: str) -> Any:
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if isinstance(kind, ArrayType):
        return ArrayType(_kind(kind.elementType, level, f"{path}[]"), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _kind(kind.valueType, level, f"{path}{{}}"), kind.valueContainsNull)
    if not isinstance(kind, StructType):
        return kind
    names = level.names([field.name for field in kind.fields], f"{path}.")
    fields = []
    for field, name in zip(kind.fields, names, strict=True):
        inner = _kind_within(field.dataType, level, field.name, f"{path}.{field.name}")
        fields.append(StructField(name, field.dataType if inner is None else inner, field.nullable, field.metadata))
    return StructType(fields)


__all__ = ["by_originals", "by_table_names"]
