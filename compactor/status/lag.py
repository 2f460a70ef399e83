"""Lag of table services."""

from __future__ import annotations

from dataclasses import dataclass

from hoodoo.compactor.cleaning.clean import cleanable
from hoodoo.compactor.cleaning.retention import find_oldest_kept_snapshot, retention
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.views.view import View


@dataclass(frozen=True)
class Lag:
    """Lag of table services.

    All values are 0 if no work is left.

    Attributes:
        log_files_max: The largest number of log files in one file group.
        log_bytes: Total size of the log files that wait for compaction, in bytes.
        base_bytes: Total size of the base files of file groups with log files, in bytes.
        groups_behind: Number of file groups with log files.
        oldest_delta_seconds: Age of the oldest log file that waits for compaction, in seconds.
        open_plans: Number of plans that are requested but not completed.
        oldest_plan_seconds: Age of the oldest open plan, in seconds.
        cleanable_bytes: Total size of the files that cleaning would delete now, in bytes.
    """

    log_files_max: int = 0
    log_bytes: int = 0
    base_bytes: int = 0
    groups_behind: int = 0
    oldest_delta_seconds: float = 0.0
    open_plans: int = 0
    oldest_plan_seconds: float = 0.0
    cleanable_bytes: int = 0


def measure(timeline: TableTimeline, view: View, config: TableConfig) -> Lag:
    totals = view.totals
    now = timeline.environment.now_ms()
    oldest = max(oldest_log_commit_number(view), timeline.history.oldest_slot()) if totals.behind else 0
    retained = find_oldest_kept_snapshot(timeline, view, retention(config.options))
    return Lag(
        log_files_max=totals.logs_max,
        log_bytes=totals.log_bytes,
        base_bytes=totals.bytes_behind,
        groups_behind=totals.behind,
        oldest_delta_seconds=max(0.0, (now - timeline.history.slot(oldest).completed_at) / 1000) if oldest else 0.0,
        open_plans=len(view.plans),
        oldest_plan_seconds=max(
            (max(0.0, (now - plan.planned_at) / 1000) for plan in view.plans.values()), default=0.0
        ),
        cleanable_bytes=sum(entry.size for entry in cleanable(view, retained)),
    )


def oldest_log_commit_number(view: View) -> int:
    return min((group.logs[0].seq for group in view.groups_behind()), default=0)
