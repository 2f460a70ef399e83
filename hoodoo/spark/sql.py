"""Spark SQL statements on hoodoo tables.

Spark does not pass MERGE, UPDATE and DELETE to Python data sources, and does not let them choose a new snapshot for
each query. So this package parses each statement. Writes become method calls on the table. Reads are passed to Spark,
with the newest snapshots.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from hoodoo.arguments import check_flag
from hoodoo.engine.session import require_spark_session
from hoodoo.errors import OptionError
from hoodoo.spark import sql_tables, sql_writes
from hoodoo.spark.source import register
from hoodoo.spark.sql_reading import (
    create_dataframe,
    get_named_tables,
    get_referable_tables,
    refresh_temporary_views,
    run_query,
)
from hoodoo.spark.sql_text import (
    CATALOG,
    Node,
    Reference,
    Statement,
    parse_statement,
    path_of,
    references,
    unparsable_sql,
    unsupported_sql,
)
from hoodoo.spark.sql_writes import Target
from hoodoo.table import open as open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_READS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(")
_WRITES = {exp.Merge: sql_writes.run_merge, exp.Update: sql_writes.run_update, exp.Delete: sql_writes.run_delete}
_WRITES |= {exp.Insert: sql_writes.run_insert}
_INSTEAD = {
    "ANALYZE": "Every write maintains statistics.",
    "DROP": "A table is its folder. Delete the folder.",
    "OPTIMIZE": "Use hoodoo.open(path).compact() to merge logs, or maintenance.cluster(...) to sort and pack files.",
    "REFRESH": "Each query reads the newest snapshot.",
    "RESTORE": "Use hoodoo.open(path).restore(to).",
    "SHOW": "Use DESCRIBE, DESCRIBE HISTORY, or hoodoo.open(path).options.",
    "TRUNCATE": "Use DELETE FROM without a condition.",
    "VACUUM": "Use hoodoo.open(path).maintenance.clean().",
}
"""Alternatives for unsupported statements, by their first word."""


def sql(spark: SparkSession, text: str, rewrite: bool = False) -> DataFrame:
    """Run a Spark SQL statement on hoodoo tables.

    A path is a local folder or 's3://bucket/prefix'. hoodoo runs MERGE INTO, UPDATE, DELETE FROM, INSERT INTO, CREATE
    TABLE, ALTER TABLE, DESCRIBE and DESCRIBE HISTORY. All other statements are passed to `spark.sql`, and read the
    newest snapshot of each table. CREATE TABLE name (...) USING hoodoo LOCATION 'path' also registers the name for the
    session, in `sql` and as a temporary view.

    MERGE matches rows by key, so ON must be the equality of the key and partition columns. DuckDB evaluates the
    expressions of MERGE, UPDATE and DELETE, `pip install 'hoodoo[sql]'`. Expressions that may have a different meaning
    in DuckDB than in Spark are rejected. Spark runs the source of a MERGE and the query of an INSERT.

    Args:
        spark: The session, classic or Connect.
        text: One statement.
        rewrite: True allows ALTER TABLE to rewrite base files, as in `Table.alter`. Default False.

    Returns:
        The rows of a query, one row with the counts of a write or a schema change, or the columns of a created or
        described table.

    Raises:
        OptionError: The statement is not supported on a table, ON is not the equality of the key, or an argument has an
            invalid value.
        ExpressionError: A statement on a table cannot be parsed. Or an expression names an unknown column, or may have
            a different meaning in DuckDB.
        TableNotFound: There is no table at a path.
        HoodooError: Any error that the corresponding table method raises.
        EngineError: PySpark is older than 4.2, `spark` is not a session, or DuckDB is needed and not installed.
    """
    check_flag("rewrite", rewrite)
    statement = parse_statement(text)
    require_spark_session(spark)
    register(spark)
    names, found = get_named_tables(spark), references(statement, get_referable_tables(spark, statement))
    tree = statement.tree
    if isinstance(tree, exp.Create) and _creates_hoodoo_table(tree, names):
        return _create(spark, statement, names)
    if not found:
        return spark.sql(text)
    if tree is None:
        return _run_unparsable_statement(spark, statement, found)
    if isinstance(tree, exp.Create) and tree.args["kind"].upper() == "VIEW":
        return _view(spark, statement)
    on = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    mine = next((one for one in found if one.node is on), None)
    if mine is not None and (write := _WRITES.get(type(tree))):
        result = write(spark, statement, _target(statement, mine))
        refresh_temporary_views(spark, mine.path)
        return _frame(spark, sql_writes.convert_result(result))
    if mine is not None and isinstance(tree, exp.Alter):
        return _altered(spark, mine.path, sql_tables.alter_table(spark, statement, _target(statement, mine), rewrite))
    if mine is not None and isinstance(tree, exp.Describe):
        return _describe(spark, statement, mine.path)
    if isinstance(tree, (exp.Query, exp.Insert, exp.Merge, exp.Create)):
        return run_query(spark, statement, found)
    raise _not_there(statement)


def _target(statement: Statement, found: Reference) -> Target:
    last = max(index for index, token in enumerate(statement.tokens) if token.end < found.end)
    return Target(open_table(found.path), found.node, last)


def _frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    made: DataFrame = spark.createDataFrame(rows)
    return made


def _run_unparsable_statement(spark: SparkSession, statement: Statement, found: list[Reference]) -> DataFrame:
    """Run a statement that sqlglot cannot parse."""
    words = statement.words
    if words[0] in _READS:
        return run_query(spark, statement, found)
    if words[0] == "ALTER":
        return _altered(spark, found[0].path, sql_tables.move_column(statement, _target(statement, found[0])))
    if words[0] in ("DESC", "DESCRIBE") and words[1] == "HISTORY" and words[-2] == "LIMIT" and words[-1].isdigit():
        return _history(spark, found[0].path, int(words[-1]))
    if words[:2] == ["MERGE", "WITH"]:
        raise unsupported_sql(
            "MERGE WITH SCHEMA EVOLUTION",
            "Use ALTER TABLE ... ADD COLUMNS first, then MERGE INTO.",
        )
    if words[0] == "EXPLAIN":
        raise unsupported_sql("EXPLAIN", "Use hoodoo.sql(spark, query).explain() to show the plan of a query.")
    if words[0] in ("MERGE", "INSERT", "UPDATE", "DELETE", "CREATE"):
        raise unparsable_sql(statement)
    raise _not_there(statement)


def _not_there(statement: Statement) -> OptionError:
    word = statement.words[0]
    return unsupported_sql(
        f"{word} of a hoodoo table",
        _INSTEAD.get(word, "Use the methods of hoodoo.open(path)."),
    )


# ---- tables
def _creates_hoodoo_table(tree: Node, names: dict[str, str]) -> bool:
    if tree.args["kind"].upper() != "TABLE":
        return False
    node = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    held = tree.args["properties"].expressions if tree.args.get("properties") else []
    using = [one.this.name.lower() for one in held if isinstance(one, exp.FileFormatProperty)]
    return path_of(node, {}) is not None or CATALOG in using


def _create(spark: SparkSession, statement: Statement, names: dict[str, str]) -> DataFrame:
    node = statement.tree.this.this if isinstance(statement.tree.this, exp.Schema) else statement.tree.this
    table, path, name = sql_tables.create_table(spark, statement, path_of(node, {}))
    if name:
        names[name.lower()] = path
        refresh_temporary_views(spark, path)
    return _frame(spark, sql_tables.describe_columns(table))


def _view(spark: SparkSession, statement: Statement) -> DataFrame:
    tree = statement.tree
    held = tree.args["properties"].expressions if tree.args.get("properties") else []
    columns = isinstance(tree.this, exp.Schema)
    if not any(isinstance(one, exp.TemporaryProperty) for one in held) or len(held) > 1 or columns or tree.this.db:
        raise unsupported_sql(
            "a view of a hoodoo table that is not CREATE [OR REPLACE] TEMPORARY VIEW name AS SELECT ...",
            "Permanent views cannot refer to hoodoo.`path`, and columns are named in the SELECT.",
        )
    frame = create_dataframe(spark, statement.after(sql_tables.find_query_start(statement)))
    if tree.args.get("replace"):
        frame.createOrReplaceTempView(tree.this.name)
    else:
        frame.createTempView(tree.this.name)
    return spark.sql("SELECT 1 WHERE false").select()


def _altered(spark: SparkSession, path: str, result: Any) -> DataFrame:
    refresh_temporary_views(spark, path)
    if result is None:
        return _frame(spark, sql_tables.describe_columns(open_table(path)))
    told = {field.name: [getattr(result, field.name)] for field in fields(result)}
    return _frame(spark, pa.table(told | {"cursor": [str(result.cursor)]}))


def _describe(spark: SparkSession, statement: Statement, path: str) -> DataFrame:
    style = str(statement.tree.args.get("style") or "").upper()
    if style == "HISTORY":
        return _history(spark, path, None)
    if style not in ("", "EXTENDED", "FORMATTED") or statement.tree.args.get("as_json"):
        raise unsupported_sql(f"DESCRIBE {style}", "Use DESCRIBE [EXTENDED] or DESCRIBE HISTORY.")
    return _frame(spark, sql_tables.describe_columns(open_table(path), bool(style)))


def _history(spark: SparkSession, path: str, newest: int | None) -> DataFrame:
    return _frame(spark, open_table(path).history(newest).to_arrow())
