"""Many increments of the same counters by several processes: none is lost, and every process gets on.

An upsert says what a row becomes, not by how much, so a counter is one row for each (key, writer) that only its writer
raises; the counter is their sum. All rows lie in the same file group, and on a copy-on-write table every commit
rewrites it: whoever writes over a base that is not the newest takes the others' increments back, and the sums show it.
On merge-on-read the logs and compactions of four writers interleave.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import kill_loop
import pyarrow as pa
import pytest
from figures import record
from hudi_rows import hudi_rows
from patience import PATIENCE_S, NotInTime

import hoodoo

pytestmark = pytest.mark.deep
WRITERS, KEYS, ROUNDS = 4, 100, 25  # 10,000 increments
SCHEMA = pa.schema([("key", pa.int64()), ("writer", pa.int64()), ("count", pa.int64())])


def count_up(path: str, writer: int, parent: Connection) -> None:
    """Raise all counters by one, ROUNDS times, each time from what the table holds."""
    table = hoodoo.open(path)
    for _ in range(ROUNDS):
        began = time.monotonic()
        own = {row["key"]: row["count"] for row in table.scan(where=f"writer = {writer}").to_arrow().to_pylist()}
        batch = {
            "key": list(range(KEYS)),
            "writer": [writer] * KEYS,
            "count": [own.get(key, 0) + 1 for key in range(KEYS)],
        }
        retries = table.upsert(pa.table(batch, schema=SCHEMA)).retries
        parent.send((time.monotonic() - began, retries))
    parent.close()


def _heard(connections: list[Connection]) -> Iterator[tuple[float, int]]:
    for connection in connections:
        for _ in range(ROUNDS):
            if not connection.poll(PATIENCE_S):
                raise NotInTime("a writer stands still")
            yield connection.recv()


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_ten_thousand_increments_by_four_processes_add_up_and_everybody_gets_on(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    table = hoodoo.create(path, SCHEMA, key=["key", "writer"], type=kind, max_retries=1000, compact_after_logs=6)
    began, context = time.monotonic(), kill_loop.processes()
    pipes = [context.Pipe(duplex=False) for _ in range(WRITERS)]
    crew = [
        context.Process(target=count_up, args=(str(path), number, pipe[1]), daemon=True)
        for number, pipe in enumerate(pipes)
    ]
    for process in crew:
        process.start()
    rounds = list(_heard([receiver for receiver, _ in pipes]))
    for process in crew:
        process.join()
    longest = max(seconds for seconds, _ in rounds)
    wanted = {(key, writer): ROUNDS for key in range(KEYS) for writer in range(WRITERS)}
    found = {(row["key"], row["writer"]): row["count"] for row in table.scan().to_arrow().to_pylist()}
    record(
        f"L2 counters, {kind}",
        increments=sum(found.values()),
        lost=WRITERS * KEYS * ROUNDS - sum(found.values()),
        seconds=round(time.monotonic() - began, 1),
        retries=sum(retries for _, retries in rounds),
        longest_wait_s=round(longest, 2),
    )
    assert found == wanted
    assert {(row["key"], row["writer"]): row["count"] for row in hudi_rows(path)} == wanted
    assert table.verify().problems == []
