"""The values of the partition columns in a base file, as other formats are told them: one value for all rows.

It knows folders and statistics, and opens no file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from hoodoo.format.keys import partition_values
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import DataFile


def partition_columns(config: TableConfig) -> tuple[str, ...]:
    """The partition columns whose values folders tell; none where another engine's key generator made the folders."""
    return config.partition_by if config.folders_tell_values else ()


def values_of(config: TableConfig, file: DataFile) -> Mapping[str, Any] | None:
    """The typed value of each partition column in a file, None for null; or None where no one value holds for all rows.

    Nulls and empty texts share the default partition; the statistics of the file tell which of them it holds.
    """
    names = partition_columns(config)
    if not names:
        return {}
    found = partition_values(file.partition, names, config.schema, config.hive_style, config.url_encode)
    for name, value in found.items():
        kind = config.schema.field(name).type
        if value is not None or not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            continue
        stats = config.resolution(file).stats(file.stats, file.rows).get(name)
        if stats is None or 0 < stats[2] < file.rows:
            return None
        if not stats[2]:
            found[name] = "" if pa.types.is_string(kind) else b""
    return found


def bounded_columns(config: TableConfig) -> tuple[str, ...]:
    """The columns whose bounds an export tells: those of keys, ordering and partitions, and the first 32.

    Bounds make up most of an export's size, and a filter on a late column of a wide table is rare.
    """
    first = [column.name for column in config.columns.columns[:32]]
    return tuple(dict.fromkeys((*config.key, *config.order_by, *config.partition_by, *first)))


def bounds_of(config: TableConfig, file: DataFile) -> dict[str, list[Any]]:
    """Return [least, greatest, nulls] by column, as `statistics.to_json` writes them, under the table's names.

    Nested columns are left out: the formats have statistics of their fields only.
    """
    found, columns = config.resolution(file).stats(file.stats, file.rows), config.columns.by_name
    wanted = (name for name in bounded_columns(config) if name in found and name in columns)
    return {name: found[name] for name in wanted if not pa.types.is_nested(columns[name].arrow)}
