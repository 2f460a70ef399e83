"""Conversion from polars expressions to file filters.

A polars expression exposes its operands but not its operator. For each supported operator, the parser builds an
expression from the operands, and compares it with the original. All other expressions prune nothing. polars itself
decides which rows match, and treats NaN as the greatest number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from hoodoo.readers.predicate.from_arrow import comparison, like_prefix_pattern, one_of
from hoodoo.readers.predicate.tree import FLIPPED, OPERATORS, And, Compare, IsNull, Like, Not, Opaque, Or, Predicate

if TYPE_CHECKING:
    import polars as pl

_CLOSED = {"both": (">=", "<="), "left": (">=", "<"), "right": (">", "<="), "none": (">", "<")}


def convert_polars_expression(expression: pl.Expr, schema: pa.Schema) -> Predicate:
    """Convert a polars expression to a file filter."""
    parts = expression.meta.pop()[::-1]
    if not parts:
        name = _column_name(expression, schema)
        is_boolean = name is not None and pa.types.is_boolean(schema.field(name).type)
        return Compare(name, "=", True, schema.field(name).type) if name is not None and is_boolean else Opaque()
    if len(parts) == 1:
        return _convert_unary(expression, parts[0], schema)
    if len(parts) == 2:
        return _convert_binary(expression, parts[0], parts[1], schema)
    if len(parts) == 3:
        return _convert_between(expression, parts, schema)
    return Opaque()


def _convert_unary(expression: pl.Expr, operand: pl.Expr, schema: pa.Schema) -> Predicate:
    if expression.meta.eq(~operand):
        return Not(convert_polars_expression(operand, schema))
    name = _column_name(operand, schema)
    if name is not None and expression.meta.eq(operand.is_null()):
        return IsNull(name)
    if name is not None and expression.meta.eq(operand.is_not_null()):
        return Not(IsNull(name))
    return Opaque()


def _convert_binary(expression: pl.Expr, left: pl.Expr, right: pl.Expr, schema: pa.Schema) -> Predicate:
    if expression.meta.eq(left & right):
        return And((convert_polars_expression(left, schema), convert_polars_expression(right, schema)))
    if expression.meta.eq(left | right):
        return Or((convert_polars_expression(left, schema), convert_polars_expression(right, schema)))
    for op, join in OPERATORS.items():
        if expression.meta.eq(join(left, right)):
            return _convert_comparison(left, op, right, schema)
    name = _column_name(left, schema)
    if name is None or not right.meta.is_literal():
        return Opaque()
    if expression.meta.eq(left.is_in(right)):
        values = _evaluate_literal(right)
        lists = pa.types.is_list(values.type) or pa.types.is_large_list(values.type)
        return one_of(name, values.flatten() if lists else values, schema)
    if expression.meta.eq(left.str.starts_with(right)) and pa.types.is_string(schema.field(name).type):
        return Like(name, like_prefix_pattern(_evaluate_literal(right)[0].as_py()))
    return Opaque()


def _convert_comparison(left: pl.Expr, op: str, right: pl.Expr, schema: pa.Schema) -> Predicate:
    name = _column_name(left, schema)
    if name is None:
        left, op, right = right, FLIPPED[op], left
        name = _column_name(left, schema)
    if name is None or not right.meta.is_literal():
        return Opaque()
    if op in (">", ">=") and pa.types.is_floating(schema.field(name).type):
        return Opaque()  # NaN is greater, and statistics exclude NaN
    values = _evaluate_literal(right)
    return comparison(name, op, values[0], schema) if len(values) == 1 else Opaque()


def _convert_between(expression: pl.Expr, parts: list[pl.Expr], schema: pa.Schema) -> Predicate:
    part, low, high = parts
    for closed, (low_op, high_op) in _CLOSED.items():
        if expression.meta.eq(part.is_between(low, high, closed=closed)):  # type: ignore[arg-type]
            return And(
                (_convert_comparison(part, low_op, low, schema), _convert_comparison(part, high_op, high, schema))
            )
    return Opaque()


def _column_name(expression: pl.Expr, schema: pa.Schema) -> str | None:
    import polars

    if expression.meta.pop() or len(names := expression.meta.root_names()) != 1:
        return None
    name = names[0]
    is_column = name in schema.names and expression.meta.eq(polars.col(name))
    return name if is_column else None


def _evaluate_literal(expression: pl.Expr) -> pa.Array:
    import polars

    return polars.select(expression).to_series().to_arrow()
