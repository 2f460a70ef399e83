"""Compaction of small log files into one log file.

It replaces a full compaction that would rewrite a large base file for few changes. A read then opens two files instead
of many, and the base file stays. Log compaction is one short transaction without a plan. It skips a file group that a
writer changes during the transaction. Records keep commit time and sequence number, so change readers do not see it.

Under protocol rule 8, merging logs first gives the same rows as merging everything at once (merge/kernels.py). Logs of
other engines need not follow the rule, and are not merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from hoodoo.compactor.compaction.triggers import is_base_rewrite_costly, log_bytes
from hoodoo.compactor.limits import RateLimiter, ServiceLimits, ServiceStopped, never
from hoodoo.errors import CorruptTable
from hoodoo.format.names import FILE_NAME, PARTITION_PATH, RECORD_KEY, join, log_file_name
from hoodoo.index import index_of
from hoodoo.index.key_index import deletes_entry_path
from hoodoo.merge.kernels import KeyedChanges, concat_changes
from hoodoo.readers.slices import slices
from hoodoo.storage.store import Store
from hoodoo.timeline.commits.conflicts import WriteSet
from hoodoo.timeline.commits.draft import Conflict, SlotDraft
from hoodoo.timeline.commits.transaction import Transaction
from hoodoo.timeline.hudi import commit_metadata
from hoodoo.timeline.instant import DELTA_COMMIT
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import LOG_COMPACT, DataFile
from hoodoo.timeline.views.view import FileGroup, View
from hoodoo.writers.context import Context
from hoodoo.writers.files.file_target import FileTarget
from hoodoo.writers.files.log_file import add_row_positions, count_data_blocks, write_log_file

_LOGS_MIN = 3
_MEMORY_SHARE = 6  # logs may take a sixth of the memory budget; a merge takes about four times their size
NO_LIMITS = ServiceLimits()


@dataclass
class LogCompactionResult:
    """Result of a log compaction.

    Attributes:
        groups: Number of file groups whose logs were merged.
        logs: Number of log files before the merge.
        bytes_read: Number of bytes that were read.
        bytes_written: Number of bytes that were written.
        instant: The instant of the commit, or '' if no logs were merged.
    """

    groups: int = 0
    logs: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    instant: str = ""


def choose_compaction_type(
    due: Iterable[FileGroup], limits: ServiceLimits = NO_LIMITS
) -> tuple[list[FileGroup], list[FileGroup]]:
    """Choose the compaction type of each file: of its logs only, or into a base file."""
    light: list[FileGroup] = []
    heavy: list[FileGroup] = []
    for group in due:
        (light if _pays(group, limits) else heavy).append(group)
    return light, heavy


def _pays(group: FileGroup, limits: ServiceLimits) -> bool:
    return (
        _has_only_own_logs(group)
        and is_base_rewrite_costly(group)
        and len(group.logs) >= _LOGS_MIN
        and log_bytes(group) * _MEMORY_SHARE <= limits.memory_bytes
    )


def _has_only_own_logs(group: FileGroup) -> bool:
    # Logs of another engine may insert keys again that they delete, or contain partial updates.
    return all(log.file.digest and not log.file.origin for log in group.logs)


@dataclass(frozen=True)
class MergeLogsTask:
    """Task that merges log files into one."""

    store: Store
    config: TableConfig
    instant: str
    group: FileGroup
    pace: RateLimiter = field(default_factory=RateLimiter)

    def __call__(self) -> DataFile:
        schema = pa.schema(
            [field for field in self.config.file_schema if field.name not in (PARTITION_PATH, FILE_NAME)]
        )
        parts = []
        for file in slices.sort_logs_by_instant(self.group):
            self.pace.count_bytes(file.size)
            parts += list(slices.read_log(self.store, self.config, file, schema))
        base = self.group.base.file if self.group.base else None
        index = index_of(self.store, shared=True)
        changes = [add_row_positions(index, base, part) for part in self._merged(parts)]
        target = FileTarget(self.group.partition, self.group.file_id, self.instant)
        file = write_log_file(self.store, self.config, target, changes, base)
        self.pace.count_bytes(file.size)
        return file

    def _merged(self, parts: list[KeyedChanges]) -> list[KeyedChanges]:
        # A merged set needs a block for each set of columns that its rows set. If there would be more blocks than
        # `parts`, the parts are returned without rows that a later part replaces.
        merged = self.config.merge_policy.collapse(concat_changes(parts))
        if count_data_blocks(self.config, merged) <= len(parts):
            return [merged]
        deleted_keys = merged.rows[RECORD_KEY].filter(pa.array(merged.delete)).combine_chunks()
        remaining_parts = [
            part.take(np.flatnonzero(part.delete | ~slices.among(part.rows[RECORD_KEY], deleted_keys)))
            for part in parts
        ]
        return [part for part in remaining_parts if len(part)]


def _run(task: MergeLogsTask) -> DataFile | CorruptTable:
    # CorruptTable is returned instead of raised, so that other groups continue.
    try:
        return task()
    except CorruptTable as problem:
        return problem


def compact_logs(
    context: Context,
    choose: Callable[[View], Sequence[FileGroup]],
    stopped: Callable[[], bool] = never,
    limits: ServiceLimits = NO_LIMITS,
) -> LogCompactionResult:
    """Merge small log files in one commit.

    `choose` selects the file groups. File groups with logs of other engines are skipped. The result is empty if writers
    changed all chosen file groups during the merge, or if `stopped` returns True.

    Raises:
        CorruptTable: A log is damaged. The undamaged groups have been merged.
    """

    def chosen(view: View) -> list[FileGroup]:
        return [group for group in choose(view) if _has_only_own_logs(group)]

    if not chosen(context.timeline.history.head()):
        return LogCompactionResult()
    groups: list[FileGroup] = []

    def inflight(base: View) -> bytes:
        groups.extend(chosen(base))
        return commit_metadata.encode_inflight_file(
            LOG_COMPACT, [(group.partition, group.file_id, "", 0, 0) for group in groups]
        )

    try:
        with context.timeline.attempt(DELTA_COMMIT, inflight=inflight) as attempt:
            attempt.register(_output_paths(attempt, groups))
            files = _merged(context, attempt, groups, stopped, limits)
            damaged = [file for file in files if isinstance(file, CorruptTable)]
            kept = {
                group.file_id: file for group, file in zip(groups, files, strict=True) if isinstance(file, DataFile)
            }

            def draft(view: View) -> SlotDraft | None:
                # Hudi would read logs of changed file groups as additional changes after the commit.
                for group_before in groups:
                    if group_before.file_id in kept and (
                        view.group(group_before.partition, group_before.file_id) != group_before
                        or group_before.file_id in view.planned_ids()
                    ):
                        _delete(context.store, kept.pop(group_before.file_id))
                if not kept:
                    return None
                merged_paths = tuple(log.file.path for group in groups if group.file_id in kept for log in group.logs)
                return SlotDraft(
                    LOG_COMPACT, files=tuple(kept.values()), merged=merged_paths, touches=WriteSet(rewrites=set(kept))
                )

            slot = attempt.complete(draft) if kept else None
    except (Conflict, ServiceStopped):
        return LogCompactionResult()
    view = context.timeline.history.head()
    if damaged and all(view.group(was.partition, was.file_id) == was for was in groups if was.file_id not in kept):
        raise damaged[0]  # otherwise the logs were compacted in the meantime, and cleaning deleted them
    if slot is None:
        return LogCompactionResult()
    merged_groups = [group for group in groups if group.file_id in kept]
    return LogCompactionResult(
        len(merged_groups),
        len(slot.merged),
        sum(map(log_bytes, merged_groups)),
        sum(file.size for file in slot.files),
        slot.instant,
    )


def _merged(
    context: Context,
    attempt: Transaction,
    groups: Sequence[FileGroup],
    stopped: Callable[[], bool],
    limits: ServiceLimits,
) -> list[DataFile | CorruptTable]:
    # The result for a group with a damaged log is a CorruptTable. Raises Stopped.
    pace = RateLimiter(limits.bytes_per_second, stopped, shares=max(1, limits.at_once(context.engine.threads)))
    at_once = min(
        limits.groups_at_once or len(groups),
        max(1, limits.memory_bytes // (_MEMORY_SHARE * max(map(log_bytes, groups), default=1))),
    )
    tasks = [MergeLogsTask(context.store, attempt.config, attempt.instant, group, pace) for group in groups]
    return context.engine.map(_run, tasks, at_once)


def _output_paths(attempt: Transaction, groups: Sequence[FileGroup]) -> list[str]:
    # The paths are known before the merge.
    paths = [join(group.partition, log_file_name(group.file_id, attempt.instant)) for group in groups]
    return [*paths, *(deletes_entry_path(group.file_id, attempt.instant) for group in groups)]


def _delete(store: Store, file: DataFile) -> None:
    for key in (file.path, file.index):
        if key:
            store.delete(key)
