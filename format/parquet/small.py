"""Reads a small Parquet file in memory as a table. The module does not know what is in it.

It reads without Arrow's threads. Threads that still work on a damaged file when the process ends abort the process
(seen with pyarrow 26 in three of sixty processes). For files like checkpoints they save no time.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq


def read_small(data: bytes | memoryview) -> pa.Table:
    """Return all rows.

    Raises the errors of pyarrow, ArrowException or OSError, if the bytes are not a Parquet file.
    """
    with pq.ParquetFile(pa.BufferReader(data), pre_buffer=False) as file:
        return file.read(use_threads=False)


__all__ = ["read_small"]
