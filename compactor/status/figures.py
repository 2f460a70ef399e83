"""Figures of one table: what services owe and how well it is laid out. Measured from a view, so that they cost no
listing of data.

Who shows them (metrics, the command line) and what to do about them is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from statistics import median

from hoodoo.compactor import heartbeats
from hoodoo.compactor.cleaning.clean import cleanable
from hoodoo.compactor.cleaning.retention import oldest_kept, retention
from hoodoo.compactor.compaction.triggers import read_amplification
from hoodoo.compactor.status import lag
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.view import View

OPEN, RUNNING, POSTPONED = "open", "running", "postponed"


@dataclass(frozen=True)
class Figures:
    """logs: of each file group, 0 too. lag_commits, lag_seconds: since the oldest log that is not compacted. plans:
    state -> how many.

    read_amplification: bytes that a snapshot read takes per byte compacted. backpressure: do logs make writers wait?
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

    @property
    def logs_max(self) -> int:
        return max(self.logs, default=0)

    @property
    def groups_behind(self) -> int:
        return sum(1 for count in self.logs if count)


def measure(timeline: TableTimeline, view: View, config: TableConfig, postponed: Collection[str] = ()) -> Figures:
    """postponed: instants of plans that the asking worker puts off because they failed."""
    options = config.options
    totals = view.totals
    logs = (0,) * (totals.groups - totals.behind) + tuple(
        number for number, groups in sorted(totals.by_logs.items()) for _ in range(groups)
    )
    owed = lag.measure(timeline, view, config)
    oldest = lag.oldest_log(view)
    first = max(oldest, timeline.history.oldest_slot())
    states = dict.fromkeys((OPEN, RUNNING, POSTPONED), 0)
    for instant in view.plans:
        held = heartbeats.held(timeline.store, instant, timeline.environment.now_ms())
        states[RUNNING if held else POSTPONED if instant in postponed else OPEN] += 1
    return Figures(
        head=view.seq,
        commits=view.commits,
        groups=totals.groups,
        logs=logs,
        log_bytes=owed.log_bytes,
        base_bytes=totals.base_bytes,
        read_amplification=read_amplification(view),
        file_bytes_median=_median(view),
        small_files=view.bases_below(-(-options.target_file_bytes // 2)),
        lag_commits=sum(slot.writes_rows for slot in timeline.history.slots(first - 1, view.seq)) if oldest else 0,
        lag_seconds=owed.oldest_delta_s,
        plans=states,
        oldest_plan_seconds=owed.oldest_plan_s,
        cleanable_bytes=sum(entry.size for entry in cleanable(view, oldest_kept(timeline, view, retention(options)))),
        min_readable=view.min_readable,
        backpressure=options.slow_after_logs is not None and max(logs, default=0) >= options.slow_after_logs,
    )


def _median(view: View) -> float:
    sizes = [group.base.file.size for group in view.groups() if group.base]
    return float(median(sizes)) if sizes else 0.0
