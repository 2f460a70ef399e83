"""`hoodoo.sql`: Spark SQL over tables that the text names by their paths, or a query of DuckDB over tables that are
given by name. The first argument says which.

DuckDB gets each table as a dataset that is read when the query runs, so that it leaves out columns and files by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, overload

import sqlglot
from sqlglot import exp

from hoodoo.errors import EngineError, ExpressionError, OptionError
from hoodoo.nearest import nearest
from hoodoo.readers.output import Rows
from hoodoo.redact import printable
from hoodoo.table import Table

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame, SparkSession

_CAP = 1000
_UNKNOWN = re.compile(r"Catalog Error: Table with name (\w+) does not exist")
_QUERIES = ("SELECT", "MULTI", "EXPLAIN")  # PIVOT is several statements to DuckDB


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
    """Run a statement of Spark SQL, or a query of DuckDB.

    `sql(spark, text)` runs a statement of Spark SQL in which tables of hoodoo stand as hoodoo.`path`. MERGE INTO,
    UPDATE, DELETE FROM, INSERT INTO, CREATE TABLE, ALTER TABLE, DESCRIBE and DESCRIBE HISTORY are carried out on the
    table; everything else goes to `spark.sql`, and reads each table as it is now. A path is a local folder or
    's3://bucket/prefix'. CREATE TABLE name (...) USING hoodoo LOCATION 'path' also gives the table a name for the
    session, in `sql` and as a temporary view. The match of MERGE is the key, so ON has to be the equality of the key
    and partition columns. Expressions of MERGE, UPDATE and DELETE are evaluated by DuckDB, `pip install
    'hoodoo[sql]'`; a form that is not known to mean the same there as in Spark is refused. The source of a MERGE and
    the query of an INSERT are Spark's.

    `sql("SELECT ... FROM trips JOIN drivers USING (driver)", trips=table, drivers=other.scan())` runs a query of DuckDB
    over tables and reads by the names of the arguments. Snapshots are those of the call. Rows are read when the
    relation is asked for them, and then the columns and the files that the query needs.

    Args:
        spark: The Spark session, classic or Connect; or the query of DuckDB.
        text: With a session: one statement.
        rewrite: With a session: True allows ALTER TABLE to rewrite base files, as in `Table.alter`. Default False.
        **tables: With a query of DuckDB: the tables and reads, by the names that the query has for them.

    Returns:
        Of Spark SQL, the rows of a query; one row with the counts of a write or of a change of columns; the columns of
        a table that was created or described. Of DuckDB, a relation: fetchall(), df(), pl(), to_arrow_table() and
        others give its rows.

    Raises:
        OptionError: The statement is none that `sql` carries out on a table, ON is not the equality of the key, a table
            of a query is not given or one that is given is not in the query, or an argument does not have one of the
            values above.
        ExpressionError: A statement on a table or a query cannot be read, or names a column that there is not; an
            expression is not known to mean the same in DuckDB.
        TableNotFound: There is no table at a path.
        HoodooError: What the method of the table raises.
        EngineError: PySpark is older than 4.2 or not installed, `spark` is no session, or DuckDB is needed and not
            installed.
    """
    if isinstance(spark, str) and not isinstance(text, str):
        named = {**({} if text is None else {"text": text}), **({} if rewrite is False else {"rewrite": rewrite})}
        return _by_duckdb(spark, {**named, **tables})
    if tables:
        name = next(iter(tables))
        raise OptionError(
            f"sql() has no argument {printable(name)} beside a Spark session, where tables stand as hoodoo.`path`. For "
            f"DuckDB, leave the session out: sql(text, {name}=table).",
            option=name,
        )
    try:
        from hoodoo.spark.sql import sql as by_spark  # only those who use Spark import it
    except ImportError:
        raise EngineError(
            "sql(spark, text) needs pyspark: pip install 'hoodoo[spark]'. A query of DuckDB is sql(text, name=table)."
        ) from None
    return by_spark(spark, text, rewrite)  # type: ignore[arg-type]  # it looks at them


def _by_duckdb(text: str, tables: Mapping[str, Any]) -> duckdb.DuckDBPyRelation:
    try:
        import duckdb
    except ImportError:
        raise EngineError("sql(text, name=table) needs DuckDB: pip install 'hoodoo[sql]'.") from None
    _require_distinct(tables)
    rows = {name: _rows(name, given) for name, given in tables.items()}
    connection = duckdb.connect()
    connection.execute("SET python_enable_replacements = false")  # names are those of the arguments alone
    try:
        if _kind(connection, text) != "EXPLAIN":  # of which sqlglot makes no tree
            _require_named(text, rows)
        for name, one in rows.items():
            connection.register(name, one.to_dataset())
        return connection.sql(text)
    except duckdb.Error as problem:
        raise _refusal(str(problem), text, rows) from None


def _require_distinct(names: Iterable[str]) -> None:
    """Refuse two names that are one to DuckDB: it would read one of the tables for both."""
    found: dict[str, str] = {}
    for name in names:
        if (other := found.setdefault(name.lower(), name)) != name:
            raise OptionError(
                f"{other} and {name} are one name to DuckDB, which does not look at the case. Rename one of them.",
                option=name,
            )


def _rows(name: str, given: Any) -> Rows:
    if isinstance(given, Table):
        return given.scan()
    if isinstance(given, Rows):
        return given
    parameters = " Values of a query stand in its text." if isinstance(given, (list, tuple, dict)) else ""
    raise OptionError(
        f"{name} takes a table, as hoodoo.open() gives, or a read of one, such as scan(); got {printable(given)}."
        f"{parameters}",
        option=name,
    )


def _kind(connection: duckdb.DuckDBPyConnection, text: str) -> str:
    """What kind of query it is. Raises OptionError where it is none, ExpressionError where it is no text in Unicode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ExpressionError(
            f"The query has a character that is half of one: {printable(text)}. Write whole characters.",
            sql=printable(text),
        ) from None
    kinds = [statement.type.name for statement in connection.extract_statements(text)]
    if len(kinds) != 1 or kinds[0] not in _QUERIES:
        said = f"{len(kinds)} statements" if len(kinds) != 1 else f"a statement of kind {kinds[0]}"
        raise OptionError(
            f"sql(text, name=table) takes one query, got {said}. For others use scan().to_duckdb(connection) and the "
            "connection; rows are written by upsert() and the other writes.",
            option="text",
        )
    return kinds[0]


