"""Conditions that trigger the compaction of a file.

A worker compacts a file group if one of four conditions is true. The functions depend only on a view and the timeline.
They do not compact anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hoodoo.errors import OptionError
from hoodoo.timeline.properties.table_options import Options
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.views.view import FileGroup, View

_BASE_MIN = 16 << 20  # rewriting a smaller base is cheap
_PAYS = 8  # a full compaction is too expensive if the base has more than this many times the bytes of its logs
_COSTLY_AGE = 24  # factor for `age_seconds` if a full compaction is too expensive
# fewer log bytes only count by number and age of logs, since otherwise each commit would compact a tiny table
_BYTES_MIN = 1 << 20


@dataclass(frozen=True)
class CompactionTriggers:
    """Conditions that trigger the compaction of a file.

    One true condition is enough. None disables a condition.

    Attributes:
        logs: Minimum number of log files of the group.
        age_seconds: Minimum age of the group's oldest log file, in seconds. If the base file is large compared to the
            log files, the minimum is 24 times this age.
        log_ratio: Maximum ratio of the bytes of the group's log files to the bytes of its base file. A group above it
            is due.
        read_amplification: Maximum ratio of the bytes that a snapshot read needs to the bytes of base files. If the
            table exceeds it, the groups with the most log bytes are due, until the rest is below the maximum.
    """

    logs: int | None = 5
    age_seconds: float | None = 600.0
    log_ratio: float | None = 0.5
    read_amplification: float | None = 1.5

    def __post_init__(self) -> None:
        if self.logs is not None and self.logs < 1:
            raise OptionError(
                f"Option logs_min is invalid: expected an integer of at least 1, got {self.logs!r}.", option="logs_min"
            )

    @staticmethod
    def from_table_options(options: Options, logs_min: int | None = None) -> CompactionTriggers:
        """Create compaction conditions from table options.

        Without `logs_min`, a file group is due at half of `compact_after_logs`, so that a worker compacts it before a
        writer has to.
        """
        default = Options.compact_after_logs or 1
        half = max(1, (default if options.compact_after_logs is None else options.compact_after_logs) // 2)
        return CompactionTriggers(
            logs_min or half, options.compact_age_seconds, options.compact_log_ratio, options.compact_read_amplification
        )


def log_bytes(group: FileGroup) -> int:
    return sum(log.file.size for log in group.logs)


def is_base_rewrite_costly(group: FileGroup) -> bool:
    return group.base_bytes > max(_BASE_MIN, _PAYS * log_bytes(group))


def read_amplification(view: View) -> float:
    totals = view.totals
    return 1.0 + totals.log_bytes / totals.base_bytes if totals.base_bytes else 1.0


def behind(view: View, logs_min: int = 1) -> list[FileGroup]:
    planned = view.planned_ids()
    return [group for group in view.groups_behind(logs_min) if group.base and group.file_id not in planned]


def find_files_to_compact(timeline: TableTimeline, view: View, triggers: CompactionTriggers) -> list[FileGroup]:
    """Find the files that a worker should compact."""
    waiting = behind(view)
    old, very_old = (
        _newest_slot_of_age(timeline, view, triggers.age_seconds and triggers.age_seconds * times)
        for times in (1, _COSTLY_AGE)
    )
    due_ids = {
        group.file_id
        for group in waiting
        if _is_due(group, triggers, very_old if is_base_rewrite_costly(group) else old)
    }
    if triggers.read_amplification is not None:
        due_ids |= set(_to_bring_below(view, waiting, triggers.read_amplification))
    return [group for group in waiting if group.file_id in due_ids]


def _is_due(group: FileGroup, triggers: CompactionTriggers, old_seq: int) -> bool:
    has_many = triggers.logs is not None and len(group.logs) >= triggers.logs
    is_heavy = triggers.log_ratio is not None and log_bytes(group) > max(
        group.base_bytes * triggers.log_ratio, _BYTES_MIN
    )
    return has_many or is_heavy or group.logs[0].seq <= old_seq


def _newest_slot_of_age(timeline: TableTimeline, view: View, age_seconds: float | None) -> int:
    # 0 if there is no such slot, or if `age_seconds` is None.
    if age_seconds is None:
        return 0
    if not age_seconds:  # the time of a slot may be slightly ahead of the clock
        return view.seq
    history, before = timeline.history, timeline.environment.now_ms() - int(age_seconds * 1000)
    return (
        min(view.seq, history.find_last_completed_by(before))
        if history.slot(history.oldest_slot()).completed_at <= before
        else 0
    )


def _to_bring_below(view: View, waiting: Iterable[FileGroup], limit: float) -> list[str]:
    base, logs = view.totals.base_bytes, view.totals.log_bytes
    file_ids = []
    for group in sorted(waiting, key=log_bytes, reverse=True):
        if logs <= max(base * (limit - 1), _BYTES_MIN):
            break
        file_ids.append(group.file_id)
        logs -= log_bytes(group)
    return file_ids
