"""The small table that many tests work on: its columns, its rows, and how it is made; and any table at a later
time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import hoodoo
from hoodoo.timeline.environment import Environment

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
KINDS = ("merge_on_read", "copy_on_write")


def rows(*ids: int, ts: int = 1, part: str = "a", v: str = "x") -> pa.Table:
    """One row for each id."""
    return pa.Table.from_pylist([{"id": i, "part": part, "ts": ts, "v": v} for i in ids], schema=SCHEMA)


def make(path: Path, kind: str = "merge_on_read", **options: Any) -> hoodoo.Table:
    """A new table in which no service runs by itself, unless `options` say so."""
    settings = {"compact_after_logs": None, "clean_every": None} | options
    return hoodoo.create(path, SCHEMA, key="id", partition_by="part", order_by="ts", type=kind, **settings)


def ids(table: hoodoo.Table) -> list[int]:
    """The keys of all rows."""
    found: list[int] = sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())
    return found


def later(table: hoodoo.Table, hours: float) -> hoodoo.Table:
    """The table as a process sees it whose clock is `hours` ahead."""
    now = Environment().now_ms
    return hoodoo.Table(table.handle.store, Environment(now_ms=lambda: now() + int(hours * 3_600_000)))
