"""Types of command line arguments.

Each function is a `type` for argparse, and raises ArgumentTypeError for an invalid value. Constants that several
commands show in their help are here, too.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any

from hoodoo.sizes import FORMS, convert_to_bytes

POSITION = (
    "a slot number, an instant, a cursor, a time like 2026-01-31T12:00:00Z (UTC without a time zone), a date, "
    "an age such as '1d' or '2 hours ago', or 'earliest'"
)
"""Description of the values that are valid as a position."""
_SECONDS_MAX = 1e9  # thirty years; timeouts overflow at about nine times this value


def parse_names(text: str) -> list[str]:
    """Parse a list of names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_partitioning(text: str) -> list[str]:
    """Parse partition columns such as 'city, bucket(16, id)'."""
    return [part.strip() for part in re.findall(r"(?:[^,(]|\([^)]*\)?)+", text) if part.strip()]


def parse_pair(text: str) -> tuple[str, str]:
    """Parse an argument of the form NAME=VALUE."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not valid: expected NAME=VALUE")
    return name.strip(), value.strip()


def parse_time_unit(text: str) -> tuple[str, str]:
    """Parse a time unit such as COLUMN=UNIT or UNIT."""
    name, _, unit = text.rpartition("=")
    if unit not in ("ms", "us", "ns"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid time unit: expected ms, us, ns or COLUMN=UNIT")
    return name.strip(), unit


def amount(text: str) -> int:
    """Parse an integer of at least 0."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid number: expected an integer of at least 0")
    return int(text)


def count(text: str) -> int:
    """Parse an integer of at least 1."""
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid number: expected an integer of at least 1")
    return int(text)


def parse_port(text: str) -> int:
    if (found := amount(text)) >= 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid port: expected an integer from 0 to 65535")
    return found


def parse_seconds(text: str) -> float:
    """Parse a number of seconds, at least 0."""
    return _number(text, 0 <= _float_or_nan(text) <= _SECONDS_MAX, "a number of seconds from 0 to 1,000,000,000")


def parse_polling_interval(text: str) -> float:
    """Parse a polling interval in seconds, above 0."""
    return _number(
        text, 0 < _float_or_nan(text) <= _SECONDS_MAX, "a number of seconds above 0 and at most 1,000,000,000"
    )


def parse_fraction(text: str) -> float:
    """Parse a fraction from 0 to 1."""
    return _number(text, 0 <= _float_or_nan(text) <= 1, "a number from 0 to 1")


def parse_rate(text: str) -> float:
    """Parse a maximum rate, such as rows per second."""
    return _number(text, 0 < _float_or_nan(text) < float("inf"), "a number above 0")


def parse_size(text: str) -> int:
    """Parse a number of bytes, or a size such as '2GB' or '512MiB'."""
    try:
        return convert_to_bytes(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid size: expected {FORMS}") from None


NUMBERS: dict[Callable[[str], Any] | str | None, str] = {
    amount: "an integer",
    parse_port: "an integer",
    **dict.fromkeys((parse_seconds, parse_polling_interval, parse_fraction, parse_rate), "a number"),
}
"""Numeric argument types, and the description of the value that a TOML file must contain for each."""


def _float_or_nan(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")  # fails every bounds check


def _number(text: str, fits: bool, wanted: str) -> float:
    if not fits:
        raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
    return float(text)


def parse_setting(text: str) -> tuple[str, str]:
    """Parse an argument of the form COLUMN=EXPRESSION."""
    name, equals, expression = text.partition("=")
    if not name.strip() or not equals or not expression.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not valid: expected COLUMN=EXPRESSION")
    return name.strip(), expression
