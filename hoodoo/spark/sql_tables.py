"""Spark SQL statements that create, change or describe tables.

Spark itself parses types and defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from hoodoo.engine.spark_types import arrow_schema_of, type_to_spark_ddl
from hoodoo.errors import OptionError, SchemaError, TableNotFound
from hoodoo.format.transforms import Transform, transform_of
from hoodoo.redact import printable
from hoodoo.spark.sql_reading import create_dataframe
from hoodoo.spark.sql_text import Node, Statement, unparsable_sql, unsupported_sql
from hoodoo.spark.sql_writes import Target
from hoodoo.table import Table
from hoodoo.table import open as open_table
from hoodoo.table.creating import create
from hoodoo.table.used_folder import folder_in_use
from hoodoo.timeline.columns.alterations import (
    AddColumn,
    Alteration,
    DropColumn,
    MakeNullable,
    MoveColumn,
    RenameColumn,
    WidenColumn,
)
from hoodoo.timeline.columns.no_default import NO_DEFAULT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LISTS = ("key", "partition_by", "order_by")
_TRANSFORM = re.compile(r"(YEAR|MONTH|DAY|HOUR|BUCKET|TRUNCATE)S?\((?:(\d+), )?`?(\w+)`?\)")
"""Pattern of a transform in the Spark SQL that sqlglot generates."""
_KNOWN = (
    "ADD COLUMNS, DROP COLUMN, RENAME COLUMN, ALTER COLUMN ... TYPE / FIRST / AFTER / DROP NOT NULL, SET TBLPROPERTIES"
)


def convert_sql_type(spark: SparkSession, kind: Node) -> pa.DataType:
    """Convert a Spark SQL type to an Arrow type.

    Args:
        spark: The session, which parses the type.
        kind: The type in the syntax tree.

    Raises:
        SchemaError: Tables do not support the type.
    """
    return arrow_schema_of(spark.sql(f"SELECT CAST(NULL AS {kind.sql('spark')}) AS c").schema).field("c").type


def find_query_start(statement: Statement) -> int:
    """Find the last token before the query of CREATE TABLE."""
    words = statement.names("AS") or [index - 1 for index in statement.names("SELECT")]
    if not words:
        raise unparsable_sql(statement)
    return words[0]


# ---- CREATE TABLE
def create_table(spark: SparkSession, statement: Statement, path: str | None) -> tuple[Table, str, str]:
    """Run a CREATE TABLE statement.

    Args:
        spark: The session.
        statement: The statement.
        path: The path in hoodoo.`path`. None: the statement has a name and a LOCATION.

    Returns:
        The table, its path, and its name in the session, or '' without a name.

    Raises:
        OptionError: The statement has an unsupported clause, or does not have exactly one location.
        SchemaError: Tables do not support a column.
        TableExists: The table exists, and the statement lacks IF NOT EXISTS.
    """
    tree = statement.tree
    declared, primary_key = _split_primary_key(tree)
    node = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    if tree.args.get("replace"):
        raise unsupported_sql(
            "CREATE OR REPLACE TABLE", "Delete the folder of the old table first, or write to the table."
        )
    location, given = _convert_clauses(tree)
    if primary_key and given.setdefault("key", ",".join(primary_key)) != ",".join(primary_key):
        raise OptionError(
            f"CREATE TABLE has two keys: PRIMARY KEY ({', '.join(primary_key)}) and the table property key "
            f"{printable(given['key'])}. Leave out one of them.",
            option="key",
        )
    name = "" if path else node.name
    if not path and not location and (folder := folder_in_use()):
        location = f"{folder}/{node.name}"
    if bool(path) == bool(location) or node.db and not path:
        raise OptionError(
            "The location of the table is missing or given twice. Write CREATE TABLE hoodoo.`path` (...), or "
            "CREATE TABLE name (...) USING hoodoo LOCATION 'path', which also creates a temporary view with "
            "that name. After hoodoo.use(folder), LOCATION can be left out.",
            option="path",
        )
    place = path or location
    if tree.args.get("exists"):
        try:
            return open_table(place), place, name
        except TableNotFound:
            pass
    frame = _query_of(spark, statement)
    if frame is None and not declared:
        raise OptionError("CREATE TABLE needs columns: CREATE TABLE hoodoo.`path` (id bigint, ...).", option="schema")
    schema = pa.schema(list(_fields(spark, declared))) if frame is None else arrow_schema_of(frame.schema)
    if "key" not in given:
        raise OptionError(
            "CREATE TABLE needs a key: PRIMARY KEY (id) after the columns, or TBLPROPERTIES ('key' = 'id').",
            option="key",
        )
    named = [one for one in _LISTS if isinstance(given.get(one), str)]
    lists = {one: [part.strip() for part in given[one].split(",")] for one in named}
    table = create(place, schema, **(given | lists))
    if frame is not None:
        table.insert(frame, duplicates="fail")
    return table, place, name


def _split_primary_key(tree: Node) -> tuple[list[Node], list[str]]:
    """Separate the columns of CREATE TABLE from its primary key."""
    columns, key = list[Node](), list[str]()
    for node in tree.this.expressions if isinstance(tree.this, exp.Schema) else []:
        constraints = node.expressions if isinstance(node, exp.Constraint) else [node]
        if all(isinstance(one, exp.PrimaryKey) for one in constraints):
            key += [column.name for one in constraints for column in one.expressions]
            continue
        columns.append(node)
        if any(
            isinstance(one.args["kind"], exp.PrimaryKeyColumnConstraint) for one in node.args.get("constraints") or []
        ):
            key.append(node.name)
    return columns, key


def _query_of(spark: SparkSession, statement: Statement) -> Any:
    if not statement.tree.args.get("expression"):
        return None
    return create_dataframe(spark, statement.after(find_query_start(statement)))


def _fields(spark: SparkSession, declared: list[Node]) -> Iterator[pa.Field]:
    for node in declared:
        if not isinstance(node, exp.ColumnDef) or node.args.get("kind") is None:
            raise unsupported_sql(
                printable(node.sql("spark")), "A column needs a name, a type and optionally NOT NULL."
            )
        kinds = [one.args["kind"] for one in node.args.get("constraints") or []]
        required = any(isinstance(kind, exp.NotNullColumnConstraint) for kind in kinds)
        for kind in kinds:
            if isinstance(kind, exp.PrimaryKeyColumnConstraint):
                continue
            if not isinstance(kind, exp.NotNullColumnConstraint) or kind.args.get("allow_null"):
                raise unsupported_sql(
                    f"{printable(kind.sql('spark'))} of column {node.name}",
                    "CREATE TABLE accepts names, types, NOT NULL and PRIMARY KEY. ALTER TABLE ... ADD COLUMN also "
                    "accepts a DEFAULT.",
                )
        yield pa.field(node.name, convert_sql_type(spark, node.args["kind"]), not required)


def _convert_clauses(tree: Node) -> tuple[str, dict[str, Any]]:
    """Convert the clauses of CREATE TABLE to arguments."""
    location, found = "", dict[str, Any]()
    for one in tree.args["properties"].expressions if tree.args.get("properties") else []:
        if isinstance(one, exp.LocationProperty):
            location = one.this.name
        elif isinstance(one, exp.PartitionedByProperty):
            found["partition_by"] = [_column_or_transform(part) for part in one.this.expressions]
        elif isinstance(one, exp.FileFormatProperty):
            if one.this.name.lower() != "hoodoo":
                raise OptionError(
                    f"A table at hoodoo.`path` must be USING hoodoo, got {one.this.name}.", option="using"
                )
        elif type(one) is exp.Property:
            found |= _table_property(one)
        else:
            raise unsupported_sql(
                f"{printable(one.sql('spark'))} of CREATE TABLE",
                "Use columns, USING hoodoo, LOCATION, PARTITIONED BY and TBLPROPERTIES.",
            )
    return location, found


def _column_or_transform(node: Node) -> str | Transform:
    if isinstance(node, (exp.Identifier, exp.Column)):
        return str(node.name)
    text = node.sql("spark")
    if (said := _TRANSFORM.fullmatch(text)) is None:
        raise unsupported_sql(
            f"PARTITIONED BY {printable(text)}",
            "Use columns, years(c), months(c), days(c), hours(c), bucket(n, c) and truncate(n, c).",
        )
    number = f"{said[2]}, " if said[2] else ""
    return transform_of(f"{said[1].lower()}({number}{said[3]})")


def _table_property(node: Node) -> dict[str, str]:
    name = ".".join(_parts(node.this))
    return {name.removeprefix("hoodoo."): node.args["value"].name}


# ---- ALTER TABLE
def alter_table(spark: SparkSession, statement: Statement, target: Target, rewrite: bool) -> Any:
    """Run an ALTER TABLE statement.

    Args:
        spark: The session.
        statement: The statement.
        target: The table.
        rewrite: True allows rewriting base files.

    Returns:
        The result of `Table.alter`, or None if the statement sets properties.

    Raises:
        OptionError: The statement has an unsupported clause.
        HoodooError: Any error that `Table.alter` or `Table.set_options` raises.
    """
    actions = statement.tree.args["actions"]
    settings = [one for one in actions if isinstance(one, exp.AlterSet)]
    if settings:
        given: dict[str, str] = {}
        for one in settings:
            listed = [part for held in one.expressions for part in getattr(held, "expressions", [])]
            if not listed or not all(type(part) is exp.Property for part in listed):
                raise _unknown(one)
            for part in listed:
                given |= _table_property(part)
        target.table.set_options(**given)
        return None
    schema = target.table.schema
    return target.table.alter([one for node in actions for one in _alterations(spark, node, schema)], rewrite=rewrite)


def move_column(statement: Statement, target: Target) -> Any:
    """Run an ALTER TABLE statement that moves a column.

    Args:
        statement: The statement.
        target: The table.

    Raises:
        OptionError: The statement has any other form.
        HoodooError: Any error that `Table.alter` raises.
    """
    rest = list(statement.tokens[target.last + 1 :])
    words = [token.text.upper() for token in rest]
    if words[:1] in (["ALTER"], ["CHANGE"]):
        at = 2 if words[1:2] == ["COLUMN"] else 1
        if words[at + 1 :] == ["FIRST"]:
            return target.table.alter([MoveColumn(_find_column(rest[at].text, target.table.schema), None, True)])
        if words[at + 1 : at + 2] == ["AFTER"] and len(words) == at + 3:
            name, after = (_find_column(rest[index].text, target.table.schema) for index in (at, at + 2))
            return target.table.alter([MoveColumn(name, after, False)])
    raise unsupported_sql("this form of ALTER TABLE", f"Use {_KNOWN}.")


def _alterations(spark: SparkSession, node: Node, schema: pa.Schema) -> Iterator[Alteration]:
    if isinstance(node, exp.Schema):
        for part in node.expressions:
            yield from _alterations(spark, part, schema)
    elif isinstance(node, exp.ColumnDef) and not node.args.get("exists"):
        yield _added(spark, node, schema)
    elif isinstance(node, exp.Drop) and not node.args.get("exists") and str(node.args["kind"]).startswith("COLUMN"):
        for one in node.args["tables"]:
            for column in one.expressions if isinstance(one, exp.Schema) else [one]:
                yield DropColumn(_path(column, schema))
    elif isinstance(node, exp.RenameColumn) and not node.args.get("exists"):
        yield RenameColumn(_path(node.this, schema), ".".join(_parts(node.args["to"])))
    elif isinstance(node, exp.AlterColumn) and node.args.get("dtype"):
        yield WidenColumn(_path(node.this, schema), convert_sql_type(spark, node.args["dtype"]))
    elif isinstance(node, exp.AlterColumn) and node.args.get("drop") and node.args.get("allow_null"):
        yield MakeNullable(_path(node.this, schema))
    else:
        raise _unknown(node)


def _added(spark: SparkSession, node: Node, schema: pa.Schema) -> AddColumn:
    kind, default = convert_sql_type(spark, node.args["kind"]), NO_DEFAULT
    for one in node.args.get("constraints") or []:
        said = one.args["kind"]
        if not isinstance(said, exp.DefaultColumnConstraint):
            raise unsupported_sql(
                f"{printable(said.sql('spark'))} of a new column", "Use a name, a type, DEFAULT, FIRST and AFTER."
            )
        default = _constant(spark, said.this, kind)
    position = node.args.get("position")
    after = _path(position.this, schema) if position is not None and position.this is not None else None
    first = position is not None and str(position.args["position"]).upper() == "FIRST"
    return AddColumn(".".join(_parts(node.this)), kind, default, after, first)


def _constant(spark: SparkSession, node: Node, kind: pa.DataType) -> Any:
    frame = spark.sql(f"SELECT CAST({node.sql('spark')} AS {type_to_spark_ddl(kind)}) AS c")
    return frame.toArrow()["c"][0].as_py()


def _unknown(node: Node) -> OptionError:
    return unsupported_sql(f"{printable(node.sql('spark'))} of ALTER TABLE", f"Use {_KNOWN}.")


def _path(node: Node, schema: pa.Schema) -> str:
    first, *fields = _parts(node)
    return ".".join((_find_column(first, schema), *fields))


def _find_column(name: str, schema: pa.Schema) -> str:
    """Find the name of a column, ignoring case.

    An unknown name is returned unchanged, and `Table.alter` rejects it later.
    """
    found = [one for one in schema.names if one.lower() == name.lower()]
    return found[0] if name not in schema.names and len(found) == 1 else name


def _parts(node: Node) -> list[str]:
    if isinstance(node, exp.Column):
        return [part.name for part in node.parts]
    if isinstance(node, exp.Dot):
        return [*_parts(node.this), *_parts(node.expression)]
    return [node.name]


# ---- DESCRIBE
def describe_columns(table: Table, extended: bool = False) -> pa.Table:
    """List the columns of a table for DESCRIBE.

    Args:
        table: The table.
        extended: True also returns the location, type and options of the table. Default False.
    """
    parts: Mapping[str, tuple[str, ...]] = {
        "key": table.key,
        "partition": table.partition_by,
        "order_by": table.order_by,
    }
    rows = []
    for field in table.schema:
        notes = [part for part, names in parts.items() if field.name in names]
        notes += [] if field.nullable else ["not null"]
        try:
            kind = type_to_spark_ddl(field.type)
        except (KeyError, SchemaError):
            kind = str(field.type)
        rows.append((field.name, kind, ", ".join(notes)))
    if extended:
        about = {"Location": table.path, "Type": table.type, "Cursor": str(table.cursor), "Provider": "hoodoo"}
        options = {f"hoodoo.{name}": str(value) for name, value in vars(table.options).items()}
        rows += [("", "", ""), *((name, value, "") for name, value in (about | options).items())]
    columns = zip(*rows, strict=True)
    return pa.table(dict(zip(("col_name", "data_type", "comment"), map(list, columns), strict=True)))
