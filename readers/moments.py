"""Moments: dates, times and ages as strings."""

from __future__ import annotations

import datetime as dt
import re

from hoodoo.errors import PositionError
from hoodoo.redact import printable

_ISO = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_AGO = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([A-Za-z]+)(?:\s+ago)?", re.ASCII)
_UNITS = {
    "s": ("s", "sec", "secs", "second", "seconds"),
    "m": ("m", "min", "mins", "minute", "minutes"),
    "h": ("h", "hr", "hrs", "hour", "hours"),
    "d": ("d", "day", "days"),
    "w": ("w", "week", "weeks"),
}
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SECONDS_OF_WORD = {word: _SECONDS[unit] for unit, words in _UNITS.items() for word in words}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def parse_moment(text: str) -> dt.datetime | dt.timedelta | None:
    """Parse a moment, which is a time or an age.

    An example is '2 hours ago'. Returns None for other strings. A time without a zone is in UTC, and a date is the
    start of the day in UTC. 'yesterday' means 24 hours ago. The unit 'm' means minutes; months are not supported
    because their length varies.

    Raises:
        PositionError: The string begins like a date but is not a valid time.
    """
    if _ISO.match(text):
        try:
            moment = dt.datetime.fromisoformat(text)
        except ValueError:
            raise PositionError(
                f"{printable(text)} is not a valid time. Write it like 2026-01-31T12:00:00Z.", position=printable(text)
            ) from None
        return moment if moment.tzinfo else moment.replace(tzinfo=dt.timezone.utc)
    if text.strip().lower() == "yesterday":
        return dt.timedelta(days=1)
    if (match := _AGO.fullmatch(text.strip())) and (seconds := _SECONDS_OF_WORD.get(match[2].lower())):
        return _parse_age(float(match[1]) * seconds, text)
    return None


def _parse_age(seconds: float, text: str) -> dt.timedelta:
    try:
        return dt.timedelta(seconds=seconds)
    except OverflowError:
        raise PositionError(
            f"Age {printable(text)} is too large: the time would be outside of the supported range. Use a smaller age.",
            position=printable(text),
        ) from None


def convert_to_milliseconds(moment: dt.datetime | dt.date | dt.timedelta, now_ms: int) -> int:
    """Convert a time or an age to milliseconds.

    A date is the start of the day in UTC. A timedelta is subtracted from now.

    Raises:
        PositionError: A datetime has no zone, or a timedelta is negative.
    """
    if isinstance(moment, dt.timedelta):
        if moment < dt.timedelta(0):
            raise PositionError(
                f"A timedelta is an age and must not be negative, got {printable(str(moment))}. Pass "
                f"{printable(str(-moment)) if moment > dt.timedelta.min else 'a smaller one'} as a timedelta.",
                position=str(moment),
            )
        return now_ms - moment // dt.timedelta(milliseconds=1)
    if not isinstance(moment, dt.datetime):
        moment = dt.datetime(moment.year, moment.month, moment.day, tzinfo=dt.timezone.utc)
    if moment.tzinfo is None:
        raise PositionError(
            f"The time {moment} has no time zone. If it is in UTC, pass it with "
            ".replace(tzinfo=datetime.timezone.utc). If it is in local time, pass it with .astimezone().",
            position=str(moment),
        )
    return int((moment - _EPOCH) // dt.timedelta(milliseconds=1))
