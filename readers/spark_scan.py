"""Conversion of a scan to a Spark DataFrame.

Spark's own Parquet scan reads file slices without logs, from an explicit file list. Python tasks merge the other file
slices. The scan sets every option that affects its result, so that session settings cannot change the result.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from hoodoo.engine.spark import BATCH_ROWS, distribute_tasks, numbered, prepare_session
from hoodoo.engine.spark_types import contains_time_of_day, require_spark_support, schema_to_ddl, type_to_spark_ddl
from hoodoo.engine.task_pickling import TaskDeserializer, serialize_tasks
from hoodoo.format.convert import is_exact
from hoodoo.format.names import META_COLUMNS, RECORD_KEY
from hoodoo.format.resolve import ColumnMapping, ColumnSource
from hoodoo.readers.predicate import tree as predicates
from hoodoo.readers.slices.slice_task import SliceTask
from hoodoo.readers.task import Task
from hoodoo.storage.local import LocalStore

_OPTIONS = {
    "recursiveFileLookup": "true",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
}
Differences = tuple[tuple[str, tuple[str, str] | None], ...]
_GLOB = re.compile(r"([\\{}\[\]*?])")


def to_spark(tasks: Sequence[Task], schema: pa.Schema, spark: SparkSession) -> DataFrame:
    """Create a Spark DataFrame from read tasks.

    Raises SchemaError for columns that Spark cannot read.
    """
    require_spark_support(schema)
    native: dict[Differences, list[SliceTask]] = {}
    rest: list[Task] = []
    for task in tasks:
        if isinstance(task, SliceTask) and _can_spark_read(task):
            native.setdefault(_column_differences(task), []).append(task)
        else:
            rest.append(task)
    frames = [_read_with_spark(spark, group, schema) for group in native.values()]
    frames += [_read_in_python_tasks(spark, rest, schema)] if rest else []
    if not frames:
        return spark.createDataFrame([], schema_to_ddl(schema))
    return functools.reduce(lambda left, right: left.unionByName(right), frames)


def _can_spark_read(task: SliceTask) -> bool:
    """Check whether Spark can read the files of a task.

    The file slice must have no logs, and its store must be local, because hoodoo ships no jars for other stores. Spark
    must be able to apply the filter. The file must contain each requested column, or Spark must be able to compute it
    with one expression.
    """
    if task.where and any(
        contains_time_of_day(task.config.file_schema.field(name).type) for name in task.where.columns
    ):
        return False
    plain = task.group.base is not None and not task.group.logs and task.changed is None and not task.verified
    if (
        not plain
        or not isinstance(task.store, LocalStore)
        or not (task.where is None or task.where.is_decided_by_syntax_tree)
    ):
        return False
    if task.config.virtual_keys and RECORD_KEY in _read_columns(task):
        return False  # a virtual key is computed from other columns
    assert task.group.base is not None
    sources = task.config.resolution(task.group.base.file).sources
    return all(_can_spark_compute(sources[name]) for name in _read_columns(task) if name in sources)


def _column_differences(task: SliceTask) -> Differences:
    # File slices with equal differences are read together.
    assert task.group.base is not None
    sources = task.config.resolution(task.group.base.file).sources
    asked = [(name, sources[name]) for name in _read_columns(task) if name in sources]
    return tuple((name, (source.name, str(source.was)) if source else None) for name, source in asked)


def _read_columns(task: SliceTask) -> list[str]:
    return list(dict.fromkeys([*task.columns, *sorted(task.where.columns if task.where else ())]))


def _can_spark_compute(source: ColumnSource | None) -> bool:
    # Spark can compute a column as null, from a column with another name, or by a cast. Conversions of floats to
    # another type run in Python. They use the shortest decimal text of the float, which may differ from Java's text.
    if source is None:
        return True
    wanted = source.column.arrow
    return source.children is None and (source.was == wanted or is_exact(source.was, wanted) and not _is_float(source))


def _is_float(source: ColumnSource) -> bool:
    return bool(pa.types.is_float32(source.was))


def _read_with_spark(spark: SparkSession, tasks: list[SliceTask], schema: pa.Schema) -> DataFrame:
    # The base files of all tasks store the requested columns in the same way.
    first = tasks[0]
    config, base = first.config, first.group.base
    assert base is not None
    resolution = config.resolution(base.file)
    paths = [_GLOB.sub(r"\\\1", first.store.url(task.group.base.file.path)) for task in tasks if task.group.base]
    wanted = list(dict.fromkeys([*schema.names, *_read_columns(first)]))
    meta = [config.file_schema.field(name) for name in META_COLUMNS]
    stored = pa.schema([*meta, *config.columns_of(base.file).arrow])
    needed = set(resolution.names_of(wanted)) or {RECORD_KEY}  # other columns may have the type TIME
    read = pa.schema([field for field in stored if field.name in needed])
    frame = spark.read.schema(schema_to_ddl(read)).options(**_OPTIONS).parquet(*paths)
    fields = [config.file_schema.field(name) for name in wanted]
    if not resolution.changes_nothing or any(_contains_float(field.type) for field in fields):
        frame = frame.selectExpr(*(_column_expression(resolution, field) for field in fields))
    if first.where is not None and first.where.tree is not None:
        remote = type(frame).__module__.startswith("pyspark.sql.connect")
        frame = frame.where(predicates.to_spark(first.where.tree, remote))
    return frame.select(*[f"`{name}`" for name in schema.names])


def _column_expression(resolution: ColumnMapping, field: pa.Field) -> str:
    # Parquet statistics exclude NaN, which Spark sorts above all numbers. If a condition on floats were pushed down to
    # Spark's Parquet reader, rows with NaN would be lost. `coalesce` prevents the pushdown.
    name = resolution.name_of(field.name)
    value = "NULL" if name is None else f"`{name}`"
    if name is not None and _contains_float(field.type):
        value = f"coalesce({value}, {value})"
    if field.name in resolution.sources:
        value = f"CAST({value} AS {type_to_spark_ddl(field.type)})"
    return f"{value} AS `{field.name}`"


def _contains_float(kind: pa.DataType) -> bool:
    # Spark pushes down conditions on floats and on structs with floats.
    if pa.types.is_struct(kind):
        return any(_contains_float(field.type) for field in kind)
    return bool(pa.types.is_floating(kind))


def _read_in_python_tasks(spark: SparkSession, tasks: list[Task], schema: pa.Schema) -> DataFrame:
    prepare_session(spark)
    shared, parts = serialize_tasks(None, tasks)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tasks = TaskDeserializer(shared)
        for _, part in numbered(batches):
            for rows in tasks.item(part).stream(BATCH_ROWS):
                yield from rows.to_batches(BATCH_ROWS)

    return distribute_tasks(spark, parts).mapInArrow(read, schema_to_ddl(schema))
