"""Places in a source, as people say them: its beginning, its end, or a time. Knows no source."""

from __future__ import annotations

import datetime as dt

EARLIEST, LATEST = "earliest", "latest"
KNOWN = f"'{EARLIEST}', '{LATEST}', a time as ISO 8601 writes it, such as '2026-11-27T09:00:00Z'"
"""The places that people say, in words for an error."""


def time_ms(place: str) -> int | None:
    """Read a time.

    Args:
        place: A time as ISO 8601 writes it, in UTC where it says no zone, such as '2026-11-27T09:00:00Z'.

    Returns:
        It in ms since 1970; None where the text is no time.
    """
    try:
        moment = dt.datetime.fromisoformat(place)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.timezone.utc)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)) // dt.timedelta(milliseconds=1)


__all__ = ["EARLIEST", "KNOWN", "LATEST", "time_ms"]
