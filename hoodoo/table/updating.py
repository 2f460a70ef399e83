"""Update methods of `Table`.

They check arguments and call `hoodoo.writers`, which does the write.
"""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import TYPE_CHECKING

from hoodoo.arguments import ApplicationVersion, Transaction, convert_transaction
from hoodoo.hints import suggest_for_methods
from hoodoo.readers.cursor import PositionLike
from hoodoo.table.handle import TableHandle
from hoodoo.timeline.properties.config import TableConfig

if TYPE_CHECKING:
    from hoodoo.readers.predicate.filter import Filter, Params, Where
    from hoodoo.table.merging import Merge
    from hoodoo.table.results import WriteResult
    from hoodoo.writers.batches.computed import NewValues, SetLike
    from hoodoo.writers.batches.input import ArrowLike
    from hoodoo.writers.context import Context


@suggest_for_methods
class Updatable:
    """Base class with `Table.update` and `Table.merge`."""

    handle: TableHandle

    def update(
        self,
        set: SetLike,
        *,
        where: Where | None = None,
        params: Params | None = None,
        transaction: Transaction | None = None,
        if_head: PositionLike | None = None,
    ) -> WriteResult:
        """Update the rows that match a condition, like SQL `UPDATE`.

        Only rows that change are written. If another writer concurrently changes rows that the update read, or writes
        rows that may match, the update is retried on the new rows. So two concurrent updates with `{"n": "n + 1"}` add
        2.

        Args:
            set: The new value by column, or a function. A string is an SQL expression over the columns of the row, such
                as "fare * 1.1" or "'late'". Any other object is a value. SQL expressions need DuckDB, `pip install
                'hoodoo[sql]'`. A result that cannot be converted to the column type without loss is rejected; use
                "round(fare * 1.1, 2)" or a CAST. A function takes an Arrow table of the matching rows with all columns.
                It returns the changed columns in the same row order, as an Arrow table or as a mapping from name to
                array. The function runs in threads, once for each file group, and again on a retry.
            where: A filter condition, as in `scan`. None (default): all rows.
            params: The values of the parameters in `where` and in the SQL expressions of `set`, as in `scan`. None
                (default): no parameters.
            transaction: An application name and an increasing version, as in `upsert`. None (default): no version.
            if_head: A position, as in `scan`. The update is committed only if no rows were written after this position.
                None (default): no condition.

        Returns:
            The cursor of the commit, and counts of rows and files. `updated` is the number of written rows.

        Raises:
            ColumnError: `set` names an unknown column, a key, partition or ordering column, or the source column of a
                partition column. Or a value cannot be converted to its column type.
            CheckFailed: A row would fail one of the table's checks.
            PredicateError: `where` cannot be parsed or does not match the columns.
            ExpressionError: An expression of `set` cannot be parsed or does not match the columns, or an expression
                cannot be evaluated for a row.
            OptionError: An argument has an invalid value.
            EngineError: An expression needs DuckDB, which is not installed.
            PositionError: `if_head` is not a position of this table.
            CommitConflict: Other writers committed first more than `max_retries` times, or rows were written after
                `if_head`. Nothing was written.
            CommitUnknown: The store did not confirm in time that the commit succeeded. Call `resolve()` of the error to
                find out.
            Fenced: Another process rolled back this write while it ran.
        """
        from hoodoo.readers.predicate.parameters import (
            select_sql_expressions,
            select_used_parameters,
            validate_parameters,
        )
        from hoodoo.writers import stored_rows

        parameters = validate_parameters(where, params, select_sql_expressions(set))
        version, now = convert_transaction(transaction), dt.datetime.now(dt.timezone.utc)
        context = self._context_on_head(if_head)
        values = partial(_values, set, parameters, now)
        condition = partial(_condition, where, select_used_parameters(where, parameters), now)
        return self.handle.finished(context, stored_rows.update_where(context, condition, values, version))

    def merge(self, source: ArrowLike) -> Merge:
        """Merge rows into the table, like SQL `MERGE`.

        For example `table.merge(batch).when_matched_update({"n": "target.n +
        source.n"}).when_not_matched_insert_all().execute()`.

        Args:
            source: The source rows, in any form that `upsert` accepts. They must have unique keys, the key and
                partition columns, and all columns that the clauses use.

        Returns:
            The merge. Add clauses to it, then call its `execute`.
        """
        from hoodoo.table.merging import Merge

        return Merge(self.handle, source)

    def _delete_where(
        self,
        where: Where,
        parameters: Params,
        transaction: ApplicationVersion | None,
        if_head: PositionLike | None,
    ) -> WriteResult:
        from hoodoo.writers import stored_rows

        condition = partial(_condition, where, parameters, dt.datetime.now(dt.timezone.utc))
        context = self._context_on_head(if_head)
        return self.handle.finished(context, stored_rows.delete_where(context, condition, transaction))

    def _context_on_head(self, if_head: PositionLike | None) -> Context:
        context = self.handle.context()
        return context.on_head(None if if_head is None else self.handle.slot_of(context.timeline.history, if_head))


def _condition(where: Where | None, parameters: Params, now: dt.datetime, config: TableConfig) -> Filter | None:
    from hoodoo.readers.predicate.filter import Filter

    return Filter.parse(config.name_mapping.text(where), config.schema, now, parameters)


def _values(set: SetLike, parameters: Params, now: dt.datetime, config: TableConfig) -> NewValues:
    from hoodoo.writers.batches.computed import NewValues

    return NewValues.of(config.name_mapping.expressions(set), config, now, params=parameters)
