"""SQL expressions over the columns of a table.

DuckDB parses the expression, and this module checks the syntax tree. An expression must return one value per row, be
deterministic, and use only the current row. Columns are referenced by index, because DuckDB treats `a` and `A` as the
same name.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from hoodoo.arguments import is_utf8
from hoodoo.errors import EngineError, ExpressionError
from hoodoo.nearest import find_nearest_name, join_names, sort_by_similarity, suggest_name
from hoodoo.readers.predicate import duckdb_engine, literals, parameters
from hoodoo.readers.predicate.quoting import (
    as_text,
    has_quoted_literals,
    quote_column_names,
    quote_word_at,
    unquoted_string_error,
)
from hoodoo.redact import printable

TEXT_CAP = 1 << 20
"""Maximum number of characters of one expression."""
_SHOWN_CHARACTERS = 100  # maximum length of the text shown in an error
_PREFIX = "SELECT "
_NUMBER = re.compile(r"-?[\d.]+(?:[eE][+-]?\d+)?")
_DATE = re.compile(r"(?<![\w'\"-])\d{4}-\d\d?-\d\d?(?![\w'\"-])")  # a date without quotes
_LITERALS: dict[str, literals.Kind] = {"STRING": "text", "INTEGER": "number", "NUMERIC": "number", "BOOLEAN": "boolean"}
_LIKE_OPERATORS = frozenset(("~~", "!~~", "~~*", "!~~*"))
_SUPPORTED_CLASSES = frozenset(
    ("BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "LAMBDA")
    + ("OPERATOR", "TYPE")
)
_UNSUPPORTED_CLASSES = {
    "SUBQUERY": "a subquery, but an expression can use only one row",
    "WINDOW": "a window function, but an expression can use only one row",
    "STAR": "a star; name the columns",
    "PARAMETER": "a parameter without a value; write the value",
    "POSITIONAL_REFERENCE": "a column by number; name it",
}
_TIME_FUNCTIONS = {
    "now": "CAST('{0:%Y-%m-%d %H:%M:%S.%f}+00' AS TIMESTAMPTZ)",
    "localtimestamp": "CAST('{0:%Y-%m-%d %H:%M:%S.%f}' AS TIMESTAMP)",
    "current_date": "CAST('{0:%Y-%m-%d}' AS DATE)",
    "localtime": "CAST('{0:%H:%M:%S.%f}' AS TIME)",
}
_TIME_FUNCTIONS |= dict.fromkeys(
    ("current_timestamp", "get_current_timestamp", "transaction_timestamp"), _TIME_FUNCTIONS["now"]
)
_TIME_FUNCTIONS |= {"today": _TIME_FUNCTIONS["current_date"]} | dict.fromkeys(
    ("current_time", "get_current_time"), _TIME_FUNCTIONS["localtime"]
)
"""SQL constants for functions that return the current time.

The constant is the time of the call in UTC. All rows and all retries of a call therefore use the same time.

