"""What the text of an argument becomes, and what several commands say of one. Each function is a `type` of argparse: it
raises ArgumentTypeError for a text that it does not take.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any

POSITION = (
    "a slot's number, an instant, a cursor, a time like 2026-01-31T12:00:00Z (UTC if it has no zone), a date, how long "
    "ago ('1d', '2 hours ago'), or 'earliest'"
)
"""What a place in a table's history may be given as."""
_SECONDS_MAX = 1e9  # thirty years; the clocks of waiting take no more than nine times that


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


def time_unit(text: str) -> tuple[str, str]:
    """A column and the unit of its times; of a unit alone, no column, which stands for all."""
    name, _, unit = text.rpartition("=")
    if unit not in ("ms", "us", "ns"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a unit of time: expected ms, us, ns or COLUMN=ms")
    return name.strip(), unit


def amount(text: str) -> int:
    """A whole number from 0."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def port(text: str) -> int:
    """The port of a server, or 0 for any."""
    if (found := amount(text)) >= 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, a whole number up to 65535")
    return found


def seconds(text: str) -> float:
    """A number of seconds from 0."""
    return _number(text, 0 <= _float(text) <= _SECONDS_MAX, "a number of seconds from 0 to 1,000,000,000")


def pause(text: str) -> float:
    """A number of seconds above 0, between two looks."""
    return _number(text, 0 < _float(text) <= _SECONDS_MAX, "a number of seconds above 0, and up to 1,000,000,000")


def share(text: str) -> float:
    """A fraction."""
    return _number(text, 0 <= _float(text) <= 1, "a number from 0 to 1")


def rate(text: str) -> float:
    """A number above 0."""
    return _number(text, 0 < _float(text) < float("inf"), "a number above 0")


NUMBERS: dict[Callable[[str], Any] | str | None, str] = {
    amount: "a whole number",
    port: "a whole number",
    **dict.fromkeys((seconds, pause, share, rate), "a number"),
}
"""Types of numbers, and what a file that knows numbers has to have there."""


def _float(text: str) -> float:
    """The number that a text is; NaN, which no bound lets through, where it is none."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _number(text: str, fits: bool, wanted: str) -> float:
    if not fits:
        raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
    return float(text)


def setting(text: str) -> tuple[str, str]:
    """A column and the expression that it is set to."""
    name, equals, expression = text.partition("=")
    if not name.strip() or not equals or not expression.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not COLUMN=EXPRESSION")
    return name.strip(), expression
