"""Translation of Spark SQL expressions to DuckDB.

Only expressions with the same meaning in both engines, or that can be rewritten to have it, are accepted. All other
expressions are rejected with an error that names them. The user can always compute these values with Spark, in the
source of a MERGE.
"""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import ErrorLevel, UnsupportedError

from hoodoo.engine.spark_types import arrow_schema_of
from hoodoo.errors import ExpressionError, SchemaError
from hoodoo.redact import printable
from hoodoo.spark.sql_reading import is_utc
from hoodoo.spark.sql_text import Node

_INSTEAD = "Compute it in the source of a MERGE, which Spark evaluates."
_NOT_KNOWN = "The expression may have another meaning in DuckDB."
_SAME = (
    *(exp.And, exp.Or, exp.Not, exp.Paren, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE),
    *(exp.NullSafeEQ, exp.NullSafeNEQ, exp.In, exp.Between, exp.Is, exp.Like, exp.Null, exp.Boolean, exp.Literal),
    *(exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Abs, exp.Round),
    *(exp.Upper, exp.Lower, exp.Length, exp.Concat, exp.DPipe, exp.StartsWith, exp.EndsWith, exp.Contains),
    *(exp.Replace, exp.Greatest, exp.Least, exp.CurrentTimestamp, exp.HexString, exp.Tuple),
)
_DIVISIONS = (exp.Div, exp.IntDiv, exp.Mod)
_BY_DAY = (exp.CurrentDate, exp.TsOrDsAdd, exp.DateDiff, exp.TsOrDsToDate, exp.Year, exp.Month, exp.Day, exp.DayOfMonth)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In)
ZONED = "zoned"
_CLOCKS = {"TIMESTAMPTZ": ZONED, "TIMESTAMPLTZ": ZONED, "TIMESTAMP": "without zone", "TIMESTAMPNTZ": "without zone"}
_CLOCKS |= {"DATE": "date"}
"""Kind of date or time by the target type of a cast."""
_UNITS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")


@dataclass(frozen=True)
class Side:
    """Side of a join or merge, whose columns an expression can use.

    Attributes:
        alias: The name of the row in the statement, in lower case, or '' without a name.
        prefix: The table name of the row in DuckDB, or '' if columns are unqualified.
        schema: The columns of the row.
    """

    alias: str
    prefix: str
    schema: pa.Schema

    def column(self, name: str) -> str | None:
        """Find a column, ignoring case."""
        if name in self.schema.names:
            return name
        found = [known for known in self.schema.names if known.lower() == name.lower()]
        return found[0] if len(found) == 1 else None


@dataclass(frozen=True)
class Scope:
    """Scope with the columns that an SQL expression can use.

    Attributes:
        sides: The rows that the expression can refer to.
        zone: The time zone of the Spark session.
    """

    sides: Sequence[Side]
    zone: str

    @property
    def in_utc(self) -> bool:
        return is_utc(self.zone)

    def found(self, node: Node) -> tuple[Side, str, list[str]]:
        """Find the column that an expression refers to.

        Args:
            node: The column reference in the syntax tree.

        Returns:
            The row, the column name, and the names of nested fields.

        Raises:
            ExpressionError: The column does not exist or is ambiguous.
        """
        parts = [part.name for part in node.parts]
        if len(parts) > 1:
            for side in self.sides:
                if side.alias and side.alias == parts[0].lower() and (name := side.column(parts[1])):
                    return side, name, parts[2:]
        meant = [(side, name) for side in self.sides if (name := side.column(parts[0]))]
        if len(meant) == 1:
            return *meant[0], parts[1:]
        text = ".".join(parts)
        if meant:
            either = " or ".join(f"{side.alias or side.prefix}.{name}" for side, name in meant)
            raise ExpressionError(f"Column {printable(text)} is ambiguous: write {either}.", expression=text)
        names = [f"{side.alias}.{name}" if side.alias else name for side in self.sides for name in side.schema.names]
        bare = {name.rpartition(".")[2]: name for name in reversed(names)}
        near = difflib.get_close_matches(text, names, 1) or [
            bare[one] for one in difflib.get_close_matches(parts[-1], bare, 1)
        ]
        hint = f"did you mean {near[0]}?" if near else f"expected one of: {', '.join(names[:20])}."
        raise ExpressionError(f"Column {printable(text)} does not exist; {hint}", expression=text)


