"""Planted bugs of writes that are made from stored rows: what an update or a delete by condition read may be others'
rows by the time that it commits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from bug_registry import Patch, bug
from simulation import SLOW, Scene

from hoodoo.merge.kernels import KeyedChanges
from hoodoo.readers.pruning import FilePruning
from hoodoo.timeline.commits import conflicts
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import View
from hoodoo.writers import stored_rows
from hoodoo.writers.committed import Committed
from hoodoo.writers.context import Context
from hoodoo.writers.operations import Propose
from hoodoo.writers.routing.write_plan import WritePlan

_UPDATERS = Scene(("updater",) * 3, SLOW)


@bug("conflict: rows that were read", "an update completes although a row that it read was changed since", _UPDATERS)
def read_rows_unchecked(patch: Patch) -> None:
    patch(conflicts, "_derived_conflict", lambda derived, slot: "")


@bug("conflict: rows that were read", "an update looks at the file groups that it read, and at no new one", _UPDATERS)
def new_matches_unchecked(patch: Patch) -> None:
    patch(FilePruning, "file_may_match", lambda self, file: False)


@bug("conflict: rows that were read", "an attempt that others overtook writes what the first one computed", _UPDATERS)
def not_computed_anew(patch: Patch) -> None:
    again = stored_rows.commit_write

    def once(context: Context, operation: str, propose: Propose, transaction: tuple[str, int] | None) -> Committed:
        computed: dict[str, KeyedChanges] = {}

        def proposed(view: View, config: TableConfig) -> WritePlan | None:
            plan = propose(view, config)
            assert plan is not None
            return replace(
                plan, assignments=[replace(a, load=partial(first, a.file_id, a.load)) for a in plan.assignments]
            )

        def first(file_id: str, load: Callable[[], KeyedChanges]) -> KeyedChanges:
            if file_id not in computed:
                computed[file_id] = load()
            return computed[file_id]

        return again(context, operation, proposed, transaction)

    patch(stored_rows, "commit_write", once)
