"""Partitions as users name them, by the values of their columns, and the folders that they mean.

This module knows no store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from hoodoo.errors import ColumnError, PartitionValueError
from hoodoo.format.keys import partition_paths
from hoodoo.format.spellings import Spellings
from hoodoo.redact import printable
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.cast import cast
from hoodoo.writers.batches.input import to_arrow

PartitionValues = Sequence[object | Mapping[str, object]]
"""A value each, or, where several columns partition a table, a dict of column and value each."""


def partition_folders(config: TableConfig, partitions: PartitionValues) -> list[str]:
    """Convert partition values to the folders of these partitions.

    Args:
        config: The configuration of the table.
        partitions: One entry per partition: a value where one column partitions the table, a dict of column and value
            otherwise.

    Returns:
        The path of each folder, relative to the table.

    Raises:
        PartitionValueError: The table has no partitions, an entry does not name exactly its columns, or a value does
            not fit its column or cannot be the name of a folder.
    """
    rows = _rows(config.partition_by, partitions, config.spellings)
    schema = pa.schema([config.declared_schema.field(name) for name in config.partition_by])
    try:
        table = _as_columns(rows, schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as problem:
        why = printable(str(problem).rstrip(".")).strip("\"'")
        raise PartitionValueError(
            f"A partition value does not fit its column: {why}. Give it as {schema.field(0).type}.",
            columns=config.partition_by,
        ) from None
    return partition_paths(table, config.partition_by, config.hive_style, config.url_encode).dictionary.to_pylist()


def require_values(config: TableConfig, partitions: PartitionValues, there: Collection[str]) -> None:
    """Raise PartitionValueError where a partition is given as a folder, such as 'day=mon', and the table does not have
    that value. there: the folders that the table has.
    """
    for given in partitions:
        values = given.values() if isinstance(given, Mapping) else [given]
        for value in values:
            name, mark, rest = value.partition("=") if isinstance(value, str) else ("", "", "")
            if mark and name in config.partition_by and partition_folders(config, [given])[0] not in there:
                raise PartitionValueError(
                    f"The table has no partition with the value {printable(value)}. Partitions are given by their "
                    f"values, not by their folders: {printable(rest)} instead.",
                    column=name,
                    value=printable(value),
                )


def _as_columns(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    try:
        return pa.Table.from_pylist(rows, schema=schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        try:  # a number is taken by its value, as in a batch: 2.0 for a decimal, which Arrow refuses by its type
            return pa.concat_tables([_as_batch(row, schema) for row in rows])
        except ColumnError:
            pass
        raise


def _as_batch(row: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    given = to_arrow([row])
    return pa.table([cast(given[field.name], field) for field in schema], schema=schema)


def _rows(columns: Sequence[str], partitions: PartitionValues, spellings: Spellings) -> list[Mapping[str, Any]]:
    """Each partition as a dict of its columns."""
    if not columns:
        raise PartitionValueError(
            "The table has no partitions. delete(where=...) deletes rows that match; insert_overwrite(rows, "
            "whole_table=True) replaces all rows of the table."
        )
    if isinstance(partitions, (str, bytes, Mapping)) or not isinstance(partitions, Iterable):
        raise PartitionValueError(
            f"partitions takes a list of values or dicts, even for one partition, got {printable(partitions)}.",
            columns=columns,
        )
    rows: list[Mapping[str, Any]] = []
    for given in partitions:
        row = spellings.keys(given) if isinstance(given, Mapping) else {columns[0]: given}
        if set(row) != set(columns):
            raise PartitionValueError(
                f"A partition of this table is a dict with {', '.join(columns)}, got {printable(given)}.",
                columns=columns,
            )
        rows.append(row)
    return rows
