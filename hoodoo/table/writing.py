"""Write methods of a table: upsert, insert, delete, overwrite, sinks.

A part of `hoodoo.table.Table`. Checks arguments, prepares batches and delegates; what a write does is in
hoodoo.writers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from hoodoo.arguments import Transaction, application_version, flag, one_of
from hoodoo.engine.session import is_frame
from hoodoo.errors import CheckFailed, OptionError
from hoodoo.hints import explained
from hoodoo.merge.modes import REPLACE, MergeLike, MergeMode
from hoodoo.readers.cursor import PositionLike
from hoodoo.readers.predicate import checks as row_checks
from hoodoo.redact import printable
from hoodoo.table.given_rows import (
    as_arrow,
    as_partial,
    bad_row_limits,
    checks_of,
    is_without_partition,
    options_of,
    prepared,
    spelled,
)
from hoodoo.table.results import WriteResult
from hoodoo.table.updating import Updatable
from hoodoo.writers import operations
from hoodoo.writers.batches.bad_rows import BadRows, none_of
from hoodoo.writers.batches.batch import prepare
from hoodoo.writers.batches.column_alignment import FAIL, KEEP, NULL
from hoodoo.writers.batches.input import ArrowLike
from hoodoo.writers.batches.partial_columns import (
    GIVEN,
    ColumnsLike,
    columns_named,
)
from hoodoo.writers.batches.write_options import NewKeys, WriteOptions
from hoodoo.writers.context import Context
from hoodoo.writers.operations import Committed
from hoodoo.writers.sources import InEveryPartition, InProcess, Prepared, Source

if TYPE_CHECKING:
    from hoodoo.readers.predicate.filter import Where
    from hoodoo.table.keys_given import KeysLike
    from hoodoo.table.partition_values import PartitionValues
    from hoodoo.table.sink import Sink

Write = Callable[[Context, Source], Committed]
"""Commits what a source gives."""


@explained
class Writable(Updatable):
    """The write methods of `Table`."""

    @property
    def path(self) -> str:
        """The full path of the table: a local folder or an s3:// address."""
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
        if_head: PositionLike | None = None,
        columns: ColumnsLike | None = None,
        new_keys: str = "insert",
        merge: MergeLike = REPLACE,
        unavailable: str | None = None,
    ) -> WriteResult:
        """Insert rows with new keys and replace the rows of known keys, or some columns of them.

        A row whose ordering value is smaller than that of the stored row is stale: it is dropped. On a tie the incoming
        row wins. In a table without `order_by` the later write wins.

        Args:
            data: Rows as a pyarrow Table, RecordBatch or RecordBatchReader, a pandas, polars or Spark DataFrame, a
                DuckDB relation, an object with `__arrow_c_stream__` or `__arrow_c_array__`, a list of dicts, a dict of
                lists, or an iterator of record batches; or the path of a Parquet, CSV, JSON lines or Avro file, plain
                or compressed, or a pattern such as "in/*.csv". A Spark DataFrame is evaluated once. A boolean column
                `_hoodie_is_deleted` with the value true deletes the row by the same ordering rule.
            duplicates: What to do with several rows of one key in `data`: 'newest' (default) keeps the row with the
                largest ordering value, and on a tie the later row; 'fail' refuses the batch.
            transaction: An application name and a growing version, such as ("job-7", 42). The name has 1 to 1,000
                characters, the version is a whole number from 0. A version at or below the newest committed version of
                the application is skipped. With a position behind it, a text that says how far the application has read
                its source, versions have no gaps: `table.application("job-7").next(position)` makes such a
                transaction, and a write is refused where another process of the application came first. None
                (default): the write has no version.
            evolve: True adds columns, and fields of structs, that the table does not have, and widens types where that
                is exact, in the same commit. False (default): such a batch is refused.
            missing: What to do with columns that the batch lacks and that have no default: 'fail' (default) refuses the
                batch, 'keep' leaves stored values as they are (`columns="given"`), 'null' overwrites stored values with
                null.
            on_bad_rows: What to do with rows whose values do not fit: 'fail' (default) refuses the batch for the first
                of them, 'quarantine' keeps them in the table's `quarantine()` and writes the other rows.
            max_bad_rows: How many bad rows 'quarantine' sets aside at most, in rows. Default 1,000.
            max_bad_share: Which share of a batch of 100 rows or more 'quarantine' sets aside at most, as a fraction.
                Default 0.01.
            if_head: A position as `scan` takes it. The batch is committed only if no row was written since, so that
                who reads, changes and writes loses nobody's rows. None (default): it does not matter.
            columns: The columns that change: 'given' for those that the batch has, or a list of names; other columns of
                the batch are ignored then. Stored rows keep their values of all others, and a new row gets its default
                there, or null. The key, partition and ordering columns are needed all the same. Rows that are equal to
                the stored ones are not written. None (default): the write replaces whole rows.
            new_keys: What to do with keys that the table does not have: 'insert' (default), 'ignore' leaves their rows
                out, 'fail' refuses the batch.
            merge: How a row of the batch and the stored row of its key become one: 'replace' (default) takes the row of
                the batch, 'keep_non_null' keeps stored values where the batch has null or lacks the column, and a
                `hoodoo.CustomMerge` calls a function. A row that is stale changes nothing all the same. Several rows of
                one key are merged with each other first. As with `columns`, stored rows are read.
            unavailable: A text that stands for a value that was not sent, such as Debezium's
                '__debezium_unavailable_value': in columns of text and bytes, and in lists that have only this text or
                the codes of its characters, it keeps the stored value. A new key needs all values. None (default):
                there is no such text.

        Returns:
            The cursor of the commit, and counts of rows and files.

        Raises:
            OptionError: An argument does not have one of the values above; `on_bad_rows` is 'quarantine' and the
                rows do not replace others as a whole, or the table is at the root of a bucket, so that no quarantine
                can be beside it.
            ColumnError: A column is missing, unknown or given twice, or a value does not fit its column. Also where
                `data` is nothing that rows can be taken from.
            KeyValueError: A key is null, too long or ambiguous.
            PartitionValueError: A partition value cannot be the name of a folder.
            OrderingError: An ordering value is null, NaN or `unavailable`.
            CheckFailed: A row fails one of the table's checks.
            DuplicateKeys: A key occurs twice in `data` and `duplicates` is 'fail'.
            KeyNotFound: The table does not have a key and `new_keys` is 'fail'. The error names the first ten.
            TooManyBadRows: There are more than `max_bad_rows` bad rows, or 100 rows or more with a larger share than
                `max_bad_share`, or more than 64 MiB of bad rows. Nothing is committed; the first 100 bad rows are kept.
            SchemaError: With `evolve`, a new column has a type or a name that the table cannot have, or a check looks
                at a column that would be widened.
            RewriteNeeded: With `evolve`, a new column has the name of a former column whose values are still in files.
            CommitConflict: Other writers came first more than `max_retries` times, or rows were written since
                `if_head`. Nothing was written.
            CommitUnknown: The store did not say in time whether the commit succeeded; ask its `resolve()`.
            Fenced: Somebody rolled this write back while it ran.
        """
        one_of("new_keys", new_keys, [each.value for each in NewKeys])
        limits = bad_row_limits(on_bad_rows, max_bad_rows, max_bad_share)
        one_of("missing", missing, (FAIL, KEEP, NULL))
        if missing == NULL and columns is not None:
            raise OptionError(
                "missing='null' overwrites stored values with null, and columns keeps them. Leave one of them out.",
                option="missing",
            )
        if missing == KEEP:
            missing, columns = FAIL, GIVEN if columns is None else columns
        mode = MergeMode.of(merge, unavailable)
        if mode.keep_non_null and columns is None:
            missing, columns = FAIL, GIVEN  # a column that the batch lacks says no more than one of nulls
        if mode.custom is not None and columns is not None:
            raise OptionError(
                "A CustomMerge gets whole rows: leave columns out, and missing='keep'. Its function returns the "
                "columns that change.",
                option="merge",
            )
        if limits is not None and (columns is not None or not mode.replaces_rows):
            raise OptionError(
                "on_bad_rows='quarantine' takes rows that replace others as a whole: another one could not be told "
                "from them when it is replayed. Write the batch with on_bad_rows='fail'.",
                option="on_bad_rows",
            )
        options = replace(
            options_of(duplicates, missing, evolve, limits, transaction),
            if_head=if_head,
            columns=None if columns is None else columns_named(columns),
            mode=mode,
        )
        if options.takes_over or new_keys != NewKeys.INSERT:
            return self._upsert_into_stored(data, options, NewKeys(new_keys))
        return self._write(
            data,
            options,
            lambda context, source: operations.upsert(context, source, transaction=options.transaction),
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
        if_head: PositionLike | None = None,
    ) -> WriteResult:
        """Insert rows with new keys only.

        Args:
            data: Rows, as `upsert` takes them.
            existing: What to do with a key that the table has: 'fail' (default) raises KeyExists before anything is
                written, 'keep' leaves the stored row as it is and skips the incoming row.
            duplicates: 'newest' (default) or 'fail', as in `upsert`.
            transaction: An application name and a growing version, as in `upsert`. None (default): no version.
            evolve: True adds columns and widens types, as in `upsert`. Default False.
            missing: 'fail' (default) or 'null', as in `upsert`.
            on_bad_rows: 'fail' (default) or 'quarantine', as in `upsert`.
            max_bad_rows: How many bad rows are set aside at most, in rows. Default 1,000.
            max_bad_share: Which share of 100 rows or more is set aside at most, as a fraction. Default 0.01.
            if_head: A position, as in `upsert`. None (default): it does not matter.

        Returns:
            The cursor of the commit, and counts of rows and files.

        Raises:
            KeyExists: A key is in the table and `existing` is 'fail'. The error names the first ten.
            OptionError: An argument does not have one of the values above.
            DataError: A batch does not fit the table. `upsert` lists which error is raised when.
            SchemaError: With `evolve`, the table cannot have the columns of the batch.
            RewriteNeeded: With `evolve`, a new column has the name of a former column whose values are still in files.
            CommitConflict: Other writers came first more than `max_retries` times, or rows were written since
                `if_head`. Nothing was written.
            CommitUnknown: The store did not say in time whether the commit succeeded; ask its `resolve()`.
            Fenced: Somebody rolled this write back while it ran.
        """
        one_of("existing", existing, ("fail", "keep"))
        limits = bad_row_limits(on_bad_rows, max_bad_rows, max_bad_share)
        options = replace(options_of(duplicates, missing, evolve, limits, transaction), if_head=if_head)
        return self._write(
            data,
            options,
            lambda context, source: operations.insert(context, source, existing, False, options.transaction),
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
        """Insert rows with new keys into new, well-sized file groups only.

        Use it for large first loads. Otherwise it is like `insert`.

        Args:
            data: Rows, as `upsert` takes them.
            existing: 'fail' (default) raises KeyExists for a key that the table has, 'keep' skips the incoming row.
            duplicates: 'newest' (default) or 'fail', as in `upsert`.
            transaction: An application name and a growing version, as in `upsert`. None (default): no version.
            evolve: True adds columns and widens types, as in `upsert`. Default False.
            missing: 'fail' (default) or 'null', as in `upsert`.
            on_bad_rows: 'fail' (default) or 'quarantine', as in `upsert`.
            max_bad_rows: How many bad rows are set aside at most, in rows. Default 1,000.
            max_bad_share: Which share of 100 rows or more is set aside at most, as a fraction. Default 0.01.
            sort: The column or columns, at most 8, by which the rows of each partition are sorted, so that reads that
                filter by them skip more. The rows of a Spark DataFrame are sorted within each file only; `cluster`
                sorts whole partitions. None (default): no sorting.

        Returns:
            The cursor of the commit, and counts of rows and files.

        Raises:
            KeyExists: A key is in the table and `existing` is 'fail'. The error names the first ten.
            OptionError: An argument does not have one of the values above, or `sort` names a column twice or more than
                8.
            ColumnError: `sort` names a column that the table does not have, or whose type has no order.
            DataError: A batch does not fit the table. `upsert` lists which error is raised when.
            SchemaError: With `evolve`, the table cannot have the columns of the batch.
            RewriteNeeded: With `evolve`, a new column has the name of a former column whose values are still in files.
            CommitConflict: Other writers came first more than `max_retries` times. Nothing was written.
            CommitUnknown: The store did not say in time whether the commit succeeded; ask its `resolve()`.
            Fenced: Somebody rolled this write back while it ran.
        """
        one_of("existing", existing, ("fail", "keep"))
        limits = bad_row_limits(on_bad_rows, max_bad_rows, max_bad_share)
        options = options_of(duplicates, missing, evolve, limits, transaction)
        return self._write(
            data,
            options,
            lambda context, source: operations.insert(context, source, existing, True, options.transaction, sort),
        )

    def delete(
        self,
        data: KeysLike | None = None,
        transaction: Transaction | None = None,
        *,
        where: Where | None = None,
        if_head: PositionLike | None = None,
    ) -> WriteResult:
        """Delete rows by key or by a condition, whatever their ordering value.

        Args:
            data: Rows, as `upsert` takes them, with the key and partition columns; a partition column that is made of
                another column is made of it where it is missing. Other columns are ignored. Keys that the table does
                not have are ignored too. Without partition columns a key is deleted in every partition that has it;
                then, where the key is one column, a list, a set, an iterator or an array of its values will do, or one
                value that is no text. Keys of a Spark DataFrame without partition columns are collected into this
                process.
            transaction: An application name and a growing version, as in `upsert`. None (default): no version.
            where: A condition in the stead of `data`, as `update` takes it: the rows are deleted that match when the
                delete is committed. A file group in which all rows match, as its partition and its statistics tell, is
                dropped without a look at its rows.
            if_head: A position as `scan` takes it. The delete is committed only if no row was written since. None
                (default): it does not matter.

        Returns:
            The cursor of the commit, and counts of rows and files.

        Raises:
            OptionError: `transaction` is not an application name and a version, or neither or both of `data` and
                `where` are given.
            PredicateError: `where` cannot be parsed or does not fit the columns.
            ExpressionError: `where` cannot be evaluated on a row.
            PositionError: `if_head` is not a position of this table.
            ColumnError: A key or partition column is missing, or a value does not fit its column.
            KeyValueError: A key is null, too long or ambiguous.
            PartitionValueError: A partition value cannot be the name of a folder.
            CommitConflict: Other writers came first more than `max_retries` times. Nothing was written.
            CommitUnknown: The store did not say in time whether the commit succeeded; ask its `resolve()`.
            Fenced: Somebody rolled this write back while it ran.
        """
        from hoodoo.readers.spark_spellings import by_table_names

        version = application_version(transaction)
        if isinstance(data, str) and where is None:
            raise OptionError(
                f"delete takes keys as rows or a list: delete([{printable(data)}]); a condition stands in where: "
                f"delete(where={printable(data)}). delete_partitions() drops whole partitions.",
                option="where",
            )
        if data is not None and where is not None:
            raise OptionError(
                "delete takes keys or where=..., not both. To delete those of the keys that match a condition, name "
                'the keys in it, such as where="id IN (1, 2) AND fare > 5".',
                option="where",
            )
        if data is None and where is None:
            raise OptionError(
                "delete takes rows with the keys to delete, or where=..., a condition; delete_partitions() drops whole "
                "partitions.",
                option="where",
            )
        if where is not None:
            return self._delete_where(where, version, if_head)
        options = WriteOptions(delete=True, transaction=version, if_head=if_head)

        def write(context: Context, source: Source) -> Committed:
            return operations.upsert(context, source, "DELETE", options.transaction)

        if is_frame(data):
            data = by_table_names(data, self.handle.config.spellings)
        staged = is_frame(data) and not is_without_partition(data, self.handle.config)
        if staged or isinstance(data, Prepared):
            return self._write(data, options, write)
        return self._delete_keys(data, options, write)

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
        """Replace whole partitions, or the whole table, by the rows of `data`.

        It replaces the partitions that occur in `data`. A table without partitions is replaced as a whole. A partition
        for which only bad rows came stays as it is. An empty batch replaces nothing, except with `whole_table`.

        Args:
            data: Rows, as `upsert` takes them.
            whole_table: True replaces all rows of the table. False (default) replaces the partitions that occur.
            duplicates: 'newest' (default) or 'fail', as in `upsert`.
            transaction: An application name and a growing version, as in `upsert`. None (default): no version.
            evolve: True adds columns and widens types, as in `upsert`. Default False.
            missing: 'fail' (default) or 'null', as in `upsert`.
            on_bad_rows: 'fail' (default) or 'quarantine', as in `upsert`.
            max_bad_rows: How many bad rows are set aside at most, in rows. Default 1,000.
            max_bad_share: Which share of 100 rows or more is set aside at most, as a fraction. Default 0.01.

        Returns:
            The cursor of the commit, and counts of rows and files.

        Raises:
            OptionError: An argument does not have one of the values above.
            DataError: A batch does not fit the table. `upsert` lists which error is raised when.
            SchemaError: With `evolve`, the table cannot have the columns of the batch.
            RewriteNeeded: With `evolve`, a new column has the name of a former column whose values are still in files.
            CommitConflict: Other writers came first more than `max_retries` times. Nothing was written.
            CommitUnknown: The store did not say in time whether the commit succeeded; ask its `resolve()`.
            Fenced: Somebody rolled this write back while it ran.
        """
        flag("whole_table", whole_table)
        limits = bad_row_limits(on_bad_rows, max_bad_rows, max_bad_share)
        options = options_of(duplicates, missing, evolve, limits, transaction)

        def write(context: Context, source: Source) -> Committed:
            used = source.partitions_used()
            everything = whole_table or (not self.handle.config.partition_by and used)
            return operations.overwrite(
                context,
                source,
                None if everything else used,
                "INSERT_OVERWRITE_TABLE" if whole_table else "INSERT_OVERWRITE",
                options.transaction,
            )

        return self._write(data, options, write)

    def delete_partitions(self, partitions: PartitionValues, transaction: Transaction | None = None) -> WriteResult:
        """Drop whole partitions by their values.

        Args:
            partitions: A list with one value for each partition. Where several columns partition the table, a list of
                dicts from column to value. Partitions that the table does not have are ignored.
            transaction: An application name and a growing version, as in `upsert`. None (default): no version.

        Returns:
            The cursor of the commit, and counts of rows and files.

        Raises:
            PartitionValueError: The table has no partitions, `partitions` is not a list, a dict does not have exactly
                the partition columns, a value does not fit its column, or is the folder of a partition.
            OptionError: `transaction` is not an application name and a version.
            CommitConflict: Other writers came first more than `max_retries` times. Nothing was written.
            CommitUnknown: The store did not say in time whether the commit succeeded; ask its `resolve()`.
            Fenced: Somebody rolled this write back while it ran.
        """
        from hoodoo.table.partition_values import partition_folders, require_values

        version = application_version(transaction)
        context, (config, _, view) = self.handle.context_at(None)
        paths = partition_folders(config, partitions)
        require_values(config, partitions, view.partitions)
        return self.handle.finished(context, operations.overwrite(context, None, paths, "DELETE_PARTITION", version))

    def sink(self, name: str, operation: str = "upsert", positions: bool = False, **arguments: object) -> Sink:
        """Make a function for `writeStream.foreachBatch(...)` that commits each micro-batch exactly once.

        The function takes a DataFrame and its batch number, and makes one commit of it.

        Args:
            name: The name of the sink, 1 to 1,000 characters. The table remembers it with the newest batch number, so a
                stream with a new checkpoint needs a new name.
            operation: The method that writes each batch: 'upsert' (default), 'insert', 'bulk_insert', 'delete' or
                'insert_overwrite'.
            positions: True has each commit say how far the stream has read its sources, as Spark's checkpoint does:
                `application(name)` tells it, and a job of `hoodoo.ingest` can go on from there. Not with Spark Connect.
                Default False.
            **arguments: Arguments of that method, other than `data` and `transaction`.

        Returns:
            The function. It pickles, so that Spark Connect can run it beside the server.

        Raises:
            OptionError: `name` is not a text of that length, `operation` is none of these, or the method does not take
                one of `arguments`.
        """
        from hoodoo.table.sink import Sink

        return Sink(self, name, operation, positions, **arguments)

    def _write(self, data: ArrowLike, options: WriteOptions, write: Write) -> WriteResult:
        if isinstance(data, Prepared):
            return self._write_prepared(data, options, write)
        return self._write_frame(data, options, write) if is_frame(data) else self._write_arrow(data, options, write)

    def _upsert_into_stored(self, data: ArrowLike, options: WriteOptions, new_keys: NewKeys) -> WriteResult:
        """Write rows that take what they lack from stored ones."""
        from hoodoo.writers.merging.partial_upsert import partial_upsert

        if options.duplicates == "newest":
            options = replace(options, duplicates="each")

        def write(context: Context, source: Source) -> Committed:
            return partial_upsert(context, as_partial(source), new_keys, options.mode, options.transaction)

        return self._write(data, options, write)

    def _write_prepared(self, rows: Prepared, options: WriteOptions, write: Write) -> WriteResult:
        """Write a batch that the tasks of Spark's data source prepared."""
        context = self.handle.context()
        begun = self.handle.timeline.ready()  # before bad rows are kept
        return self._committed(
            replace(context, evolution=rows.evolution, begun=begun), rows.source, rows.bad, options, write
        )

    def _write_frame(self, frame: Any, options: WriteOptions, write: Write) -> WriteResult:
        """Write a Spark DataFrame: its tasks prepare and stage the rows."""
        from hoodoo.readers.spark_spellings import by_table_names
        from hoodoo.writers.staging.staged import staged

        context = self.handle.context()
        config = self.handle.timeline.ready().config  # staging is dear: not for columns that are none any more
        frame, options = by_table_names(frame, config.spellings), spelled(options, config)
        with staged(context, config, frame, options, checks_of(options, config)) as (context, source, bad):
            return self._committed(context, source, bad, options, write)

    def _write_arrow(self, data: ArrowLike, options: WriteOptions, write: Write) -> WriteResult:
        """Write rows that this process has."""
        context = self.handle.context()
        given: pa.Table | None = None
        while True:
            state = self.handle.timeline.ready()  # names in the batch are those of the columns that there are now
            given = as_arrow(data, state.config, options) if given is None else given
            batch, bad = prepared(given, state.config, options)
            try:
                return self._committed(
                    replace(context, evolution=batch.evolution, begun=state), batch, bad, options, write
                )
            except CheckFailed:
                if row_checks.of(self.handle.newest_config()) == row_checks.of(state.config):
                    raise
                # of a check that was set since: the answer names the row as it was given

    def _delete_keys(self, data: KeysLike, options: WriteOptions, write: Write) -> WriteResult:
        """Delete keys that this process has."""
        from hoodoo.table.keys_given import keys_given

        context, state = self.handle.context(), self.handle.timeline.ready()
        if is_frame(data):
            data = data.select(*state.config.key).toArrow()
        keys = keys_given(data, state.config)
        batch = prepare(keys.rows, state.config, options)
        source = InProcess(batch) if keys.in_partitions else InEveryPartition(batch)
        return self._committed(replace(context, begun=state), source, none_of(0), options, write)

    def _committed(
        self, context: Context, source: Source, bad: BadRows, options: WriteOptions, write: Write
    ) -> WriteResult:
        """Keep the bad rows in the quarantine, then commit the others."""
        if options.if_head is not None:
            context = context.on_head(self.handle.slot_of(context.timeline.history, options.if_head))
        reasons: Mapping[str, int] = {}
        if bad.count:
            from hoodoo.table.quarantine.setting_aside import set_aside

            reasons = dict(set_aside(self.handle, bad, options))
        result = self.handle.finished(context, write(context, source))
        return replace(result, quarantined=sum(reasons.values()), reasons=reasons)


__all__ = ["Writable"]
