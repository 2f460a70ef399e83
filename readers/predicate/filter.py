"""Filters, which select files and rows by a condition.

If DuckDB is installed, a condition may be any boolean SQL expression over one row. hoodoo itself evaluates the parts
that the grammar of `where` (text.py) supports, and uses them for pruning. DuckDB evaluates the remaining parts. A
comparison therefore has the same meaning in every condition.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import ExpressionError, OptionError, PredicateError
from hoodoo.format.parquet import statistics
from hoodoo.readers.predicate import duckdb_engine, from_arrow, sql
from hoodoo.readers.predicate import tree as predicates
from hoodoo.readers.predicate.parameters import validate_parameters
from hoodoo.readers.predicate.sql import Expression
from hoodoo.readers.predicate.tree import And, Predicate
from hoodoo.redact import printable

Where: TypeAlias = "str | pc.Expression"
"""Type of the `where` argument: a string or an Arrow expression.

Files are pruned by the parts of a string that the grammar in `text.py` supports, and by the parts of an Arrow
expression that `from_arrow.py` understands.

"""
Params: TypeAlias = "Mapping[str, object]"
"""Type of the `params` argument: the values of the parameters in a `where` string.

A value is a str, int, float, bool, bytes, Decimal, date, datetime, time, UUID or None, or a list, tuple or set of
these.
"""
_OPTION = "where"
_POSITION = "#position"  # no table column can have this name


@dataclass(frozen=True)
class Filter:
    """Filter, which selects files and rows by a condition.

    It is a parsed `where` condition. A row matches if all parts of the condition are true.

    Attributes:
        tree: The part of the condition in the grammar of `where`. It prunes files. None if there is no such part.
        expression: The condition as an Arrow expression. None: all rows.
        columns: The columns that the condition may use.
        rest: The part that only DuckDB can evaluate, or None.
        tree_decides: False if the tree only prunes files, and the rows that it keeps need not match the condition.
    """

    tree: Predicate | None
    expression: pc.Expression | None
    columns: frozenset[str]
    rest: Expression | None = None
    tree_decides: bool = True
    travels_once: ClassVar[bool] = True  # the driver sends it to its tasks once (engine/task_pickling)

    @staticmethod
    def parse(
        where: Where | None, schema: pa.Schema, now: dt.datetime | None = None, params: Params | None = None
    ) -> Filter | None:
        """Parse the condition of a read or write.

        Args:
            where: A string, an Arrow expression, or None for all rows.
            schema: The columns that the condition may use.
            now: The time that `now()` returns, in UTC. None: the current time.
            params: The values of the parameters in `where`. None: no parameters.

        Raises:
            PredicateError: The condition cannot be parsed, does not match the columns, or has a parameter without a
                value.
            OptionError: `where` is neither a string nor an Arrow expression, or `params` is invalid.
        """
        values = validate_parameters(where, params)
        if where is None:
            return None
        if isinstance(where, str):
            return _parse_text(where, schema, now or dt.datetime.now(dt.timezone.utc), values)
        if isinstance(where, pc.Expression):
            try:
                schema.empty_table().filter(where)
            except (pa.ArrowException, ValueError, TypeError) as problem:
                reason = str(problem).splitlines()[0][:500].rstrip(".")
                raise PredicateError(
                    f"The pyarrow expression cannot be applied to the table: {reason}. The columns are: "
                    f"{', '.join(schema.names)}.",
                    where=printable(where),
                ) from None
            return _filter_of_expression(where, schema)
        raise OptionError(
            "Option where is invalid: expected a condition as a string, such as where='fare > 10', or a pyarrow "
            f"expression, got {printable(where)}.",
            option=_OPTION,
        )

    @property
    def is_decided_by_syntax_tree(self) -> bool:
        """True if the condition needs no DuckDB or Arrow."""
        return self.rest is None and self.tree is not None and self.tree_decides

    def matching(self, rows: pa.Table) -> pa.Table:
        """Select the rows that match the condition.

        Raises:
            ExpressionError: DuckDB cannot evaluate the condition for one of the rows.
        """
        if self.tree is not None and self.tree_decides:
            rows_so_far = rows.filter(predicates.find_matching_rows(self.tree, rows))
        else:
            rows_so_far = rows if self.expression is None else rows.filter(self.expression)
        if self.rest is None or not len(rows_so_far):
            return rows_so_far
        truth = self.rest.values(rows_so_far)
        return rows_so_far.slice(0, 0) if pa.types.is_null(truth.type) else rows_so_far.filter(truth)

    def positions(self, rows: pa.Table) -> np.ndarray:
        if self.is_decided_by_syntax_tree:
            assert self.tree is not None
            return np.flatnonzero(pc.fill_null(predicates.find_matching_rows(self.tree, rows), False).to_numpy())
        numbered = rows.select(sorted(self.columns)).append_column(_POSITION, pa.array(np.arange(len(rows))))
        positions: np.ndarray = self.matching(numbered)[_POSITION].to_numpy()
        return positions


def _parse_text(where: str, schema: pa.Schema, now: dt.datetime, params: Mapping[str, Any]) -> Filter:
    from hoodoo.readers.predicate import text  # imported here because importing sqlglot is slow

    try:
        return _filter_of_tree(text.parse_condition(where, schema, params))
    except PredicateError as problem:
        return _parse_as_sql(where, schema, now, params, problem)


def _filter_of_tree(tree: Predicate) -> Filter:
    return Filter(tree, predicates.to_arrow(tree), frozenset(predicates.columns(tree)))


def _filter_of_expression(where: pc.Expression, schema: pa.Schema) -> Filter:
    if from_arrow.may_use_column_index(where):
        raise PredicateError(
            "The pyarrow expression refers to a column by its index. Use its name instead: "
            f"pyarrow.compute.field(name), with one of {', '.join(schema.names)}.",
            where=printable(where),
        )
    tree, columns = from_arrow.convert_arrow_expression(where, schema), from_arrow.find_columns(where, schema)
    return Filter(tree, where, columns, tree_decides=False)


def add_pruning_condition(where: Filter | None, tree: Predicate | None) -> Filter | None:
    """Add a condition to skip more files.

    Args:
        where: The filter. None: all rows match.
        tree: The condition of a caller that filters the rows again. None: no condition.
    """
    if tree is None:
        return where
    if where is None:
        return Filter(tree, None, frozenset(), tree_decides=False)
    combined = tree if where.tree is None else And((where.tree, tree))
    return replace(where, tree=combined, tree_decides=False)


def _parse_as_sql(
    where: str, schema: pa.Schema, now: dt.datetime, params: Mapping[str, Any], problem: PredicateError
) -> Filter:
    # `problem` is the error of the parser for the `where` grammar.
    meant_text = "instead" in problem.details  # not a valid SQL expression either
    if not duckdb_engine.available():
        if meant_text:
            raise problem
        raise PredicateError(
            f"{problem.message}\nInstall DuckDB (pip install 'hoodoo[sql]') to use any boolean SQL expression.",
            **problem.details,
        )
    try:
        parts = sql.split_at_ands(
            sql.add_parentheses_to_lists(sql.parse_expression(where, _OPTION, schema.names), params)
        )
    except ExpressionError as refused:
        if meant_text:
            raise problem from None
        if "\0" in where:
            raise PredicateError(refused.message, where=printable(where, 1000)) from None
        reason = refused.message.splitlines()[0].removeprefix(f"Cannot read {_OPTION}: ")
        raise PredicateError(
            f"{problem.message}\nDuckDB cannot parse the condition either: {reason}", **problem.details
        ) from None
    trees: list[Predicate] = []
    others = []
    for part in parts:
        tree = _parse_or_none(sql.syntax_tree_to_sql(part), schema, params)
        if tree is None:
            others.append(part)
        else:
            trees.append(tree)
    try:
        rest = sql.validate_syntax_tree(sql.all_of(others), where, schema, now, _OPTION, params) if others else None
    except ExpressionError as refused:
        raise PredicateError(refused.message, **_error_details(refused, where)) from None
    if rest and not (pa.types.is_boolean(rest.type) or pa.types.is_null(rest.type)):
        raise PredicateError(
            f"`where` must be a condition, but this expression has type {rest.type}. Compare it with a value.",
            where=where[:1000],
        )
    known_filter = _filter_of_tree(And(tuple(trees))) if trees else Filter(None, None, frozenset())
    sql_columns = frozenset(name for _, name in rest.columns) if rest else frozenset()
    return Filter(known_filter.tree, known_filter.expression, known_filter.columns | sql_columns, rest)


def _error_details(refused: ExpressionError, where: str) -> dict[str, object]:
    instead = {name: value for name, value in refused.details.items() if name == "instead"}
    return {"where": where[:1000], **instead}


def _parse_or_none(text: str, schema: pa.Schema, params: Mapping[str, Any]) -> Predicate | None:
    from hoodoo.readers.predicate import text as grammar

    try:
        return grammar.parse_condition(text, schema, params)
    except PredicateError:
        return None


def typed_column_ranges(stats: statistics.Stats, rows: int, schema: pa.Schema) -> dict[str, predicates.ColumnRange]:
    ranges = {}
    names = set(schema.names)
    for name, (low, high, nulls) in stats.items():
        if name in names:
            kind = schema.field(name).type
            ranges[name] = predicates.ColumnRange(
                statistics.bound_from_json(low, kind), statistics.bound_from_json(high, kind), nulls, rows
            )
    return ranges
