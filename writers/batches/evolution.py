"""Evolution of a table's columns for a new batch.

Evolution never drops, renames or narrows a column. It does not rewrite base files, except to compact their logs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from hoodoo.errors import ColumnError
from hoodoo.format.table_schema import Column, TableSchema
from hoodoo.timeline.columns.alterations import Alteration, altered
from hoodoo.timeline.columns.batch_columns import find_column_changes
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.cast import cast_column
from hoodoo.writers.batches.value_validation import validate_columns


@dataclass(frozen=True)
class ColumnEvolution:
    """Evolution of a table's columns for a new batch.

    They are new columns, new struct fields and wider types.

    Attributes:
        schema: The columns of the batch.
        known: The columns of the table when the batch was prepared. The batch uses their names.
        fits: Function that returns whether the batch's values of a column are convertible to the table's field.
    """

    schema: pa.Schema
    known: TableSchema
    fits: Callable[[str, pa.Field], bool]

    def alterations(self, config: TableConfig) -> list[Alteration]:
        """Find the column changes for the current table.

        Raises:
            SchemaError: A type is not supported in tables.
            ColumnError: Another column was given the name of a new column of the batch in the meantime.
        """
        batch_columns = self._columns_by_current_name(config.columns)
        table_columns = set(config.schema.names)
        return find_column_changes(
            config,
            pa.schema([field.with_name(name) for name, (_, field) in batch_columns.items()]),
            lambda name: name in table_columns and self.fits(batch_columns[name][0], config.schema.field(name)),
        )

    def _columns_by_current_name(self, now: TableSchema) -> dict[str, tuple[str, pa.Field]]:
        # Columns that were dropped from the table since the batch was prepared are left out.
        columns: dict[str, tuple[str, pa.Field]] = {}
        for field in self.schema:
            if field.name.startswith("_hoodie_"):
                continue
            known, current = self.known.by_name.get(field.name), None
            if known is not None:
                current = next((column for column in now.columns if column.id == known.id), None)
                if current is None:
                    continue
                field = field.with_type(_rename_struct_fields(field.type, known, current))
            name = current.name if current else field.name
            if name in columns and columns[name][0] == field.name:
                raise ColumnError(
                    f"The batch has column {field.name!r} more than once. Rename or drop one of them.", column=name
                )
            if name in columns:
                raise ColumnError(
                    f"Column {name!r} is new in the batch, but another writer has renamed a column to this "
                    "name. Nothing was written. Choose another name for the new column.",
                    column=name,
                )
            columns[name] = field.name, field
        return columns

    def of(self, config: TableConfig) -> TableConfig:
        alterations = self.alterations(config)
        return config.with_columns(altered(config, alterations)) if alterations else config


def find_changes_for_rows(data: pa.Table, config: TableConfig) -> ColumnEvolution:
    """Find the column changes that a batch requires."""

    def fits(name: str, field: pa.Field) -> bool:
        try:
            cast_column(validate_columns(data, [name], config.key)[name], field)
        except ColumnError:
            return False
        return True

    return ColumnEvolution(data.schema, config.columns, fits)


def find_changes_for_schema(schema: pa.Schema, known: TableSchema) -> ColumnEvolution:
    """Find the column changes that a DataFrame requires."""
    return ColumnEvolution(schema, known, lambda name, field: False)


def _rename_struct_fields(kind: pa.DataType, was: Column, now: Column) -> pa.DataType:
    if was.kind != now.kind:
        return kind
    if was.kind == "struct" and pa.types.is_struct(kind):
        old_fields, new_fields = (
            {child.name: child for child in was.children},
            {child.id: child for child in now.children},
        )
        fields = []
        for field in kind:
            old = old_fields.get(field.name)
            new = new_fields.get(old.id) if old else None
            if old and new:
                fields.append(pa.field(new.name, _rename_struct_fields(field.type, old, new)))
            elif old is None:
                fields.append(field)
        return pa.struct(fields)
    if was.kind == "list" and pa.types.is_list(kind):
        return pa.list_(_rename_struct_fields(kind.value_type, was.children[0], now.children[0]))
    if was.kind == "map" and pa.types.is_map(kind):
        return pa.map_(kind.key_type, _rename_struct_fields(kind.item_type, was.children[1], now.children[1]))
    return kind


__all__ = ["ColumnEvolution", "find_changes_for_rows", "find_changes_for_schema"]
