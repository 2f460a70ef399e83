"""Generated columns, which are computed from other columns.

The functions add a generated column to a batch that lacks it, and check its values in a batch that contains it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from hoodoo.errors import ColumnError, PartitionValueError
from hoodoo.format import transforms
from hoodoo.format.equality import equal_values
from hoodoo.format.transforms import Transform
from hoodoo.redact import printable
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.cast import cast_column


def computable_partition_columns(names: Collection[str], config: TableConfig) -> dict[str, Transform]:
    return {
        name: transform
        for name, transform in config.transforms.items()
        if name not in names and transform.column in names
    }


def to_check(names: Collection[str], config: TableConfig) -> list[str]:
    return [
        transform.column for name, transform in config.transforms.items() if name in names and transform.column in names
    ]


def add_generated_columns(
    rows: pa.Table, config: TableConfig, deleted: np.ndarray, zones: Collection[str] = ()
) -> pa.Table:
    """Add generated partition columns to rows, or check them.

    Args:
        rows: Rows with the table's types.
        config: The configuration of the table.
        deleted: Boolean mask of the rows that are deletes. A delete may have null in the source column.
        zones: Names of time zones that the caller may have used to compute a partition column. If such a zone explains
            a wrong value, the error message names it.

    Returns:
        The rows with all partition columns that can be generated.

    Raises:
        PartitionValueError: A number is too small to be truncated.
        ColumnError: A partition column differs from the value computed from its source column.
    """
    for name, transform, values, wrong in _compare_generated_columns(rows, config, deleted):
        if len(wrong_rows := np.flatnonzero(wrong)):
            raise _wrong_partition_error(rows, config, name, transform, values, int(wrong_rows[0]), zones)
        if name not in rows.schema.names:
            rows = rows.append_column(config.schema.field(name), values)
    return rows


def find_misplaced_rows(rows: pa.Table, config: TableConfig, deleted: np.ndarray) -> np.ndarray:
    """Find misplaced rows, whose partition value is wrong.

    Returns a mask. The mask also selects rows whose source value cannot be transformed. For all selected rows,
    `add_generated_columns` raises an error.
    """
    mask = np.zeros(len(rows), bool)
    for _, _, _, wrong in _compare_generated_columns(rows, config, deleted):
        mask |= wrong
    return mask


def with_missing_partitions(rows: pa.Table, config: TableConfig) -> pa.Table:
    for name, transform in computable_partition_columns(rows.schema.names, config).items():
        column = cast_column(rows[transform.column], config.schema.field(transform.column)).combine_chunks()
        rows = rows.append_column(config.schema.field(name), transforms.compute_partition_values(transform, column))
    return rows


def _compare_generated_columns(
    rows: pa.Table, config: TableConfig, deleted: np.ndarray
) -> Iterator[tuple[str, Transform, pa.Array, np.ndarray]]:
    # Yields each column with its transform, its computed values and a boolean mask of the wrong rows.
    for name, transform in config.transforms.items():
        if transform.column not in rows.schema.names:
            continue
        source = rows[transform.column].combine_chunks()
        values, wrong = transforms.compute_partition_values(transform, source), transforms.unfit(transform, source)
        if name in rows.schema.names:
            wrong |= ~equal_values(rows[name].combine_chunks(), values)
            wrong &= ~(deleted & source.is_null().to_numpy(zero_copy_only=False))
        yield name, transform, values, wrong


def _wrong_partition_error(
    rows: pa.Table,
    config: TableConfig,
    name: str,
    transform: Transform,
    values: pa.Array,
    row: int,
    zones: Collection[str],
) -> ColumnError | PartitionValueError:
    key = printable({part: rows[part][row].as_py() for part in config.key})
    if transforms.unfit(transform, rows[transform.column].slice(row, 1).combine_chunks())[0]:
        return PartitionValueError(
            f"Column {transform.column!r}: the number in row {row} (key {key}) is too small for partition column "
            f"{name!r}, which is {transform}. Correct the number, or leave the row out.",
            column=transform.column,
            row=row,
            key=key,
        )
    actual, expected = (printable(_printable_partition(column[row])) for column in (rows[name], values))
    return ColumnError(
        f"Partition column {name!r} is wrong in row {row} (key {key}): expected {expected} from {transform}, got "
        f"{actual}. Leave the column out, so that it is computed, or correct the row."
        f"{_time_zone_hint(transform, rows, name, row, zones)}",
        column=name,
        row=row,
        key=key,
        expected=expected,
    )


def _time_zone_hint(one: Transform, rows: pa.Table, made: str, row: int, zones: Collection[str]) -> str:
    moment, given = rows[one.column][row], rows[made][row]
    if not (pa.types.is_timestamp(moment.type) and moment.type.tz and moment.is_valid and given.is_valid):
        return ""
    kind = pa.timestamp("us")
    try:
        moment = moment.cast(pa.timestamp("us", "UTC")).as_py()
        for zone in dict.fromkeys((*zones, "")):
            local = moment.astimezone(ZoneInfo(zone) if zone else None).replace(tzinfo=None)
            if transforms.value(one, local, kind) == given.as_py():
                name = zone or os.environ.get("TZ") or time.tzname[0]
                return f" The value is correct for time zone {name}, but partition columns are computed in UTC."
    except (ValueError, OverflowError, OSError, KeyError, pa.ArrowInvalid):
        pass  # an unknown zone, or a time that Python cannot represent; the hint is optional
    return ""


def _printable_partition(value: pa.Scalar) -> object:
    return str(value) if pa.types.is_date(value.type) and value.is_valid else value.as_py()


__all__ = [
    "to_check",
    "computable_partition_columns",
    "add_generated_columns",
    "with_missing_partitions",
    "find_misplaced_rows",
]
