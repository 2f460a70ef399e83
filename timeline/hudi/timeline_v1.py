"""Timeline of Hudi 0.14 and 0.15 (version 1).

Such tables of version 6 can only be read. Unlike in later layouts, instants are directly in `.hoodie/` and have no
completion time, so they are ordered by their start, and commit metadata is JSON. The files of archived commits are
found by listing, as in Hudi. For each log file, the history records which blocks are committed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from hoodoo.errors import CorruptTable
from hoodoo.format.names import BaseFileName, LogFileName, instant_of_ms, ms_of_instant, parse_data_file
from hoodoo.format.timeline import avro as timeline_avro
from hoodoo.format.timeline.commit_json import convert_json_to_avro
from hoodoo.storage.store import Store
from hoodoo.timeline.hudi.external_history import (
    DESCRIBED,
    CompletedInstant,
    EarlierCommitSearch,
    ExternalHistory,
    derive_table_id,
)
from hoodoo.timeline.instant import COMMIT, COMPACTION, REPLACE_COMMIT, SAVEPOINT, WRITES, Instant, State, parse_instant
from hoodoo.timeline.layout import HOODIE, PROPERTIES
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.properties.nesting import list_own_files
from hoodoo.timeline.slots.slot import LOG, Slot, strict_json

_COMPLETED = re.compile(r"^(?P<time>\d{14}|\d{17})\.(?P<action>[a-z]+)$")
_ARCHIVED = "ARCHIVED"


def instants(store: Store) -> list[Instant]:
    return [found for name in store.names(HOODIE) if (found := _instant(name))]


def keys(store: Store) -> list[str]:
    return [HOODIE + name for name in store.names(HOODIE) if _instant(name)]


def _instant(name: str) -> Instant | None:
    match = _COMPLETED.match(name)
    if match and match["action"] != State.INFLIGHT:
        return Instant(match["time"], match["action"], State.COMPLETED, _pad_to_17_digits(match["time"]))
    return parse_instant(name)


def _pad_to_17_digits(time: str) -> str:
    # An instant of 14 digits stands for the end of its second, as in Hudi's comparisons.
    return time if len(time) == 17 else time + "999"


@dataclass(frozen=True)
class ActiveInstant(CompletedInstant):
    """Instant that is not archived yet."""

    def record(self, store: Store) -> dict[str, Any]:
        return timeline_avro.decode_timeline_file(self.in_avro(store))

    def in_avro(self, store: Store) -> bytes:
        data = store.get(self.key)
        return commit_in_avro(data, self.key, self.action) if self.action in WRITES else data


def commit_in_avro(data: bytes, key: str, action: str = COMMIT) -> bytes:
    kind = "HoodieReplaceCommitMetadata" if action == REPLACE_COMMIT else "HoodieCommitMetadata"
    try:
        return convert_json_to_avro(kind, strict_json(data, key))
    except ValueError as problem:
        raise CorruptTable(f"File {key} is damaged: {problem}. Restore it from a backup.", file=key) from None


@dataclass(frozen=True)
class ArchiveSummary(CompletedInstant):
    """Summary of all archived commits of a table.

    It may also stand for the creation of the table. `told` is its commit metadata. If `before` is set, the instant
    represents the archived commits that began before it.
    """

    told: Any = None
    before: str = ""

    def record(self, store: Store) -> dict[str, Any]:
        return dict(self.told)


class TimelineV1History(ExternalHistory):
    """Commit history of a table from Hudi 0.14 or 0.15.

    Slots are numbered from the oldest active instant. Cursors therefore change when more instants are archived.
    """

    def __init__(self, store: Store, config: TableConfig) -> None:
        super().__init__(store)
        self._config = config
        self._archived: dict[str, ArchiveSummary | None] = {}
        self._told: list[ArchiveSummary] = []

    def instants(self) -> list[Instant]:
        return instants(self.store)

    def archived(self) -> list[ArchiveSummary]:
        return self._told

    def _find_instants(self) -> Iterable[CompletedInstant]:
        found = self.instants()
        completed = [
            ActiveInstant(one.time, one.completed, one.action, f"{HOODIE}{one.time}.{one.action}")
            for one in found
            if one.state is State.COMPLETED and one.action in DESCRIBED
        ]
        done = {one.time for one in completed}
        plans = [
            ActiveInstant(one.time, _pad_to_17_digits(one.time), COMPACTION, f"{HOODIE}{one.time}.compaction.requested")
            for one in found
            if one.action == COMPACTION and one.state is State.REQUESTED and one.time not in done
        ]
        writes = sorted((one for one in completed if one.action in WRITES), key=lambda one: one.completed)
        archived = self._told = self._archived_instants(
            writes, plans, {one.time for one in completed if one.action == SAVEPOINT}
        )
        self._table = derive_table_id(self.store, archived[-1].before if archived else "" if writes else "empty")
        return [*plans, *completed, *archived, *([] if writes or archived else self._creation_instant())]

    def _slot(
        self, seq: int, previous_ms: int, found: CompletedInstant, record: dict[str, Any], before: EarlierCommitSearch
    ) -> Slot:
        slot = super()._slot(seq, previous_ms, found, record, before)
        archived = found.before if isinstance(found, ArchiveSummary) else ""
        blocks = f"<{archived}" if archived else found.time
        files = tuple(replace(file, blocks=blocks) if file.kind == LOG else file for file in slot.files)
        # the files left by archived commits are not a snapshot; only later snapshots need them
        return replace(slot, files=files, min_readable=seq + 1 if archived else slot.min_readable)

    def _creation_instant(self) -> Iterator[ArchiveSummary]:
        if schema := self._config.raw.get("hoodie.table.create.schema"):
            created = instant_of_ms(self.store.modified_ms(PROPERTIES) or 0)
            told = {"operationType": "INSERT", "extraMetadata": {"schema": schema}}
            yield ArchiveSummary(created, created, self._config.write_action, "", told=told)

    # ---- archived commits
    def _archived_instants(
        self, writes: list[ActiveInstant], plans: list[ActiveInstant], saved: set[str]
    ) -> list[ArchiveSummary]:
        # All commits before the oldest active commit are archived. If savepoints keep some commits active, the commits
        # between these and the remaining active commits are archived too.
        starts = sorted({one.time for one in (*writes, *plans)}, key=_pad_to_17_digits)
        if not writes:
            return []
        unsaved = next((time for time in starts if time not in saved), starts[0])
        active = {one.time for one in writes}
        for time in dict.fromkeys((starts[0], unsaved)):
            if time not in self._archived:
                begun = {path for one in writes for path in self._created_logs(one)}
                self._archived[time] = self._merge_archived_commits(time, active, begun)
        return [found for time in dict.fromkeys((starts[0], unsaved)) if (found := self._archived[time])]

    def _created_logs(self, write: ActiveInstant) -> Iterator[str]:
        stats = self._record(write).get("partitionToWriteStats") or {}
        yield from (
            stat["path"] for each in stats.values() for stat in each if stat.get("path") and not stat.get("logOffset")
        )

    def _merge_archived_commits(self, time: str, active: set[str], begun: set[str]) -> ArchiveSummary | None:
        """Combine all archived commits into one.

        Returns None if nothing is archived. The instant contains the newest slice of each file group. As in Hudi,
        instants before the timeline count as committed.

        Args:
            time: The oldest active instant. Only files of earlier instants are used.
            active: The instants in the active timeline.
            begun: The paths of the log files that active commits created.
        """
        bases: dict[tuple[str, str], tuple[str, str, int]] = {}
        logs: dict[tuple[str, str], list[tuple[str, int, str, int]]] = {}
        for key, size in list_own_files(self.store):
            partition, _, name = key.rpartition("/")
            parsed = None if key.startswith(HOODIE) else parse_data_file(name)
            if parsed is None or _pad_to_17_digits(parsed.instant) >= _pad_to_17_digits(time):
                continue
            group = partition, parsed.file_id
            if isinstance(parsed, BaseFileName):
                bases[group] = max(bases.get(group, ("", "", 0)), (_pad_to_17_digits(parsed.instant), key, size))
            elif isinstance(parsed, LogFileName) and not parsed.cdc and key not in begun:
                logs.setdefault(group, []).append((_pad_to_17_digits(parsed.instant), parsed.version, key, size))
        stats_by_partition: dict[str, list[dict[str, Any]]] = {}
        for group in sorted(bases.keys() | logs.keys()):
            instant, base, size = bases.get(group, ("", "", 0))
            newer_logs = sorted(log for log in logs.get(group, ()) if log[0] >= instant)
            if newer_logs or instant not in {_pad_to_17_digits(one) for one in active}:
                files = [*([(base, size)] if base else []), *((path, bytes_) for _, _, path, bytes_ in newer_logs)]
                stats = [{"path": path, "fileSizeInBytes": bytes_} for path, bytes_ in files]
                stats_by_partition.setdefault(group[0], []).extend(stats)
        if not stats_by_partition:
            return None
        before = instant_of_ms(ms_of_instant(time) - 1)
        record = {"partitionToWriteStats": stats_by_partition, "operationType": _ARCHIVED}
        return ArchiveSummary(before, before, self._config.write_action, "", told=record, before=time)


__all__ = ["ActiveInstant", "TimelineV1History", "ArchiveSummary", "commit_in_avro", "instants", "keys"]
