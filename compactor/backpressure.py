"""Backpressure: a writer that is faster than the compacting workers waits after each commit, so that reads stay fast.

The rule (docs/semantics.md): if a commit logs to a file group that then has at least `slow_after_logs` logs, the writer
waits 50 ms for that log and for each further log, at most 5 s. It stops waiting when the file group has fewer logs. At
twice the number of logs the workers count as hung, and the writer compacts the file group itself.

A writer only waits after the commit is final and without a lock, so that other writers are not delayed.
"""

from __future__ import annotations

from collections.abc import Iterator

from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import FileGroup, View
from hoodoo.writers.context import Context

_STEP_S = 0.05
_MOST_S = 5.0
HUNG = 2  # workers count as hung at this multiple of the bound


def throttle(context: Context, config: TableConfig, seq: int) -> float:
    """Slow down a writer after its commit if compaction lags behind. Returns the seconds spent waiting.

    This waits, or compacts, if workers are alive and the commit logged to file groups with too many logs.
    """
    from hoodoo.compactor.heartbeats import worker_is_alive

    bound, environment = config.options.slow_after_logs, context.timeline.environment
    if not bound:
        return 0.0
    behind = _logs(context, context.timeline.history.known_head(), seq)
    if behind < bound or not worker_is_alive(context.store, environment.now_ms(), config.options.worker_timeout_s):
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
    """Compact the file groups whose logs slot `seq` extended, in the process of the writer.

    Open plans of these file groups run first, because the plan of a hung worker prevents other compactions of them.
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
    """Return the largest number of log files among the file groups that slot `seq` logged to."""
    return max((len(group.logs) for group in _logged(context, view, seq)), default=0)


def _logged(context: Context, view: View, seq: int) -> Iterator[FileGroup]:
    """Yield the file groups that slot `seq` logged to, unless its log file has been compacted since."""
    for file in context.timeline.history.slot(seq).files:
        group = view.group(file.partition, file.file_id)
        if group and any(log.seq == seq for log in group.logs):
            yield group
