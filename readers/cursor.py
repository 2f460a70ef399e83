"""Cursors, and all else that names a point in a table's history: an instant, a time, a savepoint or 'earliest'.
`resolve` finds the slot that each of them means. Rules: docs/semantics.md.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hoodoo.errors import PositionError, SnapshotExpired
from hoodoo.format.names import ms_of_instant
from hoodoo.redact import printable
from hoodoo.timeline.history import History
from hoodoo.timeline.hudi import archived_timeline
from hoodoo.timeline.hudi.foreign import ForeignHistory, Overlay
from hoodoo.timeline.hudi.publish import SLOW_WRITE_MS
from hoodoo.timeline.layout import CLAIMS, TIMELINE
from hoodoo.timeline.slots.slot import COMPLETED

EARLIEST = "earliest"
_NAMES_SHOWN = 20
_CURSOR = re.compile(r"^hoodoo:([0-9a-f]{32}):(\d{1,20})$")
_DIGITS = re.compile(r"^(\d{14}|\d{17})$", re.ASCII)
_ISO = re.compile(r"^\d{4}-\d\d-\d\d", re.ASCII)


@dataclass(frozen=True)
class Cursor:
    """A position of a reader: a slot of a table.

    `str(cursor)` is accepted wherever a cursor is.

    Attributes:
        table: The id of the table, 32 hexadecimal digits.
        seq: The number of the slot, from 1; 0 is before the first slot.
    """

    table: str
    seq: int

    def __str__(self) -> str:
        return f"hoodoo:{self.table}:{self.seq}"


PositionLike = Cursor | str | dt.datetime
"""A cursor or its text, an instant's digits, a time with a zone (also as ISO 8601 text), a savepoint's name or
'earliest'.
"""


def resolve(history: History, position: PositionLike, exclusive: bool = False) -> int:
    """The slot that `position` means on the newest head. exclusive: as `since`, where 'earliest' and times before the
    table are 0.

    Raises PositionError for what is no position of this table, SnapshotExpired for a time before the first slot.
    """
    head = history.head()
    if isinstance(position, str):
        position = (
            Cursor(head.table, head.savepoints[position])
            if position in head.savepoints
            else _parse(position, sorted(head.savepoints))
        )
    if isinstance(position, Cursor):
        if position.table != head.table:
            raise PositionError(
                f"The cursor {printable(str(position))} belongs to another table; take one of this table's.",
                cursor=printable(str(position)),
            )
        if isinstance(position.seq, bool) or not isinstance(position.seq, int):
            raise PositionError(
                f"A cursor names a slot, got {printable(position.seq)}; use one that a table gave.",
                cursor=printable(str(position)),
            )
        if not position.seq >= 0:
            raise PositionError(f"The cursor {position} is before the first slot.", cursor=str(position))
        if position.seq > head.seq:
            raise PositionError(f"The cursor {position} is after the newest slot, {head.seq}.", cursor=str(position))
        return position.seq
    if position is EARLIEST:
        return 0 if exclusive else max(1, head.min_readable)
    if isinstance(position, dt.datetime):
        return _of_time(history, _ms(position), exclusive)
    if isinstance(position, str):
        return _of_digits(history, position, exclusive)
    raise PositionError(
        f"{printable(position)} is no position: pass a cursor, an instant, a time with a zone, or 'earliest'.",
        position=printable(position),
    )


def _parse(text: str, savepoints: Sequence[str]) -> Any:
    if text == EARLIEST:
        return EARLIEST
    if match := _CURSOR.match(text):
        return Cursor(match[1], int(match[2]))
    if _DIGITS.match(text):
        return text
    if _ISO.match(text):
        try:
            return dt.datetime.fromisoformat(text)
        except ValueError:
            raise PositionError(
                f"{printable(text)} is no time: write it like 2026-01-31T12:00:00Z.", position=printable(text)
            ) from None
    raise PositionError(
        f"{printable(text)} is no position: an instant has 17 digits (yyyyMMddHHmmssSSS, UTC), a time is written "
        "like 2026-01-31T12:00:00Z, "
        f"a cursor comes from .cursor, or say 'earliest'. {_named(savepoints)}",
        position=printable(text),
        savepoints=list(savepoints),
    )


def _named(savepoints: Sequence[str]) -> str:
    if not savepoints:
        return "There are no savepoints."
    more = ", ..." if len(savepoints) > _NAMES_SHOWN else ""
    return f"Savepoints: {', '.join(map(repr, savepoints[:_NAMES_SHOWN]))}{more}."


def _ms(moment: dt.datetime) -> int:
    if moment.tzinfo is None:
        raise PositionError(
            f"The time {moment} has no zone; add one: tzinfo=datetime.timezone.utc, or Z in text.",
            position=str(moment),
        )
    return int((moment - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)) // dt.timedelta(milliseconds=1))


def _of_digits(history: History, digits: str, exclusive: bool) -> int:
    if len(digits) == 17:
        for key, _ in history.store.list(f"{TIMELINE}{digits}_"):
            completed = key[len(TIMELINE) + 18 :].partition(".")[0]
            seq = history.last_completed_by(ms_of_instant(completed))
            if history.slot(seq).instant == digits and history.slot(seq).outcome == COMPLETED:
                return seq
        archived = digits <= archived_timeline.newest(history.store)
        if (archived or isinstance(history, (ForeignHistory, Overlay))) and (seq := _slot_of(history, digits)):
            return seq
        if history.store.exists(CLAIMS + digits):
            if seq := _slot_of(history, digits):
                return seq
            raise PositionError(f"Instant {digits} is pending or was rolled back; it is no position.", instant=digits)
    try:
        moment = ms_of_instant(digits)
    except ValueError:
        raise PositionError(
            f"{digits} is neither a committed instant nor a time; take an instant from timeline(), or write a time as "
            "yyyyMMddHHmmssSSS in UTC.",
            instant=digits,
        ) from None
    return _of_time(history, moment, exclusive)


def _slot_of(history: History, instant: str) -> int:
    """The slot that completed `instant`, found without Hudi's timeline, which may be archived; 0 if none did."""
    try:
        began = ms_of_instant(instant)
    except ValueError:
        return 0
    for seq in range(history.last_completed_by(began), history.known_head().seq + 1):
        slot = history.slot(seq)
        if slot.instant == instant and slot.outcome == COMPLETED:
            return seq
        if slot.completed_at > began + SLOW_WRITE_MS:
            break
    return 0


def _of_time(history: History, ms: int, exclusive: bool) -> int:
    oldest = history.slot(history.oldest_slot())
    if ms < oldest.completed_at:
        if oldest.seq > 1:
            raise SnapshotExpired(
                (
                    f"What the table was at that time is archived; the oldest slot is {oldest.seq} (instant "
                    f"{oldest.instant})."
                ),
                earliest=oldest.seq,
            )
        if exclusive:
            return 0
        raise SnapshotExpired(
            f"The table did not exist at that time; its first instant is {oldest.instant}.", earliest=1
        )
    return history.last_completed_by(ms)
