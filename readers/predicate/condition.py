"""The condition of a write that looks at stored rows: `where` as scans have it, and, where DuckDB is installed, any
boolean SQL expression over one row.

What the language of `where` can say is decided by it, and prunes; DuckDB decides the rest. So a comparison means the
same here as in a scan. Knows rows and columns, no file and no slot.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import pyarrow as pa

from hoodoo.errors import ExpressionError, PredicateError
from hoodoo.readers.predicate import sql
from hoodoo.readers.predicate import tree as predicates
from hoodoo.readers.predicate.filter import Filter, Where
from hoodoo.readers.predicate.sql import Expression
from hoodoo.readers.predicate.tree import And, Predicate
from hoodoo.redact import printable

_OPTION = "where"


@dataclass(frozen=True)
class Condition:
    """Rows match where `filter` and `rest` are both true; None is true.

    Attributes:
        filter: What the language of `where` can say, or an Arrow expression.
        rest: What only DuckDB can evaluate.
    """

    filter: Filter | None = None
    rest: Expression | None = None

    @staticmethod
    def of(where: Where | None, schema: pa.Schema, now: dt.datetime) -> Condition:
        """Read a condition.

        Args:
            where: A text, an Arrow expression, or None for all rows.
            schema: The columns that it may look at.
            now: What `now()` means in it, in UTC.

        Raises:
            PredicateError: It cannot be parsed, or does not fit the columns.
            OptionError: It is neither a text nor an Arrow expression.
        """
        try:
            return Condition(Filter.of(where, schema))
        except PredicateError as problem:
            if not isinstance(where, str):
                raise
            return _by_sql(where, schema, now, problem)

    @property
    def tree(self) -> Predicate | None:
        """What prunes; None where nothing does."""
        return self.filter.tree if self.filter else None

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns that it looks at."""
        named = frozenset(name for _, name in self.rest.columns) if self.rest else frozenset()
        return named | (self.filter.columns if self.filter else frozenset())

    @property
    def decided_by_tree(self) -> bool:
        """True if nothing but the tree decides which rows match."""
        return self.rest is None and self.filter is not None and self.filter.tree is not None

    def matching(self, rows: pa.Table) -> pa.Table:
        """Return those of `rows` that `rest` is true for; `filter` was applied where they were read.

        Raises:
            ExpressionError: DuckDB cannot evaluate the condition on one of the rows.
        """
        if self.rest is None or not len(rows):
            return rows
        truth = self.rest.values(rows)
        return rows.slice(0, 0) if pa.types.is_null(truth.type) else rows.filter(truth)


def _by_sql(where: str, schema: pa.Schema, now: dt.datetime, problem: PredicateError) -> Condition:
    """A condition that the language of `where` cannot say, as `problem` tells."""
    if not sql.available():
        raise PredicateError(
            f"{problem.message}\nWith DuckDB, pip install 'hoodoo[sql]', it may be any boolean SQL expression.",
            **problem.details,
        )
    try:
        parts = sql.conjuncts(sql.parsed(where, _OPTION))
    except ExpressionError as refused:
        if "\0" in where:
            raise PredicateError(refused.message, where=printable(where, 1000)) from None
        raise problem from None  # it cannot be parsed: ours says where, and which words there are
    trees: list[Predicate] = []
    others = []
    for part in parts:
        tree = _tree_of(sql.sql_of(part), schema)
        if tree is None:
            others.append(part)
        else:
            trees.append(tree)
    try:
        rest = sql.expression_of(sql.all_of(others), where, schema, now, _OPTION) if others else None
    except ExpressionError as refused:
        raise PredicateError(refused.message, where=where[:1000]) from None
    if rest and not (pa.types.is_boolean(rest.type) or pa.types.is_null(rest.type)):
        raise PredicateError(
            f"`where` takes a condition, and this one is {rest.type}: compare it with something.", where=where[:1000]
        )
    joined = And(tuple(trees)) if trees else None
    filter_ = Filter(joined, predicates.to_arrow(joined), frozenset(predicates.columns(joined))) if joined else None
    return Condition(filter_, rest)


def _tree_of(text: str, schema: pa.Schema) -> Predicate | None:
    from hoodoo.readers.predicate import text as grammar

    try:
        return grammar.read(text, schema)
    except PredicateError:
        return None
