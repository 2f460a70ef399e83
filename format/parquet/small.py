"""Reader for small Parquet files.

It does not use Arrow's threads. Threads that still read a damaged file at process exit abort the process (with pyarrow
26, in three of sixty processes). For small files, such as checkpoints, threads save no time.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq


def read_small(data: bytes | memoryview) -> pa.Table:
    with pq.ParquetFile(pa.BufferReader(data), pre_buffer=False) as file:
        return file.read(use_threads=False)


__all__ = ["read_small"]
