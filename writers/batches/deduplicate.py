"""Deduplication of the keys in a batch.

A row with a smaller ordering value than an earlier row of its key is stale, and is ignored. A row after a delete of its
key does not inherit stored values. Deduplication reads only the batch, not the stored rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from hoodoo.format.names import RECORD_KEY
from hoodoo.format.rows import take_from_column, take_rows
from hoodoo.merge.kernels import dense_codes, repeated
from hoodoo.merge.modes import MergeMode
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.batch import Batch

MergeRows = Callable[[pa.Table, pa.Table], pa.Table]
"""Function that merges a table of older rows with a table of newer rows, pair by pair."""


@dataclass(frozen=True)
class DeduplicatedBatch:
    """Deduplicated batch, in which each key has one row.

    Attributes:
        batch: The rows.
        anew: Boolean mask of the rows that follow a delete of their key, and therefore must not keep stored values.
    """

    batch: Batch
    anew: np.ndarray


@dataclass(frozen=True)
class _DuplicateKeyRows:
    """Rows with duplicate keys, grouped by key.

    Stale rows, and rows before a delete of their key, are not included.

    Attributes:
        rows: The index of each row in the batch.
        starts: The index in `rows` of the first row of each key.
        anew: For each key, whether its last row follows a delete.
        others: The batch indexes of the rows whose key occurs once.
        stale: Number of stale rows.
    """

    rows: np.ndarray
    starts: np.ndarray
    anew: np.ndarray
    others: np.ndarray
    stale: int

    @property
    def rows_per_key(self) -> np.ndarray:
        return np.diff(np.append(self.starts, len(self.rows)))

    @property
    def last_rows(self) -> np.ndarray:
        return self.rows[np.append(self.starts[1:], len(self.rows)) - 1]


def merge_duplicate_keys(
    batch: Batch, config: TableConfig, mode: MergeMode, merge_rows: MergeRows | None = None
) -> DeduplicatedBatch:
    """Merge the rows with duplicate keys in a batch.

    Args:
        batch: The rows in their original order.
        config: The table's configuration, with the columns that the batch adds.
        mode: The merge mode, which determines how a newer row is merged with an older row of its key.
        merge_rows: The user's merge function, if the mode has one. Its arguments have the columns of the batch.

    Returns:
        The batch with one row per key.
    """
    chains = _group_duplicate_keys(batch, config)
    if chains is None:
        return DeduplicatedBatch(batch, np.zeros(len(batch), bool))
    kept = np.sort(np.append(chains.others, chains.last_rows))
    where = np.searchsorted(kept, chains.last_rows)
    anew = np.zeros(len(kept), bool)
    anew[where] = chains.anew
    if merge_rows is None:
        rows = _merge_by_column(batch.rows, chains, kept, where, mode)
    else:
        rows = _with_replaced_rows(
            take_rows(batch.rows, kept), where, _merge_by_function(batch.rows, chains, merge_rows)
        )
    stale = batch.stale + chains.stale
    return DeduplicatedBatch(replace(batch.take(kept), rows=rows, stale=stale), anew)


def _group_duplicate_keys(batch: Batch, config: TableConfig) -> _DuplicateKeyRows | None:
    suspects = repeated(batch.hashes)
    if not len(suspects):
        return None
    codes = dense_codes(batch.rows[RECORD_KEY].take(pa.array(suspects))).astype(np.int64)
    keys = codes * len(batch.partitions) + batch.codes[suspects]
    order = np.lexsort((suspects, keys))
    rows, keys = suspects[order], keys[order]
    _, rank = np.unique(config.merge_policy.ranks(batch.rows, rows), return_inverse=True)
    group = np.cumsum(np.append(False, keys[1:] != keys[:-1]))
    height = group * (rank.max() + 1) + rank  # larger than every height of the previous key
    live = height >= np.append(-1, np.maximum.accumulate(height)[:-1])
    rows, group = rows[live], group[live]
    index, starts = np.arange(len(rows)), _group_starts(group)
    ends = np.append(starts[1:], len(rows)) - 1
    deleted = np.maximum.reduceat(np.where(batch.delete[rows], index, -1), starts)
    counts = (index > deleted[group]) | (index == ends[group])
    others = np.setdiff1d(np.arange(len(batch)), suspects, assume_unique=True)
    return _DuplicateKeyRows(
        rows[counts], _group_starts(group[counts]), (deleted >= 0) & (deleted < ends), others, int((~live).sum())
    )


def _group_starts(group: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.append(True, group[1:] != group[:-1]))


def _merge_by_column(
    rows: pa.Table, chains: _DuplicateKeyRows, kept: np.ndarray, where: np.ndarray, mode: MergeMode
) -> pa.Table:
    # In a merged row, each column has the last value that the merge mode accepts, or the first value if it accepts
    # none.
    index = np.arange(len(chains.rows))
    columns = []
    for column in rows.columns:
        counts = mode.counts(take_from_column(column, chains.rows))
        newest = np.maximum.reduceat(np.where(counts, index, -1), chains.starts)
        positions = kept.copy()
        positions[where] = chains.rows[np.where(newest >= 0, newest, chains.starts)]
        columns.append(take_from_column(column, positions))
    return pa.table(columns, schema=rows.schema)


def _merge_by_function(rows: pa.Table, chains: _DuplicateKeyRows, merge_rows: MergeRows) -> pa.Table:
    merged, lengths = take_rows(rows, chains.rows[chains.starts]), chains.rows_per_key
    for number in range(1, int(lengths.max())):
        longer = np.flatnonzero(lengths > number)
        newer = take_rows(rows, chains.rows[chains.starts[longer] + number])
        merged = _with_replaced_rows(merged, longer, merge_rows(take_rows(merged, longer), newer))
    return merged


def _with_replaced_rows(rows: pa.Table, where: np.ndarray, by: pa.Table) -> pa.Table:
    order = np.arange(len(rows))
    order[where] = len(rows) + np.arange(len(where))
    return take_rows(pa.concat_tables([rows, by.select(rows.schema.names).cast(rows.schema)]), order)


__all__ = ["DeduplicatedBatch", "MergeRows", "merge_duplicate_keys"]
