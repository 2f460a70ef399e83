"""Syntax tree of a condition on rows.

The tree contains columns and typed values. `text` parses conditions into trees.

Evaluation uses three-valued logic: a comparison with null is neither true nor false. A row is returned only if the
whole condition is true. Comparisons with NaN are false, except `!=`. Strings are compared as UTF-8 bytes, which is also
the order of Python's str.
"""

from __future__ import annotations

import importlib
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import Column

T = TypeVar("T")
FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Comparison operators by the operator with exchanged sides, such as '>' for '<'."""


class ColumnRange(NamedTuple):
    """Minimum, maximum and null count of a column.

    Minimum and maximum are bounds that no value exceeds. They ignore NaN. Counts are exact. None means unknown.
    """

    min: Any = None
    max: Any = None
    null_count: int | None = None
    rows: int | None = None


@dataclass(frozen=True)
class Predicate:
    pass


@dataclass(frozen=True)
class Compare(Predicate):
    """Comparison of a column with a value.

    The value has the column's `type`.
    """

    column: str
    op: str
    value: Any
    type: pa.DataType


@dataclass(frozen=True)
class In(Predicate):
    column: str
    values: tuple[Any, ...]
    type: pa.DataType


@dataclass(frozen=True)
class IsNull(Predicate):
    column: str


@dataclass(frozen=True)
class Like(Predicate):
    r"""Condition with a LIKE pattern.

    `%` matches any string, `_` one character, and `\` escapes one of `% _ \`.
    """

    column: str
    pattern: str


@dataclass(frozen=True)
class And(Predicate):
    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Or(Predicate):
    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Not(Predicate):
    part: Predicate


@dataclass(frozen=True)
class Opaque(Predicate):
    """Condition that skips no files.

    File statistics cannot evaluate it. It may be true, false or null for any row. It is used only in trees for pruning.
    """


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""Functions that compare the expressions of an engine, by operator."""
_ARROW_COMPARISONS: dict[str, Callable[[Any, pa.Scalar], Any]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_NEGATED_OPERATORS = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_LITERAL_PREFIX = re.compile(r"(?:\\.|[^%_\\])*", re.DOTALL)


def columns(predicate: Predicate) -> set[str]:
    match predicate:
        case Compare(column=column) | In(column=column) | IsNull(column) | Like(column=column):
            return {column}
        case Opaque():
            return set()
        case Not(part):
            return columns(part)
        case And(parts) | Or(parts):
            return set().union(*map(columns, parts))
    raise TypeError(predicate)


def renamed(predicate: Predicate, names: Mapping[str, str]) -> Predicate:
    match predicate:
        case Compare(column=column) | In(column=column) | IsNull(column) | Like(column=column):
            return replace(predicate, column=names[column])
        case Not(part):
            return Not(renamed(part, names))
        case And(parts) | Or(parts):
            return replace(predicate, parts=tuple(renamed(part, names) for part in parts))
    return predicate


# --- Arrow


def to_arrow(predicate: Predicate) -> pc.Expression:
    """Convert a condition to an Arrow expression.

    The expression is true for matching rows, and false or null for all other rows.
    """
    return _build_condition(predicate, True, pc.field)


def find_matching_rows(predicate: Predicate, rows: pa.Table) -> pa.ChunkedArray:
    """Find the rows that match a condition.

    Returns a mask. This avoids Arrow's query engine, which is slow to start for each filter expression.
    """
    return _build_condition(predicate, True, rows.column)


def _build_condition(predicate: Predicate, truth: bool, values: Callable[[str], Any]) -> Any:
    # `values` returns the expression or the values of a column. NOT is pushed down to the leaves, because Arrow's
    # `is_in` returns false for null, not null.
    match predicate:
        case Not(part):
            return _build_condition(part, not truth, values)
        case And(parts) | Or(parts):
            join = pc.and_kleene if isinstance(predicate, And) == truth else pc.or_kleene
            return _join_balanced(join, (_build_condition(part, truth, values) for part in parts))
        case Compare(column, op, value, type_):
            condition = _ARROW_COMPARISONS[op](values(column), pa.scalar(value, type_))
        case In(column, options, type_) if pa.types.is_floating(type_):  # `is_in` distinguishes 0.0 from -0.0
            condition = _join_balanced(
                pc.or_kleene, (pc.equal(values(column), pa.scalar(value, type_)) for value in options)
            )
        case In(column, options, type_):
            condition = pc.is_in(values(column), value_set=pa.array(options, type_))
            return condition if truth else pc.and_kleene(pc.invert(condition), pc.is_valid(values(column)))
        case IsNull(column):
            return pc.is_null(values(column)) if truth else pc.is_valid(values(column))
        case Like(column, pattern):
            condition = pc.match_like(values(column), pattern)
        case _:
            raise TypeError(predicate)
    return condition if truth else pc.invert(condition)


# --- Spark


def to_spark(predicate: Predicate, remote: bool = False) -> Column:
    """Convert a condition to a Spark column.

    It ignores session settings. `remote` is True for a Spark Connect session in a process that may also have classic
    sessions. False (default) uses the kind of session that the process has.
    """
    return _to_spark(
        predicate, importlib.import_module("pyspark.sql.connect.functions" if remote else "pyspark.sql.functions")
    )


def _to_spark(predicate: Predicate, F: Any) -> Column:
    def column_of(name: str) -> Any:
        return F.col("`" + name.replace("`", "``") + "`")

    match predicate:
        case Not(part):
            return ~_to_spark(part, F)
        case And(parts):
            return _join_balanced(operator.and_, [_to_spark(part, F) for part in parts])
        case Or(parts):
            return _join_balanced(operator.or_, [_to_spark(part, F) for part in parts])
        case Compare(column, op, value, type_):
            compared = OPERATORS[op](column_of(column), _spark_literal(value, type_, F))
            is_above = op in (">", ">=") and pa.types.is_floating(type_)  # Spark ranks NaN above all numbers
            return compared & ~F.isnan(column_of(column)) if is_above else compared
        case In(column, values, type_):
            return column_of(column).isin(*(_spark_literal(value, type_, F) for value in values))
        case IsNull(column):
            return column_of(column).isNull()
        case Like(column, pattern):
            return column_of(column).like(pattern)
    raise TypeError(predicate)


