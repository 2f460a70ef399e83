"""A writer that never pauses and knows what its table must hold, and workers in processes of their own beside it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from patience import PATIENCE_S

import hoodoo

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("text", pa.string())])
KEYS, BATCH = 60_000, 60
OPTIONS: dict[str, Any] = {
    "target_file_bytes": 1 << 18,
    "retain_hours": 0,
    "retain_commits": 5,
    "worker_timeout_seconds": 30,
    "compact_age_seconds": 5,
}


class Writer:
    """Writes random batches, and keeps what the table must hold: for each key the `ts` of its row, or -1."""

    def __init__(self, path: Path, kind: str, **options: Any) -> None:
        self.table = hoodoo.create(
            path, SCHEMA, key="id", partition_by="part", order_by="ts", type=kind, **{**OPTIONS, **options}
        )
        self.chance = np.random.default_rng(11)
        self.model = np.full(0, -1)
        self.ts = 0
        self.waited = 0.0
        self.changed: dict[
            str, tuple[int, int]
        ] = {}  # instant -> its slot, and how many rows it inserted, updated or deleted
        self.logs_seen: list[int] = []
        self.insert(KEYS, self.table.upsert)

    def batch(self, ids: np.ndarray) -> pa.Table:
        self.ts += 1
        return rows_of(ids, np.full(len(ids), self.ts))

    def insert(self, count: int, write: Callable[[pa.Table], Any]) -> Any:
        ids = np.arange(len(self.model), len(self.model) + count)
        result = write(self.batch(ids))
        self.model = np.append(self.model, np.full(count, self.ts))
        return result

    def commit(self) -> None:
        """Mostly updates of keys all over the table; some deletes, some new keys, most of them in small files of their
        own.
        """
        what = self.chance.random()
        if what < 0.1:
            gone = self.chance.choice(len(self.model), 10, replace=False)
            count = int((self.model[gone] >= 0).sum())
            result = self.table.delete(self.batch(gone).select(["id", "part"]))
            self.model[gone] = -1
        elif what < 0.25:
            count = BATCH // 2
            result = self.insert(count, partial(self.table.insert, bulk=True) if what < 0.2 else self.table.upsert)
        else:
            count = BATCH
            changed = self.chance.choice(np.flatnonzero(self.model >= 0), count, replace=False)
            result = self.table.upsert(self.batch(changed))
            self.model[changed] = self.ts
        self.changed[result.instant] = result.cursor.seq, count
        self.waited += result.waited_seconds
        if result.lag:
            self.logs_seen.append(result.lag.log_files_max)

    def check(self) -> None:
        alive = np.flatnonzero(self.model >= 0)
        found, wanted = self.table.scan().to_arrow().sort_by("id"), rows_of(alive, self.model[alive])
        assert found.combine_chunks().equals(wanted.combine_chunks()), (
            f"after {self.ts} commits: {len(found)} rows, the model has {len(wanted)}"
        )


def rows_of(ids: np.ndarray, ts: np.ndarray) -> pa.Table:
    digits = pc.utf8_lpad(pa.array(ids).cast(pa.string()), 8, "0")
    text = pc.binary_join_element_wise("text", digits, pa.array(ts).cast(pa.string()), " and some more of it ")
    return pa.table(
        [pc.binary_join_element_wise("key", digits, "-"), pa.array(ids % 4).cast(pa.string()), pa.array(ts), text],
        schema=SCHEMA,
    )


def start_worker(path: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "hoodoo", "worker", str(path), "--poll", "0.05", *more]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)


@contextmanager
def workers(path: Path, *kinds: tuple[str, ...]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """One process for each tuple of arguments; SIGTERM ends them, and none may have failed."""
    running = [start_worker(path, *kind) for kind in kinds]
    try:
        yield running
    finally:
        for process in running:
            process.terminate()
        for process in running:
            _, errors = process.communicate(timeout=PATIENCE_S)
            assert process.returncode in (0, -signal.SIGKILL, -signal.SIGTERM), errors.decode()[
                -2000:
            ]  # by SIGTERM: it had only just started


EACH_ITS_OWN = (("--services", "compact"), ("--services", "cluster"), ("--services", "clean,archive"))
