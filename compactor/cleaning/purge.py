"""Purge, which removes rows from a table permanently.

Purged rows are also removed from the history, and cannot be recovered. A purge deletes the keys, and rewrites every
file slice that contains one of them. Then it deletes the superseded files, the files of dead writers, and checkpoints
with values of the rows. Finally it checks the result with `FinalKeySearch` and `PurgedValueSearch`.

If a savepoint, a reader's lease or a consumer still needs one of the files, the purge raises PurgeBlocked before it
deletes a row. It never ends a savepoint, a lease or a consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from hoodoo.compactor.cleaning.clean import create_clean_commit
from hoodoo.compactor.cleaning.final_key_search import FinalKeySearch, KeySearchResult
from hoodoo.compactor.cleaning.key_search import KeySearch, group_keys_by_partition
from hoodoo.compactor.cleaning.purge_bounds import PurgedValueSearch
from hoodoo.compactor.cleaning.purge_report import PurgeProgress, PurgeReport
from hoodoo.compactor.cleaning.retention import list_consumers_delaying_cleaning, retention
from hoodoo.compactor.cleaning.sweep import first_instant_to_keep, remove_orphan_files
from hoodoo.compactor.compaction import plans
from hoodoo.compactor.compaction.strategies import CompactionPlan
from hoodoo.compactor.compaction.triggers import behind
from hoodoo.errors import PurgeBlocked
from hoodoo.exports.overlays import create_unused_file_test, unused_overlay_files
from hoodoo.format.names import RECORD_KEY, parse_data_file
from hoodoo.format.parquet.statistics import arrow_value_to_json, has_comparable_bounds
from hoodoo.merge.kernels import KeyedChanges, as_upserts
from hoodoo.timeline.commits.draft import Conflict, SlotDraft
from hoodoo.timeline.holds import leases
from hoodoo.timeline.instant import CLEAN
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.state import TableState
from hoodoo.timeline.views.view import FileGroup, View
from hoodoo.writers import operations
from hoodoo.writers.batches.batch import Batch
from hoodoo.writers.context import Context
from hoodoo.writers.routing.locate import find_files_by_key
from hoodoo.writers.routing.route import GroupAssignment, Mode, require_no_plan
from hoodoo.writers.routing.write_plan import WritePlan
from hoodoo.writers.sources import InMemoryBatch, rows_that_exist

_ROUNDS = 5  # the purge gives up after this many rounds if a writer keeps writing the keys again
_NAMED = 10


def purge(
    context: Context, state: TableState, batch: Batch, older_than_hours: float, unblocked: Callable[[], None]
) -> PurgeReport:
    """Purge rows from a table and its history.

    Args:
        context: The context of the operation.
        state: The table state that the purge starts from.
        batch: The keys to purge.
        older_than_hours: The minimum age of orphan files. The purge deletes older orphan files of dead writers.
        unblocked: Function that is called once, when the purge knows that it is not blocked and before it deletes a
            row.

    Raises:
        PurgeBlocked: A savepoint, a lease or a consumer needs a file that contains a key.
    """
    if not len(batch):
        unblocked()
        return PurgeReport(0, min_readable=context.timeline.history.head().min_readable)
    view, run = state.view, _Purge(context, state.config, batch)
    if (
        run.supersede_change_logs()
    ):  # it blocks no consumer: one that has read past the delete can also read past this commit
        view = context.timeline.history.head()
    run.require_unused_files(view)
    unblocked()
    for _ in range(_ROUNDS):
        context.run_plans(context.timeline.history.head())
        run.delete()
        run.compact()
        run.supersede_change_logs()
        is_clean = run.clean()
        run.delete_overlay_files()
        if is_clean and not run.live_holders(context.timeline.history.head()):
            break
    proof = FinalKeySearch(context.timeline, run.search)
    findings = run.roll_back_dead_writers(proof, older_than_hours)
    bounds = PurgedValueSearch(context.timeline, state.config, batch, run.search, run.removed)
    run.delete_checkpoints_with_values(bounds)
    return proof.report(len(batch), run.removed, findings, bounds.remaining())


@dataclass(frozen=True)
class _LiveRows(InMemoryBatch):
    # Deletes only existing keys, because a delete of a missing key would write the key into a log.
    def upsert(self, context: Context, view: View, config: TableConfig) -> WritePlan | None:
        batch = self.batch.fitted(config)
        located = find_files_by_key(context.store, config, context.index, view, batch, compare_all=True)
        exists = rows_that_exist(context.store, config, batch, located)
        if not exists.any():
            return None
        positions, absent = np.flatnonzero(exists), batch.hashes[~exists]
        write_plan = self._plan_located_rows(context, batch.take(positions), located.take(positions), view, config)
        return replace(
            write_plan, silent=True, inserted=lambda: np.union1d(write_plan.inserted(), absent)
        )  # as in any delete: a concurrent insert of an absent key conflicts, and this delete is tried again


@dataclass(frozen=True)
class _NoChanges:
    # Without changes, a file group is rewritten as it is. The function can be pickled.
    config: TableConfig

    def __call__(self) -> KeyedChanges:
        return as_upserts(pa.schema([pa.field(RECORD_KEY, pa.string()), *self.config.schema]).empty_table())


class _Purge:
    def __init__(self, context: Context, config: TableConfig, batch: Batch) -> None:
        self.context, self.config, self.batch = context, config, batch
        self.search = KeySearch(context.store, context.index, group_keys_by_partition(batch), config)
        self.removed = PurgeProgress()

    # ---- files that hold keys
    def live_holders(self, view: View) -> set[str]:
        files = [entry.file for group in view.groups(self.search.keys) for entry in group.files()]
        return self.search.find_files_with_keys(
            (path, file.partition, file.index) for file in files for path in file.paths
        )

    def old_holders(self, view: View) -> set[str]:
        return self.search.find_files_with_keys((entry.path, entry.partition, entry.index) for entry in view.superseded)

    def require_unused_files(self, view: View, live: bool = True) -> None:
        """Require that purged files are unused by savepoints and readers.

        Raises PurgeBlocked if a savepoint, a lease or a consumer needs one. If `live` is True, files of the newest
        snapshot are checked too, not only superseded files.
        """
        live_files, old_files = self.live_holders(view) if live else set(), self.old_holders(view)
        spans = [
            (entry.seq, view.seq + 1, path)
            for group in view.groups(self.search.keys)
            for entry in group.files()
            for path in entry.file.paths
        ]
        spans += [(entry.added, entry.dropped, entry.path) for entry in view.superseded]
        needed = [(first, last) for first, last, path in spans if path in live_files or path in old_files]
        if not needed:
            return

        def held(seq: int) -> bool:
            return any(first <= seq < last for first, last in needed)

        oldest = max(last for _, last in needed)  # the oldest slot that can stay readable
        savepoints = sorted(name for name, seq in view.savepoints.items() if held(seq))
        leased = sorted(seq for seq in leases.list_protected_commits(self.context.store) if held(seq))
        waiting = list_consumers_delaying_cleaning(self.context.timeline, view, retention(self.config.options))
        readers = sorted(consumer.name for consumer in waiting if consumer.position < oldest)
        if savepoints or leased or readers:
            raise PurgeBlocked(
                (
                    f"Files that contain the keys are still needed: {'; '.join(_advice(savepoints, leased, readers))}. "
                    "Then purge again."
                ),
                savepoints=savepoints,
                leases=leased,
                consumers=readers,
                files=sorted(live_files | old_files)[:_NAMED],
            )

    # ---- steps
    def delete(self) -> None:
        result = operations.upsert(self.context, _LiveRows(self.batch), "DELETE")
        self.removed.rows += result.deleted
        self._did(result.instant)
        if result.instant:
            slot = self.context.timeline.history.slot(result.cursor.seq)
            self.removed.rewritten += sum(file.kind == "base" for file in slot.files)

    def compact(self) -> None:
        def choose(view: View) -> CompactionPlan:
            live = self.live_holders(view)
            groups = (group for group in behind(view, 1) if group.partition in self.search.keys)
            return plans.BY_LOG_SIZE.plan(
                view, [group for group in groups if any(entry.file.path in live for entry in group.files())]
            )

        while plan := plans.commit_compaction_plan(self.context, choose):
            self.removed.rewritten += plans.run_compaction_plan(self.context, plan).groups
            self._did(plan.instant)

    def supersede_change_logs(self) -> bool:
        # Rewrites only file groups whose own files contain no purged key. Their change logs are then superseded.
        known_groups = self.context.timeline.history.known_head().groups(self.search.keys)
        if not any(group.base and group.base.file.changes for group in known_groups):
            return False

        def alone(group: FileGroup, live: set[str]) -> bool:
            return bool(group.base and live.intersection(group.base.file.changes)) and not any(
                entry.file.path in live for entry in group.files()
            )

        def propose(view: View, config: TableConfig) -> WritePlan | None:
            live = self.live_holders(view)
            groups = [group for group in view.groups(self.search.keys) if alone(group, live)]
            assignments = [
                GroupAssignment(Mode.REWRITE, group.partition, group.file_id, group, _NoChanges(config), 0, 0)
                for group in groups
            ]
            require_no_plan(assignments, view.planned_ids())
            return WritePlan(assignments, silent=True)

        result = operations.commit_write(self.context, "UPSERT", propose)
        self.removed.rewritten += result.files
        self._did(result.instant)
        return bool(result.instant)

    def clean(self) -> bool:
        """Delete old files that contain a purged key.

        Files within retention are deleted too. Deletes nothing if a savepoint, a lease or a consumer began to need one
        of the files during the purge. The report then lists these files.

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
            held_files = self.old_holders(view)
            if not held_files or held_files & {
                path for plan in view.plans.values() for group in plan.groups for path in (group.base, *group.logs)
            }:
                return None
            self.require_unused_files(view, live=False)
            sizes.update({entry.path: entry.size for entry in view.superseded})
            oldest = max(view.min_readable, *(entry.dropped for entry in view.superseded if entry.path in held_files))
            return create_clean_commit(view, oldest, leases.list_protected_commits(self.context.store))

        try:
            with timeline.attempt(CLEAN) as attempt:
                slot = attempt.complete(draft)
        except PurgeBlocked:
            return True
        except Conflict:
            return not self.old_holders(timeline.history.head())
        self.removed.deleted += len(slot.victims)
        self.removed.bytes += sum(sizes.get(path, 0) for path, _ in slot.victims)
        for path, partition in slot.victims:
            if parsed := parse_data_file(path.rpartition("/")[2]):
                self.removed.file_ids[parsed.file_id] = partition
        self._did(slot.instant)
        return True

    def delete_overlay_files(self) -> None:
        # Overlay files contain whole rows.
        history, store = self.context.timeline.history, self.context.store
        history.head()
        for key, size in unused_overlay_files(store, create_unused_file_test(history)):
            store.delete(key)
            self.removed.deleted += 1
            self.removed.bytes += size

    def roll_back_dead_writers(self, proof: FinalKeySearch, older_than_hours: float) -> KeySearchResult:
        # An old pending write may still bring a purged key back.
        timeline = self.context.timeline
        running = proof.wait_for_writes()
        findings = proof.search_all_files(timeline.heal().view, running, self.removed)
        unfinished = [*running, *(file.instant for file in findings.unfinished())]
        before = first_instant_to_keep(timeline, older_than_hours, unfinished)
        if not any(instant < before for instant in unfinished):
            return findings
        remove_orphan_files(timeline, older_than_hours)
        remaining_findings = proof.search_all_files(timeline.heal().view, proof.still(running), self.removed)
        remaining = {file.path for file in remaining_findings.holders}
        deleted = [file for file in findings.holders if file.path not in remaining]
        self.removed.deleted += len(deleted)
        self.removed.bytes += sum(file.size for file in deleted)
        return remaining_findings

    def delete_checkpoints_with_values(self, bounds: PurgedValueSearch) -> None:
        # Slots can replace a checkpoint.
        for key in bounds.find_checkpoints():
            self.context.store.delete(key)

    def _remember_values(self, path: str, partition: str) -> None:
        for rows in self.search.read_rows_with_keys(path, partition):
            for field in rows.schema:
                if has_comparable_bounds(field.type):
                    values = {arrow_value_to_json(value) for value in rows[field.name].unique()}
                    self.removed.values.setdefault((partition, field.name), set()).update(values - {None})

    def _did(self, instant: str) -> None:
        if instant:
            self.removed.instants.append(instant)


def _advice(savepoints: Iterable[str], leased: Iterable[int], readers: Iterable[str]) -> Iterator[str]:
    for name in savepoints:
        yield f"savepoint {name!r} keeps them: call savepoints.delete({name!r})"
    for seq in leased:
        yield f"a reader has pinned the snapshot at slot {seq}: release the pin, or wait until it expires"
    for name in readers:
        yield (
            f"consumer {name!r} has not read past them: delete the rows, compact, and let it continue to read; or "
            "drop it"
        )
