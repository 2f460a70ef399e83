"""What the tests of change logs share: a small table with one, its batches, and which logs its slots, its view and its
folders name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hoodoo
from hoodoo.format.names import is_change_log_path
from hoodoo.table import Table
from hoodoo.timeline.slots import slot
from hoodoo.timeline.slots.slot import DataFile
from hoodoo.timeline.views import checkpoint

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
KINDS = pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
MODES = {"before_after": "DATA_BEFORE_AFTER", "before": "DATA_BEFORE", "keys": "OP_KEY_ONLY"}
Row = dict[str, Any]


def batch(*rows: tuple[int, str, int, str]) -> pa.Table:
    return pa.Table.from_pylist([{"id": f"k{n}", "p": p, "ts": ts, "v": v} for n, p, ts, v in rows], SCHEMA)


def make(path: Path, kind: str = "copy_on_write", mode: str | None = "before_after", **options: Any) -> Table:
    options = {"partition_by": "p", "order_by": "ts", "compact_after_logs": None, "clean_every": None} | options
    return hoodoo.create(path, SCHEMA, key="id", type=kind, change_log=mode, **options)


def history(table: Table) -> list[slot.Slot]:
    view = table.handle.timeline.history.head()
    return table.handle.timeline.history.slots(0, view.seq)


def logged(table: Table) -> list[DataFile]:
    return [file for one in history(table) for file in one.files if file.changes]


def files_of(path: Path) -> set[str]:
    """Change logs that lie in the table's folders."""
    return {
        str(found.relative_to(path))
        for found in path.rglob("*")
        if is_change_log_path(found.name) and ".hoodie" not in found.parts
    }


def live_logs(table: Table) -> set[str]:
    view = table.handle.timeline.history.head()
    return {path for group in view.groups() for entry in group.files() for path in entry.file.changes}


def checkpoint_columns(table: Table) -> list[str]:
    return pq.read_schema(pa.BufferReader(checkpoint.encode(table.handle.timeline.history.head())[:-32])).names
