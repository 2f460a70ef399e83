"""Updates and deletes of stored rows by condition.

Each file group is one task. The task reads the rows, computes the changes and writes them to the file group: into a log
(merge-on-read) or by a rewrite (copy-on-write). No keys are looked up, and the planner (routing/route.py) is not used.
The conflict check covers the rows that were read (`RowDependencies`). After a conflict, the attempt is repeated on the
new rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from hoodoo.arguments import ApplicationVersion
from hoodoo.format.names import RECORD_KEY
from hoodoo.merge.kernels import KeyedChanges, as_upserts
from hoodoo.readers.predicate.filter import Filter
from hoodoo.readers.pruning import FilePruning
from hoodoo.readers.slices.slice_task import SliceTask
from hoodoo.timeline.commits.conflicts import RowDependencies
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import FileGroup, View
from hoodoo.writers.batches.computed import NewValues
from hoodoo.writers.committed import Committed
from hoodoo.writers.context import Context
from hoodoo.writers.operations import commit_write
from hoodoo.writers.routing.route import GroupAssignment, Mode, require_no_plan
from hoodoo.writers.routing.write_plan import WritePlan

_AT = "#at"
"""Column of positions in the base file, with a name that tables cannot have."""


def update_where(
    context: Context,
    condition: Callable[[TableConfig], Filter | None],
    new_values: Callable[[TableConfig], NewValues],
    transaction: ApplicationVersion | None = None,
) -> Committed:
    """Update the rows that match a condition.

    `condition` and `new_values` are evaluated again in each attempt, for the current columns of the table.
    """

    def propose(view: View, config: TableConfig) -> WritePlan:
        filter_, values = condition(config), new_values(config)
        # whole rows are needed for a log with whole rows, and for a change log
        narrow = config.logs_partial_rows if config.merge_on_read else not config.change_log
        names = [*values.needed_columns, *config.merge_policy.order_by] if narrow else config.schema.names
        columns = tuple(dict.fromkeys([RECORD_KEY, *names]))
        return _plan_group_changes(
            view,
            config,
            filter_,
            lambda group: _UpdateMatchingRows(_read_task(context, config, group, columns, filter_), values, narrow),
        )

    return commit_write(context, "UPSERT", propose, transaction)


def delete_where(
    context: Context, condition: Callable[[TableConfig], Filter | None], transaction: ApplicationVersion | None = None
) -> Committed:
    """Delete the rows that match a condition.

    A file group whose rows certainly all match is dropped without reading it.
    """

    def propose(view: View, config: TableConfig) -> WritePlan:
        filter_ = condition(config)
        columns = tuple(dict.fromkeys((RECORD_KEY, *config.key, *config.partition_by)))
        return _plan_group_changes(
            view,
            config,
            filter_,
            lambda group: _DeleteMatchingRows(_read_task(context, config, group, columns, filter_), config),
            drops=filter_ is not None and filter_.is_decided_by_syntax_tree,
        )

    return commit_write(context, "DELETE", propose, transaction)


def _read_task(
    context: Context, config: TableConfig, group: FileGroup, columns: tuple[str, ...], condition: Filter | None
) -> SliceTask:
    return SliceTask(context.store, config, group, columns, condition, None)


def _plan_group_changes(
    view: View,
    config: TableConfig,
    condition: Filter | None,
    changes: Callable[[FileGroup], Callable[[], KeyedChanges]],
    drops: bool = False,
) -> WritePlan:
    # If `drops` is True, file groups whose rows all match are dropped without reading them.
    pruning = FilePruning(config, condition.tree if condition else None, own=not view.foreign_rows)
    partitions = [partition for partition in view.partitions if pruning.may_match_in(partition)]
    read = [group for group in view.groups(partitions) if pruning.may_match(group)]
    dropped = [group for group in read if drops and pruning.all_match(group)]
    dropped_ids = {group.file_id for group in dropped}
    mode = Mode.APPEND if config.merge_on_read else Mode.REWRITE
    assignments = [
        GroupAssignment(mode, group.partition, group.file_id, group, changes(group), 0, 0, from_stored=True)
        for group in read
        if group.file_id not in dropped_ids
    ]
    require_no_plan(assignments, view.planned_ids())
    return WritePlan(
        assignments,
        replaced=tuple((group.partition, group.file_id) for group in dropped),
        removed_rows=sum(group.base.file.rows for group in dropped if group.base),
        exact=not any(group.logs for group in dropped),
        derived=RowDependencies(frozenset(group.file_id for group in read), pruning.file_may_match),
    )


@dataclass(frozen=True)
class _UpdateMatchingRows:
    read: SliceTask
    values: NewValues
    narrow: bool

    def __call__(self) -> KeyedChanges:
        stored, positions = self.read.located()
        with_positions = stored if positions is None else stored.append_column(_AT, pa.array(positions))
        rows, as_stored = self.values.changed(with_positions)
        sets = tuple(name for name in self.values.config.schema.names if name not in as_stored)
        return replace(
            as_upserts(rows.select(stored.schema.names)),
            as_stored=as_stored,
            columns=sets if self.narrow else None,
            at=None if positions is None else rows[_AT].to_numpy(),
        )


@dataclass(frozen=True)
class _DeleteMatchingRows:
    read: SliceTask
    config: TableConfig

    def __call__(self) -> KeyedChanges:
        rows, positions = self.read.located()
        return replace(unconditional_deletes_of(rows, self.config), at=positions)


def unconditional_deletes_of(rows: pa.Table, config: TableConfig) -> KeyedChanges:
    kept_columns = {*config.key, *config.partition_by}
    fields = list(config.schema)
    columns = [rows[field.name] if field.name in kept_columns else pa.nulls(len(rows), field.type) for field in fields]
    deletes = pa.table([rows[RECORD_KEY], *columns], schema=pa.schema([rows.schema.field(RECORD_KEY), *fields]))
    all_rows = np.ones(len(rows), bool)
    return KeyedChanges(deletes, all_rows, all_rows)
