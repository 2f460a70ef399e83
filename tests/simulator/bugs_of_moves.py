"""Planted bugs of the services that move rows without changing them, clustering and log compaction, and of purging."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from bug_registry import Patch, bug
from simulation import SLOW, Scene

from hoodoo.compactor.cleaning import purge
from hoodoo.compactor.clustering import cluster_tasks, log_rebase
from hoodoo.compactor.clustering.cluster_tasks import ClusterTask
from hoodoo.compactor.clustering.log_rebase import ConcurrentChangeCopier
from hoodoo.format.names import COMMIT_TIME
from hoodoo.timeline.commits.conflicts import WriteSet
from hoodoo.timeline.commits.transaction import Transaction
from hoodoo.timeline.views import view
from hoodoo.writers.sources import rows_that_exist


# ---- clustering
@bug(
    "clustering: bringing along",
    "a clustering exempts the logs that others wrote meanwhile, but does not bring them along",
    Scene(("clusterer", "clusterer"), SLOW),
)
def logs_left_behind(patch: Patch) -> None:
    since = ConcurrentChangeCopier._changes_since_last_round

    def forget(self: ConcurrentChangeCopier, view_: Any) -> None:
        since(self, view_)

    patch(ConcurrentChangeCopier, "_changes_since_last_round", forget)


@bug(
    "clustering: bringing along",
    "a second round of logs is written under the name of the first",
    Scene(("clusterer", "clusterer", "merger"), SLOW),
)
def rounds_share_a_name(patch: Patch) -> None:
    put_log = log_rebase.write_log_file
    patch(log_rebase, "write_log_file", lambda *parts: put_log(*parts[:-1], 1))


@bug("clustering", "rows that a clustering moves get its commit time")
def moved_rows_restamped(patch: Patch) -> None:
    rows = ClusterTask._current_rows

    def stamped(self: ClusterTask, groups: Any = None) -> Iterator[pa.Table]:
        for part in rows(self, groups):
            number = part.column_names.index(COMMIT_TIME)
            times = pa.array([self.instant] * len(part), pa.string()).cast(part.schema.field(number).type)
            yield part.set_column(number, part.schema.field(number), times)

    patch(cluster_tasks.ClusterTask, "_current_rows", stamped)


# ---- log compaction
def _draft_otherwise(patch: Patch, change: Callable[[Any, Any, Any], Any]) -> None:
    """change(attempt, view, draft of a log compaction) gives the slot's draft."""
    complete = Transaction.complete

    def completed(self: Transaction, draft: Any) -> Any:
        ours = callable(draft) and draft.__qualname__.startswith("compact_logs")
        return complete(self, (lambda view_: change(self, view_, draft)) if ours else draft)

    patch(Transaction, "complete", completed)


@bug(
    "log compaction", "a log compaction takes no notice of what was logged meanwhile", Scene(("merger", "merger"), SLOW)
)
def logged_meanwhile_unnoticed(patch: Patch) -> None:
    def as_it_was(attempt: Transaction, view_: Any, draft: Any) -> Any:
        return replace(draft(attempt.base), touches=WriteSet())

    _draft_otherwise(patch, as_it_was)


@bug(
    "log compaction",
    "the view keeps the logs that were merged",
    Scene(("merger", "merger", "cleaner", "reader", "consumer")),
)
def merged_logs_stay(patch: Patch) -> None:
    place = view._SlotChange.put_files

    def keep(self: Any) -> None:
        self.slot = replace(self.slot, merged=())
        place(self)

    patch(view._SlotChange, "put_files", keep)


# ---- purging
@bug(
    "purge, conflict: inserted keys",
    "a purge does not conflict with who inserts a key that it found absent",
    Scene(("purger",) * 3, SLOW),
)
def absent_keys_unchecked(patch: Patch) -> None:
    def present_only(self: Any, context: Any, view_: Any, config: Any) -> Any:
        located = context.index.locate(view_.partitions, self.batch.keys)
        places = np.flatnonzero(rows_that_exist(context.store, config, self.batch, located))
        return (
            self._plan_located_rows(context, self.batch.take(places), located.take(places), view_, config)
            if len(places)
            else None
        )

    patch(purge._LiveRows, "upsert", present_only)


@bug(
    "purge, savepoint",
    "a purge deletes files that a savepoint holds",
    Scene(("purger", "purger", "keeper", "keeper"), (("stall", 0.01), ("hold", 0.3))),
)
def purged_under_a_savepoint(patch: Patch) -> None:
    draft_of = purge.create_clean_commit
    patch(purge._Purge, "require_unused_files", lambda self, view_, live=True: None)
    patch(purge, "create_clean_commit", lambda view_, *rest: draft_of(replace(view_, savepoints={}), *rest))
