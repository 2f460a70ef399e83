"""Planted bugs of rows: what index entries and logs say of where the keys of a base file lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
from bug_registry import Patch, bug
from simulation import SLOW, Scene

from hoodoo.compactor.compaction.merge_group import BaseFileMerge
from hoodoo.index.bloom import cells
from hoodoo.merge.kernels import KeyedChanges
from hoodoo.readers.slices import slices
from hoodoo.timeline.views.view import FileGroup
from hoodoo.writers.files import base_sink, tasks
from hoodoo.writers.files.log_file import add_row_positions


@bug("rows: records ascend", "the records of a log stand in the order of the batch, its bitmap in that of the rows")
def records_in_another_order(patch: Patch) -> None:
    def unordered(*given: Any) -> KeyedChanges:
        found = add_row_positions(*given)
        if found.at is None:
            return found
        turned = found.take(np.arange(len(found))[::-1])
        return replace(turned, at=found.at)

    patch(tasks, "add_row_positions", unordered)


@bug(
    "rows: one order",
    "a reader goes by the rows of a log whichever base it was written over",
    Scene(("compactor",) * 3, SLOW),
)
def rows_of_an_older_base(patch: Patch) -> None:
    def any_order(group: FileGroup) -> bool:
        return bool(group.base and group.base.file.order) and all(log.file.order for log in group.logs)

    patch(slices, "has_row_positions", any_order)


@bug("rows: deletes shift", "a base that lost rows keeps the numbers of those behind them")
def rows_not_shifted(patch: Patch) -> None:
    follow = cells.update_positions

    def unshifted(
        before: cells.RowPositions, dropped: np.ndarray, hashes: np.ndarray, checks: np.ndarray
    ) -> cells.RowPositions:
        found = follow(before, dropped, hashes, checks)
        mask = np.uint64((1 << found.bits) - 1)
        old = dict(zip(before.hashes.tolist(), before.rows.tolist(), strict=True))
        last = len(found) - 1
        told = zip(found.hashes.tolist(), found.rows.tolist(), strict=True)
        rows = [min(old.get(key, row), last) for key, row in told]
        return replace(found, values=(found.values & ~mask) | np.array(rows, np.uint64))

    patch(cells, "update_positions", unshifted)


@bug(
    "rows: one attempt",
    "entry and base of two workers that ran one plan count, although their rows are in other orders",
    Scene(("compactor",) * 3, SLOW),
)
def entry_and_base_of_two_attempts(patch: Patch) -> None:
    rows, turns, store_base = BaseFileMerge.rows, count(), base_sink.store_base_file

    def any_way(self: BaseFileMerge) -> Iterator[pa.Table]:
        """Rows in an order of the worker's own, which is its right."""
        found = pa.concat_tables(rows(self)).unify_dictionaries()
        yield found.take(pa.array(np.arange(len(found))[::-1])) if next(turns) % 2 else found

    def unasked(*given: Any) -> Any:
        entry = given[-1]
        return replace(store_base(*given), order=entry.order)

    patch(BaseFileMerge, "rows", any_way)
    patch(base_sink, "store_base_file", unasked)
