"""Spark data source `hoodoo`.

Spark creates the source, plans with it and runs its tasks in different processes, so all objects can be pickled.
Loading a DataFrame or creating a view fixes the snapshot, so all operations on it read the same rows. Streams and
writes are in stream.py, write.py and stream_write.py.
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

from hoodoo.engine.session import require_spark_session
from hoodoo.engine.spark import prepare_session, reduce_with_code
from hoodoo.engine.spark_types import arrow_schema_of, require_spark_support, schema_to_ddl
from hoodoo.errors import EngineError, HoodooError
from hoodoo.spark import tables as spark_tables
from hoodoo.spark.parts import (
    ReadPart,
    commits_to_keep_readable,
    get_read_schema,
    read_part,
    require_schema,
    split_read,
    start_read,
)
from hoodoo.spark.source_options import ReadOptions
from hoodoo.spark.stream import HoodooStream
from hoodoo.spark.stream_write import create_stream_writer
from hoodoo.spark.write import HoodooWriter, plan_write

_OLDEST = (4, 2)  # oldest supported PySpark version: the first with read limits for streams
_registered: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def register(spark: SparkSession) -> None:
    """Register the data source `hoodoo` in a Spark session.

    A second call does nothing. hoodoo sends its own code to Spark. The packages that it depends on must be installed
    where Spark runs Python.

    Args:
        spark: The session, classic or Connect.

    Raises:
        EngineError: PySpark is older than 4.2, `spark` is not a session, or Spark's workers lack a package that hoodoo
            needs.
    """
    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < _OLDEST:
        raise EngineError(
            f"The data source needs PySpark {'.'.join(map(str, _OLDEST))} or later, got {pyspark.__version__}. "
            "With this version, use hoodoo.open(path)."
        )
    require_spark_session(spark)
    if spark in _registered:
        return
    prepare_session(spark)
    spark.dataSource.register(HoodooSource)
    spark_tables.register(spark)
    _registered.add(spark)


class HoodooSource(DataSource):
    """Spark data source behind `format("hoodoo")`.

    Attributes:
        fixed: The slot of the fixed snapshot, or None before it is fixed.
    """

    def __init__(self, options: MutableMapping[str, str], fixed: int | None = None) -> None:
        super().__init__(options)
        self.fixed = fixed

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce_with_code("hoodoo.spark.source", "HoodooSource", (dict(self.options), self.fixed))

    @classmethod
    def name(cls) -> str:
        return "hoodoo"

    def schema(self) -> str:
        """Return the columns of a read.

        Spark calls this method once, in `load` or CREATE VIEW, before it is known whether the read is a stream. A
        stream ignores the fixed snapshot.

        Returns:
            The columns, as a DDL string.

        Raises:
            OptionError: An option is unknown or has an invalid value.
            TableNotFound: There is no table at the path.
            SchemaError: Spark cannot read the type of a column.
        """
        options = ReadOptions.parse(self.options, None)
        table = options.open()
        try:
            rows = start_read(table, options)
            self.fixed, schema = rows.cursor.seq, rows.schema
        except HoodooError:  # a stream continues from its checkpoint, even if its original start is no longer readable
            schema = get_read_schema(table, options)
        require_spark_support(schema)
        return schema_to_ddl(schema)

    def reader(self, schema: Any) -> HoodooReader:
        """Return the reader for `spark.read`.

        Args:
            schema: The columns that Spark expects, as a StructType.

        Returns:
            The reader.

        Raises:
            OptionError: An option is unknown or has an invalid value.
            SchemaError: The table has different columns than Spark expects.
        """
        options = ReadOptions.parse(self.options)
        table = options.open()
        rows = start_read(table, options, self.fixed)
        require_schema(rows.schema, schema_to_ddl(arrow_schema_of(schema)))
        return HoodooReader(split_read(rows, table, commits_to_keep_readable(table, options, rows.cursor.seq)), schema)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Return the reader for `spark.readStream`.

        Args:
            schema: The columns that Spark expects, as a StructType.

        Returns:
            The reader.

        Raises:
            OptionError: An option is unknown or has an invalid value.
        """
        return HoodooStream(ReadOptions.parse(self.options, True), schema)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        """Return the writer for `df.write`.

        Args:
            schema: The columns of the rows, as a StructType.
            overwrite: True for mode("overwrite"), which is rejected.

        Returns:
            The writer.

        Raises:
            OptionError: An option is unknown or has an invalid value, or `overwrite` is True.
            ColumnError: A column has a duplicate field, or does not match the table.
            TableNotFound: There is no table at the path.
        """
        return HoodooWriter(plan_write(self.options, schema, overwrite))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer for `writeStream`.

        Args:
            schema: The columns of the rows, as a StructType.
            overwrite: True for output mode 'complete', which is rejected.

        Returns:
            The writer.

        Raises:
            OptionError: An option is unknown, missing or has an invalid value, or `overwrite` is True.
            ColumnError: A column has a duplicate field, or does not match the table.
            TableNotFound: There is no table at the path.
        """
        return create_stream_writer(self.options, schema, overwrite)


class HoodooReader(DataSourceReader):
    def __init__(self, parts: list[ReadPart], schema: Any) -> None:
        self.parts, self.schema = parts, schema

    def __reduce__(self) -> tuple[Any, ...]:
        return HoodooReader, ([], self.schema)  # each task gets the reader without parts, and its own part separately

    def partitions(self) -> list[InputPartition]:
        return [*self.parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one Spark partition.

        Args:
            partition: The partition.

        Returns:
            The rows, in batches.
        """
        return read_part(partition, self.schema)
