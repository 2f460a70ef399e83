"""Reading of hoodoo tables with Spark SQL.

Each hoodoo table in a statement becomes its own DataFrame. WHERE conditions that the scan evaluates like Spark are
pushed down. Spark evaluates all conditions again. All references to one path in a statement use the same snapshot.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from hoodoo.errors import PredicateError
from hoodoo.readers.predicate import text as grammar
from hoodoo.readers.predicate.tree import And, Compare, In, Not, Or, Predicate
from hoodoo.spark.sql_text import Node, Reference, Statement, insert_placeholders, parse_statement, references
from hoodoo.storage.store_of_path import open_store
from hoodoo.table import Table
from hoodoo.table import open as open_table
from hoodoo.table.used_folder import tables_in_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_named: weakref.WeakKeyDictionary[Any, dict[str, str]] = weakref.WeakKeyDictionary()
_UTC = ("UTC", "ETC/UTC", "GMT", "Z", "+00:00")


def get_named_tables(spark: SparkSession) -> dict[str, str]:
    """Return the paths of the session's named tables.

    The caller may add names to the dict.
    """
    return _named.setdefault(spark, {})


def get_referable_tables(spark: SparkSession, statement: Statement) -> dict[str, str]:
    """Return the paths of the tables that a statement may refer to by name.

    Tables and views of Spark hide tables in the folder of `hoodoo.use`.
    """
    named, words = get_named_tables(spark), {token.text.lower() for token in statement.tokens}
    if isinstance(statement.tree, exp.Create):  # a table that Spark creates may have the name of a folder
        created = statement.tree.this.this if isinstance(statement.tree.this, exp.Schema) else statement.tree.this
        words.discard(created.name.lower())
    found = {name: path for name, path in tables_in_folder().items() if name in words - named.keys()}
    return {name: path for name, path in found.items() if not spark.catalog.tableExists(name)} | named


def zone_of(spark: SparkSession) -> str:
    return str(spark.conf.get("spark.sql.session.timeZone"))


def is_utc(zone: str) -> bool:
    return zone.upper() in _UTC


def create_dataframe(spark: SparkSession, text: str) -> DataFrame:
    """Create a DataFrame from a Spark SQL query on hoodoo tables.

    Args:
        spark: The session.
        text: The query.
    """
    statement = parse_statement(text)
    return run_query(spark, statement, references(statement, get_referable_tables(spark, statement)))


def run_query(spark: SparkSession, statement: Statement, found: Sequence[Reference]) -> DataFrame:
    """Run a Spark SQL query on hoodoo tables.

    Args:
        spark: The session.
        statement: The statement.
        found: The references to hoodoo tables in the statement.

    Raises:
        TableNotFound: There is no table at a path.
        PositionError: The position in VERSION AS OF or TIMESTAMP AS OF is invalid.
    """
    if not found:
        return spark.sql(statement.text)
    planner = _Planner(spark)
    frames: dict[str, Any] = {f"hoodoo_{index}": planner.frame(one) for index, one in enumerate(found)}
    template = insert_placeholders(statement, found, lambda index: f"hoodoo_{index}")
    return spark.sql(template, **frames)


def refresh_temporary_views(spark: SparkSession, path: str) -> None:
    """Refresh the temporary views of a table.

    CREATE TABLE name ... LOCATION 'path' creates such a view.

    Args:
        spark: The session.
        path: The path of the table.
    """
    for name, location in get_named_tables(spark).items():
        if location == path or open_store(location).uri == open_store(path).uri:  # a path has several spellings
            open_table(path).scan().to_spark(spark).createOrReplaceTempView(name)


class _Planner:
    """Planner of the DataFrames of one statement.

    All references to one path use the same snapshot.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._tables = spark, dict[str, tuple[Table, str]]()
        self._in_utc: bool | None = None

    def frame(self, reference: Reference) -> DataFrame:
        if reference.path not in self._tables:
            table = open_table(reference.path)
            self._tables[reference.path] = table, str(table.cursor)
        table, head = self._tables[reference.path]
        scan = table.scan(as_of=reference.as_of or head)
        if where := self._where(reference, scan.schema):
            scan = table.scan(where=where, as_of=reference.as_of or head)
        return scan.to_spark(self._spark)

    def _where(self, reference: Reference, schema: pa.Schema) -> str:
        if reference.node is None:
            return ""
        if self._in_utc is None:
            self._in_utc = is_utc(zone_of(self._spark))
        return pushable_conditions(reference.node, schema, self._in_utc)


