"""Does a Hudi reader, which sees only published files and orders them by instant and completion time, see the rows of
some slot?

A keyed table of two partitions and three keys with event-time ordering, as two readers know it: ours by slots, Hudi's
by files (docs/format.md 11). Publication is one store operation a call, by anybody. The transactions that act on it are
in hudi_view_transactions.py, histories in hudi_view_histories.py. Left out: races for one slot (protocol_model.py: here
reading the head and taking the next slot is one step), readers that hold a listing while files go, log compaction,
foreign writers, the metadata table. Protocol rule S4 keeps a change of columns from waiting for ever (protocol rule 6
keeps it right): in these histories whoever waits dies some time, so that only the simulator can miss it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

PARTITIONS = {"a": 0, "b": 1, "c": 1}
RULES = {  # each may be dropped by name; the number of the rule in docs/protocol.md, or the operation that has it
    "monotone": "1",
    "completed_after_begun": "1",
    "begin_after_head": "2",
    "rebase_new_instant": "3",
    "delta_order": "4",
    "plan_is_slot": "5",
    "no_rewrite_under_plan": "6",
    "one_open_plan": "6",
    "created_first": "7",
    "reinsert_in_base": "8",
    "upsert_after_delete": "9",
    "output_named_by_plan": "10",
    "loser_keeps_output": "10",
    "restore_is_replace": "11",
    "cleaned_after_publication": "12",
    "no_archive": "13",
    "conflict": "complete",
    "inserted_keys": "complete",
    "overwritten_partition": "complete",
    "published_in_order": "complete",
    "fenced": "rollback",
    "savepoint_readable": "savepoint",
    "change_is_newest": "S1",
    "change_rebases": "S2",
    "plan_keeps_columns": "S3",
    "no_older_logs": "S5",
    "no_other_names": "S6",
}

Group = tuple[int, int]  # partition, serial number
Row = tuple[int, str]  # ordering value, value
Rows = dict[str, Row]


class Record(NamedTuple):
    """A change of a key. value None: delete; ordering None: whatever the stored ordering value is."""

    key: str
    ordering: int | None
    value: str | None


class Columns(NamedTuple):
    """What the value's column is called, what type it has, and how many other columns there are."""

    name: int = 0
    kind: int = 0
    others: int = 0


class File(NamedTuple):
    """kind: base or log. token: what else its name says. columns: of the table when it was written."""

    group: Group
    instant: int
    kind: str
    records: tuple[Record, ...]
    token: str
    columns: Columns = Columns()


class Slice(NamedTuple):
    """A file group as of a slot: its base file, and (slot, log file) over it."""

    base: File | None
    logs: tuple[tuple[int, File], ...]


class Broken(Exception):
    """A reader sees what it must not see, or cannot read."""


def replay(rows: Rows, records: Iterable[Record]) -> Rows:
    """The truth: each record meets the row of its key as it is then."""
    rows = dict(rows)
    for key, ordering, value in records:
        if value is None:
            if key in rows and (ordering is None or ordering >= rows[key][0]):
                del rows[key]
        elif ordering is not None and (key not in rows or ordering >= rows[key][0]):
            rows[key] = ordering, value
    return rows


def hudi_merge(rows: Rows, records: Iterable[Record]) -> Rows:
    """Hudi: logs are merged among themselves first, and the result meets the base row (docs/format.md 11.3)."""
    newest: dict[str, Record] = {}
    for record in records:
        old = newest.get(record.key, Record(record.key, 0, None))
        unconditional = record.ordering is None or (old.ordering is None and record.value is not None)
        if unconditional or (
            old.ordering is not None and record.ordering is not None and record.ordering >= old.ordering
        ):
            newest[record.key] = record
    return replay(rows, newest.values())


def rows_of_base(file: File | None) -> Rows:
    return {
        key: (ordering, value)
        for key, ordering, value in (file.records if file else ())
        if ordering is not None and value is not None
    }


def records_of(rows: Rows) -> tuple[Record, ...]:
    return tuple(Record(key, *row) for key, row in sorted(rows.items()))


def rows_of(piece: Slice) -> Rows:
    return replay(rows_of_base(piece.base), (record for _, file in piece.logs for record in file.records))


