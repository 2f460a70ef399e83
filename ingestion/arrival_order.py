"""Arrival order of PostgreSQL changes after a snapshot.

`_event_lsn` cannot order them. The first transaction that PostgreSQL commits after a snapshot may be logged before it.
Its changes are newer than all earlier changes, in spite of their smaller log position. Debezium's decoder marks them
with negative values (see `sources/debezium.py`). Each of them gets the largest value of its row so far. If two changes
are equal, the later wins.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.ingestion.key_codes import assign_key_codes
from hoodoo.sources.debezium import LSN
from hoodoo.table import Table


def correct_arrival_order(rows: pa.Table, table: Table) -> pa.Table:
    """Correct the arrival order of changes after a snapshot.

    Stored rows are read only for batches with negative values of `_event_lsn`.

    Args:
        rows: Changes, in order of arrival.
        table: The target table.

    Returns:
        The changes. Each negative value is replaced by the largest value of its row so far.
    """
    if LSN not in rows.column_names or LSN not in table.schema.names or rows.schema.field(LSN).type != pa.int64():
        return rows
    marked = pc.fill_null(pc.less(rows[LSN], 0), False).to_numpy()
    if not marked.any():
        return rows
    config = table.handle.newest_config()
    named = config.name_mapping.rows(rows)
    if not set(config.key) <= set(named.column_names):  # the upsert rejects them
        return rows
    keys = named.select(config.key)
    marked_keys = keys.filter(pa.array(marked)).combine_chunks().drop_null()
    stored = table.get(marked_keys, columns=[*config.key, LSN])
    codes = assign_key_codes(pa.concat_tables([stored.select(config.key), keys], promote_options="permissive"))
    lsn = pc.fill_null(rows[LSN], 0).to_numpy()
    values = np.append(pc.fill_null(stored[LSN], 0).to_numpy(), np.where(marked, -1 - lsn, lsn))
    largest = _running_maximum_by_key(codes, values)[len(stored) :]
    replaced = pc.if_else(pa.array(marked), pa.array(largest), rows[LSN].combine_chunks())
    return rows.set_column(rows.column_names.index(LSN), rows.schema.field(LSN), replaced)


def _running_maximum_by_key(codes: np.ndarray, values: np.ndarray) -> np.ndarray:
    order = np.argsort(codes, kind="stable")
    distinct, ranks = np.unique(values, return_inverse=True)
    rising = np.maximum.accumulate(codes[order] * len(distinct) + ranks[order])
    largest = np.empty_like(values)
    largest[order] = distinct[rising % len(distinct)]
    return largest


__all__ = ["correct_arrival_order"]
