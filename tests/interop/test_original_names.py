"""A table of renamed columns is a table like others to Apache Hudi: it reads and writes it by the names in its schema,
and the originals survive what it does to the properties.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hudi_session
import pyarrow as pa
import pytest

import hoodoo

ITEM = pa.struct([("Zip Code", pa.string())])
SCHEMA = pa.schema(
    [
        ("Order ID", pa.int64()),
        ("größe", pa.float64()),
        ('say "=:\\"', pa.string()),
        ("s x", ITEM),
        ("day", pa.string()),
    ]
)
ROW = {"größe": 1.5, 'say "=:\\"': "x", "s x": {"Zip Code": "00100"}, "day": "mon"}


@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_hudi_reads_and_writes_a_table_of_renamed_columns(
    tmp_path: Path, hudi_rows: Callable[..., Any], hudi_write: Callable[..., None], kind: str
) -> None:
    path = tmp_path / "t"
    table = hoodoo.create(path, SCHEMA, key="Order ID", partition_by="day", type=kind, rename="snake")
    originals = table.inspect.original_names
    table.upsert([ROW | {"Order ID": 1}, ROW | {"Order ID": 2}])
    table.update({"größe": '"größe" + 1'}, where='"Order ID" = 1')
    found = sorted((row["order_id"], row["grosse"], row["say"], row["s_x"]["zip_code"]) for row in hudi_rows(path))
    assert found == [(1, 2.5, "x", "00100"), (2, 1.5, "x", "00100")]
    ddl = "order_id bigint, grosse double, say string, s_x struct<zip_code: string>, day string"
    hudi_write(path, [(3, 9.0, "y", ("20121",), "mon")], ddl, "upsert", hudi_session.NO_METADATA_TABLE)
    again = hoodoo.open(path)
    assert again.inspect.original_names == originals
    again.upsert([ROW | {"Order ID": 2, "größe": 7.0}])
    back = again.scan(names="original").to_arrow().sort_by("Order ID").to_pylist()
    assert [(row["Order ID"], row["größe"], row["s x"]["Zip Code"]) for row in back] == [
        (1, 2.5, "00100"),
        (2, 7.0, "00100"),
        (3, 9.0, "20121"),
    ]
    assert again.verify().problems == []
