"""Load, upsert, merge, update, read: hoodoo beside DuckLake's and deltalake's MERGE, a hand-written polars rewrite, and
the decode-plus-encode limit, in one run.

Each contender is a process of its own that gets the same batches in turn, so that all share the machine's mood. Per
step: wall and CPU seconds, bytes of new files, and at the end the peak memory. Ratios count; absolute figures are of
the machine.

    python bench/upsert.py [--rows 2000000] [--rounds 3] [--only hoodoo-mor,deltalake]
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
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from workload import SCHEMA, Workload

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
SOME = ["key", "part", "ts", "d1", "s2"]
"""The columns of an upsert of some columns: two change."""
WHOLE = "part = '2026-01-20'"
"""All rows of some files."""


def pruned(number: int) -> str:
    """A condition that one row of a hundred meets, in a tenth of the files: the next tenth for each number."""
    days = [f"'2026-01-{2 * number % 20 + day:02d}'" for day in (1, 2)]
    return f"part >= {days[0]} AND part <= {days[1]} AND d1 < 1000"


class Hoodoo:
    kind = "merge_on_read"
    order_by: str | None = "ts"
    log_format = "avro"

    def __init__(self, folder: Path, partitions: int) -> None:
        import hoodoo
        from hoodoo.readers.predicate import sql, text  # noqa: F401  the others have their parsers, too
        from hoodoo.table import merging  # noqa: F401  and all that they import at once
        from hoodoo.writers import stored_rows  # noqa: F401

        self.table = hoodoo.create(
            folder / "t",
            SCHEMA,
            key="key",
            partition_by="part",
            order_by=self.order_by,
            type=self.kind,
            log_format=self.log_format,
            compact_after_logs=None,
            clean_every=None,
        )
        self.before: Any = None

    def load(self, batch: pa.Table) -> None:
        self.table.upsert(batch)

    def upsert(self, batch: pa.Table) -> None:
        self.before = self.table.cursor
        self.table.upsert(batch)

    def upsert_some(self, batch: pa.Table) -> int:
        return self.table.upsert(batch.select(SOME), columns="given", new_keys="ignore").updated

    def merge_all(self, batch: pa.Table) -> None:
        self.table.merge(batch).when_matched_update_all().when_not_matched_insert_all().execute()

    def merge(self, batch: pa.Table) -> int:
        merge = self.table.merge(batch).when_matched_update({"i1": "target.i1 + source.i1", "d2": "source.d2 * 2"})
        return merge.execute().updated

    def update(self, number: int) -> int:
        return self.table.update({"i2": "i2 // 2", "s2": "'late'"}, where=pruned(number)).updated

    def delete(self) -> None:
        self.table.delete(where=WHOLE)

    def total(self) -> int:
        return int(pa.compute.sum(self.table.scan(columns=["i1"]).to_arrow()["i1"]).as_py())

    def read(self) -> int:
        return len(self.table.scan().to_arrow())

    def read_column(self) -> float:
        return float(pa.compute.sum(self.table.scan(columns=["d1"]).to_arrow()["d1"]).as_py())

    def incremental(self) -> int:
        return len(self.table.incremental(self.before).to_arrow())

    def compact(self) -> None:
        self.table.compact()


class HoodooCow(Hoodoo):
    kind = "copy_on_write"
    compact = None  # type: ignore[assignment]


class HoodooParquetLogs(Hoodoo):
    """With logs of Parquet blocks, as the option `log_format` makes them."""

    log_format = "parquet"


class HoodooByTime(Hoodoo):
    """Without an ordering column, as deltalake is: the later write wins."""

    order_by = None


class HoodooCowByTime(HoodooCow):
    order_by = None


class DeltaLake:
    compact = incremental = None

    def __init__(self, folder: Path, partitions: int) -> None:
        self.path = str(folder / "t")

    def load(self, batch: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(self.path, batch, partition_by=["part"])

    def _merge(self, batch: pa.Table) -> Any:
        from deltalake import DeltaTable

        match = "t.part = s.part AND t.key = s.key"
        return DeltaTable(self.path).merge(batch, predicate=match, source_alias="s", target_alias="t")

    def upsert(self, batch: pa.Table) -> None:
        merge = self._merge(batch)
        merge.when_matched_update_all(predicate="s.ts >= t.ts").when_not_matched_insert_all().execute()

    def merge_all(self, batch: pa.Table) -> None:
        self._merge(batch).when_matched_update_all().when_not_matched_insert_all().execute()

    def upsert_some(self, batch: pa.Table) -> int:
        merge = self._merge(batch.select(SOME))
        values = {name: f"s.{name}" for name in ("ts", "d1", "s2")}
        return int(merge.when_matched_update(values, predicate="s.ts >= t.ts").execute()["num_target_rows_updated"])

    def merge(self, batch: pa.Table) -> int:
        merge = self._merge(batch.select(["key", "part", "i1", "d2"]))
        done = merge.when_matched_update({"i1": "t.i1 + s.i1", "d2": "s.d2 * 2"}).execute()
        return int(done["num_target_rows_updated"])

    def update(self, number: int) -> int:
        from deltalake import DeltaTable

        done = DeltaTable(self.path).update({"i2": "i2 / 2", "s2": "'late'"}, predicate=pruned(number))
        return int(done["num_updated_rows"])

    def delete(self) -> None:
        from deltalake import DeltaTable

        DeltaTable(self.path).delete(WHOLE)

    def total(self) -> int:
        return int(pa.compute.sum(self._files(["i1"])["i1"]).as_py())

    def _files(self, columns: list[str] | None = None) -> pa.Table:
        from deltalake import DeltaTable

        return DeltaTable(self.path).to_pyarrow_table(columns=columns)

    def read(self) -> int:
        return len(self._files())

    def read_column(self) -> float:
        return float(pa.compute.sum(self._files(["d1"])["d1"]).as_py())


class DuckLake:
    """DuckDB's lakehouse with a catalog in a file. It has no keys: nothing refuses a second row of one."""

    def __init__(self, folder: Path, partitions: int) -> None:
        import duckdb
        from duckdb_extensions import import_extension

        import_extension("ducklake")
        self.lake = duckdb.connect(config={"threads": os.cpu_count()})
        self.lake.execute(f"ATTACH 'ducklake:{folder}/catalog.ducklake' AS lake (DATA_PATH '{folder}/data/')")
        self.lake.execute("CALL lake.set_option('parquet_compression', 'zstd')")
        self.lake.execute("USE lake")
        batch = SCHEMA.empty_table()  # noqa: F841  DuckDB finds it by its name
        self.lake.execute("CREATE TABLE t AS FROM batch")
        self.lake.execute("ALTER TABLE t SET PARTITIONED BY (part)")

    def load(self, batch: pa.Table) -> None:
        self.lake.execute("INSERT INTO t FROM batch")

    def _merge(self, batch: pa.Table, clauses: str) -> int:
        merge = f"MERGE INTO t USING batch s ON t.part = s.part AND t.key = s.key {clauses}"
        return int(self.lake.execute(merge).fetchone()[0])

    def upsert(self, batch: pa.Table) -> None:
        self._merge(batch, "WHEN MATCHED AND s.ts >= t.ts THEN UPDATE WHEN NOT MATCHED THEN INSERT")

    def merge_all(self, batch: pa.Table) -> None:
        self._merge(batch, "WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT")

    def upsert_some(self, batch: pa.Table) -> int:
        sets = ", ".join(f"{name} = s.{name}" for name in ("ts", "d1", "s2"))
        return self._merge(batch, f"WHEN MATCHED AND s.ts >= t.ts THEN UPDATE SET {sets}")

    def merge(self, batch: pa.Table) -> int:
        return self._merge(batch, "WHEN MATCHED THEN UPDATE SET i1 = t.i1 + s.i1, d2 = s.d2 * 2")

    def update(self, number: int) -> int:
        return int(self.lake.execute(f"UPDATE t SET i2 = i2 // 2, s2 = 'late' WHERE {pruned(number)}").fetchone()[0])

    def delete(self) -> None:
        self.lake.execute(f"DELETE FROM t WHERE {WHOLE}")

    def total(self) -> int:
        return int(self.lake.execute("SELECT sum(i1) FROM t").fetchone()[0])

    def read(self) -> int:
        return len(self.lake.execute("FROM t").to_arrow_table())

    def read_column(self) -> float:
        return float(self.lake.execute("SELECT sum(d1) FROM t").fetchone()[0])

    def compact(self) -> None:
        self.lake.execute("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)")


