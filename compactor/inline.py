"""What a writer does for the table after its commit is final: checkpoint, compact what grew long if no worker lives,
clean and archive now and then, pack small files, and wait for workers that it outruns.

A failure here is logged, never raised: the commit stands.
"""

from __future__ import annotations

import logging

from hoodoo.compactor.backpressure import ease
from hoodoo.compactor.cleaning.archive import archive
from hoodoo.compactor.cleaning.clean import clean
from hoodoo.compactor.clustering.cluster import pack
from hoodoo.compactor.compaction import plans
from hoodoo.compactor.compaction.strategies import CompactionPlan
from hoodoo.compactor.heartbeats import held, worker_lives
from hoodoo.storage.redact import redact
from hoodoo.timeline import checkpoint
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.view import View
from hoodoo.writers.operations import Context

log = logging.getLogger("hoodoo.compactor")
_UNITS = 8  # of packing: what a writer does on the side must not take long


def after_commit(context: Context, config: TableConfig, seq: int) -> float:
    """Run what is due on the newest view, after the commit of slot `seq`. Returns the seconds that it waited for
    workers.
    """
    waited = 0.0
    for service in (_checkpoint, _compact, _pack, _clean, ease):
        try:
            waited = service(context, config, seq) or waited
        except Exception as problem:  # whatever it is, the commit is final and its writer must hear so
            log.warning(
                "%s after a commit failed, the commit stands: %s", service.__name__.strip("_"), redact(str(problem))
            )
    return waited


def _checkpoint(context: Context, config: TableConfig, seq: int) -> None:
    history = context.timeline.history
    view = history.known_head()
    if view.seq - history.checkpointed >= config.options.checkpoint_every:
        checkpoint.write(context.store, view)
        history.checkpointed = view.seq


def _compact(context: Context, config: TableConfig, seq: int) -> None:
    limit = config.options.compact_after_logs
    if not limit:
        return

    def long(view: View) -> CompactionPlan:
        return plans.plan_behind(view, limit)

    view, now = context.timeline.history.known_head(), context.timeline.environment.now_ms()
    overdue = {group.file_id for group in view.groups() if len(group.logs) >= limit}
    if not overdue or worker_lives(context.store, now, config.options.worker_timeout_s):
        return
    for plan in sorted(
        view.plans.values(), key=lambda plan: plan.seq
    ):  # a dead worker's plan would hold its groups for ever
        if overdue & {group.file_id for group in plan.groups} and not held(context.store, plan.instant, now):
            plans.run(context, plan)
    fresh = plans.schedule(context, long)
    if fresh:
        plans.run(context, fresh)


def _pack(context: Context, config: TableConfig, seq: int) -> None:
    """Every `clean_every` commits, if no worker does it: many small commits leave files well below the target that none
    of them would fill up.
    """
    every, commits = config.options.clean_every, context.timeline.history.known_head().commits
    if (
        every
        and commits % every == 0
        and not worker_lives(context.store, context.timeline.environment.now_ms(), config.options.worker_timeout_s)
    ):
        pack(context, units=_UNITS)


def _clean(context: Context, config: TableConfig, seq: int) -> None:
    view = context.timeline.history.known_head()
    if config.options.clean_every and view.commits - view.cleaned_at_commit >= config.options.clean_every:
        clean(context.timeline, config)
        archive(context.timeline, config)


__all__ = ["after_commit"]
