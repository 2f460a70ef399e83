"""Compaction plans.

Any worker can run a plan at any time. The output of a plan has fixed names and contents, so two workers can run the
same plan. One slot completes it, so only one run takes effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hoodoo.compactor.compaction.merge_group import MergeTask, run_task
from hoodoo.compactor.compaction.strategies import CompactionPlan, CompactionStrategy
from hoodoo.compactor.compaction.triggers import behind
from hoodoo.compactor.limits import RateLimiter, ServiceLimits, ServiceStopped, never
from hoodoo.errors import CommitConflict, CorruptTable
from hoodoo.timeline.commits.draft import Conflict, SlotDraft
from hoodoo.timeline.commits.retry import HOUSEKEEPING
from hoodoo.timeline.holds import leases
from hoodoo.timeline.instant import COMPACTION
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import PLANNED, DataFile, PlannedGroup
from hoodoo.timeline.views.view import FileGroup, PendingCompaction, View
from hoodoo.writers.context import Context

NO_LIMITS = ServiceLimits()
BY_LOG_SIZE = CompactionStrategy()


@dataclass
class CompactionResult:
    """Result of a compaction.

    Attributes:
        groups: Number of file groups that were compacted.
        bytes_read: Number of bytes that were read.
        bytes_written: Total size of the new base files, in bytes.
        instants: The instants of the plans that this call completed.
    """

    groups: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    instants: tuple[str, ...] = ()


def plan_groups_with_logs(view: View, logs_min: int = 1) -> CompactionPlan:
    return BY_LOG_SIZE.plan(view, behind(view, logs_min))


def commit_compaction_plan(context: Context, choose: Callable[[View], CompactionPlan]) -> PendingCompaction | None:
    """Commit a compaction plan.

    `choose` returns the plan for the newest state of the table.

    Returns None if the plan is empty, or if the retries are exhausted because of concurrent writers.
    """

    def draft(view: View) -> SlotDraft | None:
        chosen = choose(view)
        return SlotDraft("COMPACT", PLANNED, plan=chosen.as_requested()) if chosen else None

    def once() -> PendingCompaction | None:
        if not choose(context.timeline.history.head()):
            return None
        with context.timeline.attempt(COMPACTION) as attempt:
            slot = attempt.complete(draft)  # a commit between the plan and its instant is a conflict
        return context.timeline.history.head().plans.get(slot.instant)

    try:
        return HOUSEKEEPING.run(context.timeline.environment, once)
    except CommitConflict:
        return None  # writers conflict; a later call schedules the plan


def run_compaction_plan(
    context: Context, plan: PendingCompaction, stopped: Callable[[], bool] = never, limits: ServiceLimits = NO_LIMITS
) -> CompactionResult:
    """Run a compaction plan.

    It merges the file groups and commits the new base files. The result is empty if another worker completed the plan,
    or if `stopped` returns True before the end. A damaged file group is skipped and keeps its logs.

    Raises:
        CorruptTable: A file group is damaged. The undamaged groups have been completed. If all groups are damaged, the
            plan stays open.
    """
    with context.timeline.resume_compaction(plan) as attempt:
        groups = [
            group for group in (_file_group_of_plan(attempt.base, plan, planned) for planned in plan.groups) if group
        ]
        # Protocol rule S3: the output has the columns at the time of planning, regardless of when a plan runs.
        config = attempt.config.with_schemas(attempt.base.schemas.up_to(plan.seq))
        tasks = merge_tasks(context, config, plan.instant, groups, stopped, limits)
        try:
            results = context.engine.map(run_task, tasks, limits.groups_at_once)
        except ServiceStopped:
            return CompactionResult()  # the next run of the plan reuses the files that were written
        damaged = [file for file in results if isinstance(file, CorruptTable)]
        files = {group.file_id: file for group, file in zip(groups, results, strict=True) if isinstance(file, DataFile)}

        def draft(view: View) -> SlotDraft | None:
            if plan.instant not in view.plans:
                return None
            unchanged_groups = [
                group
                for group in groups
                if group.file_id in files
                and (current := view.group(group.partition, group.file_id))
                and current.base == group.base
            ]
            if damaged and not unchanged_groups:
                raise damaged[0]
            return SlotDraft(
                "COMPACT", files=tuple(files[group.file_id] for group in unchanged_groups), plan_seq=plan.seq
            )

        try:
            slot = attempt.complete(draft)
        except Conflict:
            _delete_unneeded_files(context, files.values())
            return CompactionResult()
        except CorruptTable:
            if plan.instant in context.timeline.history.head().plans:
                raise
            return CompactionResult()  # another worker completed the plan, and cleaning deleted the replaced files
    if damaged:
        raise damaged[0]
    read = sum(entry.file.size for group in groups for entry in group.files())
    return CompactionResult(len(slot.files), read, sum(file.size for file in slot.files), (plan.instant,))


def _delete_unneeded_files(context: Context, files: Iterable[DataFile]) -> None:
    """Delete unneeded files of a finished plan.

    Another worker completed the plan first. Cleaning or a purge may have deleted the other worker's files before this
    worker wrote them again. A leftover file of a completed instant could contain rows that were purged.
    """
    view = context.timeline.history.head()
    referenced = {
        name for group in view.groups() for entry in group.files() for name in (entry.file.path, entry.file.index)
    }
    referenced |= {name for entry in view.superseded for name in (entry.path, entry.index)}
    if any(seq < view.min_readable for seq in leases.list_protected_commits(context.store)):
        return
    for file in files:
        for key in {file.path, file.index} - referenced:
            context.store.delete(key)


def merge_tasks(
    context: Context,
    config: TableConfig,
    instant: str,
    groups: Sequence[FileGroup],
    stopped: Callable[[], bool],
    limits: ServiceLimits,
) -> list[MergeTask]:
    at_once = limits.at_once(context.engine.threads)
    memory = limits.memory_bytes if context.engine.remote else limits.memory_bytes // max(1, min(at_once, len(groups)))
    pace = RateLimiter(limits.bytes_per_second, stopped, shares=max(1, min(at_once, len(groups))))
    return [MergeTask(context.store, config, instant, group, memory, pace) for group in groups]


def _file_group_of_plan(view: View, plan: PendingCompaction, planned: PlannedGroup) -> FileGroup | None:
    group = view.group(planned.partition, planned.file_id)
    if group is None or group.base_path != planned.base:
        return None
    return FileGroup(
        group.partition, group.file_id, group.base, tuple(log for log in group.logs if log.seq <= plan.seq)
    )


def run_open_plans(
    context: Context, view: View, stopped: Callable[[], bool] = never, limits: ServiceLimits = NO_LIMITS
) -> CompactionResult:
    results = [
        run_compaction_plan(context, plan, stopped, limits)
        for plan in sorted(view.plans.values(), key=lambda plan: plan.seq)
        if not stopped()
    ]
    return _sum(results)


def compact_files(
    context: Context, logs_min: int = 1, strategy: CompactionStrategy = BY_LOG_SIZE, limits: ServiceLimits = NO_LIMITS
) -> CompactionResult:
    """Compact files with many log files.

    A file group needs at least `logs_min` logs. Open compaction plans run first.

    `strategy` divides the file groups into plans.
    """
    results = [run_open_plans(context, context.timeline.heal().view, limits=limits)]
    remaining_ids = {group.file_id for group in behind(context.timeline.history.head(), logs_min)}

    def choose(view: View) -> CompactionPlan:
        return strategy.plan(view, [group for group in behind(view, logs_min) if group.file_id in remaining_ids])

    while remaining_ids and (
        plan := commit_compaction_plan(context, choose)
    ):  # logs that writers add meanwhile wait for the next call
        results.append(run_compaction_plan(context, plan, limits=limits))
        remaining_ids -= {group.file_id for group in plan.groups}
    return _sum(results)


def _sum(results: Iterable[CompactionResult]) -> CompactionResult:
    total = CompactionResult()
    for result in results:
        total = CompactionResult(
            total.groups + result.groups,
            total.bytes_read + result.bytes_read,
            total.bytes_written + result.bytes_written,
            total.instants + result.instants,
        )
    return total
