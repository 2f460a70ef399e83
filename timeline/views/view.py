"""View of a table's state at a commit.

The snapshot at a slot consists of the base file and the logs of each file group in the view. A view is immutable.
`apply` returns the view after the next slot, without listing or reading files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hoodoo.timeline.properties.schema_history import SchemaHistory
from hoodoo.timeline.slots.slot import BASE, COMPLETED, LOG, PLANNED, UNDO, DataFile, PlannedGroup, Slot
from hoodoo.timeline.slots.streamed import StreamerPosition
from hoodoo.timeline.views.file_group import AddedFile, FileGroup, ReplacedFile
from hoodoo.timeline.views.pages import Groups, PagedFiles, Partitions, with_changes
from hoodoo.timeline.views.totals import CountedFiles, FileTotals, count

# a sorted file counts as sorted while at most one of this number of rows was updated, since an update moves a row to
# the end
_LOOSE = 10


@dataclass(frozen=True, slots=True)
class PendingCompaction:
    """Pending compaction, which is planned but not completed.

    Attributes:
        seq: The slot that contains the plan.
        instant: The instant of the plan, which the compaction uses, too.
        planned_at: The time of the plan, in ms since 1970.
        groups: The file groups to compact.
    """

    seq: int
    instant: str
    planned_at: int
    groups: tuple[PlannedGroup, ...]


@dataclass(frozen=True)
class View:
    """View of a table's state at a commit.

    `sha` is the digest of the slot, which the next slot must contain. `completed_at` is its time in ms since 1970.
    """

    seq: int = 0
    sha: str = ""
    table: str = ""
    instant: str = ""
    completed_at: int = 0
    partitions: Partitions = field(default_factory=dict)
    plans: Mapping[str, PendingCompaction] = field(default_factory=dict)
    superseded: Sequence[ReplacedFile] = ()
    transactions: Mapping[str, int] = field(default_factory=dict)
    reached: Mapping[str, str] = field(default_factory=dict)  # application -> position in its source
    streamed: StreamerPosition = StreamerPosition()  # checkpoint for Apache Hudi's streamer
    min_readable: int = 0
    commits: int = 0  # slots that wrote rows
    cleaned_at_commit: int = 0  # `commits` at the newest clean operation
    savepoints: Mapping[str, int] = field(default_factory=dict)  # name -> slot that stays readable
    settings: Mapping[str, str] = field(default_factory=dict)  # properties that slots changed since the creation
    schemas: SchemaHistory = SchemaHistory()  # the table's schemas by slot, if the columns have changed
    # the largest instant of a commit with columns, which Hudi's readers use; in checkpoints of earlier releases, that
    # of the newest slot
    told: str = field(default="", compare=False)
    needs: frozenset[str] = frozenset()  # features used by the slots so far
    # True if another engine wrote a file whose rows were not checked against the transforms; these rows may be in any
    # later file; missing in checkpoints of earlier releases
    foreign_rows: bool = field(default=False, compare=False)
    # first and last slots of ranges that another engine rolled back, with their files
    undone: tuple[tuple[int, int], ...] = ()
    _counted: CountedFiles | None = field(
        default=None, compare=False, repr=False
    )  # totals of these or of other partitions

    # ---- totals
    def _totals(self) -> CountedFiles:
        counted = self._counted
        if counted is None or counted.partitions is not self.partitions:
            counted = count(self.partitions)
            object.__setattr__(self, "_counted", counted)  # the value does not change, it is only computed late
        return counted

    @property
    def totals(self) -> FileTotals:
        return self._totals().together

    def totals_of(self, partition: str) -> FileTotals:
        return self._totals().each.get(partition, FileTotals())

    def groups_behind(self, logs_min: int = 1, partitions: Iterable[str] | None = None) -> Iterator[FileGroup]:
        """Find file groups with log files to compact."""
        each = self._totals().each
        for partition in self.partitions if partitions is None else partitions:
            if partition in each and each[partition].logs_max >= logs_min:
                yield from (group for group in self.groups([partition]) if len(group.logs) >= logs_min)

    def bases_below(self, size: int) -> int:
        total = 0
        for partition, totals in self._totals().each.items():
            least, upper = totals.estimate_small_files(size)
            if least != upper:
                least = sum(1 for group in self.groups([partition]) if group.base and group.base.file.size < size)
            total += least
        return total

    # ---- file groups
    def groups(self, partitions: Iterable[str] | None = None) -> Iterator[FileGroup]:
        for partition in self.partitions if partitions is None else partitions:
            yield from self.partitions.get(partition, {}).values()

    def group(self, partition: str, file_id: str) -> FileGroup | None:
        return self.partitions.get(partition, {}).get(file_id)

    def planned_ids(self) -> set[str]:
        return {group.file_id for plan in self.plans.values() for group in plan.groups}

    def readable(self, seq: int) -> bool:
        """Check whether a snapshot can be read.

        It must be retained or have a savepoint, and it must not be rolled back by another engine.
        """
        return (
            self.min_readable <= seq <= self.seq or seq in self.savepoints.values()
        ) and not self.is_rolled_back_by_other_engine(seq)

    def is_rolled_back_by_other_engine(self, seq: int) -> bool:
        return any(first <= seq <= last for first, last in self.undone)


def apply(view: View, slot: Slot, sha: str) -> View:
    change = _SlotChange(view, slot)
    if slot.outcome == COMPLETED:
        change.replace()
        change.put_files()
    plans = dict(view.plans)
    if slot.outcome == PLANNED:
        plans[slot.instant] = PendingCompaction(slot.seq, slot.instant, slot.completed_at, slot.plan)
    elif slot.outcome == COMPLETED:
        plans.pop(slot.instant, None)
    transactions = dict(slot.versions if slot.operation == UNDO else view.transactions)
    if slot.transaction:
        app, version = slot.transaction
        transactions[app] = max(version, transactions.get(app, version))
    reached = dict(slot.all_reached if slot.operation == UNDO else view.reached)
    if slot.transaction and slot.reached:
        reached[slot.transaction[0]] = slot.reached
    tells_place = slot.streamed or slot.operation == UNDO
    savepoints = dict(view.savepoints)
    if slot.savepoint:
        savepoints.pop(slot.savepoint, None)
        savepoints |= {slot.savepoint: slot.position} if slot.position else {}
    cleans = slot.outcome == COMPLETED and slot.action == "clean"
    superseded = (
        change.remaining(set(path for path, _ in slot.victims)) if cleans else _and(view.superseded, change.dropped)
    )
    if slot.records_undo:
        superseded = _superseded_after_undo(slot, superseded)
    commits = view.commits + slot.writes_rows
    return View(
        seq=slot.seq,
        sha=sha,
        table=slot.table,
        instant=slot.instant,
        completed_at=slot.completed_at,
        partitions=change.partitions,
        plans=plans,
        superseded=superseded,
        transactions=transactions,
        reached=reached,
        streamed=StreamerPosition(*slot.streamed) if tells_place else view.streamed,
        min_readable=max(view.min_readable, slot.min_readable),
        commits=commits,
        cleaned_at_commit=commits if cleans else view.cleaned_at_commit,
        savepoints=savepoints,
        settings={**view.settings, **slot.settings},
        schemas=_next_schema_history(view, slot, change.partitions, savepoints, plans),
        told=max(view.told, slot.instant) if slot.has_current_schema else view.told,
        needs=view.needs.union(slot.needs),
        foreign_rows=view.foreign_rows or (not slot.placed and any(file.external for file in slot.files)),
        undone=(*view.undone, (slot.position + 1, slot.seq - 1)) if slot.records_undo else view.undone,
        _counted=change.counted(),
    )


def _and(before: Sequence[ReplacedFile], added: Iterable[ReplacedFile]) -> Sequence[ReplacedFile]:
    return before + tuple(added) if isinstance(before, (tuple, PagedFiles)) else (*before, *added)


def _next_schema_history(
    view: View,
    slot: Slot,
    partitions: Partitions,
    savepoints: Mapping[str, int],
    plans: Mapping[str, PendingCompaction],
) -> SchemaHistory:
    # Schemas that only unreadable snapshots need are left out.
    history = view.schemas
    if slot.columns:
        history = history.after(slot.seq, slot.columns, slot.columns_before)
    elif slot.schema:
        history = history.add_schema_without_ids(slot.seq, slot.schema, slot.schema_before)
    if slot.min_readable <= view.min_readable or len(history.entries) < 2:
        return history
    groups = (group for each in partitions.values() for group in each.values())
    live = {entry.file.schema or 1 for group in groups for entry in group.files()}
    return history.without(live, {*savepoints.values(), *(plan.seq for plan in plans.values())}, slot.min_readable)


def stays_sorted(file: DataFile) -> bool:
    """Check whether a rewritten base file is still sorted.

    An update moves a row to the end of the file. Inserted rows also break the order.
    """
    return not file.inserts and file.updates * _LOOSE <= file.rows


def _superseded_after_undo(slot: Slot, superseded: Iterable[ReplacedFile]) -> tuple[ReplacedFile, ...]:
    back = {path for file in slot.files for path in file.paths}
    return tuple(entry for entry in superseded if entry.path not in back and not slot.position < entry.added < slot.seq)


def _adding_slots(view: View) -> dict[str, int]:
    return {entry.path: entry.added for entry in view.superseded} | {
        entry.file.path: entry.seq for group in view.groups() for entry in group.files()
    }


class _SlotChange:
    def __init__(self, view: View, slot: Slot) -> None:
        self.view, self.slot = view, slot
        self.partitions: Partitions = view.partitions
        self.dropped: list[ReplacedFile] = []
        touched = {partition for partition, _ in slot.replaced} | {file.partition for file in slot.files}
        # a file that comes back keeps the slot that first added it, because savepoints and leases may hold its
        # snapshots
        self.added = _adding_slots(view) if slot.records_undo else {}
        self.open: dict[str, dict[str, FileGroup]] = {
            partition: dict(view.partitions.get(partition, {})) for partition in sorted(touched)
        }

    def replace(self) -> None:
        for partition, file_id in self.slot.replaced:
            group = self.open[partition].pop(file_id, None)
            if group:
                self._drop(group.files())

    def put_files(self) -> None:
        # A base file replaces the previous base file and all logs, because its writer merged them. Only a compaction
        # keeps the logs that are newer than its plan.
        for file in self.slot.files:
            groups = self.open[file.partition]
            old = groups.get(file.file_id)
            added = AddedFile(self.added.get(file.path, self.slot.seq), file)
            if file.kind == LOG:
                if old and self.slot.merged:
                    gone = set(self.slot.merged)
                    self._drop(log for log in old.logs if log.file.path in gone)
                    old = replace(old, logs=tuple(log for log in old.logs if log.file.path not in gone))
                groups[file.file_id] = (
                    replace(old, logs=(*old.logs, added))
                    if old
                    else FileGroup(file.partition, file.file_id, None, (added,))
                )
            else:
                if old and old.base and stays_sorted(file) and file.schema == old.base.file.schema:
                    file = replace(file, sorted=file.sorted or old.base.file.sorted)
                    added = AddedFile(added.seq, file)
                kept = (
                    tuple(log for log in old.logs if log.seq > self.slot.plan_seq) if old and self.slot.plan_seq else ()
                )
                if old:
                    self._drop(entry for entry in old.files() if entry not in kept)
                groups[file.file_id] = FileGroup(file.partition, file.file_id, added, kept)
        changed: dict[str, Groups] = dict(self.open)
        self.partitions = with_changes(self.view.partitions, changed, self.slot.seq)

    def counted(self) -> CountedFiles | None:
        before, slot = self.view._counted, self.slot
        if before is None or before.partitions is not self.view.partitions:
            return None
        return before.after(self.partitions, [*slot.replaced, *((file.partition, file.file_id) for file in slot.files)])

    def _drop(self, entries: Iterable[AddedFile]) -> None:
        for seq, file in entries:
            self.dropped.append(ReplacedFile(seq, self.slot.seq, file.partition, file.path, file.size, file.index))
            self.dropped.extend(
                ReplacedFile(seq, self.slot.seq, file.partition, path, size, "")
                for path, (size, _) in file.changes.items()
            )

    def remaining(self, victims: set[str]) -> tuple[ReplacedFile, ...]:
        return tuple(entry for entry in self.view.superseded if entry.path not in victims)


__all__ = [
    "BASE",
    "LOG",
    "FileGroup",
    "AddedFile",
    "PendingCompaction",
    "ReplacedFile",
    "View",
    "apply",
    "stays_sorted",
]
