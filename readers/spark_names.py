"""Current names for the columns of Spark DataFrames.

The original name of a column is its name at its creation (format/name_mapping.py). Columns are selected without reading
rows.
"""

from __future__ import annotations

from typing import Any

from hoodoo.format.name_mapping import LevelMapping, NameMapping


def by_table_names(frame: Any, name_mapping: NameMapping) -> Any:
    return _rename_columns(frame, name_mapping.taken) if name_mapping else frame


def rename_to_original_names(frame: Any, name_mapping: NameMapping) -> Any:
    return _rename_columns(frame, name_mapping.to_original_names) if name_mapping else frame


def _rename_columns(frame: Any, level: LevelMapping) -> Any:
    names = level.names(frame.columns)
    kinds = [_rename_type_within(field.dataType, level, field.name, field.name) for field in frame.schema.fields]
    if any(kind is not None for kind in kinds):
        indexed = frame.toDF(*(f"c{number}" for number in range(len(names))))
        columns = [
            indexed[f"c{number}"] if kind is None else indexed[f"c{number}"].cast(kind)
            for number, kind in enumerate(kinds)
        ]
        return indexed.select(*columns).toDF(*names)
    return frame if names == list(frame.columns) else frame.toDF(*names)


def _rename_type_within(kind: Any, around: LevelMapping, name: str, path: str) -> Any:
    # None if no struct field is renamed.
    level = around.within(around.columns.get(name))
    if level is None:
        return None
    renamed_kind = _rename_type(kind, level, path)
    return None if renamed_kind == kind else renamed_kind


def _rename_type(kind: Any, level: LevelMapping, path: str) -> Any:
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if isinstance(kind, ArrayType):
        return ArrayType(_rename_type(kind.elementType, level, f"{path}[]"), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _rename_type(kind.valueType, level, f"{path}{{}}"), kind.valueContainsNull)
    if not isinstance(kind, StructType):
        return kind
    names = level.names([field.name for field in kind.fields], f"{path}.")
    fields = []
    for field, name in zip(kind.fields, names, strict=True):
        inner = _rename_type_within(field.dataType, level, field.name, f"{path}.{field.name}")
        fields.append(StructField(name, field.dataType if inner is None else inner, field.nullable, field.metadata))
    return StructType(fields)


__all__ = ["rename_to_original_names", "by_table_names"]
