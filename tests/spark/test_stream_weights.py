"""How many rows a commit counts for in a stream with a limit of rows. No Spark session is needed."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadMaxRows
from tables import make, rows

from hoodoo.spark.parts import get_read_schema
from hoodoo.spark.source_options import ReadOptions
from hoodoo.spark.stream import HoodooStream


def test_rows_of_a_dropped_partition_count_towards_the_limit_of_a_micro_batch(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write")
    table.upsert(rows(1, 2, 3, 4))
    start = table.cursor.seq
    table.insert_overwrite(rows(5))
    table.upsert(rows(6))
    options = ReadOptions.parse(
        {"path": str(table.path), "mode": "changes", "since": str(start), "maxRowsPerTrigger": "3"}, stream=True
    )
    stream = HoodooStream(options, from_arrow_schema(get_read_schema(table, options)))
    offset = stream.latestOffset(stream.initialOffset(), ReadMaxRows(3))
    assert stream._position(offset, stream._head()).slot == start + 1
