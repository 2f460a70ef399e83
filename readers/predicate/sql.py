"""SQL expressions over the columns of a table, which DuckDB evaluates on Arrow tables (extra `hoodoo[sql]`).

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
from hoodoo.nearest import by_likeness, hint, listed, nearest
from hoodoo.readers.predicate import duckdb_engine, literals, parameters
from hoodoo.readers.predicate.quoting import as_text, in_quotes, no_column_but_text, with_quotes, written_in_quotes
from hoodoo.redact import printable

TEXT_CAP = 1 << 20
"""Maximum number of characters of one expression."""
_LINE = 100  # maximum length of the text shown in an error
_PREFIX = "SELECT "
_NUMBER = re.compile(r"-?[\d.]+(?:[eE][+-]?\d+)?")
_DATE = re.compile(r"(?<![\w'\"-])\d{4}-\d\d?-\d\d?(?![\w'\"-])")  # a date without quotes
_LITERALS: dict[str, literals.Kind] = {"STRING": "text", "INTEGER": "number", "NUMERIC": "number", "BOOLEAN": "boolean"}
_LIKES = frozenset(("~~", "!~~", "~~*", "!~~*"))
_FORMS = frozenset(
    ("BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "LAMBDA")
    + ("OPERATOR", "TYPE")
)
_REFUSED = {
    "SUBQUERY": "a subquery, but an expression can use only one row",
    "WINDOW": "a window function, but an expression can use only one row",
    "STAR": "a star; name the columns",
    "PARAMETER": "a parameter without a value; write the value",
    "POSITIONAL_REFERENCE": "a column by number; name it",
}
_TIMES = {
    "now": "CAST('{0:%Y-%m-%d %H:%M:%S.%f}+00' AS TIMESTAMPTZ)",
    "localtimestamp": "CAST('{0:%Y-%m-%d %H:%M:%S.%f}' AS TIMESTAMP)",
    "current_date": "CAST('{0:%Y-%m-%d}' AS DATE)",
    "localtime": "CAST('{0:%H:%M:%S.%f}' AS TIME)",
}
_TIMES |= dict.fromkeys(("current_timestamp", "get_current_timestamp", "transaction_timestamp"), _TIMES["now"])
_TIMES |= {"today": _TIMES["current_date"]} | dict.fromkeys(("current_time", "get_current_time"), _TIMES["localtime"])
"""SQL constants for functions that return the current time.

The constant is the time of the call in UTC. All rows and all retries of a call therefore use the same time.

"""


@dataclass(frozen=True)
class Expression:
    """Validated SQL expression, which can be evaluated on Arrow tables.

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
        """The column name if the expression consists only of a column, or None for any other expression."""
        ((index, name),) = self.columns if len(self.columns) == 1 else ((-1, None),)
        return name if self.sql == f"c{index}" else None

    def values(self, rows: pa.Table) -> pa.ChunkedArray:
        """Evaluate the SQL expression for each row of `rows`.

        Raises:
            ExpressionError: The expression cannot be evaluated, for example because a string is not a number.
        """
        if self.columns:
            arguments = pa.table(
                [rows[name] for _, name in self.columns], names=[f"c{index}" for index, _ in self.columns]
            )
            return _evaluated(self, arguments)
        single = _evaluated(self, pa.table([pa.nulls(min(1, len(rows)))], names=["c"]))
        return single.take(pa.array(np.zeros(len(rows), np.int64)))


def read(text: str, schema: pa.Schema, now: dt.datetime, option: str) -> Expression:
    """Parse an SQL expression, and validate that it only uses one row and known columns.

    Args:
        text: The expression, in DuckDB's SQL.
        schema: The columns that the expression may use. If the expression sees two rows, each column name has the name
            of its row as a prefix, such as "source.fare". The prefix is optional if only one row has the column.
        now: The time that `now()` and similar functions return, in UTC.
        option: The name of the argument, for errors.

    Raises:
        ExpressionError: The expression cannot be parsed, does not match the columns, or is not an expression over one
            row.
        EngineError: DuckDB is not installed.
    """
    return expression_of(parsed(text, option, schema.names), text, schema, now, option)


