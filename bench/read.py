"""Reading: snapshots, one column, a filter, single keys, what changed; beside deltalake, native Parquet through polars
and Spark, and the `hudi` package.

Each contender answers each question in a process of its own, turn by turn, and all answers must agree. Wall and CPU
seconds are medians, memory is the peak of that process; ratios count, absolute figures are of the machine.

    python bench/read.py [--rows 1000000] [--commits 100] [--spark]

--spark: also native Parquet and hoodoo read by Spark (its JVM's CPU is counted).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from workload import SCHEMA, Workload, rows

import hoodoo

RESULTS = Path(__file__).parent / "results"
PARTITIONS, REPEATS, KEYS, LAST = 8, 5, 1000, 0.01
LOW, HIGH = 10.0, 10.5  # of d1, which is 0 to 10,000: one row in 20,000


# ---- tables of the same rows
def make_hoodoo(path: Path, load: Workload, kind: str, rounds: int) -> None:
    options: dict[str, Any] = {
        "compact_after_logs": None,
        "clean_every": None,
        "slow_after_logs": None,
        "retain_hours": 10_000,
    }
    table = hoodoo.create(path, SCHEMA, key="key", partition_by="part", order_by="ts", type=kind, **options)
    table.insert(load.initial(), bulk=True)
    for _ in range(rounds):
        table.upsert(load.batch(0.01))


def make_files(folder: Path, found: pa.Table) -> None:
    folder.mkdir()
    for name in found["part"].unique().to_pylist():
        pq.write_table(
            found.filter(pc.equal(found["part"], name)),
            folder / f"{name}.parquet",
            compression="zstd",
            compression_level=1,
        )


def make_delta(path: Path, found: pa.Table) -> None:
    from deltalake import write_deltalake

    write_deltalake(str(path), found, partition_by=["part"])


def make_histories(base: Path, size: int, commits: int) -> None:
    """Tables with many small commits, and one of `LAST` of the rows at the end. Who merges into files pays for each;
    the questions are about reading.
    """
    load = Workload(size, PARTITIONS)
    first, batches = load.initial(), [load.batch(0.0005) for _ in range(commits - 1)] + [load.batch(LAST)]
    for name, kind in (("changes-cow", "copy_on_write"), ("changes-mor", "merge_on_read")):
        options: dict[str, Any] = {"clean_every": None, "retain_hours": 10_000}
        table = hoodoo.create(base / name, SCHEMA, key="key", partition_by="part", order_by="ts", type=kind, **options)
        table.insert(first, bulk=True)
        for batch in batches:
            table.upsert(batch)
    from deltalake import DeltaTable, write_deltalake

    path = str(base / "changes-delta")
    write_deltalake(path, first, partition_by=["part"], configuration={"delta.enableChangeDataFeed": "true"})
    for batch in batches:
        merge = DeltaTable(path).merge(
            batch, predicate="t.part = s.part AND t.key = s.key", source_alias="s", target_alias="t"
        )
        merge.when_matched_update_all(predicate="s.ts >= t.ts").when_not_matched_insert_all().execute()


# ---- contenders: each answers questions about the table at `path`
class Hoodoo:
    def __init__(self, path: str) -> None:
        self.table = hoodoo.open(path)

    def everything(self) -> int:
        return len(self.table.scan().to_arrow())

    def one_column(self) -> float:
        return round(pc.sum(self.table.scan(columns=["d1"]).to_arrow()["d1"]).as_py(), 2)

    def filtered(self) -> int:
        return len(self.table.scan(where=f"d1 >= {LOW} AND d1 < {HIGH}").to_arrow())

    def keys(self, keys: pa.Table) -> int:
        return len(self.table.get(keys))

    def last_commit(self) -> int:
        return len(self.table.incremental(self.table.history(2)[1].cursor).to_arrow())

    def last_changes(self) -> int:
        return len(self.table.changes(self.table.history(2)[1].cursor).to_arrow())

    def ten_commits(self) -> int:
        return len(self.table.changes(self.table.history(11)[10].cursor, versions="all").to_arrow())


class Delta:
    def __init__(self, path: str) -> None:
        from deltalake import DeltaTable

        self.table = DeltaTable(path)

    def everything(self) -> int:
        return len(self.table.to_pyarrow_table())

    def one_column(self) -> float:
        return round(pc.sum(self.table.to_pyarrow_table(columns=["d1"])["d1"]).as_py(), 2)

    def filtered(self) -> int:
        return len(self.table.to_pyarrow_dataset().to_table(filter=(pc.field("d1") >= LOW) & (pc.field("d1") < HIGH)))

    def keys(self, keys: pa.Table) -> int:
        return len(self.table.to_pyarrow_dataset().to_table(filter=pc.field("key").isin(keys["key"].combine_chunks())))

    def _feed(self, commits: int) -> int:
        """Changes of the newest commits; an update has two rows in this feed."""
        newest = self.table.version()
        rows = pa.table(self.table.load_cdf(starting_version=newest - commits + 1, ending_version=newest))
        return len(rows) - pc.sum(pc.equal(rows["_change_type"].cast(pa.string()), "update_preimage")).as_py()

    def last_changes(self) -> int:
        return self._feed(1)

    def ten_commits(self) -> int:
        return self._feed(10)


class PolarsFiles:
    def __init__(self, path: str) -> None:
        import polars as pl

        self.files = pl.scan_parquet(f"{path}/*.parquet")

    def everything(self) -> int:
        return len(self.files.collect())

    def one_column(self) -> float:
        import polars as pl

        return round(self.files.select(pl.col("d1").sum()).collect().item(), 2)

    def filtered(self) -> int:
        import polars as pl

        return len(self.files.filter((pl.col("d1") >= LOW) & (pl.col("d1") < HIGH)).collect())

    def keys(self, keys: pa.Table) -> int:
        import polars as pl

        return len(self.files.filter(pl.col("key").is_in(keys["key"].to_pylist())).collect())


class HudiPackage:
    """hudi-rs: another implementation, on our tables."""

    def __init__(self, path: str) -> None:
        from hudi import HudiTableBuilder

        self.table = HudiTableBuilder.from_base_uri(path).build()

    def everything(self) -> int:
        from hudi import HudiReadOptions

        return sum(len(batch) for batch in self.table.read(HudiReadOptions()))

    def last_commit(self) -> int:
        from hudi import HudiQueryType, HudiReadOptions

        before = [
            entry
            for entry in hoodoo.open(self.table.base_url.removeprefix("file://")).inspect.timeline()
            if entry.operation == "UPSERT"
        ][-2]
        options = HudiReadOptions().with_query_type(HudiQueryType.Incremental).with_start_timestamp(before.completed)
        return sum(len(batch) for batch in self.table.read(options))


class SparkFiles:
    def __init__(self, path: str) -> None:
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        self.spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "4g")
            .getOrCreate()
        )
        self.path = path

    def frame(self) -> Any:
        return self.spark.read.parquet(self.path)

    def one_column(self) -> float:
        from pyspark.sql import functions as f

        return round(self.frame().select(f.sum("d1")).collect()[0][0], 2)

    def filtered(self) -> int:
        return self.frame().where(f"d1 >= {LOW} AND d1 < {HIGH}").count()


class SparkHoodoo(SparkFiles):
    def frame(self) -> Any:
        return hoodoo.open(self.path).scan().to_spark(self.spark)


Question = tuple[str, str, bool]
SNAPSHOT: list[Question] = [
    ("read all", "everything", False),
    ("sum of one column", "one_column", False),
    ("1 row in 20,000", "filtered", False),
    (f"{KEYS:,} keys", "keys", True),
]
CHANGED: list[Question] = [
    ("incremental, last 1 %", "last_commit", False),
    ("changes, last 1 %", "last_changes", False),
    ("changes, 10 commits", "ten_commits", False),
]


def serve(kind: type, path: str, pipe: Connection) -> None:
    """The contender's process: the name of a question in, its cost and answer out."""
    contender = kind(path)
    while (message := pipe.recv()) is not None:
        call, arguments = message
        ask = getattr(contender, call, None)
        if ask is None:
            pipe.send(None)
            continue
        ask(*arguments)  # files in the page cache, modules imported
        costs = []
        for _ in range(REPEATS):
            cpu, wall = _cpu(), time.perf_counter()
            answer = ask(*arguments)
            costs.append((time.perf_counter() - wall, _cpu() - cpu))
        peak = 1024 * int(
            next(
                line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
            ).split()[1]
        )
        pipe.send(
            {
                "wall": statistics.median(c[0] for c in costs),
                "cpu": statistics.median(c[1] for c in costs),
                "peak": peak,
                "answer": answer,
            }
        )


