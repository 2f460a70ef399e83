"""Parser for `where` conditions. sqlglot parses the text, and this module checks the syntax.

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
from hoodoo.nearest import hint
from hoodoo.readers.predicate import literals, parameters
from hoodoo.readers.predicate.quoting import as_text, in_quotes, no_column_but_text, with_quotes, written_in_quotes
from hoodoo.readers.predicate.tree import FLIPPED, And, Compare, In, IsNull, Like, Not, Or, Predicate
from hoodoo.redact import printable

Node = Any
"""Node of sqlglot's tree. The name of its base class differs between major releases of sqlglot."""

TEXT_CAP = 1 << 20
"""Maximum number of characters of a `where` condition."""
_LINE = 100
"""Maximum number of characters of the text shown in an error."""

_GRAMMAR = "`where` supports columns, literals, = != < <= > >=, AND, OR, NOT, IN, BETWEEN, IS [NOT] NULL and LIKE"
_NULL = "write IS NULL or IS NOT NULL"
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMPARISONS: dict[Any, str] = {exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_TYPED_LITERALS: dict[str, literals.Kind] = {
    "DATE": "date",
    "TIME": "time",
    "TIMESTAMP": "timestamp",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMPLTZ": "timestamp",
    "TIMESTAMPNTZ": "timestamp",
}


class _Where(Dialect):
    class Tokenizer(tokens.Tokenizer):
        IDENTIFIERS = ['"', "`"]
        HEX_STRINGS = [("x'", "'"), ("X'", "'")]
        VAR_SINGLE_TOKENS = {"$"}  # `$name` is one token, which becomes a column named `$name`
        SINGLE_TOKENS = {key: kind for key, kind in tokens.Tokenizer.SINGLE_TOKENS.items() if key != "$"}


def read(text: str, schema: pa.Schema, params: Mapping[str, Any] | None = None) -> Predicate:
    """Parse a `where` condition into a predicate tree. Raises PredicateError for invalid syntax or unknown columns.

    `params` contains the parameter values from `checked_parameters`.
    """
    return read_with_quotes(text, schema, params)[1]


def read_with_quotes(text: str, schema: pa.Schema, params: Mapping[str, Any] | None = None) -> tuple[str, Predicate]:
    """Parse a `where` condition. Also returns its text, with quotes around columns that are named like SQL keywords.

    The arguments and errors are those of `read`.

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
        return text, _read(text, schema, params or {})
    except PredicateError:
        if (quoted := with_quotes(text, schema.names)) != text:  # a column may be named like a keyword
            with suppress(PredicateError):
                return quoted, _read(quoted, schema, params or {})
        raise


def _read(text: str, schema: pa.Schema, params: Mapping[str, Any]) -> Predicate:
    try:
        tree = sqlglot.parse_one(text, read=_Where)
        return _TreeReader(text, schema, params).condition(tree)
    except ParseError as error:
        first = error.errors[0] if error.errors else {"description": "It is empty"}
        why = str(first["description"])
        raise _error(
            text, _offset(text, first), "A part of the condition is missing here" if why.startswith("Required") else why
        ) from None
    except TokenError as error:
        why = f"The condition is incomplete, or contains an invalid character ({error})"
        if text.count("'") % 2:
            why = (
                "A quote is not closed. Put strings in single quotes, and double a single quote within a string: "
                "'it''s'"
            )
        raise _error(text, len(text), why) from None
    except RecursionError:
        raise _error(text, 0, "It has too many nested levels") from None


def spans_of(text: str, column: str) -> list[tuple[int, int]]:
    """Find each occurrence of a column in a `where` condition: its start and end in the text, including quotes.

    Args:
        text: A condition that `read` accepts.
        column: The name of the column.

    Raises:
        PredicateError: `text` cannot be parsed.
    """
    try:
        tree = sqlglot.parse_one(text, read=_Where)
    except (ParseError, TokenError, RecursionError):
        raise _error(text, 0, "It cannot be parsed") from None
    positions = (node.this.meta for node in tree.find_all(exp.Column) if node.name == column)
    return sorted((int(meta["start"]), int(meta["end"]) + 1) for meta in positions)


def quoted(column: str) -> str:
    """Format a column name for use in `where`, with double quotes only if they are needed."""
    if _BARE.fullmatch(column):
        try:
            node = sqlglot.parse_one(f"{column} = 1", read=_Where).this
            if isinstance(node, exp.Column) and node.name == column:
                return column
        except (ParseError, TokenError):
            pass
    return '"' + column.replace('"', '""') + '"'


def _offset(text: str, error: dict[str, Any]) -> int:
    """Return the text position of a syntax error that sqlglot reports.

    sqlglot reports the end of the token, counted from 1.

    """
    lines = text.split("\n")[: int(error.get("line") or 1) - 1]
    return sum(len(line) + 1 for line in lines) + int(error.get("col") or 0) - len(error.get("highlight") or "")


def _error(text: str, at: int, why: str, instead: str = "") -> PredicateError:
    """Create a PredicateError that shows the line around position `at`, with a mark below that position."""
    at = max(0, min(at, len(text)))
    begin = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    begin = max(begin, at - _LINE // 2)
    shown = text[begin : len(text) if end < 0 else end][:_LINE]
    stop = "" if instead or why.endswith(("?", ".")) else "."
    return PredicateError(
        f"Cannot read `where`: {why}{stop}\n    {shown}\n    {' ' * (at - begin)}^",
        where=text[:1000],
        position=at,
        **({"instead": instead} if instead else {}),
    )


class _TreeReader:
    """Converter from sqlglot's syntax tree to a predicate tree. It rejects nodes with unsupported attributes."""

    def __init__(self, text: str, schema: pa.Schema, params: Mapping[str, Any]) -> None:
        self._text = text
        self._schema = schema
        self._params = params
        self._forms: dict[Any, Callable[[Any], Predicate]] = {
            exp.Not: lambda node: Not(self.condition(node.this)),
            exp.Paren: lambda node: self.condition(node.this),
            exp.And: lambda node: And(tuple(self.condition(part) for part in node.flatten())),
            exp.Or: lambda node: Or(tuple(self.condition(part) for part in node.flatten())),
            exp.In: self._in,
            exp.Between: self._between,
            exp.Is: self._is,
            exp.Like: self._like,
            exp.Column: self._truth,
            **dict.fromkeys(_COMPARISONS, self._comparison),
        }

    def condition(self, node: Node) -> Predicate:
        form = self._forms.get(type(node))
        if form is None:
            self._refuse_words(node)
            raise self._refusal(node, f"{_short(node)} is not a supported condition. {_GRAMMAR}")
        return form(node)

    def _comparison(self, node: Node) -> Predicate:
        op, column, literal = _COMPARISONS[type(node)], _bare(node.this), _bare(node.expression)
        if _is_column(literal) and not _is_column(column):
            op, column, literal = FLIPPED[op], literal, column
        if _is_column(literal) and _is_column(column):
            names = self._schema.names
            if column.name not in names and literal.name in names:
                column, literal = literal, column
            if literal.name in names or column.name not in names:
                self._field(column)
                raise self._refusal(literal, "Two columns cannot be compared here; pass a pyarrow expression instead")
        field = self._field(column)
        return Compare(field.name, op, self._value(literal, field), field.type)

    def _in(self, node: exp.In) -> Predicate:
        named = node.args.get("field")  # of `IN $name`
        self._only(node, "this", "expressions", *(["field"] if _parameter_of(named) else []))
        field, given = self._field(node.this), [named] if named else node.expressions
        if not given:
            raise self._refusal(node, "IN has an empty list; write values, such as IN (1, 2)")
        values = tuple(value for element in given for value in self._values(element, field))
        if not values:  # empty lists in parameters match no row, also not a null
            return And((IsNull(field.name), Not(IsNull(field.name))))
        return In(field.name, values, field.type)

    def _values(self, node: Node, field: pa.Field) -> Sequence[Any]:
        """Return the values of one element of an IN list. A parameter may contain any number of values."""
        name = _parameter_of(_bare(node))
        values = self._params.get(name) if name else None
        if not isinstance(values, tuple):
            return [self._value(node, field)]
        return [self._converted(node, value, field) for value in values]

    def _between(self, node: exp.Between) -> Predicate:
        self._only(node, "this", "low", "high")
        field = self._field(node.this)
        low, high = (self._value(node.args[side], field) for side in ("low", "high"))
        return And((Compare(field.name, ">=", low, field.type), Compare(field.name, "<=", high, field.type)))

    def _is(self, node: exp.Is) -> Predicate:
        if not isinstance(node.expression, exp.Null):
            raise self._refusal(node, f"IS must be followed by NULL or NOT NULL, got {_short(node.expression)}")
        return IsNull(self._field(node.this).name)

    def _like(self, node: exp.Like) -> Predicate:
        self._only(node, "this", "expression", "negate")
        field = self._field(node.this)
        if not (pa.types.is_string(field.type) or pa.types.is_large_string(field.type)):
            raise self._refusal(node, f"LIKE needs a string column, but {field.name} is {field.type}")
        pattern = self._value(node.expression, field)
        if _has_stray_backslash(pattern):
            raise self._refusal(
                node.expression, r"A backslash in a pattern must be followed by %, _ or another backslash"
            )
        like = Like(field.name, pattern)
        return Not(like) if node.args.get("negate") else like

    def _truth(self, node: exp.Column) -> Predicate:
        field = self._field(node)
        if not pa.types.is_boolean(field.type):
            raise self._refusal(node, f"{field.name} is {field.type}, not a boolean; compare it with a value")
        return Compare(field.name, "=", True, field.type)

    def _field(self, node: Node) -> pa.Field:
        node = _bare(node)
        if not _is_column(node):
            raise self._refusal(node, f"Expected a column, got {_short(node)}. {_GRAMMAR}")
        if len(node.parts) > 1:
            raise self._refusal(
                node, f"{_short(node)} is a field inside a column; pass a pyarrow expression for nested fields"
            )
        if node.name not in self._schema.names:
            raise self._refusal(
                node, f"There is no column {printable(node.name)}; {hint(node.name, self._schema.names)}"
            )
        return self._schema.field(node.name)

    def _value(self, node: Node, field: pa.Field) -> Any:
        if name := _parameter_of(_bare(node)):
            if name not in self._params:
                raise self._refusal(node, f"${name} is a parameter, which has no value here; write the value")
            return self._converted(node, self._params[name], field)
        if isinstance(_bare(node), exp.Column):
            self._refuse_column(_bare(node), field)
        try:
            return literals.convert(self._literal_text(node), field.type)
        except OverflowError:
            raise self._refusal(node, f"{_short(node)} is outside of the years 1 to 9999 in UTC") from None
        except ValueError as error:
            raise self._refusal(
                node, f"Column {field.name} of type {field.type} is compared with {_short(node)}, which {error}"
            ) from None

    def _converted(self, node: Node, value: Any, field: pa.Field) -> Any:
        """Convert a value of the parameter at `node` to the column's type."""
        if value is None:
            raise self._refusal(node, f"{_short(node)} is None, and a comparison with NULL is never true; {_NULL}")
        if isinstance(value, tuple):
            raise self._refusal(node, f"{_short(node)} is a list; write {field.name} IN {_short(_bare(node))}")
        try:
            return parameters.convert(value, field.type)
        except ValueError as error:
            comparison = f"{_short(node)} = {printable(value)}"
            raise self._refusal(
                node, f"Column {field.name} of type {field.type} is compared with {comparison}, which {error}"
            ) from None

    def _literal_text(self, node: Node) -> literals.LiteralText:
        node = _bare(node)
        match node:
            case exp.Literal():
                return literals.LiteralText("text" if node.is_string else "number", node.name)
            case exp.Boolean():
                return literals.LiteralText("boolean", "true" if node.this else "false")
            case exp.HexString():
                return literals.LiteralText("binary", node.name)
            case exp.Neg() if isinstance(number := _bare(node.this), exp.Literal) and not number.is_string:
                return literals.LiteralText("number", "-" + number.name)
            case exp.Cast() if (
                isinstance(node.this, exp.Literal) and node.this.is_string and node.to.this.name in _TYPED_LITERALS
            ):
                return literals.LiteralText(_TYPED_LITERALS[node.to.this.name], node.this.name)
            case exp.Null():
                raise self._refusal(node, f"A comparison with NULL is never true; {_NULL}")
        raise self._refusal(node, f"Expected a literal, got {_short(node)}. {_GRAMMAR}")

    def _refuse_column(self, node: Node, field: pa.Field) -> None:
        """Raise PredicateError if a comparison uses an unknown column instead of a literal.

        The column is often a string without quotes. Does nothing if the column exists.

        """
        if node.name in self._schema.names:
            return
        if not written_in_quotes(field.type):
            raise self._refusal(
                node, f"There is no column {printable(node.name)}; {hint(node.name, self._schema.names)}"
            )
        instead = in_quotes(self._text, self._begin(node))
        raise self._refusal(node, no_column_but_text(node.name, self._schema.names, instead), instead)

    def _refuse_words(self, node: Node) -> None:
        """Raise PredicateError for a string of two words without quotes. sqlglot parses the second word as an alias."""
        if not isinstance(node, exp.Alias) or not isinstance(node.this, tuple(_COMPARISONS)):
            return
        compared: Node = node.this
        first, last = _bare(compared.expression), node.args["alias"]
        if not isinstance(first, exp.Column) or first.name in self._schema.names or "end" not in last.meta:
            return
        begin, end = self._begin(first), last.meta["end"] + 1
        instead = self._text[:begin] + as_text(self._text[begin:end]) + self._text[end:]
        raise self._refusal(first, no_column_but_text(first.name, self._schema.names, instead), instead)

    def _only(self, node: Node, *supported: str) -> None:
        """Raise PredicateError if a syntax tree node has attributes outside `supported`, which mean unsupported syntax.

        Such attributes come from a later release of sqlglot or from another SQL dialect.

        """
        if unsupported := [name for name, value in node.args.items() if value and name not in supported]:
            raise self._refusal(node, f"{_short(node)} uses unsupported syntax ({', '.join(unsupported)}). {_GRAMMAR}")

    def _refusal(self, node: Node, why: str, instead: str = "") -> PredicateError:
        return _error(self._text, self._begin(node), why, instead)

    def _begin(self, node: Node) -> int:
        return min((part.meta["start"] for part in node.walk() if "start" in part.meta), default=0)


def _parameter_of(node: Node) -> str | None:
    """Return the name of the parameter if a syntax tree node is a parameter such as `$name`. Otherwise returns None."""
    if not isinstance(node, exp.Column) or len(node.parts) > 1 or node.this.args.get("quoted"):
        return None
    name: str = node.name
    return name[1:] if name[:1] == "$" and name[1:].isidentifier() else None


def _is_column(node: Node) -> bool:
    return isinstance(node, exp.Column) and _parameter_of(node) is None


def _bare(node: Node) -> Node:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _short(node: Node) -> str:
    text = node.sql(dialect=_Where)
    return text if len(text) <= 60 else text[:60] + "…"


def _has_stray_backslash(pattern: str) -> bool:
    return any(part[:1] not in ("%", "_") for part in pattern.replace("\\\\", "").split("\\")[1:])
