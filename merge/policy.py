"""The policy of one table: by which columns its versions of a key are ordered. It asks merge/kernels.py, which decides.

`TableConfig.merge_policy` makes the policy. It leaves the ordering columns out where the table's merge mode is commit
time, so such a table goes by time although it has ordering columns.

With ordering columns the larger value wins, and on a tie the later change; several are compared in their order. Without
any the later change wins. A later slot is later than an earlier one; within a batch the later row is later. An
unconditional delete removes whatever came before it. Nulls and NaN have their place in the kernels. The policy knows
neither files nor tables, only rows, and bounds of their ordering values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from hoodoo.format.names import RECORD_KEY
from hoodoo.merge import kernels
from hoodoo.merge.kernels import KeyedChanges, Merged
from hoodoo.merge.pending import PendingChanges


@dataclass(frozen=True)
class MergePolicy:
    """Which version of a key wins in one table.

    order_by: the columns whose larger values win, in the order in which they are compared. Empty: the later change
        wins.
    """

    order_by: tuple[str, ...]

    @property
    def needed_columns(self) -> tuple[str, ...]:
        """The columns that the policy needs to decide which version wins."""
        return (RECORD_KEY, *self.order_by)

    @property
    def bounded(self) -> str | None:
        """The column whose bounds may tell which version wins: the first ordering column, None without any."""
        return self.order_by[0] if self.order_by else None

    # ---- changes among themselves
    def collapse(self, changes: KeyedChanges) -> KeyedChanges:
        """Return one change per key: the winner among `changes`, which are in order of arrival."""
        return kernels.collapse(changes, self.order_by)

    def one_per_key(self, parts: Sequence[KeyedChanges]) -> list[KeyedChanges]:
        """Return changes to apply to the base one after the other, each with one change per key.

        All parts become one; where a part is a partial update, and there is an ordering column, each part stays by
        itself.
        parts: changes in order of arrival.
        """
        if self.order_by and any(part.columns is not None for part in parts):
            return [part if part.columns is not None else self.collapse(part) for part in parts]
        return [self.collapse(kernels.concat(parts))] if parts else []

    def ranks(self, rows: pa.Table, positions: np.ndarray) -> np.ndarray:
        """Return the rank (int64) of each row at `positions` as a version of its key; on a tie the later row wins."""
        return kernels.ranks(rows, positions, self.order_by)

    # ---- changes and stored rows
    def apply(self, base: pa.Table, changes: KeyedChanges) -> Merged:
        """Apply `changes` (one per key) to `base` (one row per key)."""
        return kernels.merge(base, changes, self.order_by)

    def applied_by_row(self, base: pa.Table, changes: KeyedChanges, positions: np.ndarray) -> pa.Table:
        """Apply `changes` (one per key) to `base`, whose rows keep their order.

        positions: int64[n], for each change its position in `base`, -1 where it is a new row.
        """
        return kernels.merge_by_row(base, changes, positions, self.order_by)

    def applied(self, base: pa.Table, parts: Iterable[KeyedChanges]) -> pa.Table:
        """Apply `parts` to `base`, one after the other; each has one change per key, and may be a partial update."""
        for part in parts:
            partial = part.columns is not None
            base = kernels.overlay(base, part, self.order_by) if partial else self.apply(base, part).rows
        return base

    def apply_streaming(self, parts: Sequence[KeyedChanges]) -> PendingChanges:
        """Return `parts`, changes in order of arrival, ready to meet the base batch by batch."""
        return PendingChanges(self.collapse(kernels.concat(parts)), self.order_by)

    def apply_by_row(self, changes: KeyedChanges, rows: np.ndarray) -> PendingChanges:
        """Return `changes`, one per key, ready to meet the base batch by batch without comparing keys.

        rows: int64[n], for each change the position in the base of the row with its key, -1 where there is none.
        """
        return PendingChanges(changes, self.order_by, rows)

    def wins(self, incoming: pa.Table, stored: pa.Table) -> np.ndarray:
        """Return a mask: the incoming row replaces the stored row of the same key at the same position."""
        return kernels.beats(incoming, stored, self.order_by) if self.order_by else np.ones(len(incoming), bool)

    def cannot_lose(self, least: Iterable[Any], greatest: Iterable[Any]) -> bool:
        """Tell whether every change is sure to win over the stored row of its key, by bounds of `bounded` alone.

        Where that column is equal, a later one decides; so with several, equal bounds leave it open.

        Args:
            least: The least value of `bounded` in each set of changes, None where it is not known.
            greatest: The greatest value of `bounded` in each set of stored rows, None where it is not known.
        """
        if not self.order_by:
            return True
        mine, theirs = list(least), list(greatest)
        if None in mine or None in theirs:
            return False
        ties_win = len(self.order_by) == 1
        return all(low > high or ties_win and low == high for low in mine for high in theirs)


LATER_WINS = MergePolicy(())
"""The policy of tables without an ordering column, and of deletes that win whatever is stored."""
