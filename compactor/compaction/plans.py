"""Compaction in three things: the plan (which files become one), scheduling (a slot decides it), running (any worker,
any time).

A plan's output has fixed names and content, so workers may run it twice; completion is one slot, so exactly one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hoodoo.compactor.compaction.merge_group import MergeTask, run_task
from hoodoo.compactor.compaction.strategies import CompactionPlan, Strategy
from hoodoo.compactor.compaction.triggers import behind
from hoodoo.compactor.limits import Limits, Pace, Stopped, never
from hoodoo.errors import CommitConflict, CorruptTable
from hoodoo.timeline.commits.draft import Conflict, SlotDraft
from hoodoo.timeline.commits.retry import HOUSEKEEPING
from hoodoo.timeline.holds import leases
from hoodoo.timeline.instant import COMPACTION
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import PLANNED, DataFile, PlannedGroup
from hoodoo.timeline.views.view import FileGroup, Plan, View
from hoodoo.writers.context import Context

NO_LIMITS = Limits()
BY_LOG_SIZE = Strategy()


@dataclass
class CompactionResult:
    """What a compaction did.

    Attributes:
        groups: How many file groups were compacted.
        bytes_read: How many bytes were read.
        bytes_written: The size of the new base files, in bytes.
        instants: The instants of the plans that this call completed.
    """

    groups: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    instants: tuple[str, ...] = ()


def plan_behind(view: View, logs_min: int = 1) -> CompactionPlan:
    """The file groups with at least `logs_min` logs, most log bytes first, as many as one plan takes."""
    return BY_LOG_SIZE.plan(view, behind(view, logs_min))


def schedule(context: Context, choose: Callable[[View], CompactionPlan]) -> Plan | None:
    """Take a slot for what `choose` plans on the newest view; None if that is nothing."""

    def draft(view: View) -> SlotDraft | None:
        chosen = choose(view)
        return SlotDraft("COMPACT", PLANNED, plan=chosen.as_requested()) if chosen else None

    def once() -> Plan | None:
        if not choose(context.timeline.history.head()):
            return None
        with context.timeline.attempt(COMPACTION) as attempt:
            slot = attempt.complete(draft)  # a commit between the plan and its instant is a conflict
        return context.timeline.history.head().plans.get(slot.instant)

    try:
        return HOUSEKEEPING.run(context.timeline.environment, once)
    except CommitConflict:
        return None  # writers are in the way: a later call plans


def run(
    context: Context, plan: Plan, stopped: Callable[[], bool] = never, limits: Limits = NO_LIMITS
) -> CompactionResult:
    """Run `plan` and complete it. Returns an empty result if another worker did, or if `stopped` says so before the
    end.

    A damaged file group is left out and keeps its logs; the others are completed, then CorruptTable is raised. If all
    are, the plan stays open.
    """
    with context.timeline.resume(plan) as attempt:
        groups = [group for group in (_as_planned(attempt.base, plan, planned) for planned in plan.groups) if group]
        # Protocol rule S3: whoever runs the plan, and whenever, its files have the columns that the plan was made with.
        config = attempt.config.with_schemas(attempt.base.schemas.up_to(plan.seq))
        tasks = merge_tasks(context, config, plan.instant, groups, stopped, limits)
        try:
            made = context.engine.map(run_task, tasks, limits.groups_at_once)
        except Stopped:
            return CompactionResult()  # what was written is found and taken by whoever runs the plan again
        damaged = [file for file in made if isinstance(file, CorruptTable)]
        files = {group.file_id: file for group, file in zip(groups, made, strict=True) if isinstance(file, DataFile)}

        def draft(view: View) -> SlotDraft | None:
            if plan.instant not in view.plans:
                return None
            kept = [
                group
                for group in groups
                if group.file_id in files
                and (now := view.group(group.partition, group.file_id))
                and now.base == group.base
            ]
            if damaged and not kept:
                raise damaged[0]
            return SlotDraft("COMPACT", files=tuple(files[group.file_id] for group in kept), plan_seq=plan.seq)

        try:
            slot = attempt.complete(draft)
        except Conflict:
            _delete_strays(context, files.values())
            return CompactionResult()
        except CorruptTable:
            if plan.instant in context.timeline.history.head().plans:
                raise
            return CompactionResult()  # another worker completed the plan, and a clean took what it replaced
    if damaged:
        raise damaged[0]
    read = sum(entry.file.size for group in groups for entry in group.files())
    return CompactionResult(len(slot.files), read, sum(file.size for file in slot.files), (plan.instant,))


def _delete_strays(context: Context, files: Iterable[DataFile]) -> None:
    """Another worker completed the plan, so its files are there, or were until a clean or a purge took them; then ours
    came after it.

    A stray under a completed instant would hold rows that are gone for good. Under a lease a sweep decides, when it is
    over.
    """
    view = context.timeline.history.head()
    known = {name for group in view.groups() for entry in group.files() for name in (entry.file.path, entry.file.index)}
    known |= {name for entry in view.superseded for name in (entry.path, entry.index)}
    if any(seq < view.min_readable for seq in leases.held(context.store)):
        return
    for file in files:
        for key in {file.path, file.index} - known:
            context.store.delete(key)


def merge_tasks(
    context: Context,
    config: TableConfig,
    instant: str,
    groups: Sequence[FileGroup],
    stopped: Callable[[], bool],
    limits: Limits,
) -> list[MergeTask]:
    """A task for each group; the process's memory is shared by those that run together, a Spark worker's is its task's
    alone.
    """
    at_once = limits.at_once(context.engine.threads)
    memory = limits.memory_bytes if context.engine.remote else limits.memory_bytes // max(1, min(at_once, len(groups)))
    pace = Pace(limits.bytes_per_second, stopped, shares=max(1, min(at_once, len(groups))))
    return [MergeTask(context.store, config, instant, group, memory, pace) for group in groups]


def _as_planned(view: View, plan: Plan, planned: PlannedGroup) -> FileGroup | None:
    """The group with exactly the planned files; None if it was replaced since."""
    group = view.group(planned.partition, planned.file_id)
    if group is None or group.base_path != planned.base:
        return None
    return FileGroup(
        group.partition, group.file_id, group.base, tuple(log for log in group.logs if log.seq <= plan.seq)
    )


def run_open(
    context: Context, view: View, stopped: Callable[[], bool] = never, limits: Limits = NO_LIMITS
) -> CompactionResult:
    """Run every open plan of `view`, oldest first."""
    results = [
        run(context, plan, stopped, limits)
        for plan in sorted(view.plans.values(), key=lambda plan: plan.seq)
        if not stopped()
    ]
    return _sum(results)


def compact(
    context: Context, logs_min: int = 1, strategy: Strategy = BY_LOG_SIZE, limits: Limits = NO_LIMITS
) -> CompactionResult:
    """Finish open plans, then compact every file group that has at least `logs_min` logs now, by as many plans as
    `strategy` makes of them.
    """
    results = [run_open(context, context.timeline.heal().view, limits=limits)]
    left = {group.file_id for group in behind(context.timeline.history.head(), logs_min)}

    def choose(view: View) -> CompactionPlan:
        return strategy.plan(view, [group for group in behind(view, logs_min) if group.file_id in left])

    while left and (plan := schedule(context, choose)):  # what writers log meanwhile is for the next call
        results.append(run(context, plan, limits=limits))
        left -= {group.file_id for group in plan.groups}
    return _sum(results)


def _sum(results: Iterable[CompactionResult]) -> CompactionResult:
    total = CompactionResult()
    for one in results:
        total = CompactionResult(
            total.groups + one.groups,
            total.bytes_read + one.bytes_read,
            total.bytes_written + one.bytes_written,
            total.instants + one.instants,
        )
    return total
