"""On S3 the data source works with the ambient credentials of each process, and nothing that travels or is stored holds
them.
"""

from __future__ import annotations

import secrets
from typing import Any

import pyarrow as pa
import pytest
import seaweed
from pyspark.sql.pandas.types import from_arrow_schema
from stream_query import Checkpoint, Query

import hoodoo
from hoodoo.engine.spark import dumps, loads
from hoodoo.spark.source import HoodooSource
from hoodoo.spark.write import HoodooWriter, plan_write

pytestmark = pytest.mark.xdist_group("s3")
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64())])


def test_reads_streams_and_writes_on_s3_take_ambient_credentials_which_no_task_carries(
    s3: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"s3://{seaweed.BUCKET}/spark-{secrets.token_hex(4)}"
    table = hoodoo.create(path, SCHEMA, key="id", storage=s3)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3["access_key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3["secret_key"])
    options = {"path": path, "endpoint": s3["endpoint"], "region": s3["region"]}

    writer = HoodooWriter(plan_write(options, from_arrow_schema(SCHEMA), False))
    message = writer.write(iter(pa.table({"id": [1, 2, 3], "ts": [1, 1, 1]}, schema=SCHEMA).to_batches()))
    writer.commit([message])
    reader = HoodooSource(options).reader(from_arrow_schema(SCHEMA))
    carried = [dumps(thing) for thing in (writer, message, reader, *reader.partitions())]
    found = [row for part in carried[3:] for batch in loads(carried[2]).read(loads(part)) for row in batch.to_pylist()]
    assert sorted(row["id"] for row in found) == [1, 2, 3] == sorted(table.scan().to_arrow()["id"].to_pylist())
    checkpoint = Checkpoint()
    assert [len(batch) for batch in Query(checkpoint, **options).drain()] == [3]
    for text in (*carried, *(offset.encode() for offset in checkpoint.offsets)):
        assert s3["secret_key"].encode() not in text
