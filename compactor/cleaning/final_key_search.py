"""Final search for purged keys in all files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hoodoo.compactor import heartbeats
from hoodoo.compactor.cleaning.key_search import KeySearch
from hoodoo.compactor.cleaning.purge_bounds import FilesWithPurgedValues
from hoodoo.compactor.cleaning.purge_report import PurgeProgress, PurgeReport
from hoodoo.format.names import BaseFileName, LogFileName, instant_of_ms, parse_data_file
from hoodoo.storage.store import SCRATCH
from hoodoo.timeline.hudi.publish import instants
from hoodoo.timeline.instant import WRITES, State
from hoodoo.timeline.layout import OVERLAYS, SALVAGED, STAGING
from hoodoo.timeline.properties.nesting import list_own_files
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.views.view import View

_PAUSES_S = (0.1, 0.2, 0.5, 1, 2, 4)  # a write that takes longer appears in the report


@dataclass(frozen=True)
class FileWithPurgedKey:
    """File that still contains a purged key.

    Attributes:
        path: Path of the data file, temporary file or index entry.
        size: Size in bytes; 0 for an index entry.
        known: True if the table's view refers to the file. If False, the file belongs to an unfinished write.
        instant: Instant of the write that created the file; '' if the view refers to the file and its name contains no
            instant.
    """

    path: str
    size: int
    known: bool
    instant: str


@dataclass(frozen=True)
class KeySearchResult:
    """Result of a search for purged keys: the files that contain them.

    Attributes:
        view: The view of the table during the check.
        running: Timeline keys of the writes that were still running, by instant.
        checked: Number of files whose keys were read.
        holders: The files that contain a key.
    """

    view: View
    running: dict[str, str]
    checked: int
    holders: tuple[FileWithPurgedKey, ...]

    def unfinished(self) -> list[FileWithPurgedKey]:
        return [file for file in self.holders if not file.known]


class FinalKeySearch:
    """Final search for purged keys in all files of a table."""

    def __init__(self, timeline: TableTimeline, search: KeySearch) -> None:
        self.timeline, self.store, self.search = timeline, timeline.store, search

    def wait_for_writes(self) -> dict[str, str]:
        """Wait a few seconds for running writes.

        Returns the writes that are still running. A running write may have read a file before it was deleted, and may
        still write its rows to a new file. A write that begins later cannot read the deleted files. The result maps
        instants to paths of timeline files.
        """
        running = self._pending_writes()
        for pause_seconds in _PAUSES_S:
            if not running:
                break
            self.timeline.environment.sleep(pause_seconds)
            running = self.still(running)
        return running

    def still(self, running: dict[str, str]) -> dict[str, str]:
        return {instant: key for instant, key in self._pending_writes().items() if instant in running}

    def search_all_files(self, view: View, running: dict[str, str], removed: PurgeProgress) -> KeySearchResult:
        """Search all files for purged keys.

        Args:
            view: The newest view of the table.
            running: The writes that are still running, as `wait_for_writes` returns them.
            removed: The rows and files that the purge has removed.
        """
        referenced = {
            name for group in view.groups() for entry in group.files() for name in (*entry.file.paths, entry.file.index)
        }
        referenced |= {name for entry in view.superseded for name in (entry.path, entry.index)}
        holders, checked, file_ids = list[FileWithPurgedKey](), 0, dict(removed.file_ids)
        for path, size, partition, name in self._data_files():
            checked += 1
            file_ids[name.file_id] = partition
            if self.search.file_contains_keys(path, partition):
                holders.append(FileWithPurgedKey(path, size, path in referenced, name.instant))
        for path, size in [*self.store.list(STAGING), *self.store.list(SCRATCH)]:
            checked += 1
            if self.search.temporary_file_contains_keys(path):
                holders.append(FileWithPurgedKey(path, size, False, instant_of_ms(self.store.modified_ms(path) or 0)))
        overlays = [(path, size) for path, size in self.store.list(OVERLAYS) if path.endswith(".parquet")]
        for path, size in [*self.store.list(SALVAGED), *overlays]:  # no process deletes these files at this point
            checked += 1
            if self.search.temporary_file_contains_keys(path):
                holders.append(FileWithPurgedKey(path, size, True, ""))
        holders += [
            FileWithPurgedKey(key, 0, key in referenced, key.rpartition("_")[2])
            for key in self.search.find_index_entries_with_keys(file_ids)
        ]
        return KeySearchResult(view, running, checked, tuple(holders))

    def report(
        self, keys: int, removed: PurgeProgress, found: KeySearchResult, bounds: FilesWithPurgedValues
    ) -> PurgeReport:
        return PurgeReport(
            keys=keys,
            rows_deleted=removed.rows,
            files_rewritten=removed.rewritten,
            files_deleted=removed.deleted,
            bytes_deleted=removed.bytes,
            files_checked=found.checked,
            holders=tuple(sorted(file.path for file in found.holders if file.known)),
            pending=tuple(
                sorted(
                    [
                        *found.running.values(),
                        *(file.path for file in found.unfinished()),
                        *self._hints_of_completed_plans(found.view),
                    ]
                )
            ),
            instants=tuple(removed.instants),
            min_readable=found.view.min_readable,
            bounds_in_slots=bool(bounds.keys),
            bounds=bounds.keys,
            bounds_until=bounds.until,
            exports=bounds.exports,
        )

    def _pending_writes(self) -> dict[str, str]:
        all_instants = instants(self.store)
        ended = {instant.time for instant in all_instants if instant.state is State.COMPLETED}
        return {
            instant.time: instant.key
            for instant in all_instants
            if instant.action in WRITES and instant.time not in ended
        }

    def _data_files(self) -> Iterator[tuple[str, int, str, BaseFileName | LogFileName]]:
        for partition in self.search.keys:
            for path, size in list(list_own_files(self.store, f"{partition}/" if partition else "")):
                folder, _, name = path.rpartition("/")
                parsed = parse_data_file(name)
                if folder == partition and parsed:
                    yield path, size, partition, parsed

    def _hints_of_completed_plans(self, view: View) -> Iterator[str]:
        # Another process has already completed these plans.
        for key, _ in self.store.list(heartbeats.running_plan_hint_path("")):
            instant = key.removeprefix(heartbeats.running_plan_hint_path(""))
            if instant not in view.plans and heartbeats.is_plan_running(
                self.store, instant, self.timeline.environment.now_ms()
            ):
                yield key


__all__ = ["KeySearchResult", "FileWithPurgedKey", "FinalKeySearch"]
