"""Backpressure: a writer that outruns living workers waits a little after each commit, so that the cost of reading
stays bounded.

The rule (docs/semantics.md): from `slow_after_logs` logs in a file group that the commit logged to, it waits 50 ms for
that one and each further log, at most 5 s, and no longer than the group is so far behind. At twice as many the workers
are taken for hung, and the writer compacts itself. Nothing waits before a commit or under a lock: the commit is final,
and others go on.
"""

from __future__ import annotations

from collections.abc import Iterator

from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import FileGroup, View
from hoodoo.writers.context import Context

_STEP_S = 0.05
_MOST_S = 5.0
HUNG = 2  # times the bound


def ease(context: Context, config: TableConfig, seq: int) -> float:
    """Wait, or compact, if workers live and the commit of slot `seq` logged to groups that are far behind. Returns the
    seconds it waited.
    """
    from hoodoo.compactor.heartbeats import worker_lives

    bound, environment = config.options.slow_after_logs, context.timeline.environment
    if not bound:
        return 0.0
    behind = _logs(context, context.timeline.history.known_head(), seq)
    if behind < bound or not worker_lives(context.store, environment.now_ms(), config.options.worker_timeout_s):
        return 0.0  # without a worker, compact_after_logs decides
    if behind >= HUNG * bound:
        _compact(context, bound, seq)
        return 0.0
    began, patience = environment.elapsed(), min(_MOST_S, _STEP_S * (behind - bound + 1))
    while behind >= bound and (waited := environment.elapsed() - began) < patience:
        environment.sleep(min(_STEP_S, patience - waited))
        behind = _logs(context, context.timeline.history.head(), seq)
    return environment.elapsed() - began


def _compact(context: Context, bound: int, seq: int) -> None:
    """What the workers should have done: a plan that one of them holds and does not run keeps its groups from any
    other.
    """
    from hoodoo.compactor.compaction import plans

    view = context.timeline.history.known_head()
    mine = {group.file_id for group in _logged(context, view, seq) if len(group.logs) >= bound}
    for plan in sorted(view.plans.values(), key=lambda plan: plan.seq):
        if mine & {group.file_id for group in plan.groups}:
            plans.run(context, plan)
    fresh = plans.schedule(context, lambda view: plans.plan_behind(view, bound))
    if fresh:
        plans.run(context, fresh)


def _logs(context: Context, view: View, seq: int) -> int:
    """Most logs of a file group that slot `seq` logged to."""
    return max((len(group.logs) for group in _logged(context, view, seq)), default=0)


def _logged(context: Context, view: View, seq: int) -> Iterator[FileGroup]:
    """File groups that slot `seq` logged to, as far as its log still stands."""
    for file in context.timeline.history.slot(seq).files:
        group = view.group(file.partition, file.file_id)
        if group and any(log.seq == seq for log in group.logs):
            yield group
