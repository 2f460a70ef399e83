"""Purging: the removal of rows so that they cannot be recovered.

A purge deletes the keys, rewrites every file slice that holds one, deletes the superseded files, and then checks the
result. The check lists the store and reads the files, and does not rely on the snapshot or on index entries.

If a savepoint, a reader's lease or a consumer still needs one of the files, the purge raises PurgeBlocked before it
deletes a row. It never breaks such a hold.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from hoodoo.compactor import heartbeats
from hoodoo.compactor.cleaning.clean import draft_of
from hoodoo.compactor.cleaning.key_search import KeySearch, wanted
from hoodoo.compactor.cleaning.retention import awaited, retention
from hoodoo.compactor.cleaning.sweep import begun_before, sweep
from hoodoo.compactor.compaction import plans
from hoodoo.compactor.compaction.strategies import CompactionPlan
from hoodoo.compactor.compaction.triggers import behind
from hoodoo.errors import CorruptTable, PurgeBlocked
from hoodoo.exports.described_files import described_files
from hoodoo.exports.overlays import passed_files, passed_overlays
from hoodoo.format.names import RECORD_KEY, instant_of_ms, parse_data_file
from hoodoo.format.parquet.statistics import bound, has_bounds, to_json
from hoodoo.merge.kernels import KeyedChanges, upserts
from hoodoo.storage.store import SCRATCH
from hoodoo.timeline.commits.draft import Conflict, SlotDraft
from hoodoo.timeline.holds import leases
from hoodoo.timeline.hudi.publish import SLOW_WRITE_MS, instants
from hoodoo.timeline.instant import CLEAN, WRITES, State
from hoodoo.timeline.layout import CHECKPOINTS, OVERLAYS, SALVAGED, STAGING, slot_key
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.properties.nesting import own_keys
from hoodoo.timeline.slots import watermark
from hoodoo.timeline.slots.slot import DataFile
from hoodoo.timeline.state import TableState
from hoodoo.timeline.views import checkpoint
from hoodoo.timeline.views.view import FileGroup, View
from hoodoo.writers import operations
from hoodoo.writers.batches.batch import Batch
from hoodoo.writers.context import Context
from hoodoo.writers.routing.locate import locate_by_key
from hoodoo.writers.routing.route import Assignment, Mode, require_no_plan
from hoodoo.writers.routing.write_plan import WritePlan
from hoodoo.writers.sources import InProcess, rows_that_exist

_ROUNDS = 5  # the purge gives up after this many rounds if a writer keeps writing the keys again
_NAMED = 10
_PAUSES_S = (0.1, 0.2, 0.5, 1, 2, 4)  # a write that takes longer appears in the report


@dataclass(frozen=True)
class PurgeReport:
    """Result of a purge: the rows and files that it removed, and the files that may still hold a value.

    Attributes:
        keys: Number of keys to purge.
        rows_deleted: Number of live rows that were deleted.
        files_rewritten: Number of data files that were rewritten because they held a key.
        files_deleted: Number of files that were deleted.
        bytes_deleted: Total size of the deleted files, in bytes.
        files_checked: Number of files whose keys were read in the final check.
        holders: The files that still hold a key. Either the key was written again, or a savepoint, a reader or a
            consumer began to need the file during the purge.
        pending: Writes and files that may still bring a key back. The list contains writes that began before the final
            check and have not ended, files of such writes, and workers that still run a plan that another process
            completed. Purge again once they have ended.
        instants: The instants of the commits, compactions and clean operations that the purge made.
        min_readable: The oldest slot whose snapshot can still be read.
        bounds_in_slots: True if a slot or a checkpoint may still hold a value of a purged row, as the minimum or
            maximum of a deleted file.
        bounds: The files in `.hoodie/.hoodoo` that hold these values.
        bounds_until: The earliest time (UTC) at which `archive` deletes the files of `bounds`. It keeps them longer if
            a snapshot, a savepoint or a plan still needs them. None if `bounds` is empty.
        quarantined: Number of quarantined rows that were purged.
        quarantine_unread: Number of quarantined rows whose keys cannot be read, because they are truncated or invalid.
        exports: The files in `_delta_log` and `metadata` that may hold a value of a purged row, as the minimum or
            maximum of a deleted file. Export again with `rebuild=True`, then purge again.
    """

    keys: int
    rows_deleted: int = 0
    files_rewritten: int = 0
    files_deleted: int = 0
    bytes_deleted: int = 0
    files_checked: int = 0
    holders: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    instants: tuple[str, ...] = ()
    min_readable: int = 0
    bounds_in_slots: bool = False
    quarantined: int = 0
    quarantine_unread: int = 0
    bounds: tuple[str, ...] = ()
    bounds_until: dt.datetime | None = None
    exports: tuple[str, ...] = ()

    @property
    def proved(self) -> bool:
        """True if no data file holds any of the keys, and no slot, checkpoint or export has their values as bounds."""
        return self.files_proved and not (self.bounds_in_slots or self.exports)

    @property
    def files_proved(self) -> bool:
        """True if no data file holds any of the keys. Slots, checkpoints and exports may still have bounds."""
        return not (self.holders or self.pending or self.quarantine_unread)

    def with_quarantine(self, report: PurgeReport | None, unread: int) -> PurgeReport:
        """Add the results of purging the quarantine table.

        Args:
            report: The report of the quarantine purge. None if there was nothing to purge.
            unread: Number of quarantined rows whose keys cannot be read.

        Returns:
            A copy of this report that includes both arguments.
        """
        if report is None:
            return replace(self, quarantine_unread=unread)
        return replace(
            self,
            holders=(*self.holders, *report.holders),
            pending=(*self.pending, *report.pending),
            bounds_in_slots=self.bounds_in_slots or report.rows_deleted > 0,  # `detail` and `payload` have bounds too
            quarantined=report.rows_deleted,
            quarantine_unread=unread,
            bounds=(*self.bounds, *report.bounds),
            exports=(*self.exports, *report.exports),
            bounds_until=max((one.bounds_until for one in (self, report) if one.bounds_until), default=None),
        )


def purge(
    context: Context, state: TableState, batch: Batch, older_than_hours: float, unblocked: Callable[[], None]
) -> PurgeReport:
    """Purge the keys of `batch` from the table.

    Args:
        context: The context of the operation.
        state: The table state that the purge starts from.
        batch: The keys to purge.
        older_than_hours: The minimum age of orphan files. The purge deletes orphan files of dead writers if they are
            older.
        unblocked: Called once, after the purge has made sure that it is not blocked and before it deletes a row.

    Raises:
        PurgeBlocked: A savepoint, a lease or a consumer needs a file that holds a key.
    """
    if not len(batch):
        unblocked()
        return PurgeReport(0, min_readable=context.timeline.history.head().min_readable)
    view, work = state.view, _Purge(context, state.config, batch)
    if work.forget_changes():  # it blocks no consumer: one that has read past the delete can also read past this commit
        view = context.timeline.history.head()
    work.require_free(view)
    unblocked()
    for _ in range(_ROUNDS):
        context.run_plans(context.timeline.history.head())
        work.delete()
        work.compact()
        work.forget_changes()
        done = work.clean()
        work.forget_overlays()
        if done and not work.live_holders(context.timeline.history.head()):
            break
    return work.report(older_than_hours)


@dataclass(frozen=True)
class _LiveRows(InProcess):
    """Source of deletes for keys that exist. A delete of a missing key would write that key into a log again."""

    def upsert(self, context: Context, view: View, config: TableConfig) -> WritePlan | None:
        batch = self.batch.fitted(config)
        located = locate_by_key(context.store, config, context.index, view, batch, compare_all=True)
        there = rows_that_exist(context.store, config, batch, located)
        if not there.any():
            return None
        positions, absent = np.flatnonzero(there), batch.hashes[~there]
        found = self._routed(context, batch.take(positions), located.take(positions), view, config)
        return replace(
            found, silent=True, inserted=lambda: np.union1d(found.inserted(), absent)
        )  # as in any delete: a concurrent insert of an absent key conflicts, and this delete is tried again


@dataclass(frozen=True)
class _NoChanges:
    """Picklable callable that returns an empty set of changes."""

    config: TableConfig

    def __call__(self) -> KeyedChanges:
        return upserts(pa.schema([pa.field(RECORD_KEY, pa.string()), *self.config.schema]).empty_table())


class _Purge:
    def __init__(self, context: Context, config: TableConfig, batch: Batch) -> None:
        self.context, self.config, self.batch = context, config, batch
        self.search = KeySearch(context.store, context.index, wanted(batch), config)
        self.rows = self.rewritten = self.deleted = self.bytes = 0
        self.instants: list[str] = []
        self.values: dict[tuple[str, str], set[Any]] = {}  # bounds of purged rows, by partition and column
        self.file_ids: dict[str, str] = {}  # partitions of the file groups that were searched or lost files, by file id

    # ---- files that hold keys
    def live_holders(self, view: View) -> set[str]:
        files = [entry.file for group in view.groups(self.search.keys) for entry in group.files()]
        return self.search.holders((path, file.partition, file.index) for file in files for path in file.paths)

    def old_holders(self, view: View) -> set[str]:
        return self.search.holders((entry.path, entry.partition, entry.index) for entry in view.superseded)

    def require_free(self, view: View, live: bool = True) -> None:
        """Raise PurgeBlocked if a savepoint, a lease or a consumer needs a file that holds a key.

        live: also check the files of the newest snapshot, not only superseded files.
        """
        mine, old = self.live_holders(view) if live else set(), self.old_holders(view)
        spans = [
            (entry.seq, view.seq + 1, path)
            for group in view.groups(self.search.keys)
            for entry in group.files()
            for path in entry.file.paths
        ]
        spans += [(entry.added, entry.dropped, entry.path) for entry in view.superseded]
        needed = [(first, last) for first, last, path in spans if path in mine or path in old]
        if not needed:
            return

        def held(seq: int) -> bool:
            return any(first <= seq < last for first, last in needed)

        oldest = max(last for _, last in needed)  # the oldest slot that can stay readable
        savepoints = sorted(name for name, seq in view.savepoints.items() if held(seq))
        leased = sorted(seq for seq in leases.held(self.context.store) if held(seq))
        waiting = awaited(self.context.timeline, view, retention(self.config.options))
        readers = sorted(one.name for one in waiting if one.position < oldest)
        if savepoints or leased or readers:
            raise PurgeBlocked(
                (
                    f"Files that hold the keys are needed: {'; '.join(_advice(savepoints, leased, readers))}. Then "
                    "purge again."
                ),
                savepoints=savepoints,
                leases=leased,
                consumers=readers,
                files=sorted(mine | old)[:_NAMED],
            )

    # ---- steps
    def delete(self) -> None:
        result = operations.upsert(self.context, _LiveRows(self.batch), "DELETE")
        self.rows += result.deleted
        self._did(result.instant)
        if result.instant:
            slot = self.context.timeline.history.slot(result.cursor.seq)
            self.rewritten += sum(file.kind == "base" for file in slot.files)

    def compact(self) -> None:
        """Rewrite the file slices whose base file or log files hold a key."""

        def choose(view: View) -> CompactionPlan:
            live = self.live_holders(view)
            groups = (group for group in behind(view, 1) if group.partition in self.search.keys)
            return plans.BY_LOG_SIZE.plan(
                view, [group for group in groups if any(entry.file.path in live for entry in group.files())]
            )

        while plan := plans.schedule(self.context, choose):
            self.rewritten += plans.run(self.context, plan).groups
            self._did(plan.instant)

    def forget_changes(self) -> bool:
        """Rewrite base files, without changes, if a key is only in their change logs. This supersedes the change logs.

        Returns True if a file was rewritten.
        """
        known = self.context.timeline.history.known_head().groups(self.search.keys)
        if not any(group.base and group.base.file.changes for group in known):
            return False

        def alone(group: FileGroup, live: set[str]) -> bool:
            return bool(group.base and live.intersection(group.base.file.changes)) and not any(
                entry.file.path in live for entry in group.files()
            )

        def propose(view: View, config: TableConfig) -> WritePlan | None:
            live = self.live_holders(view)
            groups = [group for group in view.groups(self.search.keys) if alone(group, live)]
            assignments = [
                Assignment(Mode.REWRITE, group.partition, group.file_id, group, _NoChanges(config), 0, 0)
                for group in groups
            ]
            require_no_plan(assignments, view.planned_ids())
            return WritePlan(assignments, silent=True)

        result = operations.commit(self.context, "UPSERT", propose)
        self.rewritten += result.files
        self._did(result.instant)
        return bool(result.instant)

    def clean(self) -> bool:
        """Delete every superseded file that holds a key, even if retention would keep it.

        Deletes nothing if a savepoint, a lease or a consumer has begun to need one of the files since the purge began.
        The report then lists these files.

        Returns False if an open plan or a concurrent clean operation prevented the deletion.
        """
        timeline, sizes = self.context.timeline, dict[str, int]()
        holders = self.old_holders(timeline.history.head())
        if not holders:
            return True
        for entry in timeline.history.head().superseded:
            if entry.path in holders:
                self._remember_values(entry.path, entry.partition)

        def draft(view: View) -> SlotDraft | None:
            doomed = self.old_holders(view)
            if not doomed or doomed & {
                path for plan in view.plans.values() for group in plan.groups for path in (group.base, *group.logs)
            }:
                return None
            self.require_free(view, live=False)
            sizes.update({entry.path: entry.size for entry in view.superseded})
            oldest = max(view.min_readable, *(entry.dropped for entry in view.superseded if entry.path in doomed))
            return draft_of(view, oldest, leases.held(self.context.store))

        try:
            with timeline.attempt(CLEAN) as attempt:
                slot = attempt.complete(draft)
        except PurgeBlocked:
            return True
        except Conflict:
            return not self.old_holders(timeline.history.head())
        self.deleted += len(slot.victims)
        self.bytes += sum(sizes.get(path, 0) for path, _ in slot.victims)
        for path, partition in slot.victims:
            if parsed := parse_data_file(path.rpartition("/")[2]):
                self.file_ids[parsed.file_id] = partition
        self._did(slot.instant)
        return True

    def forget_overlays(self) -> None:
        """Delete the overlay files of older snapshots at once, because they contain whole rows."""
        history, store = self.context.timeline.history, self.context.store
        history.head()
        for key, size in passed_files(store, passed_overlays(history)):
            store.delete(key)
            self.deleted += 1
            self.bytes += size

    def _did(self, instant: str) -> None:
        if instant:
            self.instants.append(instant)

    # ---- proof
    def report(self, older_than_hours: float) -> PurgeReport:
        """Check the store again and return the report.

        The check covers every data file of the partitions, staged files, index entries, and bounds in slots.
        """
        timeline = self.context.timeline
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
            self.deleted += len(gone)
            self.bytes += sum(there[path] for path in gone)
        bounds, bounds_until, exports = self._bounds()
        return PurgeReport(
            keys=len(self.batch),
            rows_deleted=self.rows,
            files_rewritten=self.rewritten,
            files_deleted=self.deleted,
            bytes_deleted=self.bytes,
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
            instants=tuple(self.instants),
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
        found += [(key, 0, key in known, key.rpartition("_")[2]) for key in self.search.in_entries(self.file_ids)]
        return checked, found

    def _data_files(self) -> Iterator[tuple[str, int, str, str]]:
        """Yield (path, size, partition, instant) of every base file and log file in the partition folders."""
        for partition in self.search.keys:
            for path, size in list(own_keys(self.context.store, f"{partition}/" if partition else "")):
                folder, _, name = path.rpartition("/")
                parsed = parse_data_file(name)
                if folder == partition and parsed:
                    self.file_ids[parsed.file_id] = partition
                    yield path, size, partition, parsed.instant

    def _plans_still_run(self, view: View) -> Iterator[str]:
        """Yield the keys of recent hints that a worker still runs a closed plan."""
        for key, _ in self.context.store.list(heartbeats.plan_hint("")):
            instant = key.removeprefix(heartbeats.plan_hint(""))
            if instant not in view.plans and heartbeats.held(
                self.context.store, instant, self.context.timeline.environment.now_ms()
            ):
                yield key

    def _remember_values(self, path: str, partition: str) -> None:
        """Remember the values of the purged rows in a file, encoded like bounds."""
        for rows in self.search.rows_of(path, partition):
            for field in rows.schema:
                if has_bounds(field.type):
                    values = {bound(value) for value in rows[field.name].unique()}
                    self.values.setdefault((partition, field.name), set()).update(values - {None})

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
                    and (known is None or known and value in self.values.get((file.partition, column), ()))
                )
                for column, stats in file.stats.items()
                for value in stats[:2]
            )

        found, last, gone, clear = [], 0, set[str](), set[str]()
        for seq in range(timeline.history.oldest_slot(), view.seq + 1):
            slot = timeline.history.slot(seq)
            held = {file.path for file in slot.files if slot.instant not in self.instants and leaks(file)}
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


def _advice(savepoints: Iterable[str], leased: Iterable[int], readers: Iterable[str]) -> Iterator[str]:
    for name in savepoints:
        yield f"savepoint {name!r} keeps them: call delete_savepoint({name!r})"
    for seq in leased:
        yield f"a reader has pinned the snapshot at slot {seq}: release the pin, or wait until it expires"
    for name in readers:
        yield (
            f"consumer {name!r} has not read past them: delete the rows, compact, and let it continue to read; or "
            "drop it"
        )