@dataclass
class Slot:
    """What a slot says. plan: of a plan, the slot before it; of a compaction, the slot of its plan. target: a slot, or
    a rollback's instant.
    """

    kind: str
    instant: int = 0
    files: tuple[File, ...] = ()
    rewrites: set[Group] = field(default_factory=set)
    replaced: set[Group] = field(default_factory=set)
    partitions: set[int] = field(default_factory=set)
    inserted: set[str] = field(default_factory=set)
    upserted: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    groups: set[Group] = field(default_factory=set)
    plan: int = 0
    target: int = 0
    victims: set[File] = field(default_factory=set)
    columns: Columns | None = None  # the table's, where the slot changes them
    told: Columns = Columns()  # what its commit says of them
    completed: int = 0

    @property
    def logs(self) -> set[Group]:
        return {file.group for file in self.files if file.kind == "log"}

    @property
    def fresh(self) -> set[Group]:
        return {file.group for file in self.files if file.kind == "base"} - self.rewrites

    @property
    def touched(self) -> set[Group]:
        """Groups that were there before."""
        return self.logs | self.rewrites | self.replaced


class Table:
    """slots[n], live[n] (groups as of slot n), truth[n] (rows as of slot n) and columns[n] by slot; files, done and
    plans are what Hudi sees.
    """

    def __init__(self, dropped: str, rng: random.Random) -> None:
        self.dropped, self.rng = dropped, rng
        self.slots: list[Slot] = [Slot("none")]
        self.live: list[dict[Group, Slice]] = [{}]
        self.truth: list[Rows] = [{}]
        self.columns: list[Columns] = [Columns()]
        self.files: set[File] = set()
        self.done: dict[int, Slot] = {}
        self.plans: dict[int, set[Group]] = {}
        self.published = 0
        self.claims: set[int] = set()
        self.readable = 0
        self.saved: set[int] = set()
        self._serial = 0
        self._undoing: list[Callable[[], object]] = []

    def keeps(self, rule: str) -> bool:
        return self.dropped != rule

    @property
    def head(self) -> int:
        return len(self.slots) - 1

    @property
    def last_completed(self) -> int:
        return self.slots[-1].completed

    def claim(self, instant: int) -> int:
        while instant in self.claims:
            instant += 1
        self.claims.add(instant)
        return instant

    def new_group(self, partition: int) -> Group:
        self._serial += 1
        return partition, self._serial

    def open_plans(self) -> dict[int, Slot]:
        ended = {slot.plan for slot in self.slots if slot.kind == "compact"}
        return {n: slot for n, slot in enumerate(self.slots) if slot.kind == "plan" and n not in ended}

    def planned(self) -> set[Group]:
        return (
            {group for plan in self.open_plans().values() for group in plan.groups}
            if self.keeps("one_open_plan")
            else set()
        )

    def take(self, slot: Slot, clock: int, rows: Rows | None = None) -> None:
        """Make `slot` the next one; `rows` is the truth after it, if it changes rows."""
        low = self.last_completed + 1 if self.keeps("monotone") else 0
        if slot.kind == "plan" and self.keeps("plan_is_slot"):
            slot.instant = slot.completed = self.claim(max(clock, low))
        else:
            slot.completed = max(clock, low, slot.instant + 1 if self.keeps("completed_after_begun") else 0)
        self.live.append(self._live_after(slot))
        self.columns.append(slot.columns or self.columns[-1])
        slot.told = self.columns[slot.plan if slot.kind == "compact" else -1]
        self.slots.append(slot)
        self.truth.append(self.truth[-1] if rows is None else rows)
        if slot.kind == "savepoint":
            self.saved.add(slot.target)

    def _live_after(self, slot: Slot) -> dict[Group, Slice]:
        live = dict(
            self.live[slot.target] if slot.kind == "restore" and not self.keeps("restore_is_replace") else self.live[-1]
        )
        for group in slot.replaced:
            live.pop(group, None)
        for file in slot.files:
            old = live.get(file.group, Slice(None, ()))
            if file.kind == "log":
                live[file.group] = Slice(old.base, (*old.logs, (len(self.slots), file)))
            else:
                live[file.group] = Slice(
                    file, tuple(log for log in old.logs if slot.kind == "compact" and log[0] > slot.plan)
                )
        return live

    # ---- what our readers see
    def ours(self, seq: int) -> Rows:
        """Rows of the snapshot at slot `seq`. Raises Broken."""
        rows: Rows = {}
        for piece in self.live[seq].values():
            if not {piece.base, *(file for _, file in piece.logs)} <= self.files:
                raise Broken(f"slot {seq} needs a file that is gone")
            found = rows_of(piece)
            if twice := rows.keys() & found.keys():
                raise Broken(f"key {min(twice)} twice at slot {seq}")
            rows |= found
        return rows

    # ---- what a Hudi reader sees
    def hudi(self) -> Rows:
        """Rows by the published files alone, read by the columns of the commit with the largest requested instant.
        Raises Broken.
        """
        columns = self.done[max(self.done)].told if self.done else Columns()
        if columns != self.columns[self.published] and self.done:
            raise Broken(f"Hudi's columns are {columns}, published are {self.columns[self.published]}")
        first = min(self.done, default=0)
        gone = set().union(*(slot.replaced for slot in self.done.values()))
        groups: dict[Group, list[File]] = {}
        for file in self.files:
            if (
                file.instant in self.done or file.instant < first
            ) and file.group not in gone:  # older than the timeline counts as committed
                groups.setdefault(file.group, []).append(file)
        rows: Rows = {}
        for group, files in groups.items():
            found = self._hudi_group(group, files, columns)
            if twice := rows.keys() & found.keys():
                raise Broken(f"Hudi sees key {min(twice)} twice")
            rows |= found
        return rows

    def _hudi_group(self, group: Group, files: list[File], columns: Columns) -> Rows:
        bases = {file.instant: file for file in files if file.kind == "base"}
        if len(bases) < sum(file.kind == "base" for file in files):
            raise Broken("two base files of one instant")
        pending = [instant for instant, groups in self.plans.items() if group in groups and instant not in self.done]
        if len(pending) > 1:
            raise Broken("two open plans of one file group")
        newest, opened = max(bases, default=0), {*bases, *pending}

        def in_slice(log: File) -> bool:
            """Does the log belong to the newest slice? A slice that is only planned is merged with the one below it."""
            completed = self.done[log.instant].completed if log.instant in self.done else log.instant
            return max((instant for instant in opened if instant <= completed), default=0) >= newest

        logs = sorted((file for file in files if file.kind == "log" and in_slice(file)), key=lambda file: file.instant)
        for file in (*logs, *([bases[newest]] if newest else [])):
            if file.columns.name != columns.name or file.kind == "log" and file.columns.kind != columns.kind:
                raise Broken(f"Hudi reads a {file.kind} of {file.columns} as {columns}")
        return hudi_merge(rows_of_base(bases.get(newest)), (record for log in logs for record in log.records))

    # ---- publication
    def publish(self) -> None:
        """The next store operation of publishing."""
        if self._undoing:
            self._undoing.pop(0)()
            return
        number = self.published + 1
        slot = self.slots[number]
        if not self.keeps("published_in_order") and number < self.head and self.rng.random() < 0.3:
            self.show(self.slots[number + 1])
            return
        victims = (
            {file for file in self.files if file.instant == slot.target}
            if slot.kind == "rollback"
            else slot.victims & self.files
        )
        if victims:
            self.files.discard(min(victims))
        elif slot.kind == "restore" and not self.keeps("restore_is_replace"):
            self._undoing = self._undo(slot.target, number)
        else:
            self.show(slot)
            self.published = number

    def _undo(self, target: int, number: int) -> list[Callable[[], object]]:
        """A restore as Hudi does it: newest first, each instant before its files."""
        steps: list[Callable[[], object]] = []
        for slot in reversed([slot for slot in self.slots[target + 1 : number] if slot.instant in self.done]):
            steps.append(lambda slot=slot: self.done.pop(slot.instant, None))
            steps += [lambda file=file: self.files.discard(file) for file in slot.files]
        return [*steps, lambda: setattr(self, "published", number)]

    def show(self, slot: Slot) -> None:
        """Create the file that makes `slot` known to Hudi."""
        if slot.kind in ("write", "compact") or (slot.kind == "restore" and self.keeps("restore_is_replace")):
            self.done[slot.instant] = slot
        elif slot.kind == "plan":
            self.plans[slot.instant] = slot.groups
        elif slot.kind == "clean" and not self.keeps("no_archive"):
            for instant in sorted(self.done)[:-2]:
                del self.done[instant]

    def check(self) -> None:
        """What must hold after every step. Raises Broken."""
        found, wanted = self.hudi(), self.truth[self.published]
        if found != wanted:
            what = "another slot" if found in self.truth else "never a state"
            raise Broken(f"Hudi sees {found}, which is {what}; published up to slot {self.published}: {wanted}")
        if self.ours(self.head) != self.truth[-1]:
            raise Broken(f"slots give {self.ours(self.head)}, replay {self.truth[-1]}")
