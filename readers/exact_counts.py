"""How many rows a commit inserted, updated and deleted, and how many of its rows were stale, by a look at the rows that
were there before it.

A write that appends to logs does not look at stored rows: its own counts are bounds. Reads keys and ordering values of
the file groups that it wrote to; knows nothing of results and of who asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from hoodoo.engine.local import LocalEngine
from hoodoo.errors import TableReplaced
from hoodoo.format.names import RECORD_KEY
from hoodoo.readers.slices import slices
from hoodoo.storage.store import Store
from hoodoo.timeline.history import History
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import LOG, RESTORE, DataFile
from hoodoo.timeline.views.view import FileGroup, View

_FEW = 10  # a log with fewer changes than this part of the base looks up their keys, instead of reading all


class RowCounts(NamedTuple):
    """Rows of a commit: `inserted` are new, `updated` replaced an older version, `deleted` went, `stale` lost."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    stale: int = 0


def total(counts: Iterable[RowCounts]) -> RowCounts:
    """Return the sum of counts."""
    return RowCounts(*(sum(column) for column in zip(RowCounts(), *counts, strict=True)))


@dataclass(frozen=True)
class CommitCounts:
    """Counts what the commit in a slot did.

    Attributes:
        store: The table's store.
        config: The table's configuration right after the commit.
        table: The id of the table.
        seq: The slot.
    """

    store: Store
    config: TableConfig
    table: str
    seq: int

    def __call__(self) -> RowCounts:
        """Read the rows from before the commit that it may have changed.

        Returns:
            The counts. `stale` does not count the rows of a batch that lost to others of it.

        Raises:
            SnapshotExpired: The snapshot before the commit was cleaned away.
            TableReplaced: There is another table at the path by now.
        """
        history = History(self.store)
        if history.head().table != self.table:
            raise TableReplaced(
                f"{self.store.uri} is not the table that this commit belongs to. The table was replaced.",
                path=self.store.uri,
            )
        history.require_readable(self.seq - 1)
        slot, before = history.slot(self.seq), history.view(self.seq - 1)
        config = self.config.knowing(before.schemas)
        if slot.operation == RESTORE:
            return between(history, config, self.seq - 1, history.view(self.seq))
        known = [RowCounts(file.inserts, file.updates, file.deletes) for file in slot.files if file.kind != LOG]
        works = [
            partial(_of_log, self.store, config, file, before.group(file.partition, file.file_id))
            for file in slot.files
            if file.kind == LOG
        ]
        gone = [group for place in slot.replaced if (group := before.group(*place)) is not None]
        works += [partial(_live, self.store, config, group) for group in gone]
        return total([*known, *LocalEngine().map(_called, works)])


def _called(work: partial[RowCounts]) -> RowCounts:
    return work()


def _of_log(store: Store, config: TableConfig, file: DataFile, group: FileGroup | None) -> RowCounts:
    """What the records of a log do to the rows of the group that it was appended to."""
    order_by = config.merge_policy.order_by
    wanted = slices.schema_of(config, [RECORD_KEY, *order_by])
    parts = list(slices.read_log(store, config, file, wanted))
    keys = pa.concat_arrays([part.rows[RECORD_KEY].combine_chunks() for part in parts]) if parts else None
    if keys is None or not len(keys):
        return RowCounts()
    base = group.base.file.rows if group is not None and group.base is not None else 0
    few = keys if len(keys) * _FEW < base else None
    rows = wanted.empty_table() if group is None else slices.read_slice(store, config, group, wanted, keys=few)
    found = []
    for part in parts:
        merged = config.merge_policy.apply(rows, replace(part, columns=None))
        hit, won, gone = merged.found, merged.won, part.delete
        found.append(
            RowCounts(_count(~hit & ~gone), _count(hit & won & ~gone), _count(hit & won & gone), _count(hit & ~won))
        )
    return total(found)


def _live(store: Store, config: TableConfig, group: FileGroup) -> RowCounts:
    """The rows of a file group that was replaced as a whole."""
    wanted = slices.schema_of(config, [RECORD_KEY])
    if group.base is not None and not group.logs:
        return RowCounts(deleted=group.base.file.rows)
    return RowCounts(deleted=len(slices.read_slice(store, config, group, wanted)))


def _count(mask: np.ndarray) -> int:
    return int(np.count_nonzero(mask))


def between(history: History, config: TableConfig, since: int, until: View) -> RowCounts:
    """Count the rows that differ between two snapshots: those that come, that get other values, and that go.

    Args:
        history: The slots.
        config: The columns that are compared.
        since: The slot of the one snapshot.
        until: The other one.

    Returns:
        The counts.
    """
    from hoodoo.readers.changes.changes import Changes

    changes = Changes(history, config, since, until, timed=False)
    return total(LocalEngine().map(_ops, changes.tasks()))


def _ops(task: object) -> RowCounts:
    assert callable(task)
    ops = task()["op"].combine_chunks()
    counts = {entry["values"]: entry["counts"] for entry in ops.value_counts().to_pylist()}
    return RowCounts(counts.get("i", 0), counts.get("u", 0), counts.get("d", 0))


__all__ = ["CommitCounts", "RowCounts", "between", "total"]