def translate_expression(node: Node, scope: Scope) -> str:
    """Translate a Spark SQL expression to DuckDB SQL.

    Args:
        node: The expression.
        scope: The rows that the expression can refer to, and the session's time zone.

    Returns:
        The expression in DuckDB SQL.

    Raises:
        ExpressionError: The expression names an unknown column, or DuckDB would not evaluate it as Spark does.
    """
    try:
        return str(_Writer(scope).written(node.copy()).sql("duckdb", unsupported_level=ErrorLevel.RAISE))
    except UnsupportedError as problem:
        raise _refused(node, f"{str(problem).splitlines()[0].rstrip('.')}.") from None


def _refused(node: Node, why: str = _NOT_KNOWN) -> ExpressionError:
    text = node.sql("spark")
    return ExpressionError(
        f"DuckDB cannot evaluate {printable(text)} of this statement in the same way as Spark. {why} {_INSTEAD}",
        expression=text[:1000],
    )


class _Writer:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def written(self, node: Node) -> Node:
        """Translate an expression to DuckDB SQL."""
        form = type(node)
        if form is exp.Column:
            return self._column(node)
        if form is exp.Interval:
            return self._interval(node)
        if form in (exp.Cast, exp.TryCast):
            return self._cast(node)
        if form is exp.Anonymous and node.name.upper() == "NOW" and not node.expressions:
            return exp.CurrentTimestamp()
        if form in (exp.Substring, exp.Trim) or form in _DIVISIONS:
            self._require_plain(node)
        elif form in (exp.Floor, exp.Ceil):
            if any(value for name, value in node.args.items() if name != "this"):
                raise _refused(node, "DuckDB does not support a number of digits in floor() and ceil().")
            whole: Node = exp.Cast(this=form(this=self.written(node.this)), to=exp.DataType.build("BIGINT"))
            return whole  # as in Spark, except that NaN raises an error instead of becoming 0
        elif form in _BY_DAY:
            self._require_utc(node)
        elif form not in _SAME or form is exp.In and node.args.get("query"):
            raise _refused(node, "The expression reads more than one row." if node.find(exp.Query) else _NOT_KNOWN)
        if form is exp.Like and "\\" in node.expression.name:
            raise _refused(node, "The pattern has a backslash, which is not an escape character in DuckDB.")
        if form in _COMPARISONS:
            self._require_times(node)
        if form in (exp.Add, exp.Sub) and node.find(exp.Interval) and ZONED in self._find_time_kinds(node):
            self._require_utc(node)
        for name, value in list(node.args.items()):
            if isinstance(value, list):
                node.set(name, [self.written(part) if _is_node(part) else part for part in value])
            elif _is_node(value) and not isinstance(value, (exp.Var, exp.Identifier)):
                node.set(name, self.written(value))
        return node

    def _column(self, node: Node) -> Node:
        side, name, fields = self._scope.found(node)
        parts = [*([side.prefix] if side.prefix else []), name, *fields]
        first, *rest = (exp.to_identifier(part, quoted=True) for part in parts)
        written: Node = exp.column(rest[0], table=first) if rest else exp.column(first)
        for field in rest[1:]:
            written = exp.Dot(this=written, expression=field)
        return written

    def _interval(self, node: Node) -> Node:
        unit = node.args.get("unit")
        if not isinstance(node.this, exp.Literal) or unit is None or unit.name.upper().rstrip("S") not in _UNITS:
            raise _refused(node)
        return node

    def _cast(self, node: Node) -> Node:
        """Translate a CAST to DuckDB SQL.

        Other casts are rejected: Spark truncates where DuckDB rounds, and formats times and floats differently.
        """
        kind, inner = node.to, node.this
        to = kind.this.name
        plain = exp.Cast(this=None, to=kind)
        if isinstance(inner, exp.Literal) and to in ("DATE", "DOUBLE", "BIGINT", "SMALLINT", "TINYINT", "TIMESTAMP"):
            exact = inner.is_string or to not in ("BIGINT", "SMALLINT", "TINYINT") or inner.name.isdigit()
            if not exact:
                raise _refused(node, "Spark truncates the value, but DuckDB rounds it.")
            plain.set("this", inner)
            return plain
        if isinstance(inner, exp.Literal) and inner.is_string and to in ("TIMESTAMPTZ", "TIMESTAMPLTZ"):
            plain.set("this", exp.Literal.string(self._moment_in_utc(inner.name, node)))
            return plain
        from_ = self._type(inner)
        plain.set("this", self.written(inner))
        if to in ("INT", "BIGINT") and (from_ is None or not (_is_whole(from_) or pa.types.is_boolean(from_))):
            raise _refused(node, "Spark truncates the value, but DuckDB rounds it. Use floor().")
        known = (pa.types.is_integer, pa.types.is_string, pa.types.is_date, pa.types.is_boolean)
        if to in ("TEXT", "VARCHAR") and (from_ is None or not any(test(from_) for test in known)):
            raise _refused(node, "DuckDB may format the value differently.")
        if to not in ("INT", "BIGINT", "TEXT", "VARCHAR", "DOUBLE", "DECIMAL"):
            raise _refused(node)
        return plain

    def _type(self, node: Node) -> pa.DataType | None:
        if not isinstance(node, exp.Column):
            return None
        side, name, fields = self._scope.found(node)
        return side.schema.field(name).type if not fields else None

    def _moment_in_utc(self, text: str, node: Node) -> str:
        try:
            moment = dt.datetime.fromisoformat(text.strip())
        except ValueError:
            raise _refused(node, "The literal is not a valid time such as 2026-01-31 12:00:00.") from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=dt.timezone.utc if self._scope.in_utc else ZoneInfo(self._scope.zone))
        return moment.astimezone(dt.timezone.utc).isoformat(" ")

    def _require_plain(self, node: Node) -> None:
        if isinstance(node, _DIVISIONS):
            divisor = node.expression
            while isinstance(divisor, (exp.Paren, exp.Neg)):
                divisor = divisor.this
            kinds = [self._type(column) for column in node.find_all(exp.Column)]
            if isinstance(node, exp.Div) and any(kind is not None and pa.types.is_decimal(kind) for kind in kinds):
                raise _refused(node, "The expression divides decimals, which DuckDB converts to double.")
            number = isinstance(divisor, exp.Literal) and not divisor.is_string and float(divisor.name) != 0
            if not number and not isinstance(divisor, exp.Nullif):
                text = divisor.sql("spark")
                raise _refused(
                    node,
                    f"The divisor may be zero, which is an error in Spark and null in DuckDB. Write nullif({text}, 0).",
                )
        elif isinstance(node, exp.Trim):
            if any(value for name, value in node.args.items() if name != "this"):
                raise _refused(node)
        else:
            start = node.args.get("start")
            if not isinstance(start, exp.Literal) or start.is_string or start.name == "0":
                raise _refused(node, "The start of a substring must be a number from 1, because DuckDB counts from 0.")
            length = node.args.get("length")
            if length is not None and (not isinstance(length, exp.Literal) or length.is_string):
                raise _refused(
                    node,
                    "The length of a substring must be a number from 0, because DuckDB counts backwards otherwise.",
                )

    def _require_utc(self, node: Node) -> None:
        if not self._scope.in_utc:
            raise _refused(
                node,
                f"The expression uses days of the session's time zone {self._scope.zone}, but DuckDB uses days of UTC.",
            )

    def _find_time_kinds(self, node: Node) -> set[str]:
        """Return the kinds of dates and times in an expression."""
        found = set()
        for part in node.find_all(exp.Column, exp.Cast):
            if isinstance(part, exp.Cast):
                found.add(_CLOCKS.get(part.to.this.name, ""))
                continue
            kind = self._type(part)
            if kind is not None and pa.types.is_timestamp(kind):
                found.add(ZONED if kind.tz else "without zone")
            elif kind is not None and pa.types.is_date(kind):
                found.add("date")
        return found - {""}

    def _require_times(self, node: Node) -> None:
        """Reject comparisons of a timestamp with a value without time zone.

        Such a value is a string, a date or a timestamp without time zone. Spark interprets it in the session's time
        zone, and DuckDB in UTC.
        """
        if self._scope.in_utc:
            return
        clocks = self._find_time_kinds(node)
        if ZONED in clocks and len(clocks) > 1:
            raise _refused(
                node,
                f"The expression compares a time with a date or with a time without time zone, which only Spark "
                f"reads in {self._scope.zone}.",
            )
        operands = [part for value in node.args.values() for part in (value if isinstance(value, list) else [value])]
        texts = [value for value in operands if isinstance(value, exp.Literal) and value.is_string]
        kinds = [self._type(value) for value in operands if isinstance(value, exp.Column)]
        if texts and any(kind is not None and pa.types.is_timestamp(kind) and kind.tz for kind in kinds):
            raise _refused(
                node, f"The expression compares a time with a string. Write TIMESTAMP {texts[0].sql('spark')}."
            )


def _is_node(value: object) -> bool:
    return hasattr(value, "args")


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind) and kind.scale == 0)


def schema_of_frame(frame: Any) -> pa.Schema:
    fields = []
    for field in frame.schema.fields:
        try:
            fields += arrow_schema_of(type(frame.schema)([field]))
        except SchemaError:
            fields.append(pa.field(field.name, pa.null()))
    return pa.schema(fields)
