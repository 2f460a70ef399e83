"""A condition that only DuckDB can evaluate means the same on Spark as in process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string())])


@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_spark_reads_the_rows_that_match_any_condition(session: Any, tmp_path: Path, kind: str) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", type=kind)
    table.insert([{"id": number, "city": ("Rome", "oslo")[number % 2]} for number in range(10)])
    table.upsert([{"id": 3, "city": "ROME"}])
    where = "lower(city) = 'rome' AND id < 7"
    assert sorted(one["id"] for one in table.scan(where=where).to_spark(session).collect()) == [0, 2, 3, 4, 6]
    frame = session.read.format("hoodoo").option("where", where).load(table.path)
    assert sorted(one["id"] for one in frame.select("id").collect()) == [0, 2, 3, 4, 6]
