"""Merge policy, which chooses the current row of each key.

`TableConfig.merge_policy` creates the policy. With the merge mode commit time, it leaves out the ordering columns, so
that the later change wins even if the table has ordering columns.

With ordering columns, the larger value wins, and the later change wins a tie. Several columns are compared in order.
Without ordering columns, the later change wins. Changes of a later slot are later. Within a batch, a later row is
later. An unconditional delete removes every earlier version. The kernels define the order of nulls and NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from hoodoo.format.names import RECORD_KEY
from hoodoo.merge import kernels
from hoodoo.merge.kernels import KeyedChanges, MergeResult
from hoodoo.merge.pending import StreamingMerge


@dataclass(frozen=True)
class MergePolicy:
    """Rule for the current row of each key.

    `order_by` are the columns whose larger values win, in the order of comparison. If it is empty, the later change
    wins.
    """

    order_by: tuple[str, ...]

    @property
    def needed_columns(self) -> tuple[str, ...]:
        return (RECORD_KEY, *self.order_by)

    @property
    def bounded(self) -> str | None:
        """First ordering column of the table."""
        return self.order_by[0] if self.order_by else None

    # ---- changes among themselves
    def collapse(self, changes: KeyedChanges) -> KeyedChanges:
        return kernels.keep_winning_changes(changes, self.order_by)

    def one_per_key(self, parts: Sequence[KeyedChanges]) -> list[KeyedChanges]:
        """Combine the changes of each key.

        All `parts`, which are in order of arrival, become one set. With ordering columns and a partial update, each
        part stays separate.
        """
        if self.order_by and any(part.columns is not None for part in parts):
            return [part if part.columns is not None else self.collapse(part) for part in parts]
        return [self.collapse(kernels.concat_changes(parts))] if parts else []

    def ranks(self, rows: pa.Table, positions: np.ndarray) -> np.ndarray:
        """Rank rows by their ordering columns.

        The current row of a key has the largest rank. The later row wins a tie.
        """
        return kernels.rank_rows(rows, positions, self.order_by)

    # ---- changes and stored rows
    def apply(self, base: pa.Table, changes: KeyedChanges) -> MergeResult:
        return kernels.apply_changes(base, changes, self.order_by)

    def applied_by_row(self, base: pa.Table, changes: KeyedChanges, positions: np.ndarray) -> pa.Table:
        return kernels.apply_changes_by_position(base, changes, positions, self.order_by)

    def applied(self, base: pa.Table, parts: Iterable[KeyedChanges]) -> pa.Table:
        """Apply several sets of changes to base rows.

        Each set has one change per key, and may be a partial update.
        """
        for part in parts:
            partial = part.columns is not None
            base = kernels.set_columns(base, part, self.order_by) if partial else self.apply(base, part).rows
        return base

    def start_streaming_merge(self, parts: Sequence[KeyedChanges]) -> StreamingMerge:
        """Prepare changes for a streaming merge."""
        return StreamingMerge(self.collapse(kernels.concat_changes(parts)), self.order_by)

    def start_merge_by_position(self, changes: KeyedChanges, rows: np.ndarray) -> StreamingMerge:
        """Prepare changes for a streaming merge by position.

        `rows` (int64[n]) are the base positions of the keys, or -1 for new keys.
        """
        return StreamingMerge(changes, self.order_by, rows)

    def mask_of_winning_rows(self, incoming: pa.Table, stored: pa.Table) -> np.ndarray:
        return (
            kernels.find_winning_rows(incoming, stored, self.order_by)
            if self.order_by
            else np.ones(len(incoming), bool)
        )

    def changes_always_win(self, least: Iterable[Any], greatest: Iterable[Any]) -> bool:
        """Check whether all changes replace stored rows.

        The stored rows then need not be read. With several ordering columns, equal bounds of the first column prove
        nothing, because a later column decides.

        Args:
            least: The minimum of the column `bounded` in each set of changes, or None if it is unknown.
            greatest: The maximum of the column `bounded` in each set of stored rows, or None if it is unknown.
        """
        if not self.order_by:
            return True
        minima, maxima = list(least), list(greatest)
        if None in minima or None in maxima:
            return False
        ties_win = len(self.order_by) == 1
        return all(low > high or ties_win and low == high for low in minima for high in maxima)


LATER_WINS = MergePolicy(())
"""Policy of tables without ordering columns, and of unconditional deletes."""
