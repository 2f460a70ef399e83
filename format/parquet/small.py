"""A small Parquet file that is in memory, as a table. Reads without Arrow's threads: those that are still at work on a
damaged file when the process ends abort it (seen with pyarrow 26 in three of sixty processes), and for files like
checkpoints they gain nothing. Knows nothing of what is in it.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq


def read_small(data: bytes | memoryview) -> pa.Table:
    """All rows. Raises what pyarrow raises for bytes that are no Parquet file: ArrowException, OSError."""
    with pq.ParquetFile(pa.BufferReader(data), pre_buffer=False) as file:
        return file.read(use_threads=False)


__all__ = ["read_small"]
