"""Sweep, which removes unfinished writes and orphan files.

A sweep lists the whole table. It is not a separate service in service_list.py. The clean service of a worker runs a
sweep every hour for files older than 24 hours (cleaning_services.py). Archiving, a purge, `Table.maintenance.sweep` and
`hoodoo sweep` run it too. Without a sweep, orphan files stay in the table, and readers ignore them.

A sweep only changes files and instants that are older than the given age. It first rolls back pending instants by
writing slots, so that a slow writer can no longer commit. Then it deletes a data file if its instant has ended and
neither a readable snapshot nor an open plan refers to it. It keeps all data files while a lease needs a snapshot older
than retention, and it always keeps files of other engines.

A sweep reports Parquet files whose names do not follow the naming of data files, and never deletes them. Delete such
files manually: Apache Hudi's readers, such as the `hudi` package, cannot read a table with such a file in a partition
folder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from hoodoo.errors import AlreadyCommitted, PositionError
from hoodoo.format.names import LogFileName, instant_of_ms, ms_of_instant, parse_data_file
from hoodoo.storage.probe import PROBES
from hoodoo.storage.store import SCRATCH, Store
from hoodoo.timeline.holds import leases
from hoodoo.timeline.hudi.publish import instants
from hoodoo.timeline.instant import WRITES, Instant, State
from hoodoo.timeline.layout import (
    CLAIMS,
    HUDI_HEARTBEATS,
    INDEX,
    MARKERS,
    POSITIONS,
    STAGING,
    TURN_REQUESTS,
    position_key,
)
from hoodoo.timeline.properties.nesting import list_own_files
from hoodoo.timeline.slots.slot import ROLLED_BACK
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.views.view import View

_HOUR_MS = 3_600_000
_METADATA = (".hoodie/", "_delta_log/", "metadata/")  # folders of Hudi and of exports; may contain other Parquet files
_PARTITION_METADATA = ".hoodie_partition_metadata"  # Hudi may write it as Parquet


@dataclass
class SweepResult:
    """Result of removing orphan files.

    Attributes:
        rolled_back: Number of instants that were rolled back.
        files: Number of orphan files that were deleted.
        bytes: Total size of the deleted files, in bytes.
        kinds: Number of deleted files by kind, such as base files, logs or index entries.
        kept: Number of orphan files that stay because a reader may need them or another engine wrote them.
        external: Paths, relative to the table, of Parquet files whose names do not come from hoodoo or Apache Hudi.
            No command deletes these files.
    """

    rolled_back: int = 0
    files: int = 0
    bytes: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    kept: int = 0
    external: list[str] = field(default_factory=list)


def remove_orphan_files(timeline: TableTimeline, older_than_hours: float) -> SweepResult:
    """Remove old unfinished writes and orphan files."""
    store = timeline.store
    timeline.prepare_for_write()  # import the commits of other engines, so that their files do not count as orphans
    all_instants = instants(store)
    before = first_instant_to_keep(timeline, older_than_hours, (entry.time for entry in all_instants))
    result = SweepResult()
    for instant in _pending(all_instants, before):
        result.rolled_back += _roll_back_pending_write(timeline, instant)
    orphans = list(_find_orphans(timeline, timeline.heal().view, before, result.external))
    # a writer whose clock lags may have begun since
    for instant in sorted({orphan.instant for orphan in orphans if orphan.instant}):
        result.rolled_back += _roll_back_pending_write(timeline, instant)
    needed = _NeededFiles(timeline, timeline.heal().view)
    external_instants = _instants_of_other_engines(timeline, {orphan.instant for orphan in orphans})
    for orphan in orphans:
        if not needed.holds(orphan.key, orphan.instant) and (
            orphan.instant not in external_instants or orphan.key.startswith(".hoodie/")
        ):
            store.delete(orphan.key)
            result.files += 1
            result.bytes += orphan.size
            result.kinds[_kind(orphan.key)] = result.kinds.get(_kind(orphan.key), 0) + 1
        else:
            result.kept += 1
    return result


def first_instant_to_keep(timeline: TableTimeline, hours: float, begun: Iterable[str]) -> str:
    """Return the first instant to keep, which is later than all old writes.

    All old writes began before this instant. If `hours` is 0, it is also after every instant in `begun`. Writes in
    quick succession get instants ahead of the clock, and a sweep without a minimum age must include them.
    """
    now = timeline.environment.now_ms()
    if hours:
        return instant_of_ms(max(0, now - int(hours * _HOUR_MS)))
    return max([instant_of_ms(now), *(f"{instant}0" for instant in begun)])  # sorts right after the newest instant


_KINDS = {
    INDEX: "index_entries",
    STAGING: "staged",
    SCRATCH: "scratch",
    PROBES: "probes",
    TURN_REQUESTS: "turn_requests",
    MARKERS: "markers",
    POSITIONS: "positions",
    HUDI_HEARTBEATS: "heartbeats",
}


def _kind(key: str) -> str:
    for folder, kind in _KINDS.items():
        if key.startswith(folder):
            return kind
    return "logs" if isinstance(parse_data_file(key.rpartition("/")[2]), LogFileName) else "base_files"


def _instants_of_other_engines(timeline: TableTimeline, ended: set[str]) -> set[str]:
    # An instant of another engine is in Hudi's timeline, but hoodoo has not claimed it. Instants older than the oldest
    # slot are left out, because their claims are archived.
    store, history = timeline.store, timeline.history
    since = instant_of_ms(history.slot(history.oldest_slot()).completed_at)
    in_timeline = {entry.time for entry in instants(store) if entry.time >= since}
    return {instant for instant in ended & in_timeline if not store.exists(CLAIMS + instant)}


def _roll_back_pending_write(timeline: TableTimeline, instant: str) -> bool:
    # Returns whether the write was rolled back. The files of a slow writer must not be deleted while it can still
    # commit.
    try:
        timeline.rollback(instant)
        return True
    except AlreadyCommitted as ended:
        if ended.details["outcome"] == ROLLED_BACK:  # its writer may have requested the instant after the rollback
            _delete_pending(timeline.store, instant)
    except PositionError:  # an open compaction plan, or an instant of another engine
        oldest = timeline.history.oldest_slot()
        if oldest > 1 and ms_of_instant(instant) < timeline.history.state(oldest - 1).completed_at:
            _delete_pending(timeline.store, instant)  # its claim was archived, so it is too old to complete
    return False


def _delete_pending(store: Store, instant: str) -> None:
    files = [file for file in instants(store) if file.time == instant and file.action in WRITES]
    if not any(file.state is State.COMPLETED for file in files):
        for leftover in files:
            store.delete(leftover.key)


def pending_writes_before(store: Store, before: str) -> list[str]:
    return _pending(instants(store), before)


def _pending(all_instants: Collection[Instant], before: str) -> list[str]:
    completed = {instant.time for instant in all_instants if instant.state is State.COMPLETED}
    return sorted(
        {
            instant.time
            for instant in all_instants
            if instant.state is not State.COMPLETED and instant.action in WRITES and instant.time < before
        }
        - completed
    )


class _NeededFiles:
    def __init__(self, timeline: TableTimeline, view: View) -> None:
        self.files = {path for group in view.groups() for entry in group.files() for path in entry.file.paths} | {
            entry.path for entry in view.superseded
        }
        self.indexes = {entry.file.index for group in view.groups() for entry in group.files()} | {
            entry.index for entry in view.superseded
        }
        self.positions = {position_key(position) for position in view.reached.values()}
        self.working = {plan.instant for plan in view.plans.values()}
        self.leased = any(
            seq < view.min_readable for seq in leases.list_protected_commits(timeline.store)
        )  # the view no longer lists the files that such a lease needs

    def holds(self, key: str, instant: str) -> bool:
        if key.startswith(INDEX):
            return key in self.indexes or instant in self.working
        if key.startswith(POSITIONS):
            return key in self.positions
        return not key.startswith(".hoodie/") and (key in self.files or instant in self.working or self.leased)


class _UnreferencedFile(NamedTuple):
    # `instant` is the instant of the write that created the file, or '' if it is unknown.
    key: str
    size: int
    instant: str


def _find_orphans(timeline: TableTimeline, view: View, before: str, external: list[str]) -> Iterator[_UnreferencedFile]:
    # Parquet files of other programs are added to `external`.
    store, needed = timeline.store, _NeededFiles(timeline, view)
    for key, size in list_own_files(store):
        if key.startswith((STAGING, SCRATCH, PROBES, TURN_REQUESTS)):
            modified_at = store.modified_ms(key)
            if modified_at is not None and instant_of_ms(modified_at) < before:
                yield _UnreferencedFile(key, size, "")
        elif key.startswith(POSITIONS):
            modified_at = store.modified_ms(key)
            if modified_at is not None and instant_of_ms(modified_at) < before and key not in needed.positions:
                yield _UnreferencedFile(key, size, "")
        elif instant := _instant_of(key):
            if instant < before and not needed.holds(key, instant):
                yield _UnreferencedFile(key, size, instant)
        elif _is_external(key):
            external.append(key)


def _is_external(key: str) -> bool:
    name = key.rpartition("/")[2]
    return key.endswith(".parquet") and not key.startswith(_METADATA) and not name.startswith(_PARTITION_METADATA)


def _instant_of(key: str) -> str:
    if not key.startswith(".hoodie/"):
        parsed = parse_data_file(key.rpartition("/")[2])
        return parsed.instant if parsed else ""
    if key.startswith(INDEX):
        return key.rpartition("_")[2].partition(".")[0]
    for folder in (MARKERS, HUDI_HEARTBEATS):
        if key.startswith(folder):
            return key[len(folder) :].partition("/")[0]
    return ""