def _spark_literal(value: Any, type_: pa.DataType, F: Any) -> Any:
    if pa.types.is_timestamp(type_):
        if type_.tz:
            return F.timestamp_micros(F.lit(pa.scalar(value, pa.timestamp("us", "UTC")).value))
        return F.lit(value.isoformat(sep=" ")).cast("timestamp_ntz")
    if pa.types.is_date(type_):
        return F.lit(value.isoformat()).cast("date")
    return F.lit(value)


# --- statistics


def may_match(predicate: Predicate, stats: Mapping[str, ColumnRange]) -> bool:
    """Check whether column statistics allow a match."""
    if any(known.rows == 0 for known in stats.values()):
        return False
    return _may_have_truth_value(predicate, True, stats)


def statistics_prove_match(predicate: Predicate, stats: Mapping[str, ColumnRange]) -> bool:
    never_null = all(stats.get(column, ColumnRange()).null_count == 0 for column in columns(predicate))
    return never_null and not _may_have_truth_value(predicate, False, stats)


def _may_have_truth_value(predicate: Predicate, truth: bool, stats: Mapping[str, ColumnRange]) -> bool:
    # A condition that is null for a row is neither true nor false.
    match predicate:
        case Opaque():
            return True
        case Not(part):
            return _may_have_truth_value(part, not truth, stats)
        case And(parts) | Or(parts):
            quantifier = all if isinstance(predicate, And) == truth else any
            return quantifier(_may_have_truth_value(part, truth, stats) for part in parts)
        case IsNull(column):
            return (
                _may_be_null(stats.get(column, ColumnRange()))
                if truth
                else _may_be_valid(stats.get(column, ColumnRange()))
            )
        case Compare(column=column) | In(column=column) | Like(column=column):
            known = stats.get(column, ColumnRange())
            try:
                return _may_be_valid(known) and _leaf_may_have_truth_value(predicate, truth, known)
            except TypeError:  # statistics of another type than the literal are unusable
                return True
    raise TypeError(predicate)


def _may_be_null(known: ColumnRange) -> bool:
    return known.null_count != 0


def _may_be_valid(known: ColumnRange) -> bool:
    return known.null_count is None or known.rows is None or known.null_count < known.rows


def _leaf_may_have_truth_value(leaf: Predicate, truth: bool, known: ColumnRange) -> bool:
    # Raises TypeError for bounds that cannot be compared.
    match leaf:
        case Compare(_, op, value, type_):
            return _may_compare(
                op if truth else _NEGATED_OPERATORS[op], value, known, _nan_has_truth_value(op, truth, type_)
            )
        case In(_, values, type_):
            op, quantifier = ("=", any) if truth else ("!=", all)
            return quantifier(
                _may_compare(op, value, known, _nan_has_truth_value("=", truth, type_)) for value in values
            )
        case Like(_, pattern):
            return not truth or _may_start_with(_literal_prefix(pattern), known)
    raise TypeError(leaf)


def _nan_has_truth_value(op: str, truth: bool, type_: pa.DataType) -> bool:
    # NaN satisfies `!=`, and the negation of all other operators.
    return bool(pa.types.is_floating(type_)) and (op == "!=") == truth


def _may_compare(op: str, value: Any, known: ColumnRange, nan_matches: bool) -> bool:
    low, high = _none_if_nan(known.min), _none_if_nan(known.max)
    if nan_matches:
        return True
    if op == "!=":
        return low is None or high is None or low < value or value < low or high < value or value < high
    above = low is not None and (value <= low if op == "<" else value < low if op in ("=", "<=") else False)
    below = high is not None and (high <= value if op == ">" else high < value if op in ("=", ">=") else False)
    return not above and not below


def _none_if_nan(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value


def _may_start_with(prefix: str, known: ColumnRange) -> bool:
    # In sorted order, the strings with a common prefix are adjacent.
    if known.max is not None and known.max < prefix:
        return False
    return known.min is None or known.min <= prefix or known.min.startswith(prefix)


def _literal_prefix(pattern: str) -> str:
    found = _LITERAL_PREFIX.match(pattern)
    return _ESCAPED.sub(r"\1", found[0]) if found else ""


def _join_balanced(join: Callable[[T, T], T], items: Iterable[T]) -> T:
    # A balanced tree keeps thousands of conditions from being deeply nested.
    pending: list[tuple[int, T]] = []
    for item in items:
        size = 1
        while pending and pending[-1][0] == size:
            item, size = join(pending.pop()[1], item), 2 * size
        pending.append((size, item))
    joined = pending.pop()[1]
    while pending:
        joined = join(pending.pop()[1], joined)
    return joined
