"""How many commits a second one table takes: up to a thousand writers on a store whose requests take 30 ms, in virtual
time (tests/support/virtual_time.py), so that neither this machine nor its cores decide.

Each writer upserts one row after the other to a partition of its own, so nobody conflicts: what is measured is the race
for the slots. Per number of writers: commits a second, slots lost to others for each commit, turn requests, requests
for each commit, and the seconds from call to acknowledgement. Work between requests costs no virtual time.

    python bench/many_writers.py [--writers 1,3,10,30,100,300,1000] [--seconds 30] [--latency-ms 30]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

RESULTS = Path(__file__).parent / "results"
sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from virtual_time import FarStore, World  # noqa: E402  # the world of the tests

from hoodoo.table import Table  # noqa: E402
from hoodoo.timeline import create_table  # noqa: E402
from hoodoo.timeline.layout import SLOTS, TURN_REQUESTS  # noqa: E402
from hoodoo.timeline.properties import hoodie_properties, table_options  # noqa: E402

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("ts", pa.int64())])
OPENING_S = 2.0  # until everybody is at work; what is committed by then is not counted


class Figures:
    def __init__(self) -> None:
        self.commits_s: list[float] = []
        self.took_s: list[float] = []
        self.lost = self.turn_requests = self.requests = 0


class CountingStore(FarStore):
    """Notes slots that somebody else was first to take, and turn requests."""

    figures: Figures

    def put_if_absent(self, key: str, data: Any, durable: bool = True) -> str:
        try:
            return super().put_if_absent(key, data, durable)
        except FileExistsError:
            self.figures.lost += key.startswith(SLOTS)
            raise

    def put(self, key: str, data: Any) -> None:
        self.figures.turn_requests += key.startswith(TURN_REQUESTS)
        super().put(key, data)


def writer(world: World, figures: Figures, number: int, request_s: float) -> None:
    store = CountingStore(world, request_s)
    store.figures = figures
    world.sleep(world.rng.random() * OPENING_S / 2)
    table = Table(store, world.environment(f"w{number}"))
    for turn in range(1_000_000):
        began = world.now_s
        table.upsert(pa.table([[turn], [f"p{number}"], [1]], schema=SCHEMA))
        figures.commits_s.append(world.now_s)
        figures.took_s.append(world.now_s - began)


def measure(count: int, seconds: float, request_s: float) -> dict[str, Any]:
    world, figures = World(), Figures()
    chosen = table_options.validate_new_options({"clean_every": None, "compact_after_logs": None, "max_retries": 1_000})
    made = hoodie_properties.create_properties("t", SCHEMA, ("id",), ("part",), ("ts",), "merge_on_read", chosen)
    create_table.create_table(world.store, made, world.environment("founder"))
    world.written_ms = dict.fromkeys(world.store.data, int(world.now_s * 1000))
    for number in range(count):
        world.start(lambda number=number: writer(world, figures, number, request_s))
    began, cpu = world.now_s, time.process_time()
    world.run(OPENING_S + seconds)
    counted = [moment for moment in figures.commits_s if moment > began + OPENING_S]
    took = sorted(figures.took_s) or [float("nan")]
    commits = max(1, len(figures.commits_s))
    return {
        "writers": count,
        "commits_s": round(len(counted) / seconds, 1),
        "lost_slots_each": round(figures.lost / commits, 1),
        "pleas_each": round(figures.turn_requests / commits, 2),
        "requests_each": round(world.requests / commits),
        "median_s": round(took[len(took) // 2], 1),
        "longest_s": round(took[-1], 1),
        "cpu_s": round(time.process_time() - cpu),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", default="1,3,10,30,100,300,1000")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--latency-ms", type=float, default=30)
    chosen = parser.parse_args()
    found = []
    for count in map(int, chosen.writers.split(",")):
        found.append(measure(count, chosen.seconds, chosen.latency_ms / 1000))
        print("  ".join(f"{name} {value}" for name, value in found[-1].items()), flush=True)
    RESULTS.mkdir(exist_ok=True)
    RESULTS.joinpath("many_writers.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