"""


@dataclass(frozen=True)
class Expression:
    """Validated SQL expression.

    Attributes:
        text: The expression as the user wrote it.
        option: The name of the argument that contains the expression, for errors.
        sql: The SQL that DuckDB evaluates. The column at index i of the schema is named `c<i>`.
        columns: The columns that the expression uses: index in the schema, and name.
        type: The Arrow type of the result.
    """

    text: str
    option: str
    sql: str
    columns: tuple[tuple[int, str], ...]
    type: pa.DataType = field(default_factory=pa.null)

    @property
    def column(self) -> str | None:
        """Name of the column that forms the whole expression."""
        ((index, name),) = self.columns if len(self.columns) == 1 else ((-1, None),)
        return name if self.sql == f"c{index}" else None

    def values(self, rows: pa.Table) -> pa.ChunkedArray:
        """Evaluate the SQL expression for each row.

        Raises:
            ExpressionError: The expression cannot be evaluated, for example because a string is not a number.
        """
        if self.columns:
            arguments = pa.table(
                [rows[name] for _, name in self.columns], names=[f"c{index}" for index, _ in self.columns]
            )
            return _evaluate(self, arguments)
        single = _evaluate(self, pa.table([pa.nulls(min(1, len(rows)))], names=["c"]))
        return single.take(pa.array(np.zeros(len(rows), np.int64)))


def read_expression(
    text: str, schema: pa.Schema, now: dt.datetime, option: str, params: Mapping[str, Any] | None = None
) -> Expression:
    """Read an SQL expression, and validate it.

    Args:
        text: The expression, in DuckDB's SQL.
        schema: The columns that the expression may use. If the expression sees two rows, each column name has the name
            of its row as a prefix, such as "source.fare". The prefix is optional if only one row has the column.
        now: The time that `now()` and similar functions return, in UTC.
        option: The name of the argument, for errors.
        params: The parameter values from `validate_parameters`.

    Raises:
        ExpressionError: The expression cannot be parsed, does not match the columns, or is not an expression over one
            row.
        EngineError: DuckDB is not installed.
    """
    tree = parse_expression(text, option, schema.names)
    return validate_syntax_tree(add_parentheses_to_lists(tree, params or {}), text, schema, now, option, params)


def parse_expression(text: str, option: str, names: Sequence[str] = ()) -> dict[str, Any]:
    """Parse an SQL expression.

    Returns its syntax tree. `names` are column names. A column whose name is an SQL keyword, such as `at`, may be
    written without quotes if quotes around the column names make the expression valid.
    """
    if not duckdb_engine.available():
        raise EngineError(f"Option {option} needs DuckDB for SQL expressions. Install it: pip install 'hoodoo[sql]'.")
    if not is_utf8(text):
        raise ExpressionError(
            f"{option} cannot be encoded as UTF-8: {printable(text)}. Remove the surrogate characters.",
            option=option,
        )
    if "\0" in text:  # DuckDB's parser stops at a NUL character
        raise ExpressionError(
            f"{option} contains a NUL character: {printable(text)}. Write chr(0) instead.", option=option
        )
    if len(text) > TEXT_CAP:
        raise ExpressionError(f"{option} has {len(text):,} characters: expected at most {TEXT_CAP:,}.", option=option)
    tree = _serialize_sql(text)
    if tree["error"] and (quoted := quote_column_names(text, names)) != text:
        quoted_tree = _serialize_sql(quoted)
        tree = tree if quoted_tree["error"] else quoted_tree
    if tree["error"]:
        position, reason = int(tree.get("position") or len(_PREFIX)) - len(_PREFIX), tree["error_message"].rstrip(".!")
        if "expression depth" in reason:
            reason = f"It has more than {duckdb_engine.DEPTH_MAX} nested levels"
        raise ExpressionError(
            f"Cannot read {option}: {reason}.\n{_mark_position(text, position)}",
            option=option,
            expression=text[:1000],
        )
    node = tree["statements"][0]["node"] if len(tree["statements"]) == 1 else {}
    is_single = node.get("type") == "SELECT_NODE" and len(node["select_list"]) == 1 and not _has_other_clauses(node)
    if not is_single or node["select_list"][0].get("alias"):
        raise ExpressionError(
            f"{option} is invalid: expected a single SQL expression, got {printable(text)}.", option=option
        )
    expression: dict[str, Any] = node["select_list"][0]
    return expression


def _serialize_sql(text: str) -> dict[str, Any]:
    try:
        tree: dict[str, Any] = json.loads(duckdb_engine.ask("SELECT json_serialize_sql(?)", _PREFIX + text))
    except RecursionError:
        return {"error": True, "error_message": "expression depth"}
    return tree


def split_at_ands(node: dict[str, Any]) -> list[dict[str, Any]]:
    if node["class"] == "CONJUNCTION" and node["type"] == "CONJUNCTION_AND":
        return [part for child in _operands(node) for part in split_at_ands(child)]
    return [node]


def all_of(nodes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if len(nodes) == 1:
        return nodes[0]
    return _parse_generated_sql(" AND ".join(f"({syntax_tree_to_sql(node)})" for node in nodes))


def syntax_tree_to_sql(node: dict[str, Any]) -> str:
    tree = json.loads(duckdb_engine.ask("SELECT json_serialize_sql(?)", _PREFIX + "1"))
    tree["statements"][0]["node"]["select_list"] = [node]
    return duckdb_engine.ask("SELECT json_deserialize_sql(?)", json.dumps(tree)).removeprefix(_PREFIX)


def add_parentheses_to_lists(node: Any, params: Mapping[str, Any]) -> Any:
    """Add missing parentheses to lists in SQL.

    DuckDB parses `x IN $name` as `contains($name, x)`.
    """
    if isinstance(node, list):
        return [add_parentheses_to_lists(part, params) for part in node]
    if not isinstance(node, dict):
        return node
    node = {key: add_parentheses_to_lists(value, params) for key, value in node.items()}
    if node.get("class") != "FUNCTION" or node["function_name"] != "contains" or len(_operands(node)) != 2:
        return node
    values, operand = _operands(node)
    if values.get("class") != "PARAMETER" or not isinstance(params.get(values["identifier"]), tuple):
        return node
    shared = {key: node[key] for key in ("alias", "query_location", "query_location_length") if key in node}
    return {"class": "OPERATOR", "type": "COMPARE_IN", **shared, "children": [operand, values]}


def validate_syntax_tree(
    node: dict[str, Any],
    text: str,
    schema: pa.Schema,
    now: dt.datetime,
    option: str,
    params: Mapping[str, Any] | None = None,
) -> Expression:
    """Validate the syntax tree of an SQL expression.

    `params` contains the parameter values from `validate_parameters`. The other arguments are as in `read_expression`.
    """
    reader = _ExpressionValidator(text, schema, now, option, params or {})
    sql = syntax_tree_to_sql(reader.checked(node, frozenset()))
    columns = tuple(sorted(reader.columns.items()))
    untyped = Expression(text, option, sql, columns)
    result_type = untyped.values(schema.empty_table()).type
    return Expression(text, option, sql, columns, result_type)


class _ExpressionValidator:
    # An SQL expression may use only one row. Column names are replaced by indexes.
    def __init__(self, text: str, schema: pa.Schema, now: dt.datetime, option: str, params: Mapping[str, Any]) -> None:
        self._params = params
        self._text, self._names, self._now, self._option = text, schema.names, now, option
        self._schema = schema
        self.columns: dict[int, str] = {}

    def checked(self, node: Any, bound: frozenset[str]) -> Any:
        # Replaces column names by indexes, and time functions and parameters by constants. `bound` contains the
        # parameters of the enclosing lambdas.
        if isinstance(node, list):
            return [self.checked(part, bound) for part in node]
        if not isinstance(node, dict):
            return node
        form = node.get("class")
        if form == "PARAMETER" and node["identifier"] in self._params:
            return _parse_generated_sql(parameters.in_sql(self._parameter_value(node)))
        if form is not None and form not in _SUPPORTED_CLASSES:
            raise self._error_at_node(
                node, f"It contains {_UNSUPPORTED_CLASSES.get(form, form.lower().replace('_', ' '))}"
            )
        node = self._expand_list_parameters(node)
        operands = _comparison_operands(node)
        if len(operands.get("children", ())) == 1:  # empty lists in parameters match no row, also not a null
            self.checked(operands["children"], bound)
            return _parse_generated_sql("TRUE" if node["type"] == "COMPARE_NOT_IN" else "FALSE")
        if operands:
            node = {**node, **self._convert_literals(operands, bound)}
        if form == "LAMBDA":
            bound |= {names[-1] for names in _column_references(node["lhs"])}
        elif form == "COLUMN_REF":
            return self._column(node, bound)
        elif form == "FUNCTION":
            name = node["function_name"].lower()
            if name in _TIME_FUNCTIONS and not _operands(node):
                return self._current_time(name)
            self._require_scalar_function(node, name)
            if name in _LIKE_OPERATORS:
                self._require_quoted_text(_operands(node), bound)
        return {key: self.checked(value, bound) for key, value in node.items()}

    def _column(self, node: dict[str, Any], bound: frozenset[str]) -> dict[str, Any]:
        name, *fields = node["column_names"]
        if name in bound:
            return node
        name, fields = self._split_reference(node)
        if name in self._names:
            index = self._names.index(name)
            self.columns[index] = name
            return {**node, "column_names": [f"c{index}", *fields]}
        if name.lower() in _TIME_FUNCTIONS and not fields:
            return self._current_time(name.lower())
        raise self._unknown_column_error(node)

    def _split_reference(self, node: dict[str, Any]) -> tuple[str, list[str]]:
        # `a.b.c` may refer to column `a`, or to column `a.b` of one of two rows. An unknown name is returned unchanged.
        name, *fields = node["column_names"]
        if fields and f"{name}.{fields[0]}" in self._names:
            return f"{name}.{fields[0]}", fields[1:]
        return name if name in self._names else self._add_row_prefix(node, name), fields

    def _unknown_column_error(self, node: dict[str, Any]) -> ExpressionError:
        name, *fields = node["column_names"]
        side_columns = [known for known in self._names if fields and known.startswith(f"{name}.")]
        if side_columns:  # one of two rows
            full_name, columns = f"{name}.{fields[0]}", [known.partition(".")[2] for known in side_columns]
            suggestion = find_nearest_name(fields[0], columns)
            shown = join_names(f"{name}.{known}" for known in sort_by_similarity(fields[0], columns))
            advice = f"did you mean {name}.{suggestion}? There" if suggestion else "there"
            return self._error_at_node(node, f"There is no column {printable(full_name)}; {advice} are {shown}")
        full_name = ".".join(node["column_names"])
        return self._error_at_node(
            node, f"There is no column {printable(full_name)}; {suggest_name(full_name, self._names)}"
        )

    def _convert_literals(self, operands: Mapping[str, Any], bound: frozenset[str]) -> dict[str, Any]:
        # All operands are returned, with literals converted to the type of the compared column. Empty if nothing is
        # converted.
        nodes = [operand for value in operands.values() for operand in (value if isinstance(value, list) else [value])]
        field = self._require_quoted_text(nodes, bound)
        constants = {
            index: text for index, node in enumerate(nodes) if (text := self._literal_as_sql(node, field)) is not None
        }
        if not constants:
            return {}
        typed = _operands(_parse_generated_sql(f"0 IN ({', '.join(constants.values())})"))[1:]
        for index, node in zip(constants, typed, strict=True):
            nodes[index] = node
        remaining = iter(nodes)
        return {
            name: [next(remaining) for _ in value] if isinstance(value, list) else next(remaining)
            for name, value in operands.items()
        }

    def _referenced_field(self, node: Any, bound: frozenset[str]) -> pa.Field | None:
        if not isinstance(node, dict) or node.get("class") != "COLUMN_REF" or node["column_names"][0] in bound:
            return None
        name, fields = self._split_reference(node)
        return None if fields or name not in self._names else self._schema.field(self._names.index(name))

    def _require_quoted_text(self, nodes: Sequence[Any], bound: frozenset[str]) -> pa.Field | None:
        # Returns the compared column, or None. Without quotes, a string looks like an unknown column name, and a date
        # looks like a subtraction.
        field = next((match for node in nodes if (match := self._referenced_field(node, bound)) is not None), None)
        if field is not None and not has_quoted_literals(field.type):
            return field
        if field is None and nodes[0].get("class") == "COLUMN_REF":
            return field  # a struct field or an unknown column, which is reported elsewhere
        for node in nodes:
            if unknown := next(
                (name for name in _first_column_references(node) if self._is_unknown_name(name, bound)), None
            ):
                instead = quote_word_at(self._text, unknown.get("query_location", 0) - len(_PREFIX))
                reason = unquoted_string_error(".".join(unknown["column_names"]), self._names, instead)
                raise self._error_at_node(unknown, reason, instead)
            is_number = (
                node.get("class") == "FUNCTION" and node["function_name"] == "-" and not any(_column_references(node))
            )
            if field is not None and is_number and (match := _DATE.search(self._text)):
                instead = quote_word_at(self._text, match.start())
                reason = f"{match[0]} is a subtraction of numbers; put dates in single quotes: {instead}"
                raise self._error_at_node(node, reason, instead)
        return field

    def _is_unknown_name(self, node: dict[str, Any], bound: frozenset[str]) -> bool:
        # A reference to a column of one of two rows, such as `source.fare`, counts as known.
        first, *fields = node["column_names"]
        is_row_column = fields and any(is_known.startswith(f"{first}.") for is_known in self._names)
        is_known = first in bound or self._split_reference(node)[0] in self._names or first.lower() in _TIME_FUNCTIONS
        return not (is_known or is_row_column)

    def _expand_list_parameters(self, node: dict[str, Any]) -> dict[str, Any]:
        if node.get("class") != "OPERATOR" or node["type"] not in ("COMPARE_IN", "COMPARE_NOT_IN"):
            return node
        children = node["children"][:1]
        for child in node["children"][1:]:
            values = self._params.get(child["identifier"]) if child.get("class") == "PARAMETER" else None
            indexes = range(len(values)) if isinstance(values, tuple) else None
            children += [child] if indexes is None else [{**child, "index": index} for index in indexes]
        return {**node, "children": children}

    def _parameter_value(self, node: dict[str, Any]) -> Any:
        # An element of a list parameter has the key `index`.
        value = self._params[node["identifier"]]
        if "index" in node:
            return value[node["index"]]
        if isinstance(value, tuple):
            raise self._error_at_node(node, f"Parameter ${node['identifier']} is a list, which only IN accepts")
        return value

    def _literal_as_sql(self, node: Any, field: pa.Field | None) -> str | None:
        # None if DuckDB and `where` parse the literal in the same way, and for nodes that are neither literals nor
        # parameters. A parameter is always converted. Raises ExpressionError for a literal that cannot be converted to
        # the type of `field`.
        if node.get("class") == "PARAMETER" and node["identifier"] in self._params:
            value = self._parameter_value(node)
            typed = None if value is None or field is None else self._typed_literal(node, value, field)
            return typed or parameters.in_sql(value)
        return None if field is None else self._typed_literal(node, None, field)

    def _typed_literal(self, node: Any, param: Any, field: pa.Field) -> str | None:
        # `param` is a parameter value, or None for a literal. The result is None if no SQL with an explicit type is
        # needed.
        literal = _literal_of_node(node) if param is None else parameters.parameter_to_literal(param)
        if literal is None:
            return None
        kind, is_number = field.type, literal.kind == "number"
        try:
            value = (
                literals.convert_literal(literal, kind) if param is None else parameters.convert_parameter(param, kind)
            )
        except OverflowError:  # outside Python's date range, but within DuckDB's
            return None
        except ValueError as problem:
            is_numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
            if is_number and is_numeric or pa.types.is_nested(kind) or pa.types.is_duration(kind):
                return None  # numbers are compared by value, even if the column's type cannot represent them
            written = as_text(literal.text) if literal.kind == "text" else literal.text
            if param is not None:
                written = f"${node['identifier']} = {printable(param)}"
            raise self._error_at_node(
                node, f"Column {field.name} of type {kind} is compared with {written[:60]}, which {problem}"
            ) from None
        return None if is_number and not pa.types.is_floating(kind) else literals.format_sql_constant(value, kind)

    def _add_row_prefix(self, node: dict[str, Any], name: str) -> str:
        # Unknown names are returned unchanged.
        meant = [column_name for column_name in self._names if column_name.partition(".")[2] == name]
        if len(meant) > 1:
            raise self._error_at_node(node, f"{printable(name)} is ambiguous: write {' or '.join(meant)}")
        return meant[0] if meant else name

    def _current_time(self, name: str) -> dict[str, Any]:
        return _parse_generated_sql(_TIME_FUNCTIONS[name].format(self._now))

    def _require_scalar_function(self, node: dict[str, Any], name: str) -> None:
        kinds = duckdb_engine.catalog().get(name, frozenset())
        if node.get("schema") or node.get("catalog"):
            raise self._error_at_node(node, f"The function {printable(name)} has a schema prefix; leave out the prefix")
        if kinds and not kinds & {("scalar", "CONSISTENT"), ("macro", None)}:
            is_volatile = {("scalar", "VOLATILE"), ("scalar", "CONSISTENT_WITHIN_QUERY")} & kinds
            behaviour = "returns a different value in each call" if is_volatile else "does not return one value per row"
            raise self._error_at_node(node, f"The function {printable(name)} {behaviour}")
        if ("scalar", "VOLATILE") in kinds:
            raise self._error_at_node(node, f"The function {printable(name)} returns a different value in each call")

    def _error_at_node(self, node: dict[str, Any], why: str, instead: str = "") -> ExpressionError:
        # `instead` is the corrected text.
        at = node.get("query_location", 0) - len(_PREFIX)
        stop = "" if instead or why.endswith(("?", ".")) else "."
        return ExpressionError(
            f"Cannot read {self._option}: {why}{stop}\n{_mark_position(self._text, at)}",
            option=self._option,
            expression=self._text[:1000],
            **({"instead": instead} if instead else {}),
        )


def _comparison_operands(node: Mapping[str, Any]) -> dict[str, Any]:
    form, kind = node.get("class"), node.get("type")
    if form == "COMPARISON":
        return {name: node[name] for name in ("left", "right")}
    if form == "BETWEEN":
        return {name: node[name] for name in ("input", "lower", "upper")}
    if form == "OPERATOR" and kind in ("COMPARE_IN", "COMPARE_NOT_IN"):
        return {"children": node["children"]}
    return {}


def _first_column_references(node: Any) -> Iterator[dict[str, Any]]:
    # A string without quotes, such as `new-york`, is parsed as a subtraction. Its first name is `new`.
    if node.get("class") == "COLUMN_REF":
        yield node
    elif node.get("class") == "FUNCTION" and node["function_name"] in ("-", "/", "+", "%") and _operands(node):
        yield from _first_column_references(_operands(node)[0])


def _literal_of_node(node: Any) -> literals.LiteralText | None:
    if not isinstance(node, dict) or node.get("class") != "CONSTANT":
        return None
    if literal := node.get("literal"):  # DuckDB 2
        kind = _LITERALS.get(literal["kind"])
        return None if kind is None else literals.LiteralText(kind, str(literal["text"]))
    written = syntax_tree_to_sql(node)
    if written[:1] == "'":
        return literals.LiteralText("text", written[1:-1].replace("''", "'"))
    if written.lower() in ("true", "false"):
        return literals.LiteralText("boolean", written.lower())
    return literals.LiteralText("number", written) if _NUMBER.fullmatch(written) else None


def _has_other_clauses(node: Mapping[str, Any]) -> bool:
    clauses = ("where_clause", "group_expressions", "group_sets", "having", "sample", "qualify", "modifiers")
    return bool(node["from_table"]["type"] != "EMPTY" or any(node.get(part) for part in clauses) or _has_ctes(node))


def _has_ctes(node: Mapping[str, Any]) -> bool:
    return bool(node.get("cte_map", {}).get("map"))


def _operands(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    # For some nodes, DuckDB stores each operand together with a name.
    operands = node.get("children") or node.get("arguments") or []
    return [child.get("expression", child) for child in operands]


def _column_references(node: Any) -> Iterator[list[str]]:
    # On the left side of a lambda, the references are its parameters.
    if isinstance(node, list):
        for part in node:
            yield from _column_references(part)
    elif isinstance(node, dict):
        if node.get("class") == "COLUMN_REF":
            yield node["column_names"]
        for part in node.values():
            yield from _column_references(part)


def _parse_generated_sql(sql: str) -> dict[str, Any]:
    # The SQL text comes from hoodoo, not from the user.
    tree = json.loads(duckdb_engine.ask("SELECT json_serialize_sql(?)", _PREFIX + sql))
    node: dict[str, Any] = tree["statements"][0]["node"]["select_list"][0]
    return node


def _mark_position(text: str, at: int) -> str:
    at = max(0, min(at, len(text)))
    begin = max(text.rfind("\n", 0, at) + 1, at - _SHOWN_CHARACTERS // 2)
    end = text.find("\n", at)
    shown = text[begin : len(text) if end < 0 else end][:_SHOWN_CHARACTERS]
    return f"    {shown}\n    {' ' * (at - begin)}^"


def _evaluate(expression: Expression, arguments: pa.Table) -> pa.ChunkedArray:
    import duckdb

    try:
        with duckdb_engine.cursor() as cursor:
            cursor.register("known", arguments)
            values = cursor.sql(f"SELECT {expression.sql} AS value FROM known").to_arrow_table()["value"]
    except duckdb.Error as problem:
        reason = str(problem).splitlines()[0].split(", or SET ")[0][:500].rstrip(".!")
        for index, name in expression.columns:
            reason = re.sub(rf"\bc{index}\b", name.replace("\\", r"\\"), reason)
        raise ExpressionError(
            f"Cannot evaluate {expression.option}: {reason}. The expression is {printable(expression.text)}.",
            option=expression.option,
            expression=expression.text[:1000],
        ) from None
    if len(values) != len(arguments):
        raise ExpressionError(
            f"{expression.option} returned {len(values)} values for {len(arguments)} rows: expected "
            "one value per row. Use only functions that return one value per row.",
            option=expression.option,
            expression=expression.text[:1000],
        )
    return values
