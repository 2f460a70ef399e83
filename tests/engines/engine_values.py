"""Canonical form of rows, so that the rows of different engines can be compared. Runs without hoodoo and pyarrow."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any


def canonical(value: Any) -> Any:
    """Convert a value to JSON types. Equal values of different engines have the same result."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, Decimal):
        return "decimal " + (format(value.normalize(), "f") if value else "0")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytes " + bytes(value).hex()
    if isinstance(value, dt.datetime):
        return _timestamp(value)
    if isinstance(value, dt.date):
        return "date " + value.isoformat()
    if isinstance(value, str):
        return "text " + value
    if hasattr(value, "asDict"):
        return canonical(value.asDict())
    if isinstance(value, Mapping):
        return {str(name): canonical(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return _list(value)
    return canonical(value.item())


def _timestamp(value: dt.datetime) -> str:
    if value.tzinfo is None:
        return "local " + value.isoformat(timespec="microseconds")
    return "utc " + value.astimezone(dt.timezone.utc).replace(tzinfo=None).isoformat(timespec="microseconds")


def _list(values: Iterable[Any]) -> Any:
    """Convert a list, or a map that is a list of pairs."""
    items = list(values)
    if items and all(isinstance(item, tuple) and len(item) == 2 for item in items):
        return {str(key): canonical(item) for key, item in items}
    return [canonical(item) for item in items]


def canonical_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Convert rows without their meta columns, and sort them."""
    found = [
        {name: canonical(value) for name, value in sorted(row.items()) if not name.startswith("_hoodie_")}
        for row in rows
    ]
    return sorted(found, key=repr)


def difference(rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> str:
    """Describe the first difference between two lists of canonical rows, or return '' if they are equal."""
    if rows == expected:
        return ""
    if len(rows) != len(expected):
        return f"{len(rows)} rows instead of {len(expected)}"
    for row, wanted in zip(rows, expected, strict=True):
        if row.keys() != wanted.keys():
            return f"columns {', '.join(row)} instead of {', '.join(wanted)}"
        for name, value in wanted.items():
            if row[name] != value:
                return f"{name} is {row[name]!r} instead of {value!r}"
    return "rows differ"
