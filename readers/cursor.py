"""Cursor, which is a position in a table's history.

A position is a cursor, a slot, a commit, an instant, a time, a savepoint or 'earliest'. `resolve_position` returns its
slot.
docs/semantics.md contains the rules.
"""

from __future__ import annotations

import datetime as dt
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from hoodoo.errors import OptionError, PositionError, SnapshotExpired
from hoodoo.format.names import ms_of_instant
from hoodoo.redact import printable
from hoodoo.timeline.environment import SYSTEM
from hoodoo.timeline.history import History
from hoodoo.timeline.hudi import archived_timeline
from hoodoo.timeline.hudi.external_history import ExternalHistory, MergedHistory
from hoodoo.timeline.hudi.publish import SLOW_WRITE_MS
from hoodoo.timeline.layout import CLAIMS, TIMELINE
from hoodoo.timeline.slots.slot import COMPLETED
from hoodoo.timeline.views.view import View

if TYPE_CHECKING:
    from hoodoo.timeline.timeline_listing import Entry

EARLIEST, LATEST = "earliest", "latest"
DIGEST_DIGITS = 16
_NAMES_SHOWN = 20
_CURSOR = re.compile(r"^hoodoo:([0-9a-f]{32}):(\d{1,20})(?::([0-9a-f]{16}))?$")
_DIGITS = re.compile(r"^(\d{14}|\d{17})$", re.ASCII)
_SLOT = re.compile(r"^\d{1,12}$", re.ASCII)


@dataclass(frozen=True)
class Cursor:
    """Cursor, which is a reader's position in a table's history.

    Every method that takes a cursor also takes `str(cursor)`.

    Attributes:
        table: The id of the table, 32 hexadecimal digits.
        seq: The slot number, from 1. 0 is the position before the first slot.
        digest: The first 16 hexadecimal digits of the slot's digest. They show whether another slot has this number
            now, because the table was restored from a backup. '' means that the digest is unknown and is not checked.
    """

    table: str
    seq: int
    digest: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"hoodoo:{self.table}:{self.seq}{self.digest and ':'}{self.digest}"


class HasCursor(Protocol):
    """Object with a cursor."""

    @property
    def cursor(self) -> Cursor | str: ...


PositionLike: TypeAlias = "Cursor | HasCursor | Entry | str | int | dt.datetime | dt.date | dt.timedelta"
"""Position in a table's history. Accepted values:

- a cursor or its string
- a commit of `history()`, an entry of `timeline()`, a write result or a read
- a slot number, the digits of an instant, or the name of a savepoint
- a datetime with a time zone, a date (its start in UTC), or a timedelta (time before now)
- a string such as '2026-01-31T12:00:00Z', '2026-01-31 12:00' (UTC), '2026-01-31', '1d', '2 hours ago' or 'yesterday'
- 'earliest', or 'latest' for the newest slot
"""


def resolve_position(
    history: History, position: PositionLike, exclusive: bool = False, now_ms: Callable[[], int] = SYSTEM.now_ms
) -> int:
    """Resolve a position to a commit number.

    Args:
        history: The slots of the table.
        position: The position.
        exclusive: True for a `since` argument. 'earliest' and times before the table's creation are then slot 0.
        now_ms: The clock for positions that are relative to now, such as '1d'.

    Raises:
        PositionError: `position` is not a valid position of this table.
        SnapshotExpired: The time is before the first slot.
    """
    from hoodoo.readers.moments import convert_to_milliseconds

    head = history.head()
    target = _parse_position(position, head)
    if isinstance(target, Cursor):
        return _slot_of_cursor(target, history, head)
    if target is EARLIEST:
        return 0 if exclusive else max(1, head.min_readable)
    if isinstance(target, str):
        return _slot_of_digits(history, target, exclusive)
    return _slot_at_time(history, convert_to_milliseconds(target, now_ms()), exclusive)


