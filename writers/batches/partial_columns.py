"""Batches that bring some of the table's columns. Such a batch is prepared as if the table had no others, so that every
rule for a batch holds for what it brings. Knows rows and columns; the merge keeps the stored values of the others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from hoodoo.errors import ColumnError, OptionError
from hoodoo.format.names import IS_DELETED
from hoodoo.nearest import hint
from hoodoo.readers.predicate.checks import Check
from hoodoo.redact import printable
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.batch import Batch, Terms
from hoodoo.writers.batches.write_options import WriteOptions

GIVEN = "given"
"""Every column that the batch has: a value of `columns=`."""
ColumnsLike: TypeAlias = "str | Sequence[str]"
"""GIVEN, or names of columns."""


def columns_named(columns: ColumnsLike) -> str | tuple[str, ...]:
    """Check the argument `columns`.

    Returns:
        'given', or names, each once.

    Raises:
        OptionError: It is neither 'given' nor names of columns.
    """
    if isinstance(columns, str) and columns == GIVEN:
        return GIVEN
    if not isinstance(columns, (list, tuple)) or not columns or not all(isinstance(name, str) for name in columns):
        raise OptionError(
            f"columns takes 'given' or a list of names, such as ['status']; got {printable(columns)}.", option="columns"
        )
    return tuple(dict.fromkeys(columns))


def chosen(data: pa.Table, config: TableConfig, columns: str | tuple[str, ...]) -> pa.Table:
    """Return the columns of `data` that a write of `columns` takes.

    Raises:
        ColumnError: The batch lacks one of `columns`.
    """
    if not data.num_columns and not len(data):
        return data  # an empty list says nothing of columns
    taken = taken_of(data.schema, config, columns)
    return data.select([index for index, name in enumerate(data.schema.names) if name in taken])


def taken_of(schema: pa.Schema, config: TableConfig, columns: str | tuple[str, ...]) -> list[str]:
    """Return the names of those columns of a batch that a write of `columns` takes.

    Raises:
        ColumnError: The batch lacks one of `columns`.
    """
    there = schema.names
    if columns != GIVEN and (lacking := next((name for name in columns if name not in there), None)):
        raise ColumnError(
            f"columns names {printable(lacking)}, and the batch has no such column; {hint(lacking, there)} Add it "
            "to the batch, or leave it out of columns.",
            column=printable(lacking),
        )
    return [name for name in there if is_taken(name, config, columns)]


def is_taken(name: str, config: TableConfig, columns: ColumnsLike) -> bool:
    """Tell whether a write of `columns` takes the column `name` of a batch."""
    needed = (*config.key, *config.partition_by, *config.order_by, IS_DELETED)
    return columns == GIVEN or name in columns or name in needed


def narrowed(config: TableConfig, names: Collection[str]) -> TableConfig:
    """Return the table as if it had the columns `names` only, and those that every batch needs.

    Raises:
        ColumnError: There is neither a partition column nor the column of which it is made.
    """
    for made, one in config.transforms.items():
        if names and made not in names and one.column not in names:
            raise ColumnError(
                f"The upsert brings neither partition column {made!r} nor {one.column!r}, of which it is made "
                f"({one}): which partition a row belongs to is not known. "
                "Bring one of them, and name it in columns where that is a list.",
                column=made,
            )
    wanted = {*names, *config.key, *config.partition_by, *config.order_by}
    columns = config.columns
    kept = tuple(column for column in columns.columns if column.name in wanted)
    return config if len(kept) == len(columns.columns) else config.with_columns(replace(columns, columns=kept))


def taking_nulls(config: TableConfig) -> TableConfig:
    """Return the table as if each of its columns took nulls."""
    columns = config.columns
    loose = tuple(replace(column, required=False) for column in columns.columns)
    return config.with_columns(replace(columns, columns=loose)) if config.not_null else config


def asked(
    schema: pa.Schema, config: TableConfig, options: WriteOptions, checks: tuple[Check, ...]
) -> tuple[TableConfig, tuple[Check, ...]]:
    """Return the table as if it were what the rows of a batch are held against, and the checks that they have to pass.

    Args:
        schema: The columns of the batch, which the write takes.
        config: The configuration of the table, as the batch wants it.
        options: What the caller asks for.
        checks: The checks of the table.

    Raises:
        ColumnError: The batch does not say which partition a row belongs to.
    """
    if options.columns is not None:
        config = narrowed(config, schema.names)
        checks = tuple(check for check in checks if check.columns <= set(config.schema.names))
    if not options.mode.replaces_rows:  # what is asked of rows is asked of those that come of them
        config, checks = taking_nulls(config), ()
    return config, checks


def names_of(terms: Terms, config: TableConfig) -> list[str]:
    """Return what columns of a batch are called by now, those that it is the first to bring among them."""
    settled = {column.id for column in terms.columns.columns if column.id <= terms.settled}
    new = {column.name for column in terms.columns.columns if column.id > terms.settled}
    return [column.name for column in config.columns.columns if column.id in settled or column.name in new]


def fitted(batch: Batch, config: TableConfig) -> Batch:
    """Return a batch of some columns with what these columns are by now.

    Raises:
        ColumnError: It has values for a column that is gone.
    """
    return batch.fitted(narrowed(config, names_of(batch.terms, config)))


__all__ = [
    "GIVEN",
    "ColumnsLike",
    "asked",
    "chosen",
    "columns_named",
    "fitted",
    "is_taken",
    "names_of",
    "taken_of",
]
