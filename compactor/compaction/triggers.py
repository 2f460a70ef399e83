"""Triggers: the four signs that a file group is due for compaction. One of them is enough.

This module decides on a view alone. What is done about a group that is due is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hoodoo.errors import OptionError
from hoodoo.timeline.properties.table_options import Options
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.views.view import FileGroup, View

_BASE_MIN = 16 << 20  # a smaller base is rewritten in no time
_PAYS = 8  # a full compaction costs too much while the base has this many times the bytes of its logs
_COSTLY_AGE = 24  # where it does, age counts only after so many times as long
# below this many log bytes only their number and age count: a tiny table would be compacted after every commit
_BYTES_MIN = 1 << 20


@dataclass(frozen=True)
class Triggers:
    """The signs that a file group is due; one of them is enough, and None switches a sign off.

    Attributes:
        logs: The group has this many log files.
        age_s: The oldest log file of the group was committed this many seconds ago; 24 times as long ago where the base
            file is large beside the log files.
        log_ratio: The log files of the group have this many bytes for each byte of its base file.
        read_amplification: Reading the table takes this many bytes for each byte that it would take compacted. Then the
            groups with the most log bytes are due, as many as bring it below.
    """

    logs: int | None = 5
    age_s: float | None = 600.0
    log_ratio: float | None = 0.5
    read_amplification: float | None = 1.5

    def __post_init__(self) -> None:
        if self.logs is not None and self.logs < 1:
            raise OptionError(f"logs_min takes a whole number from 1, got {self.logs!r}.", option="logs_min")

    @staticmethod
    def of(options: Options, logs_min: int | None = None) -> Triggers:
        """Take the triggers from the table's options.

        Without `logs_min` a group is due at half of the log files at which a writer compacts by itself, so that a
        living worker is always first.
        """
        default = Options.compact_after_logs or 1
        half = max(1, (default if options.compact_after_logs is None else options.compact_after_logs) // 2)
        return Triggers(
            logs_min or half, options.compact_age_s, options.compact_log_ratio, options.compact_read_amplification
        )


def log_bytes(group: FileGroup) -> int:
    """Add up the sizes of the log files of a group, in bytes."""
    return sum(log.file.size for log in group.logs)


def costly(group: FileGroup) -> bool:
    """Tell whether a full compaction would rewrite a large base file for few log bytes."""
    return group.base_bytes > max(_BASE_MIN, _PAYS * log_bytes(group))


def read_amplification(view: View) -> float:
    """Bytes that a snapshot read takes per byte of base files; 1.0 without logs."""
    totals = view.totals
    return 1.0 + totals.log_bytes / totals.base_bytes if totals.base_bytes else 1.0


def behind(view: View, logs_min: int = 1) -> list[FileGroup]:
    """File groups with at least `logs_min` logs over a base that no plan holds."""
    planned = view.planned_ids()
    return [group for group in view.groups_behind(logs_min) if group.base and group.file_id not in planned]


def due(timeline: TableTimeline, view: View, triggers: Triggers) -> list[FileGroup]:
    """File groups of `view` that a trigger names and no open plan holds."""
    waiting = behind(view)
    old, ancient = (
        _committed_by(timeline, view, triggers.age_s and triggers.age_s * times) for times in (1, _COSTLY_AGE)
    )
    found = {group.file_id for group in waiting if _is_due(group, triggers, ancient if costly(group) else old)}
    if triggers.read_amplification is not None:
        found |= set(_to_bring_below(view, waiting, triggers.read_amplification))
    return [group for group in waiting if group.file_id in found]


def _is_due(group: FileGroup, triggers: Triggers, old_seq: int) -> bool:
    many = triggers.logs is not None and len(group.logs) >= triggers.logs
    heavy = triggers.log_ratio is not None and log_bytes(group) > max(group.base_bytes * triggers.log_ratio, _BYTES_MIN)
    return many or heavy or group.logs[0].seq <= old_seq


def _committed_by(timeline: TableTimeline, view: View, age_s: float | None) -> int:
    """The newest slot that was complete `age_s` seconds ago; 0 if none was, or age does not count."""
    if age_s is None:
        return 0
    if not age_s:  # a slot may be dated a moment ahead of the clock
        return view.seq
    history, before = timeline.history, timeline.environment.now_ms() - int(age_s * 1000)
    return (
        min(view.seq, history.last_completed_by(before))
        if history.slot(history.oldest_slot()).completed_at <= before
        else 0
    )


def _to_bring_below(view: View, waiting: Iterable[FileGroup], limit: float) -> list[str]:
    base, logs = view.totals.base_bytes, view.totals.log_bytes
    found = []
    for group in sorted(waiting, key=log_bytes, reverse=True):
        if logs <= max(base * (limit - 1), _BYTES_MIN):
            break
        found.append(group.file_id)
        logs -= log_bytes(group)
    return found
