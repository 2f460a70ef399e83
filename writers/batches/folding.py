"""Several rows of one key in a batch as one row, by a merge mode: as if they came one after the other.

A row that is older than one before it is stale. Rows after a delete of their key begin anew: they take nothing over
from what is stored. Knows one batch, nothing that is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from hoodoo.format.names import RECORD_KEY
from hoodoo.format.rows import take, take_column
from hoodoo.merge.kernels import dense_codes, repeated
from hoodoo.merge.modes import MergeMode
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.batch import Batch

MergeRows = Callable[[pa.Table, pa.Table], pa.Table]
"""Makes one row each of older and newer rows, at the same positions."""


@dataclass(frozen=True)
class Folded:
    """A batch with one row per key.

    Attributes:
        batch: The rows.
        anew: Mask of the rows that come after a delete of their key.
    """

    batch: Batch
    anew: np.ndarray


@dataclass(frozen=True)
class _Chains:
    """Rows of keys that occur more than once, key by key in their order, without those that are stale or come before a
    delete.

    Attributes:
        rows: Positions in the batch.
        starts: The index in `rows` of the first row of each key.
        anew: Of each key: does its last row come after a delete?
        others: Positions in the batch of the rows of all other keys.
        stale: How many rows were stale.
    """

    rows: np.ndarray
    starts: np.ndarray
    anew: np.ndarray
    others: np.ndarray
    stale: int

    @property
    def lengths(self) -> np.ndarray:
        """How many rows each key has."""
        return np.diff(np.append(self.starts, len(self.rows)))

    @property
    def last(self) -> np.ndarray:
        """The position in the batch of the last row of each key."""
        return self.rows[np.append(self.starts[1:], len(self.rows)) - 1]


def folded(batch: Batch, config: TableConfig, mode: MergeMode, merge_rows: MergeRows | None = None) -> Folded:
    """Make one row of those of one key.

    Args:
        batch: The rows as they came, in order.
        config: The table as the batch wants it.
        mode: How a newer row and an older one become one.
        merge_rows: What does that where the mode has a function. It gets rows with the columns of the batch.
    """
    chains = _chains(batch, config)
    if chains is None:
        return Folded(batch, np.zeros(len(batch), bool))
    kept = np.sort(np.append(chains.others, chains.last))
    where = np.searchsorted(kept, chains.last)
    anew = np.zeros(len(kept), bool)
    anew[where] = chains.anew
    if merge_rows is None:
        rows = _by_column(batch.rows, chains, kept, where, mode)
    else:
        rows = _replaced(take(batch.rows, kept), where, _by_function(batch.rows, chains, merge_rows))
    stale = batch.stale + chains.stale
    return Folded(replace(batch.take(kept), rows=rows, stale=stale), anew)


def _chains(batch: Batch, config: TableConfig) -> _Chains | None:
    suspects = repeated(batch.hashes)
    if not len(suspects):
        return None
    codes = dense_codes(batch.rows[RECORD_KEY].take(pa.array(suspects))).astype(np.int64)
    keys = codes * len(batch.partitions) + batch.codes[suspects]
    order = np.lexsort((suspects, keys))
    rows, keys = suspects[order], keys[order]
    _, rank = np.unique(config.merge_policy.ranks(batch.rows, rows), return_inverse=True)
    group = np.cumsum(np.append(False, keys[1:] != keys[:-1]))
    height = group * (rank.max() + 1) + rank  # higher than any of the key before it
    live = height >= np.append(-1, np.maximum.accumulate(height)[:-1])
    rows, group = rows[live], group[live]
    index, starts = np.arange(len(rows)), _starts(group)
    ends = np.append(starts[1:], len(rows)) - 1
    deleted = np.maximum.reduceat(np.where(batch.delete[rows], index, -1), starts)
    counts = (index > deleted[group]) | (index == ends[group])
    others = np.setdiff1d(np.arange(len(batch)), suspects, assume_unique=True)
    return _Chains(rows[counts], _starts(group[counts]), (deleted >= 0) & (deleted < ends), others, int((~live).sum()))


def _starts(group: np.ndarray) -> np.ndarray:
    """Where each group begins; groups are numbered from 0 and ascend."""
    return np.flatnonzero(np.append(True, group[1:] != group[:-1]))


def _by_column(rows: pa.Table, chains: _Chains, kept: np.ndarray, where: np.ndarray, mode: MergeMode) -> pa.Table:
    """The rows at `kept`; at `where` of them, each column has the last value of its chain that counts, or else the
    first one, which all later ones keep.
    """
    index = np.arange(len(chains.rows))
    columns = []
    for column in rows.columns:
        counts = mode.counts(take_column(column, chains.rows))
        newest = np.maximum.reduceat(np.where(counts, index, -1), chains.starts)
        positions = kept.copy()
        positions[where] = chains.rows[np.where(newest >= 0, newest, chains.starts)]
        columns.append(take_column(column, positions))
    return pa.table(columns, schema=rows.schema)


def _by_function(rows: pa.Table, chains: _Chains, merge_rows: MergeRows) -> pa.Table:
    """The rows of each chain as one: the first with the second, what comes of it with the third, and so on."""
    merged, lengths = take(rows, chains.rows[chains.starts]), chains.lengths
    for number in range(1, int(lengths.max())):
        longer = np.flatnonzero(lengths > number)
        newer = take(rows, chains.rows[chains.starts[longer] + number])
        merged = _replaced(merged, longer, merge_rows(take(merged, longer), newer))
    return merged


def _replaced(rows: pa.Table, where: np.ndarray, by: pa.Table) -> pa.Table:
    """`rows` with those at the positions `where` replaced."""
    order = np.arange(len(rows))
    order[where] = len(rows) + np.arange(len(where))
    return take(pa.concat_tables([rows, by.select(rows.schema.names).cast(rows.schema)]), order)


__all__ = ["Folded", "MergeRows", "folded"]
