"""Sizes in bytes, parsed from text such as '2GB'."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from hoodoo.errors import OptionError
from hoodoo.redact import printable

FORMS = "a number of bytes, or a size such as '2GB' or '512MiB'"
LARGEST = 10**12
"""Largest number that an option takes."""
_UNITS = {
    **{unit: 1000**power for power, unit in enumerate(("b", "kb", "mb", "gb", "tb"))},
    **{unit: 1024**power for power, unit in enumerate(("", "kib", "mib", "gib", "tib"))},
}


def convert_to_bytes(text: str) -> int:
    """Convert a size such as '2GB' to bytes.

    Raises:
        ValueError: The text is not a size.
    """
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?) ?([a-z]*)", text.strip().lower(), re.ASCII)
    if match is None or match[2] not in _UNITS:
        raise ValueError(text)
    return round(float(match[1]) * _UNITS[match[2]])


def convert_size_argument(option: str, value: Any, least: int = 1) -> int:
    """Convert a size argument to bytes.

    Args:
        option: The name of the argument.
        value: The value of the argument: a number, or text such as '2GB'.
        least: The minimum.
    """
    size: Any = None
    with contextlib.suppress(ValueError):
        size = convert_to_bytes(value) if isinstance(value, str) else value
    is_number = isinstance(size, (int, float)) and not isinstance(size, bool)
    if not is_number or not least <= size <= LARGEST or size != int(size):
        raise OptionError(
            f"Option {option} is not a valid size: expected {FORMS}, from {least:,} to {LARGEST:,} bytes, got "
            f"{printable(value)}.",
            option=option,
        )
    return int(size)
