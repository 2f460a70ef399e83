"""Cleaning: deletes files that no snapshot within retention can need. Which those are follows from the slots; nothing
is listed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hoodoo.compactor.cleaning.retention import Retention, oldest_kept, oldest_retained, retention
from hoodoo.errors import CommitConflict, SnapshotExpired
from hoodoo.timeline.commits.draft import Conflict, SlotDraft
from hoodoo.timeline.commits.retry import Retry
from hoodoo.timeline.holds import leases
from hoodoo.timeline.instant import CLEAN
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.views.view import Superseded, View

# the slot that was the oldest may be archived meanwhile
_CLEANS = Retry(errors=(Conflict, SnapshotExpired))


@dataclass
class CleanResult:
    """What a clean did.

    Attributes:
        min_readable: The oldest slot whose snapshot stays readable.
        files: How many data files were deleted.
        bytes: The size of these files, in bytes.
        instant: The instant of the clean, or '' where nothing was deleted.
        why: What keeps files, in words, where `Table.clean` deleted nothing; '' otherwise.
    """

    min_readable: int
    files: int = 0
    bytes: int = 0
    instant: str = ""
    why: str = ""


def cleanable(view: View, min_readable: int, held: Iterable[int] = ()) -> list[Superseded]:
    """Superseded files that neither a snapshot from `min_readable` on, nor a savepoint, nor a slot in `held`, nor an
    open plan needs.
    """
    pinned = {path for plan in view.plans.values() for group in plan.groups for path in (group.base, *group.logs)}
    kept = {*view.savepoints.values(), *held}
    return [
        entry
        for entry in view.superseded
        if entry.dropped <= min_readable and entry.path not in pinned and not any(map(entry.in_snapshot, kept))
    ]


def clean(
    timeline: TableTimeline,
    config: TableConfig,
    hours: float | None = None,
    commits: int | None = None,
    versions: int | None = None,
) -> CleanResult:
    """Decide by a slot, then delete. hours, commits, versions: retention for this call instead of the table's."""
    return _clean(timeline, retention(config.options, hours, commits, versions), worth_slots=0)


def forget(timeline: TableTimeline, config: TableConfig, hours: float, worth_slots: int) -> CleanResult:
    """As `clean`, but also where nothing is to be deleted, if at least `worth_slots` slots more than now need not stay
    readable.
    """
    return _clean(timeline, retention(config.options, hours), worth_slots)


def _clean(timeline: TableTimeline, keep: Retention, worth_slots: int) -> CleanResult:
    """worth_slots: 0 if only files to delete are worth a slot."""
    try:
        return _CLEANS.run(timeline.environment, lambda: _once(timeline, keep, worth_slots))
    except CommitConflict:
        return CleanResult(timeline.history.head().min_readable)  # a later clean finds the same


def _once(timeline: TableTimeline, keep: Retention, worth_slots: int) -> CleanResult:
    view = timeline.history.head()
    oldest = oldest_kept(timeline, view, keep)
    doomed = cleanable(view, oldest)
    forgets = bool(worth_slots) and oldest - max(view.min_readable, timeline.history.oldest_slot()) >= worth_slots
    if not doomed and not forgets:
        return CleanResult(view.min_readable)
    with timeline.attempt(CLEAN) as attempt:
        held = leases.held(timeline.store)

        def draft(newest: View) -> SlotDraft | None:
            waits = oldest_kept(timeline, newest, keep) < oldest  # a consumer registered since
            return None if waits else draft_of(newest, oldest, held, forgets)

        slot = attempt.complete(draft)
    sizes = {entry.path: entry.size for entry in doomed}
    return CleanResult(oldest, len(slot.victims), sum(sizes.get(path, 0) for path, _ in slot.victims), slot.instant)


def draft_of(view: View, oldest: int, held: Iterable[int], forgets: bool = False) -> SlotDraft | None:
    """A clean of everything that may go once snapshots before slot `oldest` may; None if there is nothing to say."""
    doomed = cleanable(view, oldest, held)
    if not doomed and not (forgets and oldest > view.min_readable):
        return None
    gone = {entry.path for entry in doomed}
    in_use = {entry.file.index for group in view.groups() for entry in group.files()} | {
        entry.index for entry in view.superseded if entry.path not in gone
    }
    indexes = sorted({entry.index for entry in doomed if entry.index} - in_use)
    return SlotDraft(
        "CLEAN",
        victims=tuple((entry.path, entry.partition) for entry in doomed),
        swept=tuple(indexes),
        min_readable=oldest,
    )


__all__ = ["CleanResult", "clean", "cleanable", "draft_of", "forget", "oldest_retained"]
