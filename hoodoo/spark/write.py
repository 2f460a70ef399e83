"""Batch writes with `df.write.format("hoodoo")`.

Spark starts this process next to the driver, without a session. It loads a small batch into memory as a whole. For a
large batch, it loads the rows of a few file groups at a time. `table.upsert(df)` is faster for large batches, because
it merges on Spark. Spark passes on the staged files of one attempt of each task. The files of other attempts are
deleted with the staging folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from hoodoo.arguments import ApplicationVersion
from hoodoo.engine.spark_types import arrow_schema_of
from hoodoo.errors import KeyExists, OptionError
from hoodoo.format.name_mapping import NameMapping
from hoodoo.format.table_schema import TableSchema
from hoodoo.readers.predicate import checks
from hoodoo.spark.source_options import SparkWriteOptions
from hoodoo.table import Table
from hoodoo.writers.batches.cast import require_fields_once
from hoodoo.writers.batches.evolution import find_changes_for_schema
from hoodoo.writers.staging import staged


@dataclass(frozen=True)
class SparkWriteJob:
    """Job that writes a Spark DataFrame to a table.

    Attributes:
        options: The write options.
        preparing: The description of how tasks prepare and stage rows.
        known: The columns of the table when the write was planned.
        columns: The indices of the columns to stage. None: all columns.
        name_mapping: The current and original names of the table's columns. Rows can use both.
    """

    options: SparkWriteOptions
    preparing: staged.StagingJob
    known: TableSchema  # columns of the table when the write was planned
    columns: tuple[int, ...] | None  # indices of the columns to stage; None: all
    name_mapping: NameMapping

    def prepared(self, batches: Iterator[pa.RecordBatch]) -> staged.TaskRows:
        """Prepare the rows of one Spark task.

        Args:
            batches: The rows of the task.

        Raises:
            DataError: A row is invalid.
        """
        chosen = self.columns
        rows = batches if chosen is None else (batch.select(list(chosen)) for batch in batches)
        if self.name_mapping:
            tables = (self.name_mapping.rows(pa.Table.from_batches([batch])) for batch in rows)
            rows = (batch for table in tables for batch in table.to_batches())
        return staged.prepare_task(self.preparing, rows)

    def commit(self, rows: Iterable[staged.TaskRows], transaction: ApplicationVersion | None) -> None:
        """Commit the rows of all tasks.

        Args:
            rows: The staged rows of each task.
            transaction: An application name and an increasing version, or None.

        Raises:
            KeyExists: An inserted key is already in the table.
            HoodooError: Any error that the table method raises.
        """
        options, preparing = self.options, self.preparing
        collected = sorted(rows, key=lambda one: one.partition)
        try:
            evolution = find_changes_for_schema(preparing.schema, self.known) if options.write.evolve else None
            data = replace(staged.collect_prepared_rows(preparing, collected), evolution=evolution)
            write = getattr(Table(preparing.store), options.operation.removeprefix("bulk_"))
            write(data, **self._arguments(transaction))
        except KeyExists as problem:
            if options.named:
                raise
            raise KeyExists(
                f"{problem.message} The write has no option operation, so it is an insert. To replace stored "
                'rows, pass .option("operation", "upsert").',
                **problem.details,
            ) from None
        finally:
            self.discard()

    def discard(self) -> None:
        staged.discard(self.preparing.store, self.preparing.folder)

    def _arguments(self, transaction: ApplicationVersion | None) -> dict[str, Any]:
        options = self.options
        found: dict[str, Any] = {"transaction": transaction}
        if options.operation in ("insert", "bulk_insert"):
            found |= {"existing": options.existing, "bulk": options.operation == "bulk_insert"}
        if options.write.limits:
            found["on_bad_rows"] = options.write.limits
        return found


@dataclass
class TaskMessage(WriterCommitMessage):
    """Message from a Spark task about the files it staged.

    Attributes:
        rows: The rows that the task prepared or staged.
    """

    rows: staged.TaskRows


def plan_write(options: Mapping[str, str], schema: Any, overwrite: bool) -> SparkWriteJob:
    """Plan a Spark batch write.

    Args:
        options: The options by name, as passed by Spark.
        schema: The columns of the rows, as a StructType.
        overwrite: True for mode("overwrite"), which is rejected.

    Returns:
        The description of the write.

    Raises:
        OptionError: An option is unknown or has an invalid value, or `overwrite` is True.
        ColumnError: A column has a duplicate field, or does not match the table.
        TableNotFound: There is no table at the path.
    """
    if overwrite:
        raise OptionError(
            'mode("overwrite") is ambiguous, because it could replace the table or some partitions. Use '
            'hoodoo.open(path).insert_overwrite(df), with whole_table=True to replace all rows. mode("append") '
            'inserts rows, and upserts them with option("operation", "upsert").',
            option="mode",
        )
    return create_write_job(SparkWriteOptions.parse(options), schema)


def create_write_job(chosen: SparkWriteOptions, schema: Any) -> SparkWriteJob:
    """Create the job of a Spark write, and check its columns.

    Args:
        chosen: The write options.
        schema: The columns of the rows, as a StructType.

    Raises:
        ColumnError: A column has a duplicate field, or does not match the table.
        TableNotFound: There is no table at the path.
    """
    table = chosen.open()
    config = table.handle.newest_config()
    rows = config.name_mapping.schema(arrow_schema_of(schema))
    for field in rows:
        require_fields_once(field.type, field.name)  # check all columns, because Spark sends all of them
    delete = chosen.write.delete
    evolution = find_changes_for_schema(rows, config.columns) if chosen.write.evolve else None
    wanted = evolution.of(config) if evolution else config
    columns = tuple(index for index, name in enumerate(rows.names) if name in (*config.key, *config.partition_sources))
    taken = pa.schema([rows.field(index) for index in columns]) if delete else rows
    held = () if delete else checks.load_checks(config)
    store, folder, settled = table.handle.store, staged.new_folder(), config.columns.last
    preparing = staged.StagingJob.of(store, wanted, folder, taken, chosen.write, held, settled)
    return SparkWriteJob(chosen, preparing, config.columns, columns if delete else None, config.name_mapping)


class HoodooWriter(DataSourceArrowWriter):
    """Writer of one Spark batch, for `df.write.format("hoodoo")`.

    Attributes:
        job: The description of the write.
    """

    def __init__(self, job: SparkWriteJob) -> None:
        self.job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Prepare the rows of one Spark task.

        Args:
            iterator: The rows of the task.

        Returns:
            The message with the staged rows.

        Raises:
            DataError: A row is invalid.
        """
        return TaskMessage(self.job.prepared(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the rows of all tasks.

        Args:
            messages: The message of each task.

        Raises:
            KeyExists: An inserted key is already in the table.
            HoodooError: Any error that the table method raises.
        """
        rows = [one.rows for one in messages if isinstance(one, TaskMessage)]
        self.job.commit(rows, self.job.options.write.transaction)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the staged files of a failed job.

        Args:
            messages: The message of each task.
        """
        self.job.discard()
