"""Bytes that were sound once."""

from __future__ import annotations

import numpy as np


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """`data` with one to three other bytes, and now and then without its end."""
    found = bytearray(data)
    for at in rng.integers(0, len(data), rng.integers(1, 4)):
        found[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.integers(0, 256)])
    if rng.random() < 0.1:
        del found[rng.integers(0, len(data)) :]
    return bytes(found)
