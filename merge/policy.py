"""Which version of a key wins in one table: stated here, and nowhere else. Made from the table's configuration
(`TableConfig.merge_policy`).

With an ordering column the larger value wins, on a tie the later change; without one the later change. An unconditional
delete removes whatever came before it. Knows neither files nor tables, only rows, and bounds of their ordering values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from hoodoo.format.names import RECORD_KEY
from hoodoo.merge import changes as kernels
from hoodoo.merge.changes import Changes, Merged
from hoodoo.merge.pending import PendingChanges


@dataclass(frozen=True)
class MergePolicy:
    """order_by: the column whose larger value is newer; None where the later write is."""

    order_by: str | None

    @property
    def needed_columns(self) -> tuple[str, ...]:
        """The columns without which nothing can be decided."""
        return (RECORD_KEY, self.order_by) if self.order_by else (RECORD_KEY,)

    # ---- changes among themselves
    def collapse(self, changes: Changes) -> Changes:
        """One change per key: the winner among `changes`, which stand in order of arrival."""
        return kernels.collapse(changes, self.order_by)

    def one_per_key(self, parts: Sequence[Changes]) -> list[Changes]:
        """Parts in order of arrival as what meets the base: all as one, or part by part where one is a partial
        update.
        """
        if any(part.columns is not None for part in parts):
            return [part if part.columns is not None else self.collapse(part) for part in parts]
        return [self.collapse(kernels.concat(parts))] if parts else []

    def ranks(self, rows: pa.Table, places: np.ndarray) -> np.ndarray:
        """Ranks of the rows at `places` as versions of a key, int64: of equal ones the later row wins."""
        if self.order_by is None:
            return np.zeros(len(places), np.int64)
        return kernels.ranks(rows[self.order_by].take(pa.array(places)))

    # ---- changes and stored rows
    def apply(self, base: pa.Table, changes: Changes) -> Merged:
        """`base` (one row per key) with whole-row `changes` (one per key) applied."""
        return kernels.merge(base, changes, self.order_by)

    def applied_by_row(self, base: pa.Table, changes: Changes, places: np.ndarray) -> pa.Table:
        """`base` with whole-row `changes` (one per row) applied. places: of each change its row in `base`, -1 where it
        has none there.
        """
        return kernels.merge_by_row(base, changes, places, self.order_by)

    def applied(self, base: pa.Table, parts: Iterable[Changes]) -> pa.Table:
        """`base` with parts of changes over it, partial updates among them; each part has one change per key."""
        for part in parts:
            partial = part.columns is not None
            base = kernels.overlay(base, part, self.order_by) if partial else self.apply(base, part).rows
        return base

    def apply_streaming(self, parts: Sequence[Changes]) -> PendingChanges:
        """Changes in order of arrival, to meet a base that goes by in batches."""
        return PendingChanges(self.collapse(kernels.concat(parts)), self.order_by)

    def apply_by_row(self, changes: Changes, rows: np.ndarray) -> PendingChanges:
        """Changes, one per key, to meet a base that goes by in batches. rows: of each the base row that has its key,
        or -1.
        """
        return PendingChanges(changes, self.order_by, rows)

    def wins(self, incoming: pa.Table, stored: pa.Table) -> np.ndarray:
        """Mask: does each incoming row replace the stored one beside it, which has its key?"""
        if self.order_by is None:
            return np.ones(len(incoming), bool)
        return kernels.beats(incoming[self.order_by], stored[self.order_by])

    def cannot_lose(self, least: Iterable[Any], greatest: Iterable[Any]) -> bool:
        """Is every change sure to win, whatever its key's stored row says? By bounds of ordering values alone: the
        least of each lot of changes, the greatest of each lot of stored rows; None where a bound is not known.
        """
        if self.order_by is None:
            return True
        mine, theirs = list(least), list(greatest)
        if None in mine or None in theirs:
            return False
        return all(low >= high for low in mine for high in theirs)


LATER_WINS = MergePolicy(None)
"""Of tables in commit-time order, and of deletes whatever is stored."""