class PolarsByHand:
    """No history, no index, no key check, no atomic commit: one file per partition, rewritten. What a careful person
    would script.
    """

    compact = incremental = None

    def __init__(self, folder: Path, partitions: int) -> None:
        self.folder = folder

    def load(self, batch: pa.Table) -> None:
        self._split(batch, lambda old, new: new)

    def upsert(self, batch: pa.Table) -> None:
        import polars as pl

        self._split(
            batch, lambda old, new: pl.concat([old, new]).sort("ts", maintain_order=True).unique("key", keep="last")
        )

    def _split(self, batch: pa.Table, merge: Callable[[Any, Any], Any]) -> None:
        import polars as pl

        for (name,), part in pl.DataFrame(batch).partition_by("part", as_dict=True).items():
            file = self.folder / f"{name}.parquet"
            old = pl.scan_parquet(file) if file.exists() else None
            merged = merge(old, part.lazy()) if old is not None else part.lazy()
            merged.sink_parquet(file.with_suffix(".new"), compression="zstd", compression_level=1)
            os.replace(file.with_suffix(".new"), file)

    def read(self) -> int:
        import polars as pl

        return len(pl.read_parquet(self.folder / "*.parquet"))

    def read_column(self) -> float:
        import polars as pl

        return float(pl.scan_parquet(self.folder / "*.parquet").select(pl.col("d1").sum()).collect().item())