def parsed(text: str, option: str, names: Sequence[str] = ()) -> dict[str, Any]:
    """Parse an SQL expression with DuckDB, and return its syntax tree. Raises the errors of `read`.

    `names` are column names. A column whose name is an SQL keyword, such as `at`, may be written without quotes if
    quotes around the column names make the expression valid.
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
    tree = _tree(text)
    if tree["error"] and (quoted := with_quotes(text, names)) != text:
        quoted_tree = _tree(quoted)
        tree = tree if quoted_tree["error"] else quoted_tree
    if tree["error"]:
        position, reason = int(tree.get("position") or len(_PREFIX)) - len(_PREFIX), tree["error_message"].rstrip(".!")
        if "expression depth" in reason:
            reason = f"It has more than {duckdb_engine.DEPTH_MAX} nested levels"
        raise ExpressionError(
            f"Cannot read {option}: {reason}.\n{_marked(text, position)}",
            option=option,
            expression=text[:1000],
        )
    node = tree["statements"][0]["node"] if len(tree["statements"]) == 1 else {}
    is_single = node.get("type") == "SELECT_NODE" and len(node["select_list"]) == 1 and not _goes_on(node)
    if not is_single or node["select_list"][0].get("alias"):
        raise ExpressionError(
            f"{option} is invalid: expected a single SQL expression, got {printable(text)}.", option=option
        )
    expression: dict[str, Any] = node["select_list"][0]
    return expression


def _tree(text: str) -> dict[str, Any]:
    try:
        tree: dict[str, Any] = json.loads(duckdb_engine.ask("SELECT json_serialize_sql(?)", _PREFIX + text))
    except RecursionError:
        return {"error": True, "error_message": "expression depth"}
    return tree


def conjuncts(node: dict[str, Any]) -> list[dict[str, Any]]:
    """Split an SQL condition at its top-level ANDs, and return the syntax tree of each part."""
    if node["class"] == "CONJUNCTION" and node["type"] == "CONJUNCTION_AND":
        return [part for child in _children(node) for part in conjuncts(child)]
    return [node]


def all_of(nodes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Join SQL conditions with AND into one syntax tree."""
    if len(nodes) == 1:
        return nodes[0]
    return _node(" AND ".join(f"({sql_of(node)})" for node in nodes))


def sql_of(node: dict[str, Any]) -> str:
    """Convert a syntax tree back to SQL text."""
    tree = json.loads(duckdb_engine.ask("SELECT json_serialize_sql(?)", _PREFIX + "1"))
    tree["statements"][0]["node"]["select_list"] = [node]
    return duckdb_engine.ask("SELECT json_deserialize_sql(?)", json.dumps(tree)).removeprefix(_PREFIX)


def with_lists(node: Any, params: Mapping[str, Any]) -> Any:
    """Replace `x IN $name` by `x IN ($name)` in a syntax tree, for parameters that are lists.

    DuckDB parses `x IN $name` as `contains($name, x)`.
    """
    if isinstance(node, list):
        return [with_lists(part, params) for part in node]
    if not isinstance(node, dict):
        return node
    node = {key: with_lists(value, params) for key, value in node.items()}
    if node.get("class") != "FUNCTION" or node["function_name"] != "contains" or len(_children(node)) != 2:
        return node
    values, operand = _children(node)
    if values.get("class") != "PARAMETER" or not isinstance(params.get(values["identifier"]), tuple):
        return node
    shared = {key: node[key] for key in ("alias", "query_location", "query_location_length") if key in node}
    return {"class": "OPERATOR", "type": "COMPARE_IN", **shared, "children": [operand, values]}


