"""Parser for the text of a condition on rows.

The syntax supports:

    columns, literals, parameters, = != < <= > >=, AND OR NOT, IN, BETWEEN, IS [NOT] NULL, LIKE, parentheses

Names are case-sensitive, and may be quoted as "name" or `name`. An error shows the text with a mark below the affected
character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError

from hoodoo.arguments import is_utf8
from hoodoo.errors import PredicateError
from hoodoo.nearest import suggest_name
from hoodoo.readers.predicate import literals, parameters
from hoodoo.readers.predicate.quoting import (
    as_text,
    has_quoted_literals,
    quote_column_names,
    quote_word_at,
    unquoted_string_error,
)
from hoodoo.readers.predicate.tree import FLIPPED, And, Compare, In, IsNull, Like, Not, Or, Predicate
from hoodoo.redact import printable

Node = Any
"""Node of sqlglot's tree.

The name of its base class differs between major releases of sqlglot.
"""

TEXT_CAP = 1 << 20
"""Maximum number of characters of a `where` condition."""
_SHOWN_CHARACTERS = 100
# Maximum number of characters of the text shown in an error.

_GRAMMAR = "`where` supports columns, literals, = != < <= > >=, AND, OR, NOT, IN, BETWEEN, IS [NOT] NULL and LIKE"
_NULL_ADVICE = "write IS NULL or IS NOT NULL"
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMPARISONS: dict[Any, str] = {exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_TYPED_LITERALS: dict[str, literals.Kind] = {
    "DATE": "date",
    "TIME": "time",
    "TIMESTAMP": "timestamp",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMPLTZ": "timestamp",
    "TIMESTAMPNTZ": "timestamp",
}


class _WhereDialect(Dialect):
    class Tokenizer(tokens.Tokenizer):
        IDENTIFIERS = ['"', "`"]
        HEX_STRINGS = [("x'", "'"), ("X'", "'")]
        VAR_SINGLE_TOKENS = {"$"}  # `$name` is one token, which becomes a column named `$name`
        SINGLE_TOKENS = {key: kind for key, kind in tokens.Tokenizer.SINGLE_TOKENS.items() if key != "$"}


def parse_condition(text: str, schema: pa.Schema, params: Mapping[str, Any] | None = None) -> Predicate:
    """Parse a condition on rows.

    `params` contains the parameter values from `validate_parameters`.
    """
    return parse_and_quote(text, schema, params)[1]


def parse_and_quote(text: str, schema: pa.Schema, params: Mapping[str, Any] | None = None) -> tuple[str, Predicate]:
    """Parse a condition and quote its column names.

    Only names that are SQL keywords are quoted. The arguments and errors are those of `parse_condition`.
    """
    if len(text) > TEXT_CAP:
        raise PredicateError(
            f"`where` has {len(text):,} characters: expected at most {TEXT_CAP:,}. For many values, join with "
            "a table instead."
        )
    if not is_utf8(text):
        raise PredicateError(
            f"`where` cannot be encoded as UTF-8: {printable(text)}. Remove the surrogate characters.",
            where=printable(text, 1000),
        )
    try:
        return text, _parse_condition(text, schema, params or {})
    except PredicateError:
        if (quoted := quote_column_names(text, schema.names)) != text:  # a column may be named like a keyword
            with suppress(PredicateError):
                return quoted, _parse_condition(quoted, schema, params or {})
        raise


def _parse_condition(text: str, schema: pa.Schema, params: Mapping[str, Any]) -> Predicate:
    try:
        tree = sqlglot.parse_one(text, read=_WhereDialect)
        return _TreeConverter(text, schema, params).condition(tree)
    except ParseError as error:
        first = error.errors[0] if error.errors else {"description": "It is empty"}
        why = str(first["description"])
        raise _error_at_position(
            text,
            _error_position(text, first),
            "A part of the condition is missing here" if why.startswith("Required") else why,
        ) from None
    except TokenError as error:
        why = f"The condition is incomplete, or contains an invalid character ({error})"
        if text.count("'") % 2:
            why = (
                "A quote is not closed. Put strings in single quotes, and double a single quote within a string: "
                "'it''s'"
            )
        raise _error_at_position(text, len(text), why) from None
    except RecursionError:
        raise _error_at_position(text, 0, "The condition has too many nested levels") from None


def find_column_spans(text: str, column: str) -> list[tuple[int, int]]:
    """Find all uses of a column in a condition.

    Args:
        text: A condition that `parse_condition` accepts.
        column: The name of the column.

    Raises:
        PredicateError: `text` cannot be parsed.
    """
    try:
        tree = sqlglot.parse_one(text, read=_WhereDialect)
    except (ParseError, TokenError, RecursionError):
        raise _error_at_position(text, 0, "It cannot be parsed") from None
    positions = (node.this.meta for node in tree.find_all(exp.Column) if node.name == column)
    return sorted((int(meta["start"]), int(meta["end"]) + 1) for meta in positions)


def quoted(column: str) -> str:
    if _PLAIN_NAME.fullmatch(column):
        try:
            node = sqlglot.parse_one(f"{column} = 1", read=_WhereDialect).this
            if isinstance(node, exp.Column) and node.name == column:
                return column
        except (ParseError, TokenError):
            pass
    return '"' + column.replace('"', '""') + '"'


def _error_position(text: str, error: dict[str, Any]) -> int:
    # sqlglot reports the end of the token, counted from 1.
    lines = text.split("\n")[: int(error.get("line") or 1) - 1]
    return sum(len(line) + 1 for line in lines) + int(error.get("col") or 0) - len(error.get("highlight") or "")


def _error_at_position(text: str, at: int, why: str, instead: str = "") -> PredicateError:
    at = max(0, min(at, len(text)))
    begin = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    begin = max(begin, at - _SHOWN_CHARACTERS // 2)
    shown = text[begin : len(text) if end < 0 else end][:_SHOWN_CHARACTERS]
    stop = "" if instead or why.endswith(("?", ".")) else "."
    return PredicateError(
        f"Cannot read `where`: {why}{stop}\n    {shown}\n    {' ' * (at - begin)}^",
        where=text[:1000],
        position=at,
        **({"instead": instead} if instead else {}),
    )


class _TreeConverter:
    # Syntax tree nodes with unsupported attributes are rejected.
    def __init__(self, text: str, schema: pa.Schema, params: Mapping[str, Any]) -> None:
        self._text = text
        self._schema = schema
        self._params = params
        self._forms: dict[Any, Callable[[Any], Predicate]] = {
            exp.Not: lambda node: Not(self.condition(node.this)),
            exp.Paren: lambda node: self.condition(node.this),
            exp.And: lambda node: And(tuple(self.condition(part) for part in node.flatten())),
            exp.Or: lambda node: Or(tuple(self.condition(part) for part in node.flatten())),
            exp.In: self._convert_in,
            exp.Between: self._convert_between,
            exp.Is: self._convert_is_null,
            exp.Like: self._convert_like,
            exp.Column: self._convert_boolean_column,
            **dict.fromkeys(_COMPARISONS, self._convert_comparison),
        }

    def condition(self, node: Node) -> Predicate:
        form = self._forms.get(type(node))
        if form is None:
            self._refuse_unquoted_words(node)
            raise self._error_at_node(node, f"{_shortened_sql(node)} is not a supported condition. {_GRAMMAR}")
        return form(node)

    def _convert_comparison(self, node: Node) -> Predicate:
        op, column, literal = (
            _COMPARISONS[type(node)],
            _without_parentheses(node.this),
            _without_parentheses(node.expression),
        )
        if _is_column(literal) and not _is_column(column):
            op, column, literal = FLIPPED[op], literal, column
        if _is_column(literal) and _is_column(column):
            names = self._schema.names
            if column.name not in names and literal.name in names:
                column, literal = literal, column
            if literal.name in names or column.name not in names:
                self._require_column(column)
                raise self._error_at_node(
                    literal, "Two columns cannot be compared here; pass a pyarrow expression instead"
                )
        field = self._require_column(column)
        return Compare(field.name, op, self._literal_value(literal, field), field.type)

    def _convert_in(self, node: exp.In) -> Predicate:
        named = node.args.get("field")  # of `IN $name`
        self._require_supported_attributes(node, "this", "expressions", *(["field"] if _parameter_name(named) else []))
        field, given = self._require_column(node.this), [named] if named else node.expressions
        if not given:
            raise self._error_at_node(node, "IN has an empty list; write values, such as IN (1, 2)")
        values = tuple(value for element in given for value in self._in_list_values(element, field))
        if not values:  # empty lists in parameters match no row, also not a null
            return And((IsNull(field.name), Not(IsNull(field.name))))
        return In(field.name, values, field.type)

    def _in_list_values(self, node: Node, field: pa.Field) -> Sequence[Any]:
        # A parameter may contain any number of values.
        name = _parameter_name(_without_parentheses(node))
        values = self._params.get(name) if name else None
        if not isinstance(values, tuple):
            return [self._literal_value(node, field)]
        return [self._parameter_value(node, value, field) for value in values]

    def _convert_between(self, node: exp.Between) -> Predicate:
        self._require_supported_attributes(node, "this", "low", "high")
        field = self._require_column(node.this)
        low, high = (self._literal_value(node.args[side], field) for side in ("low", "high"))
        return And((Compare(field.name, ">=", low, field.type), Compare(field.name, "<=", high, field.type)))

    def _convert_is_null(self, node: exp.Is) -> Predicate:
        if not isinstance(node.expression, exp.Null):
            raise self._error_at_node(
                node, f"IS must be followed by NULL or NOT NULL, got {_shortened_sql(node.expression)}"
            )
        return IsNull(self._require_column(node.this).name)

    def _convert_like(self, node: exp.Like) -> Predicate:
        self._require_supported_attributes(node, "this", "expression", "negate")
        field = self._require_column(node.this)
        if not (pa.types.is_string(field.type) or pa.types.is_large_string(field.type)):
            raise self._error_at_node(node, f"LIKE needs a string column, but {field.name} is {field.type}")
        pattern = self._literal_value(node.expression, field)
        if _has_stray_backslash(pattern):
            raise self._error_at_node(
                node.expression, r"A backslash in a pattern must be followed by %, _ or another backslash"
            )
        like = Like(field.name, pattern)
        return Not(like) if node.args.get("negate") else like

    def _convert_boolean_column(self, node: exp.Column) -> Predicate:
        field = self._require_column(node)
        if not pa.types.is_boolean(field.type):
            raise self._error_at_node(node, f"{field.name} is {field.type}, not a boolean; compare it with a value")
        return Compare(field.name, "=", True, field.type)

    def _require_column(self, node: Node) -> pa.Field:
        node = _without_parentheses(node)
        if not _is_column(node):
            raise self._error_at_node(node, f"Expected a column, got {_shortened_sql(node)}. {_GRAMMAR}")
        if len(node.parts) > 1:
            raise self._error_at_node(
                node, f"{_shortened_sql(node)} is a field inside a column; pass a pyarrow expression for nested fields"
            )
        if node.name not in self._schema.names:
            raise self._error_at_node(
                node, f"There is no column {printable(node.name)}; {suggest_name(node.name, self._schema.names)}"
            )
        return self._schema.field(node.name)

    def _literal_value(self, node: Node, field: pa.Field) -> Any:
        if name := _parameter_name(_without_parentheses(node)):
            if name not in self._params:
                raise self._error_at_node(node, f"${name} is a parameter, which has no value here; write the value")
            return self._parameter_value(node, self._params[name], field)
        if isinstance(_without_parentheses(node), exp.Column):
            self._refuse_unknown_column(_without_parentheses(node), field)
        try:
            return literals.convert_literal(self._literal_text(node), field.type)
        except OverflowError:
            raise self._error_at_node(
                node, f"{_shortened_sql(node)} is outside of the years 1 to 9999 in UTC"
            ) from None
        except ValueError as error:
            raise self._error_at_node(
                node, f"Column {field.name} of type {field.type} is compared with {_shortened_sql(node)}, which {error}"
            ) from None

    def _parameter_value(self, node: Node, value: Any, field: pa.Field) -> Any:
        if value is None:
            raise self._error_at_node(
                node, f"{_shortened_sql(node)} is None, and a comparison with NULL is never true; {_NULL_ADVICE}"
            )
        if isinstance(value, tuple):
            raise self._error_at_node(
                node,
                f"{_shortened_sql(node)} is a list; write {field.name} IN {_shortened_sql(_without_parentheses(node))}",
            )
        try:
            return parameters.convert_parameter(value, field.type)
        except ValueError as error:
            comparison = f"{_shortened_sql(node)} = {printable(value)}"
            raise self._error_at_node(
                node, f"Column {field.name} of type {field.type} is compared with {comparison}, which {error}"
            ) from None

    def _literal_text(self, node: Node) -> literals.LiteralText:
        node = _without_parentheses(node)
        match node:
            case exp.Literal():
                return literals.LiteralText("text" if node.is_string else "number", node.name)
            case exp.Boolean():
                return literals.LiteralText("boolean", "true" if node.this else "false")
            case exp.HexString():
                return literals.LiteralText("binary", node.name)
            case exp.Neg() if (
                isinstance(number := _without_parentheses(node.this), exp.Literal) and not number.is_string
            ):
                return literals.LiteralText("number", "-" + number.name)
            case exp.Cast() if (
                isinstance(node.this, exp.Literal) and node.this.is_string and node.to.this.name in _TYPED_LITERALS
            ):
                return literals.LiteralText(_TYPED_LITERALS[node.to.this.name], node.this.name)
            case exp.Null():
                raise self._error_at_node(node, f"A comparison with NULL is never true; {_NULL_ADVICE}")
        raise self._error_at_node(node, f"Expected a literal, got {_shortened_sql(node)}. {_GRAMMAR}")

    def _refuse_unknown_column(self, node: Node, field: pa.Field) -> None:
        # The unknown column is often a string without quotes. Does nothing if the column exists.
        if node.name in self._schema.names:
            return
        if not has_quoted_literals(field.type):
            raise self._error_at_node(
                node, f"There is no column {printable(node.name)}; {suggest_name(node.name, self._schema.names)}"
            )
        instead = quote_word_at(self._text, self._start_position(node))
        raise self._error_at_node(node, unquoted_string_error(node.name, self._schema.names, instead), instead)

    def _refuse_unquoted_words(self, node: Node) -> None:
        # sqlglot parses the second word of a string without quotes as an alias.
        if not isinstance(node, exp.Alias) or not isinstance(node.this, tuple(_COMPARISONS)):
            return
        compared: Node = node.this
        first, last = _without_parentheses(compared.expression), node.args["alias"]
        if not isinstance(first, exp.Column) or first.name in self._schema.names or "end" not in last.meta:
            return
        begin, end = self._start_position(first), last.meta["end"] + 1
        instead = self._text[:begin] + as_text(self._text[begin:end]) + self._text[end:]
        raise self._error_at_node(first, unquoted_string_error(first.name, self._schema.names, instead), instead)

    def _require_supported_attributes(self, node: Node, *supported: str) -> None:
        # Unsupported attributes come from a later release of sqlglot or from another SQL dialect.
        if unsupported := [name for name, value in node.args.items() if value and name not in supported]:
            raise self._error_at_node(
                node, f"{_shortened_sql(node)} uses unsupported syntax ({', '.join(unsupported)}). {_GRAMMAR}"
            )

    def _error_at_node(self, node: Node, why: str, instead: str = "") -> PredicateError:
        return _error_at_position(self._text, self._start_position(node), why, instead)

    def _start_position(self, node: Node) -> int:
        return min((part.meta["start"] for part in node.walk() if "start" in part.meta), default=0)


def _parameter_name(node: Node) -> str | None:
    if not isinstance(node, exp.Column) or len(node.parts) > 1 or node.this.args.get("quoted"):
        return None
    name: str = node.name
    return name[1:] if name[:1] == "$" and name[1:].isidentifier() else None


def _is_column(node: Node) -> bool:
    return isinstance(node, exp.Column) and _parameter_name(node) is None


def _without_parentheses(node: Node) -> Node:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _shortened_sql(node: Node) -> str:
    text = node.sql(dialect=_WhereDialect)
    return text if len(text) <= 60 else text[:60] + "…"


def _has_stray_backslash(pattern: str) -> bool:
    return any(part[:1] not in ("%", "_") for part in pattern.replace("\\\\", "").split("\\")[1:])
