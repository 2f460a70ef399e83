"""Tables, and commits in our tables, that another engine wrote: Hudi's own timeline read as if it were a commit sequence.

Completed instants in order of completion become slots that exist in memory only; then views, scans and positions work as on any table.
Slices follow docs/format.md 11: a log belongs to the base with the largest instant at or below the log's completion time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from hoodoo.errors import UnsupportedTable
from hoodoo.format import timeline_avro
from hoodoo.format.avro_schema import arrow_schema
from hoodoo.format.names import BaseName, LogName, check_relative, ms_of_instant, parse_data_file
from hoodoo.storage.store import Store
from hoodoo.timeline import hudi_history
from hoodoo.timeline.config import own_columns
from hoodoo.timeline.history import History
from hoodoo.timeline.instant import CLEAN, WRITES, State
from hoodoo.timeline.layout import HISTORY
from hoodoo.timeline.publish import instants
from hoodoo.timeline.slot import BASE, COMPLETED, LOG, DataFile, Slot
from hoodoo.timeline.view import View, apply


@dataclass(frozen=True)
class _Done:
    """A completed instant and the bytes of its completed file."""

    time: str
    completed: str
    action: str
    key: str
    data: bytes | None


def _active(store: Store) -> Iterator[_Done]:
    for found in instants(store):
        if found.state is State.COMPLETED and found.action in (*WRITES, CLEAN):
            yield _Done(found.time, found.completed, found.action, found.key, None)


def _archived(store: Store) -> Iterator[_Done]:
    """Instants of Hudi's history folder (docs/format.md 14)."""
    for one in hudi_history.read(store):
        if one.action in (*WRITES, CLEAN):
            yield _Done(one.time, one.completed, one.action, HISTORY, one.metadata)


class ForeignHistory(History):
    """A History whose slots follow from Hudi's timeline; read anew whenever the head is asked for."""

    def __init__(self, store: Store, table: str = "") -> None:
        super().__init__(store)
        self._table = table or hashlib.sha256(store.uri.encode()).hexdigest()[:32]
        self._all: list[Slot] = []
        self._parsed: dict[str, dict[str, Any]] = {}

    def head(self) -> View:
        with self._lock:
            self._all = self._load()
            self._slots.clear()
            self._views.clear()
            view = self._head = self._view_at(len(self._all))
            return view

    def schema(self) -> pa.Schema:
        """The table's own columns, as the newest commit that says so has them. Raises UnsupportedTable if none does."""
        for slot in reversed(self._all):
            text = (self._parsed[slot.instant].get("extraMetadata") or {}).get("schema")
            if text:
                return own_columns(arrow_schema(text))
        raise UnsupportedTable("No commit of this table says what its columns are.")

    def view(self, seq: int) -> View:
        with self._lock:
            if self._head is None:
                self.head()
            self.require_readable(seq)
            return self._head if self._head and seq == self._head.seq else self._view_at(seq)

    def slot(self, seq: int) -> Slot:
        return self._all[seq - 1]

    def _view_at(self, seq: int) -> View:
        view = View(table=self._table)
        for slot in self._all[:seq]:
            view = apply(view, slot, "")
        return view

    def _load(self) -> list[Slot]:
        done = {found.time: found for found in (*_archived(self.store), *_active(self.store))}
        ordered = sorted(done.values(), key=lambda found: found.completed)
        slots: list[Slot] = []
        for found in ordered:
            if found.time not in self._parsed:
                self._parsed[found.time] = timeline_avro.decode(self.store.get(found.key) if found.data is None else found.data)
            slots.append(self._slot(len(slots) + 1, found, self._parsed[found.time], slots))
        return slots

    def _slot(self, seq: int, found: _Done, record: dict[str, Any], before: list[Slot]) -> Slot:
        completed_at = max(ms_of_instant(found.completed), before[-1].completed_at + 1 if before else 0)
        base = Slot(seq, "", self._table, found.time, found.action, COMPLETED, record.get("operationType") or "", "", seq - 1, completed_at)
        if found.action == CLEAN:
            earliest = record.get("earliestCommitToRetain") or ""
            readable = next((slot.seq for slot in before if slot.instant >= earliest), 0) if earliest else 0
            return replace(base, min_readable=readable)
        if record.get("operationType") == "LOG_COMPACT":
            raise UnsupportedTable("This table has log compactions (operation LOG_COMPACT), which hoodoo does not read. Run a full compaction with Hudi first.", instant=found.time)
        files = tuple(_files(record))
        compacts = bool(record.get("compacted"))
        kept_from = sum(1 for slot in before if slot.completed_at < ms_of_instant(found.time))
        replaced = tuple((partition, file_id) for partition, ids in (record.get("partitionToReplaceFileIds") or {}).items() for file_id in ids)
        return replace(base, files=files, replaced=replaced, action="compaction" if compacts else found.action, plan_seq=kept_from if compacts else 0)


def _files(record: dict[str, Any]) -> Iterator[DataFile]:
    for partition, stats in (record.get("partitionToWriteStats") or {}).items():
        for stat in stats:
            path = stat.get("path")
            parsed = parse_data_file(path.rpartition("/")[2]) if path else None
            if isinstance(parsed, LogName) and parsed.cdc or parsed is None:
                if path and parsed is None:
                    raise UnsupportedTable(f"The table has the file {path}, which is neither a Parquet base file nor a log file that hoodoo knows.", file=path)
                continue
            kind = BASE if isinstance(parsed, BaseName) else LOG
            yield DataFile(check_relative(path), partition, parsed.file_id, kind, stat.get("fileSizeInBytes") or 0, "", stat.get("numWrites") or 0, updates=1 if kind == LOG else 0)