class Limit:
    """The floor of any rewrite: decode and encode the same files once with pyarrow, one partition per thread, and merge
    nothing.
    """

    compact = incremental = read_column = None

    def __init__(self, folder: Path, partitions: int) -> None:
        self.folder = folder

    def _each(self, work: Callable[[Path], Any], files: list[Path]) -> list[Any]:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(work, files))

    def _write(self, table: pa.Table, file: Path) -> None:
        pq.write_table(
            table,
            file,
            compression="zstd",
            compression_level=1,
            use_dictionary=["part", "s2"],
            write_page_checksum=True,
        )

    def load(self, batch: pa.Table) -> None:
        names = sorted(set(batch["part"].unique().to_pylist()))
        self._each(
            lambda file: self._write(batch.filter(pa.compute.equal(batch["part"], file.stem)), file),
            [self.folder / f"{name}.parquet" for name in names],
        )

    def upsert(self, batch: pa.Table) -> None:
        touched = [self.folder / f"{name}.parquet" for name in batch["part"].unique().to_pylist()]
        self._each(
            lambda file: self._write(pq.ParquetFile(file).read(use_threads=False), file.with_suffix(".parquet")),
            touched,
        )

    def read(self) -> int:
        return sum(
            len(table)
            for table in self._each(
                lambda file: pq.ParquetFile(file).read(use_threads=False), sorted(self.folder.glob("*.parquet"))
            )
        )


CONTENDERS: dict[str, type] = {
    "hoodoo-mor": Hoodoo,
    "hoodoo-mor-parquet-logs": HoodooParquetLogs,
    "hoodoo-cow": HoodooCow,
    "hoodoo-mor-by-time": HoodooByTime,
    "hoodoo-cow-by-time": HoodooCowByTime,
    "deltalake": DeltaLake,
    "ducklake": DuckLake,
    "polars script": PolarsByHand,
    "decode+encode": Limit,
}


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def serve(name: str, folder: str, partitions: int, address: str) -> None:
    """The contender's process: a step's name and what it takes in, its cost and answer out."""
    pipe = Client(address)
    contender = CONTENDERS[name](Path(folder), partitions)
    while (message := pipe.recv()) is not None:
        step, given = message
        call = getattr(contender, step, None)
        if call is None:
            pipe.send(None)
            continue
        size, cpu, wall = bytes_in(Path(folder)), time.process_time(), time.perf_counter()
        answer = call(given) if given is not None else call()
        cost = {
            "wall": time.perf_counter() - wall,
            "cpu": time.process_time() - cpu,
            "bytes": max(0, bytes_in(Path(folder)) - size),
        }
        pipe.send({**cost, "answer": answer, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024})


def ducklake_python() -> str:
    """The Python that has DuckLake."""
    found = subprocess.run([ROOT / "tools" / "ducklake.sh"], check=True, capture_output=True, text=True)
    return found.stdout.strip()


