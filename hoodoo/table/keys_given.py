"""Keys as callers give them: rows with the key columns, with or without partition columns, or bare values.

Makes rows of them that a delete and a look-up prepare alike. Knows no partition that the table has.
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
from hoodoo.writers.batches.generated_columns import to_make
from hoodoo.writers.batches.input import ArrowLike, to_arrow

OneKey: TypeAlias = "str | bytes | int | float | decimal.Decimal | dt.date | dt.time | uuid.UUID | pa.Scalar"
KeysLike: TypeAlias = "ArrowLike | Iterable[object] | OneKey"
"""Rows with the key columns, or, where the key is one column, its bare values, or one of them."""
_ONE = (str, bytes, int, float, decimal.Decimal, dt.date, dt.time, uuid.UUID, np.generic)
_ROWS = (Mapping, pa.RecordBatch, pa.Table)


class GivenKeys(NamedTuple):
    """Keys as rows.

    Attributes:
        rows: A row for each key, with the key and partition columns, or columns of which these are made.
        in_partitions: True if the partition columns say where each key is. False: they are null, and each key is meant
            wherever it is.
    """

    rows: pa.Table
    in_partitions: bool


class PartitionsTold(NamedTuple):
    """What the columns of a batch tell of its rows' partitions.

    Attributes:
        wholly: True if they tell every partition column.
        partly: A partition column that they tell beyond what the key tells, '' if there is none.
    """

    wholly: bool
    partly: str

    @staticmethod
    def by(names: Sequence[str], config: TableConfig) -> PartitionsTold:
        """Look at the columns `names`."""
        made = to_make(names, config)
        by_key = [name for name, one in made.items() if one.column in config.key]
        told = [name for name in config.partition_by if name in names or name in made]
        partly = next((name for name in told if name not in by_key), "")
        return PartitionsTold(len(told) == len(config.partition_by), partly)


def keys_given(keys: KeysLike, config: TableConfig) -> GivenKeys:
    """Make rows of `keys`.

    Raises:
        ColumnError: `keys` has some of the partition columns but not all, has values of no known type, or has bare
            values where the key is several columns.
    """
    columns = pa.schema(map(config.schema.field, dict.fromkeys((*config.key, *config.partition_by))))
    known = pa.schema(map(config.schema.field, dict.fromkeys((*config.key, *config.placing))))
    given = config.spellings.rows(to_arrow(_as_rows(keys, config), config.spellings.hints(known)))
    if not given.num_columns and not len(given):
        return GivenKeys(columns.empty_table(), False)  # as an empty list, it says nothing of columns
    told = PartitionsTold.by(given.schema.names, config)
    if told.wholly:
        return GivenKeys(given, True)
    if told.partly:
        raise ColumnError(
            f"The keys have partition column {told.partly!r} but not all of {', '.join(config.partition_by)}.",
            column=told.partly,
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
    """Make rows whose partition columns are null, or missing if they are generated from the key."""
    by_key = to_make(config.key, config)
    everywhere = {
        name: pa.nulls(len(given), config.schema.field(name).type)
        for name in config.partition_by
        if name not in config.key and name not in by_key
    }
    rows = given.select([name for name in given.schema.names if name in config.key])
    for name, nothing in everywhere.items():
        rows = rows.append_column(name, nothing)
    return rows
