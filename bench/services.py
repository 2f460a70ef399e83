"""Table services: compaction against its limit and against Apache Hudi's, clustering and what it saves a reader, and
what a worker costs a writer.

CPU seconds of this process (of Hudi: of its whole process tree); ratios count, absolute figures are of the machine.

    python bench/services.py [--rows 1000000] [--hudi]

--hudi: also compact a table of the same rows with Apache Hudi (`make interop` must have fetched it).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from workload import SCHEMA, Workload, rows

import hoodoo
from hoodoo.compactor.clustering import cluster
from hoodoo.compactor.compaction import plans
from hoodoo.compactor.limits import ServiceLimits
from hoodoo.timeline.layout import HEARTBEATS

RESULTS = Path(__file__).parent / "results"
ROUNDS = 5
SMALL = {"clean_every": None, "target_file_bytes": 16 << 20, "row_group_rows": 16_384}
MB = 1e6


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


def bytes_of(table: hoodoo.Table) -> tuple[int, int]:
    """(of base files that have work to do, of logs) in the newest snapshot."""
    groups = [group for group in table.handle.history.head().groups() if group.logs or table.type == "copy_on_write"]
    return sum(g.base.file.size for g in groups if g.base), sum(log.file.size for g in groups for log in g.logs)


def compaction(folder: Path, size: int) -> dict[str, Any]:
    load = Workload(size, 4)
    table = hoodoo.create(
        folder / "t", SCHEMA, key="key", partition_by="part", order_by="ts", compact_after_logs=None, clean_every=None
    )
    table.upsert(load.initial())
    for _ in range(ROUNDS):
        table.upsert(load.batch(0.02))
    plans.compact_files(
        table.handle.context(), limits=ServiceLimits(groups_at_once=1)
    )  # new keys went into some bases; start from all compacted
    for _ in range(ROUNDS):
        ids = np.random.default_rng(load.version).choice(load.size, size // 50, replace=False)
        load.version += 1
        table.upsert(rows(ids, load.version, 4))
    base, logs = bytes_of(table)
    files = [
        table.handle.store._path(g.base.file.path) for g in table.handle.history.head().groups() if g.base and g.logs
    ]  # type: ignore[attr-defined]

    def limit() -> None:
        """Decode and encode the base files once with pyarrow, by the settings that hoodoo writes
        with; merge nothing.
        """
        for number, file in enumerate(files):
            whole = pq.ParquetFile(file).read(use_threads=False)
            pq.write_table(
                whole,
                folder / f"{number}.parquet",
                compression="zstd",
                compression_level=1,
                use_dictionary=["part", "s2"],
                write_page_checksum=True,
            )

    floor, _ = cpu(limit)
    seconds, result = cpu(lambda: plans.compact_files(table.handle.context(), limits=ServiceLimits(groups_at_once=1)))
    assert result.groups == len(files)
    return {
        "base MB": round(base / MB, 1),
        "log MB": round(logs / MB, 1),
        "hoodoo: CPU s": round(seconds, 2),
        "hoodoo: MB/s per core": round((base + logs) / MB / seconds, 1),
        "decode + encode of the bases: CPU s": round(floor, 2),
        "ratio": round(seconds / floor, 2),
    }


def clustering(folder: Path, size: int) -> dict[str, Any]:
    load = Workload(size, 1)
    initial = load.initial()
    table = hoodoo.create(
        folder / "t", SCHEMA, key="key", partition_by="part", order_by="ts", type="copy_on_write", **SMALL
    )
    pieces = 32
    for number in range(pieces):
        table.insert(initial.slice(number * size // pieces, size // pieces), bulk=True)
    small, _ = bytes_of(table)
    files = [table.handle.store._path(g.base.file.path) for g in table.handle.history.head().groups() if g.base]  # type: ignore[attr-defined]

    def limit() -> None:
        whole = pa.concat_tables([pq.ParquetFile(file).read(use_threads=False) for file in files])
        pq.write_table(
            whole,
            folder / "limit.parquet",
            compression="zstd",
            compression_level=1,
            use_dictionary=["part", "s2"],
            row_group_size=16_384,
        )

    floor, _ = cpu(limit)
    packed, result = cpu(lambda: cluster.pack_small_files(table.handle.context(), ServiceLimits(groups_at_once=1)))
    # Two columns that nothing else orders: a file's rows have the whole range of either, until they lie along a curve.
    where = "d1 > 100 AND d1 < 300 AND i1 > 100000 AND i1 < 120000"
    before = [cpu(lambda: table.scan(where=where).to_arrow()) for _ in range(5)]
    ordered, _ = cpu(lambda: cluster.cluster_files(table.handle.context(), by=["d1", "i1"], order="zorder"))
    after = [cpu(lambda: table.scan(where=where).to_arrow()) for _ in range(5)]
    assert len(before[0][1]) == len(after[0][1])
    scan_before, scan_after = (statistics.median(seconds for seconds, _ in found) for found in (before, after))
    return {
        "MB": round(small / MB, 1),
        "files": f"{result.files_before} to {result.files_after}",
        "packing: CPU s": round(packed, 2),
        "copied": f"{result.copied_bytes / max(1, result.bytes_written):.0%}",
        "decode + encode: CPU s": round(floor, 2),
        "packing, ratio": round(packed / floor, 2),
        "z-order: CPU s": round(ordered, 2),
        "z-order, ratio": round(ordered / floor, 2),
        "selective scan before: CPU s": round(scan_before, 3),
        "after": round(scan_after, 3),
        "scan, ratio": round(scan_before / scan_after, 1),
    }


def beside_a_worker(folder: Path, size: int) -> dict[str, Any]:
    """Commits of 1,000 updates, alone and with a worker on the same table: in turns, so that both share the machine's
    mood.
    """
    load = Workload(size, 4)
    found: dict[str, list[float]] = {"alone": [], "beside": []}
    spent = {"alone": 0.0, "beside": 0.0}
    tables = {}
    for name in found:
        tables[name] = hoodoo.create(
            folder / name,
            SCHEMA,
            key="key",
            partition_by="part",
            order_by="ts",
            compact_after_logs=None,
            slow_after_logs=None,
            clean_every=None,
        )
        tables[name].upsert(load.initial())
    chance = np.random.default_rng(3)
    command = [sys.executable, "-m", "hoodoo", "worker", str(folder / "beside"), "--poll", "0.05", "--logs-min", "5"]
    worker = None
    for turn in range(8):
        name = ("alone", "beside")[turn % 2]
        if name == "beside":
            worker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            while not any("worker-" in key for key, _ in tables[name].handle.store.list(HEARTBEATS)):
                time.sleep(0.05)
        for _ in range(25):
            load.version += 1
            batch = rows(chance.choice(load.size, 1000, replace=False), load.version, 4)
            began, cpu_began = time.perf_counter(), time.process_time()
            tables[name].upsert(batch)
            found[name].append(time.perf_counter() - began)
            spent[name] += time.process_time() - cpu_began
        if worker:
            worker.terminate()
            worker.wait()
            worker = None
    return {
        "commits each": len(found["alone"]),
        "alone: median ms": round(statistics.median(found["alone"]) * 1000, 1),
        "beside a worker: median ms": round(statistics.median(found["beside"]) * 1000, 1),
        "alone: CPU ms a commit": round(spent["alone"] / len(found["alone"]) * 1000, 1),
        "beside: CPU ms a commit": round(spent["beside"] / len(found["beside"]) * 1000, 1),
        "alone: most logs": tables["alone"].maintenance.lag().log_files_max,
        "beside: most logs": tables["beside"].maintenance.lag().log_files_max,
    }


_HUDI = """
import os, resource, sys, time
from pathlib import Path
sys.path[:0] = [{support!r}, {bench!r}]
import numpy as np
import pyarrow.parquet as pq
from hudi_session import NO_METADATA_TABLE, hudi_session
from workload import rows, Workload

