"""History of tables that an external engine writes.

Completed instants become slots, in completion order. These slots only exist in memory. Views, scans and positions work
as in any table. File slices follow docs/format.md 11: a log belongs to the base file with the largest instant at or
below the log's completion time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from hoodoo.errors import UnsupportedTable
from hoodoo.format.names import (
    BaseFileName,
    LogFileName,
    instant_of_ms,
    join,
    ms_of_instant,
    parse_data_file,
    require_data_file_path,
)
from hoodoo.format.table_schema import TableSchema
from hoodoo.format.timeline import avro as timeline_avro
from hoodoo.storage.store import Store
from hoodoo.timeline.history import History
from hoodoo.timeline.hudi import archived_timeline
from hoodoo.timeline.hudi.commit_metadata import MERGED_LOGS
from hoodoo.timeline.hudi.external_columns import ExternalColumnHistory
from hoodoo.timeline.hudi.external_positions import ExternalPositions
from hoodoo.timeline.hudi.publish import SLOW_WRITE_MS
from hoodoo.timeline.instant import CLEAN, COMPACTION, RESTORE, SAVEPOINT, WRITES, State, parse_instant
from hoodoo.timeline.layout import CLAIMS, TIMELINE
from hoodoo.timeline.slots.slot import (
    BASE,
    COMPLETED,
    LOG,
    LOG_COMPACT,
    PLANNED,
    DataFile,
    PlannedGroup,
    Slot,
)
from hoodoo.timeline.views.view import View, apply


@dataclass(frozen=True)
class CompletedInstant:
    """Completed instant of another engine's timeline.

    `key` is the path of its timeline file, or '' if it is archived. `data` is the content of the file, or None if it
    has not been read.
    """

    time: str
    completed: str
    action: str
    key: str
    data: bytes | None = None

    def record(self, store: Store) -> dict[str, Any]:
        return timeline_avro.decode_timeline_file(store.get(self.key) if self.data is None else self.data)


DESCRIBED = frozenset((*WRITES, CLEAN, SAVEPOINT, RESTORE))
"""Hudi's actions that change a snapshot, and therefore become slots (commits)."""


def names_since(store: Store, view: View) -> Sequence[str]:
    return store.names(TIMELINE, instant_of_ms(max(0, view.completed_at - SLOW_WRITE_MS)))


def list_completed_commits(names: Iterable[str], after: str = "") -> list[CompletedInstant]:
    """List completed commits in completion order.

    Only instants that become slots and completed after `after` are returned.
    """
    # parse only new names, because the folder may contain many files
    new = (name for name in names if name[17:18] == "_" and name[18:35] > after)
    parsed = (parse_instant(name) for name in new)
    found = [
        CompletedInstant(one.time, one.completed, one.action, one.key)
        for one in parsed
        if one and one.state is State.COMPLETED and one.action in DESCRIBED
    ]
    return sorted(found, key=lambda one: one.completed)


def archived(store: Store) -> list[CompletedInstant]:
    found = [
        CompletedInstant(one.time, one.completed, one.action, "", one.metadata)
        for one in archived_timeline.read(store)
        if one.action in DESCRIBED
    ]
    return sorted(found, key=lambda one: one.completed)


def list_unimported_commits(history: History, newest: str | None = None) -> list[CompletedInstant]:
    """List the archived commits that are not imported yet.

    The commits are from other engines and newer than the newest slot, oldest first. `newest` is the newest archived
    instant, or None if it is unknown.
    """
    head = instant_of_ms(history.known_head().completed_at)
    return (
        [one for one in archived(history.store) if one.completed > head]
        if (archived_timeline.newest(history.store) if newest is None else newest) > history.known_head().instant
        else []
    )


def unknown_plans(store: Store, view: View, names: Iterable[str]) -> list[CompletedInstant]:
    return [one for one in open_plans(names) if one.time not in view.plans and not store.exists(CLAIMS + one.time)]


