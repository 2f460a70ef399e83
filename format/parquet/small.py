"""Reading of small Parquet files in memory, without Arrow's threads.

Threads that still work on a damaged file when the process ends abort the process (seen with pyarrow 26 in three of
sixty processes). For files like checkpoints they save no time.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq


def read_small(data: bytes | memoryview) -> pa.Table:
    """Read all rows of a small Parquet file in memory.

    Raises pyarrow's ArrowException or OSError if the bytes are not a Parquet file.
    """
    with pq.ParquetFile(pa.BufferReader(data), pre_buffer=False) as file:
        return file.read(use_threads=False)


__all__ = ["read_small"]
