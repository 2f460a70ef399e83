"""Cleaning, which deletes unused data files.

A file is unused if no retained snapshot needs it. The files to delete follow from the slots, so cleaning does not list
the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hoodoo.compactor.cleaning.retention import Retention, find_oldest_kept_snapshot, retention
from hoodoo.errors import CommitConflict, SnapshotExpired
from hoodoo.timeline.commits.draft import Conflict, SlotDraft
from hoodoo.timeline.commits.retry import RetrySettings
from hoodoo.timeline.holds import leases
from hoodoo.timeline.instant import CLEAN
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.views.view import ReplacedFile, View

# the oldest slot may be archived in the meantime
_NOT_DELETED = "this process may not delete the files. A process with permission deletes them when it opens the table"
_CLEANS = RetrySettings(errors=(Conflict, SnapshotExpired))


@dataclass
class CleanResult:
    """Result of a clean operation.

    Attributes:
        min_readable: The oldest slot whose snapshot stays readable.
        files: Number of data files that were deleted.
        bytes: Total size of the deleted files, in bytes.
        instant: The instant of the clean operation, or '' if it wrote no slot.
        why: The reason why this process deleted nothing. '' if it deleted files.
    """

    min_readable: int
    files: int = 0
    bytes: int = 0
    instant: str = ""
    why: str = ""


def cleanable(view: View, min_readable: int, held: Iterable[int] = ()) -> list[ReplacedFile]:
    pinned = {path for plan in view.plans.values() for group in plan.groups for path in (group.base, *group.logs)}
    kept_slots = {*view.savepoints.values(), *held}
    return [
        entry
        for entry in view.superseded
        if entry.dropped <= min_readable and entry.path not in pinned and not any(map(entry.is_needed_at, kept_slots))
    ]


def clean(
    timeline: TableTimeline,
    config: TableConfig,
    hours: float | None = None,
    commits: int | None = None,
    versions: int | None = None,
) -> CleanResult:
    """Clean a table: delete data files that no retained snapshot needs.

    The files are listed in a commit before they are deleted.

    Args:
        timeline: The timeline of the table.
        config: The configuration of the table.
        hours: Hours of retention for this call. None (default): the table's option.
        commits: Number of retained commits for this call. None (default): the table's option.
        versions: Number of retained versions per file group for this call. None (default): the table's option.
    """
    return _clean(timeline, retention(config.options, hours, commits, versions), worth_slots=0)


def expire_snapshots(timeline: TableTimeline, config: TableConfig, hours: float, worth_slots: int) -> CleanResult:
    """Expire the old snapshots of a table.

    The table is cleaned, and commits of these snapshots can be archived. If no file can be deleted, a slot is written
    only if the oldest readable slot advances by at least `worth_slots`.
    """
    return _clean(timeline, retention(config.options, hours), worth_slots)


def _clean(timeline: TableTimeline, keep: Retention, worth_slots: int) -> CleanResult:
    # If `worth_slots` is 0, a slot is written only if files can be deleted.
    try:
        return _CLEANS.run(timeline.environment, lambda: _once(timeline, keep, worth_slots))
    except CommitConflict:
        return CleanResult(timeline.history.head().min_readable)  # a later clean operation finds the same files


def _once(timeline: TableTimeline, keep: Retention, worth_slots: int) -> CleanResult:
    view = timeline.history.head()
    oldest = find_oldest_kept_snapshot(timeline, view, keep)
    deletable = cleanable(view, oldest)
    forgets = bool(worth_slots) and oldest - max(view.min_readable, timeline.history.oldest_slot()) >= worth_slots
    if not deletable and not forgets:
        return CleanResult(view.min_readable)
    with timeline.attempt(CLEAN) as attempt:
        leased = leases.list_protected_commits(timeline.store)

        def draft(newest: View) -> SlotDraft | None:
            has_older_consumer = (
                find_oldest_kept_snapshot(timeline, newest, keep) < oldest
            )  # a consumer has registered in the meantime
            return None if has_older_consumer else create_clean_commit(newest, oldest, leased, forgets)

        slot = attempt.complete(draft)
    if timeline.publisher.has_unpublished(slot.seq):
        return CleanResult(oldest, instant=slot.instant, why=_NOT_DELETED)
    sizes = {entry.path: entry.size for entry in deletable}
    return CleanResult(oldest, len(slot.victims), sum(sizes.get(path, 0) for path, _ in slot.victims), slot.instant)


def create_clean_commit(view: View, oldest: int, leased: Iterable[int], forgets: bool = False) -> SlotDraft | None:
    """Create the commit of a clean operation.

    Files that the slots in `leased` need stay. Returns None if no file can be deleted, unless `forgets` is True and the
    oldest readable slot advances.
    """
    deletable = cleanable(view, oldest, leased)
    if not deletable and not (forgets and oldest > view.min_readable):
        return None
    deleted_paths = {entry.path for entry in deletable}
    in_use = {entry.file.index for group in view.groups() for entry in group.files()} | {
        entry.index for entry in view.superseded if entry.path not in deleted_paths
    }
    indexes = sorted({entry.index for entry in deletable if entry.index} - in_use)
    return SlotDraft(
        "CLEAN",
        victims=tuple((entry.path, entry.partition) for entry in deletable),
        swept=tuple(indexes),
        min_readable=oldest,
    )


__all__ = ["CleanResult", "clean", "cleanable", "create_clean_commit", "expire_snapshots"]