def _cpu() -> float:
    """CPU seconds of this process and of those it started, a JVM and its Python workers among them."""
    ticks, mine = 0, {os.getpid()}
    for stat in sorted(Path("/proc").glob("[0-9]*/stat"), key=lambda path: int(path.parent.name)):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(stat.parent.name) in mine or int(fields[1]) in mine:
            mine.add(int(stat.parent.name))
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK") if len(mine) > 1 else time.process_time()


def compare(
    contenders: dict[str, tuple[type, Path]], questions: list[Question], keys: pa.Table
) -> dict[str, dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    pipes: dict[str, Connection] = {}
    for name, (kind, path) in contenders.items():
        pipes[name], there = context.Pipe()
        context.Process(target=serve, args=(kind, str(path), there), daemon=True).start()
    found: dict[str, dict[str, Any]] = {}
    for label, call, takes_keys in questions:
        answers = {}
        for name, pipe in pipes.items():
            pipe.send((call, (keys,) if takes_keys else ()))
            if (cost := pipe.recv()) is not None:
                found.setdefault(label, {})[name] = cost
                answers[name] = cost["answer"]
        assert len(set(answers.values())) <= 1, f"{label}: {answers}"
    for pipe in pipes.values():
        pipe.send(None)
    return found


def show(found: dict[str, dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for costs in found.values() for name in costs))
    print(f"\n| wall s / CPU s / peak MB | {' | '.join(names)} |\n| --- |{' --- |' * len(names)}")
    for label, costs in found.items():
        cells = [
            f"{c['wall']:.3f} / {c['cpu']:.3f} / {c['peak'] / 1e6:.0f}" if (c := costs.get(name)) else "-"
            for name in names
        ]
        print(f"| {label} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--commits", type=int, default=100)
    parser.add_argument("--spark", action="store_true")
    given = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="hoodoo-bench-"))
    try:
        results = {}
        for kind, rounds in (("copy_on_write", 5), ("merge_on_read", 0), ("merge_on_read", 5), ("merge_on_read", 20)):
            folder = base / f"{kind}-{rounds}"
            folder.mkdir()
            load = Workload(given.rows, PARTITIONS)
            make_hoodoo(folder / "hoodoo", load, kind, rounds)
            found = hoodoo.open(folder / "hoodoo").scan().to_arrow()
            make_files(folder / "files", found)
            make_delta(folder / "delta", found)
            ids = np.random.default_rng(5).choice(given.rows, KEYS, replace=False)
            keys = rows(ids, 0, PARTITIONS).select(["key", "part"])
            del found
            contenders: dict[str, tuple[type, Path]] = {
                "hoodoo": (Hoodoo, folder / "hoodoo"),
                "hudi package": (HudiPackage, folder / "hoodoo"),
                "deltalake": (Delta, folder / "delta"),
                "polars, plain files": (PolarsFiles, folder / "files"),
            }
            if given.spark:
                contenders |= {
                    "Spark, hoodoo": (SparkHoodoo, folder / "hoodoo"),
                    "Spark, plain files": (SparkFiles, folder / "files"),
                }
            print(f"\n{kind}, {rounds} rounds of 1 % since the first load, {given.rows:,} rows")
            results[f"{kind}-{rounds}"] = compare(contenders, SNAPSHOT, keys)
            show(results[f"{kind}-{rounds}"])
            shutil.rmtree(folder)
        size = given.rows // 4
        make_histories(base, size, given.commits)
        print(f"\nchanges of a table with {given.commits} commits, {size:,} rows")
        results["changes"] = compare(
            {
                "hoodoo, copy-on-write": (Hoodoo, base / "changes-cow"),
                "hoodoo, merge-on-read": (Hoodoo, base / "changes-mor"),
                "hudi package": (HudiPackage, base / "changes-cow"),
                "deltalake": (Delta, base / "changes-delta"),
            },
            CHANGED,
            pa.table({}),
        )
        show(results["changes"])
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "read.json").write_text(json.dumps(results, indent=1))
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