def _parse_position(position: Any, head: View) -> Cursor | str | dt.datetime | dt.date | dt.timedelta:
    from hoodoo.timeline.timeline_listing import Entry

    if isinstance(position, Entry):
        position = position.slot or position.instant
    if not isinstance(position, (str, Cursor, type)):
        position = getattr(position, "cursor", position)
    if isinstance(position, str):
        if position in head.savepoints:
            return Cursor(head.table, head.savepoints[position])
        if position == LATEST:
            return cursor_of(head)
        return _parse_text(position, head)
    if isinstance(position, (Cursor, dt.date, dt.timedelta)):
        return position
    if not isinstance(position, bool):
        try:
            return Cursor(head.table, operator.index(position))
        except TypeError:
            pass
    raise PositionError(
        f"{printable(position)} is not a valid position. Pass a cursor, a commit of history(), a write result, "
        "a slot number, an instant, a time with a time zone, a date, a timedelta (an age), 'earliest' or 'latest'.",
        position=printable(position),
    )


def require_unambiguous_name(name: str) -> None:
    """Check that a name cannot be mistaken for a time.

    Raises OptionError for the name of a savepoint or tag that could be a time or an age. A read would take such a
    position for the savepoint or tag of that name.
    """
    from hoodoo.readers.moments import parse_moment

    try:
        moment = parse_moment(name) if isinstance(name, str) else None
    except PositionError:
        return  # begins like a date, but is not a valid date
    if moment is not None:
        raise OptionError(
            f"Name {printable(name)} could be read as {'an age' if isinstance(moment, dt.timedelta) else 'a time'}: "
            "expected a name that is not a valid position. Choose another name.",
            option="name",
        )


def cursor_of(view: View) -> Cursor:
    return Cursor(view.table, view.seq, view.sha[:DIGEST_DIGITS])


def cursor_of_commit_number(history: History, seq: int) -> Cursor:
    return Cursor(history.known_head().table, seq, history.digest(seq)[:DIGEST_DIGITS])


def require_same_commit(history: History, seq: int, digest: str, what: str) -> None:
    """Check that a commit was not replaced.

    A restored backup of the table may replace it. Raises PositionError.

    Args:
        history: The slots of the table.
        seq: The slot number.
        digest: The first digits of the slot's digest, or '' if unknown. An unknown digest is not checked.
        what: The name of the stored position, for the error message.
    """
    actual = history.digest(seq)
    if digest and actual and not actual.startswith(digest):
        raise PositionError(
            f"{what} does not match slot {seq} of this table: expected a slot with digest {digest}, got "
            f"{actual[:DIGEST_DIGITS]}. The table was restored from a backup after the position was stored. Read the "
            "table again from a position of the restored table.",
            cursor=what,
            slot=seq,
        )


def _slot_of_cursor(position: Cursor, history: History, head: View) -> int:
    if position.table != head.table:
        raise PositionError(
            f"The cursor {printable(str(position))} belongs to another table. Pass a cursor of this table.",
            cursor=printable(str(position)),
        )
    if isinstance(position.seq, bool) or not isinstance(position.seq, int):
        raise PositionError(
            f"The slot of a cursor is invalid: expected an integer, got {printable(position.seq)}. Pass a cursor that "
            "a table returned.",
            cursor=printable(str(position)),
        )
    if not position.seq >= 0:
        raise PositionError(
            f"Slot {printable(position.seq)} is before the first slot: expected a slot number from 1. The commit "
            "before the newest commit is history()[1].",
            cursor=printable(position),
        )
    if position.seq > head.seq:
        raise PositionError(
            f"Slot {printable(position.seq)} is after the newest slot, {head.seq}. "
            + (
                "The table was restored from a backup after the cursor was stored. Read the table again from a "
                "position of the restored table."
                if position.digest
                else "Pass a slot up to the newest one. If a date is meant, write it like 2026-01-31."
            ),
            cursor=printable(position),
        )
    require_same_commit(history, position.seq, position.digest, f"Cursor {printable(str(position))}")
    return position.seq


