"""What requests cost: hoodoo beside deltalake on an S3 server behind a proxy that adds 30 ms to each request.

The two take turns. Per operation: wall seconds, requests by kind, megabytes, and the longest chain: how many requests
waited for each other, one after the other. An operation can take no less than its chain times the latency.

    python bench/store.py [--rows 200000] [--rounds 3] [--latency-ms 30]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
from workload import SCHEMA, Workload

RESULTS = Path(__file__).parent / "results"
sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
import fault_proxy  # noqa: E402  # the server and the proxy of the tests
import seaweed  # noqa: E402

PARTITIONS = 20
MB = 1e6


# ---- the proxy, in a process of its own
@dataclass(frozen=True)
class Request:
    """began, ended: seconds at the proxy. kind: GET, PUT, LIST, ...; key: below the bucket."""

    began: float
    ended: float
    kind: str
    key: str
    size: int


class FarProxy(fault_proxy.FaultProxy):
    """Breaks nothing; every request is under way for `latency_s`."""

    latency_s = 0.03

    def _choose(self) -> str:
        return ""

    def _latency(self) -> float:
        return self.latency_s

    async def _forward(self, request: Any) -> Any:
        began = asyncio.get_running_loop().time() - self.latency_s
        reply = await super()._forward(request)
        method, target, _ = request.first.split(" ")
        parts = urlsplit(target)
        prefix = parse_qs(parts.query).get("prefix", [""])[0]
        kind = "LIST" if "list-type" in parts.query else method
        key = prefix if kind == "LIST" else unquote(parts.path).partition("/")[2].partition("/")[2]
        ended, size = asyncio.get_running_loop().time(), len(request.body) + len(reply.body)
        self.seen.append(Request(began, ended, kind, key, size))
        return reply

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seen: list[Request] = []


def _serve(upstream: int, latency_s: float, pipe: Connection) -> None:
    proxy = FarProxy(upstream)
    proxy.latency_s = latency_s
    proxy.start()
    pipe.send(proxy.port)
    while pipe.recv():
        seen, proxy.seen = proxy.seen, []
        pipe.send(seen)
    proxy.stop()


@contextmanager
def far(upstream: int, latency_s: float) -> Iterator[tuple[int, Callable[[], list[Request]]]]:
    """(port, what was asked since the last call)"""
    pipe, other = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_serve, args=(upstream, latency_s, other))
    process.start()

    def seen() -> list[Request]:
        pipe.send(True)
        return list(pipe.recv())

    try:
        yield pipe.recv(), seen
    finally:
        pipe.send(False)
        process.join(15)


def chain(requests: list[Request]) -> list[Request]:
    """The longest chain of requests of which each began after the one before had ended."""
    found: list[Request] = []
    for one in sorted(requests, key=lambda request: request.ended):
        if not found or one.began >= found[-1].ended:
            found.append(one)
    return found


# ---- contenders
class Hoodoo:
    def __init__(self, place: str, options: dict[str, Any]) -> None:
        self.place, self.options = f"{place}/hoodoo", options
        self.before: Any = None

    def load(self, batch: pa.Table) -> None:
        import hoodoo

        self.table = hoodoo.create(
            self.place, SCHEMA, key="key", partition_by="part", order_by="ts", storage=self.options, clean_every=None
        )
        self.table.upsert(batch)

    def open(self) -> None:
        import hoodoo

        self.table = hoodoo.open(self.place, storage=self.options)

    def upsert(self, batch: pa.Table) -> int:
        self.before = self.table.cursor
        return int(self.table.upsert(batch).inserted)

    def scan(self, part: str) -> int:
        return len(self.table.scan(["key", "d1"], where=f"part = '{part}'").to_arrow())

    def incremental(self) -> int:
        return len(self.table.incremental(self.before).to_arrow())

    def worker_round(self) -> None:
        self.table.compact()


class DeltaLake:
    """Incremental reads go by its change data feed, which its table has on."""

    def __init__(self, place: str, options: dict[str, Any]) -> None:
        self.place = f"{place}/delta"
        self.options = {
            "aws_endpoint": options["endpoint"],
            "aws_region": options["region"],
            "aws_access_key_id": options["access_key"],
            "aws_secret_access_key": options["secret_key"],
            "aws_allow_http": "true",
            "aws_conditional_put": "etag",
        }

    def load(self, batch: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(
            self.place,
            batch,
            partition_by=["part"],
            storage_options=self.options,
            configuration={"delta.enableChangeDataFeed": "true"},
        )

    def open(self) -> None:
        from deltalake import DeltaTable

        self.table = DeltaTable(self.place, storage_options=self.options)

    def upsert(self, batch: pa.Table) -> int:
        self.table.update_incremental()
        merge = self.table.merge(
            batch, predicate="t.part = s.part AND t.key = s.key", source_alias="s", target_alias="t"
        )
        found = merge.when_matched_update_all(predicate="s.ts >= t.ts").when_not_matched_insert_all().execute()
        return int(found["num_target_rows_inserted"])

    def scan(self, part: str) -> int:
        self.table.update_incremental()
        return len(self.table.to_pyarrow_table(columns=["key", "d1"], filters=[("part", "=", part)]))

    def incremental(self) -> int:
        self.table.update_incremental()
        read = self.table.load_cdf(starting_version=self.table.version())
        return sum(pa.record_batch(batch).num_rows for batch in read)

    def worker_round(self) -> None:
        self.table.update_incremental()
        self.table.optimize.compact()


def rounds(count: int, rows: int, place: str, options: dict[str, Any], seen: Callable[[], list[Request]]) -> list[Any]:
    load = Workload(rows, PARTITIONS)
    contenders: dict[str, Hoodoo | DeltaLake] = {
        "hoodoo": Hoodoo(place, options),
        "deltalake": DeltaLake(place, options),
    }
    first = load.initial()
    for one in contenders.values():
        one.load(first)
    found = []
    for number in range(count):
        batch, part = load.batch(10_000 / rows), first["part"][number].as_py()
        order = list(contenders.items())[:: 1 if number % 2 else -1]
        steps: list[tuple[str, Callable[[Any], Any]]] = [
            ("open", lambda one: one.open()),
            ("upsert", lambda one: one.upsert(batch)),  # noqa: B023  # called before the next round
            ("scan", lambda one: one.scan(part)),  # noqa: B023
            ("incremental", lambda one: one.incremental()),
            ("worker's round", lambda one: one.worker_round()),
        ]
        for step, work in steps:
            answers = {}
            for name, one in order:
                seen()
                began = time.perf_counter()
                answers[name] = work(one)
                wall_s = time.perf_counter() - began
                found.append({"round": number, "step": step, "who": name, "wall_s": wall_s, "requests": seen()})
            if step in ("upsert", "scan"):
                assert len(set(answers.values())) == 1, (step, answers)
    return found


def show(found: list[Any], latency_s: float, explain: str) -> list[dict[str, Any]]:
    table = []
    print(f"{'':16} {'':10} {'wall s':>7} {'chain':>6} {'floor s':>8} {'MB':>6}  requests")
    for step in dict.fromkeys(one["step"] for one in found):
        for who in ("hoodoo", "deltalake"):
            mine = [one for one in found if (one["step"], one["who"]) == (step, who)]
            middle = sorted(mine, key=lambda one: one["wall_s"])[len(mine) // 2]
            kinds = Counter(request.kind for request in middle["requests"])
            links = chain(middle["requests"])
            line = {
                "step": step,
                "who": who,
                "wall_s": round(statistics.median(one["wall_s"] for one in mine), 3),
                "chain": len(links),
                "floor_s": round(len(links) * latency_s, 3),
                "mb": round(sum(request.size for request in middle["requests"]) / MB, 2),
                "requests": dict(kinds),
            }
            table.append(line)
            text = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
            print(
                f"{step:16} {who:10} {line['wall_s']:7.3f} {line['chain']:6} {line['floor_s']:8.2f} {line['mb']:6.2f}"
                f"  {text}"
            )
            if explain == step and who == "hoodoo":
                began = min(request.began for request in middle["requests"])
                for request in sorted(middle["requests"], key=lambda request: request.began):
                    mark = "*" if request in links else " "
                    print(f"  {mark} {1000 * (request.began - began):7.0f} ms {request.kind:6} {request.key}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency-ms", type=float, default=30)
    parser.add_argument("--explain", default="", help="print the requests of one operation of hoodoo's, such as upsert")
    options = parser.parse_args()
    latency_s = options.latency_ms / 1000
    with tempfile.TemporaryDirectory() as folder, seaweed.server(Path(folder)) as storage:
        port = int(storage["endpoint"].rpartition(":")[2])
        with far(port, latency_s) as (near, seen):
            there = storage | {"endpoint": f"http://127.0.0.1:{near}", "allow_http": True}
            found = rounds(options.rounds, options.rows, seaweed.place(), there, seen)
    table = show(found, latency_s, options.explain)
    RESULTS.mkdir(exist_ok=True)
    RESULTS.joinpath("store.json").write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
