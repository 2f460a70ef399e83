"""Apache Hudi's incremental query of our tables names the rows that ours names, over every range of commits and across
all services.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo
from hoodoo.format.names import instant_of_ms

pytestmark = pytest.mark.usefixtures("in_place_always")

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("fare", pa.float64())])


def batch(*rows: tuple[str, str, float]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_every_range_of_commits_has_the_same_changed_rows(
    tmp_path: Path, hudi_rows: Callable[..., list[dict[str, Any]]], kind: str
) -> None:
    """Hudi's bounds are times of completion. It finds files by commit metadata and rows by commit time, so services add
    none and take none.
    """
    path = tmp_path / "t"
    table = hoodoo.create(
        path,
        SCHEMA,
        key="id",
        partition_by="city",
        type=kind,
        compact_after_logs=None,
        clean_every=None,
        target_file_bytes=4_000_000,
    )
    table.upsert(batch(*((f"k{n}", "sf" if n < 6 else "la", float(n)) for n in range(12))))
    table.upsert(batch(("k1", "sf", 1.5), ("k7", "la", 7.5), ("n1", "sf", 1.0)))
    table.delete(batch(("k3", "sf", 0.0)))
    table.compact()
    table.upsert(batch(("k1", "sf", 1.6), ("k3", "sf", 3.3)))
    table.insert(batch(("m1", "la", 1.0), ("m2", "la", 2.0)), bulk=True)
    table.maintenance.cluster()
    table.upsert(batch(("k2", "sf", 2.6), ("m1", "la", 1.1)))
    slots = [slot for slot in table.handle.timeline.history.slots(0, table.cursor.seq) if slot.writes_rows]
    for first in range(len(slots)):
        for last in (first + 1, first + 2, len(slots) - 1):
            if first < last < len(slots):
                ends = [instant_of_ms(slots[place].completed_at) for place in (first, last)]
                theirs = hudi_rows(path, *SCHEMA.names, begin=ends[0], end=ends[1])
                cursors = [hoodoo.Cursor(table.cursor.table, slots[place].seq) for place in (first, last)]
                assert sorted(map(repr, theirs)) == sorted(
                    map(repr, table.incremental(*cursors).to_arrow().to_pylist())
                ), (first, last)
