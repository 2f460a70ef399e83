"""Tables for tests of the worker, workers as processes of their own and as threads, and waiting for what they do."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import hoodoo
from hoodoo.compactor import heartbeats
from hoodoo.compactor.service_loop import ServiceLoop
from hoodoo.compactor.worker import Worker
from hoodoo.timeline.layout import HEARTBEATS

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int32()), ("ts", pa.int64()), ("text", pa.string())])
TIMEOUT_S = 30.0


def table_of(path: Path, **options: Any) -> hoodoo.Table:
    return hoodoo.create(path, SCHEMA, key="id", partition_by="part", order_by="ts", **options)


def batch(ids: np.ndarray, ts: int, parts: int = 2) -> pa.Table:
    return pa.table(
        {
            "id": ids,
            "part": (ids % parts).astype(np.int32),
            "ts": np.full(len(ids), ts),
            "text": [f"{ts}-{i}" for i in ids.tolist()],
        },
        SCHEMA,
    )


def rows_of(table: hoodoo.Table) -> dict[int, str]:
    rows = table.scan(columns=["id", "text"]).to_arrow()
    found = dict(zip(rows["id"].to_pylist(), rows["text"].to_pylist(), strict=True))
    assert len(found) == len(rows)
    return found


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + TIMEOUT_S
    while not (value := condition()):
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.02)
    return value


class Process:
    """`python -m hoodoo worker ... --json`, and the records it wrote so far."""

    def __init__(self, *arguments: Any) -> None:
        command = [sys.executable, "-m", "hoodoo", "worker", *map(str, arguments), "--json", "--poll", "0.05"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.records: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.records.append(json.loads(line))

    def events(self, name: str) -> list[dict[str, Any]]:
        return [entry for entry in self.records if entry["event"] == name]

    def end(self, number: int = signal.SIGTERM) -> float:
        """Send the signal; seconds until the process was gone."""
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(TIMEOUT_S)
        return time.monotonic() - began


@contextmanager
def worker(*arguments: Any) -> Iterator[Process]:
    """A worker process that has said it lives."""
    running = Process(*arguments)
    try:
        wait_for(lambda: running.events("started"), "start")
        yield running
    finally:
        if running.process.poll() is None:
            running.end(signal.SIGKILL)
        for stream in (running.process.stdout, running.process.stderr):
            assert stream
            stream.close()


def wait_for_beat(table: hoodoo.Table) -> None:
    wait_for(lambda: list(table.handle.store.list(HEARTBEATS + heartbeats.WORKER)), "heartbeat")


def beats(table: hoodoo.Table) -> list[str]:
    return [key for key, _ in table.handle.store.list(HEARTBEATS)]


def big_table(path: Path, parts: int = 8, rows: int = 200_000) -> tuple[hoodoo.Table, dict[int, str]]:
    """A table whose compaction takes a while: every file group has two logs over a large base."""
    table = table_of(path, compact_after_logs=None)
    ids = np.arange(rows)
    for ts in range(3):
        table.upsert(batch(ids, ts, parts))
    return table, {i: f"2-{i}" for i in range(rows)}


@contextmanager
def loop_of(table: hoodoo.Table, *services: str, **arguments: Any) -> Iterator[ServiceLoop]:
    """The loop of a table, whose rounds the test runs itself."""
    loop = Worker([table], services or ("compact", "cluster", "clean", "archive"), **arguments).loops[0]
    try:
        yield loop
    finally:
        loop.quiet.set()
        loop._beating.join(TIMEOUT_S)
