"""Batches with only part of the table's columns.

A partial batch is prepared as if the table had only these columns, so that all rules for batches apply to it. The merge
keeps the stored values of the other columns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from hoodoo.errors import ColumnError, OptionError
from hoodoo.format.names import IS_DELETED
from hoodoo.nearest import suggest_name
from hoodoo.readers.predicate.checks import Check
from hoodoo.redact import printable
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.batch import Batch, BatchTerms
from hoodoo.writers.batches.write_options import WriteOptions

GIVEN = "given"
"""Value of `columns=` that selects every column of the batch."""
ColumnsLike: TypeAlias = "str | Sequence[str]"
"""GIVEN, or a list of column names."""


def validate_column_names(columns: ColumnsLike) -> str | tuple[str, ...]:
    """Validate the columns of a partial upsert.

    Returns:
        'given', or the column names without duplicates.

    Raises:
        OptionError: `columns` is neither 'given' nor a list of names.
    """
    if isinstance(columns, str) and columns == GIVEN:
        return GIVEN
    if not isinstance(columns, (list, tuple)) or not columns or not all(isinstance(name, str) for name in columns):
        raise OptionError(
            "Option columns is invalid: expected 'given' or a list of names, such as ['status'], got "
            f"{printable(columns)}.",
            option="columns",
        )
    return tuple(dict.fromkeys(columns))


def chosen(data: pa.Table, config: TableConfig, columns: str | tuple[str, ...]) -> pa.Table:
    if not data.num_columns and not len(data):
        return data  # an empty list has no column names
    taken = taken_of(data.schema, config, columns)
    return data.select([index for index, name in enumerate(data.schema.names) if name in taken])


def taken_of(schema: pa.Schema, config: TableConfig, columns: str | tuple[str, ...]) -> list[str]:
    names = schema.names
    if columns != GIVEN and (missing := next((name for name in columns if name not in names), None)):
        raise ColumnError(
            f"Column {printable(missing)} of option columns is not in the batch; {suggest_name(missing, names)} "
            "Add it to the batch, or remove it from columns.",
            column=printable(missing),
        )
    return [name for name in names if is_taken(name, config, columns)]


def is_taken(name: str, config: TableConfig, columns: ColumnsLike) -> bool:
    needed = (*config.key, *config.partition_by, *config.order_by, IS_DELETED)
    return columns == GIVEN or name in columns or name in needed


def reduce_config(config: TableConfig, names: Collection[str]) -> TableConfig:
    """Reduce the table configuration to some columns.

    Key, partition and ordering columns stay.

    Raises:
        ColumnError: A partition column and the column from which it is generated are both missing.
    """
    for partition_column, transform in config.transforms.items():
        if names and partition_column not in names and transform.column not in names:
            raise ColumnError(
                f"The upsert has neither partition column {partition_column!r} nor its source column "
                f"{transform.column!r} ({transform}), so the partition of a row is unknown. Add one of them to the "
                "batch. If columns is a list, add it there too.",
                column=partition_column,
            )
    wanted = {*names, *config.key, *config.partition_by, *config.order_by}
    columns = config.columns
    kept_columns = tuple(column for column in columns.columns if column.name in wanted)
    return (
        config
        if len(kept_columns) == len(columns.columns)
        else config.with_columns(replace(columns, columns=kept_columns))
    )


def with_nullable_columns(config: TableConfig) -> TableConfig:
    columns = config.columns
    loose = tuple(replace(column, required=False) for column in columns.columns)
    return config.with_columns(replace(columns, columns=loose)) if config.not_null else config


def select_columns(
    schema: pa.Schema, config: TableConfig, options: WriteOptions, checks: tuple[Check, ...]
) -> tuple[TableConfig, tuple[Check, ...]]:
    """Select the columns of a batch, and their checks.

    Returns the configuration and the checks that the rows must satisfy. A batch with only some of the columns is
    validated against these columns only.

    Args:
        schema: The columns of the batch that the write uses.
        config: The table's configuration, with the columns that the batch adds.
        options: The options of the write.
        checks: The checks of the table.

    Raises:
        ColumnError: The batch lacks the columns that determine the partition of a row.
    """
    if options.columns is not None:
        config = reduce_config(config, schema.names)
        checks = tuple(check for check in checks if check.columns <= set(config.schema.names))
    if not options.mode.replaces_rows:  # the merged rows are validated instead of the input rows
        config, checks = with_nullable_columns(config), ()
    return config, checks


def names_of(terms: BatchTerms, config: TableConfig) -> list[str]:
    settled = {column.id for column in terms.columns.columns if column.id <= terms.settled}
    new = {column.name for column in terms.columns.columns if column.id > terms.settled}
    return [column.name for column in config.columns.columns if column.id in settled or column.name in new]


def fitted(batch: Batch, config: TableConfig) -> Batch:
    return batch.fitted(reduce_config(config, names_of(batch.terms, config)))


__all__ = [
    "GIVEN",
    "ColumnsLike",
    "select_columns",
    "chosen",
    "validate_column_names",
    "fitted",
    "is_taken",
    "names_of",
    "taken_of",
]
