"""Check that a purge removed its keys from all files of a table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from hoodoo.compactor import heartbeats
from hoodoo.compactor.cleaning.key_search import KeySearch
from hoodoo.compactor.cleaning.purge_report import PurgeReport
from hoodoo.compactor.cleaning.sweep import begun_before, sweep
from hoodoo.errors import CorruptTable
from hoodoo.exports.described_files import described_files
from hoodoo.format.names import RECORD_KEY, instant_of_ms, parse_data_file
from hoodoo.format.parquet.statistics import to_json
from hoodoo.storage.store import SCRATCH
from hoodoo.timeline.hudi.publish import SLOW_WRITE_MS, instants
from hoodoo.timeline.instant import WRITES, State
from hoodoo.timeline.layout import CHECKPOINTS, OVERLAYS, SALVAGED, STAGING, slot_key
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.properties.nesting import own_keys
from hoodoo.timeline.slots import watermark
from hoodoo.timeline.slots.slot import DataFile
from hoodoo.timeline.views import checkpoint
from hoodoo.timeline.views.view import View
from hoodoo.writers.batches.batch import Batch
from hoodoo.writers.context import Context

_PAUSES_S = (0.1, 0.2, 0.5, 1, 2, 4)  # a write that takes longer appears in the report


@dataclass
class Removed:
    """Rows and files that a purge has removed so far.

    Attributes:
        rows: Number of live rows that were deleted.
        rewritten: Number of data files that were rewritten.
        deleted: Number of files that were deleted.
        bytes: Total size of the deleted files.
        instants: Instants of the commits, compactions and clean operations of the purge.
        values: Values of the purged rows, encoded like bounds, by partition and column.
        file_ids: Partitions of the file groups that were searched or lost files, by file id.
    """

    rows: int = 0
    rewritten: int = 0
    deleted: int = 0
    bytes: int = 0
    instants: list[str] = field(default_factory=list)
    values: dict[tuple[str, str], set[Any]] = field(default_factory=dict)
    file_ids: dict[str, str] = field(default_factory=dict)


class PurgeProof:
    """Check of a table after a purge. It lists the store and reads the files again."""

    def __init__(
        self, context: Context, config: TableConfig, batch: Batch, search: KeySearch, removed: Removed
    ) -> None:
        """Create a check of a purge of the keys of `batch`, which `search` finds in files."""
        self.context, self.config, self.batch = context, config, batch
        self.search, self.removed = search, removed

    def report(self, older_than_hours: float) -> PurgeReport:
        """Check the store again and return the report.

        The check covers every data file of the partitions, staged files, index entries, and bounds in slots.
        """
        timeline, removed = self.context.timeline, self.removed
        running = self._wait_for_writes()
        view = timeline.heal().view
        checked, found = self._look(view)
        unended = [*running, *(instant for _, _, known, instant in found if not known)]
        before = begun_before(timeline, older_than_hours, unended)
        if any(instant < before for instant in unended):
            there = {path: size for path, size, _, _ in found}
            sweep(timeline, older_than_hours)  # rolls back the instants of dead writers and deletes their files
            running = {instant: key for instant, key in self._pending_writes().items() if instant in running}
            view = timeline.heal().view
            _, found = self._look(view)
            gone = there.keys() - {path for path, _, _, _ in found}
            removed.deleted += len(gone)
            removed.bytes += sum(there[path] for path in gone)
        bounds, bounds_until, exports = self._bounds()
        return PurgeReport(
            keys=len(self.batch),
            rows_deleted=removed.rows,
            files_rewritten=removed.rewritten,
            files_deleted=removed.deleted,
            bytes_deleted=removed.bytes,
            files_checked=checked,
            holders=tuple(sorted(path for path, _, known, _ in found if known)),
            pending=tuple(
                sorted(
                    [
                        *running.values(),
                        *(path for path, _, known, _ in found if not known),
                        *self._plans_still_run(view),
                    ]
                )
            ),
            instants=tuple(removed.instants),
            min_readable=view.min_readable,
            bounds_in_slots=bool(bounds),
            bounds=bounds,
            bounds_until=bounds_until,
            exports=exports,
        )

    def _wait_for_writes(self) -> dict[str, str]:
        """Wait a few seconds for running writes, and return those still running: timeline keys by instant.

        A running write may have read a file before it was deleted, and may still write its rows to a new file. A write
        that begins later cannot read the deleted files.
        """
        environment = self.context.timeline.environment
        running = self._pending_writes()
        for pause_s in _PAUSES_S:
            if not running:
                break
            environment.sleep(pause_s)
            running = {instant: key for instant, key in self._pending_writes().items() if instant in running}
        return running

    def _pending_writes(self) -> dict[str, str]:
        """Return the unfinished writes: a timeline key for each instant."""
        found = instants(self.context.store)
        ended = {one.time for one in found if one.state is State.COMPLETED}
        return {one.time: one.key for one in found if one.action in WRITES and one.time not in ended}

    def _look(self, view: View) -> tuple[int, list[tuple[str, int, bool, str]]]:
        """Return the number of files read, and the files and index entries that contain a key.

        Each entry of the list is (path, size, whether the view knows the file, instant of its writer).
        """
        known = {
            name for group in view.groups() for entry in group.files() for name in (*entry.file.paths, entry.file.index)
        }
        known |= {name for entry in view.superseded for name in (entry.path, entry.index)}
        found, checked = [], 0
        for path, size, partition, instant in self._data_files():
            checked += 1
            if self.search.reads(path, partition):
                found.append((path, size, path in known, instant))
        store = self.context.store
        for path, size in [*store.list(STAGING), *store.list(SCRATCH)]:
            checked += 1
            if self.search.in_staging(path):
                found.append((path, size, False, instant_of_ms(store.modified_ms(path) or 0)))
        overlays = [(path, size) for path, size in store.list(OVERLAYS) if path.endswith(".parquet")]
        for path, size in [*store.list(SALVAGED), *overlays]:  # no process deletes these files at this point
            checked += 1
            if self.search.in_staging(path):
                found.append((path, size, True, ""))
        found += [
            (key, 0, key in known, key.rpartition("_")[2]) for key in self.search.in_entries(self.removed.file_ids)
        ]
        return checked, found

    def _data_files(self) -> Iterator[tuple[str, int, str, str]]:
        """Yield (path, size, partition, instant) of every base file and log file in the partition folders."""
        for partition in self.search.keys:
            for path, size in list(own_keys(self.context.store, f"{partition}/" if partition else "")):
                folder, _, name = path.rpartition("/")
                parsed = parse_data_file(name)
                if folder == partition and parsed:
                    self.removed.file_ids[parsed.file_id] = partition
                    yield path, size, partition, parsed.instant

    def _plans_still_run(self, view: View) -> Iterator[str]:
        """Yield the keys of recent hints that a worker still runs a closed plan."""
        for key, _ in self.context.store.list(heartbeats.plan_hint("")):
            instant = key.removeprefix(heartbeats.plan_hint(""))
            if instant not in view.plans and heartbeats.held(
                self.context.store, instant, self.context.timeline.environment.now_ms()
            ):
                yield key

    def _bounds(self) -> tuple[tuple[str, ...], dt.datetime | None, tuple[str, ...]]:
        """Find the slots, checkpoints and export files that contain a value of a purged row as a bound.

        Deletes checkpoints that contain such a value, because slots replace them. For a file that was deleted before
        this purge could read its rows, any bound counts unless a live file has an equal bound.

        Returns:
            The keys of slots and of the checkpoint in the watermark; the earliest time at which they can be archived,
            or None; and the export files.
        """
        timeline, store = self.context.timeline, self.context.store
        view = timeline.history.head()
        live: dict[tuple[str, str], set[Any]] = {}
        there = set()
        for group in view.groups(self.search.keys):
            for entry in group.files():
                there.add(entry.file.path)
                for column, stats in entry.file.stats.items():
                    live.setdefault((entry.file.partition, column), set()).update(stats[:2])
        keys = self._key_values()

        def leaks(file: DataFile) -> bool:
            if file.partition not in self.search.keys or file.path in there:
                return False
            known = self.search.knows(file.path)
            if known is None and not self._may_hold(file, keys):
                return False
            return any(
                value is not None
                and (
                    value in keys.get((file.partition, column), ())
                    or value not in live.get((file.partition, column), ())
                    and (known is None or known and value in self.removed.values.get((file.partition, column), ()))
                )
                for column, stats in file.stats.items()
                for value in stats[:2]
            )

        found, last, gone, clear = [], 0, set[str](), set[str]()
        for seq in range(timeline.history.oldest_slot(), view.seq + 1):
            slot = timeline.history.slot(seq)
            held = {file.path for file in slot.files if slot.instant not in self.removed.instants and leaks(file)}
            clear |= {file.path for file in slot.files if file.partition in self.search.keys} - held
            if held:
                found.append(slot_key(seq))
                gone |= held
            if held or gone.intersection(path for path, _ in slot.victims):
                last = slot.completed_at
        for key, _ in list(store.list(CHECKPOINTS)):
            if self._described_in(key, leaks):
                store.delete(key)
        mark = watermark.deleted_up_to(store)
        if mark and self._described_in(watermark.state_key(mark), leaks):
            found.append(watermark.state_key(mark))
            last = max(last, view.completed_at)
        exports = self._exports(there | clear)
        if not found:
            return (), None, exports
        options = self.config.options
        hours = max(options.archive_after_hours, options.retain_hours, SLOW_WRITE_MS / 3_600_000)
        until = dt.datetime.fromtimestamp(last / 1000, dt.timezone.utc) + dt.timedelta(hours=hours)
        return tuple(found), until, exports

    def _exports(self, clear: set[str]) -> tuple[str, ...]:
        """Return the export files that describe a deleted file that may have held a purged row.

        A deleted file that no slot describes counts, unless it was searched and held no key. An export file that cannot
        be read counts too.

        clear: paths of files whose bounds contain no purged value.
        """

        def leaks(path: str) -> bool:
            folder = path.rpartition("/")[0]
            return folder in self.search.keys and path not in clear and self.search.knows(path) is not False

        found = described_files(self.context.store)
        return tuple(sorted(key for key, paths in found if paths is None or any(map(leaks, paths))))

    def _may_hold(self, file: DataFile, keys: dict[tuple[str, str], set[Any]]) -> bool:
        """Return whether a deleted file may have held a purged key, judging by the bounds of its first key column."""
        name = self.config.key[0]
        low, high = file.stats.get(name, (None, None))[:2]
        if low is None or high is None or file.foreign or pa.types.is_decimal(self.config.schema.field(name).type):
            return True
        return any(low <= value <= high for value in keys.get((file.partition, name), ()))

    def _described_in(self, key: str, leaks: Callable[[DataFile], bool]) -> bool:
        """Return whether a checkpoint describes a file for which `leaks` is true. False if it is missing or damaged."""
        try:
            view = checkpoint.read(self.context.store, key)
            return any(leaks(entry.file) for group in view.groups(self.search.keys) for entry in group.files())
        except (FileNotFoundError, CorruptTable):
            return False

    def _key_values(self) -> dict[tuple[str, str], set[Any]]:
        """Return the purged keys, encoded like bounds, by partition and column.

        The columns of a composite key are separate entries.
        """
        found: dict[tuple[str, str], set[Any]] = {}
        for code in np.unique(self.batch.codes).tolist():
            rows = self.batch.rows.filter(pa.array(self.batch.codes == code))
            for column in (RECORD_KEY, *self.config.key):
                values = {to_json(value) for value in rows[column].to_pylist()} - {None}
                found[self.batch.partitions[code], column] = values
        return found


__all__ = ["PurgeProof", "Removed"]
