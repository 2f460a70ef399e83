"""The plan of a write: what one attempt wants to do on one view of a table. Knows neither where the rows came from nor
how files are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hoodoo.format.table_schema import TableSchema
from hoodoo.timeline.commits.conflicts import Derived, no_keys
from hoodoo.writers.routing.route import Assignment

if TYPE_CHECKING:
    from hoodoo.readers.exact_counts import RowCounts


@dataclass(frozen=True)
class WritePlan:
    """What one attempt wants to write on a given view, and what it replaces. inserted, updated: sorted key hashes, for
    the conflict check.
    """

    assignments: list[Assignment] = field(default_factory=list)
    inserted: Callable[[], np.ndarray] = no_keys
    updated: Callable[[], np.ndarray] = no_keys
    replaced: tuple[tuple[str, str], ...] = ()
    overwrites: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    searched: frozenset[str] = frozenset()
    everything: bool = False
    exclusive: bool = False  # nothing may be written since the view
    derived: Derived | None = None  # what its rows are made from, where that are stored rows
    position: int = 0  # a restore: the slot whose rows come back
    columns: TableSchema | None = None  # the table's columns from the slot on, where they change
    settings: Mapping[str, str] = field(default_factory=dict)  # properties that change with them
    removed_rows: int = 0
    counts: RowCounts | None = None  # what becomes of rows, where files written anew do not tell
    stale: int = 0
    exact: bool = True
    silent: bool = False  # change logs name no row

    @property
    def writes(self) -> bool:
        """True if the plan changes something. Otherwise it is committed only to record a transaction, under the same
        conflict rules.
        """
        return bool(self.assignments or self.replaced or self.columns)
