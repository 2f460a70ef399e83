"""Plan of a write: its files, columns and changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hoodoo.format.table_schema import TableSchema
from hoodoo.timeline.commits.conflicts import RowDependencies, no_key_hashes
from hoodoo.writers.routing.route import GroupAssignment

if TYPE_CHECKING:
    from hoodoo.readers.exact_counts import RowCounts


@dataclass(frozen=True)
class WritePlan:
    """Plan of a write: its files, columns and changes.

    `inserted` and `updated` return sorted key hashes for the conflict check.
    """

    assignments: list[GroupAssignment] = field(default_factory=list)
    inserted: Callable[[], np.ndarray] = no_key_hashes
    updated: Callable[[], np.ndarray] = no_key_hashes
    replaced: tuple[tuple[str, str], ...] = ()
    overwrites: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    searched: frozenset[str] = frozenset()
    everything: bool = False
    exclusive: bool = False  # any write after the view conflicts
    derived: RowDependencies | None = None  # the stored rows from which the plan's rows are computed
    position: int = 0  # the restored slot
    columns: TableSchema | None = None  # the new columns of the table
    settings: Mapping[str, str] = field(default_factory=dict)  # properties that change with the columns
    removed_rows: int = 0
    counts: RowCounts | None = None  # row counts, if the written files do not show them
    stale: int = 0
    exact: bool = True
    silent: bool = False  # change logs contain no rows

    @property
    def writes(self) -> bool:
        """True if the plan changes files or columns.

        Other plans are committed only to record a transaction, with the same conflict check.
        """
        return bool(self.assignments or self.replaced or self.columns)
