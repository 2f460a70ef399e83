"""A table that is partitioned by transforms, and rows for it."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa

import hoodoo

UTC = dt.timezone.utc
KINDS = ("merge_on_read", "copy_on_write")
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("zip", pa.string()), ("v", pa.int64())])
QUIET: dict[str, Any] = {"compact_after_logs": None, "clean_every": None}


def at(day: int, hour: int = 0, month: int = 3) -> dt.datetime:
    return dt.datetime(2026, month, day, hour, tzinfo=UTC)


FIRST = at(1)


def row(key: int | None, ts: dt.datetime | None = FIRST, zip: str | None = "12345", v: int = 0) -> dict[str, Any]:
    return {"id": key, "ts": ts, "zip": zip, "v": v}


def batch(*rows: dict[str, Any], **more: list[Any]) -> pa.Table:
    table = pa.Table.from_pylist(list(rows), SCHEMA)
    for name, values in more.items():
        table = table.append_column(name, pa.array(values))
    return table


def stored(table: hoodoo.Table, **how: Any) -> list[dict[str, Any]]:
    rows = table.scan(**how).to_arrow().sort_by([("id", "ascending"), (table.partition_by[0], "ascending")]).to_pylist()
    assert isinstance(rows, list)
    return rows