def _parse_text(text: str, head: View) -> Any:
    from hoodoo.readers.moments import parse_moment

    if text == EARLIEST:
        return EARLIEST
    if match := _CURSOR.match(text):
        return Cursor(match[1], int(match[2]), match[3] or "")
    if _DIGITS.match(text):
        return text
    if _SLOT.match(text):
        return Cursor(head.table, int(text))
    if (moment := parse_moment(text)) is not None:
        return moment
    savepoints = sorted(head.savepoints)
    raise PositionError(
        f"{printable(text)} is not a valid position. Use a slot number, an instant of 17 digits "
        "(yyyyMMddHHmmssSSS, UTC), a time like 2026-01-31T12:00:00Z (UTC without a time zone), a date, an age "
        "('1d', '2 hours ago', 'yesterday'), a cursor, 'earliest' or 'latest'. history and timeline list the slots. "
        f"{_list_savepoints(savepoints)}",
        position=printable(text),
        savepoints=savepoints,
    )


def _list_savepoints(savepoints: Sequence[str]) -> str:
    if not savepoints:
        return "There are no savepoints."
    more = ", ..." if len(savepoints) > _NAMES_SHOWN else ""
    return f"Savepoints: {', '.join(map(repr, savepoints[:_NAMES_SHOWN]))}{more}."


def _slot_of_digits(history: History, digits: str, exclusive: bool) -> int:
    if len(digits) == 17:
        for key, _ in history.store.list(f"{TIMELINE}{digits}_"):
            completed = key[len(TIMELINE) + 18 :].partition(".")[0]
            seq = history.find_last_completed_by(ms_of_instant(completed))
            if history.slot(seq).instant == digits and history.slot(seq).outcome == COMPLETED:
                return seq
        archived = digits <= archived_timeline.newest(history.store)
        if (archived or isinstance(history, (ExternalHistory, MergedHistory))) and (
            seq := _slot_of_instant(history, digits)
        ):
            return seq
        if history.store.exists(CLAIMS + digits):
            if seq := _slot_of_instant(history, digits):
                return seq
            raise PositionError(
                f"Instant {digits} is pending or was rolled back, so it is not a valid position. If its writer has "
                "stopped, maintenance.rollback() removes this write (hoodoo rollback PATH INSTANT).",
                instant=digits,
            )
    try:
        moment = ms_of_instant(digits)
    except ValueError:
        raise PositionError(
            f"{digits} is neither a committed instant nor a valid time. Use an instant from inspect.timeline(), or "
            "write a time as yyyyMMddHHmmssSSS in UTC.",
            instant=digits,
        ) from None
    return _slot_at_time(history, moment, exclusive)


def _slot_of_instant(history: History, instant: str) -> int:
    # The search uses the slots, because the instant may be archived from Hudi's timeline.
    try:
        began = ms_of_instant(instant)
    except ValueError:
        return 0
    for seq in range(history.find_last_completed_by(began), history.known_head().seq + 1):
        slot = history.slot(seq)
        if slot.instant == instant and slot.outcome == COMPLETED:
            return seq
        if slot.completed_at > began + SLOW_WRITE_MS:
            break
    return 0


def _slot_at_time(history: History, ms: int, exclusive: bool) -> int:
    oldest = history.slot(history.oldest_slot())
    if ms < oldest.completed_at:
        if oldest.seq > 1:
            raise SnapshotExpired(
                (
                    f"The snapshot at that time was archived. Read from slot {oldest.seq} (instant "
                    f"{oldest.instant}), the oldest one."
                ),
                earliest=oldest.seq,
            )
        if exclusive:
            return 0
        raise SnapshotExpired(
            f"The table did not exist at that time: its first instant is {oldest.instant}. Pass a later time.",
            earliest=1,
        )
    return history.find_last_completed_by(ms)
