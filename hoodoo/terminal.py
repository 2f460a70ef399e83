"""Text formatting for a terminal.

This module is independent of commands.
"""

from __future__ import annotations

import datetime as dt
import sys

from rich.console import Console

from hoodoo.redact import redact

CELL = 60  # maximum number of characters in a cell


def format_value(value: object, limit: int = 0) -> str:
    """Format a value for a terminal.

    0 means no limit.
    """
    return _escaped(redact("" if value is None else str(value)), limit)


def _escaped(text: str, limit: int) -> str:
    if not text.isprintable():
        text = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
    return text if not limit or len(text) <= limit else text[: limit - 1] + "…"


def format_cell(value: object) -> str:
    """Format a value for a table cell.

    Integers have thousands separators, times are in ISO 8601, and null is a dot.
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
    return format_value(value, CELL)


def create_console(error: bool = False) -> Console:
    stream = sys.stderr if error else sys.stdout
    wide = None if stream.isatty() else 1 << 16  # a file has unlimited width
    return Console(file=stream, highlight=False, width=wide, soft_wrap=False)


def format_data_cell(value: object, limit: int) -> str:
    """Format a value of a row for a terminal.

    Nothing is redacted, because user data may look like a secret.
    """
    if value is None or isinstance(value, (bool, dt.datetime)):
        return format_cell(value)
    return _escaped(repr(value) if isinstance(value, float) else str(value), limit)
