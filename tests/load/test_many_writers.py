"""Eight writers on partitions of their own, and the cost of the protocol for one (L1); figures are recorded, only what
must hold is judged.
"""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from figures import record
from hudi_rows import hudi_rows

import hoodoo
from hoodoo.timeline.commits.draft import SlotDraft

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64())])
WRITERS, COMMITS = 8, 20


def write(path: str, who: int, ready: Any, done: Any) -> None:
    table = hoodoo.open(path)
    ready.wait()
    times, retries = [], 0
    for turn in range(COMMITS):
        began = time.perf_counter()
        rows = pa.table({"id": list(range(5)), "city": [f"c{who}"] * 5, "ts": [turn] * 5}, SCHEMA)
        retries += table.upsert(rows).retries
        times.append(time.perf_counter() - began)
    done.put((times, retries))


def test_eight_writers_on_disjoint_partitions_all_commit_everything(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    hoodoo.create(
        path,
        SCHEMA,
        key="id",
        partition_by="city",
        order_by="ts",
        compact_after_logs=None,
        clean_every=None,
        max_retries=200,
    )
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["hoodoo.table"])
    ready, done = context.Barrier(WRITERS + 1), context.Queue()
    processes = [context.Process(target=write, args=(path, who, ready, done)) for who in range(WRITERS)]
    for process in processes:
        process.start()
    ready.wait()
    began = time.perf_counter()
    results = [done.get(timeout=300) for _ in processes]
    seconds = time.perf_counter() - began
    for process in processes:
        process.join()
    table = hoodoo.open(path)
    rows = table.scan().to_arrow().to_pylist()
    assert len(rows) == WRITERS * 5 and {row["ts"] for row in rows} == {COMMITS - 1}
    commits = sum(slot.writes_rows for slot in table.handle.history.slots(1, table.cursor.seq))
    assert commits == WRITERS * COMMITS
    assert table.verify().problems == [] and len(hudi_rows(path)) == len(rows)
    slowest = max(max(times) for times, _ in results)
    record(
        "L1 writers",
        commits=commits,
        per_second=round(commits / seconds, 1),
        slowest_s=round(slowest, 2),
        retries=sum(retries for _, retries in results),
    )


def test_the_protocol_itself_costs_little(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city", order_by="ts")
    times = []
    for _ in range(200):
        began = time.perf_counter()
        attempt = table.handle.timeline.begin("deltacommit")
        attempt.start()
        attempt.complete(SlotDraft("UPSERT"))
        times.append((time.perf_counter() - began) * 1000)
    times.sort()
    record("L1 protocol", commits=200, p50_ms=round(times[100], 1), p99_ms=round(times[198], 1))
    assert table.cursor.seq == 201