def tree():
    ticks = os.sysconf("SC_CLK_TCK")
    total = 0.0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{{name}}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == os.getpgrp():
                total += (int(fields[11]) + int(fields[12])) / ticks
    return total

folder, size = Path(sys.argv[1]), int(sys.argv[2])
os.setpgrp()
with hudi_session(folder) as spark:
    def frame(table, name):
        pq.write_table(table, folder / name)
        return spark.read.parquet(str(folder / name))
    write = "hoodie.datasource.write"
    options = {{
        "hoodie.table.name": "t",
        f"{{write}}.recordkey.field": "key",
        f"{{write}}.partitionpath.field": "part",
        f"{{write}}.precombine.field": "ts",
        f"{{write}}.table.type": "MERGE_ON_READ",
        "hoodie.compact.inline": "false",
        "hoodie.upsert.shuffle.parallelism": "2",
        "hoodie.bulkinsert.shuffle.parallelism": "2",
        "hoodie.clean.automatic": "false",
        **NO_METADATA_TABLE,
    }}
    path = str(folder / "hudi")
    load = Workload(size, 4)
    def save(rows, name, operation):
        writer = frame(rows, name).write.format("hudi").options(**options).option(f"{{write}}.operation", operation)
        writer.mode("append").save(path)
    save(load.initial(), "initial", "bulk_insert")
    for version in range(1, {rounds} + 1):
        ids = np.random.default_rng(version).choice(size, size // 50, replace=False)
        save(rows(ids, version, 4), f"round{{version}}", "upsert")
    before, wall = tree(), time.perf_counter()
    spark.sql(f"call run_compaction(op => 'scheduleAndExecute', path => '{{path}}')").collect()
    print("HUDI", tree() - before, time.perf_counter() - wall)
"""


def hudi_compaction(folder: Path, size: int) -> dict[str, Any]:
    """The same rows and rounds, compacted by Apache Hudi 1.2 on Spark 3.5: CPU of Python, JVM and workers while it
    compacts.
    """
    root = Path(__file__).parents[1]
    script = folder / "compact_with_hudi.py"
    script.write_text(_HUDI.format(support=str(root / "tests/support"), bench=str(root / "bench"), rounds=ROUNDS))
    done = subprocess.run(
        [str(root / "tools/interop.sh"), "python", str(script), str(folder), str(size)],
        capture_output=True,
        text=True,
        check=False,
    )
    answer = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("HUDI")]
    if not answer:
        return {"Apache Hudi": f"did not run: {done.stderr[-300:]}"}
    return {"Apache Hudi: CPU s": round(float(answer[0][0]), 1), "Apache Hudi: wall s": round(float(answer[0][1]), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--hudi", action="store_true")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="hoodoo-bench-"))
    found: dict[str, dict[str, Any]] = {}
    try:
        for name, work in (
            ("compaction", compaction),
            ("clustering", clustering),
            ("beside a worker", beside_a_worker),
        ):
            (folder / name.replace(" ", "-")).mkdir()
            found[name] = work(folder / name.replace(" ", "-"), given.rows)
            print(name, json.dumps(found[name], indent=2), flush=True)
        if given.hudi:
            found["compaction"] |= hudi_compaction(folder, given.rows)
            print(json.dumps(found["compaction"], indent=2))
    finally:
        shutil.rmtree(folder)
    RESULTS.mkdir(exist_ok=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (RESULTS / "services.json").write_text(
        json.dumps({"rows": given.rows, "cpus": os.cpu_count(), "peak MiB": round(peak), **found}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
