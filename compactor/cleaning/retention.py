"""Retention of snapshots and expiry of partitions.

The oldest snapshot depends on slots, superseded files and consumers. Expiry drops partitions in an ordinary commit. It
decides again in each attempt, so a partition that was written in the meantime stays. This module deletes no files.

`check` validates partition_ttl_hours. The rules for other options are in timeline/properties/table_options.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hoodoo.errors import OptionError, SnapshotExpired
from hoodoo.format.names import COMMIT_TIME, ms_of_instant, parse_data_file
from hoodoo.timeline.history import History
from hoodoo.timeline.holds import consumers
from hoodoo.timeline.hudi.publish import SLOW_WRITE_MS
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.properties.table_options import Options
from hoodoo.timeline.slots.slot import LOG, DataFile
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.views.view import AddedFile, View
from hoodoo.writers.committed import Committed
from hoodoo.writers.context import Context
from hoodoo.writers.operations import commit_write
from hoodoo.writers.routing.write_plan import WritePlan

_HOUR_MS = 3_600_000


# ---- snapshots
@dataclass(frozen=True)
class Retention:
    """Rule for keeping old snapshots.

    Cleaning keeps the snapshots of the last `hours` hours and of the newest `commits` commits, but at most `versions`
    versions of a file group (None: no limit). It keeps files that consumers have not read for up to `consumer_hours`
    hours more (None: it does not keep them).
    """

    hours: float
    commits: int
    versions: int | None = None
    consumer_hours: float | None = None


def retention(
    options: Options, hours: float | None = None, commits: int | None = None, versions: int | None = None
) -> Retention:
    return Retention(
        options.retain_hours if hours is None else hours,
        max(1, options.retain_commits if commits is None else commits),
        options.retain_versions if versions is None else versions,
        options.consumer_hours,
    )


def find_oldest_kept_snapshot(timeline: TableTimeline, view: View, keep: Retention) -> int:
    """Find the oldest snapshot that cleaning keeps.

    Returns its commit number. The slot follows from the retained hours and commits. It is newer if a file group would
    need too many versions, and older if a consumer still has to read from an older slot.
    """
    oldest = max(
        find_oldest_retained_commit(timeline, view, keep.hours, keep.commits),
        find_oldest_commit_within_limit(view, keep.versions),
    )
    waiting = [consumer.position for consumer in list_consumers_delaying_cleaning(timeline, view, keep)]
    return max(view.min_readable, min([oldest, *waiting]))


def find_oldest_retained_commit(timeline: TableTimeline, view: View, hours: float, commits: int) -> int:
    """Find the oldest commit within the retention.

    If `hours` is 0, only `commits` counts. The clock is not used then, because the time of a slot may be a millisecond
    ahead of it.
    """
    history = timeline.history
    by_time = _oldest_since(timeline, hours) if hours else view.seq
    by_commits, left = view.seq, commits
    while by_commits > max(1, view.min_readable):
        left -= history.slot(by_commits).writes_rows
        if left <= 0:
            break
        by_commits -= 1
    return max(view.min_readable, min(by_time, by_commits))


def _oldest_since(timeline: TableTimeline, hours: float) -> int:
    # The result is the oldest existing slot if all slots are younger.
    history, since = timeline.history, timeline.environment.now_ms() - int(hours * _HOUR_MS)
    first = history.oldest_slot()
    return history.find_last_completed_by(since) if history.slot(first).completed_at <= since else first


def find_oldest_commit_within_limit(view: View, versions: int | None) -> int:
    """Find the oldest commit within the limit of versions to keep.

    A version is a base file with its logs. The files of a file group that one slot superseded count as one version.
    """
    if versions is None:
        return 0
    dropped: dict[tuple[str, str], set[int]] = {}
    for entry in view.superseded:
        parsed = parse_data_file(entry.path.rpartition("/")[2])
        if parsed:
            dropped.setdefault((entry.partition, parsed.file_id), set()).add(entry.dropped)
    oldest = 0
    for (partition, file_id), slots in dropped.items():
        excess = len(slots) + (view.group(partition, file_id) is not None) - versions
        if excess > 0:
            oldest = max(oldest, sorted(slots)[excess - 1])
    return oldest


def list_consumers_delaying_cleaning(
    timeline: TableTimeline, view: View, keep: Retention
) -> list[consumers.StoredConsumer]:
    """List the consumers that delay cleaning.

    Cleaning keeps files that these consumers have not read. These consumers have read at least one slot, and lag by no
    more than `keep.hours + keep.consumer_hours`.
    """
    active = (
        []
        if keep.consumer_hours is None
        else [
            awaited_consumer
            for awaited_consumer in consumers.all_of(timeline.store)
            if 0 < awaited_consumer.position <= view.seq
        ]
    )
    if not active or keep.consumer_hours is None:
        return []
    since = _oldest_since(timeline, keep.hours + keep.consumer_hours)
    return [consumer for consumer in active if consumer.position >= max(since, view.min_readable)]


# ---- partitions
@dataclass(frozen=True)
class Expired:
    """Result of dropping expired partitions.

    Attributes:
        partitions: The paths of the partitions.
        rows: Number of rows in their base files.
        instant: The instant of the commit, or '' if no partition was dropped.
    """

    partitions: tuple[str, ...] = ()
    rows: int = 0
    instant: str = ""


def check_partition_ttl(options: Options, partition_by: Sequence[str]) -> Options:
    """Check the option partition_ttl_hours.

    Returns `options` unchanged.

    Raises:
        OptionError: partition_ttl_hours is set for an unpartitioned table, or is 0.
    """
    hours = options.partition_ttl_hours
    if hours is not None and not partition_by:
        raise OptionError(
            "Option partition_ttl_hours is not allowed for a table without partitions, because it drops whole "
            "partitions. Leave it out, and delete rows with delete(where=...).",
            option="partition_ttl_hours",
        )
    if hours == 0:
        raise OptionError(
            "Option partition_ttl_hours is invalid: expected a number above 0, because 0 would drop all partitions.",
            option="partition_ttl_hours",
        )
    return options


def drop_expired_partitions(context: Context, hours: float) -> tuple[Expired, Committed]:
    """Drop partitions without recent rows.

    A partition expires if it received no rows for `hours`. One commit drops all of them. Rows that a table service
    rewrote or moved keep their original age.
    """
    dropped: list[str] = []

    def propose(view: View, config: TableConfig) -> WritePlan | None:
        dropped[:] = find_expired_partitions(context.timeline, view, hours)
        groups = list(view.groups(dropped))
        if not groups:
            return None
        return WritePlan(
            replaced=tuple((group.partition, group.file_id) for group in groups),
            overwrites=frozenset(dropped),
            removed_rows=sum(group.base.file.rows for group in groups if group.base),
            exact=not any(group.logs for group in groups),
        )

    result = commit_write(context, "DELETE_PARTITION", propose)
    return (Expired(tuple(dropped), result.deleted, result.instant) if result.instant else Expired()), result


def find_expired_partitions(timeline: TableTimeline, view: View, hours: float) -> list[str]:
    since = timeline.environment.now_ms() - int(hours * _HOUR_MS)
    old = [
        partition
        for partition, groups in sorted(view.partitions.items())
        if not any(
            estimate_newest_row_time_ms(timeline.history, entry, since) > since
            for group in groups.values()
            for entry in group.files()
            if _may_contain_rows(entry.file)
        )
    ]
    return sorted(set(old) - _partitions_of_late_commits(timeline.history, view, since)) if old else []


def _may_contain_rows(file: DataFile) -> bool:
    # A log file that only has deletes does not delay the expiry of its partition.
    return file.kind != LOG or not file.digest or file.rows > file.deletes


def _partitions_of_late_commits(history: History, view: View, since: int) -> set[str]:
    # Partitions of commits that began before `since` and completed after it. Rows contain the time of the request, so
    # after a service has rewritten them, only the slots show the completion time. No write is assumed to take longer
    # than SLOW_WRITE_MS.
    late: set[str] = set()
    for seq in range(
        history.find_last_completed_by(since), min(view.seq, history.find_last_completed_by(since + SLOW_WRITE_MS)) + 1
    ):
        try:
            slot = history.slot(seq)
        except SnapshotExpired:
            continue
        if slot.writes_rows and ms_of_instant(slot.instant) <= since < slot.completed_at:
            late |= {file.partition for file in slot.files if file.inserts or file.updates or not file.digest}
    return late


def estimate_newest_row_time_ms(history: History, entry: AddedFile, enough: int) -> int:
    """Estimate the write time of a file's newest row.

    The time is in milliseconds since 1970. For rows that the commit of the file wrote, this is the completion time of
    that commit. Without statistics, it is the completion time of the slot that added the file. The result may be too
    late, but never too early.

    If the time is after `enough`, it need not be exact.
    """
    stats = entry.file.stats.get(COMMIT_TIME)
    newest = stats[1] if stats else None
    try:
        newest_ms = ms_of_instant(newest) if newest else 0
    except ValueError:
        newest, newest_ms = None, 0
    if newest_ms > enough:
        return newest_ms
    parsed = parse_data_file(entry.file.name)
    file_instant = parsed.instant if parsed else ""
    if newest is None or newest == file_instant:
        try:
            return max(newest_ms, history.slot(entry.seq).completed_at)
        except SnapshotExpired:
            return (
                max(newest_ms, ms_of_instant(file_instant)) if file_instant else newest_ms
            )  # an archived slot is older than any retention
    return newest_ms
