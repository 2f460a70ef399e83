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


def test_spark_reads_with_parameters(session: Any, tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    table.insert([{"id": number, "city": ("l'aquila $x", '\\ " -- o', "a\0b")[number % 3]} for number in range(6)])
    table.upsert([{"id": 5, "city": '\\ " -- o'}])
    for where, params, found in (
        ("city = $city", {"city": "l'aquila $x"}, [0, 3]),
        ("city IN $cities AND id > $low", {"cities": {'\\ " -- o', "a\0b"}, "low": 1}, [2, 4, 5]),
        ("concat(city, '') = $city", {"city": "a\0b"}, [2]),
        ("id NOT IN $ids", {"ids": []}, [0, 1, 2, 3, 4, 5]),
        ("id IN $ids", {"ids": []}, []),
    ):
        rows = table.scan(where=where, params=params).to_spark(session).collect()
        assert sorted(one["id"] for one in rows) == found, where
