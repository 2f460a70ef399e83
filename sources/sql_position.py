"""The position of a table in a database: the value of its growing column, and the key, of the last row that was read.

    {"source": "sql", "table": "shop.orders", "value": ["time", "2026-03-01T12:30:00+00:00"], "key": ["int", "17"]}

Two columns, since many rows may have one value, and a limit may cut between them.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hoodoo.errors import DataError, SourceLost
from hoodoo.redact import printable

_KIND = "sql"
_KINDS: tuple[tuple[str, type, Callable[[Any], str], Callable[[str], Any]], ...] = (
    ("int", int, str, int),
    ("float", float, float.hex, float.fromhex),
    ("decimal", decimal.Decimal, str, decimal.Decimal),
    ("text", str, str, str),
    ("time", dt.datetime, dt.datetime.isoformat, dt.datetime.fromisoformat),  # before the date, which it is, too
    ("date", dt.date, dt.date.isoformat, dt.date.fromisoformat),
    ("bytes", bytes, bytes.hex, bytes.fromhex),
)
"""A word for a type, the type, its values as text, and back."""


@dataclass(frozen=True)
class SqlPosition:
    """Which row was read last.

    Attributes:
        table: The table.
        value: What the row has in the growing column.
        key: What it has in the key.
    """

    table: str
    value: Any
    key: Any

    @classmethod
    def of(cls, position: str, table: str) -> SqlPosition | None:
        """Read a position; None where nothing was read. Raises SourceLost where it is none of the table."""
        if not position:
            return None
        try:
            said = json.loads(position)
            if said["source"] == _KIND and said["table"] == table:
                return cls(table, _value(said["value"]), _value(said["key"]))
        except (ValueError, KeyError, TypeError, decimal.InvalidOperation):
            pass
        raise SourceLost(
            f"The position {printable(position)} belongs to another source: expected a position of table "
            f"{table!r}. Give the job another name.",
            position=position[:1000],
        )

    def text(self) -> str:
        """The position as text. Raises DataError for a value of a type that has none."""
        said = {"source": _KIND, "table": self.table, "value": _said(self.value), "key": _said(self.key)}
        return json.dumps(said, separators=(",", ":"))


def _said(value: Any) -> list[str]:
    for name, kind, text, _ in _KINDS:
        if isinstance(value, kind) and not isinstance(value, bool):
            return [name, text(value)]
    raise DataError(
        f"{printable(value)} of type {type(value).__name__} cannot be a read position. Choose a column of "
        "numbers or times, and a key of numbers or strings."
    )


def _value(said: list[str]) -> Any:
    [name, text] = said
    [read] = [read for known, _, _, read in _KINDS if known == name]
    return read(text)
