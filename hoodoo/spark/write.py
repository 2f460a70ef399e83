"""The batch write `df.write.format("hoodoo")`: tasks prepare and stage rows, and one process merges them.

That process has no session and is started by Spark beside the driver. It holds a small batch as a whole, and of a large
one the rows of a few file groups at a time. `table.upsert(df)` is faster for those, because it merges on Spark. Spark
hands over what one attempt of each task staged. What other attempts staged is deleted with the folder.
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
from hoodoo.format.spellings import Spellings
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
        spellings: The names of the table's columns, by either of which the rows may have them.
    """

    options: SparkWriteOptions
    preparing: staged.StagingJob
    known: TableSchema  # the table's columns when the write was planned
    columns: tuple[int, ...] | None  # indices of those that are staged; None: all
    spellings: Spellings

    def prepared(self, batches: Iterator[pa.RecordBatch]) -> staged.TaskRows:
        """Prepare and stage the rows of a task.

        Args:
            batches: The rows.

        Raises:
            DataError: A row cannot be written.
        """
        chosen = self.columns
        rows = batches if chosen is None else (batch.select(list(chosen)) for batch in batches)
        if self.spellings:
            tables = (self.spellings.rows(pa.Table.from_batches([batch])) for batch in rows)
            rows = (batch for table in tables for batch in table.to_batches())
        return staged.prepare_task(self.preparing, rows)

    def commit(self, rows: Iterable[staged.TaskRows], transaction: ApplicationVersion | None) -> None:
        """Merge and commit what tasks staged, and delete it there.

        Args:
            rows: What each task staged.
            transaction: An application name and a growing version, or None.

        Raises:
            KeyExists: An insert brings a key that the table has.
            HoodooError: What the method of the table raises.
        """
        options, preparing = self.options, self.preparing
        collected = sorted(rows, key=lambda one: one.partition)
        try:
            evolution = of_schema(preparing.schema, self.known) if options.write.evolve else None
            data = replace(staged.gathered(preparing, collected), evolution=evolution)
            getattr(Table(preparing.store), options.operation)(data, **self._arguments(transaction))
        except KeyExists as problem:
            if options.named:
                raise
            raise KeyExists(
                f"{problem.message} The write named no operation, so it is an insert: "
                '.option("operation", "upsert") replaces stored rows.',
                **problem.details,
            ) from None
        finally:
            self.discard()

    def discard(self) -> None:
        """Delete what tasks staged."""
        staged.discard(self.preparing.store, self.preparing.folder)

    def _arguments(self, transaction: ApplicationVersion | None) -> dict[str, Any]:
        options = self.options
        found: dict[str, Any] = {"transaction": transaction}
        if options.operation in ("insert", "bulk_insert"):
            found["existing"] = options.existing
        if limits := options.write.limits:
            found |= {"on_bad_rows": "quarantine", "max_bad_rows": limits.rows, "max_bad_share": limits.share}
        return found


@dataclass
class TaskMessage(WriterCommitMessage):
    """What a task sends to the commit.

    Attributes:
        rows: The rows that the task prepared or staged.
    """

    rows: staged.TaskRows


def planned(options: Mapping[str, str], schema: Any, overwrite: bool) -> Job:
    """Plan and check a batch write.

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
    return job_of(SparkWriteOptions.of(options), schema)


def job_of(chosen: SparkWriteOptions, schema: Any) -> Job:
    """Plan and check a write, of a batch or of a micro-batch of a stream.

    Args:
        chosen: What to write.
        schema: The columns of the rows, as a StructType.

    Raises:
        ColumnError: A column has one field twice, or does not fit the table.
        TableNotFound: There is no table at the path.
    """
    table = chosen.open()
    config = table.handle.newest_config()
    rows = config.spellings.schema(arrow_schema_of(schema))
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
    return Job(chosen, preparing, config.columns, columns if delete else None, config.spellings)


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
            DataError: A row cannot be written.
        """
        return TaskMessage(self.job.prepared(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Merge and commit what the tasks staged.

        Args:
            messages: What each task staged.

        Raises:
            KeyExists: An insert brings a key that the table has.
            HoodooError: What the method of the table raises.
        """
        rows = [one.rows for one in messages if isinstance(one, TaskMessage)]
        self.job.commit(rows, self.job.options.write.transaction)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete what the tasks staged.

        Args:
            messages: What each task staged.
        """
        self.job.discard()
