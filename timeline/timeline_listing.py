"""Listings of a table's timeline."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import overload

import pyarrow as pa

from hoodoo.format.names import instant_of_ms, ms_of_instant
from hoodoo.notebook import format_html_table
from hoodoo.timeline.history import History
from hoodoo.timeline.instant import State
from hoodoo.timeline.slots.slot import LOG, PLANNED, ROLLED_BACK, Slot


@dataclass(frozen=True)
class Entry:
    """Entry in the timeline of a table.

    Attributes:
        slot: The number of the slot that completed the instant or rolled it back, or 0 while it is pending.
        instant: The instant, as 17 digits in UTC.
        action: Hudi's name of the action, such as 'deltacommit' or 'clean'.
        state: 'requested', 'inflight', 'completed', 'planned' or 'rolled back'.
        operation: The operation, such as 'UPSERT', or '' while the instant is pending.
        completed: The completion time as 17 digits in UTC, or '' while the instant is pending.
        files: Number of files that were written. If no files were written, the number of deleted data files.
        bytes: Total size of the written files, in bytes.
        inserted: Number of inserted rows, as reported by the commit.
        updated: Number of updated rows, as reported by the commit.
        deleted: Number of deleted rows, as reported by the commit.
        writer: The process that wrote the instant.
    """

    slot: int
    instant: str
    action: str
    state: str
    operation: str = ""
    completed: str = ""
    files: int = 0
    bytes: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    writer: str = ""

    @property
    def rows(self) -> int:
        """Number of inserted, updated and deleted rows."""
        return self.inserted + self.updated + self.deleted

    @property
    def seconds(self) -> float | None:
        """Duration of the commit in seconds.

        It is None while the instant is pending.
        """
        return (ms_of_instant(self.completed) - ms_of_instant(self.instant)) / 1000 if self.completed else None


class Timeline(Sequence[Entry]):
    """Commits and pending actions of a table.

    This is the result of `timeline()`. The completed instants are first.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = list(entries)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | list[Entry]:
        return self._entries[index]

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return "\n".join(
            f"{e.slot or '-':>5}  {e.instant}  {e.action:<13} {e.state:<11} {e.operation}" for e in self._entries
        )

    def _repr_html_(self) -> str:
        newest = [
            (str(e.slot or "-"), e.instant, e.operation or e.action, e.state, e.rows, e.seconds)
            for e in reversed(self._entries)
        ]
        return format_html_table(
            f"timeline of {len(self):,} instants, the newest first",
            ("slot", "instant", "operation", "state", "rows", "seconds"),
            newest,
        )

    def to_arrow(self) -> pa.Table:
        """Convert the timeline to a pyarrow Table.

        Returns:
            The table, with one row per instant and one column per attribute.
        """
        return pa.table(
            {field.name: [getattr(entry, field.name) for entry in self._entries] for field in fields(Entry)}
        )


def _entry(slot: Slot) -> Entry:
    state = (
        "planned"
        if slot.outcome == PLANNED
        else "rolled back"
        if slot.outcome == ROLLED_BACK
        else State.COMPLETED.value
    )
    return Entry(
        slot.seq,
        slot.target if slot.outcome == ROLLED_BACK else slot.instant,
        slot.target_action if slot.outcome == ROLLED_BACK else slot.action,
        state,
        slot.operation,
        instant_of_ms(slot.completed_at),
        len(slot.files) or len(slot.victims),
        sum(file.size for file in slot.files),
        slot.counts.get("inserts", 0),
        slot.counts.get("updates", 0),
        _deleted_rows(slot),
        slot.writer,
    )


def list_actions(history: History, newest: int | None = None) -> Timeline:
    """List the completed and pending actions of a table.

    Args:
        history: The history of the table.
        newest: Maximum number of slots. Older slots are left out. None (default): all slots.
    """
    head = history.head()
    first = max(history.oldest_slot() - 1, 0 if newest is None else head.seq - newest)
    slots = history.slots(first, head.seq)
    ended = {slot.instant for slot in slots} | {slot.target for slot in slots}
    pending = {}
    known = history.instants()
    for found in known:
        if (
            found.state is not State.COMPLETED
            and found.time not in ended
            and (not slots or found.time > slots[0].instant)
        ):
            pending[found.time] = Entry(0, found.time, found.action, found.state.value)
    completed = {found.time for found in known if found.state is State.COMPLETED}
    return Timeline([*map(_entry, slots), *(entry for t, entry in sorted(pending.items()) if t not in completed)])


