"""Reader for changed rows in a range of commits.

It implements `Table.changes`, `Table.diff` and the deletes of `Table.incremental`. This module decides which file
groups of which partitions are compared, and `readers/changes/row_diff.py` compares them. The table needs no special
option.

No file records which commit deleted a key. If several commits of the range may have deleted a key, their snapshots are
compared one by one, newest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.arguments import check_allowed_value
from hoodoo.engine.local import LocalEngine
from hoodoo.errors import CorruptTable, SnapshotExpired
from hoodoo.format.name_mapping import NameMapping
from hoodoo.format.names import RECORD_KEY
from hoodoo.format.parquet.base_file import BATCH_ROWS
from hoodoo.format.rows import take_rows
from hoodoo.readers.changes.row_diff import KEY, SnapshotDiff, report_moves_as_updates
from hoodoo.readers.changes.snapshot_pair import FilePair, pair_changed_files
from hoodoo.readers.cursor import cursor_of
from hoodoo.readers.output import Rows
from hoodoo.readers.predicate.filter import Filter, Params, Where
from hoodoo.readers.pruning import FilePruning
from hoodoo.readers.scan import validate_columns
from hoodoo.readers.task import Task
from hoodoo.storage.store import Store
from hoodoo.timeline.history import History
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import Slot
from hoodoo.timeline.views.pages import find_differing_partitions
from hoodoo.timeline.views.view import FileGroup, View, apply

_WINDOW = 32  # with versions='all': number of slots whose changes are sorted together
NET, ALL = "net", "all"


@dataclass(frozen=True)
class ChangesTask(Task):
    """Task that finds changed rows in one partition.

    Attributes:
        store: The store of the table.
        config: The configuration of the table.
        columns: Names of the columns in the images `before` and `after`.
        where: Filter for the rows, or None for all rows.
        net: True to return one net change per row. Each pair of snapshots then spans the whole range. False to return
            every version of a row. The pairs then follow each other in time.
        timed: True to return the instant of the commit of each change.
        steps: The pairs of file group snapshots to compare.
        trail: Snapshot pairs of the commits that may have deleted keys, oldest first. If there is a single commit, it
            deleted all missing keys.
        instants: The instants of all commits in the range. None if two snapshots are compared instead of a range.
    """

    store: Store
    config: TableConfig
    columns: tuple[str, ...]
    where: Filter | None
    net: bool
    timed: bool
    steps: tuple[FilePair, ...]
    trail: tuple[FilePair, ...] = ()
    instants: tuple[str, ...] | None = None

    def __call__(self) -> pa.Table:
        return self.drop_internal_columns(self.find_changes_with_keys())

    def drop_internal_columns(self, changes: pa.Table) -> pa.Table:
        return changes.drop_columns([KEY] if self.timed else [KEY, "instant"])

    def find_changes_with_keys(self) -> pa.Table:
        if self.net:
            return self.combine_changes_of_pairs([self.find_changes_of_pair(step) for step in self.steps])
        images = self._row_diff(self.columns, self.where)
        touched = [images.touched_keys(step) for step in self.steps]
        images.announce_keys_to_read(
            pa.concat_arrays([pa.array([], pa.string()), *(keys for keys in touched if keys is not None)]).unique()
        )
        return pa.concat_tables(
            [
                report_moves_as_updates(images.changes(step, keys), False)
                for step, keys in zip(self.steps, touched, strict=True)
            ]
        )

    def find_changes_of_pair(self, step: FilePair) -> pa.Table:
        return self._row_diff(self.columns, self.where).diff(step)

    def combine_changes_of_pairs(self, changes: Sequence[pa.Table]) -> pa.Table:
        rows = report_moves_as_updates(pa.concat_tables(changes), True)
        return self._add_delete_instants(rows) if self.timed else rows

    def _row_diff(self, columns: tuple[str, ...], where: Filter | None) -> SnapshotDiff:
        instants = None if self.instants is None else pa.array(self.instants, pa.string())
        return SnapshotDiff(
            self.store,
            self.config,
            pa.schema([self.config.file_schema.field(name) for name in columns]),
            where,
            self.net,
            instants,
        )

    def _add_delete_instants(self, changes: pa.Table) -> pa.Table:
        # No file records which commit deleted a key. The commits that may have deleted keys are compared one by one.
        is_missing = pc.equal(changes["instant"], "")
        missing = changes.filter(is_missing)
        if not len(missing):
            return changes
        if not self.trail:
            raise CorruptTable(
                "Rows disappeared, but no commit recorded their delete. Run verify() to find the damage.",
                keys=missing[KEY].slice(0, 10).to_pylist(),
            )
        keys, instants = missing[KEY].combine_chunks(), pa.array([self.trail[0].instant] * len(missing), pa.string())
        images = self._row_diff((), None)
        for step in self.trail[:0:-1]:  # the remaining keys were deleted by the first commit
            remaining = keys.filter(pc.equal(instants, self.trail[0].instant))
            if not len(remaining):
                break
            was_live = pc.is_in(
                remaining, value_set=images.live_rows(step.before, remaining)[RECORD_KEY].combine_chunks()
            )
            is_live = pc.is_in(
                remaining, value_set=images.live_rows(step.after, remaining)[RECORD_KEY].combine_chunks()
            )
            instants = pc.if_else(
                pc.is_in(keys, value_set=remaining.filter(pc.and_not(was_live, is_live))), step.instant, instants
            )
        return pa.concat_tables([changes.filter(pc.invert(is_missing)), missing.set_column(2, "instant", instants)])


class Changes(Rows):
    """Row changes between two commits.

    Returned by `Table.changes` and `Table.diff`. A row has `op` ('i', 'u' or 'd'), `instant` of the commit, and the
    structs `before` and `after` with the chosen columns. The rows of `Table.diff` have no `instant`. With
    versions='all' the rows are in commit order. `to_pandas` returns a flat DataFrame: the fields of the structs are the
    columns `before_<column>` and `after_<column>`. They cannot have the same name as another column.

    Attributes:
        cursor: The position of the end of the range.
    """

    def __init__(
        self,
        history: History,
        config: TableConfig,
        since: int,
        until: View,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        versions: str = NET,
        timed: bool = True,
        meta: bool = False,
        params: Params | None = None,
    ) -> None:
        check_allowed_value("versions", versions, (NET, ALL))
        config.require_commit_times()
        self._history, self._since, self._view, self._seq = history, since, until, until.seq
        self._columns, self._where = (
            validate_columns(config.name_mapping.names(columns), (config.file_schema if meta else config.schema).names),
            Filter.parse(config.name_mapping.text(where), config.schema, params=params),
        )
        self._net, self._timed = versions == NET, timed
        self._require_beginning()
        first = until if self._first_slot == until.seq else history.view(self._first_slot)
        self._config = config.knowing(first.schemas)
        self.cursor = cursor_of(until)

    def __repr__(self) -> str:
        return f"<hoodoo changes of {self._config.name!r} after slot {self._since} up to slot {self._seq}>"

    def _require_readable(self) -> None:
        super()._require_readable()
        self._require_beginning()

    def _require_beginning(self) -> None:
        # The snapshot at the end of the range is already loaded and needs no check.
        if not self._since:
            return
        self._history.require_readable(self._since)
        head = self._history.known_head()
        if self._timed and self._since < head.min_readable:
            raise SnapshotExpired(
                f"Slot {self._since} is kept by a savepoint, but the changes after it were cleaned away. Read the "
                f"changes since slot {head.min_readable}, or compare the two snapshots with versions='diff'.",
                position=self._since,
                earliest=head.min_readable,
            )

    @property
    def _first_slot(self) -> int:
        # Without `since`, net changes begin at the newest snapshot, and all versions at the oldest readable snapshot.
        earliest = self._seq if self._net else min(max(1, self._history.head().min_readable), self._seq)
        return self._since or earliest

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the changes.

        The columns are `op`, `instant`, and the structs `before` and `after`.
        """
        image = pa.struct([self._config.file_schema.field(name) for name in self._columns])
        timed = [pa.field("instant", pa.string())] if self._timed else []
        images = [pa.field("before", image), pa.field("after", image)]
        return self._rename_schema(pa.schema([pa.field("op", pa.string()), *timed, *images]))

    def _adapt_name_mapping(self, name_mapping: NameMapping) -> NameMapping:
        return name_mapping.mapping_for_structs(["before", "after"])

    def tasks(self) -> list[Task]:
        """Split the read into tasks that can run anywhere.

        Returns:
            One or more tasks for each partition that changed.
        """
        return list(map(self._rename_task, self._create_tasks()))

    def _create_tasks(self) -> list[ChangesTask]:
        return (
            self._create_net_tasks() if self._net else [part for _, window in self._commit_windows() for part in window]
        )

    # ---- net
    def _create_net_tasks(self) -> list[ChangesTask]:
        """Create the tasks for changed partitions.

        A key that was deleted from one file group may have been inserted into another one. The snapshot pairs of both
        file groups then belong to one task.
        """
        before = self._history.view(self._since) if self._since else View()
        instants = tuple(slot.instant for slot in self._effective_slots()) if self._since and self._timed else None
        removers = self._deleting_slots() if self._timed else {}
        receivers = self._inserting_partitions() if removers else set()
        trails = self._delete_candidates(
            before, {partition: slots for partition, slots in removers.items() if len(slots) > 1}
        )
        tasks, may_match_in = [], self._may_match_in(before)
        for partition, steps in _pairs_by_partition(before, self._view):
            if not may_match_in(partition):
                continue
            instants_only = [FilePair((), (), slot.instant) for slot in removers.get(partition, ())]
            trail = tuple(trails.get(partition, instants_only))
            moved = not self._timed or bool(trail) and partition in receivers
            tasks += [
                self._task(group_steps, trail, instants)
                for group_steps in ([steps] if moved else [[step] for step in steps])
            ]
        return tasks

    def _may_match_in(self, before: View) -> Callable[[str], bool]:
        own = not (before.foreign_rows or self._view.foreign_rows)
        return FilePruning(self._config, self._where.tree if self._where else None, own=own).may_match_in

    def _task(
        self,
        steps: Sequence[FilePair],
        trail: tuple[FilePair, ...] = (),
        instants: tuple[str, ...] | None = None,
    ) -> ChangesTask:
        return ChangesTask(
            self._history.store,
            self._config,
            self._columns,
            self._where,
            self._net,
            self._timed,
            tuple(steps),
            trail,
            instants,
        )

    def _effective_slots(self) -> Iterator[Slot]:
        # Slots that were rolled back or undone later are not in effect.
        for slot in self._history.slots(self._since, self._seq):
            if slot.writes_rows and not self._view.is_rolled_back_by_other_engine(slot.seq):
                yield slot

    def _deleting_slots(self) -> Mapping[str, list[Slot]]:
        # Empty if the read has no `since`.
        slots_by_partition: dict[str, list[Slot]] = {}
        for slot in self._effective_slots() if self._since else ():
            for partition in {file.partition for file in slot.files if file.deletes or file.external} | {
                partition for partition, _ in slot.replaced
            }:
                slots_by_partition.setdefault(partition, []).append(slot)
        return slots_by_partition

    def _inserting_partitions(self) -> set[str]:
        return {
            file.partition for slot in self._effective_slots() for file in slot.files if file.inserts or file.external
        }

    def _delete_candidates(self, before: View, removers: Mapping[str, list[Slot]]) -> dict[str, list[FilePair]]:
        seqs = {slot.seq for slots in removers.values() for slot in slots}
        trails: dict[str, list[FilePair]] = {}
        for slot, old, new in _replay_slots(self._history, before, max(seqs, default=0)):
            if slot.seq in seqs:
                for partition, ids in _written_file_ids(slot).items():
                    if partition in removers:
                        trails.setdefault(partition, []).append(
                            FilePair(
                                _select_groups(old, partition, ids), _select_groups(new, partition, ids), slot.instant
                            )
                        )
        return trails

    # ---- all versions
    def _commit_windows(self) -> Iterator[tuple[list[str], list[ChangesTask]]]:
        # Yields the instants of up to 32 consecutive commits, with their tasks. Without `since`, the first group
        # returns all rows of the oldest readable snapshot as inserts. Only slots that changed rows count.
        first = self._history.view(self._first_slot)
        may_match_in = self._may_match_in(first)
        if not self._since:
            steps = [
                step
                for name, partition_steps in _pairs_by_partition(View(), first)
                if may_match_in(name)
                for step in partition_steps
            ]
            yield [], [self._task([step]) for step in steps]
        window: dict[str, list[FilePair]] = {}
        instants: list[str] = []
        for slot, old, new in _replay_slots(self._history, first, self._seq):
            if not slot.writes_rows or self._view.is_rolled_back_by_other_engine(slot.seq):
                continue
            for partition, ids in _written_file_ids(slot).items():
                if not may_match_in(partition):
                    continue
                window.setdefault(partition, []).extend(
                    pair_changed_files(
                        _select_groups(old, partition, ids), _select_groups(new, partition, ids), slot.instant
                    )
                )
            instants.append(slot.instant)
            if len(instants) == _WINDOW:
                yield instants, self._chain_tasks(window)
                window, instants = {}, []
        yield instants, self._chain_tasks(window)

    def _chain_tasks(self, window: Mapping[str, list[FilePair]]) -> list[ChangesTask]:
        # All consecutive snapshot pairs of a file group form one task. Each other pair is a task of its own.
        chains: dict[tuple[str, str], list[FilePair]] = {}
        for partition, steps in window.items():
            for step in steps:
                single = len(step.before) == len(step.after) == 1
                chains.setdefault(
                    (partition, step.after[0].file_id if single else f"{step.instant} {len(chains)}"), []
                ).append(step)
        return [self._task(steps, instants=tuple(step.instant for step in steps)) for steps in chains.values()]

    def _run_window(self, instants: list[str], window: Sequence[ChangesTask]) -> pa.Table:
        tables = map(self._rename_table, LocalEngine().map(self._convert_errors, window))
        rows = pa.concat_tables([self.schema.empty_table(), *tables])
        return (
            take_rows(
                rows,
                pc.sort_indices(pc.index_in(rows["instant"], value_set=pa.array(instants, pa.string()))).to_numpy(),
            )
            if len(window) > 1
            else rows
        )

    def _flat(self, rows: pa.Table) -> pa.Table:
        # The names `before_*` and `after_*` are unique, because only the fields of the structs have these prefixes.
        flat = rows.flatten()
        return flat.rename_columns([name.replace(".", "_", 1) for name in flat.column_names])

    def _parts(self) -> list[pa.Table]:
        if not self._net:
            return [self._run_window(*window) for window in self._commit_windows()]
        parts = self._create_tasks()
        differences = iter(
            LocalEngine().map(
                self._convert_errors,
                [partial(part.find_changes_of_pair, step) for part in parts for step in part.steps],
            )
        )
        combine_calls = [
            partial(part.combine_changes_of_pairs, [next(differences) for _ in part.steps]) for part in parts
        ]
        return [
            self._rename_table(part.drop_internal_columns(self._convert_errors(work)))
            for part, work in zip(parts, combine_calls, strict=True)
        ]

    def tables(self, rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
        """Read the changes as Arrow tables.

        Args:
            rows: The approximate number of rows in a table.

        Yields:
            The next row changes, in the order of `to_arrow`.
        """
        yield from (
            super().tables(rows) if self._net else (self._run_window(*window) for window in self._commit_windows())
        )


def _replay_slots(history: History, view: View, up_to: int) -> Iterator[tuple[Slot, View, View]]:
    for seq in range(view.seq + 1, up_to + 1):
        slot = history.slot(seq)
        after = apply(view, slot, "")
        yield slot, view, after
        view = after


def _written_file_ids(slot: Slot) -> dict[str, set[str]]:
    file_ids: dict[str, set[str]] = {}
    for partition, file_id in [*((file.partition, file.file_id) for file in slot.files), *slot.replaced]:
        file_ids.setdefault(partition, set()).add(file_id)
    return file_ids


def _select_groups(view: View, partition: str, ids: set[str]) -> tuple[FileGroup, ...]:
    groups = view.partitions.get(partition, {})
    return tuple(groups[name] for name in sorted(ids) if name in groups)


def _pairs_by_partition(before: View, after: View) -> Iterator[tuple[str, list[FilePair]]]:
    for partition in find_differing_partitions(before.partitions, after.partitions):
        old, new = before.partitions.get(partition, {}), after.partitions.get(partition, {})
        if steps := pair_changed_files(list(old.values()), list(new.values())):
            yield partition, steps