def pushable_conditions(node: Node, schema: pa.Schema, in_utc: bool) -> str:
    """Find the WHERE conditions that a scan can evaluate.

    They have the syntax of `where`. The scan may return more rows than Spark keeps, but never fewer.

    Args:
        node: The table in the syntax tree of the query.
        schema: The columns of the table.
        in_utc: True if the session's time zone is UTC. Spark and the scan then agree on times without a zone.
    """
    place = _Place.of(node)
    if place is None:
        return ""
    wanted = (_condition(part, place, schema, in_utc) for part in _conjuncts(place.where))
    return " AND ".join(f"({text})" for text in wanted if text)


@dataclass(frozen=True)
class _Place:
    """Table in a FROM clause.

    Attributes:
        alias: The name that qualifies the columns of the table, in lower case.
        alone: True if the query has a single table, so its column names need no qualifier.
        where: The WHERE condition of the query.
    """

    alias: str
    alone: bool
    where: Node

    @staticmethod
    def of(node: Node) -> _Place | None:
        within = node.parent
        select = within.parent if within is not None else None
        more = [name for name, value in node.args.items() if value and name not in ("this", "db", "alias", "version")]
        renames = node.args.get("alias") is not None and node.args["alias"].args.get("columns")
        if more or renames or not isinstance(select, exp.Select) or select.args.get("laterals"):
            return None
        where, joins = select.args.get("where"), select.args.get("joins") or []
        if where is None or select.args.get("pivots"):
            return None
        sides = {join.side.upper() for join in joins}
        first = isinstance(within, exp.From) and sides <= {"", "LEFT"}
        joined = isinstance(within, exp.Join) and sides <= {""} and within.kind.upper() in ("", "INNER", "CROSS")
        return _Place(node.alias_or_name.lower(), not joins, where.this) if first or joined else None


def _conjuncts(node: Node) -> Iterator[Node]:
    if isinstance(node, exp.Paren):
        yield from _conjuncts(node.this)
    elif isinstance(node, exp.And):
        yield from _conjuncts(node.this)
        yield from _conjuncts(node.expression)
    else:
        yield node


def _condition(node: Node, place: _Place, schema: pa.Schema, in_utc: bool) -> str:
    node = exp.Paren(this=node.copy())
    kinds = []
    for column in list(node.find_all(exp.Column)):
        parts = [part.name for part in column.parts]
        qualified = len(parts) == 2 and parts[0].lower() == place.alias
        if not (qualified or len(parts) == 1 and place.alone):
            return ""
        known = [name for name in schema.names if name.lower() == parts[-1].lower()]
        if len(known) != 1:
            return ""
        kinds.append(schema.field(known[0]).type)
        column.replace(exp.column(exp.to_identifier(known[0], quoted=True)))
    if not kinds or not _have_equal_meaning(node, kinds, in_utc):
        return ""
    text = str(node.this.sql())
    try:
        tree = grammar.parse_condition(text, schema)
    except PredicateError:
        return ""
    return text if _is_safe_to_push(tree) else ""


def _have_equal_meaning(node: Node, kinds: list[pa.DataType], in_utc: bool) -> bool:
    """Return whether literals have equal meanings in Spark and DuckDB.

    Spark compares a number with a string as floats, and interprets times without a zone in the session's time zone.
    """
    literals = list(node.find_all(exp.Literal))
    texts = [one for one in literals if one.is_string and not isinstance(one.parent, exp.Cast)]
    if any(one.is_string and "\\" in one.name for one in literals):
        return False
    if any(not one.is_string and "e" in one.name.lower() for one in literals):
        return False
    if texts and not all(pa.types.is_string(kind) or pa.types.is_temporal(kind) for kind in kinds):
        return False
    return in_utc or not any(pa.types.is_timestamp(kind) for kind in kinds)


def _is_safe_to_push(tree: Predicate) -> bool:
    """Return whether a condition is safe to push down.

    Spark sorts NaN above all numbers.
    """
    match tree:
        case Compare():
            return not pa.types.is_floating(tree.type) or pa.types.is_float64(tree.type) and tree.op in ("=", "<", "<=")
        case In():
            return not pa.types.is_floating(tree.type) or pa.types.is_float64(tree.type)
        case And(parts=(Compare(op=">=") as low, Compare(op="<=") as high)) if low.column == high.column:
            return not pa.types.is_floating(low.type) or pa.types.is_float64(low.type)
        case And() | Or():
            return all(map(_is_safe_to_push, tree.parts))
        case Not():
            return not _has_floats(tree)
    return True


def _has_floats(tree: Predicate) -> bool:
    match tree:
        case Compare() | In():
            return bool(pa.types.is_floating(tree.type))
        case And() | Or():
            return any(map(_has_floats, tree.parts))
        case Not():
            return _has_floats(tree.part)
    return False
