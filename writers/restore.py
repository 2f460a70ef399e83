"""Restore of an earlier snapshot.

Unchanged file groups stay. All other file groups are replaced by new ones with the earlier rows. Apache Hudi sees one
replacecommit. Any concurrent write conflicts, because it could be neither completely undone nor completely kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hoodoo.errors import UnsupportedTable
from hoodoo.format.table_schema import TableSchema
from hoodoo.index.key_index import KeyIndex
from hoodoo.merge.kernels import KeyedChanges
from hoodoo.readers.exact_counts import RowCounts, between
from hoodoo.readers.predicate import checks
from hoodoo.readers.slices import slices
from hoodoo.storage.store import Store
from hoodoo.timeline.holds import leases
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import FileGroup, View
from hoodoo.writers.committed import Committed
from hoodoo.writers.context import Context
from hoodoo.writers.operations import commit_write
from hoodoo.writers.routing.route import GroupAssignment, Mode, generate_file_id
from hoodoo.writers.routing.write_plan import WritePlan

_COMPARED_BYTES = 64 << 20  # total size of the differing files above which rows are not compared to count them


@dataclass(frozen=True)
class SnapshotRows:
    """Rows of an earlier snapshot.

    It runs in the task and can be pickled.
    """

    store: Store
    config: TableConfig
    group: FileGroup

    def __call__(self) -> KeyedChanges:
        schema = pa.schema(
            [field for field in self.config.stored_schema if not field.name.startswith("_hoodie_commit")]
        )
        rows = slices.read_file_slice(self.store, self.config, self.group, schema, verified=True)
        none = np.zeros(len(rows), bool)
        return KeyedChanges(rows, none, none)


def restore_snapshot(context: Context, seq: int) -> Committed:
    """Restore an earlier snapshot in a new commit.

    The checks of the table stay, with the column names of the snapshot. Raises SnapshotExpired, CommitConflict, and
    SchemaError if a check uses a column that was added later.
    """
    lease, then = leases.take_lease(context.timeline.history, context.timeline.environment, seq, leases.HOURS_MAX)

    def propose(view: View, config: TableConfig) -> WritePlan | None:
        config = config.knowing(then.schemas)
        columns = _columns_of_snapshot(config, then)
        settings = checks.restore_checks(config, columns) if columns else {}
        config = config.with_columns(columns) if columns else config
        removed = list(_differing_groups(view, then))
        restored = [group for group in _differing_groups(then, view) if _has_live_rows(context.store, config, group)]
        if not removed and not restored and columns is None:
            return None
        counts = _count_changed_rows(context, config, view, then, [*removed, *restored])
        # rows of groups that only disappear are deleted; if groups come back too, most rows may be in both
        is_exact = counts is not None or not restored and not any(group.logs for group in removed)
        return WritePlan(
            [_assign_new_group(context, config, group) for group in restored],
            _RestoredKeys(context.index, tuple(restored)),
            replaced=tuple((group.partition, group.file_id) for group in removed),
            exclusive=True,
            position=seq,
            columns=columns,
            settings=settings,
            removed_rows=0 if counts else sum(group.base.file.rows for group in removed if group.base),
            counts=counts,
            exact=is_exact,
        )

    try:
        return commit_write(context, "RESTORE", propose)
    finally:
        lease.release()


def _count_changed_rows(
    context: Context, config: TableConfig, now: View, then: View, groups: Sequence[FileGroup]
) -> RowCounts | None:
    # The counts are unknown if the comparison would need too much memory, or if current values cannot be converted to
    # the earlier columns.
    if sum(entry.file.size for group in groups for entry in group.files()) > _COMPARED_BYTES:
        return None
    try:
        return between(context.timeline.history, config, now.seq, then)
    except UnsupportedTable:
        return None


def _columns_of_snapshot(config: TableConfig, then: View) -> TableSchema | None:
    # The table keeps its largest column id, so that no id is used twice.
    current, former = config.columns, then.schemas.newest or config.created
    return None if former.columns == current.columns else former.with_schema_id(current.id + 1, current.last)


def _assign_new_group(context: Context, config: TableConfig, group: FileGroup) -> GroupAssignment:
    file_id = generate_file_id(context.timeline.environment.token)
    return GroupAssignment(
        Mode.NEW, group.partition, file_id, None, SnapshotRows(context.store, config, group), _rows(group), _rows(group)
    )


@dataclass(frozen=True)
class _RestoredKeys:
    # Hashes of deleted rows are included, which does no harm.

    index: KeyIndex
    groups: tuple[FileGroup, ...]

    def __call__(self) -> np.ndarray:
        parts = [self.index.key_hashes(group.base.file.index) for group in self.groups if group.base]
        return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.uint64)


def _differing_groups(view: View, other_view: View) -> Iterator[FileGroup]:
    for group in view.groups():
        if other_view.group(group.partition, group.file_id) != group:
            yield group


def _rows(group: FileGroup) -> int:
    return group.base.file.rows if group.base else sum(log.file.rows for log in group.logs)


def _has_live_rows(store: Store, config: TableConfig, group: FileGroup) -> bool:
    if not any(log.file.deletes for log in group.logs):
        return _rows(group) > 0
    return len(slices.read_file_slice(store, config, group, slices.schema_of(config, ["_hoodie_record_key"]))) > 0
