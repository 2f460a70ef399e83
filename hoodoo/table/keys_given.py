"""Keys as callers give them: rows with the key columns, with or without partition columns, or bare values.

Makes rows of them that a delete and a look-up prepare alike. Knows no partition that the table has.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterable, Iterator, Mapping, Set, ValuesView
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from hoodoo.errors import ColumnError
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.input import ArrowLike, to_arrow

OneKey: TypeAlias = "str | bytes | int | float | decimal.Decimal | dt.date | dt.time | pa.Scalar"
KeysLike: TypeAlias = "ArrowLike | Iterable[object] | OneKey"
"""Rows with the key columns, or, where the key is one column, its bare values, or one of them."""
_ONE = (str, bytes, int, float, decimal.Decimal, dt.date, dt.time, np.generic)
_ROWS = (Mapping, pa.RecordBatch, pa.Table)


class GivenKeys(NamedTuple):
    """Keys as rows.

    Attributes:
        rows: A row for each key, with the key and partition columns.
        in_partitions: True if the partition columns say where each key is. False: they are null, and each key is meant
            wherever it is.
    """

    rows: pa.Table
    in_partitions: bool


def keys_given(keys: KeysLike, config: TableConfig) -> GivenKeys:
    """Make rows of `keys`.

    Raises:
        ColumnError: `keys` has some of the partition columns but not all, has values of no known type, or has bare
            values where the key is several columns.
    """
    columns = pa.schema(map(config.schema.field, dict.fromkeys((*config.key, *config.partition_by))))
    given = to_arrow(_as_rows(keys, config), columns)
    if not given.num_columns and not len(given):
        return GivenKeys(columns.empty_table(), False)  # as an empty list, it says nothing of columns
    named = [name for name in config.partition_by if name in given.schema.names]
    if len(named) == len(config.partition_by):
        return GivenKeys(given, True)
    if named:
        raise ColumnError(
            f"The keys have partition column {named[0]!r} but not all of {', '.join(config.partition_by)}.",
            column=named[0],
        )
    return GivenKeys(_without_partition(given, config), False)


def _as_rows(keys: KeysLike, config: TableConfig) -> ArrowLike:
    """Make a table of bare key values: one, or a list, a set, an iterator or an array of them."""
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
            f"The key has {len(config.key)} columns: pass dicts or a table with {', '.join(config.key)}.",
            columns=config.key,
        )
    field = config.schema.field(config.key[0])
    if not isinstance(keys, (pa.Array, pa.ChunkedArray)):
        keys = to_arrow({field.name: keys}, pa.schema([field]))[field.name]
    values = keys if len(keys) else pa.array([], field.type)
    return pa.table({field.name: values})  # its type is checked, and cast where nothing is lost, with the rest


def _without_partition(given: pa.Table, config: TableConfig) -> pa.Table:
    """Make keys without partition values into rows whose partition columns are null."""
    everywhere = {
        name: pa.nulls(len(given), config.schema.field(name).type)
        for name in config.partition_by
        if name not in config.key
    }
    rows = given.select([name for name in given.schema.names if name in config.key])
    for name, nothing in everywhere.items():
        rows = rows.append_column(name, nothing)
    return rows
