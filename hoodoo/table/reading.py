"""Read methods of a table: snapshots, changes, look-ups by key, history.

A part of `hoodoo.table.Table` that writes nothing. Checks arguments and fixes positions; what each read does is in
hoodoo.readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from hoodoo.arguments import flag, number_from, one_of, require_application
from hoodoo.errors import ColumnError, PositionError
from hoodoo.format.names import META_COLUMNS, PARTITION_PATH, RECORD_KEY
from hoodoo.hints import explained
from hoodoo.index.key_index import Keys
from hoodoo.readers.cursor import Cursor, PositionLike
from hoodoo.readers.output import CURRENT, ORIGINAL, guarded, named
from hoodoo.table.handle import Seen, TableHandle
from hoodoo.timeline.history import History
from hoodoo.timeline.views.view import View
from hoodoo.writers.batches.batch import prepare
from hoodoo.writers.batches.write_options import WriteOptions

if TYPE_CHECKING:
    from hoodoo.readers.changes.changes import Changes
    from hoodoo.readers.changes.incremental import IncrementalRows
    from hoodoo.readers.output import Rows
    from hoodoo.readers.predicate.filter import Where
    from hoodoo.readers.scan import Scan
    from hoodoo.table.keys_given import KeysLike
    from hoodoo.timeline import timeline_listing
    from hoodoo.timeline.applications import Application


@explained
class Readable:
    """The read methods of `Table`."""

    handle: TableHandle

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        as_of: PositionLike | None = None,
        read_optimized: bool = False,
        meta: bool = False,
        verified: bool = False,
        names: str = CURRENT,
    ) -> Scan:
        """Read the live rows of a snapshot, each once and in no order.

        The snapshot is fixed when this is called; the rows are read when one of the scan's `to_...` methods is called.

        Args:
            columns: Names of the columns to read. None (default): all columns of the snapshot.
            where: A condition that rows have to meet, as SQL-like text or a pyarrow expression. With DuckDB a text may
                be any boolean SQL expression over the columns of the row. None (default): all rows.
            as_of: The position of the snapshot: the number of a slot; a commit of `history`, a write result or a read;
                a cursor or its text; an instant; a datetime with a zone; a date, which is its beginning in UTC; a
                timedelta, which is how long ago; ISO 8601 text, in UTC if it has no zone; text such as '1d' or '2 hours
                ago'; or the name of a savepoint. None (default): the newest slot.
            read_optimized: True reads base files only, without what logs changed since. Default False.
            meta: True offers Hudi's five meta columns too, and reads them where `columns` is None. Default False.
            verified: True reads each file whole and compares it with its digest in the slot. False (default) checks the
                size of each file and Parquet's page checksums only.
            names: 'original' gives columns the names that they were created from with rename="snake", where they have
                one. 'current' (default) gives them the names that the table has.

        Returns:
            The scan, with the position of its snapshot in `cursor`.

        Raises:
            ColumnError: `columns` is empty, is a text, or has a name twice or one that the snapshot does not have.
            PredicateError: `where` cannot be parsed or does not fit the columns.
            OptionError: `where` is neither text nor a pyarrow expression, or `names` is neither of its values.
            PositionError: `as_of` is not a position of this table.
            SnapshotExpired: The snapshot was cleaned away, or was before the table's first slot.
            RangeUndone: Another engine took the snapshot back.
        """
        from hoodoo.readers.scan import Scan

        seen = self.handle.at(as_of)
        flag("meta", meta), flag("read_optimized", read_optimized), flag("verified", verified)
        found = Scan(seen.history, seen.config, seen.view, columns, where, meta, read_optimized, verified=verified)
        return named(found, names, seen.config.spellings)

    def _between(self, since: PositionLike, until: PositionLike | None) -> tuple[int, Seen]:
        """Find the slot after which a range begins, and the table as of the range's end."""
        seen = self.handle.at(until)
        after = self.handle.slot_of(seen.history, since, exclusive=True)
        if after > seen.view.seq:
            raise PositionError(
                f"until is slot {seen.view.seq}, before since, slot {after}. diff() compares two snapshots in either "
                "order.",
                position=after,
            )
        return after, seen

    def __len__(self) -> int:
        """Count the rows of the newest snapshot, as `count` does."""
        return self.count()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows of the newest snapshot in Arrow's stream protocol, which DuckDB, polars and pyarrow take."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def __bool__(self) -> bool:
        """Return True: a table is there, though it may have no row."""
        return True

    def count(self) -> int:
        """Count the rows of the newest snapshot.

        Returns:
            The number of rows.

        Raises:
            SnapshotExpired: A clean deleted files of the snapshot meanwhile.
            CorruptTable: A file is damaged.
        """
        return self.scan().count()

    def head(self, rows: int = 10) -> pa.Table:
        """Read a few rows of the newest snapshot, to look at.

        Args:
            rows: How many rows at most, from 0. Default 10. Which rows these are is not said.

        Returns:
            The rows.

        Raises:
            OptionError: `rows` is not a whole number from 0.
            SnapshotExpired: A clean deleted files of the snapshot meanwhile.
            CorruptTable: A file is damaged.
        """
        return self.scan().head(rows)

    def incremental(
        self,
        since: PositionLike,
        until: PositionLike | None = None,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        meta: bool = False,
        deletes: bool = False,
        names: str = CURRENT,
    ) -> Scan | IncrementalRows:
        """Read the newest version of each row that changed after `since`, as it stands at `until`.

        The range excludes `since` and includes `until`. Pass `cursor` of the result as the next `since`. To keep
        another table the same, call `other.upsert(table.incremental(since, deletes=True))`; create the other table
        without `order_by`, because which version is newer was decided here.

        Args:
            since: A position as `scan` takes it, or 'earliest'.
            until: A position as `scan` takes it. None (default): the newest slot.
            columns: Names of the columns to read. None (default): all columns that the table has at `until`.
            where: A condition that rows have to meet, as `scan` takes it. None (default): all rows. A deleted row has
                to meet it as it was at `since`.
            meta: True offers Hudi's five meta columns too, and reads them where `columns` is None. Default False.
            deletes: True adds the column `_hoodie_is_deleted`, and a row for each key that was deleted in the range. In
                such a row the column is true, the key, partition and ordering columns are filled and the others are
                null. The snapshot at `since` must then be readable. Default False.
            names: 'original' gives columns the names that they were created from with rename="snake", where they have
                one. 'current' (default) gives them the names that the table has.

        Returns:
            The rows, with the position of their end in `cursor`.

        Raises:
            ColumnError: `columns` is empty, is a text, or has a name twice or one that the table does not have.
            PredicateError: `where` cannot be parsed or does not fit the columns.
            OptionError: `where` is neither text nor a pyarrow expression, or `names` is neither of its values.
            PositionError: `since` or `until` is not a position of this table, or `until` is before `since`.
            SnapshotExpired: The snapshot at `until` was cleaned away, a slot of the range was archived, or, with
                `deletes`, the snapshot at `since` was cleaned away.
            RangeUndone: Another engine took `since` or `until` back.
        """
        after, seen = self._between(since, until)
        found = rows_changed(seen, after, columns, where, meta, deletes)
        return named(found, names, seen.config.spellings)

    def changes(
        self,
        since: PositionLike,
        until: PositionLike | None = None,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        versions: str = "net",
        names: str = CURRENT,
    ) -> Changes:
        """Read every insert, update and delete after `since` up to `until`, one row for each.

        The rows have the columns `op` ("i", "u" or "d"), `instant`, and the structs `before` and `after`. The range
        excludes `since` and includes `until`.

        Args:
            since: A position as `scan` takes it, or 'earliest'.
            until: A position as `scan` takes it. None (default): the newest slot.
            columns: Names of the columns of `before` and `after`. Changes of other columns do not count. None
                (default): all columns that the table has at `until`.
            where: A condition, as `scan` takes it, for the rows whose changes are read. A row that ceases to meet it is
                a delete. None (default): all rows.
            versions: 'net' (default) compares the two snapshots: a key has at most one change, and none if its row is
                the same at both ends. 'all' gives what each commit did, in their order.
            names: 'original' gives columns the names that they were created from with rename="snake", where they have
                one. 'current' (default) gives them the names that the table has.

        Returns:
            The changes, with the position of their end in `cursor`.

        Raises:
            ColumnError: `columns` is empty, is a text, or has a name twice or one that the table does not have.
            PredicateError: `where` cannot be parsed or does not fit the columns.
            OptionError: `versions` or `names` is neither of its values, or `where` is neither text nor a pyarrow
                expression.
            PositionError: `since` or `until` is not a position of this table, or `until` is before `since`.
            SnapshotExpired: Files of the range were cleaned away. The error names the earliest usable position.
            RangeUndone: Another engine took `since` or `until` back.
        """
        from hoodoo.readers.changes.changes import Changes

        after, seen = self._between(since, until)
        found = Changes(seen.history, seen.config, after, seen.view, columns, where, versions)
        return named(found, names, seen.config.spellings)

    def diff(
        self,
        a: PositionLike,
        b: PositionLike | None = None,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        names: str = CURRENT,
    ) -> Changes:
        """Read the changes that make snapshot `a` into snapshot `b`.

        The rows have the columns `op` ("i", "u" or "d"), and the structs `before` and `after`. Any two readable
        positions are taken, in either order.

        Args:
            a: A position as `scan` takes it.
            b: A position as `scan` takes it. None (default): the newest slot.
            columns: Names of the columns of `before` and `after`, as in `changes`. None (default): all.
            where: A condition for the rows whose changes are read, as in `changes`. None (default): all rows.
            names: 'original' gives columns the names that they were created from with rename="snake", where they have
                one. 'current' (default) gives them the names that the table has.

        Returns:
            The changes, without instants.

        Raises:
            ColumnError: `columns` is empty, is a text, or has a name twice or one that the table does not have.
            PredicateError: `where` cannot be parsed or does not fit the columns.
            OptionError: `where` is neither text nor a pyarrow expression, or `names` is neither of its values.
            PositionError: `a` or `b` is not a position of this table.
            SnapshotExpired: One of the snapshots was cleaned away.
            RangeUndone: Another engine took one of the snapshots back.
        """
        from hoodoo.readers.changes.changes import Changes

        config, history, view = self.handle.at(b)
        found = Changes(history, config, self.handle.slot_of(history, a), view, columns, where, timed=False)
        return named(found, names, config.spellings)

    def get(
        self,
        keys: KeysLike,
        columns: Sequence[str] | None = None,
        as_of: PositionLike | None = None,
        meta: bool = False,
        names: str = CURRENT,
    ) -> pa.Table:
        """Read the live rows with these keys, through the index.

        The rows come in the order of the keys. Keys that the table does not have are left out; a key that is given
        twice stands where it was given first. Only row groups that may hold one of the keys are read.

        Args:
            keys: A table, DataFrame or list of dicts with the key columns; or, where the key is one column, one value,
                or a list, a set, an iterator or an array of values. With the partition columns, or columns of which
                these are made, only these partitions are looked in, without them every partition is.
            columns: Names of the columns to read. None (default): all columns of the snapshot.
            as_of: The position of the snapshot, as `scan` takes it. None (default): the newest slot.
            meta: True offers Hudi's five meta columns too, and reads them where `columns` is None. Default False.
            names: 'original' gives columns the names that they were created from with rename="snake", where they have
                one. 'current' (default) gives them the names that the table has.

        Returns:
            The rows.

        Raises:
            ColumnError: `columns` does not name columns of the snapshot. Also if `keys` lacks a key column, has some of
                the partition columns but not all, has values that do not fit, or has bare values where the key is
                several columns. Also if `keys` has partition columns and the folders of the table do not tell their
                values, because its key generator is TIMESTAMP, CUSTOM or unknown, or splits dates over several folders.
            OptionError: `names` is neither of its values.
            KeyValueError: A key is null, too long or ambiguous.
            PartitionValueError: A partition value cannot be the name of a folder.
            PositionError: `as_of` is not a position of this table.
            SnapshotExpired: The snapshot was cleaned away, or was before the table's first slot.
            RangeUndone: Another engine took the snapshot back.
        """
        from hoodoo.readers.lookup import in_order, look_up
        from hoodoo.readers.scan import chosen_columns
        from hoodoo.table.keys_given import keys_given

        one_of("names", names, (CURRENT, ORIGINAL))
        flag("meta", meta)
        config, history, view = self.handle.at(as_of)
        columns = config.spellings.names(columns)
        chosen = chosen_columns(columns, [*META_COLUMNS, *config.schema.names] if meta else config.schema.names)
        given = keys_given(keys, config)
        if given.in_partitions and config.partition_by and not config.folders_tell_values:
            column = config.partition_by[0]
            raise ColumnError(
                f"The folders of this table are made by {config.key_generator or 'a key generator of its own'}: which "
                f"one holds a value of {column!r} is not known. Pass keys without partition columns; they are "
                "looked for in every partition.",
                column=column,
            )
        batch = prepare(given.rows, config, WriteOptions(delete=True, duplicates="first"))
        record_keys = batch.rows[RECORD_KEY].combine_chunks()
        placed = [PARTITION_PATH] if given.in_partitions and config.partition_by else []
        if given.in_partitions:
            wanted = Keys.where_they_are(record_keys, batch.hashes, batch.partitions, batch.codes)
        else:
            wanted = Keys.in_every_partition(record_keys, batch.hashes, list(view.partitions))
        rows = guarded(
            history,
            lambda: history.require_readable(view.seq),
            lambda: look_up(self.handle.store, config, self.handle.index, view, wanted, [*chosen, *placed]),
        )
        found = in_order(rows, wanted, record_keys, bool(placed)).select(list(chosen))
        return config.spellings.original_rows(found) if names == ORIGINAL else found

    def follow(
        self,
        since: PositionLike,
        mode: str = "changes",
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        deletes: bool = False,
        versions: str = "net",
        most_commits: int | None = None,
        poll_s: float = 1.0,
        timeout_s: float | None = None,
    ) -> Iterator[Rows]:
        """Read what changed since a position, then what changed since that, and so on.

        The iterator gives reads like those of `changes` or `incremental`, of adjoining ranges. Keep `cursor` of the
        last one that you handled: to follow since it goes on there, with nothing missed and nothing twice.

        Args:
            since: A position as `scan` takes it, or 'earliest'.
            mode: 'changes' (default) or 'incremental', the kind of the reads.
            columns: Names of the columns, as the method `mode` takes them. None (default): all.
            where: A condition, as the method `mode` takes it. None (default): all rows.
            deletes: `deletes` of `incremental`. Default False.
            versions: 'net' (default) or 'all', `versions` of `changes`.
            most_commits: How many commits one read covers at most. None (default): all there are.
            poll_s: How long to wait, in seconds, before the table is looked at again for a new commit. Default 1.0.
            timeout_s: After how many seconds without a new commit the iterator ends. None (default): never.

        Yields:
            The next read, each with the position of its end in `cursor`.

        Raises:
            OptionError: An argument does not have one of the values above.
            PositionError: `since` is not a position of this table.
            SnapshotExpired: A range begins or ends where the table is no longer readable.
            RangeUndone: Another engine took a position back.
            ColumnError: `columns` names a column that the table does not have when a range is read.
            PredicateError: `where` cannot be parsed or does not fit the columns when a range is read.
        """
        from hoodoo.readers.changes.follow import follow

        one_of("mode", mode, ("changes", "incremental"))
        number_from("most_commits", most_commits, 1, whole=True)
        number_from("poll_s", poll_s, 0, optional=False)
        number_from("timeout_s", timeout_s, 0)
        _, history, view = self.handle.look()
        table, start = view.table, self.handle.slot_of(history, since, exclusive=True)

        def look() -> tuple[History, View]:
            seen = self.handle.look()
            return seen.history, seen.view

        def pull(after: int, until: int) -> Rows:
            between = Cursor(table, after) if after else "earliest", Cursor(table, until)
            return (
                self.changes(*between, columns, where, versions)
                if mode == "changes"
                else self.incremental(*between, columns, where, deletes=deletes)
            )

        return follow(look, start, pull, most_commits, poll_s, timeout_s)

    def files(self, as_of: PositionLike | None = None) -> pa.Table:
        """List the file groups of a snapshot, from the slots; no file is opened.

        A file group is a base file and the logs over it. This is to look at: rows are read by `scan`, since base files
        have rows that logs replace or delete.

        Args:
            as_of: The position of the snapshot, as `scan` takes it. None (default): the newest slot.

        Returns:
            A row for each file group: `partition`, the `rows` and `bytes` of the base file, the number of `logs`,
            `log_bytes`, the newest `slot` that wrote to it, the path of `base_file` below the table, and the id of the
            `file_group`.

        Raises:
            PositionError: `as_of` is not a position of this table.
            SnapshotExpired: The snapshot was cleaned away, or was before the table's first slot.
            RangeUndone: Another engine took the snapshot back.
        """
        from hoodoo.readers.file_listing import file_groups

        return file_groups(self.handle.at(as_of).view)

    def duplicates(self, as_of: PositionLike | None = None) -> pa.Table:
        """Find the keys that have more than one row.

        A key identifies a row within its partition. A row that comes with another partition value stands beside the one
        that is there, and its key is in two partitions. The key columns of the whole table are read, and what is held
        in memory grows with the keys that are found.

        Args:
            as_of: The position of the snapshot, as `scan` takes it. None (default): the newest slot.

        Returns:
            A row for each such key, in their order: the key columns, the `count` of its rows, and the `partitions` that
            they are in, as folders. A key with fewer partitions than rows is twice in one partition, which `verify`
            reports as damage.

        Raises:
            PositionError: `as_of` is not a position of this table.
            SnapshotExpired: The snapshot was cleaned away, or was before the table's first slot.
            RangeUndone: Another engine took the snapshot back.
            CorruptTable: A file is damaged.
        """
        from hoodoo.readers.duplicates import duplicates

        config, history, view = self.handle.at(as_of)
        return duplicates(history, config, view)

    def timeline(self, newest: int | None = None) -> timeline_listing.Timeline:
        """List every instant in the order of slots, pending instants last.

        Args:
            newest: How many of the newest slots to list at most. None (default): all that are not archived.

        Returns:
            The instants, with what each did.

        Raises:
            OptionError: `newest` is not a whole number from 1.
        """
        from hoodoo.timeline import timeline_listing

        number_from("newest", newest, 1, whole=True)
        return timeline_listing.listing(self.handle.look().history, newest)

    def history(self, newest: int | None = None) -> timeline_listing.Commits:
        """List the commits that changed rows, the newest first.

        Each says when it was made, what it did, how many rows it changed, and whether its snapshot can be read.

        Args:
            newest: How many commits to list at most. None (default): all that are not archived.

        Returns:
            The commits.

        Raises:
            OptionError: `newest` is not a whole number from 1.
        """
        from hoodoo.timeline import timeline_listing

        number_from("newest", newest, 1, whole=True)
        return timeline_listing.commits(self.handle.look().history, newest)

    def application(self, name: str) -> Application:
        """Tell how far an application has come with its commits: what `transaction` says of them.

        Args:
            name: The name of the application.

        Returns:
            The number of its newest commit, and the position that this one carries.

        Raises:
            OptionError: `name` is not a text of 1 to 1,000 characters.
        """
        from hoodoo.timeline.applications import application

        require_application(name)
        view = self.handle.look().view
        return application(name, view.transactions, view.reached)

    def applications(self) -> list[Application]:
        """List the applications that have committed with a number of their own, as `transaction` says it.

        Returns:
            How far each has come, by name.
        """
        from hoodoo.timeline.applications import application

        view = self.handle.look().view
        return [application(name, view.transactions, view.reached) for name in sorted(view.transactions)]


def rows_changed(
    seen: Seen, after: int, columns: Sequence[str] | None, where: Where | None, meta: bool, deletes: bool
) -> Scan | IncrementalRows:
    """Read the rows of `seen` that slots after `after` changed, with the columns of its configuration."""
    from hoodoo.readers.changes.incremental import IncrementalRows
    from hoodoo.readers.scan import Scan
    from hoodoo.readers.slices.slice_task import Range

    config, history, view = seen
    config.require_commit_times()
    history.require_not_undone(after)
    instants = None
    if after:
        instants = frozenset(slot.instant for slot in history.slots(after, view.seq) if slot.writes_rows)
    flag("meta", meta), flag("deletes", deletes)
    changed = Scan(history, config, view, columns, where, meta, changed=Range(after, instants))
    return IncrementalRows(history, config, changed, after, view, where, meta) if deletes else changed
