"""What stays: the oldest snapshot that cleaning keeps readable, and partitions that outlived their time.

The first is a rule over slots, superseded files and consumers; the second a commit like any other, whose decision is
made anew on every view it is tried on, so that a partition that was written meanwhile stays. Deletes no file itself.
`check` refuses a value of partition_ttl_hours that the table cannot have; other rules for options are in
timeline/properties/table_options.py.
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
from hoodoo.writers.context import Context
from hoodoo.writers.operations import Committed, commit
from hoodoo.writers.routing.write_plan import WritePlan

_HOUR_MS = 3_600_000


# ---- snapshots
@dataclass(frozen=True)
class Retention:
    """How much history to keep: of `hours`, at least `commits` commits, at most `versions` of a file group, and
    consumers up to `consumer_hours` beyond (None: for none).
    """

    hours: float
    commits: int
    versions: int | None = None
    consumer_hours: float | None = None


def retention(
    options: Options, hours: float | None = None, commits: int | None = None, versions: int | None = None
) -> Retention:
    """Take the retention of the table, with the arguments that are given instead of its options."""
    return Retention(
        options.retain_hours if hours is None else hours,
        max(1, options.retain_commits if commits is None else commits),
        options.retain_versions if versions is None else versions,
        options.consumer_hours,
    )


def oldest_kept(timeline: TableTimeline, view: View, keep: Retention) -> int:
    """The oldest slot to keep readable: by time and commits; not so old that a file group needs too many versions; no
    newer than a consumer.
    """
    oldest = max(oldest_retained(timeline, view, keep.hours, keep.commits), oldest_by_versions(view, keep.versions))
    waiting = [consumer.position for consumer in awaited(timeline, view, keep)]
    return max(view.min_readable, min([oldest, *waiting]))


def oldest_retained(timeline: TableTimeline, view: View, hours: float, commits: int) -> int:
    """The oldest slot within the last `hours`, or among the newest `commits` commits if that is older.

    Without hours the time says nothing. A slot may be dated a millisecond ahead of the clock, so asking the clock would
    keep what a slot of this very moment dropped.
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
    """The slot that was the newest `hours` ago; the oldest there is if none was."""
    history, since = timeline.history, timeline.environment.now_ms() - int(hours * _HOUR_MS)
    first = history.oldest_slot()
    return history.last_completed_by(since) if history.slot(first).completed_at <= since else first


def oldest_by_versions(view: View, versions: int | None) -> int:
    """The oldest slot from which on no file group needs more than `versions` versions; 0 without a limit.

    A version is a base file with its logs: what of a group was superseded by one slot.
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
        more = len(slots) + (view.group(partition, file_id) is not None) - versions
        if more > 0:
            oldest = max(oldest, sorted(slots)[more - 1])
    return oldest


def awaited(timeline: TableTimeline, view: View, keep: Retention) -> list[consumers.StoredConsumer]:
    """Consumers that cleaning waits for: those that have read something, and are not further behind
    than they may be.
    """
    found = (
        []
        if keep.consumer_hours is None
        else [one for one in consumers.all_of(timeline.store) if 0 < one.position <= view.seq]
    )
    if not found or keep.consumer_hours is None:
        return []
    since = _oldest_since(timeline, keep.hours + keep.consumer_hours)
    return [consumer for consumer in found if consumer.position >= max(since, view.min_readable)]


# ---- partitions
@dataclass(frozen=True)
class Expired:
    """The partitions that were dropped because nobody wrote to them for a time.

    Attributes:
        partitions: The paths of the partitions.
        rows: How many rows their base files had.
        instant: The instant of the commit, or '' where no partition was dropped.
    """

    partitions: tuple[str, ...] = ()
    rows: int = 0
    instant: str = ""


def check(options: Options, partition_by: Sequence[str]) -> Options:
    """`options` if they fit a table partitioned by these columns. Raises OptionError."""
    hours = options.partition_ttl_hours
    if hours is not None and not partition_by:
        raise OptionError(
            "partition_ttl_hours drops whole partitions, and this table has none. Leave it out, and call "
            "delete(where=...) instead, which deletes the rows that match.",
            option="partition_ttl_hours",
        )
    if hours == 0:
        raise OptionError(
            "partition_ttl_hours takes a number above 0: no partition would live.", option="partition_ttl_hours"
        )
    return options


def expire(context: Context, hours: float) -> tuple[Expired, Committed]:
    """Drop the partitions in which no row was written for `hours`. What services rewrote or moved
    is as old as before.
    """
    dropped: list[str] = []

    def propose(view: View, config: TableConfig) -> WritePlan | None:
        dropped[:] = outlived(context.timeline, view, hours)
        groups = list(view.groups(dropped))
        if not groups:
            return None
        return WritePlan(
            replaced=tuple((group.partition, group.file_id) for group in groups),
            overwrites=frozenset(dropped),
            removed_rows=sum(group.base.file.rows for group in groups if group.base),
            exact=not any(group.logs for group in groups),
        )

    result = commit(context, "DELETE_PARTITION", propose)
    return (Expired(tuple(dropped), result.deleted, result.instant) if result.instant else Expired()), result


def outlived(timeline: TableTimeline, view: View, hours: float) -> list[str]:
    """Partitions of `view` in which no row was written for `hours`, in order."""
    since = timeline.environment.now_ms() - int(hours * _HOUR_MS)
    old = [
        partition
        for partition, groups in sorted(view.partitions.items())
        if not any(
            last_written_ms(timeline.history, entry, since) > since
            for group in groups.values()
            for entry in group.files()
            if _brings_rows(entry.file)
        )
    ]
    return sorted(set(old) - _completed_late(timeline.history, view, since)) if old else []


def _brings_rows(file: DataFile) -> bool:
    """Tell whether a file holds a row, as far as is known.

    A log file with deletes only does not, so it makes no partition young.
    """
    return file.kind != LOG or not file.digest or file.rows > file.deletes


def _completed_late(history: History, view: View, since: int) -> set[str]:
    """Partitions that were written by commits requested before `since` and completed after it.

    Rows carry the instant that was requested, so once a service rewrote or merged them only the slots tell. No write
    takes longer than SLOW_WRITE_MS; of archived slots the request has to do.
    """
    found: set[str] = set()
    for seq in range(
        history.last_completed_by(since), min(view.seq, history.last_completed_by(since + SLOW_WRITE_MS)) + 1
    ):
        try:
            slot = history.slot(seq)
        except SnapshotExpired:
            continue
        if slot.writes_rows and ms_of_instant(slot.instant) <= since < slot.completed_at:
            found |= {file.partition for file in slot.files if file.inserts or file.updates or not file.digest}
    return found


def last_written_ms(history: History, entry: AddedFile, enough: int) -> int:
    """When the newest row of a file was written, in ms since 1970. Rows that the file's own commit brought are as old
    as the commit's completion.

    enough: a time after this is not looked at more closely. Where statistics do not tell, the file's own slot counts:
    too young, never too old.
    """
    stats = entry.file.stats.get(COMMIT_TIME)
    newest = stats[1] if stats else None
    try:
        at = ms_of_instant(newest) if newest else 0
    except ValueError:
        newest, at = None, 0
    if at > enough:
        return at
    parsed = parse_data_file(entry.file.name)
    own = parsed.instant if parsed else ""
    if newest is None or newest == own:
        try:
            return max(at, history.slot(entry.seq).completed_at)
        except SnapshotExpired:
            return max(at, ms_of_instant(own)) if own else at  # archived: older than any retention
    return at
