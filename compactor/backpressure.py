"""Backpressure: a writer that is faster than the workers waits after each commit, so that reads do not get slower.

The rule (docs/semantics.md): if a commit logs to a file group that then has at least `slow_after_logs` logs, the writer
waits 50 ms for that log and for each further log, at most 5 s. It stops waiting when the group has fewer logs. At twice
the number of logs the workers count as hung, and the writer compacts the group itself.

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


def ease(context: Context, config: TableConfig, seq: int) -> float:
    """Apply backpressure after the commit of slot `seq`, and return the seconds spent waiting.

    Waits or compacts if workers are alive and the commit logged to groups with too many logs.
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
    """Compact the groups that slot `seq` logged to, in the writer.

    Runs open plans of these groups first, because a hung worker's plan keeps its groups from being compacted.
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
    """Return the largest number of logs in the file groups that slot `seq` logged to."""
    return max((len(group.logs) for group in _logged(context, view, seq)), default=0)


def _logged(context: Context, view: View, seq: int) -> Iterator[FileGroup]:
    """Yield the file groups that slot `seq` logged to and that still have its log."""
    for file in context.timeline.history.slot(seq).files:
        group = view.group(file.partition, file.file_id)
        if group and any(log.seq == seq for log in group.logs):
            yield group
