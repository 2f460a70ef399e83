"""A model of a table whose columns change: columns by id, values per key, and every snapshot as it was.

Ids are the model's own. It knows what a change means, not what it costs; rows are kept by id, so that a name that comes
back is another column.
"""

from __future__ import annotations

import copy
import datetime as dt
import random
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

Value = Any
Row = dict[int, Value]
ABSENT = object()
LEAVES: tuple[pa.DataType, ...] = (
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(6, 2),
    pa.string(),
    pa.bool_(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
)
WIDER: dict[str, tuple[pa.DataType, ...]] = {
    "int32": (pa.int64(), pa.float64(), pa.string(), pa.decimal128(12, 2)),
    "int64": (pa.string(), pa.decimal128(24, 3)),
    "float": (pa.float64(),),
    "decimal128(6, 2)": (pa.decimal128(9, 2), pa.decimal128(9, 4)),
}


@dataclass(frozen=True)
class Col:
    """kind: 'struct', 'list' (of structs or leaves), 'map' (of texts) or a leaf's type."""

    id: int
    name: str
    kind: str | pa.DataType
    children: tuple[Col, ...] = ()
    default: Value = ABSENT

    @property
    def arrow(self) -> pa.DataType:
        if self.kind == "struct":
            return pa.struct([(child.name, child.arrow) for child in self.children])
        if self.kind == "list":
            return pa.list_(self.children[0].arrow)
        if self.kind == "map":
            return pa.map_(pa.string(), self.children[0].arrow)
        assert isinstance(self.kind, pa.DataType)
        return self.kind


def widened(value: Value, old: pa.DataType, new: pa.DataType) -> Value:
    """A leaf's value under a wider type; back again where a restore made it narrower."""
    if value is None or old == new:
        return value
    if pa.types.is_float32(old) and pa.types.is_float64(new):
        return float(str(np.float32(value)))
    if pa.types.is_float32(new):
        return float(np.float32(value))
    if pa.types.is_float64(new):
        return float(value)
    if pa.types.is_string(new):
        return str(value)
    if pa.types.is_decimal(new):
        return Decimal(value).quantize(Decimal(1).scaleb(-new.scale))
    return int(value)


def cast(value: Value, old: Col, new: Col) -> Value:
    """A value of `old` as one of `new`, the same column at another time; by ids at every level."""
    if value is None:
        return None
    if new.kind == "struct":
        was = {child.id: child for child in old.children}
        return {c.id: cast(value.get(c.id), was[c.id], c) if c.id in was else None for c in new.children}
    if new.kind == "list":
        return [cast(item, old.children[0], new.children[0]) for item in value]
    if new.kind == "map":
        return {key: cast(item, old.children[0], new.children[0]) for key, item in value.items()}
    assert isinstance(old.kind, pa.DataType) and isinstance(new.kind, pa.DataType)
    return widened(value, old.kind, new.kind)


def shown(value: Value, column: Col) -> Value:
    """A value with names for ids, as to_pylist gives it."""
    if value is None:
        return None
    if column.kind == "struct":
        return {child.name: shown(value.get(child.id), child) for child in column.children}
    if column.kind == "list":
        return [shown(item, column.children[0]) for item in value]
    if column.kind == "map":
        return [(key, shown(item, column.children[0])) for key, item in value.items()]
    return value


def some(rng: random.Random, column: Col) -> Value:
    """A random value."""
    if rng.random() < 0.15:
        return None
    kind = column.kind
    if kind == "struct":
        return {child.id: some(rng, child) for child in column.children}
    if kind == "list":
        return [some(rng, column.children[0]) for _ in range(rng.randint(0, 2))]
    if kind == "map":
        return {key: some(rng, column.children[0]) for key in rng.sample("pqr", rng.randint(0, 2))}
    assert isinstance(kind, pa.DataType)
    if pa.types.is_integer(kind):
        return rng.choice([0, 1, -7, rng.randint(-(2**31), 2**31 - 1)])
    if pa.types.is_float32(kind):
        return float(np.float32(rng.choice([0.1, 2.5, rng.uniform(-1e6, 1e6)])))
    if pa.types.is_float64(kind):
        return rng.choice([0.1, -3.0, rng.uniform(-1e9, 1e9)])
    if pa.types.is_decimal(kind):
        return Decimal(rng.randint(-9999, 9999)).scaleb(-kind.scale)
    if pa.types.is_boolean(kind):
        return rng.random() < 0.5
    if pa.types.is_date(kind):
        return dt.date(2020, 1, 1) + dt.timedelta(rng.randint(0, 3000))
    if pa.types.is_timestamp(kind):
        return dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=rng.randint(0, 10**14))
    return rng.choice(["", "ü", "text", str(rng.random())])


@dataclass
class Snapshot:
    columns: tuple[Col, ...]
    rows: dict[int, tuple[Row, int]]
    last: int  # the largest id by then


@dataclass
class ColumnModel:
    """columns: now. rows: key -> (values by id, slot that wrote them)."""

    columns: tuple[Col, ...]
    last: int
    rows: dict[int, tuple[Row, int]] = field(default_factory=dict)
    snapshots: dict[int, Snapshot] = field(default_factory=dict)

    def new_id(self) -> int:
        self.last += 1
        return self.last

    def freeze(self) -> Snapshot:
        return Snapshot(self.columns, dict(self.rows), self.last)

    def become(self, columns: tuple[Col, ...]) -> None:
        """The columns change; stored values go with them."""
        was = {column.id: column for column in self.columns}
        self.rows = {
            key: ({c.id: cast(row.get(c.id), was[c.id], c) if c.id in was else None for c in columns}, slot)
            for key, (row, slot) in self.rows.items()
        }
        self.columns = columns

    def restore(self, seq: int) -> None:
        then = self.snapshots[seq]
        self.columns, self.rows = then.columns, copy.copy(then.rows)

    def named(self, row: Row, columns: tuple[Col, ...] | None = None) -> dict[str, Value]:
        return {column.name: shown(row.get(column.id), column) for column in columns or self.columns}

    def as_of(self, seq: int, columns: tuple[Col, ...]) -> dict[int, dict[str, Value]]:
        """The rows of an earlier snapshot under `columns`."""
        then = self.snapshots[seq]
        was = {column.id: column for column in then.columns}
        return {
            key: self.named(
                {c.id: cast(row.get(c.id), was[c.id], c) if c.id in was else None for c in columns}, columns
            )
            for key, (row, _) in then.rows.items()
        }


def edited(columns: tuple[Col, ...], number: int, new: Col | None) -> tuple[Col, ...]:
    """`columns` with the column `number`, at any level, as `new`; None: without it."""
    found = []
    for column in columns:
        if column.id != number:
            found.append(replace(column, children=edited(column.children, number, new)))
        elif new is not None:
            found.append(new)
    return tuple(found)


def paths(columns: tuple[Col, ...], before: str = "") -> list[tuple[str, Col, Col | None]]:
    """(dotted path, column, column around it) at every level below; items and values are named [] and {}."""
    return _paths(columns, "", None)


def _paths(columns: tuple[Col, ...], before: str, around: Col | None) -> list[tuple[str, Col, Col | None]]:
    found: list[tuple[str, Col, Col | None]] = []
    for column in columns:
        if around is not None and around.kind in ("list", "map"):
            path = before + ("[]" if around.kind == "list" else "{}")
        else:
            path = f"{before}.{column.name}" if before else column.name
        found.append((path, column, around))
        found += _paths(column.children, path, column)
    return found