def _require_named(text: str, rows: Mapping[str, Rows]) -> None:
    """Refuse a table that the query does not name: it would not be read, and nobody would learn why."""
    try:
        tree = sqlglot.parse_one(text, dialect="duckdb")
    except sqlglot.errors.SqlglotError:
        return  # DuckDB knows more
    found = {table.name.lower() for table in tree.find_all(exp.Table)}
    for name in rows:
        if name.lower() not in found:
            there = f"it names {', '.join(sorted(found))}" if found else "it names none"
            raise OptionError(
                f"The query names no table {name}: {there}. Call the argument as the query calls the table, or leave "
                "it out.",
                option=name,
            )


def _refusal(problem: str, text: str, rows: Mapping[str, Rows]) -> OptionError | ExpressionError:
    if unknown := _UNKNOWN.match(problem):
        name = unknown[1]
        near = nearest(name, list(rows))
        given = f"given are {', '.join(rows)}" if rows else "none is given"
        meant = f"Did you mean {near}? " if near else ""
        return OptionError(
            f"The query reads the table {printable(name)}, which is not given; {given}. {meant}Pass it by its name: "
            f"sql(text, {name}=table).",
            option=printable(name),
        )
    return ExpressionError(
        f"DuckDB cannot read the query: {problem.strip()[:_CAP].rstrip('.')}.\nUse the columns of the tables that are "
        "given, and the SQL of DuckDB.",
        sql=text[:_CAP],
    )
