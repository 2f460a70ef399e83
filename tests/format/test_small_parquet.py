"""A process that had met a damaged checkpoint aborted at its end now and then, three times in sixty: threads of Arrow
were still at work on it.
"""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hoodoo.format.parquet.small import read_small

THREADS = """
import os, pyarrow as pa, pyarrow.parquet as pq
from hoodoo.format.parquet.small import read_small
sink = pa.BufferOutputStream()
pq.write_table(pa.table({str(n): list(range(5000)) for n in range(40)}), sink, row_group_size=500)
data = sink.getvalue().to_pybytes()
before = len(os.listdir("/proc/self/task"))
for damaged in (data, data[:2000] + b"x" * 2000 + data[4000:]):
    try:
        read_small(damaged)
    except (pa.ArrowException, OSError):
        pass
print(len(os.listdir("/proc/self/task")) - before)
"""


def test_all_rows_come_back() -> None:
    table = pa.table({"a": list(range(3000)), "b": [None, "x", "y"] * 1000})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=100)
    assert read_small(sink.getvalue().to_pybytes()).equals(table)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"no parquet at all"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((pa.ArrowException, OSError)):
        read_small(data)


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_no_thread_is_started_that_could_outlive_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
