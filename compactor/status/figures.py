"""Figures about a table, such as sizes, counts and delays.

The figures come from a view, so no data files have to be listed. Metrics and the command line show the figures.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from statistics import median

from hoodoo.compactor import export_service, heartbeats
from hoodoo.compactor.cleaning.clean import cleanable
from hoodoo.compactor.cleaning.retention import find_oldest_kept_snapshot, retention
from hoodoo.compactor.compaction.triggers import read_amplification
from hoodoo.compactor.status import lag
from hoodoo.exports.results import ExportLag
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.views.view import View

OPEN, RUNNING, POSTPONED = "open", "running", "postponed"


@dataclass(frozen=True)
class TableFigures:
    """Figures about a table, such as sizes, counts and delays.

    Attributes:
        head: The number of the newest slot.
        commits: Number of commits that changed rows.
        groups: Number of file groups in the table.
        logs: Number of log files of each file group, including groups without logs.
        log_bytes: Total size of the log files that wait for compaction, in bytes.
        base_bytes: Total size of the base files, in bytes.
        read_amplification: Number of bytes that a snapshot read needs per byte of base files.
        file_bytes_median: Median size of the base files, in bytes.
        small_files: Number of base files smaller than half the option `target_file_bytes`.
        lag_commits: Number of commits since the oldest log file that waits for compaction, including its own commit.
        lag_seconds: Age of the oldest log file that waits for compaction, in seconds.
        plans: Number of plans in each state: 'open', 'running' and 'postponed'.
        oldest_plan_seconds: Age of the oldest open plan, in seconds.
        cleanable_bytes: Total size of the files that cleaning would delete now, in bytes.
        min_readable: The oldest slot whose snapshot stays readable.
        backpressure: True if a file group has enough log files to make writers wait.
        exports: Lag of each format of the option `export_formats`, by format name.
    """

    head: int
    commits: int
    groups: int
    logs: tuple[int, ...]
    log_bytes: int
    base_bytes: int
    read_amplification: float
    file_bytes_median: float
    small_files: int
    lag_commits: int
    lag_seconds: float
    plans: dict[str, int]
    oldest_plan_seconds: float
    cleanable_bytes: int
    min_readable: int
    backpressure: bool
    exports: dict[str, ExportLag] = field(default_factory=dict)

    @property
    def logs_max(self) -> int:
        """Largest number of log files per file group."""
        return max(self.logs, default=0)

    @property
    def groups_behind(self) -> int:
        """Number of file groups with log files."""
        return sum(1 for count in self.logs if count)


def compute_figures(
    timeline: TableTimeline, view: View, config: TableConfig, postponed: Collection[str] = ()
) -> TableFigures:
    """Compute the figures about a table.

    Args:
        timeline: The timeline of the table.
        view: The view, in general the newest one.
        config: The configuration of the table as of this view.
        postponed: The instants of plans that the calling worker postpones after a failure. Default: no plans.

    Returns:
        The figures.
    """
    options = config.options
    totals = view.totals
    logs = (0,) * (totals.groups - totals.behind) + tuple(
        number for number, groups in sorted(totals.by_logs.items()) for _ in range(groups)
    )
    pending = lag.measure(timeline, view, config)
    oldest = lag.oldest_log_commit_number(view)
    first = max(oldest, timeline.history.oldest_slot())
    states = dict.fromkeys((OPEN, RUNNING, POSTPONED), 0)
    for instant in view.plans:
        is_held = heartbeats.is_plan_running(timeline.store, instant, timeline.environment.now_ms())
        states[RUNNING if is_held else POSTPONED if instant in postponed else OPEN] += 1
    return TableFigures(
        head=view.seq,
        commits=view.commits,
        groups=totals.groups,
        logs=logs,
        log_bytes=pending.log_bytes,
        base_bytes=totals.base_bytes,
        read_amplification=read_amplification(view),
        file_bytes_median=_median(view),
        small_files=view.bases_below(-(-options.target_file_bytes // 2)),
        lag_commits=sum(slot.writes_rows for slot in timeline.history.slots(first - 1, view.seq)) if oldest else 0,
        lag_seconds=pending.oldest_delta_seconds,
        plans=states,
        oldest_plan_seconds=pending.oldest_plan_seconds,
        cleanable_bytes=sum(
            entry.size for entry in cleanable(view, find_oldest_kept_snapshot(timeline, view, retention(options)))
        ),
        min_readable=view.min_readable,
        backpressure=options.slow_after_logs is not None and max(logs, default=0) >= options.slow_after_logs,
        exports={name: _export_lag(timeline, view, name) for name in export_service.formats(config)},
    )


def _export_lag(timeline: TableTimeline, view: View, format: str) -> ExportLag:
    from hoodoo.exports.lag import export_lag  # imported only for tables with exports, because it is slow to import

    return export_lag(timeline.store, timeline.history, view, format, timeline.environment.now_ms())


def _median(view: View) -> float:
    sizes = [group.base.file.size for group in view.groups() if group.base]
    return float(median(sizes)) if sizes else 0.0
