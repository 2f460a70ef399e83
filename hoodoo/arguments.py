"""Checks of the types and bounds of arguments."""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hoodoo.errors import OptionError, PositionError
from hoodoo.nearest import find_nearest_name
from hoodoo.redact import printable
from hoodoo.sizes import LARGEST


class ApplicationVersion(NamedTuple):
    """Transaction of a commit: application name, version and source position.

    Attributes:
        application: The name of the application.
        version: The version of the commit within the application.
        position: The read position of the application in its source, as a string; '' if unknown.
        after: The position that the previous commit must have; None accepts any position.
        streamer: The position in the format of Apache Hudi's streamer; '' if unknown.
        overtake: Whether to continue even if Apache Hudi's streamer has read further since the newest commit.
    """

    application: str
    version: int
    position: str = ""
    after: str | None = None
    streamer: str = ""
    overtake: bool = False


Transaction = tuple[str, int] | tuple[str, int, str] | ApplicationVersion
LOOPBACK = "127.0.0.1"
"""Address at which only processes of this machine can connect."""
_SAME = {
    **{"mor": ("merge_on_read",), "cow": ("copy_on_write",), "log": ("merge_on_read",)},
    **dict.fromkeys(("error", "errors", "raise", "errorifexists"), ("fail",)),
    **dict.fromkeys(("ignore", "skip", "do_nothing"), ("keep", "ignore")),
    **dict.fromkeys(("update", "overwrite"), ("replace",)),
    **dict.fromkeys(("last", "latest", "first"), ("newest",)),
    **dict.fromkeys(("coalesce", "ignore_null", "ignore_nulls", "partial"), ("keep_non_null",)),
}
"""Equivalent hoodoo values by value in other libraries, best first."""
_VERSION_MAX = 10**18
_POSITION_BYTES_MAX = 64 << 10
_APPLICATION_MAX = 1_000


