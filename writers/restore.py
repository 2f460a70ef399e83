"""Restore: the rows of an earlier snapshot come back as a new commit. History is never cut: what came in between stays
readable.

File groups that are the same now as then stay as they are. The others are replaced by new ones, which hold their rows
as of then; Apache Hudi sees one replacecommit. Any write since its base conflicts, since it would be neither undone nor
kept as a whole.
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
from hoodoo.writers.context import Context
from hoodoo.writers.operations import Committed, commit
from hoodoo.writers.routing.route import Assignment, Mode, new_file_id
from hoodoo.writers.routing.write_plan import WritePlan

_COMPARED_BYTES = 64 << 20  # of files on both sides: more rows than these have are not compared for their count


@dataclass(frozen=True)
class FormerRows:
    """Reads the live rows of a former slice as changes, where the task runs; it pickles."""

    store: Store
    config: TableConfig
    group: FileGroup

    def __call__(self) -> KeyedChanges:
        wanted = pa.schema(
            [field for field in self.config.stored_schema if not field.name.startswith("_hoodie_commit")]
        )
        rows = slices.read_slice(self.store, self.config, self.group, wanted, verified=True)
        none = np.zeros(len(rows), bool)
        return KeyedChanges(rows, none, none)


def restore(context: Context, seq: int) -> Committed:
    """Bring back the rows and columns of the snapshot at slot `seq`. Checks stay, and follow their columns to the names
    of then. Raises SnapshotExpired, CommitConflict, and SchemaError where a check looks at a column that came later.
    """
    lease, then = leases.take(context.timeline.history, context.timeline.environment, seq, leases.HOURS_MAX)

    def propose(view: View, config: TableConfig) -> WritePlan | None:
        config = config.knowing(then.schemas)
        columns = _columns_then(config, then)
        settings = checks.carried(config, columns) if columns else {}
        config = config.with_columns(columns) if columns else config
        gone = list(_unlike(view, then))
        back = [group for group in _unlike(then, view) if _holds_rows(context.store, config, group)]
        if not gone and not back and columns is None:
            return None
        counts = _counted(context, config, view, then, [*gone, *back])
        known = counts is not None or not any(group.logs for group in gone)
        return WritePlan(
            [_anew(context, config, group) for group in back],
            _FormerKeys(context.index, tuple(back)),
            replaced=tuple((group.partition, group.file_id) for group in gone),
            exclusive=True,
            position=seq,
            columns=columns,
            settings=settings,
            removed_rows=0 if counts else sum(group.base.file.rows for group in gone if group.base),
            counts=counts,
            exact=known,
        )

    try:
        return commit(context, "RESTORE", propose)
    finally:
        lease.release()


def _counted(
    context: Context, config: TableConfig, now: View, then: View, groups: Sequence[FileGroup]
) -> RowCounts | None:
    """How many rows come, change and go; None where comparing them would take more memory than a restore may, and where
    rows of now have values that the columns of then cannot hold.
    """
    if sum(entry.file.size for group in groups for entry in group.files()) > _COMPARED_BYTES:
        return None
    try:
        return between(context.timeline.history, config, now.seq, then)
    except UnsupportedTable:
        return None


def _columns_then(config: TableConfig, then: View) -> TableSchema | None:
    """The columns of the snapshot as the table's next schema; None where they are those of today. The largest id stays:
    none is ever given twice.
    """
    now, former = config.columns, then.schemas.newest or config.created
    return None if former.columns == now.columns else former.with_id(now.id + 1, now.last)


def _anew(context: Context, config: TableConfig, group: FileGroup) -> Assignment:
    file_id = new_file_id(context.timeline.environment.token)
    return Assignment(
        Mode.NEW, group.partition, file_id, None, FormerRows(context.store, config, group), _rows(group), _rows(group)
    )


@dataclass(frozen=True)
class _FormerKeys:
    """Reads the key hashes of the groups that come back; more hashes than are live do no harm."""

    index: KeyIndex
    groups: tuple[FileGroup, ...]

    def __call__(self) -> np.ndarray:
        parts = [self.index.key_hashes(group.base.file.index) for group in self.groups if group.base]
        return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.uint64)


def _unlike(one: View, other: View) -> Iterator[FileGroup]:
    """File groups of `one` that are not, with the same files, in `other`."""
    for group in one.groups():
        if other.group(group.partition, group.file_id) != group:
            yield group


def _rows(group: FileGroup) -> int:
    return group.base.file.rows if group.base else sum(log.file.rows for log in group.logs)


def _holds_rows(store: Store, config: TableConfig, group: FileGroup) -> bool:
    """A slice whose rows were all deleted needs no file."""
    if not any(log.file.deletes for log in group.logs):
        return _rows(group) > 0
    return len(slices.read_slice(store, config, group, slices.schema_of(config, ["_hoodie_record_key"]))) > 0
