"""Backpressure on writers while compaction lags.

A writer waits after its commit. docs/semantics.md contains the rule. If a commit adds a log to a file group that then
has at least `slow_after_logs` logs, the writer waits 50 ms for this log and for each log above that number, at most 5
s. It stops waiting when the file group has fewer logs. At twice that number of logs, the workers count as hung, and the
writer compacts the file group itself.

A writer waits only after the commit is final, and holds no lock, so that it does not delay other writers.
"""

from __future__ import annotations

from collections.abc import Iterator

from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import FileGroup, View
from hoodoo.writers.context import Context

_STEP_S = 0.05
_WAIT_MAX_S = 5.0
HUNG = 2  # workers count as hung if a file group has this many times `slow_after_logs` logs


def slow_down_writer(context: Context, config: TableConfig, seq: int) -> float:
    """Slow down a writer while compaction lags.

    Returns the seconds spent waiting.

    The writer waits, or compacts, if workers are alive and the commit added logs to file groups with too many logs.
    """
    from hoodoo.compactor.heartbeats import any_worker_sent_heartbeat

    bound, environment = config.options.slow_after_logs, context.timeline.environment
    if not bound:
        return 0.0
    logs = _logs(context, context.timeline.history.known_head(), seq)
    if logs < bound or not any_worker_sent_heartbeat(
        context.store, environment.now_ms(), config.options.worker_timeout_seconds
    ):
        return 0.0  # without a worker, compact_after_logs decides
    if logs >= HUNG * bound:
        _compact(context, bound, seq)
        return 0.0
    start, max_wait = environment.elapsed(), min(_WAIT_MAX_S, _STEP_S * (logs - bound + 1))
    while logs >= bound and (waited := environment.elapsed() - start) < max_wait:
        environment.sleep(min(_STEP_S, max_wait - waited))
        logs = _logs(context, context.timeline.history.head(), seq)
    return environment.elapsed() - start


def _compact(context: Context, bound: int, seq: int) -> None:
    # Open plans of these file groups run first, because the plan of a hung worker prevents other compactions of them.
    from hoodoo.compactor.compaction import plans

    view = context.timeline.history.known_head()
    overdue = {group.file_id for group in _groups_with_new_logs(context, view, seq) if len(group.logs) >= bound}
    for plan in sorted(view.plans.values(), key=lambda plan: plan.seq):
        if overdue & {group.file_id for group in plan.groups}:
            plans.run_compaction_plan(context, plan)
    new_plan = plans.commit_compaction_plan(context, lambda view: plans.plan_groups_with_logs(view, bound))
    if new_plan:
        plans.run_compaction_plan(context, new_plan)


def _logs(context: Context, view: View, seq: int) -> int:
    return max((len(group.logs) for group in _groups_with_new_logs(context, view, seq)), default=0)


def _groups_with_new_logs(context: Context, view: View, seq: int) -> Iterator[FileGroup]:
    # File groups whose logs have been compacted since are left out.
    for file in context.timeline.history.slot(seq).files:
        group = view.group(file.partition, file.file_id)
        if group and any(log.seq == seq for log in group.logs):
            yield group
