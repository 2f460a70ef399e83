"""What Spark does not do yet for data sources in Python. A test that fails here tells that Spark has mended it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, GreaterThan, InputPartition


class _Pushing(DataSource):
    """Numbers 0 to 4, whose reader takes `>` off Spark's hands."""

    @classmethod
    def name(cls) -> str:
        return "pushing"

    def schema(self) -> str:
        return "id bigint"

    def reader(self, schema: Any) -> DataSourceReader:
        class Reader(DataSourceReader):
            least = 0

            def pushFilters(self, filters: Any) -> Iterator[Any]:
                for one in filters:
                    if isinstance(one, GreaterThan):
                        self.least = one.value + 1
                    else:
                        yield one

            def partitions(self) -> list[InputPartition]:
                return [InputPartition(0)]

            def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
                yield pa.record_batch({"id": pa.array(range(self.least, 5), pa.int64())})

        return Reader()


def test_filters_that_a_source_takes_are_kept_for_the_next_query_which_loses_rows(spark: Any) -> None:
    """So hoodoo takes none: the option `where` prunes, and `hoodoo.sql`. Once `all_rows` is 5, give it pushFilters."""
    spark.dataSource.register(_Pushing)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("pushing").load()
        assert frame.where("id > 2").count() == 2
        all_rows = frame.count()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert all_rows == 2, f"Spark gives {all_rows} of 5 rows: pushFilters can be used"
