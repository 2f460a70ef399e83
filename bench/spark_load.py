"""A first load of a DataFrame through PySpark: CPU seconds of the whole process tree, JVM and Python workers included,
and how many bytes were staged, and how often a row was.

    python bench/spark_load.py [--rows 5000000] [--rounds 3] [--partitions 20]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from workload import SCHEMA, rows

RESULTS = Path(__file__).parent / "results"
MB = 1e6
_TICKS = os.sysconf("SC_CLK_TCK")


def tree_cpu_s() -> float:
    """CPU seconds of this process and all below it, those that ended and were waited for among them."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = sum(map(int, fields[11:15])) / _TICKS
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(spent.get(pid, 0.0) for pid in mine)


class Staging:
    """Adds up the bytes of all staged files of a table, as they come: they are gone when the write has ended."""

    def __init__(self, table: Path) -> None:
        self.folder, self.sizes = table / ".hoodie" / ".hoodoo" / "staging", dict[str, int]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._stop.wait(0.1):
            for file in self.folder.rglob("*"):
                try:
                    self.sizes[str(file)] = file.stat().st_size if file.is_file() else 0
                except OSError:
                    continue

    def total(self) -> int:
        self._stop.set()
        self._thread.join()
        return sum(self.sizes.values())


def load(spark: Any, source: Path, folder: Path) -> dict[str, float]:
    import hoodoo

    table = hoodoo.create(folder / "t", SCHEMA, key="key", partition_by="part", order_by="ts", clean_every=None)
    staging, began, cpu = Staging(folder / "t"), time.perf_counter(), tree_cpu_s()
    result = table.upsert(spark.read.parquet(str(source)))
    found = {"cpu_s": tree_cpu_s() - cpu, "wall_s": time.perf_counter() - began, "files": result.files}
    return found | {"staged_mb": staging.total() / MB, "rows": result.inserted}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=20)
    chosen = parser.parse_args()
    from pyspark.sql import SparkSession

    found = []
    with tempfile.TemporaryDirectory() as name:
        folder, step = Path(name), 500_000
        (folder / "source").mkdir()
        for start in range(0, chosen.rows, step):
            ids = np.arange(start, min(start + step, chosen.rows))
            pq.write_table(rows(ids, 0, chosen.partitions), folder / "source" / f"{start:012d}.parquet")
        spark = SparkSession.builder.master(f"local[{os.cpu_count()}]").config("spark.ui.enabled", "false")
        session = spark.config("spark.driver.memory", "2g").getOrCreate()
        session.read.parquet(str(folder / "source")).count()  # what a session does first is not what is measured
        for number in range(chosen.rounds):
            (folder / f"{number}").mkdir()
            found.append(load(session, folder / "source", folder / f"{number}"))
            assert found[-1].pop("rows") == chosen.rows
            print("  ".join(f"{what} {value:.1f}" for what, value in found[-1].items()), flush=True)
            shutil.rmtree(folder / f"{number}")
        session.stop()
    middle = {what: round(statistics.median(one[what] for one in found), 1) for what in found[0]}
    print("median", middle)
    RESULTS.mkdir(exist_ok=True)
    RESULTS.joinpath("spark_load.json").write_text(json.dumps({"rows": chosen.rows, "rounds": found}, indent=1))


if __name__ == "__main__":
    main()
