"""Builder for SQL `MERGE`.

This module is part of `hoodoo.table.Table`. It checks arguments and calls `hoodoo.writers.merging`, which does the
merge.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from hoodoo.arguments import ApplicationVersion, Transaction, convert_transaction
from hoodoo.engine.session import is_spark_dataframe
from hoodoo.errors import ColumnError, DuplicateKeys, ExpressionError, OptionError
from hoodoo.hints import hint_for, suggest_for_methods
from hoodoo.readers.cursor import PositionLike
from hoodoo.readers.predicate import checks, sql
from hoodoo.readers.predicate.filter import Params
from hoodoo.readers.predicate.parameters import select_sql_expressions, validate_parameters
from hoodoo.readers.spark_names import by_table_names
from hoodoo.redact import printable
from hoodoo.table.handle import TableHandle
from hoodoo.table.results import WriteResult
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.batch import prepare_batch
from hoodoo.writers.batches.computed import CopiedColumn, NewValues
from hoodoo.writers.batches.generated_columns import computable_partition_columns
from hoodoo.writers.batches.input import ArrowLike, to_arrow
from hoodoo.writers.batches.write_options import WriteOptions
from hoodoo.writers.context import Context
from hoodoo.writers.merging.clauses import SOURCE, TARGET, Clause, Kind, seen_schema
from hoodoo.writers.merging.merge import MergeRowsInMemory, merge
from hoodoo.writers.merging.merge_source import MergeSource, convert_source_columns, duplicate_source_keys_error
from hoodoo.writers.operations import upsert
from hoodoo.writers.sources import InMemoryBatch

_ALL = "all"


@dataclass(frozen=True)
class _UncheckedClause:
    """Clause of a merge whose arguments are not checked yet.

    Attributes:
        kind: The rows that the clause applies to.
        values: The new values by column, _ALL for all columns of the source, or None to delete.
        where: The condition, or None.
        call: The name of the `Merge` method, for error messages.
    """

    kind: Kind
    values: Mapping[str, object] | str | None
    where: str | None
    call: str


@suggest_for_methods
class Merge:
    """Builder for a merge, like SQL `MERGE`.

    `Table.merge` creates it. Add at least one clause.

    A source row matches a stored row if both have the same key and partition. There are three kinds of clauses: for
    matched rows, for source rows without a match, and for stored rows without a match. If several clauses of a kind
    apply to a row, the one that was added first is used.

    Expressions are SQL and are evaluated by DuckDB. `source.fare` and `target.fare` refer to the columns of the source
    row and the stored row. The column name alone is enough if only one of the two rows has the column.
    """

    def __init__(self, handle: TableHandle, source: ArrowLike) -> None:
        """Create a merge.

        Users call `Table.merge`.

        Args:
            handle: The table.
            source: The rows to merge into the table.
        """
        self._handle, self._source, self._said = handle, source, list[_UncheckedClause]()

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report unknown attributes

        def __getattr__(self, name: str) -> None:
            """Suggest a similar method name."""
            raise AttributeError(hint_for(name, type(self), "merge", {}))

    def __repr__(self) -> str:
        clauses = ", ".join(said.call for said in self._said) or "no clause yet"
        return f"<hoodoo merge into {self._handle.store.uri}: {clauses}>"

    def when_matched_update(self, set: Mapping[str, object], *, where: str | None = None) -> Merge:
        """Update some columns of matched rows.

        Args:
            set: The new value by column: a string is an SQL expression over both rows, any other object is a value.
            where: A condition over both rows. None (default): all matched rows.

        Returns:
            This merge, to chain calls.
        """
        return self._with(Kind.MATCHED, set, where, "when_matched_update")

    def when_matched_update_all(self, where: str | None = None) -> Merge:
        """Replace matched rows with their source rows.

        The source must have all columns of the table. Source columns missing from the table are not written, but
        conditions can use them. In a table with `order_by`, a source row with a smaller ordering value is stale, as in
        `upsert`.

        Args:
            where: A condition over both rows. None (default): all matched rows.

        Returns:
            This merge, to chain calls.
        """
        return self._with(Kind.MATCHED, _ALL, where, "when_matched_update_all")

    def when_matched_delete(self, where: str | None = None) -> Merge:
        """Delete matched rows.

        Args:
            where: A condition over both rows. None (default): all matched rows.

        Returns:
            This merge, to chain calls.
        """
        return self._with(Kind.MATCHED, None, where, "when_matched_delete")

    def when_not_matched_insert(self, values: Mapping[str, object], *, where: str | None = None) -> Merge:
        """Insert a row for each unmatched source row.

        Key and partition columns are always taken from the source or derived from its columns. Other columns missing
        from `values` get their default or null.

        Args:
            values: The value by column: a string is an SQL expression over the source row, any other object is a value.
            where: A condition over the source row. None (default): all source rows without a match.

        Returns:
            This merge, to chain calls.
        """
        return self._with(Kind.NOT_MATCHED, values, where, "when_not_matched_insert")

    def when_not_matched_insert_all(self, where: str | None = None) -> Merge:
        """Insert all unmatched source rows.

        The source must have all columns of the table. Source columns missing from the table are not written, but
        conditions can use them.

        Args:
            where: A condition over the source row. None (default): all source rows without a match.

        Returns:
            This merge, to chain calls.
        """
        return self._with(Kind.NOT_MATCHED, _ALL, where, "when_not_matched_insert_all")

    def when_not_matched_by_source_update(self, set: Mapping[str, object], *, where: str | None = None) -> Merge:
        """Update stored rows that no source row matches.

        The merge then reads the whole table.

        Args:
            set: The new value by column: a string is an SQL expression over the stored row, any other object is a
                value.
            where: A condition over the stored row. None (default): all stored rows without a match.

        Returns:
            This merge, to chain calls.
        """
        return self._with(Kind.NOT_MATCHED_BY_SOURCE, set, where, "when_not_matched_by_source_update")

    def when_not_matched_by_source_delete(self, where: str | None = None) -> Merge:
        """Delete stored rows that no source row matches.

        The merge then reads the whole table.

        Args:
            where: A condition over the stored row. None (default): all stored rows without a match.

        Returns:
            This merge, to chain calls.
        """
        return self._with(Kind.NOT_MATCHED_BY_SOURCE, None, where, "when_not_matched_by_source_delete")

    def execute(
        self,
        *,
        params: Params | None = None,
        transaction: Transaction | None = None,
        if_head: PositionLike | None = None,
    ) -> WriteResult:
        """Run the merge in one commit.

        Args:
            params: The values of the parameters in the conditions and SQL expressions of all clauses, as in `scan`.
                None (default): no parameters.
            transaction: An application name and an increasing version, as in `upsert`. None (default): no version.
            if_head: A position, as in `scan`. The merge is committed only if no rows were written after this position.
                None (default): no condition.

        Returns:
            The cursor of the commit, and counts of rows and files. `stale` counts source rows with smaller ordering
            values than the stored rows.

        Raises:
            OptionError: The merge does not have a clause, or an argument is invalid.
            ColumnError: The source lacks a key or partition column, or a column that a clause needs. Or a clause sets
                an unknown column, a key or partition column, or the source column of a partition column. Or a value
                cannot be converted to its column type, or does not match the partition of the row.
            KeyValueError: A key of the source is null, too long or ambiguous.
            PartitionValueError: A partition value of the source is not a valid folder name.
            DuplicateKeys: A key occurs more than once in the source.
            CheckFailed: A row would fail one of the table's checks.
            PredicateError: A parameter has no value.
            ExpressionError: An expression cannot be parsed, does not match the columns, or cannot be evaluated for a
                row.
            EngineError: An expression needs DuckDB, which is not installed.
            PositionError: `if_head` is not a position of this table.
            CommitConflict: Other writers committed first more than `max_retries` times, or rows were written after
                `if_head`. Nothing was written.
            CommitUnknown: The store did not confirm in time that the commit succeeded. Call `resolve()` of the error to
                find out.
            Fenced: Another process rolled back this write while it ran.
        """
        if not self._said:
            raise OptionError(
                "The merge has no clause. Call when_matched_..., when_not_matched_... or both first.", option="clause"
            )
        texts = [
            text
            for said in self._said
            for text in (said.where, *select_sql_expressions(said.values))
            if text is not None
        ]
        parameters = validate_parameters(None, params, texts)
        version, now = convert_transaction(transaction), dt.datetime.now(dt.timezone.utc)
        context = self._handle.context()
        context = context.on_head(None if if_head is None else self._handle.slot_of(context.timeline.history, if_head))
        config = self._handle.timeline.prepare_for_write().config

        def clauses(schema: pa.Schema, config: TableConfig) -> list[Clause]:
            return [_clause(said, schema, config, now, parameters) for said in self._said]

        if self._is_upsert:
            try:
                return self._upserted(context, config, version)
            except DuplicateKeys as problem:
                raise duplicate_source_keys_error(problem.details["keys"]) from None
        if is_spark_dataframe(self._source):
            from hoodoo.writers.staging.staged import merge_schema, prepare_merge_dataframe

            frame = by_table_names(self._source, config.name_mapping)
            schema = merge_schema(frame, config)
            clauses(schema, config)  # check the clauses before the frame is evaluated
            with prepare_merge_dataframe(context, config, frame) as (context, staged):
                return self._handle.finished(context, merge(context, staged, partial(clauses, schema), version))
        rows = self._source = _rows_here(self._source, config)  # stored, because a reader can only be read once
        source = MergeRowsInMemory(MergeSource.of(rows, config))
        clauses(rows.schema, config)
        return self._handle.finished(context, merge(context, source, partial(clauses, rows.schema), version))

    @property
    def _is_upsert(self) -> bool:
        """True if the merge is equivalent to an upsert."""
        kinds = [said.kind for said in self._said if said.values == _ALL and said.where is None]
        return len(self._said) == 2 and sorted(kinds) == [Kind.MATCHED, Kind.NOT_MATCHED]

    def _upserted(self, context: Context, config: TableConfig, version: ApplicationVersion | None) -> WriteResult:
        held = checks.load_checks(config)
        if is_spark_dataframe(self._source):
            from hoodoo.writers.staging.staged import merge_schema, prepare_dataframe, select_dataframe_columns

            frame = by_table_names(self._source, config.name_mapping)
            frame = select_dataframe_columns(frame, _get_source_columns(merge_schema(frame, config), config))
            options = WriteOptions(duplicates="fail")
            with prepare_dataframe(context, config, frame, options, held) as (context, rows, _):
                return self._handle.finished(context, upsert(context, rows, transaction=version))
        given = self._source = _rows_here(self._source, config)
        batch = prepare_batch(
            given.select(_get_source_columns(given.schema, config)), config, WriteOptions(duplicates="fail"), held
        )
        return self._handle.finished(context, upsert(context, InMemoryBatch(batch, held), transaction=version))

    def _with(self, kind: Kind, values: object, where: object, call: str) -> Merge:
        is_known = values is None or values is _ALL
        if not is_known and (not isinstance(values, Mapping) or not values):
            raise OptionError(
                f"{call} needs a mapping from column to SQL expression, got {printable(values)}.", option=call
            )
        if where is not None and not isinstance(where, str):
            raise OptionError(
                f"Option where must be an SQL condition as a string, got {printable(where)}.", option="where"
            )
        known: Any = values
        self._said.append(_UncheckedClause(kind, known, where, call))
        return self


def _rows_here(source: ArrowLike, config: TableConfig) -> pa.Table:
    rows = config.name_mapping.rows(to_arrow(source, config.name_mapping.hints(config.schema)))
    if not rows.num_columns and not len(rows):
        return config.schema.empty_table()  # an empty list has no column names
    return convert_source_columns(rows, config)


def _clause(said: _UncheckedClause, source: pa.Schema, config: TableConfig, now: dt.datetime, params: Params) -> Clause:
    said = replace(
        said, values=config.name_mapping.expressions(said.values), where=config.name_mapping.text(said.where)
    )
    seen = seen_schema(
        source if said.kind is not Kind.NOT_MATCHED_BY_SOURCE else None,
        config.schema if said.kind is not Kind.NOT_MATCHED else None,
    )
    condition = None
    if said.where is not None:
        condition = sql.read_expression(said.where, seen, now, f"where of {said.call}", params)
        if not (pa.types.is_boolean(condition.type) or pa.types.is_null(condition.type)):
            raise ExpressionError(
                f"where of {said.call} must be a condition, but this expression has type {condition.type}. "
                "Compare it with a value.",
                option="where",
            )
    if said.values is None:
        return Clause(said.kind, condition, None)
    if isinstance(said.values, str):
        values = _copy_all_columns(source, config, said.call)
    else:
        values = _drop_fixed_columns(said, config, seen, now)
    places = isinstance(said.values, str) or said.kind is Kind.NOT_MATCHED
    if not values:
        return Clause(said.kind, condition, NewValues(config, {}))
    given = NewValues.of(values, config, now, seen, orders=True, places=places, params=params)
    return Clause(said.kind, condition, given)


def _drop_fixed_columns(
    said: _UncheckedClause, config: TableConfig, seen: pa.Schema, now: dt.datetime
) -> Mapping[str, object]:
    """Drop key and partition columns from a merge clause.

    Raises:
        ColumnError: The clause sets a key or partition column to anything except its own value.
    """
    assert isinstance(said.values, Mapping)
    fixed, values = {*config.key, *config.partition_by}, dict[str, object]()
    for name, given in said.values.items():
        if name not in fixed:
            values[name] = given
            continue
        found = sql.read_expression(given, seen, now, f"set[{name!r}]") if isinstance(given, str) else None
        if found is None or found.column not in (f"{SOURCE}.{name}", f"{TARGET}.{name}"):
            raise ColumnError(
                f"Column {name!r} is a key or partition column, which rows are matched by. {said.call} can set "
                f"it only to 'source.{name}'. Leave it out.",
                column=name,
            )
    return values


def _get_source_columns(source: pa.Schema, config: TableConfig) -> list[str]:
    """Return the source columns of an update.

    Raises:
        ColumnError: As in `_copy_all_columns`.
    """
    _copy_all_columns(source, config, "when_matched_update_all")
    own = set(config.schema.names)
    return [name for name in source.names if name in own]


def _copy_all_columns(source: pa.Schema, config: TableConfig, call: str) -> Mapping[str, object]:
    """Return the values of a clause that copies all columns.

    Raises:
        ColumnError: The source lacks a column of the table, or has an unknown column with a name reserved for Hudi.
    """
    fixed, there = {*config.key, *config.partition_by}, set(source.names)
    there |= computable_partition_columns(there, config).keys()
    wanted = config.schema.names
    missing: Sequence[str] = [name for name in wanted if name not in there]
    if missing:
        raise ColumnError(
            f"{call} needs column {missing[0]!r} in the source. Add the column, or name the columns to set.",
            column=missing[0],
        )
    own = set(wanted)
    if reserved := next((name for name in source.names if name not in own and name.startswith("_hoodie_")), None):
        raise ColumnError(
            f"Source column {reserved!r} is not in the table. Drop it, or name the columns for {call}.",
            column=reserved,
        )
    return {name: CopiedColumn(f"{SOURCE}.{name}") for name in wanted if name not in fixed}
