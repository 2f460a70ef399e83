"""Write methods of `Table`.

They check arguments, prepare batches, and call `hoodoo.writers`, which does the write.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hoodoo.arguments import Transaction, check_allowed_value, check_flag, convert_transaction
from hoodoo.errors import OptionError
from hoodoo.hints import suggest_for_methods
from hoodoo.redact import printable
from hoodoo.table.updating import Updatable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hoodoo.merge.modes import MergeLike
    from hoodoo.readers.cursor import PositionLike
    from hoodoo.readers.predicate.filter import Params, Where
    from hoodoo.table.keys_given import KeysLike
    from hoodoo.table.partition_values import PartitionValues
    from hoodoo.table.results import WriteResult
    from hoodoo.table.sink import Sink
    from hoodoo.writers.batches.input import ArrowLike
    from hoodoo.writers.batches.partial_columns import ColumnsLike
    from hoodoo.writers.batches.write_options import BadRowLimits


@suggest_for_methods
class Writable(Updatable):
    """Base class with the write methods of `Table`."""

    @property
    def path(self) -> str:
        """The full path or URL of the table."""
        return self.handle.store.uri

    def upsert(
        self,
        data: ArrowLike,
        *,
        duplicates: str = "newest",
        transaction: Transaction | None = None,
        evolve: bool = False,
        missing: str = "fail",
        on_bad_rows: str | BadRowLimits = "fail",
        if_head: PositionLike | None = None,
        columns: ColumnsLike | None = None,
        new_keys: str = "insert",
        merge: MergeLike = "replace",
        unavailable: str | None = None,
    ) -> WriteResult:
        """Insert rows with new keys, and replace rows with existing keys.

        An incoming row is stale if its ordering value is smaller than that of the stored row. Stale rows are dropped.
        On a tie, the incoming row wins. In a table without `order_by`, the later write wins.

        Args:
            data: The rows: a pyarrow Table, RecordBatch or RecordBatchReader, a pandas, polars or Spark DataFrame, a
                DuckDB relation, an object with `__arrow_c_stream__` or `__arrow_c_array__`, a list of dicts, a dict of
                lists, or an iterator of record batches. Also the path of a plain or compressed Parquet, CSV, JSON lines
                or Avro file, or a pattern such as "in/*.csv". A Spark DataFrame is evaluated once. A row whose boolean
                column `_hoodie_is_deleted` is true deletes the stored row, subject to the ordering rule above.
            duplicates: Action for several rows with the same key in `data`: 'newest' (default) keeps the row with the
                largest ordering value, and the later row on a tie. 'fail' rejects the batch.
            transaction: An application name and an increasing version, such as ("job-7", 42). The name has 1 to 1,000
                characters, and the version is an integer of at least 0. The write is skipped if the table already has
                this version of the application or a newer one. An optional third element is a position: a string that
                records how far the application has read its source. Versions with positions are consecutive.
                `table.inspect.application("job-7").next(position)` returns such a transaction, and the write is
                rejected if another process of the application committed first. None (default): no version.
            evolve: True adds new columns and struct fields to the table, and widens types where this is lossless, in
                the same commit. False (default) rejects such a batch.
            missing: Action for columns without a default that are missing from the batch: 'fail' (default) rejects the
                batch, 'null' overwrites the stored values with null. To keep the stored values, use `columns="given"`.
            on_bad_rows: Action for rows with invalid values: 'fail' (default) rejects the batch at the first bad row.
                'quarantine' stores the bad rows in the table's `quarantine()` and writes the other rows, unless there
                are more than 1,000 bad rows, or more than 1 % in a batch of 100 rows or more. To change these limits,
                pass `hoodoo.BadRowLimits(rows=..., share=...)`.
            if_head: A position, as in `scan`. The batch is committed only if no rows were written after this position.
                Use it to read, change and write rows without losing rows of other writers. None (default): no
                condition.
            columns: The columns to write: 'given' for all columns of the batch, or a list of names. With a list, the
                other columns of the batch are ignored. Stored rows keep their values in all other columns. New rows get
                the default or null in them. The batch must still have the key, partition and ordering columns. Rows
                that do not change are not written. None (default): the write replaces whole rows.
            new_keys: Action for keys missing from the table: 'insert' (default) inserts their rows, 'ignore' skips
                their rows, 'fail' rejects the batch.
            merge: Rule that merges an incoming row with the stored row of its key: 'replace' (default) takes the
                incoming row. 'keep_non_null' keeps the stored value where the incoming value is null or its column is
                missing. A `hoodoo.CustomMerge` calls a function. Stale rows never change anything. Several incoming
                rows with one key are first merged with each other. Modes other than 'replace' read the stored rows, as
                `columns` does.
            unavailable: A placeholder string for values that the source did not send, such as Debezium's
                '__debezium_unavailable_value'. In string and binary columns, the placeholder keeps the stored value.
                The same applies to lists that contain only the placeholder or its character codes. A row with a new key
                must not contain placeholders. None (default): no placeholder.

        Returns:
            The cursor of the commit, and counts of rows and files.

        Raises:
            OptionError: An argument has an invalid value. Or `on_bad_rows` is 'quarantine' and the write does not
                replace whole rows, or the table is at the root of a bucket, so its quarantine cannot be next to it.
            ColumnError: A column is missing, unknown or duplicated, a value cannot be converted to its column type, or
                `data` has an unsupported type.
            KeyValueError: A key is null, too long or ambiguous.
            PartitionValueError: A partition value is not a valid folder name.
            OrderingError: An ordering value is null, NaN or `unavailable`.
            CheckFailed: A row fails one of the table's checks.
            DuplicateKeys: A key occurs twice in `data` and `duplicates` is 'fail'.
            KeyNotFound: The table does not have a key and `new_keys` is 'fail'. The error names the first ten.
            TooManyBadRows: The batch has more bad rows than the limits of `on_bad_rows` allow, or more than 64 MiB of
                bad rows. Nothing is committed. The first 100 bad rows are stored in the quarantine.
            SchemaError: With `evolve`, a new column has an unsupported type or name, or a check uses a column that
                would be widened.
            RewriteNeeded: With `evolve`, a new column has the name of a dropped column whose values are still in files.
            CommitConflict: Other writers committed first more than `max_retries` times, or rows were written after
                `if_head`. Nothing was written.
            CommitUnknown: The store did not confirm in time that the commit succeeded. Call `resolve()` of the error to
                find out.
            Fenced: Another process rolled back this write while it ran.
        """
        from hoodoo.merge.modes import MergeMode
        from hoodoo.table import given_rows, write_steps
        from hoodoo.writers.batches.partial_columns import validate_column_names
        from hoodoo.writers.batches.write_options import NewKeys

        check_allowed_value("new_keys", new_keys, [each.value for each in NewKeys])
        if missing == "keep":
            raise OptionError(
                "Option missing must be 'fail' or 'null', got 'keep'. To keep stored values, pass columns='given'.",
                option="missing",
            )
        if missing == "null" and columns is not None:
            raise OptionError(
                "missing='null' overwrites stored values with null, but columns keeps stored values. Leave out "
                "one of the two.",
                option="missing",
            )
        options = given_rows.convert_write_arguments(duplicates, missing, evolve, on_bad_rows, transaction, if_head)
        mode = MergeMode.parse(merge, unavailable)
        if mode.keep_non_null and columns is None:
            options, columns = replace(options, missing="fail"), "given"  # a missing column equals a column of nulls
        if mode.custom is not None and columns is not None:
            raise OptionError(
                "A CustomMerge needs whole rows. Leave out columns. The function returns the columns that change.",
                option="merge",
            )
        if options.limits is not None and (columns is not None or not mode.replaces_rows):
            raise OptionError(
                "on_bad_rows='quarantine' needs an operation that replaces whole rows, because only such rows "
                "can be replayed. Write the batch with on_bad_rows='fail'.",
                option="on_bad_rows",
            )
        options = replace(options, columns=None if columns is None else validate_column_names(columns), mode=mode)
        return write_steps.upsert(self.handle, data, options, NewKeys(new_keys))

    def insert(
        self,
        data: ArrowLike,
        *,
        existing: str = "fail",
        duplicates: str = "newest",
        transaction: Transaction | None = None,
        evolve: bool = False,
        missing: str = "fail",
        on_bad_rows: str | BadRowLimits = "fail",
        if_head: PositionLike | None = None,
        bulk: bool = False,
        sort_by: str | Sequence[str] | None = None,
    ) -> WriteResult:
        """Insert rows with new keys.

        Args:
            data: The rows, in any form that `upsert` accepts.
            existing: Action for keys that are already in the table: 'fail' (default) raises KeyExists before anything
                is written, 'keep' keeps the stored row and skips the incoming row.
            duplicates: 'newest' (default) or 'fail', as in `upsert`.
            transaction: An application name and an increasing version, as in `upsert`. None (default): no version.
            evolve: True adds columns and widens types, as in `upsert`. Default False.
            missing: 'fail' (default) or 'null', as in `upsert`.
            on_bad_rows: 'fail' (default), 'quarantine' or `hoodoo.BadRowLimits(...)`, as in `upsert`.
            if_head: A position, as in `upsert`. None (default): no condition.
            bulk: True writes the rows into new, well-sized file groups. Use it for an initial load, or for many rows.
                False (default) first fills small files.
            sort_by: The column or columns, at most 8, to sort each partition by, so that reads that filter by these
                columns skip more data. Requires `bulk`. The rows of a Spark DataFrame are sorted only within each
                file; `maintenance.cluster` sorts whole partitions. None (default): no sorting.

        Returns:
            The cursor of the commit, and counts of rows and files.

        Raises:
            KeyExists: A key is already in the table and `existing` is 'fail'. The error names the first ten.
            OptionError: An argument has an invalid value, or `sort_by` has a duplicate column or more than 8 columns.
            ColumnError: `sort_by` names an unknown column, or a column whose type cannot be sorted.
            DataError: The batch does not match the table. `upsert` lists the subclasses and their causes.
            SchemaError: With `evolve`, the columns of the batch cannot be added to the table.
            RewriteNeeded: With `evolve`, a new column has the name of a dropped column whose values are still in files.
            CommitConflict: Other writers committed first more than `max_retries` times, or rows were written after
                `if_head`. Nothing was written.
            CommitUnknown: The store did not confirm in time that the commit succeeded. Call `resolve()` of the error to
                find out.
            Fenced: Another process rolled back this write while it ran.
        """
        from hoodoo.table import given_rows, write_steps

        check_allowed_value("existing", existing, ("fail", "keep"))
        if sort_by is not None and not check_flag("bulk", bulk):
            raise OptionError("Option sort_by needs bulk=True. Pass both, or leave out sort_by.", option="sort_by")
        options = given_rows.convert_write_arguments(duplicates, missing, evolve, on_bad_rows, transaction, if_head)
        return write_steps.insert(self.handle, data, options, existing, check_flag("bulk", bulk), sort_by)

    def delete(
        self,
        data: KeysLike | None = None,
        *,
        transaction: Transaction | None = None,
        where: Where | None = None,
        params: Params | None = None,
        if_head: PositionLike | None = None,
    ) -> WriteResult:
        """Delete rows by key or by a condition.

        Args:
            data: The keys to delete: rows with the key and partition columns, in any form that `upsert` accepts. A
                missing partition column is derived if the rows have the column of its transform. Other columns, and
                keys missing from the table, are ignored. Without partition columns, a key is deleted in every partition
                that contains it. In this case, and if the key is a single column, a list, a set, an iterator or an
                array of key values is also accepted, or one value of any type except string. Keys of a Spark DataFrame
                without partition columns are collected into this process.
            transaction: An application name and an increasing version, as in `upsert`. None (default): no version.
            where: A condition, as in `update`, to use instead of `data`. It selects the rows that match when the delete
                is committed. If partition values and statistics show that all rows of a file group match, the file
                group is dropped without reading its rows.
            params: The values of the parameters in `where`, as in `scan`. None (default): no parameters.
            if_head: A position, as in `scan`. The delete is committed only if no rows were written after this position.
                None (default): no condition.

        Returns:
            The cursor of the commit, and counts of rows and files.

        Raises:
            OptionError: `transaction` is not an application name and a version, `params` is invalid, or the call has
                both or neither of `data` and `where`.
            PredicateError: `where` cannot be parsed or does not match the columns.
            ExpressionError: `where` cannot be evaluated for a row.
            PositionError: `if_head` is not a position of this table.
            ColumnError: A key or partition column is missing, or a value cannot be converted to its column type.
            KeyValueError: A key is null, too long or ambiguous.
            PartitionValueError: A partition value is not a valid folder name.
            CommitConflict: Other writers committed first more than `max_retries` times. Nothing was written.
            CommitUnknown: The store did not confirm in time that the commit succeeded. Call `resolve()` of the error to
                find out.
            Fenced: Another process rolled back this write while it ran.
        """
        from hoodoo.readers.predicate.parameters import validate_parameters
        from hoodoo.table import write_steps

        version = convert_transaction(transaction)
        if isinstance(data, str) and where is None:
            raise OptionError(
                f"delete needs keys as rows or a list: delete([{printable(data)}]). Pass a condition as where: "
                f"delete(where={printable(data)}). delete_partitions() drops whole partitions.",
                option="where",
            )
        if data is not None and where is not None:
            raise OptionError(
                "delete accepts keys or where=..., not both. To delete only keys that match a condition, name "
                'the keys in the condition, such as where="id IN (1, 2) AND fare > 5".',
                option="where",
            )
        if data is None and where is None:
            raise OptionError(
                "delete needs rows with the keys to delete, or a condition as where=.... delete_partitions() "
                "drops whole partitions.",
                option="where",
            )
        parameters = validate_parameters(where, params)
        if where is not None:
            return self._delete_where(where, parameters, version, if_head)
        assert data is not None
        return write_steps.delete_keys(self.handle, data, version, if_head)

    def insert_overwrite(
        self,
        data: ArrowLike,
        *,
        whole_table: bool = False,
        duplicates: str = "newest",
        transaction: Transaction | None = None,
        evolve: bool = False,
        missing: str = "fail",
        on_bad_rows: str | BadRowLimits = "fail",
    ) -> WriteResult:
        """Replace whole partitions, or the whole table.

        The call replaces the partitions that occur in `data`. An unpartitioned table is replaced as a whole. A
        partition that has only bad rows in `data` stays unchanged. An empty batch replaces nothing, except with
        `whole_table`.

        Args:
            data: The rows, in any form that `upsert` accepts.
            whole_table: True replaces all rows of the table. False (default) replaces only the partitions that occur in
                `data`.
            duplicates: 'newest' (default) or 'fail', as in `upsert`.
            transaction: An application name and an increasing version, as in `upsert`. None (default): no version.
            evolve: True adds columns and widens types, as in `upsert`. Default False.
            missing: 'fail' (default) or 'null', as in `upsert`.
            on_bad_rows: 'fail' (default), 'quarantine' or `hoodoo.BadRowLimits(...)`, as in `upsert`.

        Returns:
            The cursor of the commit, and counts of rows and files.

        Raises:
            OptionError: An argument has an invalid value.
            DataError: The batch does not match the table. `upsert` lists the subclasses and their causes.
            SchemaError: With `evolve`, the columns of the batch cannot be added to the table.
            RewriteNeeded: With `evolve`, a new column has the name of a dropped column whose values are still in files.
            CommitConflict: Other writers committed first more than `max_retries` times. Nothing was written.
            CommitUnknown: The store did not confirm in time that the commit succeeded. Call `resolve()` of the error to
                find out.
            Fenced: Another process rolled back this write while it ran.
        """
        from hoodoo.table import given_rows, write_steps

        options = given_rows.convert_write_arguments(duplicates, missing, evolve, on_bad_rows, transaction)
        return write_steps.replace_partitions(self.handle, data, options, check_flag("whole_table", whole_table))

    def delete_partitions(self, partitions: PartitionValues, *, transaction: Transaction | None = None) -> WriteResult:
        """Drop whole partitions.

        Args:
            partitions: A list with one value for each partition. For a table with several partition columns, a list of
                dicts from column to value. Unknown partitions are ignored.
            transaction: An application name and an increasing version, as in `upsert`. None (default): no version.

        Returns:
            The cursor of the commit, and counts of rows and files.

        Raises:
            PartitionValueError: The table is unpartitioned, `partitions` is not a list, a dict does not have exactly
                the partition columns, a value cannot be converted to its column type, or a value is the folder name of
                a partition.
            OptionError: `transaction` is not an application name and a version.
            CommitConflict: Other writers committed first more than `max_retries` times. Nothing was written.
            CommitUnknown: The store did not confirm in time that the commit succeeded. Call `resolve()` of the error to
                find out.
            Fenced: Another process rolled back this write while it ran.
        """
        from hoodoo.table import write_steps

        return write_steps.delete_partitions(self.handle, partitions, convert_transaction(transaction))

    def sink(self, name: str, *, operation: str = "upsert", positions: bool = False, **arguments: object) -> Sink:
        """Create a sink for `writeStream.foreachBatch(...)`.

        The sink commits each micro-batch exactly once. The function takes a DataFrame and its batch number, and writes
        the DataFrame in one commit.

        Args:
            name: The name of the sink, 1 to 1,000 characters. The table stores the newest batch number under this name,
                so a stream with a new checkpoint needs a new name.
            operation: The method that writes each batch: 'upsert' (default), 'insert', 'delete' or 'insert_overwrite'.
            positions: True stores the source offsets of the stream in each commit, as Spark's checkpoint does.
                `inspect.application(name)` returns them, and a `hoodoo.ingest` job can continue from them. Not
                available with Spark Connect. Default False.
            **arguments: Arguments of the write method, other than `data` and `transaction`.

        Returns:
            The function. It can be pickled, so that Spark Connect can run it in a process next to the server.

        Raises:
            OptionError: `name` is not a string of 1 to 1,000 characters, `operation` is not one of the values above, or
                the write method does not accept one of `arguments`.
        """
        from hoodoo.table.sink import Sink

        return Sink(self, name, operation, positions, **arguments)


__all__ = ["Writable"]
