"""Exact counts of the rows that a commit changed.

A write that appends to logs does not read the stored rows, so it can only record bounds for these counts. This module
reads the keys and ordering values of the file groups that the commit wrote to, and compares them with the commit's
rows.
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

_FEW = 10  # if a log has fewer changes than 1/10 of the rows of the base, only their keys are looked up


class RowCounts(NamedTuple):
    """Exact row counts of a commit.

    `inserted` rows are new, and `updated` rows replaced an older version. `deleted` rows were removed. `stale` rows had
    a lower ordering value than the stored rows.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    stale: int = 0


def total(counts: Iterable[RowCounts]) -> RowCounts:
    return RowCounts(*(sum(column) for column in zip(RowCounts(), *counts, strict=True)))


@dataclass(frozen=True)
class CommitRowCounter:
    """Counter for the rows that a commit changed.

    Attributes:
        store: The table's store.
        config: The table's configuration right after the commit.
        table: The id of the table.
        seq: The slot of the commit.
    """

    store: Store
    config: TableConfig
    table: str
    seq: int

    def __call__(self) -> RowCounts:
        """Count the rows that the commit changed.

        Returns:
            The counts. `stale` does not include the rows that lost against another row of the same batch.

        Raises:
            SnapshotExpired: The snapshot before the commit was cleaned away.
            TableReplaced: Another table is now at the path.
        """
        history = History(self.store)
        if history.head().table != self.table:
            raise TableReplaced(
                f"{self.store.uri} does not contain the table of this commit: the table was replaced. Open the table "
                "again.",
                path=self.store.uri,
            )
        history.require_readable(self.seq - 1)
        slot, before = history.slot(self.seq), history.view(self.seq - 1)
        config = self.config.knowing(before.schemas)
        if slot.operation == RESTORE:
            return between(history, config, self.seq - 1, history.view(self.seq))
        recorded = [RowCounts(file.inserts, file.updates, file.deletes) for file in slot.files if file.kind != LOG]
        calls = [
            partial(_count_log_changes, self.store, config, file, before.group(file.partition, file.file_id))
            for file in slot.files
            if file.kind == LOG
        ]
        gone = [group for group_key in slot.replaced if (group := before.group(*group_key)) is not None]
        calls += [partial(_count_replaced_rows, self.store, config, group) for group in gone]
        return total([*recorded, *LocalEngine().map(_call, calls)])


def _call(work: partial[RowCounts]) -> RowCounts:
    return work()


def _count_log_changes(store: Store, config: TableConfig, file: DataFile, group: FileGroup | None) -> RowCounts:
    order_by = config.merge_policy.order_by
    schema = slices.schema_of(config, [RECORD_KEY, *order_by])
    parts = list(slices.read_log(store, config, file, schema))
    keys = pa.concat_arrays([part.rows[RECORD_KEY].combine_chunks() for part in parts]) if parts else None
    if keys is None or not len(keys):
        return RowCounts()
    base = group.base.file.rows if group is not None and group.base is not None else 0
    searched_keys = keys if len(keys) * _FEW < base else None
    rows = (
        schema.empty_table()
        if group is None
        else slices.read_file_slice(store, config, group, schema, keys=searched_keys)
    )
    counts = []
    for part in parts:
        merged = config.merge_policy.apply(rows, replace(part, columns=None))
        hit, won, gone = merged.found, merged.won, part.delete
        counts.append(
            RowCounts(
                _count_true(~hit & ~gone),
                _count_true(hit & won & ~gone),
                _count_true(hit & won & gone),
                _count_true(hit & ~won),
            )
        )
    return total(counts)


def _count_replaced_rows(store: Store, config: TableConfig, group: FileGroup) -> RowCounts:
    # All live rows of the replaced file group count as deleted.
    schema = slices.schema_of(config, [RECORD_KEY])
    if group.base is not None and not group.logs:
        return RowCounts(deleted=group.base.file.rows)
    return RowCounts(deleted=len(slices.read_file_slice(store, config, group, schema)))


def _count_true(mask: np.ndarray) -> int:
    return int(np.count_nonzero(mask))


def between(history: History, config: TableConfig, since: int, until: View) -> RowCounts:
    from hoodoo.readers.changes.changes import Changes

    changes = Changes(history, config, since, until, timed=False)
    return total(LocalEngine().map(_count_operations, changes.tasks()))


def _count_operations(task: object) -> RowCounts:
    assert callable(task)
    ops = task()["op"].combine_chunks()
    counts = {entry["values"]: entry["counts"] for entry in ops.value_counts().to_pylist()}
    return RowCounts(counts.get("i", 0), counts.get("u", 0), counts.get("d", 0))


__all__ = ["CommitRowCounter", "RowCounts", "between", "total"]
