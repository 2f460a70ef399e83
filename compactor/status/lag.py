"""Lag: the work that table services owe."""

from __future__ import annotations

from dataclasses import dataclass

from hoodoo.compactor.cleaning.clean import cleanable
from hoodoo.compactor.cleaning.retention import oldest_kept, retention
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.views.view import View


@dataclass(frozen=True)
class Lag:
    """The work that table services owe; everything is 0 where nothing is owed.

    Attributes:
        log_files_max: The number of log files of the file group that has the most.
        log_bytes: The size of all log files that are not compacted, in bytes.
        base_bytes: The size of the base files of the file groups with log files, in bytes.
        groups_behind: How many file groups have log files.
        oldest_delta_s: The age of the oldest log file that is not compacted, in seconds.
        open_plans: How many plans are requested and not completed.
        oldest_plan_s: The age of the oldest such plan, in seconds.
        cleanable_bytes: The size of the files that a clean would delete now, in bytes.
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
    """Measure the lag of a view.

    Args:
        timeline: The timeline of the table.
        view: The view, in general the newest one.
        config: The configuration under that view.

    Returns:
        The lag.
    """
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
    """Find the slot of the oldest log file that is not compacted; 0 if there is none."""
    return min((group.logs[0].seq for group in view.groups_behind()), default=0)
