"""What the text of an argument becomes, and what several commands say of one. Each function is a `type` of argparse: it
raises ArgumentTypeError for a text that it does not take.
"""

from __future__ import annotations

import argparse
import re

POSITION = (
    "a slot's number, an instant, a cursor, a time like 2026-01-31T12:00:00Z (UTC if it has no zone), a date, how long "
    "ago ('1d', '2 hours ago'), or 'earliest'"
)
"""What a place in a table's history may be given as."""


def names(text: str) -> list[str]:
    """Names between commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def partitioning(text: str) -> list[str]:
    """Columns and transforms; a comma between parentheses parts none of them."""
    return [part.strip() for part in re.findall(r"(?:[^,(]|\([^)]*\)?)+", text) if part.strip()]


def pair(text: str) -> tuple[str, str]:
    """A name, and the value after its first `=`."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not name=value")
    return name.strip(), value.strip()


def amount(text: str) -> int:
    """A whole number from 0."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def setting(text: str) -> tuple[str, str]:
    """A column and the expression that it is set to."""
    name, equals, expression = text.partition("=")
    if not name.strip() or not equals or not expression.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not COLUMN=EXPRESSION")
    return name.strip(), expression
