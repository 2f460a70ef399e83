"""Tasks that write one data file.

File names are fixed before a task starts. A retried task therefore finds its own file and keeps it (protocol rule 14).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from hoodoo.format.names import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    PARTITION_METADATA,
    RECORD_KEY,
    join,
)
from hoodoo.format.parquet import base_file, statistics
from hoodoo.format.parquet.raw_copy import CannotCopyFile
from hoodoo.format.properties import create_partition_metadata
from hoodoo.index.key_index import KeyIndex, base_entry_path, deletes_entry_path
from hoodoo.merge.kernels import KeyedChanges, extend_to_all_columns
from hoodoo.readers.slices import slices
from hoodoo.storage.store import Store
from hoodoo.timeline.layout import MARKERS
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots import keyset
from hoodoo.timeline.slots.slot import DataFile
from hoodoo.timeline.views.view import FileGroup
from hoodoo.writers.files.base_sink import ExpectedRows, RewrittenKeys, SameRowOrder, in_order, put_base
from hoodoo.writers.files.change_log import RewrittenRows, write_change_log
from hoodoo.writers.files.file_target import FileTarget
from hoodoo.writers.files.in_place import BaseFileRewriter
from hoodoo.writers.files.log_file import add_row_positions, write_log_file
from hoodoo.writers.routing.route import Mode

_NO_TOKEN = "0-0-0"
_SMALL_BYTES = 8 << 20


@dataclass(frozen=True)
class WriteTask:
    """Task that writes one data file.

    Attributes:
        store: The store of the table.
        config: The table configuration for the file.
        index: The index of the table.
        instant: The instant of the write.
        number: The sequence number of the task in the write.
        mode: The kind of write: a new base file, a rewritten base file or a log file.
        partition: The path of the partition.
        file_id: The id of the file group.
        group: The file group, or None for a new one.
        load: Function that returns the changes (record key, then table columns, one per key). The task calls it.
        silent: True to write a change log without rows, because no file may contain the purged rows.
        from_stored: True if the changes are computed from live rows of the group. The changes may then be empty, and
            each change takes effect.
    """

    store: Store
    config: TableConfig
    index: KeyIndex
    instant: str
    number: int
    mode: Mode
    partition: str
    file_id: str
    group: FileGroup | None
    load: Callable[[], KeyedChanges]
    silent: bool = False
    from_stored: bool = False

    @property
    def target(self) -> FileTarget:
        return FileTarget(self.partition, self.file_id, self.instant)

    @property
    def path(self) -> str:
        return self.target.log_path() if self.mode == Mode.APPEND else self.target.base_path

    @property
    def leftovers(self) -> tuple[str, ...]:
        return (
            self.path,
            base_entry_path(self.file_id, self.instant),
            deletes_entry_path(self.file_id, self.instant),
            *((self.target.change_log_path,) if self.logs_changes else ()),
        )

    @property
    def is_small(self) -> bool:
        return self.group is None or self.group.base is None or self.group.base.file.size <= _SMALL_BYTES

    @property
    def logs_changes(self) -> bool:
        return bool(self.config.change_log) and self.mode not in (Mode.APPEND, Mode.NEW)


@dataclass(frozen=True)
class WriteTaskResult:
    """Result of a write task.

    `inserted` and `deleted` are references to the key sets that the slot stores. docs/semantics.md defines how rows are
    counted. `exact` is True if the counts are exact.
    """

    file: DataFile
    inserted: tuple[keyset.Reference, ...]
    deleted: tuple[keyset.Reference, ...]
    inserts: int
    updates: int
    deletes: int
    stale: int
    exact: bool


@dataclass(frozen=True)
class NoFileResult:
    """Result of a write task that wrote no file.

    `stale` is the number of changes that lost against stored rows.
    """

    stale: int
    mistaken: bool = False


def run(task: WriteTask) -> WriteTaskResult | NoFileResult:
    changes = task.load()
    if changes.mistaken or (task.from_stored and not len(changes)):
        return NoFileResult(changes.stale, changes.mistaken)
    _write_markers(task)
    if task.mode == Mode.APPEND:
        return _write_log(task, changes)
    return _write_new_group(task, changes) if task.mode == Mode.NEW else _rewrite(task, changes)


def _write_markers(task: WriteTask) -> None:
    kind = "MERGE" if task.group and task.mode != Mode.APPEND else "CREATE"
    task.store.write_once(f"{MARKERS}{task.instant}/{task.path}.marker.{kind}", b"", durable=False)
    if task.logs_changes:
        task.store.write_once(
            f"{MARKERS}{task.instant}/{task.target.change_log_path}.marker.CREATE", b"", durable=False
        )


def write_partition_metadata(store: Store, partition: str, instant: str) -> None:
    depth = partition.count("/") + 1 if partition else 0
    try:
        store.create(join(partition, PARTITION_METADATA), create_partition_metadata(instant, depth, instant))
    except FileExistsError:
        return


def stamp(rows: pa.Table, instant: str, number: int) -> pa.Table:
    n = len(rows)
    meta = [base_file.constant(instant, n), base_file.create_sequence_numbers(instant, number, n)]
    return pa.table([*meta, *rows.columns], names=[COMMIT_TIME, COMMIT_SEQNO, *rows.schema.names])


def _save_keys(task: WriteTask, suffix: str, hashes: np.ndarray) -> tuple[keyset.Reference, ...]:
    return keyset.save_key_hashes(task.store, f"{task.instant}-{task.number}-{suffix}", hashes)


def _write_new_group(task: WriteTask, changes: KeyedChanges) -> WriteTaskResult:
    write_partition_metadata(task.store, task.partition, task.instant)
    rows = stamp(changes.rows, task.instant, task.number)
    hashes = changes.key_hashes()
    expected = ExpectedRows(len(rows), hashes)
    file = put_base(task.store, task.config, task.index, task.target, rows, expected)
    file = replace(file, inserts=file.rows)
    inserted_keys = (keyset.reference_to_index_keys(file.index),) if file.index else _save_keys(task, "in", hashes)
    return WriteTaskResult(file, inserted_keys, (), file.rows, 0, 0, 0, True)


def _rewrite(task: WriteTask, changes: KeyedChanges) -> WriteTaskResult:
    assert task.group is not None and task.group.base is not None
    old = task.group.base.file
    if changes.columns is not None:
        changes = extend_to_all_columns(changes, task.config.schema)
    if changes.at is None:
        changes = replace(changes, hashes=changes.key_hashes())  # hashes are needed several times
    stamped = replace(changes, rows=stamp(changes.rows, task.instant, task.number))
    file, found, won = _rewrite_in_place(task, stamped) or _rewrite_merged(task, stamped)
    inserted = ~found & ~changes.delete
    deleted = found & won & changes.delete
    updated = found & won & ~changes.delete
    file = replace(
        file,
        previous=old.path,
        inserts=int(inserted.sum()),
        updates=int(updated.sum()),
        deletes=int(deleted.sum()),
    )
    file = in_order(task.config, old, file)
    return WriteTaskResult(
        file,
        _save_keys(task, "in", changes.hashes_at(np.flatnonzero(inserted))),
        _save_keys(task, "out", changes.hashes_at(np.flatnonzero(deleted))),
        file.inserts,
        file.updates,
        file.deletes,
        int((found & ~won).sum()) + changes.stale,
        True,
    )


_Outcome = tuple[DataFile, np.ndarray, np.ndarray]
"""New base file, mask of the changes with a stored row, and mask of the changes that took effect."""


def _rewrite_in_place(task: WriteTask, changes: KeyedChanges) -> _Outcome | None:
    # A file group with logs is merged instead, and so is one whose change log needs whole rows. A purge also merges,
    # because no trace of its keys may remain, even in Hudi's bloom filter.
    assert task.group is not None and task.group.base is not None
    if task.group.logs or task.logs_changes or task.silent:
        return None
    old = task.group.base.file
    try:
        file, pending = BaseFileRewriter(task.store, task.config, task.index).rewrite(old, task.instant, changes)
    except CannotCopyFile:
        return None
    return file, pending.found, pending.won


def _rewrite_merged(task: WriteTask, changes: KeyedChanges) -> _Outcome:
    assert task.group is not None and task.group.base is not None
    base = slices.read_file_slice(task.store, task.config, task.group, task.config.stored_schema, verified=True)
    merged = task.config.merge_policy.apply(base, changes)
    inserted, deleted = ~merged.found & ~changes.delete, merged.found & merged.won & changes.delete
    grown = same = None
    if not task.group.logs:
        same = SameRowOrder(task.group.base.file, merged.partner[deleted], changes.hashes_at(np.flatnonzero(inserted)))
        if not deleted.any():
            grown = RewrittenKeys(task.group.base.file, changes.rows[RECORD_KEY].filter(pa.array(inserted)))
    logged = {}
    # before the base file, so that an attempt that finds an existing base file also finds its change log
    if task.logs_changes:
        tables = () if task.silent else RewrittenRows(base, changes, merged).tables(task.config)
        logged = write_change_log(task.store, task.config, task.target, tables)
    expected = ExpectedRows(len(merged.rows), grown=grown, same=same)
    file = put_base(task.store, task.config, task.index, task.target, merged.rows, expected)
    return replace(file, changes=logged), merged.found, merged.won


def _write_log(task: WriteTask, changes: KeyedChanges) -> WriteTaskResult:
    # The stored rows are not read. An update may therefore lose against a stored row with a larger ordering value, so
    # the counts are not exact.
    assert task.group is not None
    base = task.group.base.file if task.group.base else None
    changes = add_row_positions(task.index, base, changes)
    stamped = replace(changes, rows=stamp(changes.rows, task.instant, task.number))
    file = write_log_file(task.store, task.config, task.target, [stamped], base)
    deleted_hashes = changes.hashes_at(np.flatnonzero(changes.delete))
    exact = task.from_stored or _changes_cannot_lose(task, file, changes)
    return WriteTaskResult(
        file, (), _save_keys(task, "out", deleted_hashes), 0, file.updates, file.deletes, changes.stale, exact
    )


def _changes_cannot_lose(task: WriteTask, file: DataFile, changes: KeyedChanges) -> bool:
    # No change loses if the smallest ordering value of the changes is at least the largest one of the stored files
    # (MergePolicy.cannot_lose).
    policy = task.config.merge_policy
    if changes.delete.any() or policy.bounded is None:
        return not changes.delete.any()
    if task.group is None:
        return False
    name, kind = policy.bounded, task.config.schema.field(policy.bounded).type

    def bound(data_file: DataFile, index: int) -> Any:
        value = data_file.stats.get(name, (None, None))[index]
        return None if value is None else statistics.make_comparable(value, kind)

    stored = [entry.file for entry in task.group.files() if entry.file.rows and entry.file.stats]
    return policy.changes_always_win([bound(file, 0)], [bound(stored_file, 1) for stored_file in stored])
