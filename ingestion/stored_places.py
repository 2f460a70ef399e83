"""Changes that do not say where the stored rows of their keys are: those rows are looked up, in every partition.

A table that is partitioned by a column outside the key has a row where its values put it. A database that does not log
whole rows tells of a delete only the key, and of an update only the new values. So a delete is put where the stored row
is, and a row that has left its partition is deleted there.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.names import IS_DELETED
from hoodoo.ingestion.key_codes import key_codes
from hoodoo.table import Table
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.generated_columns import with_places


def placeable(rows: pa.Table, config: TableConfig) -> pa.Table:
    """Give rows the columns that tell their partitions, and whether they are deletes: deletes may have keys only, and a
    transform may leave out what says that there are none.

    Args:
        rows: Changes by the names of the table.
        config: The configuration of the table.

    Returns:
        The same, with nulls where a column was missing; without deletes, where nothing said that there are some.
    """
    for name in config.placing:
        if name not in rows.column_names and name not in config.transforms:
            rows = rows.append_column(config.schema.field(name), pa.nulls(len(rows), config.schema.field(name).type))
    if IS_DELETED not in rows.column_names:
        rows = rows.append_column(IS_DELETED, pa.array(np.zeros(len(rows), bool)))
    return rows


def placed(rows: pa.Table, table: Table, config: TableConfig) -> pa.Table:
    """Make changes that say where they belong.

    Args:
        rows: Changes by the names of the table, in order, those that are deletes marked by `_hoodie_is_deleted`.
        table: The table.
        config: Its configuration.

    Returns:
        Of each key the rows in the partition of its newest change, then deletes of the stored rows of these keys that
        are elsewhere. Of a key whose stored row is newer than all of its changes, nothing.
    """
    if not len(rows):
        return rows
    rows = with_places(rows, config).combine_chunks()
    count, keys = len(rows), rows.select(config.key)
    names = [*dict.fromkeys((*config.key, *config.placing, *config.order_by))]
    stored = table.get(keys, columns=names)
    both = pa.concat_tables([rows.select(names), stored.select(names).cast(rows.select(names).schema)])
    key, part = key_codes(both.select(config.key)), key_codes(both.select(config.partition_by))
    rank = config.merge_policy.ranks(both, np.arange(len(both)))
    deleted = pc.fill_null(rows[IS_DELETED], False).to_numpy().astype(bool)

    newest = np.full(int(key.max()) + 1, -1)
    order = np.lexsort((np.arange(count), rank[:count], key[:count]))
    newest[key[order]] = order  # the last one of each key is written last
    last = newest[key]
    stale = np.unique(key[count:][rank[count:] > rank[last[count:]]])
    there = ~deleted[last] & (part == part[last])  # where the row of the key belongs by now
    current = ~np.isin(key, stale)
    kept = np.flatnonzero(~deleted & there[:count] & current[:count])
    gone = count + np.flatnonzero((~there & current)[count:])
    return pa.concat_tables([rows.take(pa.array(kept)), _deletes(rows, both, gone, last[gone], config)])


def _deletes(rows: pa.Table, both: pa.Table, gone: np.ndarray, by: np.ndarray, config: TableConfig) -> pa.Table:
    """Deletes of stored rows, as new as the changes `by` which they are deleted."""
    told, newer = both.take(pa.array(gone)), rows.take(pa.array(by))
    columns = []
    for field in rows.schema:
        if field.name == IS_DELETED:
            columns.append(pa.array(np.ones(len(gone), bool)))
        elif field.name in config.order_by:
            columns.append(newer[field.name])
        else:
            known = field.name in told.column_names
            columns.append(told[field.name] if known else pa.nulls(len(gone), field.type))
    return pa.table(columns, schema=rows.schema)


__all__ = ["placeable", "placed"]
