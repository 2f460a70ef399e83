"""Tables for tests of the worker, workers as processes of their own and as threads, and waiting for what they do."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from patience import PATIENCE_S, wait_for

import hoodoo
from hoodoo.compactor import heartbeats
from hoodoo.compactor.service_loop import ServiceLoop
from hoodoo.compactor.worker import Worker
from hoodoo.timeline.layout import HEARTBEATS

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int32()), ("ts", pa.int64()), ("text", pa.string())])
SLOW = ("--max-bytes-per-second", 20_000)
"""With it a worker needs minutes for the compaction of `big_table`: what a test does meanwhile comes before its end."""


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


class Process:
    """`python -m hoodoo worker ... --json`, and the records it wrote so far."""

    def __init__(self, *arguments: Any) -> None:
        command = [sys.executable, "-m", "hoodoo", "worker", *map(str, arguments), "--json", "--poll", "0.05"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.records: list[dict[str, Any]] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.endswith("\n"):  # a worker that was killed may have written half of its last one
                self.records.append(json.loads(line))

    def events(self, name: str) -> list[dict[str, Any]]:
        return [entry for entry in self.records if entry["event"] == name]

    def end(self, number: int = signal.SIGTERM) -> float:
        """Send the signal; wait until the process is gone and everything it wrote is in `records`.

        Returns:
            Seconds until it was gone.
        """
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(PATIENCE_S)
        gone = time.monotonic() - began
        self._reading.join(PATIENCE_S)
        return gone


@contextmanager
def worker(*arguments: Any) -> Iterator[Process]:
    """A worker process that has said it lives."""
    running = Process(*arguments)
    try:
        wait_for(lambda: running.events("started") or running.process.poll() is not None, "start")
        assert running.events("started"), "the worker ended before it said that it had started"
        yield running
    finally:
        if running.process.poll() is None:
            running.end(signal.SIGKILL)
        running._reading.join(PATIENCE_S)
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
        loop._beating.join(PATIENCE_S)
