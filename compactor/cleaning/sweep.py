"""Sweeping: what becomes of a dead writer's files. A sweep ends the pending instants of dead writers, then deletes what
nothing refers to. It lists the whole table.

A sweep is no `Service` of service_list.py. A worker's clean runs it every hour for what is older than 24 hours
(cleaning_services.py); archiving, a purge, `Table.sweep` and `hoodoo sweep` run it too. Without one of these the files
stay, and nobody sees them.

Nothing younger than the given age is touched. A pending instant is rolled back by a slot first, which fences a writer
that was only slow. Then a data file is deleted if its instant ended and neither a readable snapshot nor an open plan
names it. It is kept while a lease holds a snapshot older than retention, and if another engine wrote it.

Parquet files that are no data files by their names are told and left alone. Whoever put them there has to delete them:
Apache Hudi's readers, the `hudi` package first, cannot read a table that has one in a partition folder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from hoodoo.errors import AlreadyCommitted, PositionError
from hoodoo.format.names import LogName, instant_of_ms, ms_of_instant, parse_data_file
from hoodoo.storage.probe import PROBES
from hoodoo.storage.store import SCRATCH, Store
from hoodoo.timeline.holds import leases
from hoodoo.timeline.hudi.publish import instants
from hoodoo.timeline.instant import WRITES, Instant, State
from hoodoo.timeline.layout import CLAIMS, HUDI_HEARTBEATS, INDEX, MARKERS, PLEAS, POSITIONS, STAGING, position_key
from hoodoo.timeline.properties.nesting import own_keys
from hoodoo.timeline.slots.slot import ROLLED_BACK
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.views.view import View

_HOUR_MS = 3_600_000
_METADATA = (".hoodie/", "_delta_log/", "metadata/")  # Hudi's and of exports: they may have Parquet files of their own
_PARTITION_METADATA = ".hoodie_partition_metadata"  # Hudi may write it as Parquet


@dataclass
class SweepResult:
    """What a sweep rolled back and deleted.

    Attributes:
        rolled_back: How many instants were rolled back.
        files: How many orphan files were deleted.
        bytes: The size of these files, in bytes.
        kinds: How many files were deleted of each kind, such as base files, logs or index entries.
        kept: How many orphan files stay, because a reader may hold them or another engine wrote them.
        foreign: Parquet files in the table's folder that neither hoodoo nor Apache Hudi named, relative to the table;
            no command deletes them.
    """

    rolled_back: int = 0
    files: int = 0
    bytes: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    kept: int = 0
    foreign: list[str] = field(default_factory=list)


def sweep(timeline: TableTimeline, older_than_hours: float) -> SweepResult:
    """Roll back writes begun, and delete orphans left, more than `older_than_hours` ago."""
    store = timeline.store
    timeline.ready()  # what another engine committed is no orphan
    found = instants(store)
    before = begun_before(timeline, older_than_hours, (one.time for one in found))
    result = SweepResult()
    for instant in _pending(found, before):
        result.rolled_back += _end(timeline, instant)
    orphans = list(_orphans(timeline, timeline.heal().view, before, result.foreign))
    # a writer may have begun since, whose clock is behind ours
    for instant in sorted({orphan.instant for orphan in orphans if orphan.instant}):
        result.rolled_back += _end(timeline, instant)
    kept = _NeededFiles(timeline, timeline.heal().view)
    theirs = _of_other_engines(timeline, {orphan.instant for orphan in orphans})
    for orphan in orphans:
        if not kept.holds(orphan.key, orphan.instant) and (
            orphan.instant not in theirs or orphan.key.startswith(".hoodie/")
        ):
            store.delete(orphan.key)
            result.files += 1
            result.bytes += orphan.size
            result.kinds[_kind(orphan.key)] = result.kinds.get(_kind(orphan.key), 0) + 1
        else:
            result.kept += 1
    return result


def begun_before(timeline: TableTimeline, hours: float, begun: Iterable[str]) -> str:
    """The instant below which writes began more than `hours` ago; without hours, all of `begun` too.

    Writes in quick succession are dated ahead of the clock, which must not spare them where nobody wants to wait.
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
    PLEAS: "pleas",
    MARKERS: "markers",
    POSITIONS: "positions",
    HUDI_HEARTBEATS: "heartbeats",
}


def _kind(key: str) -> str:
    for folder, kind in _KINDS.items():
        if key.startswith(folder):
            return kind
    return "logs" if isinstance(parse_data_file(key.rpartition("/")[2]), LogName) else "base_files"


