"""Sweeping: ends the pending instants of dead writers and deletes what nothing refers to. The only service that lists a table.

Nothing younger than the given age is touched. An old pending instant is rolled back by a slot first, so that a writer that was only
slow is fenced; what is deleted is deleted because no slot, plan or snapshot names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hoodoo.errors import AlreadyCommitted, PositionError
from hoodoo.format.names import instant_of_ms, parse_data_file
from hoodoo.storage.store import SCRATCH, Store
from hoodoo.timeline import leases
from hoodoo.timeline.instant import WRITES, State
from hoodoo.timeline.layout import HUDI_HEARTBEATS, INDEX, MARKERS, STAGING
from hoodoo.timeline.publish import instants
from hoodoo.timeline.transaction import Timeline
from hoodoo.timeline.view import View

_HOUR_MS = 3_600_000


@dataclass
class SweepResult:
    """Instants rolled back, and orphan files deleted with their bytes."""

    rolled_back: int = 0
    files: int = 0
    bytes: int = 0


def sweep(timeline: Timeline, older_than_hours: float) -> SweepResult:
    """Roll back writes begun, and delete orphans left, more than `older_than_hours` ago."""
    before = instant_of_ms(max(0, timeline.environment.now_ms() - int(older_than_hours * _HOUR_MS)))
    result = SweepResult()
    for instant in pending_writes(timeline.store, before):
        try:
            timeline.rollback(instant)
            result.rolled_back += 1
        except (AlreadyCommitted, PositionError):
            continue  # it ended meanwhile, or another engine began it
    view = timeline.heal()
    for key, size in list(_orphans(timeline, view, before)):
        timeline.store.delete(key)
        result.files += 1
        result.bytes += size
    return result


def pending_writes(store: Store, before: str) -> list[str]:
    """Instants of writes requested before the instant `before` that never completed."""
    found = instants(store)
    completed = {one.time for one in found if one.state is State.COMPLETED}
    return sorted({one.time for one in found if one.state is not State.COMPLETED and one.action in WRITES and one.time < before} - completed)


def _orphans(timeline: Timeline, view: View, before: str) -> Iterator[tuple[str, int]]:
    """(key, bytes) of everything that lies about: data files and index entries without a slot, and what a dead process was working on."""
    store = timeline.store
    live = {entry.file.path for group in view.groups() for entry in group.files()} | {entry.path for entry in view.superseded}
    indexes = {entry.file.index for group in view.groups() for entry in group.files()} | {entry.index for entry in view.superseded}
    working = {plan.instant for plan in view.plans.values()}
    leased = any(seq < view.min_readable for seq in leases.held(store))  # what it holds no view names any more
    for key, size in store.list(""):
        if not key.startswith(".hoodie/"):
            parsed = parse_data_file(key.rpartition("/")[2])
            if parsed and key not in live and parsed.instant < before and parsed.instant not in working and not leased:
                yield key, size
        elif key.startswith(INDEX):
            instant = key.rpartition("_")[2].partition(".")[0]
            if key not in indexes and instant < before and instant not in working:
                yield key, size
        elif key.startswith((MARKERS, HUDI_HEARTBEATS)):
            instant = key[len(MARKERS if key.startswith(MARKERS) else HUDI_HEARTBEATS) :].partition("/")[0]
            if instant < before:
                yield key, size
        elif key.startswith((STAGING, SCRATCH)):
            at = store.modified_ms(key)
            if at is not None and instant_of_ms(at) < before:
                yield key, size