def expression_of(
    node: dict[str, Any],
    text: str,
    schema: pa.Schema,
    now: dt.datetime,
    option: str,
    params: Mapping[str, Any] | None = None,
) -> Expression:
    """Validate the syntax tree of an SQL expression, and convert it to an Expression.

    `params` contains the parameter values from `checked_parameters`. The other arguments are as in `read`.

    """
    reader = _Reader(text, schema, now, option, params or {})
    sql = sql_of(reader.checked(node, frozenset()))
    columns = tuple(sorted(reader.columns.items()))
    untyped = Expression(text, option, sql, columns)
    result_type = untyped.values(schema.empty_table()).type
    return Expression(text, option, sql, columns, result_type)


class _Reader:
    """Validator that checks that an SQL expression uses only one row, and replaces its column names by indexes."""

    def __init__(self, text: str, schema: pa.Schema, now: dt.datetime, option: str, params: Mapping[str, Any]) -> None:
        self._params = params
        self._text, self._names, self._now, self._option = text, schema.names, now, option
        self._schema = schema
        self.columns: dict[int, str] = {}

    def checked(self, node: Any, bound: frozenset[str]) -> Any:
        """Validate a syntax tree. Replace column names by indexes, and time functions and parameters by constants.

        `bound` contains the parameters of the enclosing lambdas.

        """
        if isinstance(node, list):
            return [self.checked(part, bound) for part in node]
        if not isinstance(node, dict):
            return node
        form = node.get("class")
        if form == "PARAMETER" and node["identifier"] in self._params:
            return _node(parameters.in_sql(self._parameter(node)))
        if form is not None and form not in _FORMS:
            raise self._refusal(node, f"It contains {_REFUSED.get(form, form.lower().replace('_', ' '))}")
        node = self._with_values(node)
        operands = _compared(node)
        if len(operands.get("children", ())) == 1:  # empty lists in parameters match no row, also not a null
            self.checked(operands["children"], bound)
            return _node("TRUE" if node["type"] == "COMPARE_NOT_IN" else "FALSE")
        if operands:
            node = {**node, **self._compared(operands, bound)}
        if form == "LAMBDA":
            bound |= {names[-1] for names in _references(node["lhs"])}
        elif form == "COLUMN_REF":
            return self._column(node, bound)
        elif form == "FUNCTION":
            name = node["function_name"].lower()
            if name in _TIMES and not _children(node):
                return self._moment(name)
            self._require_plain(node, name)
            if name in _LIKES:
                self._refuse_bare_text(_children(node), bound)
        return {key: self.checked(value, bound) for key, value in node.items()}

    def _column(self, node: dict[str, Any], bound: frozenset[str]) -> dict[str, Any]:
        name, *fields = node["column_names"]
        if name in bound:
            return node
        name, fields = self._named(node)
        if name in self._names:
            index = self._names.index(name)
            self.columns[index] = name
            return {**node, "column_names": [f"c{index}", *fields]}
        if name.lower() in _TIMES and not fields:
            return self._moment(name.lower())
        raise self._no_column(node)

    def _named(self, node: dict[str, Any]) -> tuple[str, list[str]]:
        """Split a reference such as `a.b.c` into the name of a column and the names of the struct fields in it.

        An unknown name is returned unchanged.

        """
        name, *fields = node["column_names"]
        if fields and f"{name}.{fields[0]}" in self._names:
            return f"{name}.{fields[0]}", fields[1:]
        return name if name in self._names else self._meant(node, name), fields

    def _no_column(self, node: dict[str, Any]) -> ExpressionError:
        """Create the error for an SQL expression that refers to an unknown column."""
        name, *fields = node["column_names"]
        side_columns = [known for known in self._names if fields and known.startswith(f"{name}.")]
        if side_columns:  # one of two rows
            full_name, columns = f"{name}.{fields[0]}", [known.partition(".")[2] for known in side_columns]
            suggestion = nearest(fields[0], columns)
            shown = listed(f"{name}.{known}" for known in by_likeness(fields[0], columns))
            advice = f"did you mean {name}.{suggestion}? There" if suggestion else "there"
            return self._refusal(node, f"There is no column {printable(full_name)}; {advice} are {shown}")
        full_name = ".".join(node["column_names"])
        return self._refusal(node, f"There is no column {printable(full_name)}; {hint(full_name, self._names)}")

    def _compared(self, operands: Mapping[str, Any], bound: frozenset[str]) -> dict[str, Any]:
        """Convert the literals of a comparison to the type of the compared column, and return all operands."""
        nodes = [operand for value in operands.values() for operand in (value if isinstance(value, list) else [value])]
        field = self._refuse_bare_text(nodes, bound)
        constants = {
            index: text for index, node in enumerate(nodes) if (text := self._constant(node, field)) is not None
        }
        if not constants:
            return {}
        typed = _children(_node(f"0 IN ({', '.join(constants.values())})"))[1:]
        for index, node in zip(constants, typed, strict=True):
            nodes[index] = node
        remaining = iter(nodes)
        return {
            name: [next(remaining) for _ in value] if isinstance(value, list) else next(remaining)
            for name, value in operands.items()
        }

    def _field(self, node: Any, bound: frozenset[str]) -> pa.Field | None:
        """Return the table column that a syntax tree node refers to, or None for any other node."""
        if not isinstance(node, dict) or node.get("class") != "COLUMN_REF" or node["column_names"][0] in bound:
            return None
        name, fields = self._named(node)
        return None if fields or name not in self._names else self._schema.field(self._names.index(name))

    def _refuse_bare_text(self, nodes: Sequence[Any], bound: frozenset[str]) -> pa.Field | None:
        """Return the column that a comparison refers to, or None. Raises ExpressionError for a string without quotes.

        Without quotes, a string looks like an unknown column name, and a date looks like a subtraction.
        """
        field = next((match for node in nodes if (match := self._field(node, bound)) is not None), None)
        if field is not None and not written_in_quotes(field.type):
            return field
        if field is None and nodes[0].get("class") == "COLUMN_REF":
            return field  # a struct field or an unknown column, which is reported elsewhere
        for node in nodes:
            if unknown := next((name for name in _first_names(node) if self._is_unknown(name, bound)), None):
                instead = in_quotes(self._text, unknown.get("query_location", 0) - len(_PREFIX))
                reason = no_column_but_text(".".join(unknown["column_names"]), self._names, instead)
                raise self._refusal(unknown, reason, instead)
            is_number = node.get("class") == "FUNCTION" and node["function_name"] == "-" and not any(_references(node))
            if field is not None and is_number and (match := _DATE.search(self._text)):
                instead = in_quotes(self._text, match.start())
                reason = f"{match[0]} is a subtraction of numbers; put dates in single quotes: {instead}"
                raise self._refusal(node, reason, instead)
        return field

    def _is_unknown(self, node: dict[str, Any], bound: frozenset[str]) -> bool:
        """Return whether a name in an SQL expression is neither a column, a lambda parameter nor a time function.

        A reference to a column of one of two rows, such as `source.fare`, counts as known.

        """
        first, *fields = node["column_names"]
        is_row_column = fields and any(is_known.startswith(f"{first}.") for is_known in self._names)
        is_known = first in bound or self._named(node)[0] in self._names or first.lower() in _TIMES
        return not (is_known or is_row_column)

    def _with_values(self, node: dict[str, Any]) -> dict[str, Any]:
        """Replace each list parameter of an IN list by one node for each value."""
        if node.get("class") != "OPERATOR" or node["type"] not in ("COMPARE_IN", "COMPARE_NOT_IN"):
            return node
        children = node["children"][:1]
        for child in node["children"][1:]:
            values = self._params.get(child["identifier"]) if child.get("class") == "PARAMETER" else None
            indexes = range(len(values)) if isinstance(values, tuple) else None
            children += [child] if indexes is None else [{**child, "index": index} for index in indexes]
        return {**node, "children": children}

    def _parameter(self, node: dict[str, Any]) -> Any:
        """Return the value of a parameter, or of the element at `index` of a list parameter."""
        value = self._params[node["identifier"]]
        if "index" in node:
            return value[node["index"]]
        if isinstance(value, tuple):
            raise self._refusal(node, f"Parameter ${node['identifier']} is a list, which only IN accepts")
        return value

    def _constant(self, node: Any, field: pa.Field | None) -> str | None:
        """Return a literal as SQL with an explicit type, or None if DuckDB and `where` read the literal alike.

        A parameter is always converted. Returns None for all nodes that are neither literals nor parameters. Raises
        ExpressionError for a literal that cannot be converted to the type of the column `field`.

        """
        if node.get("class") == "PARAMETER" and node["identifier"] in self._params:
            value = self._parameter(node)
            typed = None if value is None or field is None else self._typed(node, value, field)
            return typed or parameters.in_sql(value)
        return None if field is None else self._typed(node, None, field)

    def _typed(self, node: Any, param: Any, field: pa.Field) -> str | None:
        """Return a literal, or a parameter value, as SQL of the column's type. None if no such SQL is needed."""
        literal = _literal_of(node) if param is None else parameters.literal_of(param)
        if literal is None:
            return None
        kind, is_number = field.type, literal.kind == "number"
        try:
            value = literals.convert(literal, kind) if param is None else parameters.convert(param, kind)
        except OverflowError:  # outside Python's date range, but within DuckDB's
            return None
        except ValueError as problem:
            is_numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
            if is_number and is_numeric or pa.types.is_nested(kind) or pa.types.is_duration(kind):
                return None  # numbers are compared by value, even if the column's type cannot represent them
            written = as_text(literal.text) if literal.kind == "text" else literal.text
            if param is not None:
                written = f"${node['identifier']} = {printable(param)}"
            raise self._refusal(
                node, f"Column {field.name} of type {kind} is compared with {written[:60]}, which {problem}"
            ) from None
        return None if is_number and not pa.types.is_floating(kind) else literals.in_sql(value, kind)

    def _meant(self, node: dict[str, Any], name: str) -> str:
        """Return the column for a name without `source.` or `target.` prefix. Unknown names are returned unchanged."""
        meant = [column_name for column_name in self._names if column_name.partition(".")[2] == name]
        if len(meant) > 1:
            raise self._refusal(node, f"{printable(name)} is ambiguous: write {' or '.join(meant)}")
        return meant[0] if meant else name

    def _moment(self, name: str) -> dict[str, Any]:
        return _node(_TIMES[name].format(self._now))

    def _require_plain(self, node: dict[str, Any], name: str) -> None:
        kinds = duckdb_engine.catalog().get(name, frozenset())
        if node.get("schema") or node.get("catalog"):
            raise self._refusal(node, f"The function {printable(name)} has a schema prefix; leave out the prefix")
        if kinds and not kinds & {("scalar", "CONSISTENT"), ("macro", None)}:
            is_volatile = {("scalar", "VOLATILE"), ("scalar", "CONSISTENT_WITHIN_QUERY")} & kinds
            behaviour = "returns a different value in each call" if is_volatile else "does not return one value per row"
            raise self._refusal(node, f"The function {printable(name)} {behaviour}")
        if ("scalar", "VOLATILE") in kinds:
            raise self._refusal(node, f"The function {printable(name)} returns a different value in each call")

    def _refusal(self, node: dict[str, Any], why: str, instead: str = "") -> ExpressionError:
        """Create an ExpressionError that marks the position of a syntax tree node in the expression.

        `instead` is the corrected text.
        """
        at = node.get("query_location", 0) - len(_PREFIX)
        stop = "" if instead or why.endswith(("?", ".")) else "."
        return ExpressionError(
            f"Cannot read {self._option}: {why}{stop}\n{_marked(self._text, at)}",
            option=self._option,
            expression=self._text[:1000],
            **({"instead": instead} if instead else {}),
        )


