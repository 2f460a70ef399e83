"""The batch write `df.write.format("hoodoo")`: tasks prepare and stage rows, and one process merges them.

That process has no session and is started by Spark beside the driver. It holds the whole batch, so the size of a batch
is limited. `table.upsert(df)` has no limit, because it can merge on Spark. Spark hands over what one attempt of each
task staged. What other attempts staged is deleted with the folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from hoodoo.engine.spark_types import arrow_schema_of
from hoodoo.errors import EngineError, KeyExists, OptionError
from hoodoo.format.table_schema import TableSchema
from hoodoo.readers.predicate import checks
from hoodoo.spark.source_options import SparkWriteOptions
from hoodoo.table import Table
from hoodoo.writers.batches.cast import require_fields_once
from hoodoo.writers.batches.evolution import of_schema
from hoodoo.writers.staging import staged


@dataclass(frozen=True)
class Job:
    """What the tasks and the commit of a write know.

    Attributes:
        options: What to write.
        preparing: How tasks prepare rows, and where they stage them.
        known: The columns of the table when the write was planned.
        columns: The indices of the columns that are staged. None: all.
        bound: How large a batch may be, in bytes.
    """

    options: SparkWriteOptions
    preparing: staged.StagingJob
    known: TableSchema  # the table's columns when the write was planned
    columns: tuple[int, ...] | None  # indices of those that are staged; None: all
    bound: int

    @property
    def deletes(self) -> bool:
        """True if the write deletes rows."""
        return self.options.write.delete


@dataclass
class TaskMessage(WriterCommitMessage):
    """What a task sends to the commit.

    Attributes:
        rows: The rows that the task prepared or staged.
    """

    rows: staged.TaskRows


def planned(options: Mapping[str, str], schema: Any, overwrite: bool) -> Job:
    """Plan and check a write.

    Args:
        options: The options by name, as Spark gives them.
        schema: The columns of the rows, as a StructType.
        overwrite: True if mode("overwrite") was asked for, which is refused.

    Returns:
        The write.

    Raises:
        OptionError: An option is unknown or has a value that it cannot have, or `overwrite` is True.
        ColumnError: A column has one field twice, or does not fit the table.
        TableNotFound: There is no table at the path.
    """
    if overwrite:
        raise OptionError(
            'mode("overwrite") could mean the table or some partitions: use '
            "hoodoo.open(path).insert_overwrite(df), with whole_table=True to replace all rows. "
            'mode("append") inserts, and upserts with option("operation", "upsert").',
            option="mode",
        )
    chosen = SparkWriteOptions.of(options)
    table = chosen.open()
    config = table.handle.newest_config()
    rows = arrow_schema_of(schema)
    for field in rows:
        require_fields_once(field.type, field.name)  # of all columns, as Spark sends them all
    delete = chosen.write.delete
    evolution = of_schema(rows, config.columns) if chosen.write.evolve else None
    wanted = evolution.of(config) if evolution else config
    columns = tuple(index for index, name in enumerate(rows.names) if name in (*config.key, *config.placing))
    taken = pa.schema([rows.field(index) for index in columns]) if delete else rows
    held = () if delete else checks.of(config)
    store, folder, settled = table.handle.store, staged.new_folder(), config.columns.last
    preparing = staged.StagingJob.of(store, wanted, folder, taken, chosen.write, held, settled)
    return Job(chosen, preparing, config.columns, columns if delete else None, staged.IN_PROCESS_BYTES)


class HoodooWriter(DataSourceArrowWriter):
    """The writer of a batch write.

    Attributes:
        job: The write.
    """

    def __init__(self, job: Job) -> None:
        self.job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Prepare and stage the rows of a task.

        Args:
            iterator: The rows.

        Returns:
            What the task staged.

        Raises:
            EngineError: The rows of the task are more than one process can merge.
            DataError: A row cannot be written.
        """
        job = self.job
        rows = self._within_bound(
            batch if job.columns is None else batch.select(list(job.columns)) for batch in iterator
        )
        return TaskMessage(staged.prepare_task(job.preparing, rows))

    def _within_bound(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        size = 0
        for batch in batches:
            size += batch.nbytes
            if size > self.job.bound:
                raise self._too_large(size)
            yield batch

    def _too_large(self, size: int) -> EngineError:
        return EngineError(
            f"The batch has more than {size >> 20} MiB; df.write merges in one process and takes at most "
            f"{self.job.bound >> 20} MiB. Nothing was written. "
            f"Use hoodoo.open(path).{self.job.options.operation}(df), which merges large batches on Spark.",
            bytes=size,
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Merge and commit what the tasks staged.

        Args:
            messages: What each task staged.

        Raises:
            EngineError: The batch is more than one process can merge.
            KeyExists: An insert brings a key that the table has.
            HoodooError: What the method of the table raises.
        """
        job = self.job
        collected = sorted(
            (one.rows for one in messages if isinstance(one, TaskMessage)), key=lambda rows: rows.partition
        )
        try:
            size = staged.bytes_of(collected)
            if size > job.bound:
                raise self._too_large(size)
            rows = staged.fetched(job.preparing, collected)
            if job.options.write.evolve:
                rows = replace(rows, evolution=of_schema(job.preparing.schema, job.known))
            getattr(Table(job.preparing.store), job.options.operation)(rows, **self._arguments())
        except KeyExists as problem:
            if job.options.named:
                raise
            raise KeyExists(
                f"{problem.message} The write named no operation, so it is an insert: "
                '.option("operation", "upsert") replaces stored rows.',
                **problem.details,
            ) from None
        finally:
            staged.discard(job.preparing.store, job.preparing.folder)

    def _arguments(self) -> dict[str, Any]:
        options = self.job.options
        found: dict[str, Any] = {"transaction": options.write.transaction}
        if options.operation in ("insert", "bulk_insert"):
            found["existing"] = options.existing
        if limits := options.write.limits:
            found |= {"on_bad_rows": "quarantine", "max_bad_rows": limits.rows, "max_bad_share": limits.share}
        return found

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete what the tasks staged.

        Args:
            messages: What each task staged.
        """
        staged.discard(self.job.preparing.store, self.job.preparing.folder)
