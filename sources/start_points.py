"""Start points in a source, such as a time."""

from __future__ import annotations

import datetime as dt

EARLIEST, LATEST = "earliest", "latest"
KNOWN = f"'{EARLIEST}', '{LATEST}', an ISO 8601 time such as '2026-11-27T09:00:00Z'"
"""The supported start points, for error messages."""


def parse_time_ms(text: str) -> int | None:
    """Parse an ISO 8601 time as milliseconds since 1970.

    The milliseconds count from 1970. A time without a zone is in UTC. Returns None for other text.
    """
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.timezone.utc)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)) // dt.timedelta(milliseconds=1)


__all__ = ["EARLIEST", "KNOWN", "LATEST", "parse_time_ms"]
