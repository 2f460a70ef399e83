"""Queries with `hoodoo.sql`.

The first argument determines the engine.
Spark SQL refers to tables by path, and DuckDB by argument name. DuckDB gets each table as a lazy dataset, so that the
query only reads the columns and files that it needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, overload

import sqlglot
from sqlglot import exp

from hoodoo.errors import EngineError, ExpressionError, OptionError
from hoodoo.nearest import find_nearest_name
from hoodoo.readers.output import Rows
from hoodoo.redact import printable
from hoodoo.table import Table
from hoodoo.table import open as open_table
from hoodoo.table.used_folder import folder_in_use, tables_in_folder

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame, SparkSession

_CAP = 1000
_UNKNOWN = re.compile(r"Catalog Error: Table with name (\w+) does not exist")
_QUERIES = ("SELECT", "MULTI", "EXPLAIN")  # DuckDB treats PIVOT as several statements


@overload
def sql(spark: SparkSession, text: str, rewrite: bool = False) -> DataFrame: ...


@overload
def sql(spark: str, **tables: Table | Rows) -> duckdb.DuckDBPyRelation: ...


def sql(
    spark: SparkSession | str,
    text: str | Table | Rows | None = None,
    rewrite: bool | Table | Rows = False,
    **tables: Table | Rows,
) -> DataFrame | duckdb.DuckDBPyRelation:
    """Run an SQL statement on tables.

    `sql(spark, text)` runs a Spark SQL statement, which refers to a hoodoo table as hoodoo.`path`. A path is a local
    folder or 's3://bucket/prefix'. hoodoo runs MERGE INTO, UPDATE, DELETE FROM, INSERT INTO, CREATE TABLE, ALTER TABLE,
    DESCRIBE and DESCRIBE HISTORY. All other statements are passed to `spark.sql`, and read the newest snapshot of each
    table. CREATE TABLE name (...) USING hoodoo LOCATION 'path' also registers the name for the session, in `sql` and as
    a temporary view. MERGE matches rows by key, so ON must be the equality of the key and partition columns. DuckDB
    evaluates the expressions of MERGE, UPDATE and DELETE, `pip install 'hoodoo[sql]'`. Expressions that may have a
    different meaning in DuckDB than in Spark are rejected. Spark runs the source of a MERGE and the query of an INSERT.

    `sql("SELECT ... FROM trips JOIN drivers USING (driver)", trips=table, drivers=other.scan())` runs a DuckDB query
    over tables and reads, which the query refers to by argument name. The call fixes the snapshots. Rows are read when
    the returned relation is evaluated, and only from the columns and files that the query needs.

    After `hoodoo.use(folder)`, both forms also find the tables of that folder by name.

    Args:
        spark: The Spark session, classic or Connect; or the DuckDB query.
        text: With a session: one statement.
        rewrite: With a session: True allows ALTER TABLE to rewrite base files, as in `Table.alter`. Default False.
        **tables: With a DuckDB query: the tables and reads, by their names in the query.

    Returns:
        For Spark SQL, a DataFrame: the rows of a query, one row with the counts of a write or a schema change, or the
        columns of a created or described table. For DuckDB, a relation, with methods such as fetchall(), df(), pl() and
        to_arrow_table().

    Raises:
        OptionError: The statement is not supported on a table, or ON is not the equality of the key. Or a table in a
            query has no argument, the query does not use an argument, or an argument has an invalid value.
        ExpressionError: A statement on a table or a query cannot be parsed or names an unknown column, or an expression
            may have a different meaning in DuckDB.
        TableNotFound: There is no table at a path.
        HoodooError: Any error that the corresponding table method raises.
        EngineError: PySpark is older than 4.2 or not installed, `spark` is not a session, or DuckDB is needed and not
            installed.
    """
    if isinstance(spark, str) and not isinstance(text, str):
        named = {**({} if text is None else {"text": text}), **({} if rewrite is False else {"rewrite": rewrite})}
        return _by_duckdb(spark, {**named, **tables})
    if tables:
        name = next(iter(tables))
        raise OptionError(
            f"sql() has no argument {printable(name)} with a Spark session. Write tables as hoodoo.`path` in "
            f"the text. For DuckDB, leave out the session: sql(text, {name}=table).",
            option=name,
        )
    try:
        from hoodoo.spark.sql import sql as by_spark  # only imported for Spark
    except ImportError:
        raise EngineError(
            "sql(spark, text) needs PySpark. Install it: pip install 'hoodoo[spark]'. For DuckDB, call "
            "sql(text, name=table)."
        ) from None
    return by_spark(spark, text, rewrite)  # type: ignore[arg-type]  # by_spark checks the types


def _by_duckdb(text: str, tables: Mapping[str, Any]) -> duckdb.DuckDBPyRelation:
    try:
        import duckdb
    except ImportError:
        raise EngineError("sql(text, name=table) needs DuckDB. Install it: pip install 'hoodoo[sql]'.") from None
    _require_distinct_names(tables)
    rows = {name: _rows(name, given) for name, given in tables.items()}
    connection = duckdb.connect()
    connection.execute("SET python_enable_replacements = false")  # the query can only use the argument names
    try:
        if _get_query_kind(connection, text) != "EXPLAIN":  # sqlglot cannot parse EXPLAIN
            _require_used_tables(text, rows)
        for name, one in rows.items():
            connection.register(name, one.to_dataset())
        return _run_query(connection, text)
    except duckdb.Error as problem:
        raise _refusal(str(problem), text, rows) from None


def _run_query(connection: duckdb.DuckDBPyConnection, text: str) -> duckdb.DuckDBPyRelation:
    """Run a query, and register the tables of the folder in use that it needs."""
    import duckdb

    folder: dict[str, str] | None = None
    while True:
        try:
            return connection.sql(text)
        except duckdb.CatalogException as problem:
            folder = tables_in_folder() if folder is None else folder
            unknown = _UNKNOWN.match(str(problem))
            path = folder.pop(unknown[1].lower(), None) if unknown else None
            if unknown is None or path is None:
                raise
            connection.register(unknown[1], open_table(path).scan().to_dataset())


def _require_distinct_names(names: Iterable[str]) -> None:
    """Check that table names differ in more than case."""
    found: dict[str, str] = {}
    for name in names:
        if (other := found.setdefault(name.lower(), name)) != name:
            raise OptionError(
                f"{other} and {name} are the same name in DuckDB, which ignores case. Rename one of them.",
                option=name,
            )


def _rows(name: str, given: Any) -> Rows:
    if isinstance(given, Table):
        return given.scan()
    if isinstance(given, Rows):
        return given
    parameters = " Write values into the text of the query." if isinstance(given, (list, tuple, dict)) else ""
    raise OptionError(
        f"Argument {name} must be a table from hoodoo.open() or a read such as scan(), got {printable(given)}."
        f"{parameters}",
        option=name,
    )


def _get_query_kind(connection: duckdb.DuckDBPyConnection, text: str) -> str:
    """Return the kind of a DuckDB query, such as 'SELECT'.

    Raises:
        OptionError: The text is not a single query.
        ExpressionError: The text contains invalid Unicode.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ExpressionError(
            f"The query contains an incomplete character (a lone surrogate): {printable(text)}. Remove it.",
            sql=printable(text),
        ) from None
    kinds = [statement.type.name for statement in connection.extract_statements(text)]
    if len(kinds) != 1 or kinds[0] not in _QUERIES:
        said = f"{len(kinds)} statements" if len(kinds) != 1 else f"a statement of kind {kinds[0]}"
        raise OptionError(
            f"sql(text, name=table) accepts one query, got {said}. For other statements, use "
            "scan().to_duckdb(connection) and the connection. To write rows, call upsert() or another write "
            "method.",
            option="text",
        )
    return kinds[0]


