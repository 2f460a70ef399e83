"""Memory of an ingestion job as a multiple of its `max_bytes`, while it reads one large file into a table.

The file has rows of five columns, about 80 bytes each, as JSON lines in gzip or as CSV. Memory is the largest resident
size of the process, less its size after a first job of three rows. Each size of `max_bytes` has a process of its own.

    python bench/ingest_memory.py [--rows 6000000] [--sizes 64,256]
"""

from __future__ import annotations

import argparse
import gzip
import os
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import IO, cast

import numpy as np
import pyarrow as pa

import hoodoo
from hoodoo.sources import Files

SCHEMA = pa.schema(
    [("id", pa.string()), ("t", pa.int64()), ("fare", pa.float64()), ("note", pa.string()), ("city", pa.string())]
)
_MIB = 1 << 20
_AT_ONCE = 250_000


def main() -> None:
    """Measure each format and each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--sizes", default="64,256", help="max_bytes in MiB")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        measure(Path(given.measure[0]), int(given.measure[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in ("a.jsonl.gz", "a.csv"):
            (path := Path(folder) / name.split(".")[1]).mkdir()
            write(path / name, given.rows)
            for size in given.sizes.split(","):
                subprocess.run([sys.executable, __file__, "--measure", path, size], check=True)


def write(path: Path, rows: int) -> None:
    """Write a file of random rows."""
    rng = np.random.default_rng(1)
    with ExitStack() as stack:
        out: IO[bytes] = stack.enter_context(path.open("wb"))
        if path.suffix == ".gz":
            out = cast("IO[bytes]", stack.enter_context(gzip.open(out, "wb", compresslevel=1)))
        for start in range(0, rows, _AT_ONCE):
            count = min(_AT_ONCE, rows - start)
            keys, times = rng.integers(0, 10**12, count), np.arange(start, start + count) * 1000
            fares, lengths = rng.random(count) * 100, rng.integers(0, 60, count)
            cities = rng.choice(["oslo", "rome", "nice"], count)
            each = zip(keys, times, fares, lengths, cities, strict=True)
            if path.suffix == ".gz":
                lines = (
                    f'{{"id":"k{key:012d}","t":{time},"fare":{fare},"note":"{"x" * length}","city":"{city}"}}\n'
                    for key, time, fare, length, city in each
                )
            else:
                out.write(b"" if start else b"id,t,fare,note,city\n")
                lines = (f"k{key:012d},{time},{fare},{'x' * length},{city}\n" for key, time, fare, length, city in each)
            out.write("".join(lines).encode())


def measure(folder: Path, size: int) -> None:
    """Run one job and print its memory."""
    with tempfile.TemporaryDirectory() as scratch:
        job(folder, Path(scratch) / "first", size, rows=3)
        base, peak, ended = resident(), 0, threading.Event()

        def watch() -> None:
            nonlocal peak
            while not ended.wait(0.01):
                peak = max(peak, resident())

        watcher = threading.Thread(target=watch)
        watcher.start()
        batches = job(folder, Path(scratch) / "t", size)
        ended.set()
        watcher.join()
    used = (peak - base) / _MIB
    print(f"{folder.name}: max_bytes {size} MiB, {batches} batches, peak {used:,.0f} MiB, ratio {used / size:.1f}")


def job(folder: Path, path: Path, size: int, rows: int = 10**9) -> int:
    """Take the file into a new table. rows: a limit; a small one ends after the first batch. Returns the batches."""
    table = hoodoo.create(path, SCHEMA, key="id", order_by="t")
    made = hoodoo.ingest(Files(folder, settle_seconds=0), table, name="job", max_rows=rows, max_bytes=size * _MIB)
    if rows < _AT_ONCE:
        made.take()
        return 1
    return made.run().batches


def resident() -> int:
    """Return the resident size of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