def is_utf8(text: str) -> bool:
    """Return whether UTF-8 can encode a string."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def convert_transaction(transaction: Transaction | None) -> ApplicationVersion | None:
    """Convert the argument `transaction` of a write to an ApplicationVersion.

    Raises:
        OptionError: The transaction is not an application name with a version and optionally a position.
    """
    if transaction is None:
        return None
    try:
        application, version, *more = transaction
        number = operator.index(version)
    except (TypeError, ValueError):
        application, version, number, more = None, None, -1, []
    most = 4 if isinstance(transaction, ApplicationVersion) else 2
    known = isinstance(application, str) and 0 < len(application) <= _APPLICATION_MAX and len(more) <= most
    if not known or isinstance(version, bool) or not 0 <= number <= _VERSION_MAX:
        raise OptionError(
            f"Option transaction must be (application, version), with a string of at most {_APPLICATION_MAX:,} "
            f"characters, an integer from 0 to {_VERSION_MAX:,}, and optionally a position, got "
            f"{printable(transaction)}.",
            option="transaction",
        )
    if more and not isinstance(transaction, ApplicationVersion):
        require_position(more[0])
    return ApplicationVersion(str(application), number, *more)


def require_application(name: object) -> None:
    """Check that an application name is a string of 1 to 1,000 characters."""
    if not isinstance(name, str) or not 0 < len(name) <= _APPLICATION_MAX:
        raise OptionError(
            f"Application name must be a string of 1 to {_APPLICATION_MAX:,} characters, got {printable(name)}.",
            option="name",
        )


def require_position(position: object) -> None:
    """Check that a source position is a string of 1 byte to 64 KiB."""
    if not isinstance(position, str) or not position or not is_utf8(position):
        raise OptionError(
            f"Position in a transaction must be a non-empty string, such as '{{\"offset\": 42}}', got "
            f"{printable(position)}.",
            option="transaction",
        )
    if len(position.encode()) > _POSITION_BYTES_MAX:
        raise OptionError(
            f"Position in a transaction is too long: expected at most {_POSITION_BYTES_MAX >> 10} KiB, got "
            f"{len(position):,} characters. Write the content to a file, and pass the file name.",
            option="transaction",
        )


def check_number(option: str, value: Any, least: int, whole: bool = False, optional: bool = True) -> Any:
    """Check that an argument is a number in the allowed range.

    Args:
        option: The name of the argument.
        value: The value of the argument.
        least: The minimum.
        whole: True accepts only integers. Default False.
        optional: True (default) also accepts None.
    """
    fits = (
        optional
        and value is None
        or not isinstance(value, bool)
        and isinstance(value, (int,) if whole else (int, float))
        and least <= value <= LARGEST
    )
    if not fits:
        raise OptionError(
            f"Option {option} must be {'an integer' if whole else 'a number'} from {least} to {LARGEST:,}, got "
            f"{printable(value)}.",
            option=option,
        )
    return value


def check_port(option: str, value: Any) -> int | None:
    """Check that an argument is a valid port number.

    0 means any free port, and None means that no server is started.
    """
    found = check_number(option, value, 0, whole=True)
    if found is not None and found >= 1 << 16:
        raise OptionError(
            f"Option {option} must be a port number, or 0 for any free port, got {printable(value)}.", option=option
        )
    return int(found) if found is not None else None


def check_address(option: str, value: Any) -> str:
    """Check that an argument is a server address."""
    if not isinstance(value, str) or not value:
        raise OptionError(
            f"Option {option} must be an address of this machine, such as {LOOPBACK!r} or '0.0.0.0', got "
            f"{printable(value)}.",
            option=option,
        )
    return value


def check_flag(option: str, value: bool) -> bool:
    """Check that an argument is True or False."""
    if not isinstance(value, bool):
        raise OptionError(f"Option {option} must be True or False, got {printable(value)}.", option=option)
    return value


def check_instant(value: Any, instead: str = "") -> str:
    """Check that an argument is an instant of 17 digits.

    Args:
        value: The value of the argument.
        instead: A sentence for the error message that names the call to use instead.
    """
    if not isinstance(value, str) or not re.fullmatch(r"\d{17}", value, re.ASCII):
        raise PositionError(
            f"{printable(value)} is not a valid instant. Pass its 17 digits, as inspect.timeline() shows them. "
            f"{instead}".rstrip(),
            instant=printable(value),
        )
    return value


def check_allowed_value(option: str, value: str, allowed: Sequence[str]) -> None:
    """Check that an argument has one of the allowed values."""
    if not isinstance(value, str) or value not in allowed:
        raise OptionError(
            f"Option {option} must be {' or '.join(map(repr, allowed))}, got {printable(value)}."
            f"{suggest_value(value, allowed)}",
            option=option,
        )


def suggest_value(value: object, allowed: Sequence[str]) -> str:
    """Suggest the allowed value that is most similar to an invalid value."""
    near = find_similar_value(value, allowed) if isinstance(value, str) else None
    return f" Did you mean {near!r}?" if near else ""


def find_similar_value(value: str, allowed: Sequence[str]) -> str | None:
    """Find the allowed value that is most similar to an invalid value.

    This is the equivalent of a value that other libraries use, or the most similar value.
    """
    word = next((one for one in _SAME.get(value.lower(), ()) if one in allowed), None)
    return word or find_nearest_name(value, allowed)


def accepts_arguments(function: Callable[..., Any], tables: int) -> bool:
    """Return whether a function accepts a number of positional arguments.

    Functions whose signature is unavailable, such as some built-in ones, count as True.
    """
    try:
        inspect.signature(function).bind(*[None] * tables)
    except TypeError:
        return False
    except ValueError:  # a built-in function without a signature
        return True
    return True


def convert_names(option: str, given: str | Iterable[str] | None) -> tuple[str, ...]:
    """Convert a name or a list of names to a tuple."""
    found: tuple[Any, ...] | None = (given,) if isinstance(given, str) else () if given is None else None
    if found is None and isinstance(given, Iterable) and not isinstance(given, (bytes, dict)):
        found = tuple(given)
    if found is None or not all(isinstance(name, str) for name in found):
        raise OptionError(f"Option {option} must be a name or a list of names, got {printable(given)}.", option=option)
    return found


EVERY_COLUMN = ""
"""Key for all other columns in a mapping from columns to time units."""


def convert_time_units(time_unit: Any) -> dict[str, str]:
    """Convert the argument `time_unit` to time units by column.

    Args:
        time_unit: A time unit, or a mapping from columns to time units. None: no unit.

    Returns:
        Units by column. The unit of `EVERY_COLUMN` applies to all other columns.

    Raises:
        OptionError: `time_unit` is invalid.
    """
    found = dict(time_unit) if isinstance(time_unit, Mapping) else {EVERY_COLUMN: time_unit}
    if time_unit is None:
        return {}
    for name, unit in found.items():
        if not isinstance(name, str) or not isinstance(unit, str) or unit not in ("ms", "us", "ns"):
            raise OptionError(
                f"time_unit is not valid: expected 'ms', 'us' or 'ns', or a mapping of columns to these, got "
                f"{printable(time_unit)}. Use the unit in which the connector sends times.",
                option="time_unit",
            )
    return found
