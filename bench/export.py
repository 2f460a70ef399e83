"""What it costs to show a table of many files to readers of Delta and Iceberg after each commit.

A copy-on-write table of one file per partition; each commit rewrites ten files, of the newest partitions or of any. The
exports follow each commit, in the same process. CPU milliseconds per commit and per export, checkpoints of the Delta
log among them, and the ratio of the two exports to the commit that they follow.

    python bench/export.py [--files 10000] [--commits 200] [--scattered]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import hoodoo

NUMBERS = [f"n{number}" for number in range(10)]
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), *((name, pa.int64()) for name in NUMBERS)])
AT_ONCE, NEWEST = 10, 100


def rows(numbers: np.ndarray, version: int) -> pa.Table:
    """A row per partition."""
    given = {"id": numbers, "part": [f"p{number:06d}" for number in numbers.tolist()]}
    return pa.table(given | {name: numbers + version for name in NUMBERS}, schema=SCHEMA)


def cpu_ms(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1000


def told(name: str, taken: list[float], commit: float) -> None:
    quarter = max(1, len(taken) // 4)
    first, last = statistics.mean(taken[:quarter]), statistics.mean(taken[-quarter:])
    print(
        f"{name:24}{statistics.mean(taken):9.1f}{statistics.median(taken):9.1f}{max(taken):9.1f}"
        f"{first:9.1f}{last:9.1f}{statistics.mean(taken) / commit:9.2f}",
        flush=True,
    )


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--files", type=int, default=10_000)
    given.add_argument("--commits", type=int, default=200)
    given.add_argument("--scattered", action="store_true", help="rewrite files of any partition")
    args = given.parse_args()
    drawn = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="hoodoo-bench-") as folder:
        table = hoodoo.create(
            Path(folder, "t"), SCHEMA, key="id", partition_by="part", type="copy_on_write", clean_every=None
        )
        table.insert(rows(np.arange(args.files), 0))
        exports = {
            "Delta": lambda: table.export(delta=True),
            "Iceberg": lambda: table.export(iceberg=True),
        }
        for name, export in exports.items():
            print(f"first export, {name}: {cpu_ms(export):.0f} ms")
        taken: dict[str, list[float]] = {"commit": [], **{name: [] for name in exports}}
        since = 0 if args.scattered else max(0, args.files - NEWEST)
        for turn in range(args.commits):
            some = np.sort(drawn.choice(np.arange(since, args.files), AT_ONCE, replace=False))
            batch = rows(some, turn + 1)
            taken["commit"].append(cpu_ms(lambda batch=batch: table.upsert(batch)))  # type: ignore[misc]
            for name, export in exports.items():
                taken[name].append(cpu_ms(export))
        print(f"{'CPU ms':24}{'mean':>9}{'median':>9}{'most':>9}{'first 1/4':>9}{'last 1/4':>9}{'to commit':>9}")
        for name, values in taken.items():
            told(name, values, statistics.mean(taken["commit"]))


if __name__ == "__main__":
    main()
