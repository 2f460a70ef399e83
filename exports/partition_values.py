"""Partition values and column statistics for exports.

Delta and Iceberg need one partition value for all rows of a file. The values come from folder names and statistics. No
file is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from hoodoo.format.keys import parse_partition_values
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import DataFile


def partition_columns(config: TableConfig) -> tuple[str, ...]:
    return config.partition_by if config.folders_contain_partition_values else ()


def partition_values_of_file(config: TableConfig, file: DataFile) -> Mapping[str, Any] | None:
    """Return the partition values of a file.

    Returns None if the rows have no common values. A null value is None. Nulls and empty strings are both in the
    default partition. The statistics of the file show which of them it contains.
    """
    names = partition_columns(config)
    if not names:
        return {}
    values = parse_partition_values(file.partition, names, config.schema, config.hive_style, config.url_encode)
    for name, value in values.items():
        kind = config.schema.field(name).type
        if value is not None or not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            continue
        stats = config.resolution(file).convert_statistics(file.stats, file.rows).get(name)
        if stats is None or 0 < stats[2] < file.rows:
            return None
        if not stats[2]:
            values[name] = "" if pa.types.is_string(kind) else b""
    return values


def choose_exported_statistics(config: TableConfig) -> tuple[str, ...]:
    """Choose the columns whose statistics are exported.

    These are key, ordering and partition columns, and the first 32 columns. Bounds make up most of an export's size,
    and filters on a late column of a wide table are rare.
    """
    first = [column.name for column in config.columns.columns[:32]]
    return tuple(dict.fromkeys((*config.key, *config.order_by, *config.partition_by, *first)))


def column_statistics_of_file(config: TableConfig, file: DataFile) -> dict[str, list[Any]]:
    """Return the column statistics of a base file.

    They are minimum, maximum and null count of each exported column. The values have the form of `statistics.to_json`.
    Nested columns are left out, because the formats have statistics only for their fields.
    """
    stats, columns = config.resolution(file).convert_statistics(file.stats, file.rows), config.columns.by_name
    exported = (name for name in choose_exported_statistics(config) if name in stats and name in columns)
    return {name: stats[name] for name in exported if not pa.types.is_nested(columns[name].arrow)}
