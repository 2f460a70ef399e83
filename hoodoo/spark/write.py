"""`df.write.format("hoodoo")`: tasks prepare and stage rows, and one process without a session, which Spark starts
beside the driver, merges them.

That process holds the whole batch, so that there is a bound; `table.upsert(df)` has none, as it can use Spark for the
merge. Spark hands over what one attempt of each task gave; what other attempts staged goes away with the folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

import hoodoo
from hoodoo.engine.spark_types import arrow_schema_of
from hoodoo.errors import EngineError, OptionError
from hoodoo.format.table_schema import TableSchema
from hoodoo.readers.predicate import checks
from hoodoo.spark.options import SparkWriteOptions
from hoodoo.writers import staged
from hoodoo.writers.bad_rows import Sieve
from hoodoo.writers.batch import WriteOptions
from hoodoo.writers.cast import require_fields_once
from hoodoo.writers.evolution import of_schema


@dataclass(frozen=True)
class Job:
    """What the tasks and the commit of one write have to know."""

    options: SparkWriteOptions
    preparing: staged.Preparing
    known: TableSchema  # the table's columns when the write was planned
    columns: tuple[int, ...] | None  # places of those that are staged; None: all
    bound: int

    @property
    def deletes(self) -> bool:
        return self.options.operation == "delete"


@dataclass
class Staged(WriterCommitMessage):
    """What a task prepared."""

    rows: staged.Collected


def planned(options: Mapping[str, str], schema: Any, overwrite: bool) -> Job:
    """A checked write. Raises OptionError, ColumnError, TableNotFound."""
    if overwrite:
        raise OptionError(
            'mode("overwrite") could mean the table or some partitions: use '
            "hoodoo.open(path).insert_overwrite(df), with whole_table=True to replace all rows. "
            'mode("append") upserts.',
            option="mode",
        )
    chosen = SparkWriteOptions.of(options)
    table = chosen.open()
    config = table.handle.newest_config()
    rows = arrow_schema_of(schema)
    for field in rows:
        require_fields_once(field.type, field.name)  # of all columns, as Spark sends them all
    delete = chosen.operation == "delete"
    evolution = of_schema(rows, config.columns) if chosen.evolve else None
    wanted = evolution.of(config) if evolution else config
    columns = tuple(place for place, name in enumerate(rows.names) if name in (*config.key, *config.partition_by))
    taken = pa.schema([rows.field(place) for place in columns]) if delete else rows
    asked = WriteOptions(delete, chosen.duplicates, chosen.missing, chosen.evolve)
    sieve = Sieve(() if delete else checks.of(config), chosen.limits)
    store, folder, settled = table.handle.store, staged.new_folder(), config.columns.last
    preparing = staged.Preparing.of(store, wanted, folder, taken, asked, settled, sieve)
    return Job(chosen, preparing, config.columns, columns if delete else None, staged.IN_PROCESS_BYTES)


class HoodooWriter(DataSourceArrowWriter):
    def __init__(self, job: Job) -> None:
        self.job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Runs in a task."""
        job = self.job
        rows = self._within_bound(
            batch if job.columns is None else batch.select(list(job.columns)) for batch in iterator
        )
        return Staged(staged.prepare_task(job.preparing, rows))

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
        """Runs beside the driver, after all tasks."""
        job = self.job
        collected = sorted((one.rows for one in messages if isinstance(one, Staged)), key=lambda rows: rows.partition)
        try:
            size = staged.bytes_of(collected)
            if size > job.bound:
                raise self._too_large(size)
            rows = staged.fetched(job.preparing, collected)
            if job.options.evolve:
                rows = replace(rows, evolution=of_schema(job.preparing.schema, job.known))
            getattr(hoodoo.Table(job.preparing.store), job.options.operation)(rows, **self._arguments())
        finally:
            staged.discard(job.preparing.store, job.preparing.folder)

    def _arguments(self) -> dict[str, Any]:
        options = self.job.options
        found: dict[str, Any] = {"transaction": options.transaction}
        if options.operation in ("insert", "bulk_insert"):
            found["existing"] = options.existing
        if options.limits:
            found |= {"on_bad_rows": "quarantine"}
            found |= {"max_bad_rows": options.limits.rows, "max_bad_share": options.limits.share}
        return found

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        staged.discard(self.job.preparing.store, self.job.preparing.folder)
