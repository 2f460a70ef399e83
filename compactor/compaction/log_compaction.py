"""Log compaction: many small logs of a file group become one, where a full compaction would rewrite a large base for
little.

A read then opens two files instead of many, and the base stays. One short transaction, without a plan: where a writer
logged or rewrote meanwhile, that file group is left as it is. Records keep commit time and sequence number, so no
reader sees a change. Merging logs first and the rest later gives the same rows as merging all at once
(merge/kernels.py), as long as protocol rule 8 holds; so foreign logs are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from hoodoo.compactor.compaction.triggers import costly, log_bytes
from hoodoo.compactor.limits import Limits, Pace, Stopped, never
from hoodoo.errors import CorruptTable
from hoodoo.format.names import FILE_NAME, PARTITION_PATH, RECORD_KEY, join, log_file_name
from hoodoo.index import index_of
from hoodoo.index.key_index import deleted_entry_name
from hoodoo.merge.kernels import KeyedChanges, concat
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
from hoodoo.writers.files.log_file import over_rows, put_log, sets_of_columns

_LOGS_MIN = 3
_MEMORY_SHARE = 6  # of the budget: the logs' bytes, which take about four times as much while they are merged
NO_LIMITS = Limits()


@dataclass
class LogCompactionResult:
    """File groups whose logs became one, log files before, bytes read and written, the commit's instant ('' if nothing
    was done).
    """

    groups: int = 0
    logs: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    instant: str = ""


def split(due: Iterable[FileGroup], limits: Limits = NO_LIMITS) -> tuple[list[FileGroup], list[FileGroup]]:
    """(groups whose logs are better merged among themselves, groups to compact in full)."""
    light: list[FileGroup] = []
    heavy: list[FileGroup] = []
    for group in due:
        (light if _pays(group, limits) else heavy).append(group)
    return light, heavy


def _pays(group: FileGroup, limits: Limits) -> bool:
    return (
        _ours(group)
        and costly(group)
        and len(group.logs) >= _LOGS_MIN
        and log_bytes(group) * _MEMORY_SHARE <= limits.memory_bytes
    )


def _ours(group: FileGroup) -> bool:
    """Tell whether hoodoo wrote all of the logs.

    Logs of another engine may bring back keys that they delete, or hold partial updates.
    """
    return all(log.file.digest and not log.file.origin for log in group.logs)


@dataclass(frozen=True)
class MergeLogs:
    """One file group's new log; picklable."""

    store: Store
    config: TableConfig
    instant: str
    group: FileGroup
    pace: Pace = field(default_factory=Pace)

    def __call__(self) -> DataFile:
        """Raises Stopped, CorruptTable."""
        schema = pa.schema(
            [field for field in self.config.file_schema if field.name not in (PARTITION_PATH, FILE_NAME)]
        )
        parts = []
        for file in slices.logs_in_order(self.group):
            self.pace.spend(file.size)
            parts += list(slices.read_log(self.store, self.config, file, schema))
        base = self.group.base.file if self.group.base else None
        index = index_of(self.store, shared=True)
        changes = [over_rows(index, base, part) for part in self._merged(parts)]
        target = FileTarget(self.group.partition, self.group.file_id, self.instant)
        file = put_log(self.store, self.config, target, changes, base)
        self.pace.spend(file.size)
        return file

    def _merged(self, parts: list[KeyedChanges]) -> list[KeyedChanges]:
        """`parts` as one, or one after the other, where merging would make more sets of columns than there are parts:
        then without rows that a later part deletes, since Hudi reads the logs before, too, and fails on a partial
        update of a key that one of them deletes.
        """
        merged = self.config.merge_policy.collapse(concat(parts))
        if sets_of_columns(self.config, merged) <= len(parts):
            return [merged]
        gone = merged.rows[RECORD_KEY].filter(pa.array(merged.delete)).combine_chunks()
        left = [part.take(np.flatnonzero(part.delete | ~slices.among(part.rows[RECORD_KEY], gone))) for part in parts]
        return [part for part in left if len(part)]


