"""Cost of an index lookup in a table of 100,000,000 keys: 1,000,000 keys, of which a fifth is new.

The table has 100 file groups with 1,000,000 keys each, first in 20 partitions of 5 groups, then in one partition. The
index entries contain random hashes. Data files do not exist, because a lookup does not open them. The figures are CPU
seconds and anonymous memory of the process, because the arrays are memory-mapped.

    python bench/locate.py [--groups 100] [--keys 1000000] [--wanted 1000000]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from hoodoo.index import index_of
from hoodoo.index.bloom import cells, entry
from hoodoo.index.key_index import NOWHERE, LookupKeys, base_entry_path
from hoodoo.storage.local import LocalStore
from hoodoo.timeline.slots.slot import BASE, DataFile
from hoodoo.timeline.views.view import AddedFile, FileGroup

INSTANT = "20260101000000000"


def make(store: LocalStore, groups: int, keys: int) -> list[np.ndarray]:
    """The entries; a sample of the hashes in each."""
    samples = []
    for number in range(groups):
        rng = np.random.default_rng(number)
        hashes = rng.integers(0, 2**64, keys, dtype=np.uint64)
        made = cells.map_hashes_to_positions(hashes, rng.integers(0, 2**64, keys, dtype=np.uint64), b"a bench's secret")
        store.create(base_entry_path(f"g{number}", INSTANT), entry.encode_base_file_entry(made, "a", "z"))
        samples.append(hashes[: keys // 50])
    return samples


def group(number: int, partition: str, keys: int) -> FileGroup:
    index = base_entry_path(f"g{number}", INSTANT)
    file = DataFile(f"{partition}/g{number}", partition, f"g{number}", BASE, 1, "", keys, index=index)
    return FileGroup(partition, f"g{number}", AddedFile(1, file))


def anonymous_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def measure(store: LocalStore, samples: list[np.ndarray], partitions: int, keys: int, wanted: int) -> str:
    names = [f"p{number}" for number in range(partitions)]
    found: dict[str, dict[str, FileGroup]] = {name: {} for name in names}
    for number in range(len(samples)):
        one = group(number, names[number % partitions], keys)
        found[one.partition][one.file_id] = one
    rng = np.random.default_rng(1 << 40)  # no group's
    old = rng.choice(len(samples) * len(samples[0]), wanted * 4 // 5, replace=False)
    of = old // len(samples[0])
    hashes = np.concatenate(
        [np.stack(samples)[of, old % len(samples[0])], rng.integers(0, 2**64, wanted - len(old), dtype=np.uint64)]
    )
    codes = np.concatenate([of % partitions, rng.integers(0, partitions, wanted - len(old))]).astype(np.int32)
    order = rng.permutation(wanted)
    asked = LookupKeys.one_lookup_per_key(pa.nulls(wanted, pa.string()), hashes[order], names, codes[order])
    before, cpu, wall = anonymous_mb(), time.process_time(), time.perf_counter()
    located = index_of(store).locate(found, asked)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert int((located.group != NOWHERE).sum()) == len(old)
    return f"| {partitions} | {cpu:.2f} | {wall:.2f} | {anonymous_mb() - before:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--wanted", type=int, default=1_000_000)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="hoodoo-bench-"))
    try:
        store = LocalStore(folder)
        samples = make(store, given.groups, given.keys)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(f"{given.groups * given.keys:,} keys in {given.groups} entries, {size >> 20} MB; {given.wanted:,} wanted")
        print("| partitions | CPU s | wall s | anonymous MB |\n| --- | --- | --- | --- |")
        for partitions in (20, 1):
            print(measure(store, samples, partitions, given.keys, given.wanted))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
