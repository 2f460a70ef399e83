"""The Spark data source `hoodoo`: batch reads here, streams and writes next door; and `register`, which makes them
known to a session.

Spark creates the source, plans with it and runs its tasks in different processes, so that all of it pickles. The
snapshot is fixed when a DataFrame is loaded or a view is created: all that is made of it sees the same rows. Knows
options and Spark, not how rows are found.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, MutableMapping
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from hoodoo.engine.session import require_session
from hoodoo.engine.spark import prepare_session, reduced_with_code
from hoodoo.engine.spark_types import arrow_schema_of, require_readable, spark_ddl
from hoodoo.errors import EngineError, HoodooError
from hoodoo.spark import tables as spark_tables
from hoodoo.spark.options import ReadOptions
from hoodoo.spark.parts import Part, parts_of, read, require_schema, rows_of, schema_of, slots_read
from hoodoo.spark.stream import HoodooStream
from hoodoo.spark.write import HoodooWriter, planned

_OLDEST = (4, 2)  # of PySpark: streams that limit themselves
_registered: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def register(spark: SparkSession) -> None:
    """Make the data source `hoodoo` and the table functions `hoodoo_timeline` and `hoodoo_changes` known to `spark`, a
    classic or Connect session.

    A second time does nothing. hoodoo's code travels with it; what hoodoo depends on must be installed where Spark runs
    Python. Raises EngineError.
    """
    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < _OLDEST:
        raise EngineError(
            f"The data source needs PySpark {'.'.join(map(str, _OLDEST))} or later, this is "
            f"{pyspark.__version__}. hoodoo.open(path) works with it."
        )
    require_session(spark)
    if spark in _registered:
        return
    prepare_session(spark)
    spark.dataSource.register(HoodooSource)
    spark_tables.register(spark)
    _registered.add(spark)


class HoodooSource(DataSource):
    """What `format("hoodoo")` stands for."""

    def __init__(self, options: MutableMapping[str, str], fixed: int | None = None) -> None:
        super().__init__(options)
        self.fixed = fixed

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced_with_code("hoodoo.spark.source", "HoodooSource", (dict(self.options), self.fixed))

    @classmethod
    def name(cls) -> str:
        return "hoodoo"

    def schema(self) -> str:
        """Called once, by load() or CREATE VIEW: fixes the snapshot as well, as far as this is no stream, which is not
        known here.
        """
        options = ReadOptions.of(self.options, None)
        table = options.open()
        try:
            rows = rows_of(table, options)
            self.fixed, schema = rows.cursor.seq, rows.schema
        except HoodooError:  # a stream goes on from its checkpoint, whatever has become of where it once started
            schema = schema_of(table, options)
        require_readable(schema)
        return spark_ddl(schema)

    def reader(self, schema: Any) -> HoodooReader:
        options = ReadOptions.of(self.options)
        table = options.open()
        rows = rows_of(table, options, self.fixed)
        require_schema(rows.schema, spark_ddl(arrow_schema_of(schema)))
        return HoodooReader(parts_of(rows, table, slots_read(table, options, rows.cursor.seq)), schema)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return HoodooStream(ReadOptions.of(self.options, True), schema)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        return HoodooWriter(planned(self.options, schema, overwrite))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        raise EngineError(
            'writeStream.format("hoodoo") is not there: use writeStream.foreachBatch(table.sink("name")), which '
            "commits each batch exactly once."
        )


class HoodooReader(DataSourceReader):
    """A batch read: one Spark task per file slice."""

    def __init__(self, parts: list[Part], schema: Any) -> None:
        self.parts, self.schema = parts, schema

    def __reduce__(self) -> tuple[Any, ...]:
        return HoodooReader, ([], self.schema)  # tasks get the reader, and of the parts each its own

    def partitions(self) -> list[InputPartition]:
        return [*self.parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(partition, self.schema)