def _run(task: MergeLogs) -> DataFile | CorruptTable:
    """Damage of one group is no reason to leave the others as they are."""
    try:
        return task()
    except CorruptTable as problem:
        return problem


def compact_logs(
    context: Context,
    choose: Callable[[View], Sequence[FileGroup]],
    stopped: Callable[[], bool] = never,
    limits: Limits = NO_LIMITS,
) -> LogCompactionResult:
    """Merge the logs of each file group that `choose` picks from the newest view, if they are ours. An empty result if
    writers were faster everywhere, or if stopped.

    Raises CorruptTable for a damaged log once the other groups are done.
    """

    def chosen(view: View) -> list[FileGroup]:
        return [group for group in choose(view) if _ours(group)]

    if not chosen(context.timeline.history.head()):
        return LogCompactionResult()
    groups: list[FileGroup] = []

    def inflight(base: View) -> bytes:
        groups.extend(chosen(base))
        return commit_metadata.inflight(LOG_COMPACT, [(g.partition, g.file_id, "", 0, 0) for g in groups])

    try:
        with context.timeline.attempt(DELTA_COMMIT, inflight=inflight) as attempt:
            attempt.register(_outputs(attempt, groups))
            files = _merged(context, attempt, groups, stopped, limits)
            damaged = [file for file in files if isinstance(file, CorruptTable)]
            kept = {
                group.file_id: file for group, file in zip(groups, files, strict=True) if isinstance(file, DataFile)
            }

            def draft(view: View) -> SlotDraft | None:
                """Groups that changed meanwhile are left out, and their new logs deleted: completed, Hudi would take
                them for deltas.
                """
                for was in groups:
                    if was.file_id in kept and (
                        view.group(was.partition, was.file_id) != was or was.file_id in view.planned_ids()
                    ):
                        _delete(context.store, kept.pop(was.file_id))
                if not kept:
                    return None
                gone = tuple(log.file.path for group in groups if group.file_id in kept for log in group.logs)
                return SlotDraft(
                    LOG_COMPACT, files=tuple(kept.values()), merged=gone, touches=WriteSet(rewrites=set(kept))
                )

            slot = attempt.complete(draft) if kept else None
    except (Conflict, Stopped):
        return LogCompactionResult()
    view = context.timeline.history.head()
    if damaged and all(view.group(was.partition, was.file_id) == was for was in groups if was.file_id not in kept):
        raise damaged[0]  # else a clean took logs that somebody compacted meanwhile
    if slot is None:
        return LogCompactionResult()
    done = [group for group in groups if group.file_id in kept]
    return LogCompactionResult(
        len(done), len(slot.merged), sum(map(log_bytes, done)), sum(file.size for file in slot.files), slot.instant
    )


def _merged(
    context: Context,
    attempt: Transaction,
    groups: Sequence[FileGroup],
    stopped: Callable[[], bool],
    limits: Limits,
) -> list[DataFile | CorruptTable]:
    """The new log of each group, or what is wrong with its old ones. Raises Stopped."""
    pace = Pace(limits.bytes_per_second, stopped, shares=max(1, limits.at_once(context.engine.threads)))
    at_once = min(
        limits.groups_at_once or len(groups),
        max(1, limits.memory_bytes // (_MEMORY_SHARE * max(map(log_bytes, groups), default=1))),
    )
    tasks = [MergeLogs(context.store, attempt.config, attempt.instant, group, pace) for group in groups]
    return context.engine.map(_run, tasks, at_once)


def _outputs(attempt: Transaction, groups: Sequence[FileGroup]) -> list[str]:
    """What merging the logs of `groups` writes: the names are known beforehand."""
    paths = [join(group.partition, log_file_name(group.file_id, attempt.instant)) for group in groups]
    return [*paths, *(deleted_entry_name(group.file_id, attempt.instant) for group in groups)]


def _delete(store: Store, file: DataFile) -> None:
    for key in (file.path, file.index):
        if key:
            store.delete(key)
