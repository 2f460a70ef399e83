"""JSON from a topic of Kafka into a table, batch by batch: hoodoo's job beside deltalake's merge and append.

Ten columns in 20 partitions, every key a new one; the table of hoodoo is merge-on-read with an ordering column, and its
services run as they do by themselves. Each contender is a process of its own, and all take the same batch in turn, so
that they share the machine's mood. They read and decode in the same way; deltalake's tables do not know how far the
topic was read. Per contender: rows for each CPU second of its process, the median of all batches but the first two.
The broker is that of the tests (`make kafka`).

    python bench/ingest.py [--rows 500000] [--batches 10] [--only hoodoo,deltalake-merge]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from workload import SCHEMA, rows

import hoodoo
from hoodoo.sources import Kafka, Limits, Planned

RESULTS = Path(__file__).parent / "results"
PARTITIONS = 20
_OF_TOPIC = 4
_LEFT_OUT = 2  # of the batches, while caches fill and libraries are loaded


class Stepwise(Kafka):
    """A topic of which a job takes one batch whenever it is told to."""

    batches = 0

    def plan(self, position: str, limits: Limits) -> Planned | None:
        self.batches, there = self.batches - 1, self.batches > 0
        return super().plan(position, limits) if there else None


def ours(source: Stepwise, folder: Path, most: int) -> Callable[[], int]:
    table = hoodoo.create(folder / "t", SCHEMA, key="key", partition_by="part", order_by="ts", type="merge_on_read")
    job, taken = hoodoo.ingest(source, table, max_rows=most), 0

    def step() -> int:
        nonlocal taken
        source.batches = 1
        before, taken = taken, job.run().rows
        return taken - before

    return step


def theirs(source: Stepwise, folder: Path, most: int, merging: bool) -> Callable[[], int]:
    from deltalake import DeltaTable, write_deltalake

    path, position = str(folder / "t"), ""
    write_deltalake(path, SCHEMA.empty_table(), partition_by=["part"])

    def step() -> int:
        nonlocal position
        source.batches = 1
        planned = source.plan(position, Limits(rows=most))
        assert planned is not None
        batch = pa.concat_tables(part.rows.select(SCHEMA.names) for part in source.read(planned, SCHEMA, False))
        position = planned.position
        if merging:
            match = "t.part = s.part AND t.key = s.key"
            merge = DeltaTable(path).merge(batch, predicate=match, source_alias="s", target_alias="t")
            merge.when_matched_update_all(predicate="s.ts >= t.ts").when_not_matched_insert_all().execute()
        else:
            write_deltalake(path, batch, mode="append")
        return len(batch)

    return step


CONTENDERS: dict[str, Callable[[Stepwise, Path, int], Callable[[], int]]] = {
    "hoodoo": ours,
    "deltalake-merge": lambda source, folder, most: theirs(source, folder, most, merging=True),
    "deltalake-append": lambda source, folder, most: theirs(source, folder, most, merging=False),
}


def contend(name: str, address: str, topic: str, most: int) -> None:
    """In a process of its own: a batch for each line that comes in, and a line out that says what it took."""
    with tempfile.TemporaryDirectory() as scratch:
        step = CONTENDERS[name](Stepwise(address, topic), Path(scratch), most)
        for _ in sys.stdin:
            wall_s, cpu_s = time.perf_counter(), sum(os.times()[:4])
            count = step()
            took = {"rows": count, "wall_s": time.perf_counter() - wall_s, "cpu_s": sum(os.times()[:4]) - cpu_s}
            print(json.dumps(took), flush=True)


def messages(first: int, count: int) -> list[bytes]:
    import polars

    text = io.BytesIO()
    polars.from_arrow(rows(np.arange(first, first + count), 0, PARTITIONS)).write_ndjson(text)
    return text.getvalue().splitlines()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--only", default=",".join(CONTENDERS))
    parser.add_argument("--contend", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contend:
        name, address, topic, most = given.contend
        contend(name, address, topic, int(most))
        return
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
    from kafka_broker import broker  # the broker of the tests

    names = given.only.split(",")
    with tempfile.TemporaryDirectory() as scratch, broker(Path(scratch)) as kafka:
        topic = kafka.topic(_OF_TOPIC)
        for batch in range(given.batches):
            for partition in range(_OF_TOPIC):
                share = given.rows // _OF_TOPIC
                sent = messages((batch * _OF_TOPIC + partition) * share, share)
                kafka.put(topic, *sent, partition=partition, compression_type="lz4", linger_ms=20)
        took: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        running = {
            name: subprocess.Popen(
                [sys.executable, __file__, "--contend", name, kafka.address, topic, str(given.rows)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in names
        }
        for batch in range(given.batches):
            for name, process in running.items():
                assert process.stdin and process.stdout
                print("next", file=process.stdin, flush=True)
                took[name].append(json.loads(process.stdout.readline()))
                print(f"batch {batch + 1:2}  {name:17} {_per_cpu_s(took[name][-1]):10,.0f} rows per CPU second")
        for process in running.values():
            process.communicate()
    print(f"\nmedian of batches {_LEFT_OUT + 1} to {given.batches} of {given.rows:,} rows")
    for name, batches in took.items():
        print(f"{name:17} {statistics.median(map(_per_cpu_s, batches[_LEFT_OUT:])):10,.0f} rows per CPU second")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "ingest.json").write_text(json.dumps({"rows": given.rows, "batches": took}, indent=1))


def _per_cpu_s(batch: dict[str, float]) -> float:
    return batch["rows"] / batch["cpu_s"]


if __name__ == "__main__":
    main()
