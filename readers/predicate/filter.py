"""What `where` stands for: a predicate that prunes files and row groups by their statistics, and chooses rows; and,
where DuckDB is installed, any boolean SQL expression over one row.

What the language of `where` (text.py) can say is decided by it, and prunes; DuckDB decides the rest. So a comparison
means the same, whatever it is joined with. Knows no file and no slot.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import ExpressionError, OptionError, PredicateError
from hoodoo.format.parquet import statistics
from hoodoo.readers.predicate import duckdb_engine, from_arrow, sql
from hoodoo.readers.predicate import tree as predicates
from hoodoo.readers.predicate.sql import Expression
from hoodoo.readers.predicate.tree import And, Predicate
from hoodoo.redact import printable

Where: TypeAlias = "str | pc.Expression"
"""What `where` takes: a text, or an Arrow expression. What of the one is in the grammar of `text.py`, and what of the
other `from_arrow.py` can read, prunes files.
"""
_OPTION = "where"
_POSITION = "#position"  # no table has a column with such a name


@dataclass(frozen=True)
class Filter:
    """Which rows are meant: those for which all that it says is true.

    Attributes:
        tree: What the language of `where` can say; it prunes. None: nothing of it can.
        expression: The tree, or the expression that was given, for Arrow. None: all rows.
        columns: The columns that it may look at.
        rest: What only DuckDB can evaluate. None: nothing.
        tree_decides: False where the tree only prunes, and rows that it says nothing against need not match.
    """

    tree: Predicate | None
    expression: pc.Expression | None
    columns: frozenset[str]
    rest: Expression | None = None
    tree_decides: bool = True
    travels_once: ClassVar[bool] = True  # between a driver and its tasks (engine/parcels)

    @staticmethod
    def of(where: Where | None, schema: pa.Schema, now: dt.datetime | None = None) -> Filter | None:
        """Read the argument `where`.

        Args:
            where: A text, an Arrow expression, or None for all rows.
            schema: The columns that it may look at.
            now: What `now()` means in it, in UTC. None: this moment.

        Raises:
            PredicateError: It cannot be parsed, or does not fit the columns.
            OptionError: It is neither a text nor an Arrow expression.
        """
        if where is None:
            return None
        if isinstance(where, str):
            return _of_text(where, schema, now or dt.datetime.now(dt.timezone.utc))
        if isinstance(where, pc.Expression):
            try:
                schema.empty_table().filter(where)
            except (pa.ArrowException, ValueError, TypeError) as problem:
                why = str(problem).splitlines()[0][:500].rstrip(".")
                raise PredicateError(
                    f"The expression cannot be applied to the table: {why}. The columns are: "
                    f"{', '.join(schema.names)}.",
                    where=printable(where),
                ) from None
            return _of_expression(where, schema)
        raise OptionError(
            "where must be a condition as a string, such as where='fare > 10', or a pyarrow expression, got "
            f"{printable(where)}.",
            option=_OPTION,
        )

    @property
    def decided_by_tree(self) -> bool:
        """True if nothing but the tree decides which rows match."""
        return self.rest is None and self.tree is not None and self.tree_decides

    def matching(self, rows: pa.Table) -> pa.Table:
        """Return those of `rows` that match.

        Raises:
            ExpressionError: DuckDB cannot evaluate the condition on one of the rows.
        """
        if self.tree is not None and self.tree_decides:
            found = rows.filter(predicates.mask(self.tree, rows))
        else:
            found = rows if self.expression is None else rows.filter(self.expression)
        if self.rest is None or not len(found):
            return found
        truth = self.rest.values(found)
        return found.slice(0, 0) if pa.types.is_null(truth.type) else found.filter(truth)

    def positions(self, rows: pa.Table) -> np.ndarray:
        """Return the positions, ascending, of those of `rows` that match. Raises what `matching` raises."""
        if self.decided_by_tree:
            assert self.tree is not None
            return np.flatnonzero(pc.fill_null(predicates.mask(self.tree, rows), False).to_numpy())
        numbered = rows.select(sorted(self.columns)).append_column(_POSITION, pa.array(np.arange(len(rows))))
        found: np.ndarray = self.matching(numbered)[_POSITION].to_numpy()
        return found


def _of_text(where: str, schema: pa.Schema, now: dt.datetime) -> Filter:
    from hoodoo.readers.predicate import text  # sqlglot takes its time to import: only those who use it pay

    try:
        return _of_tree(text.read(where, schema))
    except PredicateError as problem:
        return _by_sql(where, schema, now, problem)


def _of_tree(tree: Predicate) -> Filter:
    return Filter(tree, predicates.to_arrow(tree), frozenset(predicates.columns(tree)))


def _of_expression(where: pc.Expression, schema: pa.Schema) -> Filter:
    if from_arrow.goes_by_number(where):
        raise PredicateError(
            "The expression refers to a column by its index. Use its name instead: "
            f"pyarrow.compute.field(name), with one of {', '.join(schema.names)}.",
            where=printable(where),
        )
    tree, columns = from_arrow.tree_of(where, schema), from_arrow.columns_of(where, schema)
    return Filter(tree, where, columns, tree_decides=False)


def pruned_by(where: Filter | None, tree: Predicate | None) -> Filter | None:
    """`where`, pruning by `tree` as well: rows for which that is not true may be left out, and need not be.

    Args:
        where: The filter. None: all rows match.
        tree: What somebody else goes by, who chooses rows by himself. None: nothing is known of it.
    """
    if tree is None:
        return where
    if where is None:
        return Filter(tree, None, frozenset(), tree_decides=False)
    known = tree if where.tree is None else And((where.tree, tree))
    return replace(where, tree=known, tree_decides=False)


def _by_sql(where: str, schema: pa.Schema, now: dt.datetime, problem: PredicateError) -> Filter:
    """A condition that the language of `where` cannot say, as `problem` tells."""
    meant_text = "instead" in problem.details  # no SQL expression either
    if not duckdb_engine.available():
        if meant_text:
            raise problem
        raise PredicateError(
            f"{problem.message}\nWith DuckDB (pip install 'hoodoo[sql]'), where can be any boolean SQL expression.",
            **problem.details,
        )
    try:
        parts = sql.conjuncts(sql.parsed(where, _OPTION, schema.names))
    except ExpressionError as refused:
        if meant_text:
            raise problem from None
        if "\0" in where:
            raise PredicateError(refused.message, where=printable(where, 1000)) from None
        why = refused.message.splitlines()[0].removeprefix(f"Cannot read {_OPTION}: ")
        raise PredicateError(f"{problem.message}\nAs an expression for DuckDB: {why}", **problem.details) from None
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
        raise PredicateError(refused.message, **_details(refused, where)) from None
    if rest and not (pa.types.is_boolean(rest.type) or pa.types.is_null(rest.type)):
        raise PredicateError(
            f"`where` must be a condition, but this expression has type {rest.type}. Compare it with a value.",
            where=where[:1000],
        )
    known = _of_tree(And(tuple(trees))) if trees else Filter(None, None, frozenset())
    named = frozenset(name for _, name in rest.columns) if rest else frozenset()
    return Filter(known.tree, known.expression, known.columns | named, rest)


def _details(refused: ExpressionError, where: str) -> dict[str, object]:
    instead = {name: value for name, value in refused.details.items() if name == "instead"}
    return {"where": where[:1000], **instead}


def _tree_of(text: str, schema: pa.Schema) -> Predicate | None:
    from hoodoo.readers.predicate import text as grammar

    try:
        return grammar.read(text, schema)
    except PredicateError:
        return None


def column_ranges(stats: statistics.Stats, rows: int, schema: pa.Schema) -> dict[str, predicates.ColumnRange]:
    """What `stats` of `rows` rows say of the columns of `schema`, as typed values."""
    ranges = {}
    there = set(schema.names)
    for name, (low, high, nulls) in stats.items():
        if name in there:
            kind = schema.field(name).type
            ranges[name] = predicates.ColumnRange(
                statistics.from_json(low, kind), statistics.from_json(high, kind), nulls, rows
            )
    return ranges
