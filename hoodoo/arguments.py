"""Checks of arguments that several calls of the table share. Knows types and bounds, not what the values mean."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from typing import Any

from hoodoo.errors import OptionError, PositionError
from hoodoo.storage.redact import printable

Transaction = tuple[str, int]


def application_version(transaction: Transaction | None) -> Transaction | None:
    """(application, version) as plain text and number. Raises OptionError."""
    if transaction is None:
        return None
    try:
        application, version = transaction
        number = operator.index(version)
    except (TypeError, ValueError):
        application, number = None, -1
    if not isinstance(application, str) or not application or isinstance(transaction[1], bool) or number < 0:
        raise OptionError(
            f"transaction takes (application, version) with a text and a whole number from 0, got {transaction!r}.",
            option="transaction",
        )
    return application, number


def number_from(option: str, value: Any, least: int, whole: bool = False, optional: bool = True) -> Any:
    """`value`, a finite number from `least`, or (optional) None. Raises OptionError."""
    fits = (
        optional
        and value is None
        or not isinstance(value, bool)
        and isinstance(value, (int,) if whole else (int, float))
        and least <= value <= 1e12
    )
    if not fits:
        raise OptionError(
            f"{option} takes a {'whole ' if whole else ''}number from {least}, got {value!r}.", option=option
        )
    return value


def flag(option: str, value: bool) -> bool:
    """`value` if it is True or False. Raises OptionError."""
    if not isinstance(value, bool):
        raise OptionError(f"{option} takes True or False, got {printable(value)}.", option=option)
    return value


def instant_text(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"\d{17}", value, re.ASCII):
        raise PositionError(f"{printable(value)} is no instant: 17 digits, as timeline() shows them.")
    return value


def one_of(option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise OptionError(f"{option} takes {' or '.join(map(repr, allowed))}, got {value!r}.", option=option)
