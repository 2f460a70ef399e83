"""Archiving of old commits.

Archiving keeps the opening of a table fast. Slots and Hudi's instants follow different rules (docs/protocol.md). A slot
is deleted if no snapshot, plan, savepoint or slow write can need it. Before that, a watermark with a checkpoint
replaces it.

Instants of Hudi's timeline move into Hudi's history folder. The instants stay from the first one on that has an orphan
file, a replaced file that still exists, or a savepoint, or that is pending, because Hudi treats files older than its
first active instant as committed. They also stay from the first instant that Hudi's metadata table has in a log,
because Hudi skips the logs of instants missing from its timeline.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from hoodoo.compactor.cleaning.clean import expire_snapshots
from hoodoo.compactor.cleaning.sweep import remove_orphan_files
from hoodoo.errors import SnapshotExpired
from hoodoo.format.names import instant_of_ms
from hoodoo.storage.store import Store
from hoodoo.timeline.holds import leases
from hoodoo.timeline.hudi import archived_timeline, metadata_table
from hoodoo.timeline.hudi.archived_timeline import ArchivedEntry
from hoodoo.timeline.hudi.publish import SLOW_WRITE_MS, instants
from hoodoo.timeline.instant import CLEAN, COMPACTION, REPLACE_COMMIT, SAVEPOINT, Instant, State
from hoodoo.timeline.layout import CLAIMS, PUBLISHED, slot_key
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.savepoints import find_snapshot_commit
from hoodoo.timeline.slots import watermark
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.views import checkpoint
from hoodoo.timeline.views.view import View

log = logging.getLogger("hoodoo.compactor")
_HOUR_MS = 3_600_000
_WORTH_SLOTS = 100  # a table without superseded files gives up this many snapshots at a time
_AT_ONCE = 5_000  # maximum number of instants that move at once
_PLANNED = (CLEAN, COMPACTION)  # the requested file of these actions contains a plan that is archived too


@dataclass
class ArchiveResult:
    """Result of archiving old commits.

    Attributes:
        slots: Number of slots that were deleted.
        instants: Number of instants of Hudi's timeline that were moved into its history folder.
        claims: Number of claims of instants that were deleted with the slots. A claim reserves an instant for a write.
        oldest_slot: The oldest slot that still exists.
        kept_by: The reason why `oldest_slot` is kept: 'age', or a description of what needs the slot.
    """

    slots: int = 0
    instants: int = 0
    claims: int = 0
    oldest_slot: int = 0
    kept_by: str = ""


def archive(
    timeline: TableTimeline, config: TableConfig, hours: float | None = None, keep_instants: int | None = None
) -> ArchiveResult:
    """Archive old commits of a table.

    Slots older than `hours` are archived. Hudi instants older than `hours` are archived too, except the newest
    `keep_instants` instants. The defaults are the table's options `archive_after_hours` and `archive_keep_instants`.
    The default for `hours` applies only to slots. Slots and instants always stay if they are younger than the retention
    of snapshots or than the longest possible write.
    """
    options = config.options
    slots_ms = _age_ms(config, options.archive_after_hours if hours is None else hours)
    hudi_ms = _age_ms(config, 0.0 if hours is None else hours)
    expire_snapshots(
        timeline,
        config,
        min(slots_ms, hudi_ms) / _HOUR_MS,
        _WORTH_SLOTS if hours is None and keep_instants is None else 1,
    )
    result = ArchiveResult()
    try:
        view = timeline.heal().view
        bound = metadata_table.find_oldest_needed_commit(timeline.store) if config.metadata_partitions else None
        result.instants = _archive_instants(
            timeline, view, hudi_ms, options.archive_keep_instants if keep_instants is None else keep_instants, bound
        )
        _archive_slots(timeline, view, slots_ms, result)
    except SnapshotExpired:
        log.info("another process is archiving this table, so this process stops archiving it")
    return result


def _age_ms(config: TableConfig, hours: float) -> int:
    return max(int(max(hours, config.options.retain_hours) * _HOUR_MS), SLOW_WRITE_MS)


# ---- slots
def _archive_slots(timeline: TableTimeline, view: View, age_ms: int, result: ArchiveResult) -> None:
    # A watermark with a checkpoint replaces the slots. The counts are stored in `result`.
    history, store = timeline.history, timeline.store
    oldest = history.oldest_slot()
    # A savepoint of the oldest readable snapshot may refer to a commit that is older than the snapshot.
    anchor = find_snapshot_commit(timeline, max(oldest, view.min_readable))
    limits = {"age": _newest_slot_older_than(timeline, view, age_ms), "readable snapshots": anchor - 1}
    limits |= {f"savepoint {name}": seq - 1 for name, seq in view.savepoints.items()} | {
        f"plan {plan.instant}": plan.seq - 1 for plan in view.plans.values()
    }
    result.kept_by = min(limits, key=lambda reason: limits[reason])
    last = limits[result.kept_by]
    result.oldest_slot = max(oldest, last + 1)
    if last < oldest:
        return
    state = checkpoint.encode(history.state(last))
    before = instant_of_ms(history.slot(last).completed_at)
    watermark.record_archived_commits(store, last, state)
    for key in [key for key, _ in store.list(CLAIMS) if key[len(CLAIMS) :] < before]:
        store.delete(key)
        result.claims += 1
    for key in [key for key, _ in store.list(PUBLISHED) if int(key[len(PUBLISHED) :]) <= last]:
        store.delete(key)
    for seq in range(oldest, last + 1):
        store.delete(slot_key(seq))
    result.slots = last - oldest + 1


def _slots_of_plans_and_savepoints(view: View) -> list[int]:
    return [plan.seq for plan in view.plans.values()] + list(view.savepoints.values())


def _newest_slot_older_than(timeline: TableTimeline, view: View, age_ms: int) -> int:
    # The age is measured from the clock and from the completion time of the newest slot. The result is the newest
    # archived slot if all slots are younger.
    history = timeline.history
    ms = min(view.completed_at, timeline.environment.now_ms()) - age_ms
    oldest = history.oldest_slot()
    return history.find_last_completed_by(ms) if history.slot(oldest).completed_at <= ms else oldest - 1


# ---- Hudi's timeline
def _archive_instants(timeline: TableTimeline, view: View, age_ms: int, keep: int, bound: str | None) -> int:
    # The history file, its manifest and its version are written first. Then the active files are deleted, oldest first.
    # `bound` is an instant that has to stay, like all instants after it.
    if _oldest_kept(timeline.store, keep) is None:
        return 0
    last = min(
        _newest_slot_older_than(timeline, view, age_ms),
        view.min_readable - 1,
        *(seq - 1 for seq in _slots_of_plans_and_savepoints(view)),
        *(entry.dropped - 1 for entry in view.superseded),
    )
    if last < max(1, timeline.history.oldest_slot() - 1):
        return 0
    if any(seq < view.min_readable for seq in leases.list_protected_commits(timeline.store)):
        return 0  # such a lease may need files that the view no longer lists
    if not _archivable_instants(timeline, view, last, keep, bound)[0]:
        return 0
    remove_orphan_files(
        timeline, age_ms / _HOUR_MS
    )  # Hudi would otherwise read the orphan files of dead writers as rows
    movable, all_instants = _archivable_instants(timeline, view, last, keep, bound)
    if not movable:
        return 0
    rows = [
        _history_row(timeline.store, instant, all_instants)
        for instant in sorted(movable, key=lambda instant: instant.time)
    ]
    if not archived_timeline.append_to_archive(timeline.store, rows):
        return 0
    moved_times = {instant.time for instant in movable}
    for instant in sorted(
        all_instants, key=lambda instant: (instant.time, instant.state is State.COMPLETED)
    ):  # delete the completed file last, because an instant without it would look pending
        if instant.time in moved_times:
            timeline.store.delete(instant.key)
    return len(movable)


def _archivable_instants(
    timeline: TableTimeline, view: View, last: int, keep: int, bound: str | None
) -> tuple[list[Instant], list[Instant]]:
    all_instants = instants(timeline.store)
    saved = {timeline.history.slot(seq).instant for seq in view.savepoints.values()}
    limit = _limit(
        all_instants,
        instant_of_ms(timeline.history.slot(last + 1).completed_at),
        _oldest_kept(timeline.store, keep) or "",
        saved if bound is None else {*saved, bound},
    )
    return [instant for instant in all_instants if instant.state is State.COMPLETED and instant.time < limit][
        :_AT_ONCE
    ], all_instants


def _oldest_kept(store: Store, keep: int) -> str | None:
    # The time is the requested time. None if there are no more than `keep` completed instants.
    times = sorted(instant.time for instant in instants(store) if instant.state is State.COMPLETED)
    return times[len(times) - keep] if len(times) > keep > 0 else None


def _limit(all_instants: list[Instant], completed_from: str, oldest_kept: str, saved: set[str]) -> str:
    completed = {
        instant.time: instant.completed
        for instant in all_instants
        if instant.state is State.COMPLETED and instant.action != SAVEPOINT
    }
    pending = [
        instant.time
        for instant in all_instants
        if instant.state is not State.COMPLETED and instant.time not in completed and instant.action != SAVEPOINT
    ]
    too_new = [time for time, completed_at in completed.items() if completed_at >= completed_from]
    return min([oldest_kept, *pending, *saved, *too_new])


def _history_row(store: Store, completed: Instant, all_instants: list[Instant]) -> ArchivedEntry:
    earlier = {
        instant.state: instant
        for instant in all_instants
        if instant.time == completed.time and instant.state is not State.COMPLETED
    }
    plan = None
    requested = earlier.get(State.REQUESTED)
    if requested and requested.action in _PLANNED:
        plan = store.get(requested.key)
    elif completed.action == REPLACE_COMMIT and State.INFLIGHT in earlier:
        plan = store.get(earlier[State.INFLIGHT].key)
    return ArchivedEntry(completed.time, completed.completed, completed.action, store.get(completed.key), plan)
