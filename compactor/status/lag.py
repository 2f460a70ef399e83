"""Lag: the work that table services owe. All of it is zero when nothing is owed."""

from __future__ import annotations

from dataclasses import dataclass

from hoodoo.compactor.cleaning.clean import cleanable
from hoodoo.compactor.cleaning.retention import oldest_kept, retention
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.view import View


@dataclass(frozen=True)
class Lag:
    """log_files_max: most logs of one file group; groups_behind: file groups with logs; *_s: seconds since the oldest
    log or plan.
    """

    log_files_max: int = 0
    log_bytes: int = 0
    base_bytes: int = 0
    groups_behind: int = 0
    oldest_delta_s: float = 0.0
    open_plans: int = 0
    oldest_plan_s: float = 0.0
    cleanable_bytes: int = 0


def measure(timeline: TableTimeline, view: View, config: TableConfig) -> Lag:
    """The lag of `view`. base_bytes: of the base files under logs."""
    totals = view.totals
    now = timeline.environment.now_ms()
    oldest = max(oldest_log(view), timeline.history.oldest_slot()) if totals.behind else 0
    retained = oldest_kept(timeline, view, retention(config.options))
    return Lag(
        log_files_max=totals.logs_max,
        log_bytes=totals.log_bytes,
        base_bytes=totals.bytes_behind,
        groups_behind=totals.behind,
        oldest_delta_s=max(0.0, (now - timeline.history.slot(oldest).completed_at) / 1000) if oldest else 0.0,
        open_plans=len(view.plans),
        oldest_plan_s=max((max(0.0, (now - plan.planned_at) / 1000) for plan in view.plans.values()), default=0.0),
        cleanable_bytes=sum(entry.size for entry in cleanable(view, retained)),
    )


def oldest_log(view: View) -> int:
    """The slot of the oldest log that is not compacted; 0 if there is none."""
    return min((group.logs[0].seq for group in view.groups_behind()), default=0)
