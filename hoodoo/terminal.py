"""Values as text for people at a terminal, without control characters of user data and without secrets.

This module knows no command.
"""

from __future__ import annotations

import datetime as dt
import sys

from rich.console import Console

from hoodoo.redact import redact

CELL = 60  # characters of a cell


def safe(value: object, limit: int = 0) -> str:
    """Make text of `value` without control characters or secrets, cut at `limit` characters (0: not cut)."""
    return _escaped(redact("" if value is None else str(value)), limit)


def _escaped(text: str, limit: int) -> str:
    if not text.isprintable():
        text = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
    return text if not limit or len(text) <= limit else text[: limit - 1] + "…"


def cell(value: object) -> str:
    """Format a value for a table that people read.

    Numbers are grouped by thousands, times are in ISO 8601, and null is a dot.
    """
    if value is None:
        return "·"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:,.0f}"
    if isinstance(value, dt.datetime):
        return value.isoformat(" ", "seconds" if not value.microsecond else "microseconds").replace("+00:00", "Z")
    return safe(value, CELL)


def console(error: bool = False) -> Console:
    """Make a console of standard output, or of standard error."""
    stream = sys.stderr if error else sys.stdout
    wide = None if stream.isatty() else 1 << 16  # nobody knows how wide a file is
    return Console(file=stream, highlight=False, width=wide, soft_wrap=False)


def data_cell(value: object, limit: int) -> str:
    """Format a value of a row of a table.

    Nothing is hidden: what looks like a secret is data of the user. Text is cut at `limit` characters (0: not cut).
    """
    if value is None or isinstance(value, (bool, dt.datetime)):
        return cell(value)
    return _escaped(repr(value) if isinstance(value, float) else str(value), limit)
