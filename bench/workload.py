"""The records that benchmarks write: ten columns, a 36-character key, a partition, an ordering value. A row follows
from (id, version).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("part", pa.string()),
        ("ts", pa.int64()),
        ("d1", pa.float64()),
        ("d2", pa.float64()),
        ("d3", pa.float64()),
        ("i1", pa.int64()),
        ("i2", pa.int64()),
        ("s1", pa.string()),
        ("s2", pa.string()),
    ]
)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz012345", np.uint8)


def _mix(values: np.ndarray, salt: int) -> np.ndarray:
    """64 well-spread bits per value (the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        x = values.astype(np.uint64) + np.uint64((salt * 0x9E3779B97F4A7C15) % 2**64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def _fixed(text: np.ndarray) -> pa.StringArray:
    rows, width = text.shape
    offsets = pa.py_buffer((np.arange(rows + 1, dtype=np.int64) * width).astype(np.int32))
    return pa.StringArray.from_buffers(rows, offsets, pa.py_buffer(np.ascontiguousarray(text)))


def _keys(ids: np.ndarray) -> pa.StringArray:
    raw = np.stack([_mix(ids, 11), _mix(ids, 12)], axis=1).view(np.uint8).reshape(len(ids), 16)
    digits = np.stack([_HEX[raw >> 4], _HEX[raw & 15]], axis=2).reshape(len(ids), 32)
    text = np.full((len(ids), 36), ord("-"), np.uint8)
    text[:, [i for i in range(36) if i not in (8, 13, 18, 23)]] = digits
    return _fixed(text)


def _words(seed: np.ndarray, width: int) -> pa.StringArray:
    bits = np.stack([_mix(seed, 100 + i) for i in range(-(-width // 12))], axis=1)
    shifts = (np.arange(12, dtype=np.uint64) * np.uint64(5))[None, None, :]
    return _fixed(
        _LETTERS[((bits[:, :, None] >> shifts) & np.uint64(31)).astype(np.uint8)].reshape(len(seed), -1)[:, :width]
    )


def rows(ids: np.ndarray, version: int, partitions: int) -> pa.Table:
    """One row per id; the version changes every column but key and partition, and grows the ordering value."""
    with np.errstate(over="ignore"):
        h = _mix(ids.astype(np.uint64) * np.uint64(1024) + np.uint64(version), 1)
    names = pa.array([f"2026-01-{day + 1:02d}" for day in range(partitions)])
    columns = [
        _keys(ids),
        names.take(pa.array((_mix(ids, 5) % np.uint64(partitions)).astype(np.int32))),
        pa.array((h % np.uint64(86_400_000)).astype(np.int64) + 1_760_000_000_000 + version * 100_000_000),
        pa.array((_mix(h, 21) % np.uint64(1_000_000)).astype(np.float64) / 100),
        pa.array((_mix(h, 22) >> np.uint64(11)).astype(np.float64) / 2**53),
        pa.array((_mix(h, 23) % np.uint64(10_000)).astype(np.float64) / 10),
        pa.array((_mix(h, 24) % np.uint64(1_000_000)).astype(np.int64)),
        pa.array((_mix(h, 25) >> np.uint64(1)).astype(np.int64)),
        _words(_mix(h, 26), 26),
        _words(_mix(h, 27) % np.uint64(5000), 20),
    ]
    return pa.table(columns, schema=SCHEMA)


class Workload:
    """Initial ids 0..size-1; each round updates `share` of the table (a fifth of it new keys). skew: 0 uniform, else a
    Zipf exponent on recent ids.
    """

    def __init__(self, size: int, partitions: int = 20) -> None:
        self.size, self.partitions, self.next_id, self.version = size, partitions, size, 0

    def initial(self) -> pa.Table:
        step = 1_000_000
        return pa.concat_tables(
            [rows(np.arange(i, min(i + step, self.size)), 0, self.partitions) for i in range(0, self.size, step)]
        )

    def batch(self, share: float, skew: float = 0.0) -> pa.Table:
        self.version += 1
        rng = np.random.default_rng([42, self.version])
        count = max(5, int(self.size * share))
        if skew:
            picked = np.unique(self.next_id - rng.zipf(skew, count * 6) % self.next_id - 1)
            old = rng.permutation(picked[picked >= 0])[: count * 4 // 5]
        else:
            old = rng.choice(self.next_id, count * 4 // 5, replace=False)
        new = np.arange(self.next_id, self.next_id + count // 5)
        self.next_id += len(new)
        return rows(rng.permutation(np.concatenate([old, new])), self.version, self.partitions)