@dataclass(frozen=True)
class Commit:
    """Commit that changed rows.

    Attributes:
        cursor: The position of the commit in the table's timeline, as a string that readers can store.
        instant: The instant, as 17 digits in UTC.
        completed: The completion time, in UTC.
        operation: The operation, such as 'UPSERT'.
        inserted: Number of inserted rows.
        updated: Number of updated rows.
        deleted: Number of deleted rows.
        files: Number of files that were written.
        bytes: Total size of the written files, in bytes.
        application: The application of the commit's `transaction`, or ''.
        version: The version of the commit's `transaction`, or 0.
        position: The source position in the commit's `transaction`, or ''.
        savepoints: The names of the savepoints at this commit.
        readable: True if the snapshot at this commit, and the changes since this commit, can be read.
        exact: True if `inserted`, `updated` and `deleted` are exact. False if they may be too high, because the commit
            appended to logs or dropped files without comparing stored rows, or another engine counted them.
    """

    cursor: str
    instant: str
    completed: dt.datetime
    operation: str
    inserted: int
    updated: int
    deleted: int
    files: int
    bytes: int
    application: str
    version: int
    position: str
    savepoints: tuple[str, ...]
    readable: bool
    exact: bool

    @property
    def slot(self) -> int:
        """Sequence number of the commit.

        It is the number of the slot in the table's timeline.
        """
        return int(self.cursor.split(":")[2])

    @property
    def rows(self) -> int:
        """Number of inserted, updated and deleted rows."""
        return self.inserted + self.updated + self.deleted

    @property
    def seconds(self) -> float:
        """Duration of the commit in seconds."""
        return (round(self.completed.timestamp() * 1000) - ms_of_instant(self.instant)) / 1000


class Commits(list[Commit]):
    """Commits that changed rows, newest first.

    This is the result of `history()`.
    """

    def __repr__(self) -> str:
        return "\n".join(map(self._line, self))

    @staticmethod
    def _line(one: Commit) -> str:
        rows = f"{one.rows:,}" if one.exact else f"<= {one.rows:,}"
        description = f"{one.slot:>5}  {one.completed:%Y-%m-%d %H:%M:%SZ}  {one.operation:<22} {rows:>11} rows"
        names = "".join(f"  {name!r}" for name in one.savepoints)
        return f"{description}  {one.seconds:,.1f} s{'' if one.readable else '  (cleaned)'}{names}"

    def _repr_html_(self) -> str:
        return format_html_table(
            f"{len(self):,} commits, the newest first",
            (
                "slot",
                "time",
                "operation",
                "inserted",
                "updated",
                "deleted",
                "seconds",
                "savepoints",
                "readable",
                "exact",
            ),
            (
                (
                    str(one.slot),
                    f"{one.completed:%Y-%m-%d %H:%M:%SZ}",
                    one.operation,
                    one.inserted,
                    one.updated,
                    one.deleted,
                    one.seconds,
                    ", ".join(one.savepoints),
                    "yes" if one.readable else "no",
                    "yes" if one.exact else "no",
                )
                for one in self
            ),
        )

    def to_arrow(self) -> pa.Table:
        """Convert the commits to a pyarrow Table.

        Returns:
            The table, with one row per commit and one column per attribute.
        """
        return pa.table({field.name: [getattr(commit, field.name) for commit in self] for field in fields(Commit)})


def list_commits(history: History, newest: int | None = None) -> Commits:
    """List the commits that changed rows, newest first.

    Args:
        history: The history of the table.
        newest: Maximum number of commits. None (default): all commits except archived commits.
    """
    head, result = history.head(), Commits()
    saved = {
        seq: tuple(sorted(name for name, at in head.savepoints.items() if at == seq))
        for seq in head.savepoints.values()
    }
    for seq in range(head.seq, history.oldest_slot() - 1, -1):
        if len(result) == newest:
            break
        slot = history.slot(seq)
        if slot.writes_rows:
            result.append(_commit(slot, history.digest(seq), saved.get(seq, ()), head.readable(seq)))
    return result


def _commit(slot: Slot, digest: str, savepoints: tuple[str, ...], readable: bool) -> Commit:
    counts, (application, version) = slot.counts, slot.transaction or ("", 0)
    completed = dt.datetime.fromtimestamp(slot.completed_at / 1000, dt.timezone.utc)
    rows = counts.get("inserts", 0), counts.get("updates", 0), _deleted_rows(slot)
    size = sum(file.size for file in slot.files)
    return Commit(
        f"hoodoo:{slot.table}:{slot.seq}{digest and ':'}{digest[:16]}",
        slot.instant,
        completed,
        slot.operation,
        *rows,
        len(slot.files),
        size,
        application,
        version,
        slot.reached,
        savepoints,
        readable,
        _has_exact_counts(slot),
    )


def _deleted_rows(slot: Slot) -> int:
    return slot.counts.get("deletes", 0) + slot.counts.get("removed", 0)


def _has_exact_counts(slot: Slot) -> bool:
    # Slots of older releases do not record this, so the kinds of their files determine it.
    if "exact" in slot.counts:
        return bool(slot.counts["exact"])
    if slot.published or any(file.external for file in slot.files) or slot.replaced:
        return False
    return not any(file.kind == LOG and (file.updates or file.deletes) for file in slot.files)
