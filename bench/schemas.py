"""What changes of columns cost: CPU seconds of one process, each line beside the same work on a table without a change,
in turns.

    python bench/schemas.py [rows] [changes]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import hoodoo
from hoodoo.timeline.history import History

ROUNDS = 5


def cheapest(*works: Callable[[], object]) -> list[float]:
    """CPU seconds of each, the least of some rounds in which they take turns."""
    found = [float("inf")] * len(works)
    for _ in range(ROUNDS):
        for place, work in enumerate(works):
            began = time.process_time()
            work()
            found[place] = min(found[place], time.process_time() - began)
    return found


def batch(rows: int) -> pa.Table:
    rng = np.random.default_rng(1)
    numbers = {f"n{place}": rng.integers(0, 1 << 20, rows).astype(np.int32) for place in range(5)}
    texts = {f"t{place}": pa.array(rng.integers(0, 1000, rows).astype(str)) for place in range(4)}
    return pa.table({"id": np.arange(rows), **numbers, **texts})


def table(folder: Path, name: str, rows: int) -> hoodoo.Table:
    data = batch(rows)
    made = hoodoo.create(folder / name, data.schema, key="id", type="copy_on_write")
    made.insert(data, bulk=True)
    return made


def main(rows: int = 1_000_000, changes: int = 1_000) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain, added, wider = (table(folder, one, rows) for one in ("plain", "added", "wider"))
        added.alter.add_column("more", pa.string())
        wider.alter([hoodoo.WidenColumn(f"n{place}", pa.int64()) for place in range(5)])
        few, many = table(folder, "few", 1_000), table(folder, "many", 1_000)
        few.alter.add_column("more", pa.int64(), default=None)
        for number in range(changes // 2):
            many.alter.add_column(f"c{number}", pa.int64(), default=None)
            many.alter.drop_column(f"c{number}")
        some = batch(rows).slice(0, rows // 50)
        lines = {
            "read all: no change | a column added | five columns widened": cheapest(
                *(lambda one=one: one.scan().to_arrow() for one in (plain, added, wider))
            ),
            "read one column that is in the files": cheapest(
                *(lambda one=one: one.scan(columns=["t0"]).to_arrow() for one in (plain, added, wider))
            ),
            "upsert 2 %": cheapest(
                lambda: plain.upsert(some),
                lambda: added.upsert(some, missing="null"),
                lambda: wider.upsert(some),
            ),
            f"open: one change | {changes} changes": cheapest(
                *(lambda one=one: [hoodoo.open(one.path).schema for _ in range(20)] for one in (few, many))
            ),
            "... and read the history of slots": cheapest(
                *(lambda one=one: History(one.handle.store).head() for one in (few, many))
            ),
        }
        for what, found in lines.items():
            ratios = "  ".join(f"{one:.3f} s ({one / found[0]:.2f})" for one in found)
            print(f"{what:62} {ratios}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
