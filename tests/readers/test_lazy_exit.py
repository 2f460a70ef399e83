"""A process that ends before a lazy read does ends as others do.

pyarrow's scanner reads ahead on threads of Arrow: where rows come from Python, it took the process down at its end.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import hoodoo

HALF = {
    "reader": "rest = table.scan().to_dataset().scanner().to_reader(); rest.read_next_batch()",
    "batches": "rest = iter(table.scan().to_dataset().to_batches(batch_size=5)); next(rest)",
    "stream": "rest = pyarrow.RecordBatchReader.from_stream(table.scan().to_dataset()); rest.read_next_batch()",
    "DuckDB": "rest = table.scan().to_duckdb().to_arrow_reader(5); rest.read_next_batch()",
    "SQL": "rest = hoodoo.sql('FROM t', t=table).to_arrow_reader(5); rest.read_next_batch()",
}


@pytest.mark.parametrize("read", HALF)
def test_a_process_ends_well_in_the_middle_of_a_lazy_read(read: str, tmp_path: Path) -> None:
    table = hoodoo.create(
        tmp_path / "t", pa.schema([("id", pa.int64()), ("d", pa.int64())]), key="id", partition_by="d"
    )
    table.upsert(pa.table({"id": range(3000), "d": [number % 20 for number in range(3000)]}))
    code = f"import hoodoo, pyarrow, sys; table = hoodoo.open(sys.argv[1]); {HALF[read]}"
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "t")], check=False).returncode == 0