def open_plans(names: Iterable[str]) -> list[CompletedInstant]:
    found = [one for name in names if (one := parse_instant(name))]
    completed = {one.time for one in found if one.state is State.COMPLETED}
    planned = [
        one for one in found if one.action == COMPACTION and one.state is State.REQUESTED and one.time not in completed
    ]
    return [CompletedInstant(one.time, one.time, COMPACTION, one.key) for one in planned]


class EarlierCommitSearch(Protocol):
    """Search for earlier commits."""

    def newest_before(self, ms: int) -> int: ...

    def slot_of(self, instant: str) -> int:
        """Find the first commit at or after a time.

        Returns 0 if there is none.
        """
        ...


def convert_to_slot(
    store: Store,
    table: str,
    seq: int,
    previous_ms: int,
    found: CompletedInstant,
    record: dict[str, Any],
    before: EarlierCommitSearch,
) -> Slot:
    """Convert a commit of another engine to a slot.

    Args:
        store: The store of the table.
        table: The id of the table.
        seq: The number of the slot.
        previous_ms: The completion time of the previous slot, in ms since 1970.
        found: The instant.
        record: The decoded content of the completed file of the instant.
        before: Finds earlier slots.

    Raises:
        UnsupportedTable: A slot cannot describe the instant.
    """
    if found.action == COMPACTION:
        return _plan(table, seq, found, record)
    completed_at = max(ms_of_instant(found.completed), previous_ms + 1 if seq > 1 else 0)
    base = Slot(
        seq=seq,
        prev="",
        table=table,
        instant=found.time,
        action=found.action,
        outcome=COMPLETED,
        operation=record.get("operationType") or "",
        nonce="",
        base_seq=seq - 1,
        completed_at=completed_at,
        writer="another engine",
        published=found.key,
    )
    if found.action == RESTORE:
        return base
    if found.action == SAVEPOINT:
        return replace(base, operation="SAVEPOINT", savepoint=f"hudi-{found.time}", position=before.slot_of(found.time))
    if found.action == CLEAN:
        earliest = record.get("earliestCommitToRetain") or ""
        # if it retains file versions instead of commits, no earlier snapshot is certain
        readable = before.slot_of(earliest) if earliest else seq
        return replace(base, operation="CLEAN", min_readable=readable, victims=tuple(_victims(record)))
    merged = (record.get("extraMetadata") or {}).get(MERGED_LOGS)
    if record.get("operationType") == LOG_COMPACT and not merged:
        raise UnsupportedTable(
            (
                f"Log compaction {found.time} (LOG_COMPACT) by Hudi is not supported. Run a full compaction with Hudi "
                "first."
            ),
            instant=found.time,
        )
    replaced = tuple(
        (partition, file_id)
        for partition, ids in (record.get("partitionToReplaceFileIds") or {}).items()
        for file_id in ids
    )
    described = replace(base, files=tuple(_files(record)), replaced=replaced, merged=tuple(json.loads(merged or "[]")))
    if not record.get("compacted"):
        return described
    return replace(described, action=COMPACTION, plan_seq=before.newest_before(ms_of_instant(found.time)))


def _plan(table: str, seq: int, found: CompletedInstant, record: dict[str, Any]) -> Slot:
    groups = []
    for one in record["operations"] or ():
        partition = one["partitionPath"] or ""
        base = join(partition, one["dataFilePath"].rpartition("/")[2]) if one["dataFilePath"] else ""
        logs = tuple(join(partition, path.rpartition("/")[2]) for path in one["deltaFilePaths"] or ())
        groups.append(PlannedGroup(partition, one["fileId"], base, logs))
    at = ms_of_instant(found.time)
    return Slot(
        seq=seq,
        prev="",
        table=table,
        instant=found.time,
        action=COMPACTION,
        outcome=PLANNED,
        operation="COMPACT",
        nonce="",
        base_seq=seq - 1,
        completed_at=at,
        writer="another engine",
        plan=tuple(groups),
        published=found.key,
    )


