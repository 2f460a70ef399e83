"""The table as a dict: what every operation means, in plain Python. The oracle of the model tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Identity = tuple[Any, ...]


@dataclass
class Model:
    """rows: identity (partition values, key values) -> (row, slot that wrote it). snapshots: slot -> rows then."""

    key: tuple[str, ...]
    partition_by: tuple[str, ...]
    order_by: tuple[str, ...]
    rows: dict[Identity, tuple[Row, int]] = field(default_factory=dict)
    snapshots: dict[int, dict[Identity, tuple[Row, int]]] = field(default_factory=dict)

    def identity(self, row: Row) -> Identity:
        return tuple(row[name] for name in (*self.partition_by, *self.key))

    def rank(self, row: Row) -> tuple[Any, ...]:
        """What orders the versions of a key; all are equal without an ordering column."""
        return tuple(row[name] for name in self.order_by)

    def _newest(self, batch: list[Row]) -> dict[Identity, Row]:
        found: dict[Identity, Row] = {}
        for row in batch:
            old = found.get(self.identity(row))
            if old is None or self.rank(row) >= self.rank(old):
                found[self.identity(row)] = row
        return found

    def upsert(self, batch: list[Row], slot: int) -> dict[str, int]:
        """What it does, in counts of rows."""
        newest = self._newest(batch)
        counts = {"inserted": 0, "updated": 0, "deleted": 0, "stale": len(batch) - len(newest)}
        for identity, row in newest.items():
            gone = row.pop("_hoodie_is_deleted", False)
            old = self.rows.get(identity)
            wins = old is None or self.rank(row) >= self.rank(old[0])
            if old is not None or not gone:
                counts["stale" if not wins else "deleted" if gone else "updated" if old else "inserted"] += 1
            if gone and wins:
                self.rows.pop(identity, None)
            elif wins:
                self.rows[identity] = row, slot
        return counts

    def upsert_merged(self, batch: list[Row], met: Callable[[Row, Row], Row], new_keys: str, slot: int) -> None:
        """Rows of a key become one, then that and the stored row; a row that is equal afterwards is not written.

        met: what an older row becomes by a newer one; what a new row is, is what nulls become by it.
        """
        for identity, (anew, row, _) in self._chains(batch, met).items():
            old = self.rows.get(identity)
            if row is None:
                self.rows.pop(identity, None)
            elif old is None or anew:
                if (old or new_keys == "insert") and (old is None or self._alone(row, met) != old[0]):
                    self.rows[identity] = self._alone(row, met), slot
            elif (new := met(old[0], row)) != old[0]:
                self.rows[identity] = new, slot

    def _alone(self, row: Row, met: Callable[[Row, Row], Row]) -> Row:
        named = {*self.key, *self.partition_by}
        return met({name: row[name] if name in named else None for name in row}, row)

    def _chains(self, batch: list[Row], met: Callable[[Row, Row], Row]) -> dict[Identity, tuple[bool, Row | None, Row]]:
        """Of each key: is its row after a delete, the row, None for a delete, and the newest row as it came."""
        found: dict[Identity, tuple[bool, Row | None, Row]] = {}
        for one in batch:
            row = dict(one)
            gone, identity = row.pop("_hoodie_is_deleted", False), self.identity(row)
            anew, before, newest = found.get(identity, (False, None, None))
            others = [one for one in (newest, self.rows[identity][0] if identity in self.rows else None) if one]
            if any(self.rank(row) < self.rank(one) for one in others):
                continue
            if gone:
                found[identity] = True, None, row
            else:
                found[identity] = anew, row if before is None else met(before, row), row
        return found

    def insert(self, batch: list[Row], slot: int) -> None:
        for identity, row in self._newest(batch).items():
            self.rows.setdefault(identity, (row, slot))

    def holds_any(self, batch: list[Row]) -> bool:
        return any(self.identity(row) in self.rows for row in batch)

    def delete(self, batch: list[Row]) -> None:
        for row in batch:
            self.rows.pop(self.identity(row), None)

    def delete_where(self, matches: Callable[[Row], bool]) -> None:
        self.rows = {identity: value for identity, value in self.rows.items() if not matches(value[0])}

    def update(self, new_values: Callable[[Row], Row], matches: Callable[[Row], bool], slot: int) -> None:
        for identity, (row, _) in list(self.rows.items()):
            if matches(row) and (new := {**row, **new_values(row)}) != row:
                self.rows[identity] = new, slot

    def merge(self, batch: list[Row], met: Callable[[Row, Row], Row], slot: int) -> None:
        """met: what a stored row becomes by the row of its key."""
        for row in batch:
            identity = self.identity(row)
            stored = self.rows[identity][0] if identity in self.rows else None
            new = row if stored is None else met(stored, row)
            if new != stored:
                self.rows[identity] = new, slot

    def names_stored(self, row: Row) -> bool:
        """Tell whether a row has the key of `row`."""
        return self.identity(row) in self.rows

    def names(self, batch: list[Row], row: Row) -> bool:
        """Tell whether a row of `batch` has the key of `row`."""
        return any(self.identity(one) == self.identity(row) for one in batch)

    def drop_partitions(self, partitions: set[Identity]) -> None:
        n = len(self.partition_by)
        self.rows = {identity: value for identity, value in self.rows.items() if identity[:n] not in partitions}

    def overwrite(self, batch: list[Row], slot: int, whole: bool) -> None:
        if whole or not self.partition_by:
            self.rows = {}
        else:
            self.drop_partitions({tuple(row[name] for name in self.partition_by) for row in batch})
        self.insert(batch, slot)

    def remember(self, slot: int) -> None:
        self.snapshots[slot] = dict(self.rows)
