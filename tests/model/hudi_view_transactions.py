"""Transactions on the table of hudi_view_model.py: each a small program that takes one step at a time and may be
interrupted between any two.

An upsert into logs or by rewriting (cow), a delete, an overwrite of a partition, a clustering, a restore, a savepoint,
a clean, a compaction plan, and a worker that runs one. Knows nothing of who else runs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from hudi_view_model import (
    PARTITIONS,
    Columns,
    File,
    Group,
    Record,
    Row,
    Rows,
    Slot,
    Table,
    records_of,
    replay,
    rows_of,
    rows_of_base,
)

CHANGES = ("rename", "widen", "add")
DATA = ("upsert", "cow", "delete", "overwrite", "cluster", "restore", *CHANGES)
_CLOCK_ERRORS = (0, 0, 40, -40)
_WAITS_MAX = 12


@dataclass
class Change:
    """What a transaction wants its slot to say, and the truth after it."""

    replaced: set[Group] = field(default_factory=set)
    rewrites: set[Group] = field(default_factory=set)
    partitions: set[int] = field(default_factory=set)
    inserted: set[str] = field(default_factory=set)
    upserted: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    target: int = 0
    columns: Columns | None = None


class Transaction:
    """step: begin, write, complete, stop or dead. part: the partition it overwrites or clusters; keep: slots a clean
    keeps readable.
    """

    def __init__(self, name: str, kind: str, rng: random.Random) -> None:
        self.name, self.kind, self.rng = name, kind, rng
        self.step, self.instant, self.base, self.fenced = "begin", 0, 0, False
        self.part, self.keep, self.records = 0, 0, list[Record]()
        self.files: list[File] = []
        self.change = Change()
        self.columns = Columns()
        self.rows: Callable[[Rows], Rows] | None = None
        self._clock_error, self._waits, self._plan = rng.choice(_CLOCK_ERRORS), 0, 0
        self._groups: set[Group] = set()

    def advance(self, table: Table, now: int) -> None:
        """Take the next step. The clock of its process may be set at any time."""
        if self.rng.random() < 0.1:
            self._clock_error = self.rng.choice(_CLOCK_ERRORS[1:])
        getattr(self, f"_{self.step}")(table, now + self._clock_error)

    # ---- begin
    def _begin(self, table: Table, clock: int) -> None:
        self.base, self.files, self.change, self.rows = table.head, [], Change(), None
        self.columns = table.columns[-1]
        if not self.instant or table.keeps("rebase_new_instant"):
            self.instant = table.claim(
                max(clock, table.last_completed + 1 if table.keeps("begin_after_head") else 0, 1)
            )
            self.fenced = False
        self.step = "write"
        if self.kind == "plan":
            self._groups = {group for group, piece in table.live[-1].items() if piece.logs} - table.planned()
            self.step = "complete" if self._groups else "stop"
        elif self.kind == "work":
            self._choose_plan(table)
        elif self.kind in ("savepoint", "clean"):
            self.step = "complete"
        elif self.kind == "restore" and not table.saved:
            self._wait()
        elif not self._lay_out(table, clock):
            self.step = "begin"

    def _wait(self) -> None:
        self._waits += 1
        self.step = "begin" if self._waits < _WAITS_MAX else "stop"

    def _choose_plan(self, table: Table) -> None:
        plans = sorted(table.open_plans())
        if plans:
            self._plan = self.rng.choice(plans)
        else:
            self._wait()

    def _lay_out(self, table: Table, clock: int) -> bool:
        """Lay the change out in files. False: an open plan had to be run first."""
        if self.kind in ("overwrite", "cluster"):
            self._replace_partition(table)
        elif self.kind == "restore":
            self._restore(table)
        elif self.kind in CHANGES:
            return self._change_columns(table, clock)
        else:
            return self._change_rows(table, clock)
        return True

    def _new(self, table: Table, partition: int, rows: Rows) -> File:
        return File(table.new_group(partition), self.instant, "base", records_of(rows), self.name, self.columns)

    def _replace_partition(self, table: Table) -> None:
        part, overwrites = self.part, self.kind == "overwrite"
        if overwrites:
            put: Rows = {
                key: (ordering or 0, value or "") for key, ordering, value in self.records if PARTITIONS[key] == part
            }
        else:
            put = {key: row for key, row in table.truth[-1].items() if PARTITIONS[key] == part}
        self.files = [self._new(table, part, put)] if put else []
        gone = {group for group in table.live[-1] if group[0] == part}
        self.change = Change(
            replaced=gone, partitions={part} if overwrites else set(), inserted=set(put) if overwrites else set()
        )
        if overwrites:
            self.rows = lambda now: {**{key: row for key, row in now.items() if PARTITIONS[key] != part}, **put}

    def _restore(self, table: Table) -> None:
        live = table.live[-1]
        target = max(table.saved) if self.rng.random() < 0.7 else min(table.saved)
        then, back = table.live[target], table.truth[target]
        gone = {group for group in live if live[group] != then.get(group)}
        kept = {key for group in set(live) - gone for key in rows_of(live[group])}
        put = {key: row for key, row in back.items() if key not in kept}
        table.ours(target)
        by_partition = {part: {key: row for key, row in put.items() if PARTITIONS[key] == part} for part in (0, 1)}
        self.files = [self._new(table, part, rows) for part, rows in by_partition.items() if rows]
        self.change = Change(replaced=gone, partitions={0, 1}, inserted=set(put), target=target)
        self.rows = lambda now: back
        if not table.keeps("restore_is_replace"):
            self.files, self.change.replaced = [], set()

    def _change_columns(self, table: Table, clock: int) -> bool:
        """Rename the value, widen it, or add a column; what readers by name would read wrong is rewritten."""
        now = table.columns[-1]
        self.columns = {
            "rename": now._replace(name=now.name + 1),
            "widen": now._replace(kind=now.kind + 1),
            "add": now._replace(others=now.others + 1),
        }[self.kind]
        rewrites = self._wrong(table)
        for seq in table.open_plans():
            if rewrites:
                files = self._output(table, seq)
                table.files |= set(files)
                self._end_plan(table, clock, seq, files)
                return False
        for group in sorted(rewrites):
            whole = records_of(rows_of(table.live[-1][group]))
            self.files.append(File(group, self.instant, "base", whole, self.name, self.columns))
        self.change = Change(rewrites=rewrites, columns=self.columns)
        return True

    def _wrong(self, table: Table) -> set[Group]:
        """Groups that have to be written anew for the columns that the change makes."""
        found = set()
        for group, piece in table.live[-1].items():
            files = [*([piece.base] if piece.base else []), *(file for _, file in piece.logs)]
            other_name = any(file.columns.name != self.columns.name for file in files)
            older_log = any(file.columns.kind != self.columns.kind for _, file in piece.logs)
            if other_name and table.keeps("no_other_names") or older_log and table.keeps("no_older_logs"):
                found.add(group)
        return found

    def _change_rows(self, table: Table, clock: int) -> bool:
        live = table.live[-1]
        home = {key: group for group, piece in live.items() for key in rows_of(piece)}
        holder = {key: group for group, piece in live.items() for key in rows_of_base(piece.base)}
        changed: dict[Group, list[Record]] = {}
        fresh: dict[int, dict[str, Row]] = {}
        rewrites: set[Group] = set()
        effective = [record for record in self.records if record.value is not None or record.key in home]
        for record in effective:
            group = home.get(record.key, holder.get(record.key))
            if group is None:
                fresh.setdefault(PARTITIONS[record.key], {})[record.key] = record.ordering or 0, record.value or ""
                continue
            changed.setdefault(group, []).append(record)
            if self.kind == "cow" or (record.key not in home and table.keeps("reinsert_in_base")):
                rewrites.add(group)
        for seq, plan in table.open_plans().items():
            if rewrites & plan.groups and table.keeps("no_rewrite_under_plan"):
                files = self._output(table, seq)
                table.files |= set(files)
                self._end_plan(table, clock, seq, files)
                return False
        for group, records in changed.items():
            whole = records_of(replay(rows_of(live[group]), records))
            self.files.append(
                File(
                    group,
                    self.instant,
                    *(("base", whole) if group in rewrites else ("log", tuple(records))),
                    self.name,
                    self.columns,
                )
            )
        self.files += [self._new(table, part, rows) for part, rows in fresh.items()]
        self.change = Change(
            rewrites=rewrites,
            inserted={record.key for record in effective if record.key not in home},
            deleted={record.key for record in effective if record.value is None},
            upserted={record.key for record in effective if record.value is not None and record.key in home},
        )
        self.rows = lambda now: replay(now, effective)
        return True

    # ---- write
    def _write(self, table: Table, clock: int) -> None:
        self.step = "complete"
        if self.kind == "work":
            self.files = self._output(table, self._plan)
        table.files |= set(self.files)

    def _output(self, table: Table, seq: int) -> list[File]:
        """The base files that the plan in slot `seq` makes."""
        plan = table.slots[seq]
        token = "plan" if table.keeps("output_named_by_plan") else self.name
        columns = table.columns[plan.plan if table.keeps("plan_keeps_columns") else -1]
        return [
            File(group, plan.instant, "base", records_of(rows_of(table.live[plan.plan][group])), token, columns)
            for group in sorted(plan.groups)
        ]

    def _end_plan(self, table: Table, clock: int, seq: int, files: list[File]) -> None:
        """Take the slot that completes the plan in slot `seq`, without groups that were replaced or rewritten since."""
        plan = table.slots[seq]
        was, now = table.live[plan.plan], table.live[-1]
        kept = tuple(file for file in files if file.group in now and now[file.group].base == was[file.group].base)
        slot = Slot(
            "compact",
            plan.instant,
            kept,
            rewrites={file.group for file in kept},
            plan=plan.plan if table.keeps("plan_is_slot") else seq,
        )
        table.take(slot, clock)
        slot.plan = seq

    # ---- complete
    def _complete(self, table: Table, clock: int) -> None:
        if self.fenced and table.keeps("fenced"):
            self._leave(table)
            self.step = "stop"
        else:
            {"work": self._work, "plan": self._schedule, "savepoint": self._save, "clean": self._clean}.get(
                self.kind, self._commit
            )(table, clock)

    def _work(self, table: Table, clock: int) -> None:
        self.step = "stop"
        if self._plan in table.open_plans():
            self._end_plan(table, clock, self._plan, self.files)
        elif not table.keeps("loser_keeps_output"):
            table.files -= set(self.files)

    def _schedule(self, table: Table, clock: int) -> None:
        self.step = "stop"
        base = table.head if table.keeps("plan_is_slot") else self.base
        groups = {group for group in self._groups if group in table.live[-1] and group not in table.planned()}
        if groups:
            table.take(Slot("plan", self.instant, groups=groups, plan=base), clock)

    def _save(self, table: Table, clock: int) -> None:
        self.step = "stop"
        if self.base >= table.readable or not table.keeps("savepoint_readable"):
            table.take(Slot("savepoint", target=self.base), clock)

    def _clean(self, table: Table, clock: int) -> None:
        self.step = "stop"
        table.readable = max(table.readable, table.head - self.keep)
        keep = {
            *range(table.readable, table.head + 1),
            *table.saved,
            *(plan.plan for plan in table.open_plans().values()),
        }
        needed = {
            file
            for seq in keep
            for piece in table.live[seq].values()
            for file in (piece.base, *(log for _, log in piece.logs))
        }
        victims = {file for slot in table.slots for file in slot.files} - needed
        table.take(Slot("clean", victims=victims), clock)
        if not table.keeps("cleaned_after_publication"):
            table.files -= victims

    def _commit(self, table: Table, clock: int) -> None:
        slot = Slot(
            "restore" if self.kind == "restore" else "write", self.instant, tuple(self.files), **vars(self.change)
        )
        since = table.slots[self.base + 1 :]
        if (
            any(self._conflict(table, slot, other) for other in since)
            or self._under_plan(table, slot)
            or self._columns_changed(table, slot, since)
        ):
            self._leave(table)
            self.step = "begin"
            return
        table.take(slot, clock, self.rows(table.truth[-1]) if self.rows else None)
        self.step = "stop"

    def _columns_changed(self, table: Table, slot: Slot, since: list[Slot]) -> bool:
        """Does a change of columns keep the slot from coming now?"""
        if any(other.columns for other in since) and (slot.columns or table.keeps("change_rebases")):
            return True
        if not slot.columns:
            return False
        newer = any(other.instant > slot.instant for other in since if other.kind in ("write", "restore", "plan"))
        return newer and table.keeps("change_is_newest") or not self._wrong(table) <= slot.rewrites

    def _under_plan(self, table: Table, slot: Slot) -> bool:
        return table.keeps("no_rewrite_under_plan") and any(
            slot.rewrites & plan.groups for plan in table.open_plans().values()
        )

    def _conflict(self, table: Table, mine: Slot, other: Slot) -> bool:
        """May `mine`, begun before `other`, not come after it?"""
        compaction = other.kind == "compact"
        shares_group = (
            mine.rewrites & other.touched
            or mine.logs & other.replaced
            or (not compaction and mine.replaced & other.touched)
        )
        overwritten = not compaction and any(group[0] in mine.partitions for group in other.touched | other.fresh)
        return bool(
            (table.keeps("conflict") and shares_group)
            or (table.keeps("delta_order") and mine.logs & other.logs and other.instant > mine.instant)
            or (table.keeps("inserted_keys") and mine.inserted & other.inserted)
            or (table.keeps("upsert_after_delete") and mine.upserted & other.deleted)
            or (table.keeps("overwritten_partition") and overwritten)
        )

    def _leave(self, table: Table) -> None:
        """Give up an attempt: a tidy writer deletes its files, another does not."""
        if self.rng.random() < 0.5:
            table.files -= set(self.files)
