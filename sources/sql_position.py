"""Position of a job in an SQL table.

    {"source": "sql", "table": "shop.orders", "value": ["time", "2026-03-01T12:30:00+00:00"], "key": ["int", "17"]}

Both columns are needed, because many rows may have equal values, and a batch may end between them.
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
    # before date, because a datetime is also a date
    ("time", dt.datetime, dt.datetime.isoformat, dt.datetime.fromisoformat),
    ("date", dt.date, dt.date.isoformat, dt.date.fromisoformat),
    ("bytes", bytes, bytes.hex, bytes.fromhex),
)
# For each type: its name, its Python type, and functions that convert its values to and from text.


@dataclass(frozen=True)
class SqlPosition:
    """Position of a job in a database table: the last row that it has read.

    Attributes:
        table: The name of the table.
        value: The value of the growing column in that row.
        key: The key of that row.
    """

    table: str
    value: Any
    key: Any

    @classmethod
    def parse(cls, position: str, table: str) -> SqlPosition | None:
        """Parse a stored position of the table.

        Returns None for an empty string. Raises SourceLost if the position belongs to another source.
        """
        if not position:
            return None
        try:
            content = json.loads(position)
            if content["source"] == _KIND and content["table"] == table:
                return cls(table, _decode_value(content["value"]), _decode_value(content["key"]))
        except (ValueError, KeyError, TypeError, decimal.InvalidOperation):
            pass
        raise SourceLost(
            f"The position {printable(position)} belongs to another source: expected a position of table "
            f"{table!r}. To read this table from its beginning, give the job another name.",
            position=position[:1000],
        )

    def text(self) -> str:
        """Return the position as a JSON string.

        Raises DataError for a value of an unsupported type.
        """
        content = {
            "source": _KIND,
            "table": self.table,
            "value": _encode_value(self.value),
            "key": _encode_value(self.key),
        }
        return json.dumps(content, separators=(",", ":"))


def _encode_value(value: Any) -> list[str]:
    for name, kind, text, _ in _KINDS:
        if isinstance(value, kind) and not isinstance(value, bool):
            return [name, text(value)]
    raise DataError(
        f"Value {printable(value)} of type {type(value).__name__} is not supported in the position of a job. Choose a "
        "growing column of numbers or times, and a key of numbers or strings."
    )


def _decode_value(said: list[str]) -> Any:
    [name, text] = said
    [read] = [read for known, _, _, read in _KINDS if known == name]
    return read(text)
