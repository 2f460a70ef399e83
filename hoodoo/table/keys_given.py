"""Keys given by callers, and their conversion to rows.

Callers pass rows with the key columns, with or without partition columns, or bare key values. This module does not look
at the partitions of the table.
"""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from hoodoo.errors import ColumnError
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.generated_columns import computable_partition_columns
from hoodoo.writers.batches.input import ArrowLike, to_arrow

OneKey: TypeAlias = "str | bytes | int | float | decimal.Decimal | dt.date | dt.time | uuid.UUID | pa.Scalar"
KeysLike: TypeAlias = "ArrowLike | Iterable[object] | OneKey"
"""Rows with the key columns, or bare values of a single key column."""
_ONE = (str, bytes, int, float, decimal.Decimal, dt.date, dt.time, uuid.UUID, np.generic)
_ROWS = (Mapping, pa.RecordBatch, pa.Table)


class KeyRows(NamedTuple):
    """Rows with the keys of a delete or a look-up.

    Attributes:
        rows: One row for each key, with the key and partition columns, or the columns that they are derived from.
        in_partitions: True if the partition columns give the partition of each key. False if the partition columns are
            null and each key applies to all partitions.
    """

    rows: pa.Table
    in_partitions: bool


class PartitionColumns(NamedTuple):
    """Partition columns that keys come with.

    Attributes:
        wholly: True if the batch contains the values of all partition columns, or can derive them.
        partly: The first partition column that the batch contains or can derive from a column other than the key, or ''
            without one.
    """

    wholly: bool
    partly: str

    @staticmethod
    def by(names: Sequence[str], config: TableConfig) -> PartitionColumns:
        made = computable_partition_columns(names, config)
        by_key = [name for name, one in made.items() if one.column in config.key]
        told = [name for name in config.partition_by if name in names or name in made]
        partly = next((name for name in told if name not in by_key), "")
        return PartitionColumns(len(told) == len(config.partition_by), partly)


def convert_keys(keys: KeysLike, config: TableConfig) -> KeyRows:
    """Convert keys to rows.

    Raises:
        ColumnError: `keys` has only some of the partition columns, has values of an unsupported type, or has bare
            values although the key has several columns.
    """
    columns = pa.schema(map(config.schema.field, dict.fromkeys((*config.key, *config.partition_by))))
    known = pa.schema(map(config.schema.field, dict.fromkeys((*config.key, *config.partition_sources))))
    given = config.name_mapping.rows(to_arrow(_convert_plain_keys(keys, config), config.name_mapping.hints(known)))
    if not given.num_columns and not len(given):
        return KeyRows(columns.empty_table(), False)  # an empty list has no column names
    told = PartitionColumns.by(given.schema.names, config)
    if told.wholly:
        return KeyRows(given, True)
    if told.partly:
        raise ColumnError(
            f"The keys contain partition column {told.partly!r} but not all partition columns: "
            f"{', '.join(config.partition_by)}. Add the missing columns, or leave all of them out.",
            column=told.partly,
        )
    return KeyRows(_apply_to_all_partitions(given, config), False)


def _convert_plain_keys(keys: KeysLike, config: TableConfig) -> ArrowLike:
    """Convert plain key values to rows.

    Bare key values are one value, or a list, a set, an iterator or an array of values.
    """
    if isinstance(keys, pa.Scalar):
        keys = pa.array([keys.as_py()], keys.type)
    elif isinstance(keys, _ONE):
        keys = [keys]
    elif isinstance(keys, (tuple, Set, ValuesView, Iterator)):
        keys = list(keys)
    bare = isinstance(keys, (pa.Array, pa.ChunkedArray)) or hasattr(keys, "__array__") and not hasattr(keys, "columns")
    if not bare and (not isinstance(keys, list) or not keys or any(isinstance(key, _ROWS) for key in keys)):
        return keys
    if len(config.key) > 1:
        raise ColumnError(
            f"The key has {len(config.key)} columns: {', '.join(config.key)}. Pass dicts or a table with these "
            "columns.",
            columns=config.key,
        )
    field = config.schema.field(config.key[0])
    if not isinstance(keys, (pa.Array, pa.ChunkedArray)):
        keys = to_arrow({field.name: keys}, pa.schema([field]))[field.name]
    values = keys if len(keys) else pa.array([], field.type)
    return pa.table({field.name: values})  # the type is checked and losslessly cast later


def _apply_to_all_partitions(given: pa.Table, config: TableConfig) -> pa.Table:
    """Let keys apply to all partitions.

    Partition columns that are key columns or derived from the key are not added.
    """
    by_key = computable_partition_columns(config.key, config)
    everywhere = {
        name: pa.nulls(len(given), config.schema.field(name).type)
        for name in config.partition_by
        if name not in config.key and name not in by_key
    }
    rows = given.select([name for name in given.schema.names if name in config.key])
    for name, nothing in everywhere.items():
        rows = rows.append_column(name, nothing)
    return rows
