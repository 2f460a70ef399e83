"""Many keys in many file groups, rounds of upserts with a compactor beside them: after every round the table is what it
should be (L4).
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
from figures import record

import hoodoo
from hoodoo.errors import TryAgainError

KEYS = int(os.environ.get("HOODOO_KEYS", "1000000"))
GROUPS = int(os.environ.get("HOODOO_GROUPS", "100"))
ROUNDS = 20
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int32()), ("ts", pa.int64())])


def rows(ids: np.ndarray, ts: int) -> pa.Table:
    return pa.table({"id": ids, "part": (ids % GROUPS).astype(np.int32), "ts": np.full(len(ids), ts)}, SCHEMA)


def test_every_round_leaves_exactly_the_rows_it_should(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="part", order_by="ts", compact_after_logs=None)
    table.insert(rows(np.arange(KEYS), 0), bulk=True)
    assert sum(1 for _ in table.handle.history.head().groups()) == GROUPS
    expected, rng = np.zeros(KEYS, np.int64), np.random.default_rng(1)
    stop, compacted = threading.Event(), [0]

    def compact() -> None:
        worker = hoodoo.open(tmp_path / "t")
        while not stop.is_set():
            try:
                compacted[0] += worker.compact(logs_min=3).groups
            except TryAgainError:
                continue
            stop.wait(0.2)

    thread = threading.Thread(target=compact)
    thread.start()
    try:
        for turn in range(1, ROUNDS + 1):
            ids = np.unique(rng.integers(0, KEYS, KEYS // 100))
            gone = np.unique(rng.integers(0, KEYS, 50)) if turn % 5 == 0 else ids[:0]
            table.upsert(rows(ids, turn))
            expected[ids] = turn
            if len(gone):
                table.delete(rows(gone, 0))
                expected[gone] = -1
            found = table.scan(columns=["id", "ts"]).to_arrow()
            got = np.full(KEYS, -1, np.int64)
            got[found["id"].to_numpy()] = found["ts"].to_numpy()
            assert len(found) == int((expected >= 0).sum()) and np.array_equal(got, expected), turn
    finally:
        stop.set()
        thread.join()
    assert compacted[0] > 0
    assert table.verify().problems == []
    record("L4", keys=KEYS, groups=GROUPS, rounds=ROUNDS, groups_compacted=compacted[0])
