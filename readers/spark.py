"""A scan as a Spark DataFrame: slices without logs through Spark's own Parquet scan over the explicit file list, the
others merged in Python tasks. Every option the scan depends on is its own, so no answer depends on a session setting.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from hoodoo.engine.parcels import Parcels, pack
from hoodoo.engine.spark import BATCH_ROWS, deal, numbered, prepare_session
from hoodoo.engine.spark_types import holds_time, require_readable, spark_ddl
from hoodoo.readers.predicate import tree as predicates
from hoodoo.readers.slice_task import SliceTask
from hoodoo.readers.task import Task
from hoodoo.storage.local import LocalStore

_OPTIONS = {
    "recursiveFileLookup": "true",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
}
_GLOB = re.compile(r"([\\{}\[\]*?])")


def to_spark(tasks: Sequence[Task], schema: pa.Schema, spark: SparkSession) -> DataFrame:
    """The rows of `tasks` as a DataFrame of `spark`, a classic or Connect session. Raises SchemaError for columns it
    cannot read.
    """
    require_readable(schema)
    native = [task for task in tasks if isinstance(task, SliceTask) and _is_native(task)]
    rest = [task for task in tasks if not (isinstance(task, SliceTask) and _is_native(task))]
    frames = ([_native(spark, native, schema)] if native else []) + ([_merged(spark, rest, schema)] if rest else [])
    if not frames:
        return spark.createDataFrame([], spark_ddl(schema))
    return functools.reduce(lambda left, right: left.unionByName(right), frames)


def _is_native(task: SliceTask) -> bool:
    """Can Spark's own scan read this slice: no logs, a store the session knows (we bring no jar for others), a filter
    it can apply to columns it can read?
    """
    if task.where and any(holds_time(task.config.file_schema.field(name).type) for name in task.where.columns):
        return False
    plain = task.group.base is not None and not task.group.logs and task.changed is None and not task.verified
    return plain and isinstance(task.store, LocalStore) and (task.where is None or task.where.tree is not None)


def _native(spark: SparkSession, tasks: list[SliceTask], schema: pa.Schema) -> DataFrame:
    first = tasks[0]
    paths = [_GLOB.sub(r"\\\1", first.store.url(task.group.base.file.path)) for task in tasks if task.group.base]
    chosen = set(schema.names) | (first.where.columns if first.where else set())  # a column not asked for may be TIME
    asked = pa.schema([field for field in first.config.file_schema if field.name in chosen])
    frame = spark.read.schema(spark_ddl(asked)).options(**_OPTIONS).parquet(*paths)
    if first.where is not None and first.where.tree is not None:
        frame = frame.where(predicates.to_spark(first.where.tree))
    return frame.select(*[f"`{name}`" for name in schema.names])


def _merged(spark: SparkSession, tasks: list[Task], schema: pa.Schema) -> DataFrame:
    prepare_session(spark)
    common, parts = pack(None, tasks)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parcels = Parcels(common)
        for _, part in numbered(batches):
            for rows in parcels.item(part).stream(BATCH_ROWS):
                yield from rows.to_batches(BATCH_ROWS)

    return deal(spark, parts).mapInArrow(read, spark_ddl(schema))
