"""What the slots say of the table's columns, read as JSON here: hoodoo's own schema history is what is being judged.

Simulated tables have a key, a partition column, an ordering column and one value, which may be called otherwise over
time; and a column `n`, which comes, goes and is widened. Rules by name are those of Apache Hudi's readers.
"""

from __future__ import annotations

import json
from typing import Any

VALUES = ("v", "w", "x")
"""Names that the value may have."""
_VALUE_ID = 8
_FIRST = {5: ("id", "string"), 6: ("city", "string"), 7: ("ts", "long"), _VALUE_ID: ("v", "long")}
Named = dict[int, tuple[str, str]]  # id -> (name, type)


class Columns:
    """Schemas by their ids, and the one in effect at each slot."""

    def __init__(self) -> None:
        self.schemas: dict[int, Named] = {1: _FIRST}
        self.at: list[int] = [1]  # by slot

    def took(self, slot: dict[str, Any]) -> None:
        number = self.at[-1]
        if said := slot.get("columns"):
            number = said["id"]
            assert number not in self.schemas, f"schema {number} is given twice"
            self.schemas[number] = {column["id"]: (column["name"], column["type"]) for column in said["columns"]}
        self.at.append(number)

    @property
    def now(self) -> Named:
        return self.schemas[self.at[-1]]

    def of(self, file: dict[str, Any]) -> Named:
        return self.schemas[file.get("schema", 1)]

    def value_at(self, seq: int) -> str:
        """What the value is called at slot `seq`."""
        return self.schemas[self.at[seq]][_VALUE_ID][0]

    def value_in(self, file: dict[str, Any]) -> str:
        """What it is called in a file."""
        return self.of(file)[_VALUE_ID][0]

    def names_at(self, seq: int) -> list[str]:
        return [name for name, _ in self.schemas[self.at[seq]].values()]

    def wrong_in(self, file: dict[str, Any], is_log: bool) -> str:
        """What a reader that goes by names would take for something else in a file; of logs also older types. Or ''."""
        there, now = self.of(file), self.now
        ids = {name: number for number, (name, _) in there.items()}
        for number, (name, kind) in now.items():
            if ids.get(name, number) != number:
                return f"{name!r} is another column there"
            if number in there and there[number][0] != name:
                return f"{name!r} is called {there[number][0]!r} there"
            if is_log and number in there and there[number][1] != kind:
                return f"{name!r} is {kind} and was {there[number][1]} in this log"
        return ""


def value_name(names: list[str]) -> str:
    """Which of the columns is the value."""
    return next(name for name in VALUES if name in names)


def names_of(avro: str) -> list[str]:
    """Names in an Avro schema, in order."""
    return [field["name"] for field in json.loads(avro)["fields"]]
