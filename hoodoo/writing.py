"""How rows are written: upsert, insert, delete, overwrite, sinks.

A part of `hoodoo.table.Table`. Checks arguments, prepares batches and delegates; what a write does is in
hoodoo.writers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from hoodoo.arguments import Transaction, application_version, flag, one_of
from hoodoo.engine.session import is_frame
from hoodoo.errors import CheckFailed
from hoodoo.handle import TableHandle
from hoodoo.partition_values import PartitionValues, partition_folders
from hoodoo.quarantine import limits_of, set_aside
from hoodoo.readers.predicate import checks as row_checks
from hoodoo.results import WriteResult
from hoodoo.spark.sink import Sink
from hoodoo.timeline.config import TableConfig
from hoodoo.writers import operations
from hoodoo.writers.bad_rows import BadRows, Limits, Sieve, sifted
from hoodoo.writers.batch import WriteOptions
from hoodoo.writers.column_alignment import FAIL, NULL
from hoodoo.writers.context import Context
from hoodoo.writers.evolution import of_rows
from hoodoo.writers.input import ArrowLike, to_arrow
from hoodoo.writers.operations import Committed
from hoodoo.writers.sources import InProcess, Source


class Writable:
    """The writes of a table; the rest of it is Table's."""

    handle: TableHandle

    @property
    def path(self) -> str:
        """The folder or s3:// address, whole."""
        return self.handle.store.uri

    def upsert(
        self,
        data: ArrowLike,
        duplicates: str = "newest",
        transaction: Transaction | None = None,
        evolve: bool = False,
        missing: str = FAIL,
        on_bad_rows: str = "fail",
        max_bad_rows: int = 1_000,
        max_bad_share: float = 0.01,
    ) -> WriteResult:
        """Insert new keys and replace the rows of known ones; a row with a smaller ordering value than the stored one
        is dropped as stale.

        data: pyarrow Table or RecordBatchReader, pandas or polars DataFrame, or Spark DataFrame (evaluated once). A
        boolean column `_hoodie_is_deleted` deletes rows by the same ordering rule. duplicates: 'newest' or 'fail'.
        transaction: (application, growing version): a version at or below the newest committed one is skipped.
        evolve: columns, and fields of structs, that the table has not are added to it, and types widened where that is
        exact, in the same commit. missing: 'null' fills columns that the batch lacks with null; without it, one that
        has no default is a ColumnError.
        on_bad_rows: 'fail' refuses the batch for a row whose values do not fit; 'quarantine' keeps such rows in the
        table's quarantine() and writes the others. TooManyBadRows, and nothing committed, where more than max_bad_rows
        are bad, or of at least 100 rows more than the share max_bad_share.
        """
        return self._write(
            data,
            lambda context, source: operations.upsert(context, source, transaction=application_version(transaction)),
            duplicates=duplicates,
            evolve=evolve,
            missing=missing,
            limits=limits_of(on_bad_rows, max_bad_rows, max_bad_share),
            transaction=application_version(transaction),
        )

    def insert(
        self,
        data: ArrowLike,
        existing: str = "fail",
        duplicates: str = "newest",
        transaction: Transaction | None = None,
        evolve: bool = False,
        missing: str = FAIL,
        on_bad_rows: str = "fail",
        max_bad_rows: int = 1_000,
        max_bad_share: float = 0.01,
    ) -> WriteResult:
        """Insert new keys only. existing: 'fail' raises KeyExists before anything is written, 'keep' leaves stored rows
        as they are. on_bad_rows: as upsert takes it.
        """
        one_of("existing", existing, ("fail", "keep"))
        return self._write(
            data,
            lambda context, source: operations.insert(
                context, source, existing, False, application_version(transaction)
            ),
            duplicates=duplicates,
            evolve=evolve,
            missing=missing,
            limits=limits_of(on_bad_rows, max_bad_rows, max_bad_share),
            transaction=application_version(transaction),
        )

    def bulk_insert(
        self,
        data: ArrowLike,
        existing: str = "fail",
        duplicates: str = "newest",
        transaction: Transaction | None = None,
        evolve: bool = False,
        missing: str = FAIL,
        on_bad_rows: str = "fail",
        max_bad_rows: int = 1_000,
        max_bad_share: float = 0.01,
        sort: str | Sequence[str] | None = None,
    ) -> WriteResult:
        """`insert` into new, well-sized file groups only: for large first loads. on_bad_rows: as upsert takes it.

        sort: columns by whose values the rows of each partition are put in order, so that reads that filter by them
        skip more; of a DataFrame, those of each file (cluster() puts partitions in order). Raises ColumnError for one
        that is not there.
        """
        one_of("existing", existing, ("fail", "keep"))
        return self._write(
            data,
            lambda context, source: operations.insert(
                context, source, existing, True, application_version(transaction), sort
            ),
            duplicates=duplicates,
            evolve=evolve,
            missing=missing,
            limits=limits_of(on_bad_rows, max_bad_rows, max_bad_share),
            transaction=application_version(transaction),
        )

    def delete(self, data: ArrowLike, transaction: Transaction | None = None) -> WriteResult:
        """Delete rows by key, whatever their ordering value. `data` has the key and partition columns; others are
        ignored, as are unknown keys.
        """
        return self._write(
            data,
            lambda context, source: operations.upsert(context, source, "DELETE", application_version(transaction)),
            delete=True,
        )

    def insert_overwrite(
        self,
        data: ArrowLike,
        whole_table: bool = False,
        duplicates: str = "newest",
        transaction: Transaction | None = None,
        evolve: bool = False,
        missing: str = FAIL,
        on_bad_rows: str = "fail",
        max_bad_rows: int = 1_000,
        max_bad_share: float = 0.01,
    ) -> WriteResult:
        """Replace the partitions that occur in `data` (an unpartitioned table: all of it), or with whole_table
        everything, by its rows. on_bad_rows: as upsert takes it; a partition of which only bad rows came stays.
        """

        flag("whole_table", whole_table)

        def write(context: Context, source: Source) -> Committed:
            used = source.partitions_used()
            everything = whole_table or (not self.handle.config.partition_by and used)
            return operations.overwrite(
                context,
                source,
                None if everything else used,
                "INSERT_OVERWRITE_TABLE" if whole_table else "INSERT_OVERWRITE",
                application_version(transaction),
            )

        limits = limits_of(on_bad_rows, max_bad_rows, max_bad_share)
        version = application_version(transaction)
        return self._write(data, write, False, duplicates, evolve, missing, limits, version)

    def delete_partitions(self, partitions: PartitionValues, transaction: Transaction | None = None) -> WriteResult:
        """Drop whole partitions, given by value, or by dicts of values where several columns partition. Absent ones are
        ignored.
        """
        context, version = self.handle.context(), application_version(transaction)
        paths = partition_folders(self.handle.config, partitions)
        return self.handle.finished(context, operations.overwrite(context, None, paths, "DELETE_PARTITION", version))

    def sink(self, name: str, operation: str = "upsert", **arguments: object) -> Sink:
        """For `writeStream.foreachBatch(...)`: a function of a DataFrame and its batch number that makes one commit of
        each micro-batch, exactly once.

        name: remembered in the table with the newest batch number, so that a stream with a new checkpoint needs a new
        name.
        operation: 'upsert', 'insert', 'bulk_insert', 'delete' or 'insert_overwrite'; arguments are those of that
        method. Raises OptionError.
        """
        return Sink(self, name, operation, **arguments)

    def _write(
        self,
        data: ArrowLike,
        write: Callable[[Context, Source], Committed],
        delete: bool = False,
        duplicates: str = "newest",
        evolve: bool = False,
        missing: str = FAIL,
        limits: Limits | None = None,
        transaction: Transaction | None = None,
    ) -> WriteResult:
        one_of("duplicates", duplicates, ("newest", "fail"))
        one_of("missing", missing, (FAIL, NULL))
        asked = WriteOptions(delete, duplicates, missing, flag("evolve", evolve))
        context = self.handle.context()

        def written(context: Context, source: Source, bad: BadRows) -> WriteResult:
            kept = set_aside(self.handle, bad, limits, transaction)
            return replace(self.handle.finished(context, write(context, source)), quarantined=kept)

        if isinstance(data, InProcess):  # Spark's tasks prepared it
            begun = self.handle.timeline.ready()  # before bad rows are kept
            return written(replace(context, evolution=data.evolution, begun=begun), data, data.bad)
        if is_frame(data):
            from hoodoo.writers.staged import staged

            config = self.handle.timeline.ready().config  # staging is dear: not for columns that are none any more
            sieve = Sieve(() if delete else row_checks.of(config), limits)
            with staged(context, config, data, asked, sieve) as (context, source, bad):
                return written(context, source, bad)
        given: pa.Table | None = None
        while True:
            state = self.handle.timeline.ready()  # names in the batch are those of the columns that there are now
            given = _as_arrow(data, state.config, missing) if given is None else given
            source, bad = _prepared(given, state.config, asked, limits)
            try:
                return written(replace(context, evolution=source.evolution, begun=state), source, bad)
            except CheckFailed:  # of a check that was set since: the answer names the row as it was given
                continue


def _as_arrow(data: ArrowLike, config: TableConfig, missing: str) -> pa.Table:
    def whole(name: str) -> bool:  # a null is not what its default is
        column = config.columns.by_name.get(name)
        return missing == FAIL or column is not None and column.has_default

    return to_arrow(data, config.schema, whole)


def _prepared(
    given: pa.Table, config: TableConfig, asked: WriteOptions, limits: Limits | None
) -> tuple[InProcess, BadRows]:
    """The batch for the columns of `config`, or, where it may, for those that it changes them to; and its bad rows."""
    evolution = of_rows(given, config) if asked.evolve else None
    sieve = Sieve(() if asked.delete else row_checks.of(config), limits)
    wanted = evolution.of(config) if evolution else config
    batch, bad = sifted(given, wanted, asked, sieve, config.columns.last)
    return InProcess(batch, sieve.checks, evolution=evolution), bad


__all__ = ["Writable"]
