"""Compaction in three things: the plan (which files become one), scheduling (a slot decides it), running (any worker, any time).

A plan's output has fixed names and content, so workers may run it twice; completion is one slot, so exactly one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from hoodoo.format.names import RECORD_KEY
from hoodoo.readers import slices
from hoodoo.storage.store import Store
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.conflicts import no_keys
from hoodoo.timeline.instant import COMPACTION
from hoodoo.timeline.slot import PLANNED, DataFile, PlannedGroup, Slot
from hoodoo.timeline.transaction import Conflict, Draft
from hoodoo.timeline.view import FileGroup, Plan, View
from hoodoo.writers.base_sink import Grown, put_base
from hoodoo.writers.operations import Context

_SCHEDULE_ATTEMPTS = 20


@dataclass
class CompactionResult:
    """File groups compacted, bytes read and written; `instants`: of the plans that this call completed."""

    groups: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    instants: tuple[str, ...] = ()


def behind(view: View, logs_min: int) -> list[FileGroup]:
    """File groups with at least `logs_min` logs that no plan holds, most logs first."""
    planned = view.planned_ids()
    found = [group for group in view.groups() if len(group.logs) >= logs_min and group.base and group.file_id not in planned]
    return sorted(found, key=lambda group: -len(group.logs))


def schedule(context: Context, choose: Callable[[View], Iterable[FileGroup]]) -> Plan | None:
    """Take a slot that plans to compact the groups `choose` picks from the newest view; None if it picks none."""
    for _ in range(_SCHEDULE_ATTEMPTS):
        if not list(choose(context.timeline.history.head())):
            return None
        attempt = context.timeline.begin(COMPACTION)

        def draft(view: View) -> Draft | None:
            groups = tuple(
                PlannedGroup(g.partition, g.file_id, g.base.file.path if g.base else "", tuple(log.file.path for log in g.logs)) for g in choose(view)
            )
            return Draft("COMPACT", PLANNED, plan=groups) if groups else None

        try:
            slot = attempt.complete(draft)
            return context.timeline.history.head().plans.get(slot.instant)
        except Conflict:
            continue  # a commit came between the plan and its instant: take a newer one
    return None


@dataclass(frozen=True)
class CompactTask:
    """Merges one planned file group into its new base; picklable, so it runs on Spark as well."""

    store: Store
    config: TableConfig
    instant: str
    group: FileGroup

    def __call__(self) -> DataFile:
        rows = slices.read_slice(self.store, self.config, self.group, self.config.stored_schema, verified=True)
        old = self.group.base.file if self.group.base else None
        keeps_keys = old is not None and len(rows) == old.rows and not any(log.file.deletes for log in self.group.logs)
        grown = Grown(old, rows[RECORD_KEY].slice(0, 0), no_keys()) if old and keeps_keys else None
        file = put_base(self.store, self.config, self.group.partition, self.group.file_id, self.instant, rows, grown)
        return replace(file, previous=old.path if old else "", updates=sum(log.file.updates for log in self.group.logs))


def run_task(task: CompactTask) -> DataFile:
    return task()


def run(context: Context, plan: Plan, stopped: Callable[[], bool] = lambda: False) -> CompactionResult:
    """Run `plan` and complete it. Returns an empty result if another worker did, or if `stopped` says so before the end."""
    attempt = context.timeline.resume(plan)
    attempt.start()
    groups = [group for group in (_as_planned(attempt.base, plan, planned) for planned in plan.groups) if group]

    def guarded(task: CompactTask) -> DataFile | None:
        return None if stopped() else task()

    tasks = [CompactTask(context.store, attempt.config, plan.instant, group) for group in groups]
    files = context.engine.map(run_task if context.engine.remote else guarded, tasks)
    if any(file is None for file in files):
        return CompactionResult()  # what was written is found and taken by whoever runs the plan again

    def draft(view: View) -> Draft | None:
        if plan.instant not in view.plans:
            return None
        kept = tuple(file for file, was in zip(files, groups, strict=True) if (now := view.group(was.partition, was.file_id)) and now.base == was.base)
        return Draft("COMPACT", files=kept, plan_seq=plan.seq)

    try:
        slot: Slot = attempt.complete(draft)
    except Conflict:
        return CompactionResult()
    read = sum(entry.file.size for group in groups for entry in group.files())
    return CompactionResult(len(slot.files), read, sum(file.size for file in slot.files), (plan.instant,))


def _as_planned(view: View, plan: Plan, planned: PlannedGroup) -> FileGroup | None:
    """The group with exactly the planned files; None if it was replaced since."""
    group = view.group(planned.partition, planned.file_id)
    if group is None or (group.base.file.path if group.base else "") != planned.base:
        return None
    return FileGroup(group.partition, group.file_id, group.base, tuple(log for log in group.logs if log.seq <= plan.seq))


def run_open(context: Context, view: View, stopped: Callable[[], bool] = lambda: False) -> CompactionResult:
    """Run every open plan of `view`, oldest first."""
    results = [run(context, plan, stopped) for plan in sorted(view.plans.values(), key=lambda plan: plan.seq) if not stopped()]
    return _sum(results)


def compact(context: Context, logs_min: int = 1) -> CompactionResult:
    """Finish open plans, then plan and run a compaction of every file group with at least `logs_min` logs."""
    first = run_open(context, context.timeline.heal())
    plan = schedule(context, lambda view: behind(view, logs_min))
    return _sum([first, run(context, plan)] if plan else [first])


def _sum(results: Iterable[CompactionResult]) -> CompactionResult:
    total = CompactionResult()
    for one in results:
        total = CompactionResult(
            total.groups + one.groups, total.bytes_read + one.bytes_read, total.bytes_written + one.bytes_written, total.instants + one.instants
        )
    return total
