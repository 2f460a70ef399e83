"""Values of rows that were not sent, since they are large and did not change.

An upsert takes such a value over from an earlier row of the batch, or from the stored row, of the same key and
partition. Where a row may have left its partition, the value is taken over before, by the key alone. Only batches that
have such a value pay for it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.names import IS_DELETED
from hoodoo.ingestion.key_codes import key_codes
from hoodoo.ingestion.row_versions import RowVersions
from hoodoo.merge.modes import MergeMode
from hoodoo.table import Table
from hoodoo.timeline.properties.config import TableConfig


def lacks_values(rows: pa.Table, mode: MergeMode) -> bool:
    """Tell whether a value of these rows was not sent.

    Args:
        rows: The rows.
        mode: What stands for such a value.

    Returns:
        True if there is one.
    """
    return mode.unavailable is not None and any(mode.stands_for_unavailable(one).any() for one in rows.columns)


def deletes(rows: pa.Table) -> np.ndarray:
    """Return which rows (bool[n]) are deletes."""
    if IS_DELETED not in rows.column_names:
        return np.zeros(len(rows), bool)
    return pc.fill_null(rows[IS_DELETED], False).to_numpy().astype(bool)


def unsent(rows: pa.Table, deleted: np.ndarray, mode: MergeMode) -> dict[str, np.ndarray]:
    """Find the values that were not sent.

    Args:
        rows: The rows.
        deleted: bool[n], which of them are deletes: those lack nothing.
        mode: What stands for such a value.

    Returns:
        By column that has such a value, in which rows it was not sent: bool[n].
    """
    found = {name: mode.stands_for_unavailable(rows[name]) & ~deleted for name in rows.column_names}
    return {name: mask for name, mask in found.items() if mask.any()}


def completed(rows: pa.Table, table: Table, config: TableConfig, mode: MergeMode) -> pa.Table:
    """Take values that were not sent over from the newest earlier version of their row, in whatever partition it is.

    Args:
        rows: Changes by the names of the table, in order, those that are deletes marked by `_hoodie_is_deleted`.
        table: The table.
        config: Its configuration.
        mode: What stands for a value that was not sent.

    Returns:
        The same changes. A value that no earlier version has, since the last delete of its row, stays as it is.
    """
    deleted = deletes(rows)
    masks = unsent(rows, deleted, mode)
    if not masks:
        return rows
    lacking = np.flatnonzero(np.logical_or.reduce(list(masks.values())))
    names = [*dict.fromkeys((*config.key, *config.order_by, *masks))]
    changes = rows.select(names)
    stored = table.get(rows.select(config.key).combine_chunks().take(pa.array(lacking)), columns=names)
    both = pa.concat_tables([stored.select(names).cast(changes.schema), changes])  # stored rows came before
    before, whole = len(stored), np.zeros(len(stored), bool)
    codes = key_codes(both.select(config.key))
    versions = RowVersions.of(both, codes, np.append(whole, deleted), before + lacking, config.merge_policy)
    for name, mask in masks.items():
        lacks = np.append(whole, mask)[versions.at]
        holders = versions.holders(lacks)
        known = lacks & (holders >= 0)
        source = np.arange(len(rows))
        source[versions.at[known] - before] = len(rows) + versions.at[holders[known]]
        values = pa.chunked_array([*rows[name].chunks, *both[name].chunks], rows[name].type)
        rows = rows.set_column(rows.column_names.index(name), rows.field(name), values.take(pa.array(source)))
    return rows


__all__ = ["completed", "deletes", "lacks_values", "unsent"]
