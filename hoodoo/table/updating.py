"""Write methods of a table that look at stored rows: `update`, and deletes by a condition.

A part of `hoodoo.table.Table`. Checks arguments and delegates; what a write does is in hoodoo.writers.
"""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import TYPE_CHECKING

from hoodoo.arguments import ApplicationVersion, Transaction, application_version
from hoodoo.hints import explained
from hoodoo.readers.cursor import PositionLike
from hoodoo.table.handle import TableHandle
from hoodoo.table.results import WriteResult
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.input import ArrowLike
from hoodoo.writers.context import Context

if TYPE_CHECKING:
    from hoodoo.readers.predicate.filter import Filter, Where
    from hoodoo.table.merging import Merge
    from hoodoo.writers.batches.computed import NewValues, SetLike


@explained
class Updatable:
    """The write methods of `Table` that look at stored rows."""

    handle: TableHandle

    def update(
        self,
        set: SetLike,
        where: Where | None = None,
        transaction: Transaction | None = None,
        if_head: PositionLike | None = None,
    ) -> WriteResult:
        """Give rows new values, in one commit.

        Only rows that differ afterwards are written. Where another writer changes rows that were read, or writes rows
        that may match, the update is made anew on the new rows, so that two writers of `{"n": "n + 1"}` add 2.

        Args:
            set: By column, what it is set to: a text is an SQL expression over the columns of the row, such as
                "fare * 1.1" or "'late'", anything else is a value. SQL expressions need DuckDB, `pip install
                'hoodoo[sql]'`. A result that the column cannot hold unchanged is refused: write "round(fare * 1.1, 2)"
                or a CAST. Or a function that takes an Arrow table of the rows that match, with all columns of the
                table, and returns an Arrow table, or a mapping from name to array, with those that change, in the same
                order of rows. It runs once for each file group, in threads, and again where an attempt is made anew.
            where: A condition that rows have to meet, as `scan` takes it. None (default): all rows.
            transaction: An application name and a growing version, as in `upsert`. None (default): no version.
            if_head: A position as `scan` takes it. The update is committed only if no row was written since. None
                (default): it does not matter.

        Returns:
            The cursor of the commit, and counts of rows and files. `updated` counts the rows that were written.

        Raises:
            ColumnError: `set` names a column that the table does not have, a key, partition or ordering column, or one
                of which a partition column is made; or a value does not fit its column.
            CheckFailed: A row would fail one of the table's checks.
            PredicateError: `where` cannot be parsed or does not fit the columns.
            ExpressionError: An expression of `set` cannot be parsed or does not fit the columns, or an expression
                cannot be evaluated on a row.
            OptionError: An argument does not have one of the values above.
            EngineError: An expression needs DuckDB, which is not installed.
            PositionError: `if_head` is not a position of this table.
            CommitConflict: Other writers came first more than `max_retries` times, or rows were written since
                `if_head`. Nothing was written.
            CommitUnknown: The store did not say in time whether the commit succeeded; ask its `resolve()`.
            Fenced: Somebody rolled this write back while it ran.
        """
        from hoodoo.writers import stored_rows

        version, now = application_version(transaction), dt.datetime.now(dt.timezone.utc)
        context = self._conditional(if_head)
        values, condition = partial(_values, set, now), partial(_condition, where, now)
        return self.handle.finished(context, stored_rows.update(context, condition, values, version))

    def merge(self, source: ArrowLike) -> Merge:
        """Begin a merge of rows into the table, by their keys: `MERGE` of SQL, in Delta Lake's words.

        For example `table.merge(batch).when_matched_update({"n": "target.n + source.n"})
        .when_not_matched_insert_all().execute()`.

        Args:
            source: Rows, as `upsert` takes them, each key once, with the key and partition columns. Which others they
                need, clauses say.

        Returns:
            The merge, to which clauses are added; its `execute` writes.
        """
        from hoodoo.table.merging import Merge

        return Merge(self.handle, source)

    def _delete_where(
        self, where: Where, transaction: ApplicationVersion | None, if_head: PositionLike | None
    ) -> WriteResult:
        from hoodoo.writers import stored_rows

        now = dt.datetime.now(dt.timezone.utc)
        context = self._conditional(if_head)
        return self.handle.finished(context, stored_rows.delete(context, partial(_condition, where, now), transaction))

    def _conditional(self, if_head: PositionLike | None) -> Context:
        """What a write works with that goes on only if no row was written since `if_head`."""
        context = self.handle.context()
        return context.on_head(None if if_head is None else self.handle.slot_of(context.timeline.history, if_head))


def _condition(where: Where | None, now: dt.datetime, config: TableConfig) -> Filter | None:
    from hoodoo.readers.predicate.filter import Filter

    return Filter.of(config.spellings.text(where), config.schema, now)


def _values(set: SetLike, now: dt.datetime, config: TableConfig) -> NewValues:
    from hoodoo.writers.batches.computed import NewValues

    return NewValues.of(config.spellings.expressions(set), config, now)