def _require_used_tables(text: str, rows: Mapping[str, Rows]) -> None:
    """Check that a query uses all tables passed to it."""
    try:
        tree = sqlglot.parse_one(text, dialect="duckdb")
    except sqlglot.errors.SqlglotError:
        return  # DuckDB may still be able to parse it
    found = {table.name.lower() for table in tree.find_all(exp.Table)}
    for name in rows:
        if name.lower() not in found:
            there = f"it names {', '.join(sorted(found))}" if found else "it names no table"
            raise OptionError(
                f"The query does not use table {name}: {there}. Name the argument like the table in the query, "
                "or leave it out.",
                option=name,
            )


def _refusal(problem: str, text: str, rows: Mapping[str, Rows]) -> OptionError | ExpressionError:
    if unknown := _UNKNOWN.match(problem):
        name = unknown[1]
        near = find_nearest_name(name, list(rows))
        given = f"the given tables are {', '.join(rows)}" if rows else "no table is given"
        if folder := folder_in_use():
            given += f", and {printable(folder)} has no such folder"
        meant = f"Did you mean {near}? " if near else ""
        return OptionError(
            f"The query reads the table {printable(name)}, which is not an argument; {given}. {meant}Pass it "
            f"by its name: sql(text, {name}=table).",
            option=printable(name),
        )
    return ExpressionError(
        f"DuckDB cannot run the query: {problem.strip()[:_CAP].rstrip('.')}.\nUse the columns of the given "
        "tables and DuckDB's SQL.",
        sql=text[:_CAP],
    )
