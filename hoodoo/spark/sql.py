"""`hoodoo.sql(spark, text)`: statements of Spark SQL over tables of hoodoo, named hoodoo.`path`.

Spark asks a data source written in Python neither for MERGE, UPDATE and DELETE nor at each query, so the statement is
read here: what writes becomes a call of the table, and what reads goes to Spark, over the newest snapshots.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from hoodoo.arguments import flag
from hoodoo.engine.session import require_session
from hoodoo.errors import OptionError
from hoodoo.spark import sql_tables, sql_writes
from hoodoo.spark.source import register
from hoodoo.spark.sql_reading import frame_of, names_of, query, show_newest
from hoodoo.spark.sql_text import (
    CATALOG,
    Node,
    Reference,
    Statement,
    path_of,
    read,
    references,
    refusal,
    unreadable,
)
from hoodoo.spark.sql_writes import Target
from hoodoo.table import open as open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_READS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(")
_WRITES = {exp.Merge: sql_writes.merge, exp.Update: sql_writes.update, exp.Delete: sql_writes.delete}
_WRITES |= {exp.Insert: sql_writes.insert}
_INSTEAD = {
    "ANALYZE": "statistics are kept by every write.",
    "DROP": "a table is its folder; remove the folder.",
    "OPTIMIZE": "hoodoo.open(path).compact() merges logs, cluster(...) sorts and packs files.",
    "REFRESH": "each query reads the table as it is then.",
    "RESTORE": "use hoodoo.open(path).restore(to).",
    "SHOW": "use DESCRIBE, DESCRIBE HISTORY, or hoodoo.open(path).options.",
    "TRUNCATE": "use DELETE FROM without a condition.",
    "VACUUM": "use hoodoo.open(path).clean().",
}
"""What is there for statements that are not, by their first words."""


def sql(spark: SparkSession, text: str, rewrite: bool = False) -> DataFrame:
    """Run a statement of Spark SQL in which tables of hoodoo stand as hoodoo.`path`.

    MERGE INTO, UPDATE, DELETE FROM, INSERT INTO, CREATE TABLE, ALTER TABLE, DESCRIBE and DESCRIBE HISTORY are carried
    out on the table; everything else goes to `spark.sql`, and reads each table as it is now. A path is a local folder
    or 's3://bucket/prefix'. CREATE TABLE name (...) USING hoodoo LOCATION 'path' also gives the table a name for the
    session, in `sql` and as a temporary view.

    The match of MERGE is the key, so ON has to be the equality of the key and partition columns. Expressions of MERGE,
    UPDATE and DELETE are evaluated by DuckDB, `pip install 'hoodoo[sql]'`; a form that is not known to mean the same
    there as in Spark is refused. The source of a MERGE and the query of an INSERT are Spark's.

    Args:
        spark: The session, classic or Connect.
        text: One statement.
        rewrite: True allows ALTER TABLE to rewrite base files, as in `Table.alter`. Default False.

    Returns:
        The rows of a query; one row with the counts of a write or of a change of columns; the columns of a table that
        was created or described.

    Raises:
        OptionError: The statement is none that `sql` carries out on a table, ON is not the equality of the key, or an
            argument does not have one of the values above.
        ExpressionError: A statement on a table cannot be read, an expression names a column that there is not, or is
            not known to mean the same in DuckDB.
        TableNotFound: There is no table at a path.
        HoodooError: What the method of the table raises.
        EngineError: PySpark is older than 4.2, `spark` is no session, or DuckDB is needed and not installed.
    """
    flag("rewrite", rewrite)
    statement = read(text)
    require_session(spark)
    register(spark)
    names, found = names_of(spark), references(statement, names_of(spark))
    tree = statement.tree
    if isinstance(tree, exp.Create) and _is_ours(tree, names):
        return _create(spark, statement, names)
    if not found:
        return spark.sql(text)
    if tree is None:
        return _without_tree(spark, statement, found)
    if isinstance(tree, exp.Create) and tree.args["kind"].upper() == "VIEW":
        return _view(spark, statement)
    on = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    mine = next((one for one in found if one.node is on), None)
    if mine is not None and (write := _WRITES.get(type(tree))):
        result = write(spark, statement, _target(statement, mine))
        show_newest(spark, mine.path)
        return _frame(spark, sql_writes.counts_of(result))
    if mine is not None and isinstance(tree, exp.Alter):
        return _altered(spark, mine.path, sql_tables.alter(spark, statement, _target(statement, mine), rewrite))
    if mine is not None and isinstance(tree, exp.Describe):
        return _describe(spark, statement, mine.path)
    if isinstance(tree, (exp.Query, exp.Insert, exp.Merge, exp.Create)):
        return query(spark, statement)
    raise _not_there(statement)


def _target(statement: Statement, found: Reference) -> Target:
    last = max(index for index, token in enumerate(statement.tokens) if token.end < found.end)
    return Target(open_table(found.path), found.node, last)


def _frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    made: DataFrame = spark.createDataFrame(rows)
    return made


def _without_tree(spark: SparkSession, statement: Statement, found: list[Reference]) -> DataFrame:
    """A statement that sqlglot knows no tree of, with tables of hoodoo in it."""
    words = statement.words
    if words[0] in _READS:
        return query(spark, statement)
    if words[0] == "ALTER":
        return _altered(spark, found[0].path, sql_tables.moved(statement, _target(statement, found[0])))
    if words[0] in ("DESC", "DESCRIBE") and words[1] == "HISTORY" and words[-2] == "LIMIT" and words[-1].isdigit():
        return _history(spark, found[0].path, int(words[-1]))
    if words[:2] == ["MERGE", "WITH"]:
        raise refusal("MERGE WITH SCHEMA EVOLUTION", "ALTER TABLE ... ADD COLUMNS first.")
    if words[0] == "EXPLAIN":
        raise refusal("EXPLAIN", "hoodoo.sql(spark, query).explain() shows the plan of a query.")
    if words[0] in ("MERGE", "INSERT", "UPDATE", "DELETE", "CREATE"):
        raise unreadable(statement)
    raise _not_there(statement)


def _not_there(statement: Statement) -> OptionError:
    word = statement.words[0]
    return refusal(
        f"{word} of a hoodoo table",
        _INSTEAD.get(word, "hoodoo.open(path) has methods for what is to be done with a table."),
    )


# ---- tables
def _is_ours(tree: Node, names: dict[str, str]) -> bool:
    """Whether a CREATE makes a table of hoodoo."""
    if tree.args["kind"].upper() != "TABLE":
        return False
    node = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    held = tree.args["properties"].expressions if tree.args.get("properties") else []
    using = [one.this.name.lower() for one in held if isinstance(one, exp.FileFormatProperty)]
    return path_of(node, {}) is not None or CATALOG in using


def _create(spark: SparkSession, statement: Statement, names: dict[str, str]) -> DataFrame:
    node = statement.tree.this.this if isinstance(statement.tree.this, exp.Schema) else statement.tree.this
    table, path, name = sql_tables.created(spark, statement, path_of(node, {}))
    if name:
        names[name.lower()] = path
        show_newest(spark, path)
    return _frame(spark, sql_tables.described(table))


def _view(spark: SparkSession, statement: Statement) -> DataFrame:
    """A temporary view of a query. Its snapshot is that of its creation."""
    tree = statement.tree
    held = tree.args["properties"].expressions if tree.args.get("properties") else []
    columns = isinstance(tree.this, exp.Schema)
    if not any(isinstance(one, exp.TemporaryProperty) for one in held) or len(held) > 1 or columns or tree.this.db:
        raise refusal(
            "a view of a hoodoo table that is not CREATE [OR REPLACE] TEMPORARY VIEW name AS SELECT ...",
            "a lasting one cannot name hoodoo.`path`, and columns are named in the SELECT.",
        )
    frame = frame_of(spark, statement.after(sql_tables.query_begins_after(statement)))
    if tree.args.get("replace"):
        frame.createOrReplaceTempView(tree.this.name)
    else:
        frame.createTempView(tree.this.name)
    return spark.sql("SELECT 1 WHERE false").select()


def _altered(spark: SparkSession, path: str, result: Any) -> DataFrame:
    show_newest(spark, path)
    if result is None:
        return _frame(spark, sql_tables.described(open_table(path)))
    told = {field.name: [getattr(result, field.name)] for field in fields(result)}
    return _frame(spark, pa.table(told | {"cursor": [str(result.cursor)]}))


def _describe(spark: SparkSession, statement: Statement, path: str) -> DataFrame:
    style = str(statement.tree.args.get("style") or "").upper()
    if style == "HISTORY":
        return _history(spark, path, None)
    if style not in ("", "EXTENDED", "FORMATTED") or statement.tree.args.get("as_json"):
        raise refusal(f"DESCRIBE {style}", "DESCRIBE [EXTENDED] and DESCRIBE HISTORY are there.")
    return _frame(spark, sql_tables.described(open_table(path), bool(style)))


def _history(spark: SparkSession, path: str, newest: int | None) -> DataFrame:
    return _frame(spark, open_table(path).history(newest).to_arrow())