def _compared(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the operands of a comparison by their names in DuckDB's syntax tree, or {} for any other node."""
    form, kind = node.get("class"), node.get("type")
    if form == "COMPARISON":
        return {name: node[name] for name in ("left", "right")}
    if form == "BETWEEN":
        return {name: node[name] for name in ("input", "lower", "upper")}
    if form == "OPERATOR" and kind in ("COMPARE_IN", "COMPARE_NOT_IN"):
        return {"children": node["children"]}
    return {}


def _first_names(node: Any) -> Iterator[dict[str, Any]]:
    """Yield the first name in a string without quotes, such as `new` in `new-york`, which parses as a subtraction."""
    if node.get("class") == "COLUMN_REF":
        yield node
    elif node.get("class") == "FUNCTION" and node["function_name"] in ("-", "/", "+", "%") and _children(node):
        yield from _first_names(_children(node)[0])


def _literal_of(node: Any) -> literals.LiteralText | None:
    """Return the literal of a syntax tree node, or None for null and for any other node."""
    if not isinstance(node, dict) or node.get("class") != "CONSTANT":
        return None
    if literal := node.get("literal"):  # DuckDB 2
        kind = _LITERALS.get(literal["kind"])
        return None if kind is None else literals.LiteralText(kind, str(literal["text"]))
    written = sql_of(node)
    if written[:1] == "'":
        return literals.LiteralText("text", written[1:-1].replace("''", "'"))
    if written.lower() in ("true", "false"):
        return literals.LiteralText("boolean", written.lower())
    return literals.LiteralText("number", written) if _NUMBER.fullmatch(written) else None


def _goes_on(node: Mapping[str, Any]) -> bool:
    """Return whether a SELECT has clauses besides its list of expressions, such as FROM or WHERE."""
    clauses = ("where_clause", "group_expressions", "group_sets", "having", "sample", "qualify", "modifiers")
    return bool(node["from_table"]["type"] != "EMPTY" or any(node.get(part) for part in clauses) or _ctes(node))


def _ctes(node: Mapping[str, Any]) -> bool:
    return bool(node.get("cte_map", {}).get("map"))


def _children(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the operands of a syntax tree node. For some nodes, DuckDB stores each operand together with a name."""
    operands = node.get("children") or node.get("arguments") or []
    return [child.get("expression", child) for child in operands]


def _references(node: Any) -> Iterator[list[str]]:
    """Yield the name parts of each column reference in a syntax tree.

    On the left side of a lambda, these are its parameters.
    """
    if isinstance(node, list):
        for part in node:
            yield from _references(part)
    elif isinstance(node, dict):
        if node.get("class") == "COLUMN_REF":
            yield node["column_names"]
        for part in node.values():
            yield from _references(part)


def _node(sql: str) -> dict[str, Any]:
    """Parse SQL text that hoodoo generated, and return its syntax tree."""
    tree = json.loads(duckdb_engine.ask("SELECT json_serialize_sql(?)", _PREFIX + sql))
    node: dict[str, Any] = tree["statements"][0]["node"]["select_list"][0]
    return node


def _marked(text: str, at: int) -> str:
    """Return the line of an expression around the character `at`, with a mark below that character."""
    at = max(0, min(at, len(text)))
    begin = max(text.rfind("\n", 0, at) + 1, at - _LINE // 2)
    end = text.find("\n", at)
    shown = text[begin : len(text) if end < 0 else end][:_LINE]
    return f"    {shown}\n    {' ' * (at - begin)}^"


def _evaluated(expression: Expression, arguments: pa.Table) -> pa.ChunkedArray:
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