def _of_other_engines(timeline: TableTimeline, ended: set[str]) -> set[str]:
    """Return the instants that stand in the timeline without a claim of ours.

    Whatever their state, their files are not ours to delete.

    Claims older than the oldest slot are archived, and so are slots of all that completed before it.
    """
    store, history = timeline.store, timeline.history
    since = instant_of_ms(history.slot(history.oldest_slot()).completed_at)
    standing = {one.time for one in instants(store) if one.time >= since}
    return {instant for instant in ended & standing if not store.exists(CLAIMS + instant)}


def _end(timeline: TableTimeline, instant: str) -> bool:
    """Roll `instant` back if it is pending, and tell whether that was done.

    An instant that no slot has ended may belong to a slow writer, whose files may not be deleted. The rollback ends it.
    """
    try:
        timeline.rollback(instant)
        return True
    except AlreadyCommitted as ended:
        if ended.details["outcome"] == ROLLED_BACK:  # a request of its writer may have arrived after its rollback
            _delete_pending(timeline.store, instant)
    except PositionError:  # a compaction, which its plan keeps while it is open; or another engine began it
        oldest = timeline.history.oldest_slot()
        if oldest > 1 and ms_of_instant(instant) < timeline.history.state(oldest - 1).completed_at:
            _delete_pending(timeline.store, instant)  # or its claim was archived: it is too old to complete
    return False


def _delete_pending(store: Store, instant: str) -> None:
    found = [one for one in instants(store) if one.time == instant and one.action in WRITES]
    if not any(one.state is State.COMPLETED for one in found):
        for left in found:
            store.delete(left.key)


def pending_writes(store: Store, before: str) -> list[str]:
    """Instants of writes requested before the instant `before` that never completed."""
    return _pending(instants(store), before)


def _pending(found: Collection[Instant], before: str) -> list[str]:
    completed = {one.time for one in found if one.state is State.COMPLETED}
    return sorted(
        {one.time for one in found if one.state is not State.COMPLETED and one.action in WRITES and one.time < before}
        - completed
    )


class _NeededFiles:
    """The files that a view, an open plan or a lease needs."""

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
            seq < view.min_readable for seq in leases.held(timeline.store)
        )  # what it holds no view names any more

    def holds(self, key: str, instant: str) -> bool:
        if key.startswith(INDEX):
            return key in self.indexes or instant in self.working
        if key.startswith(POSITIONS):
            return key in self.positions
        return not key.startswith(".hoodie/") and (key in self.files or instant in self.working or self.leased)


class _Orphan(NamedTuple):
    """A key that no view names; `instant` of whoever wrote it, '' where the name does not say."""

    key: str
    size: int
    instant: str


def _orphans(timeline: TableTimeline, view: View, before: str, foreign: list[str]) -> Iterator[_Orphan]:
    """Everything that lies about: data files and index entries without a slot, and what a dead
    process was working on. Parquet files with names of other programs are added to `foreign`.
    """
    store, kept = timeline.store, _NeededFiles(timeline, view)
    for key, size in own_keys(store):
        if key.startswith((STAGING, SCRATCH, PROBES, PLEAS)):
            at = store.modified_ms(key)
            if at is not None and instant_of_ms(at) < before:
                yield _Orphan(key, size, "")
        elif key.startswith(POSITIONS):
            at = store.modified_ms(key)
            if at is not None and instant_of_ms(at) < before and key not in kept.positions:
                yield _Orphan(key, size, "")
        elif instant := _instant_of(key):
            if instant < before and not kept.holds(key, instant):
                yield _Orphan(key, size, instant)
        elif _is_foreign(key):
            foreign.append(key)


def _is_foreign(key: str) -> bool:
    name = key.rpartition("/")[2]
    return key.endswith(".parquet") and not key.startswith(_METADATA) and not name.startswith(_PARTITION_METADATA)


def _instant_of(key: str) -> str:
    """The instant that wrote a data file, index entry, marker or heartbeat; '' for any other key."""
    if not key.startswith(".hoodie/"):
        parsed = parse_data_file(key.rpartition("/")[2])
        return parsed.instant if parsed else ""
    if key.startswith(INDEX):
        return key.rpartition("_")[2].partition(".")[0]
    for folder in (MARKERS, HUDI_HEARTBEATS):
        if key.startswith(folder):
            return key[len(folder) :].partition("/")[0]
    return ""
