"""Lookup of the partitions of stored rows.

It is for change events without the old partition. If a table is partitioned by a column outside the key, the values of
a row determine its partition. A database that does not log whole rows sends only the key for a delete, and only the new
values for an update. A delete therefore gets the partition of the stored row. A row that has left its partition is
deleted there.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.names import IS_DELETED
from hoodoo.ingestion.key_codes import assign_key_codes
from hoodoo.table import Table
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.generated_columns import with_missing_partitions


def add_missing_partitions(rows: pa.Table, config: TableConfig) -> pa.Table:
    """Add missing partition columns to changes.

    Deletes may only have key columns, and a transform may remove an unused delete flag.

    Args:
        rows: Changes with the column names of the table.
        config: The configuration of the table.

    Returns:
        The changes, with nulls in missing columns. If the delete flag was missing, no row is a delete.
    """
    for name in config.partition_sources:
        if name not in rows.column_names and name not in config.transforms:
            rows = rows.append_column(config.schema.field(name), pa.nulls(len(rows), config.schema.field(name).type))
    if IS_DELETED not in rows.column_names:
        rows = rows.append_column(IS_DELETED, pa.array(np.zeros(len(rows), bool)))
    return rows


def assign_partitions(rows: pa.Table, table: Table, config: TableConfig) -> pa.Table:
    """Assign changes to partitions.

    Args:
        rows: Changes with the column names of the table, in order. Deletes are marked by `_hoodie_is_deleted`.
        table: The table.
        config: Its configuration.

    Returns:
        For each key, the rows in the partition of its newest change, and then deletes of the stored rows in other
        partitions. No rows for a key whose stored row is newer than all of its changes.
    """
    if not len(rows):
        return rows
    rows = with_missing_partitions(rows, config).combine_chunks()
    count, keys = len(rows), rows.select(config.key)
    names = [*dict.fromkeys((*config.key, *config.partition_sources, *config.order_by))]
    stored = table.get(keys, columns=names)
    both = pa.concat_tables([rows.select(names), stored.select(names).cast(rows.select(names).schema)])
    key, part = assign_key_codes(both.select(config.key)), assign_key_codes(both.select(config.partition_by))
    rank = config.merge_policy.ranks(both, np.arange(len(both)))
    deleted = pc.fill_null(rows[IS_DELETED], False).to_numpy().astype(bool)

    newest = np.full(int(key.max()) + 1, -1)
    order = np.lexsort((np.arange(count), rank[:count], key[:count]))
    newest[key[order]] = order  # the last change of each key is assigned last
    last = newest[key]
    stale = np.unique(key[count:][rank[count:] > rank[last[count:]]])
    is_in_place = ~deleted[last] & (part == part[last])  # in the current partition of the key's row
    current = ~np.isin(key, stale)
    kept_indexes = np.flatnonzero(~deleted & is_in_place[:count] & current[:count])
    deleted_indexes = count + np.flatnonzero((~is_in_place & current)[count:])
    return pa.concat_tables(
        [
            rows.take(pa.array(kept_indexes)),
            _deletes_of_stored_rows(rows, both, deleted_indexes, last[deleted_indexes], config),
        ]
    )


def _deletes_of_stored_rows(
    rows: pa.Table, both: pa.Table, indexes: np.ndarray, changes: np.ndarray, config: TableConfig
) -> pa.Table:
    # The deletes have the ordering values of the rows at `changes`.
    stored_rows, newer_rows = both.take(pa.array(indexes)), rows.take(pa.array(changes))
    columns = []
    for field in rows.schema:
        if field.name == IS_DELETED:
            columns.append(pa.array(np.ones(len(indexes), bool)))
        elif field.name in config.order_by:
            columns.append(newer_rows[field.name])
        else:
            is_known = field.name in stored_rows.column_names
            columns.append(stored_rows[field.name] if is_known else pa.nulls(len(indexes), field.type))
    return pa.table(columns, schema=rows.schema)


__all__ = ["add_missing_partitions", "assign_partitions"]
