"""Checks of dates and times among Python values.

Arrow converts mixed values without an error: it drops the time of a datetime in a column that begins with a date,
nanoseconds of pandas, and the offset of a time, and turns pandas' NaT into a date of the year 1.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from hoodoo.errors import ColumnError
from hoodoo.redact import printable


def replace_missing_times(name: str, values: Sequence[Any]) -> Sequence[Any]:
    """Replace pandas' NaT by None, and check that no time would lose a part.

    Raises:
        ColumnError: Dates and datetimes are mixed, or datetimes with and without a time zone; or a value has
            nanoseconds or is a time with an offset.
    """
    kinds = set(map(type, values))
    if any(_is_nat(kind) for kind in kinds):
        values = [None if _is_nat(type(value)) else value for value in values]
        kinds = set(map(type, values))
    _check(name, kinds, values)
    return values


def _is_nat(kind: type) -> bool:
    return kind.__name__ == "NaTType"


def _check(name: str, kinds: set[type], values: Iterable[Any]) -> None:
    if any(issubclass(kind, (list, tuple, set)) for kind in kinds):
        inner = list(chain.from_iterable(value for value in values if isinstance(value, (list, tuple, set))))
        _check_nested(name, inner)
    if any(issubclass(kind, Mapping) for kind in kinds):
        rows = [value for value in values if isinstance(value, Mapping)]
        for field in dict.fromkeys(key for row in rows for key in row):
            _check_nested(f"{name}.{field}", [row[field] for row in rows if field in row])
    if any(issubclass(kind, dt.time) for kind in kinds):
        for value in values:
            if isinstance(value, dt.time) and value.tzinfo is not None:
                raise _error(name, value, "a time without an offset", "Convert it to UTC, and remove its tzinfo")
    times = [kind for kind in kinds if issubclass(kind, dt.datetime)]
    if not times:
        return
    moments = [value for value in values if isinstance(value, dt.datetime)]
    if any(issubclass(kind, dt.date) and not issubclass(kind, dt.datetime) for kind in kinds):
        raise _error(name, moments[0], "only dates, or only datetimes", "Convert the values to one of the two")
    if len({value.tzinfo is None for value in moments}) > 1:
        naive = next(value for value in moments if value.tzinfo is None)
        raise _error(name, naive, "a time zone in all datetimes, or in none", "Add tzinfo=datetime.timezone.utc")
    if any(hasattr(kind, "nanosecond") for kind in times):
        for value in moments:
            if getattr(value, "nanosecond", 0):
                raise _error(name, value, "at most microseconds", "Round it with .floor('us')")


def _check_nested(name: str, values: list[Any]) -> None:
    kinds = set(map(type, values))
    if any(_is_nat(kind) for kind in kinds):
        raise ColumnError(f"Column {name!r} contains NaT in a list or struct: expected None. Replace it.", column=name)
    _check(name, kinds, values)


def _error(name: str, value: Any, expected: str, remedy: str) -> ColumnError:
    return ColumnError(f"Column {name!r} contains {printable(value)}: expected {expected}. {remedy}.", column=name)
