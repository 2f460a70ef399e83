"""Read methods of `Table`.

They write nothing. They check arguments, resolve positions, and call `hoodoo.readers`, which does the read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from hoodoo.arguments import check_allowed_value, check_flag, check_number
from hoodoo.errors import ColumnError, PositionError
from hoodoo.format.names import META_COLUMNS, PARTITION_PATH, RECORD_KEY
from hoodoo.hints import suggest_for_methods
from hoodoo.readers.cursor import Cursor, PositionLike
from hoodoo.table.handle import TableHandle, TableSnapshot
from hoodoo.timeline.history import History
from hoodoo.timeline.views.view import View

if TYPE_CHECKING:
    from hoodoo.readers.changes.changes import Changes
    from hoodoo.readers.changes.incremental import IncrementalRows
    from hoodoo.readers.output import Rows
    from hoodoo.readers.predicate.filter import Params, Where
    from hoodoo.readers.scan import Scan
    from hoodoo.table.keys_given import KeysLike
    from hoodoo.timeline import timeline_listing


@suggest_for_methods
class Readable:
    """Base class with the read methods of `Table`."""

    handle: TableHandle

    def scan(
        self,
        columns: Sequence[str] | None = None,
        *,
        where: Where | None = None,
        params: Params | None = None,
        as_of: PositionLike | None = None,
        read_optimized: bool = False,
        meta: bool = False,
        verified: bool = False,
        names: str = "current",
    ) -> Scan:
        """Read the current rows of the table.

        Each row is read once, in arbitrary order. This call fixes the snapshot. A `to_...` method of the returned scan
        reads the rows.

        Args:
            columns: Names of the columns to read. None (default): all columns of the snapshot.
            where: A filter condition: a string with SQL-like syntax, or a pyarrow expression. If DuckDB is installed, a
                string can be any boolean SQL expression over the columns. None (default): all rows.
            params: The value of each parameter in the string `where`, by name. For example, where="fare > $low",
                params={"low": 3}. A list, tuple or set is for IN: "city IN $cities". None (default): no parameters.
            as_of: The position of the snapshot: a slot number; a commit of `history`, a write result or a read; a
                cursor or its string; an instant; a datetime with a time zone; a date, which means its start in UTC; a
                timedelta, which counts back from now; an ISO 8601 string, in UTC if it has no time zone; a string such
                as '1d' or '2 hours ago'; or the name of a savepoint. None (default): the newest slot.
            read_optimized: True reads only base files and ignores the newer changes in log files. Default False.
            meta: True makes Hudi's five meta columns available, and reads them if `columns` is None. Default False.
            verified: True reads each file completely and compares it with its digest in the slot. False (default)
                checks only file sizes and Parquet page checksums.
            names: 'original' returns columns under the names that they had before rename="snake". 'current' (default)
                returns columns under their current names.

        Returns:
            The scan, with the position of its snapshot in `cursor`.

        Raises:
            ColumnError: `columns` is empty, is a string, or contains a duplicate or unknown name.
            PredicateError: `where` cannot be parsed or does not match the columns.
            OptionError: `where` is neither a string nor a pyarrow expression, or `params` or `names` is invalid.
            PositionError: `as_of` is not a position of this table.
            SnapshotExpired: Cleaning deleted the snapshot, or `as_of` is before the first slot of the table.
            RangeUndone: Another engine rolled back the snapshot.
        """
        from hoodoo.readers.output import choose_column_names
        from hoodoo.readers.scan import Scan

        seen = self.handle.at(as_of)
        check_flag("meta", meta), check_flag("read_optimized", read_optimized), check_flag("verified", verified)
        found = Scan(
            seen.history,
            seen.config,
            seen.view,
            columns,
            where,
            meta,
            read_optimized,
            verified=verified,
            params=params,
        )
        return choose_column_names(found, names, seen.config.name_mapping)

    def _get_commit_range(self, since: PositionLike, until: PositionLike | None) -> tuple[int, TableSnapshot]:
        """Return the first and last commit of a range."""
        seen = self.handle.at(until)
        after = self.handle.slot_of(seen.history, since, exclusive=True)
        if after > seen.view.seq:
            raise PositionError(
                f"until (slot {seen.view.seq}) is before since (slot {after}). Swap them, or call "
                "pass versions='diff', which compares two snapshots in any order.",
                position=after,
            )
        return after, seen

    def __len__(self) -> int:
        """Return the number of rows in the table."""
        return self.count()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the rows of the table as an Arrow C stream."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def __bool__(self) -> bool:
        """Return True, even for an empty table."""
        return True

    def count(self, where: Where | None = None, *, params: Params | None = None) -> int:
        """Count the rows of the table.

        Args:
            where: The condition on the rows, see `scan`. None (default): all rows.
            params: The values of the parameters in `where`, as in `scan`. None (default): no parameters.

        Returns:
            The number of rows.

        Raises:
            PredicateError: `where` cannot be parsed or does not match the columns.
            OptionError: `where` or `params` is invalid.
            SnapshotExpired: Cleaning deleted files of the snapshot during the read.
            CorruptTable: A file is damaged.
        """
        return self.scan(where=where, params=params).count()

    def head(self, rows: int = 10) -> pa.Table:
        """Return a few rows of the table, as a preview.

        Args:
            rows: The maximum number of rows, at least 0. Default 10. The choice of rows is arbitrary.

        Returns:
            The rows.

        Raises:
            OptionError: `rows` is not an integer of at least 0.
            SnapshotExpired: Cleaning deleted files of the snapshot during the read.
            CorruptTable: A file is damaged.
        """
        return self.scan().head(rows)

    def incremental(
        self,
        since: PositionLike,
        until: PositionLike | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        params: Params | None = None,
        meta: bool = False,
        deletes: bool = False,
        names: str = "current",
    ) -> Scan | IncrementalRows:
        """Read the rows that were inserted or updated in a range.

        Each row has its values at the end of the range. The range excludes `since` and includes `until`. Pass `cursor`
        of the result as `since` of the next call. To replicate changes to another table, call
        `other.upsert(table.incremental(since, deletes=True))`. Create the other table without `order_by`, because this
        table has already decided which version is newer.

        Args:
            since: A position, as in `scan`, or 'earliest'.
            until: A position, as in `scan`. None (default): the newest slot.
            columns: Names of the columns to read. None (default): all columns of the table at `until`.
            where: A filter condition, as in `scan`. For a deleted row, it applies to the row as it was at `since`. None
                (default): all rows.
            params: The values of the parameters in `where`, as in `scan`. None (default): no parameters.
            meta: True makes Hudi's five meta columns available, and reads them if `columns` is None. Default False.
            deletes: True adds the column `_hoodie_is_deleted`, and one row for each key that was deleted in the range.
                In this row, `_hoodie_is_deleted` is true, the key, partition and ordering columns have values, and all
                other columns are null. True also requires that the snapshot at `since` is readable. Default False.
            names: 'original' returns columns under the names that they had before rename="snake". 'current' (default)
                returns columns under their current names.

        Returns:
            The rows, with the end position of the range in `cursor`.

        Raises:
            ColumnError: `columns` is empty, is a string, or contains a duplicate or unknown name.
            PredicateError: `where` cannot be parsed or does not match the columns.
            OptionError: `where` is neither a string nor a pyarrow expression, or `params` or `names` is invalid.
            PositionError: `since` or `until` is not a position of this table, or `until` is before `since`.
            SnapshotExpired: Cleaning deleted the snapshot at `until`, or a slot of the range was archived. With
                `deletes`, also if cleaning deleted the snapshot at `since`.
            RangeUndone: Another engine rolled back `since` or `until`.
        """
        from hoodoo.readers.output import choose_column_names

        after, seen = self._get_commit_range(since, until)
        found = read_changed_rows(seen, after, columns, where, meta, deletes, params)
        return choose_column_names(found, names, seen.config.name_mapping)

    def changes(
        self,
        since: PositionLike,
        until: PositionLike | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        params: Params | None = None,
        versions: str = "net",
        names: str = "current",
    ) -> Changes:
        """Read every insert, update and delete in a range.

        The rows have the columns `op` ("i", "u" or "d") and `instant`, and the structs `before` and `after`. The range
        excludes `since` and includes `until`.

        Args:
            since: A position, as in `scan`, or 'earliest'.
            until: A position, as in `scan`. None (default): the newest slot.
            columns: Names of the columns in `before` and `after`. Changes of other columns are ignored. None (default):
                all columns of the table at `until`.
            where: A filter condition, as in `scan`. Only changes of matching rows are read. A row that no longer
                matches after a change is reported as a delete. None (default): all rows.
            params: The values of the parameters in `where`, as in `scan`. None (default): no parameters.
            versions: 'net' (default) compares the two snapshots and returns at most one change for each key. Keys whose
                rows are equal in both snapshots are omitted. 'all' returns the changes of each commit, in commit order.
                'diff' compares any two readable snapshots, in either order, and returns no column `instant`.
            names: 'original' returns columns under the names that they had before rename="snake". 'current' (default)
                returns columns under their current names.

        Returns:
            The changes, with the end position of the range in `cursor`.

        Raises:
            ColumnError: `columns` is empty, is a string, or contains a duplicate or unknown name.
            PredicateError: `where` cannot be parsed or does not match the columns.
            OptionError: `versions`, `names` or `params` is invalid, or `where` is neither a string nor a pyarrow
                expression.
            PositionError: `since` or `until` is not a position of this table, or `until` is before `since`.
            SnapshotExpired: Cleaning deleted files of the range. The error names the earliest usable position.
            RangeUndone: Another engine rolled back `since` or `until`.
            UnsupportedTable: `versions` is 'diff', `until` is older than `since`, and its columns cannot hold all
                values of `since`. Pass the older position first.
        """
        from hoodoo.readers.changes.changes import Changes
        from hoodoo.readers.output import choose_column_names

        check_allowed_value("versions", versions, ("net", "all", "diff"))
        if versions == "diff":
            config, history, view = self.handle.at(until)
            found = Changes(
                history, config, self.handle.slot_of(history, since), view, columns, where, timed=False, params=params
            )
            return choose_column_names(found, names, config.name_mapping)
        after, seen = self._get_commit_range(since, until)
        found = Changes(seen.history, seen.config, after, seen.view, columns, where, versions, params=params)
        return choose_column_names(found, names, seen.config.name_mapping)

    def get(
        self,
        keys: KeysLike,
        *,
        columns: Sequence[str] | None = None,
        as_of: PositionLike | None = None,
        meta: bool = False,
        names: str = "current",
    ) -> pa.Table:
        """Look up rows by key, without scanning the table.

        Rows are returned in the order of the keys. Keys missing from the table are skipped. A duplicate key is returned
        once, at its first position. Only row groups that may contain one of the keys are read.

        Args:
            keys: A table, DataFrame or list of dicts with the key columns. If the key is a single column, also one
                value, or a list, a set, an iterator or an array of values. With the partition columns, or the columns
                that they are derived from, only the partitions of the keys are searched. Without them, all partitions
                are searched.
            columns: Names of the columns to read. None (default): all columns of the snapshot.
            as_of: The position of the snapshot, as in `scan`. None (default): the newest slot.
            meta: True makes Hudi's five meta columns available, and reads them if `columns` is None. Default False.
            names: 'original' returns columns under the names that they had before rename="snake". 'current' (default)
                returns columns under their current names.

        Returns:
            The rows.

        Raises:
            ColumnError: `columns` names unknown columns. Or `keys` lacks a key column, has only some of the partition
                columns, has values that cannot be converted to the column type, or has bare values although the key has
                several columns. Or `keys` has partition columns, but the folder names of the table do not contain their
                values, because the key generator is TIMESTAMP, CUSTOM or unknown, or splits dates over several folders.
            OptionError: `names` has an invalid value.
            KeyValueError: A key is null, too long or ambiguous.
            PartitionValueError: A partition value is not a valid folder name.
            PositionError: `as_of` is not a position of this table.
            SnapshotExpired: Cleaning deleted the snapshot, or `as_of` is before the first slot of the table.
            RangeUndone: Another engine rolled back the snapshot.
        """
        from hoodoo.index.key_index import LookupKeys
        from hoodoo.readers.lookup import look_up, sort_by_requested_keys
        from hoodoo.readers.output import convert_read_errors
        from hoodoo.readers.scan import validate_columns
        from hoodoo.table.keys_given import convert_keys
        from hoodoo.writers.batches.batch import prepare_batch
        from hoodoo.writers.batches.write_options import WriteOptions

        check_allowed_value("names", names, ("current", "original"))
        check_flag("meta", meta)
        config, history, view = self.handle.at(as_of)
        columns = config.name_mapping.names(columns)
        chosen = validate_columns(columns, [*META_COLUMNS, *config.schema.names] if meta else config.schema.names)
        given = convert_keys(keys, config)
        if given.in_partitions and config.partition_by and not config.folders_contain_partition_values:
            column = config.partition_by[0]
            raise ColumnError(
                f"The partition of column {column!r} cannot be computed, because the folders of this table are "
                f"created by {config.key_generator or 'a custom key generator'}. Pass keys without partition "
                "columns, and all partitions are searched.",
                column=column,
            )
        batch = prepare_batch(given.rows, config, WriteOptions(delete=True, duplicates="first"))
        record_keys = batch.rows[RECORD_KEY].combine_chunks()
        placed = [PARTITION_PATH] if given.in_partitions and config.partition_by else []
        if given.in_partitions:
            wanted = LookupKeys.one_lookup_per_key(record_keys, batch.hashes, batch.partitions, batch.codes)
        else:
            wanted = LookupKeys.one_lookup_per_partition(record_keys, batch.hashes, list(view.partitions))
        rows = convert_read_errors(
            history,
            lambda: history.require_readable(view.seq),
            lambda: look_up(self.handle.store, config, self.handle.index, view, wanted, [*chosen, *placed]),
        )
        found = sort_by_requested_keys(rows, wanted, record_keys, bool(placed)).select(list(chosen))
        return config.name_mapping.rows_with_original_names(found) if names == "original" else found

    def follow(
        self,
        since: PositionLike,
        *,
        mode: str = "changes",
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        params: Params | None = None,
        deletes: bool = False,
        versions: str = "net",
        most_commits: int | None = None,
        poll_seconds: float = 1.0,
        timeout_seconds: float | None = None,
    ) -> Iterator[Rows]:
        """Read changes continuously, as they are committed.

        The iterator returns reads of consecutive ranges, like those that `changes` or `incremental` returns. Store
        `cursor` of the last read that you processed. Pass it as `since` to continue later without gaps or duplicates.

        Args:
            since: A position, as in `scan`, or 'earliest'.
            mode: The read method: 'changes' (default) or 'incremental'.
            columns: Names of the columns to read, as in the method `mode`. None (default): all columns.
            where: A filter condition, as in the method `mode`. None (default): all rows.
            params: The values of the parameters in `where`, as in `scan`. None (default): no parameters.
            deletes: See `deletes` of `incremental`. Default False.
            versions: 'net' (default) or 'all', see `versions` of `changes`.
            most_commits: The maximum number of commits in one read. None (default): all new commits.
            poll_seconds: Seconds between two checks for a new commit. Default 1.0.
            timeout_seconds: Seconds without a new commit after which the iterator ends. None (default): never.

        Yields:
            The next read, with the end position of its range in `cursor`.

        Raises:
            OptionError: An argument has an invalid value.
            PositionError: `since` is not a position of this table.
            SnapshotExpired: The table is no longer readable at the start or the end of a range.
            RangeUndone: Another engine rolled back a position.
            ColumnError: `columns` names a column that is missing from the table when a range is read.
            PredicateError: `where` cannot be parsed, or does not match the columns when a range is read.
        """
        from hoodoo.readers.changes.follow import poll_commits
        from hoodoo.readers.predicate.parameters import validate_parameters

        check_allowed_value("mode", mode, ("changes", "incremental"))
        check_number("most_commits", most_commits, 1, whole=True)
        check_number("poll_seconds", poll_seconds, 0, optional=False)
        check_number("timeout_seconds", timeout_seconds, 0)
        values = validate_parameters(where, params)
        _, history, view = self.handle.look()
        table, start = view.table, self.handle.slot_of(history, since, exclusive=True)

        def look() -> tuple[History, View]:
            seen = self.handle.look()
            return seen.history, seen.view

        def pull(after: int, until: int) -> Rows:
            between = Cursor(table, after) if after else "earliest", Cursor(table, until)
            return (
                self.changes(*between, columns=columns, where=where, params=values, versions=versions)
                if mode == "changes"
                else self.incremental(*between, columns=columns, where=where, params=values, deletes=deletes)
            )

        return poll_commits(look, start, pull, most_commits, poll_seconds, timeout_seconds)

    def history(self, newest: int | None = None) -> timeline_listing.Commits:
        """List the commits that changed rows, newest first.

        Each commit shows its time, its action, the number of changed rows, and whether its snapshot is readable.

        Args:
            newest: The maximum number of commits to list. None (default): all commits except archived ones.

        Returns:
            The commits.

        Raises:
            OptionError: `newest` is not an integer of at least 1.
        """
        from hoodoo.timeline import timeline_listing

        check_number("newest", newest, 1, whole=True)
        return timeline_listing.list_commits(self.handle.look().history, newest)


def read_changed_rows(
    seen: TableSnapshot,
    after: int,
    columns: Sequence[str] | None,
    where: Where | None,
    meta: bool,
    deletes: bool,
    params: Params | None = None,
) -> Scan | IncrementalRows:
    """Read the rows that changed after a commit.

    It is the implementation of `incremental`. With `deletes`, keys that were deleted also get a row.
    """
    from hoodoo.readers.changes.incremental import IncrementalRows
    from hoodoo.readers.scan import Scan
    from hoodoo.readers.slices.slice_task import CommitRange

    config, history, view = seen
    config.require_commit_times()
    history.require_not_rolled_back(after)
    instants = None
    if after:
        instants = frozenset(slot.instant for slot in history.slots(after, view.seq) if slot.writes_rows)
    check_flag("meta", meta), check_flag("deletes", deletes)
    changed = Scan(history, config, view, columns, where, meta, changed=CommitRange(after, instants), params=params)
    return IncrementalRows(history, config, changed, after, view, where, meta, params) if deletes else changed
