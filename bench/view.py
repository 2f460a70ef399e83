"""Cost of opening a table with very many files: 1,000,000 file groups in 10,000 partitions.

The table consists of a first commit and a checkpoint, without data files. All file groups share one index entry. Each
step is a separate process. The figures are wall and CPU seconds, and memory above that of the import.

    python bench/view.py [--groups 1000000] [--partitions 10000]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

import hoodoo
from hoodoo.index.bloom import cells, entry
from hoodoo.index.key_index import base_entry_path
from hoodoo.timeline.slots.slot import BASE, DataFile
from hoodoo.timeline.views import checkpoint
from hoodoo.timeline.views.file_group import AddedFile, FileGroup
from hoodoo.timeline.views.totals import CountedFiles, FileTotals

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("ts", pa.int64())])
INDEX = base_entry_path("shared", "20260101000000000")
SIZE, ROWS = 100 << 20, 250_000
STEPS = ("open", "a commit to ten partitions", "a scan of one partition", "a scan of all", "count of all")


class Made(Mapping[str, Mapping[str, FileGroup]]):
    """File groups that are made when they are asked for."""

    def __init__(self, groups: int, partitions: int) -> None:
        self.names = [f"part=p{number:06d}" for number in range(partitions)]
        self.known, self.each = set(self.names), groups // partitions

    def __getitem__(self, name: str) -> Mapping[str, FileGroup]:
        if name not in self.known:
            raise KeyError(name)
        first = int(name[6:]) * self.each
        return {one.file_id: one for one in (self.group(name, first + number) for number in range(self.each))}

    def group(self, partition: str, number: int) -> FileGroup:
        file_id = f"{number:08x}-0000-4000-8000-{number:012x}-0"
        path = f"{partition}/{file_id}_0-0-0_20260101000000000.parquet"
        stats = {"id": [number * ROWS, (number + 1) * ROWS - 1, 0], "part": [partition[5:], partition[5:], 0]}
        stats |= {"ts": [number, number + 1000, 0]}
        names = (path, partition, file_id, BASE, SIZE, f"{number:032x}", ROWS)
        return FileGroup(partition, file_id, AddedFile(1, DataFile(*names, inserts=ROWS, index=INDEX, stats=stats)))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def make(path: Path, groups: int, partitions: int) -> int:
    """The table; bytes of its checkpoint."""
    options = {"compact_after_logs": None, "clean_every": None, "checkpoint_every": 1000}
    table = hoodoo.create(path, SCHEMA, key="id", partition_by="part", order_by="ts", **options)
    made = Made(groups, partitions)
    some = FileTotals(made.each, made.each * SIZE, by_size={SIZE.bit_length(): made.each})
    all_ = FileTotals(groups, groups * SIZE, by_size={SIZE.bit_length(): groups})
    counted = CountedFiles(made, all_, dict.fromkeys(made.names, some))
    view = replace(table.handle.history.head(), partitions=made, _counted=counted)
    checkpoint.write(table.handle.store, view)
    hashes = np.random.default_rng(0).integers(0, 2**64, 1000, dtype=np.uint64)
    table.handle.store.create(
        INDEX, entry.encode_base_file_entry(cells.map_hashes_to_positions(hashes, hashes, bytes(16)), "a", "z")
    )
    return sum(size for _, size in table.handle.store.list(".hoodie/.hoodoo/checkpoints/"))


def memory_mb() -> float:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def measure(path: str, step: str, partitions: int) -> dict[str, float]:
    before, (cpu, wall) = memory_mb(), (time.process_time(), time.perf_counter())
    table = hoodoo.open(path)
    if step != "open":
        cpu, wall = time.process_time(), time.perf_counter()
    if step == STEPS[1]:
        names = [f"p{number:06d}" for number in range(0, partitions, partitions // 10)]
        table.insert(pa.table({"id": range(-len(names), 0), "part": names, "ts": [1] * len(names)}, SCHEMA))
    elif step == STEPS[2]:
        assert sum(1 for _ in table.scan(where="part = 'p000012'")._each_task())
    elif step == STEPS[3]:
        assert sum(1 for _ in table.scan()._each_task()) >= partitions
    elif step == STEPS[4]:
        assert table.scan().count() >= partitions
    return {
        "cpu": time.process_time() - cpu,
        "wall": time.perf_counter() - wall,
        "mb": memory_mb() - before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--groups", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        print(json.dumps(measure(*given.step, given.partitions)))
        return
    folder = Path(tempfile.mkdtemp(prefix="hoodoo-bench-"))
    try:
        size = make(folder / "t", given.groups, given.partitions)
        print(f"{given.groups:,} file groups in {given.partitions:,} partitions; the checkpoint has {size >> 20} MB")
        print("| step | wall s | CPU s | MB |\n| --- | --- | --- | --- |")
        for step in STEPS:
            command = [sys.executable, __file__, "--partitions", str(given.partitions), "--step", folder / "t", step]
            found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=os.environ).stdout)
            print(f"| {step} | {found['wall']:.2f} | {found['cpu']:.2f} | {found['mb']:.0f} |")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