def _victims(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for partition, done in (record.get("partitionMetadata") or {}).items():
        for name in dict.fromkeys([*(done.get("successDeleteFiles") or ()), *(done.get("deletePathPatterns") or ())]):
            yield require_data_file_path(join(partition, name.rpartition("/")[2])), partition


def derive_table_id(store: Store, more: str = "") -> str:
    """Derive the id of a table from its location.

    Only tables of other engines need such an id. `more` distinguishes states of the table in which the same commits
    have different slot numbers.
    """
    return hashlib.sha256((store.uri + more).encode()).hexdigest()[:32]


class ExternalHistory(History):
    """Commit history of a table that hoodoo only reads."""

    def __init__(self, store: Store, table: str = "") -> None:
        super().__init__(store)
        self._table = table or derive_table_id(store)
        self._all: list[Slot] = []
        self._parsed: dict[str, dict[str, Any]] = {}
        self._columns = ExternalColumnHistory()

    def head(self) -> View:
        with self._lock:
            self._all = self._load()
            self._slots.clear()
            self._views.clear()
            view = self._head = self._view_at(len(self._all))
            return view

    def created(self) -> TableSchema:
        """Find the first known schema of the table.

        Later changes are in the views. Raises UnsupportedTable if no commit contains a schema.
        """
        if self._columns.first is None:
            raise UnsupportedTable(
                "Table has no commit with a schema, so its columns are unknown. Write to it once with Hudi."
            )
        return self._columns.first

    def view(self, seq: int) -> View:
        with self._lock:
            if self._head is None:
                self.head()
            self.require_readable(seq)
            return self._head if self._head and seq == self._head.seq else self._view_at(seq)

    def slot(self, seq: int) -> Slot:
        return self._all[seq - 1]

    def oldest_slot(self) -> int:
        return 1

    def digest(self, seq: int) -> str:
        return ""

    def _view_at(self, seq: int) -> View:
        view = View(table=self._table)
        for slot in self._all[:seq]:
            view = apply(view, slot, "")
        return view

    def _find_instants(self) -> Iterable[CompletedInstant]:
        # Later entries replace earlier entries of an instant.
        names = self.store.names(TIMELINE)
        return (*open_plans(names), *list_completed_commits(names), *archived(self.store))

    def _load(self) -> list[Slot]:
        done = {(found.time, found.action == SAVEPOINT): found for found in self._find_instants()}
        ordered = sorted(
            (found for found in done.values() if found.action != RESTORE), key=lambda found: found.completed
        )
        slots: list[Slot] = []
        self._columns, places = ExternalColumnHistory(), ExternalPositions(View())
        for found in ordered:
            previous, record = slots[-1].completed_at if slots else 0, self._record(found)
            slot = self._slot(len(slots) + 1, previous, found, record, _Listed(slots))
            slots.append(places.add_commit(self._columns.add_commit(slot, record), record))
        return slots

    def _record(self, found: CompletedInstant) -> dict[str, Any]:
        cache_key = found.time + found.action + found.key
        if cache_key not in self._parsed:
            self._parsed[cache_key] = found.record(self.store)
        return self._parsed[cache_key]

    def _slot(
        self, seq: int, previous_ms: int, found: CompletedInstant, record: dict[str, Any], before: EarlierCommitSearch
    ) -> Slot:
        return convert_to_slot(self.store, self._table, seq, previous_ms, found, record, before)


class MergedHistory(History):
    """Commit history merged with new commits of another engine.

    The history consists of hoodoo's slots, followed by slots in memory for the later commits, which have the same
    numbers as after their adoption.
    """

    def __init__(self, ours: History, created: TableSchema) -> None:
        super().__init__(ours.store)
        self._ours, self._created = ours, created
        self._more: list[Slot] = []
        self._base = View()

    def head(self) -> View:
        """Read the newest state of the table.

        It includes later commits of another engine. Raises UnsupportedTable if a slot cannot describe one of these
        commits.
        """
        with self._lock:
            self._views.clear()
            names = names_since(self.store, self._ours.known_head())
            view = self._base = self._head = self._ours.head()  # after the list
            self._more = []
            columns, places = ExternalColumnHistory(self._created, view, self.store), ExternalPositions(view)
            since = list_completed_commits(names, instant_of_ms(view.completed_at))
            found = [*unknown_plans(self.store, view, names), *list_unimported_commits(self._ours), *since]
            for one in sorted(found, key=lambda one: one.completed):
                if one.action == RESTORE:
                    raise UnsupportedTable(
                        "Table was restored by another engine. Write to it with hoodoo once, to adopt the restore.",
                        instant=one.time,
                    )
                record = one.record(self.store)
                slot = convert_to_slot(
                    self.store, view.table, view.seq + 1, view.completed_at, one, record, ExistingSlots(self)
                )
                slot = places.add_commit(columns.add_commit(slot, record), record)
                self._more.append(slot)
                view = self._head = apply(view, slot, "")
            return view

    def slot(self, seq: int) -> Slot:
        with self._lock:
            return self._more[seq - self._base.seq - 1] if seq > self._base.seq else self._ours.slot(seq)

    def digest(self, seq: int) -> str:
        return self._ours.digest(seq) if seq <= self._base.seq else ""

    def state(self, seq: int) -> View:
        with self._lock:
            view = self._ours.state(min(seq, self._base.seq))
            for slot in self._more[: max(0, seq - self._base.seq)]:
                view = apply(view, slot, "")
            return view

    def lost(self) -> bool:
        return any(self.store.exists(CLAIMS + slot.instant) for slot in self._more)


@dataclass(frozen=True)
class ExistingSlots:
    history: History

    def newest_before(self, ms: int) -> int:
        oldest = self.history.oldest_slot()
        return (
            self.history.find_last_completed_by(ms - 1) if self.history.slot(oldest).completed_at < ms else oldest - 1
        )

    def slot_of(self, instant: str) -> int:
        head = self.history.known_head().seq
        start = self.history.find_last_completed_by(ms_of_instant(instant))
        return next((seq for seq in range(start, head + 1) if self.history.slot(seq).instant >= instant), head)


@dataclass(frozen=True)
class _Listed:
    slots: list[Slot]

    def newest_before(self, ms: int) -> int:
        return sum(1 for slot in self.slots if slot.completed_at < ms)

    def slot_of(self, instant: str) -> int:
        return next((slot.seq for slot in self.slots if slot.instant >= instant), 0)


def _files(record: dict[str, Any]) -> Iterator[DataFile]:
    for partition, stats in (record.get("partitionToWriteStats") or {}).items():
        for stat in stats:
            path = stat.get("path")
            parsed = parse_data_file(path.rpartition("/")[2]) if path else None
            if isinstance(parsed, LogFileName) and parsed.cdc or parsed is None:
                if path and parsed is None:
                    raise UnsupportedTable(
                        (f"File {path} is not supported: expected a Parquet base file or a log file."),
                        file=path,
                    )
                continue
            kind = BASE if isinstance(parsed, BaseFileName) else LOG
            size, rows = stat.get("fileSizeInBytes") or 0, stat.get("numWrites") or 0
            changes = (
                {require_data_file_path(log): [int(bytes_), ""] for log, bytes_ in (stat.get("cdcStats") or {}).items()}
                if kind == BASE
                else {}
            )
            yield DataFile(
                require_data_file_path(path),
                partition,
                parsed.file_id,
                kind,
                size,
                "",
                rows,
                updates=1 if kind == LOG else 0,
                changes=changes,
            )
