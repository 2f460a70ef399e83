"""Service that compacts log files.

A worker first runs open plans. If no plan is open, it merges logs, and plans the compaction of the file groups that are
due. A writer compacts file groups with at least `compact_after_logs` logs, but only if no worker is alive.

A failing plan, or logs that cannot be merged, are retried separately and do not delay other work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hoodoo.compactor.service_log import log_failure
from hoodoo.compactor.service_turn import Backoff, Service, ServiceCounters, ServiceRun, ServiceState
from hoodoo.timeline.views.view import FileGroup, PendingCompaction, View

if TYPE_CHECKING:
    from hoodoo.compactor.compaction.strategies import CompactionPlan

_PLAN, _LOGS = "plan ", "logs "  # parts of the work


def due(turn: ServiceRun) -> bool:
    duty, limit = turn.duty, turn.config.options.compact_after_logs
    if duty:
        return duty.changed(turn.view) or any(not duty.waits(_PLAN + instant) for instant in turn.view.plans)
    return bool(limit and _overdue(turn.view, limit)) and not turn.has_live_worker()


def run(turn: ServiceRun) -> bool:
    if turn.duty is None:
        return _compact_overdue(turn, turn.config.options.compact_after_logs or 0)
    return _run_open(turn, turn.duty) or _compact_due(turn, turn.duty)


def postponed(duty: ServiceState | None) -> dict[str, Backoff]:
    parts = list(duty.parts.items()) if duty else []  # a copy, because metrics call this from another thread
    return {name.removeprefix(_PLAN): backoff for name, backoff in parts if name.startswith(_PLAN)}


COMPACT = Service("compact", due, run, spares_writers=True)


# ---- of a writer
def _overdue(view: View, limit: int) -> set[str]:
    return {group.file_id for group in view.groups_behind(limit)}


def _compact_overdue(turn: ServiceRun, limit: int) -> bool:
    # Open plans that contain overdue file groups run first, unless a worker is running them.
    from hoodoo.compactor.compaction import plans
    from hoodoo.compactor.heartbeats import is_plan_running

    context, overdue = turn.context, _overdue(turn.view, limit)
    for plan in _in_order(turn.view):  # the plan of a dead worker would otherwise block its groups forever
        is_held = is_plan_running(context.store, plan.instant, turn.now_ms)
        if overdue & {group.file_id for group in plan.groups} and not is_held:
            plans.run_compaction_plan(context, plan)
    if new_plan := plans.commit_compaction_plan(context, lambda view: plans.plan_groups_with_logs(view, limit)):
        plans.run_compaction_plan(context, new_plan)
    return False


def _in_order(view: View) -> list[PendingCompaction]:
    return sorted(view.plans.values(), key=lambda plan: plan.seq)


# ---- of a worker: plans
def _run_open(turn: ServiceRun, duty: ServiceState) -> bool:
    for instant in set(postponed(duty)) - set(turn.view.plans):
        duty.succeeded(_PLAN + instant)
    for plan in _in_order(turn.view):
        if turn.stopped():
            return False
        if not duty.waits(_PLAN + plan.instant) and _run_plan(turn, duty, plan):
            return True
    return False


def _run_plan(turn: ServiceRun, duty: ServiceState, plan: PendingCompaction) -> bool:
    # Skips a plan that another worker is running. Returns False if the plan was skipped or failed.
    from hoodoo.compactor.compaction import plans
    from hoodoo.compactor.heartbeats import running_plan_hint_path

    start = turn.seconds()
    with turn.claim_work(running_plan_hint_path(plan.instant)) as is_ours:
        if not is_ours:
            return False
        try:
            result = plans.run_compaction_plan(turn.context, plan, turn.stopped, turn.limits)
        except Exception as problem:
            wait = duty.failed(problem, turn.now_ms, _PLAN + plan.instant)
            log_failure("plan_failed", problem, table=turn.table, instant=plan.instant, retry_seconds=wait)
            return False
    duty.succeeded(_PLAN + plan.instant)
    seconds = round(turn.seconds() - start, 3)
    if not result.instants:
        left = "plan_left" if turn.stopped() else "plan_done_by_another"
        turn.tell(left, instant=plan.instant, seconds=seconds)
        return True
    turn.tell(
        "compacted",
        ServiceCounters(1, result.groups, result.bytes_read, result.bytes_written, seconds=seconds),
        instant=plan.instant,
        seconds=seconds,
        groups=result.groups,
        bytes_read=result.bytes_read,
        bytes_written=result.bytes_written,
    )
    return True


# ---- of a worker: file groups that are due
def _compact_due(turn: ServiceRun, duty: ServiceState) -> bool:
    from hoodoo.compactor.compaction import log_compaction, plans
    from hoodoo.compactor.compaction.triggers import CompactionTriggers
    from hoodoo.compactor.compaction.triggers import find_files_to_compact as due_groups

    if turn.stopped() or not duty.changed(turn.view):
        return False
    duty.looked(turn.view)
    context, triggers = turn.context, CompactionTriggers.from_table_options(turn.config.options, duty.worker.logs_min)

    def split(newest: View) -> tuple[list[FileGroup], list[FileGroup]]:
        return log_compaction.choose_compaction_type(due_groups(context.timeline, newest, triggers), turn.limits)

    def heavy(newest: View) -> CompactionPlan:
        return plans.BY_LOG_SIZE.plan(newest, split(newest)[1])

    merged, problem = _merge_logs_only(turn, duty, lambda newest: split(newest)[0])
    plan = plans.commit_compaction_plan(context, heavy)
    if plan:
        turn.tell("planned", instant=plan.instant, groups=len(plan.groups))
        duty.require_table_check()  # more groups may be due than one plan takes
        _run_plan(turn, duty, plan)
    if problem:
        raise problem
    return merged or plan is not None


def _merge_logs_only(
    turn: ServiceRun, duty: ServiceState, light: Callable[[View], list[FileGroup]]
) -> tuple[bool, Exception | None]:
    # Returns whether it merged any logs, and the error instead of raising it, so that the remaining work still runs.
    history = turn.context.timeline.history
    expected_parts = {_LOGS + group.file_id for group in light(history.head())}
    for part in [name for name in duty.parts if name.startswith(_LOGS) and name not in expected_parts]:
        del duty.parts[part]

    def choose(newest: View) -> list[FileGroup]:
        return [group for group in light(newest) if not duty.waits(_LOGS + group.file_id)]

    try:
        return _merge_logs(turn, choose), None
    except Exception as problem:
        for group in choose(history.head()):
            duty.parts.setdefault(_LOGS + group.file_id, Backoff(duty.worker.poll_seconds)).failed()
        return False, problem


def _merge_logs(turn: ServiceRun, choose: Callable[[View], list[FileGroup]]) -> bool:
    # Merging logs is cheaper than a full compaction, which would rewrite a large base file for few changes.
    from hoodoo.compactor.compaction import log_compaction

    start = turn.seconds()
    result = log_compaction.compact_logs(turn.context, choose, turn.stopped, turn.limits)
    if not result.groups:
        return False
    seconds = round(turn.seconds() - start, 3)
    turn.tell(
        "logs_merged",
        ServiceCounters(1, result.groups, result.bytes_read, result.bytes_written, seconds=seconds),
        instant=result.instant,
        groups=result.groups,
        logs=result.logs,
        seconds=seconds,
    )
    return True