class Run:
    def __init__(self, names: list[str], partitions: int, base: Path) -> None:
        self.pipes: dict[str, Connection] = {}
        self.costs: dict[str, dict[str, list[dict[str, Any]]]] = {}
        with Listener(str(base / "socket")) as listener:
            for name in names:
                folder = base / name.replace(" ", "-")
                folder.mkdir()
                python = ducklake_python() if name == "ducklake" else sys.executable
                subprocess.Popen([python, __file__, "--serve", name, folder, str(partitions), str(listener.address)])
                self.pipes[name] = listener.accept()

    def step(self, label: str, call: str, given: pa.Table | int | None = None) -> None:
        """One step for every contender, one after the other; their answers must agree."""
        answers = {}
        for name, pipe in self.pipes.items():
            pipe.send((call, given))
            cost = pipe.recv()
            if cost is not None:
                self.costs.setdefault(label, {}).setdefault(name, []).append(cost)
                if name != "decode+encode" and isinstance(cost["answer"], int):
                    answers[name] = cost["answer"]
        assert len(set(answers.values())) <= 1, f"{label}: contenders disagree: {answers}"
        print(
            label, {name: round(found[-1]["wall"], 2) for name, found in self.costs.get(label, {}).items()}, flush=True
        )

    def close(self) -> None:
        for pipe in self.pipes.values():
            pipe.send(None)

    def table(self) -> str:
        names = list(self.pipes)
        lines = ["| step | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
        for label, found in self.costs.items():
            cells = [self._cell(found.get(name)) for name in names]
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
        peaks = {
            name: max((cost["peak"] for found in self.costs.values() for cost in found.get(name, [])), default=0)
            for name in names
        }
        lines.append("| peak memory, GB | " + " | ".join(f"{peaks[name] / 1e9:.2f}" for name in names) + " |")
        return "\n".join(lines)

    def _cell(self, costs: list[dict[str, Any]] | None) -> str:
        if not costs:
            return "-"
        wall, cpu, size = (statistics.median(cost[what] for cost in costs) for what in ("wall", "cpu", "bytes"))
        written = f" / {size / 1e6:.0f} MB" if size > 1e5 else ""
        return f"{wall:.2f} / {cpu:.2f}{written}"


def plot(costs: dict[str, dict[str, list[dict[str, Any]]]], names: list[str], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    labels = list(costs)
    figure, axes = plt.subplots(figsize=(11, 5))
    for number, name in enumerate(names):
        heights = [
            statistics.median(cost["cpu"] for cost in costs[label][name]) if name in costs[label] else 0
            for label in labels
        ]
        axes.bar(
            [place + number * 0.8 / len(names) for place in range(len(labels))], heights, 0.8 / len(names), label=name
        )
    axes.set_xticks([place + 0.3 for place in range(len(labels))], labels, rotation=20, ha="right")
    axes.set_yscale("log")
    axes.set_ylabel("CPU seconds (median, log scale)")
    axes.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=20)
    parser.add_argument("--only", help="comma-separated contenders")
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        name, folder, partitions, address = options.serve
        return serve(name, folder, int(partitions), address)
    names = options.only.split(",") if options.only else list(CONTENDERS)
    base = Path(tempfile.mkdtemp(prefix="hoodoo-bench-"))
    try:
        run = Run(names, options.partitions, base)
        work = Workload(options.rows, options.partitions)
        run.step("first load", "load", work.initial())
        for _ in range(options.rounds):
            run.step("upsert 5 %, uniform", "upsert", work.batch(0.05))
        for _ in range(options.rounds):
            run.step("upsert 5 %, skewed", "upsert", work.batch(0.05, skew=1.2))
        for _ in range(options.rounds):
            run.step("upsert 0.1 %", "upsert", work.batch(0.001))
        run.step("incremental of the last 0.1 %", "incremental")
        for _ in range(2):
            run.step("read all", "read")
            run.step("read one column", "read_column")
        run.step("compaction", "compact")
        for _ in range(2):
            run.step("read all, compacted", "read")
            run.step("read one column, compacted", "read_column")
        for number in range(options.rounds):
            run.step("update of 1 % in a tenth of the files, compacted", "update", number)
        for _ in range(options.rounds):
            run.step("upsert of two columns of 5 %", "upsert_some", work.batch(0.05))
        for _ in range(options.rounds):
            run.step("merge by expressions, 5 %", "merge", work.batch(0.05))
        for _ in range(options.rounds):
            run.step("merge of 5 %, update all and insert all", "merge_all", work.batch(0.05))
        for number in range(options.rounds):
            run.step("update of 1 % in a tenth of the files, over logs", "update", number)
        run.step("delete of whole files", "delete")
        run.step("sum of a column", "total")
        run.close()
        RESULTS.mkdir(exist_ok=True)
        head = (
            f"{options.rows:,} rows, {options.partitions} partitions, {options.rounds} rounds, "
            f"{os.cpu_count()} cores; wall s / CPU s / new bytes, medians"
        )
        (RESULTS / "upsert.md").write_text(f"{head}\n\n{run.table()}\n")
        (RESULTS / "upsert.json").write_text(json.dumps(run.costs, indent=1))
        plot(run.costs, names, RESULTS / "upsert.png")
        print(f"\n{head}\n\n{run.table()}\n\nIn {RESULTS}: upsert.md, upsert.json, upsert.png")
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
