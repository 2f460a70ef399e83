"""Partition values, and their conversion to folder paths.

This module does not access the store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from hoodoo.errors import ColumnError, PartitionValueError
from hoodoo.format.keys import compute_partition_paths
from hoodoo.format.name_mapping import NameMapping
from hoodoo.redact import printable
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.cast import cast_column
from hoodoo.writers.batches.input import to_arrow

PartitionValues = Sequence[object | Mapping[str, object]]
"""One value per partition, or one dict from column to value per partition."""


def convert_to_folders(config: TableConfig, partitions: PartitionValues) -> list[str]:
    """Convert partition values to folder paths.

    Args:
        config: The configuration of the table.
        partitions: One entry per partition: a value for tables with one partition column, otherwise a dict from column
            to value.

    Returns:
        The folder path of each partition, relative to the table.

    Raises:
        PartitionValueError: The table is unpartitioned, an entry does not have exactly the partition columns, or a
            value cannot be converted to its column type or is not a valid folder name.
    """
    rows = _convert_to_dicts(config.partition_by, partitions, config.name_mapping)
    schema = pa.schema([config.declared_schema.field(name) for name in config.partition_by])
    try:
        table = _as_columns(rows, schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as problem:
        why = printable(str(problem).rstrip(".")).strip("\"'")
        raise PartitionValueError(
            f"A partition value cannot be converted to its column type: {why}. Pass a {schema.field(0).type}.",
            columns=config.partition_by,
        ) from None
    return compute_partition_paths(
        table, config.partition_by, config.hive_style, config.url_encode
    ).dictionary.to_pylist()


def require_values(config: TableConfig, partitions: PartitionValues, there: Collection[str]) -> None:
    """Check that no partition value is a folder name.

    A value that looks like a folder name is accepted if the table has a partition with this value.

    Args:
        config: The configuration of the table.
        partitions: One entry per partition, as in `convert_to_folders`.
        there: The partition folders of the table.
    """
    for given in partitions:
        values = given.values() if isinstance(given, Mapping) else [given]
        for value in values:
            name, mark, rest = value.partition("=") if isinstance(value, str) else ("", "", "")
            if mark and name in config.partition_by and convert_to_folders(config, [given])[0] not in there:
                raise PartitionValueError(
                    f"The table has no partition with the value {printable(value)}. Pass partition values "
                    f"instead of folder names: {printable(rest)}.",
                    column=name,
                    value=printable(value),
                )


def _as_columns(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    try:
        return pa.Table.from_pylist(rows, schema=schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        try:  # convert numbers by value, as in a batch: Arrow rejects the float 2.0 for a decimal
            return pa.concat_tables([_as_batch(row, schema) for row in rows])
        except ColumnError:
            pass
        raise


def _as_batch(row: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    given = to_arrow([row])
    return pa.table([cast_column(given[field.name], field) for field in schema], schema=schema)


def _convert_to_dicts(
    columns: Sequence[str], partitions: PartitionValues, name_mapping: NameMapping
) -> list[Mapping[str, Any]]:
    if not columns:
        raise PartitionValueError(
            "The table has no partitions. Use delete(where=...) to delete matching rows, or "
            "insert_overwrite(rows, whole_table=True) to replace all rows."
        )
    if isinstance(partitions, (str, bytes, Mapping)) or not isinstance(partitions, Iterable):
        raise PartitionValueError(
            f"Option partitions must be a list of values or dicts, also for one item, got {printable(partitions)}.",
            columns=columns,
        )
    rows: list[Mapping[str, Any]] = []
    for given in partitions:
        row = name_mapping.keys(given) if isinstance(given, Mapping) else {columns[0]: given}
        if set(row) != set(columns):
            raise PartitionValueError(
                f"A partition of this table must be a dict with {', '.join(columns)}, got {printable(given)}.",
                columns=columns,
            )
        rows.append(row)
    return rows
