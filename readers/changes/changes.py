"""Change data: what became of each row in a range of slots, as `changes` and `diff` give it, and the keys that went,
for `incremental`.

Plans which file groups of which partitions are compared; `readers/changes/row_diff.py` compares them. No option of
the table has to be on. No file says which commit took a key away: where several commits could have, they are compared
one by one, the newest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.arguments import one_of
from hoodoo.engine.local import LocalEngine
from hoodoo.errors import CorruptTable, SnapshotExpired
from hoodoo.format.names import RECORD_KEY
from hoodoo.format.parquet.base_file import BATCH_ROWS
from hoodoo.format.rows import take
from hoodoo.format.spellings import Spellings
from hoodoo.readers.changes.row_diff import KEY, RowDiff, joined
from hoodoo.readers.changes.snapshot_pair import SnapshotPair, pair_up
from hoodoo.readers.cursor import cursor_of
from hoodoo.readers.output import Rows
from hoodoo.readers.predicate.filter import Filter, Where
from hoodoo.readers.pruning import Pruning
from hoodoo.readers.scan import chosen_columns
from hoodoo.readers.task import Task
from hoodoo.storage.store import Store
from hoodoo.timeline.history import History
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import Slot
from hoodoo.timeline.views.pages import that_differ
from hoodoo.timeline.views.view import FileGroup, View, apply

_WINDOW = 32  # slots whose changes, of all versions, are put in order at once
NET, ALL = "net", "all"


@dataclass(frozen=True)
class ChangesTask(Task):
    """Finds the changes in some file groups of one partition.

    steps: pairs of states to compare. Where `net` holds, each spans the whole range; otherwise they follow each other.
    trail: the commits that may have taken keys away, oldest first; where it is one, it took all of them.
    instants: the instants of all commits of the range; None where two snapshots are compared, not a range.
    """

    store: Store
    config: TableConfig
    columns: tuple[str, ...]
    where: Filter | None
    net: bool
    timed: bool
    steps: tuple[SnapshotPair, ...]
    trail: tuple[SnapshotPair, ...] = ()
    instants: tuple[str, ...] | None = None

    def __call__(self) -> pa.Table:
        return self.shown(self.found())

    def shown(self, found: pa.Table) -> pa.Table:
        """`found` with the columns that users see."""
        return found.drop_columns([KEY] if self.timed else [KEY, "instant"])

    def found(self) -> pa.Table:
        """The changes, with their record keys."""
        if self.net:
            return self.whole([self.found_in(step) for step in self.steps])
        images = self._images(self.columns, self.where)
        touched = [images.touched(step) for step in self.steps]
        images.expect(
            pa.concat_arrays([pa.array([], pa.string()), *(keys for keys in touched if keys is not None)]).unique()
        )
        return pa.concat_tables(
            [joined(images.changes(step, keys), False) for step, keys in zip(self.steps, touched, strict=True)]
        )

    def found_in(self, step: SnapshotPair) -> pa.Table:
        """The changes of one step of a net part."""
        return self._images(self.columns, self.where).diff(step)

    def whole(self, found: Sequence[pa.Table]) -> pa.Table:
        """What was found in each step, as the changes of all of them."""
        rows = joined(pa.concat_tables(found), True)
        return self._dated(rows) if self.timed else rows

    def _images(self, columns: tuple[str, ...], where: Filter | None) -> RowDiff:
        instants = None if self.instants is None else pa.array(self.instants, pa.string())
        return RowDiff(
            self.store,
            self.config,
            pa.schema([self.config.file_schema.field(name) for name in columns]),
            where,
            self.net,
            instants,
        )

    def _dated(self, found: pa.Table) -> pa.Table:
        """With the instants of the commits that took keys away."""
        open_ = pc.equal(found["instant"], "")
        missing = found.filter(open_)
        if not len(missing):
            return found
        if not self.trail:
            raise CorruptTable(
                "Rows disappeared, but no commit recorded their delete. Run verify().",
                keys=missing[KEY].slice(0, 10).to_pylist(),
            )
        keys, instants = missing[KEY].combine_chunks(), pa.array([self.trail[0].instant] * len(missing), pa.string())
        images = self._images((), None)
        for step in self.trail[:0:-1]:  # what is left was the first one's
            asked = keys.filter(pc.equal(instants, self.trail[0].instant))
            if not len(asked):
                break
            went = pc.is_in(asked, value_set=images.live(step.before, asked)[RECORD_KEY].combine_chunks())
            stayed = pc.is_in(asked, value_set=images.live(step.after, asked)[RECORD_KEY].combine_chunks())
            instants = pc.if_else(
                pc.is_in(keys, value_set=asked.filter(pc.and_not(went, stayed))), step.instant, instants
            )
        return pa.concat_tables([found.filter(pc.invert(open_)), missing.set_column(2, "instant", instants)])


class Changes(Rows):
    """The changes of a range of slots, or between two snapshots, as rows.

    `Table.changes` and `Table.diff` make it. A row has `op` ('i', 'u' or 'd'), `instant` of the commit, and the structs
    `before` and `after` with the chosen columns. The rows of `Table.diff` have no `instant`. With versions='all' the
    rows come in the order of commits.

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
    ) -> None:
        one_of("versions", versions, (NET, ALL))
        config.require_commit_times()
        self._history, self._since, self._view, self._seq = history, since, until, until.seq
        self._columns, self._where = (
            chosen_columns(config.spellings.names(columns), (config.file_schema if meta else config.schema).names),
            Filter.of(config.spellings.text(where), config.schema),
        )
        self._net, self._timed = versions == NET, timed
        self._require_beginning()
        first = until if self._first == until.seq else history.view(self._first)
        self._config = config.knowing(first.schemas)
        self.cursor = cursor_of(until)

    def __repr__(self) -> str:
        return f"<hoodoo changes of {self._config.name!r} after slot {self._since} up to slot {self._seq}>"

    def _require_readable(self) -> None:
        super()._require_readable()
        self._require_beginning()

    def _require_beginning(self) -> None:
        """The view of the end is at hand already; what the range begins with has to be readable too."""
        if not self._since:
            return
        self._history.require_readable(self._since)
        head = self._history.known_head()
        if self._timed and self._since < head.min_readable:
            raise SnapshotExpired(
                f"Slot {self._since} is kept by a savepoint, but the changes after it were cleaned. Changes "
                f"can be read since slot {head.min_readable}. diff() compares the two snapshots.",
                position=self._since,
                earliest=head.min_readable,
            )

    @property
    def _first(self) -> int:
        """The slot of the oldest snapshot that is read. Without `since`, only all versions read an older one than the
        newest.
        """
        earliest = self._seq if self._net else min(max(1, self._history.head().min_readable), self._seq)
        return self._since or earliest

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        image = pa.struct([self._config.file_schema.field(name) for name in self._columns])
        timed = [pa.field("instant", pa.string())] if self._timed else []
        images = [pa.field("before", image), pa.field("after", image)]
        return self._schema_named(pa.schema([pa.field("op", pa.string()), *timed, *images]))

    def _spelled(self, spellings: Spellings) -> Spellings:
        return spellings.beneath(["before", "after"])

    def tasks(self) -> list[Task]:
        """Split the read into tasks that can run anywhere.

        Returns:
            The tasks, some for each partition that changed.
        """
        return list(map(self._task_named, self._own_tasks()))

    def _own_tasks(self) -> list[ChangesTask]:
        """The tasks by the names of the table, whatever names are asked for."""
        return self._net_tasks() if self._net else [part for _, window in self._windows() for part in window]

    # ---- net
    def _net_tasks(self) -> list[ChangesTask]:
        """A key that went from one file group may have come in another: such steps are taken together. The slots of a
        range say where keys came and went, its files do not: a later rewrite of a file that brought one brings none.
        """
        before = self._history.view(self._since) if self._since else View()
        instants = tuple(slot.instant for slot in self._slots()) if self._since and self._timed else None
        removers = self._removers() if self._timed else {}
        bringers = self._bringers() if removers else set()
        trails = self._trails(before, {partition: slots for partition, slots in removers.items() if len(slots) > 1})
        found, may_match_in = [], self._may_match_in(before)
        for partition, steps in _partition_steps(before, self._view):
            if not may_match_in(partition):
                continue
            alone = [SnapshotPair((), (), slot.instant) for slot in removers.get(partition, ())]
            trail = tuple(trails.get(partition, alone))
            moved = not self._timed or bool(trail) and partition in bringers
            found += [self._task(some, trail, instants) for some in ([steps] if moved else [[step] for step in steps])]
        return found

    def _may_match_in(self, before: View) -> Callable[[str], bool]:
        """Tells whether a partition may have had a row that matches, at any time of the range that begins with
        `before`.
        """
        own = not (before.foreign_rows or self._view.foreign_rows)
        return Pruning(self._config, self._where.tree if self._where else None, own=own).may_match_in

    def _task(
        self,
        steps: Sequence[SnapshotPair],
        trail: tuple[SnapshotPair, ...] = (),
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

    def _slots(self) -> Iterator[Slot]:
        """Slots of the range that changed rows and still stand."""
        for slot in self._history.slots(self._since, self._seq):
            if slot.writes_rows and not self._view.is_undone(slot.seq):
                yield slot

    def _removers(self) -> Mapping[str, list[Slot]]:
        """The slots that may have taken keys away, by partition."""
        found: dict[str, list[Slot]] = {}
        for slot in self._slots() if self._since else ():
            for partition in {file.partition for file in slot.files if file.deletes or file.foreign} | {
                partition for partition, _ in slot.replaced
            }:
                found.setdefault(partition, []).append(slot)
        return found

    def _bringers(self) -> set[str]:
        """The partitions in which keys may have come into file groups."""
        return {file.partition for slot in self._slots() for file in slot.files if file.inserts or file.foreign}

    def _trails(self, before: View, removers: Mapping[str, list[Slot]]) -> dict[str, list[SnapshotPair]]:
        """For partitions with several slots that may have taken a key away: what each of them did there."""
        wanted = {slot.seq for slots in removers.values() for slot in slots}
        found: dict[str, list[SnapshotPair]] = {}
        for slot, old, new in _walk(self._history, before, max(wanted, default=0)):
            if slot.seq in wanted:
                for partition, ids in _touched(slot).items():
                    if partition in removers:
                        found.setdefault(partition, []).append(
                            SnapshotPair(_groups(old, partition, ids), _groups(new, partition, ids), slot.instant)
                        )
        return found

    # ---- all versions
    def _windows(self) -> Iterator[tuple[list[str], list[ChangesTask]]]:
        """Instants of some commits and the parts with their changes, in order: what was there at the beginning, then
        each slot that changed rows.
        """
        first = self._history.view(self._first)
        may_match_in = self._may_match_in(first)
        if not self._since:
            steps = [step for name, some in _partition_steps(View(), first) if may_match_in(name) for step in some]
            yield [], [self._task([step]) for step in steps]
        window: dict[str, list[SnapshotPair]] = {}
        instants: list[str] = []
        for slot, old, new in _walk(self._history, first, self._seq):
            if not slot.writes_rows or self._view.is_undone(slot.seq):
                continue
            for partition, ids in _touched(slot).items():
                if not may_match_in(partition):
                    continue
                window.setdefault(partition, []).extend(
                    pair_up(_groups(old, partition, ids), _groups(new, partition, ids), slot.instant)
                )
            instants.append(slot.instant)
            if len(instants) == _WINDOW:
                yield instants, self._chains(window)
                window, instants = {}, []
        yield instants, self._chains(window)

    def _chains(self, window: Mapping[str, list[SnapshotPair]]) -> list[ChangesTask]:
        """Steps of one file group follow each other in one part; others of a partition are in parts of their own."""
        chains: dict[tuple[str, str], list[SnapshotPair]] = {}
        for partition, steps in window.items():
            for step in steps:
                single = len(step.before) == len(step.after) == 1
                chains.setdefault(
                    (partition, step.after[0].file_id if single else f"{step.instant} {len(chains)}"), []
                ).append(step)
        return [self._task(steps, instants=tuple(step.instant for step in steps)) for steps in chains.values()]

    def _ordered(self, instants: list[str], window: Sequence[ChangesTask]) -> pa.Table:
        """The rows of a window's parts in the order of their commits."""
        found = map(self._table_named, LocalEngine().map(self._guarded, window))
        rows = pa.concat_tables([self.schema.empty_table(), *found])
        return (
            take(
                rows,
                pc.sort_indices(pc.index_in(rows["instant"], value_set=pa.array(instants, pa.string()))).to_numpy(),
            )
            if len(window) > 1
            else rows
        )

    def _parts(self) -> list[pa.Table]:
        """Steps at once, even those of one part."""
        if not self._net:
            return [self._ordered(*window) for window in self._windows()]
        parts = self._own_tasks()
        found = iter(
            LocalEngine().map(self._guarded, [partial(part.found_in, step) for part in parts for step in part.steps])
        )
        whole = [partial(part.whole, [next(found) for _ in part.steps]) for part in parts]
        return [self._table_named(part.shown(self._guarded(work))) for part, work in zip(parts, whole, strict=True)]

    def tables(self, rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
        """Read the rows in tables.

        Args:
            rows: About how many rows a table has.

        Yields:
            The next rows, in the order of `to_arrow`.
        """
        yield from super().tables(rows) if self._net else (self._ordered(*window) for window in self._windows())


def _walk(history: History, view: View, up_to: int) -> Iterator[tuple[Slot, View, View]]:
    """Each slot after that of `view`, with the views before and after it."""
    for seq in range(view.seq + 1, up_to + 1):
        slot = history.slot(seq)
        after = apply(view, slot, "")
        yield slot, view, after
        view = after


def _touched(slot: Slot) -> dict[str, set[str]]:
    """File groups of each partition that a slot wrote to or replaced."""
    found: dict[str, set[str]] = {}
    for partition, file_id in [*((file.partition, file.file_id) for file in slot.files), *slot.replaced]:
        found.setdefault(partition, set()).add(file_id)
    return found


def _groups(view: View, partition: str, ids: set[str]) -> tuple[FileGroup, ...]:
    there = view.partitions.get(partition, {})
    return tuple(there[name] for name in sorted(ids) if name in there)


def _partition_steps(before: View, after: View) -> Iterator[tuple[str, list[SnapshotPair]]]:
    """Partitions whose files differ, with their steps."""
    for partition in that_differ(before.partitions, after.partitions):
        old, new = before.partitions.get(partition, {}), after.partitions.get(partition, {})
        if steps := pair_up(list(old.values()), list(new.values())):
            yield partition, steps
