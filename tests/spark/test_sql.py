"""`hoodoo.sql(spark, text)`: each statement does what the call of its name does, reads see what was written since, and
what is not carried out is refused before anything is written. On classic sessions and on Spark Connect.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlglot

import hoodoo
from hoodoo.readers.predicate import sql
from hoodoo.spark.sql_expressions import Scope, Side, schema_of_frame, translate_expression
from hoodoo.spark.sql_reading import pushable_conditions
from hoodoo.spark.sql_text import parse_statement, references

NOW = dt.datetime(2026, 1, 31, tzinfo=dt.timezone.utc)

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("n", pa.int32()), ("fare", pa.float64())])


def rows(*given: tuple[Any, ...]) -> pa.Table:
    return pa.table([list(column) for column in zip(*given, strict=True)], schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    made = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    made.upsert(rows((1, "oslo", 1, 1.0), (2, "rome", 2, 2.0), (3, None, 3, math.nan)))
    return made


def found(table: hoodoo.Table, *columns: str) -> list[tuple[Any, ...]]:
    held = table.scan(list(columns) or None).to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in held), key=repr)


def told(frame: Any) -> dict[str, Any]:
    [row] = frame.collect()
    return dict(row.asDict())


def said(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()), key=repr)


# ---- queries
def test_a_query_is_planned_anew_and_sees_what_was_written_since(session: Any, table: hoodoo.Table) -> None:
    text = f"SELECT count(*) FROM hoodoo.`{table.path}`"
    assert said(hoodoo.sql(session, text)) == [(3,)]
    table.upsert(rows((4, "x", 4, 4.0)))
    assert said(hoodoo.sql(session, text)) == [(4,)]


def test_tables_are_read_wherever_a_query_names_them_and_nothing_else_is(session: Any, table: hoodoo.Table) -> None:
    t = f"hoodoo.`{table.path}`"
    session.range(2, 4).createOrReplaceTempView("some_ids")
    for text, wanted in (
        (f"SELECT t.id, '{{x}} hoodoo.`no`' FROM {t} AS t JOIN some_ids s ON t.id = s.id", [(2,), (3,)]),
        (f"WITH a AS (SELECT * FROM {t}) SELECT id FROM a WHERE id IN (SELECT max(id) FROM {t})", [(3,)]),
        (f"SELECT id FROM {t} WHERE id = 1 UNION ALL SELECT n FROM {t} WHERE n > 2 -- {t}", [(1,), (3,)]),
        (f"SELECT hoodoo.`id` FROM {t} AS hoodoo WHERE hoodoo.`id` < 2;", [(1,)]),
        (f"TABLE {t}", [(1,), (2,), (3,)]),
        ("SELECT id FROM some_ids", [(2,), (3,)]),
    ):
        assert [row[:1] for row in said(hoodoo.sql(session, text))] == wanted, text


def test_all_tables_of_a_statement_are_of_one_snapshot_also_of_an_older_one(session: Any, table: hoodoo.Table) -> None:
    first, t = table.cursor, f"hoodoo.`{table.path}`"
    joined = hoodoo.sql(session, f"SELECT count(*) FROM {t} a JOIN {t} b ON a.id = b.id WHERE a.id > 0")
    table.upsert(rows((4, "x", 4, 4.0)))
    assert said(joined) == [(3,)]
    assert said(hoodoo.sql(session, f"SELECT max(id) FROM {t} VERSION AS OF '{first}'")) == [(3,)]
    assert said(hoodoo.sql(session, f"SELECT max(s.id) FROM {t} TIMESTAMP AS OF '{first}' s WHERE s.n > 1")) == [(3,)]
    assert said(hoodoo.sql(session, f"SELECT max(id) FROM {t} VERSION AS OF {first.seq}")) == [(3,)]
    with pytest.raises(hoodoo.OptionError, match="DESCRIBE HISTORY lists positions"):
        hoodoo.sql(session, f"SELECT * FROM {t} TIMESTAMP AS OF {first.seq}")


def test_a_view_of_a_query_keeps_its_snapshot_and_a_lasting_one_is_refused(session: Any, table: hoodoo.Table) -> None:
    t = f"hoodoo.`{table.path}`"
    hoodoo.sql(session, f"CREATE OR REPLACE TEMPORARY VIEW kept AS SELECT id FROM {t} WHERE id < 3")
    table.delete(where="id = 1")
    assert said(session.sql("SELECT * FROM kept")) == [(1,), (2,)]
    with pytest.raises(hoodoo.OptionError, match="Permanent views cannot refer"):
        hoodoo.sql(session, f"CREATE VIEW lasting AS SELECT * FROM {t}")


# ---- writes
def test_insert_takes_values_and_queries_and_refuses_keys_that_exist(session: Any, table: hoodoo.Table) -> None:
    t = f"hoodoo.`{table.path}`"
    assert told(hoodoo.sql(session, f"INSERT INTO {t} VALUES (4, 'a', 4, 0.1), (5, NULL, 5, 5)"))["inserted"] == 2
    hoodoo.sql(session, f"INSERT INTO TABLE {t} (N, id) SELECT n, id + 10 FROM {t} WHERE id = 1")
    hoodoo.sql(session, f"WITH s AS (SELECT 20L AS id, 'b' AS city) INSERT INTO {t} BY NAME SELECT city, id FROM s")
    written = [(11, None, 1, None), (20, "b", None, None), (4, "a", 4, 0.1), (5, None, 5, 5.0)]
    assert [row for row in found(table) if row[0] > 3] == written
    before = table.cursor
    with pytest.raises(hoodoo.KeyExists):
        hoodoo.sql(session, f"INSERT INTO {t} VALUES (1, 'a', 4, 0.1)")
    with pytest.raises(hoodoo.ColumnError, match="2 values for 4 columns"):
        hoodoo.sql(session, f"INSERT INTO {t} VALUES (9, 'a')")
    with pytest.raises(hoodoo.ColumnError, match="Column 'what' is not in the table"):
        hoodoo.sql(session, f"INSERT INTO {t} (id, what) VALUES (9, 'a')")
    with pytest.raises(hoodoo.OptionError, match="insert_overwrite"):
        hoodoo.sql(session, f"INSERT OVERWRITE {t} VALUES (9, 'a', 1, 1)")
    assert table.cursor == before


def test_update_and_delete_change_the_rows_that_match(session: Any, table: hoodoo.Table) -> None:
    t = f"hoodoo.`{table.path}`"
    done = told(
        hoodoo.sql(session, f"UPDATE {t} AS t SET t.n = t.n * 10, City = upper(coalesce(city, 'none')) WHERE t.ID >= 2")
    )
    assert (done["updated"], done["cursor"]) == (2, str(table.cursor))
    assert found(table, "id", "city", "n") == [(1, "oslo", 1), (2, "ROME", 20), (3, "NONE", 30)]
    assert told(hoodoo.sql(session, f"DELETE FROM {t} WHERE n % 20 = 0"))["deleted"] == 1
    assert told(hoodoo.sql(session, f"DELETE FROM {t}"))["deleted"] == 2 and found(table) == []


def test_merge_has_the_clauses_of_delta_lake_in_their_order(session: Any, table: hoodoo.Table) -> None:
    t = f"hoodoo.`{table.path}`"
    session.sql(
        "SELECT * FROM VALUES (1L, 'x', 7, 7D, 'd'), (2L, 'y', 8, 8D, 'u'), (9L, 'z', 9, 9D, 'i'), "
        "(10L, 'q', 1, 1D, 'd') AS s(ID, city, n, fare, op)"
    ).createOrReplaceTempView("changes_of_t")
    text = f"""
        MERGE INTO {t} AS t USING changes_of_t AS s ON s.id = t.id
        WHEN MATCHED AND s.op = 'd' THEN DELETE
        WHEN MATCHED THEN UPDATE SET *
        WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT *
        WHEN NOT MATCHED BY SOURCE AND t.n > 2 THEN UPDATE SET n = t.n + 100"""
    done = told(hoodoo.sql(session, text))
    assert (done["inserted"], done["updated"], done["deleted"]) == (1, 2, 1)
    assert found(table, "id", "city", "n") == [(2, "y", 8), (3, None, 103), (9, "z", 9)]
    text = f"""
        WITH more AS (SELECT id + 1 AS id, n FROM {t} WHERE id > 2)
        MERGE INTO {t} t USING (SELECT id, n, id * 2 AS twice FROM more) m ON (t.id <=> m.id)
        WHEN MATCHED THEN UPDATE SET fare = m.twice + t.fare
        WHEN NOT MATCHED THEN INSERT (id, n) VALUES (m.id, CASE WHEN twice > 10 THEN m.n ELSE 0 END)
        WHEN NOT MATCHED BY SOURCE THEN DELETE"""
    hoodoo.sql(session, text)
    assert found(table) == [(10, None, 9, None), (4, None, 0, None)]


def test_the_source_of_a_merge_may_be_a_table_of_hoodoo(session: Any, table: hoodoo.Table, tmp_path: Path) -> None:
    other = hoodoo.create(tmp_path / "o", SCHEMA, key="id")
    other.upsert(rows((1, "new", 5, 5.0), (8, "new", 8, 8.0)))
    text = f"MERGE INTO hoodoo.`{table.path}` t USING hoodoo.`{other.path}` s ON t.id = s.id"
    hoodoo.sql(session, text + " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
    assert found(table, "id", "city") == [(1, "new"), (2, "rome"), (3, None), (8, "new")]


MERGES = {
    "s.id = t.n": "ON must be t.id = s.id, because MERGE matches rows by the key",
    "t.id = s.id AND t.n = 1": "Put other conditions after WHEN ... AND",
    "t.id = s.id OR t.id = 1": "ON must be",
    "t.id = s.id + 1": "ON must be",
    "id = s.id": "is ambiguous: write s.id or t.id",
    "t.id = s.idd": "did you mean s.id",
}


@pytest.mark.parametrize("on", MERGES)
def test_a_merge_that_does_not_match_by_the_key_is_refused(spark: Any, table: hoodoo.Table, on: str) -> None:
    before = table.cursor
    text = f"MERGE INTO hoodoo.`{table.path}` t USING (SELECT 1L AS id, 2 AS m) s ON {on} WHEN MATCHED THEN DELETE"
    with pytest.raises(hoodoo.CallError) as refused:
        hoodoo.sql(spark, text)
    assert MERGES[on] in refused.value.message and table.cursor == before


def test_a_merge_of_a_partitioned_table_matches_by_the_partition_too(spark: Any, tmp_path: Path) -> None:
    made = hoodoo.create(tmp_path / "p", SCHEMA, key="id", partition_by="city")
    made.upsert(rows((1, "a", 1, 1.0), (1, "b", 2, 2.0)))
    text = "MERGE INTO hoodoo.`{}` t USING (SELECT 1L AS id, 'b' AS city) s ON {} WHEN MATCHED THEN UPDATE SET n = 9"
    with pytest.raises(hoodoo.OptionError, match=r"ON must be t.id = s.id AND t.city = s.city, .* and the partition"):
        hoodoo.sql(spark, text.format(made.path, "t.id = s.id"))
    hoodoo.sql(spark, text.format(made.path, "t.city = s.city AND t.id = s.id"))
    assert found(made, "city", "n") == [("a", 1), ("b", 9)]


def test_a_merge_computes_a_generated_partition_column_and_checks_one_that_it_gets(spark: Any, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int32())])
    made = hoodoo.create(tmp_path / "g", schema, key="id", partition_by=hoodoo.day("at"))
    made.insert([{"id": 1, "at": dt.datetime(2026, 3, 1, 1, tzinfo=dt.timezone.utc), "n": 1}])
    merge = (
        f"MERGE INTO hoodoo.`{made.path}` t USING (SELECT id, at, 5 AS n, 'u' AS op{{}} FROM VALUES "
        "(1L, TIMESTAMP '2026-03-01 01:00:00Z'), (2L, TIMESTAMP '2026-03-02 01:00:00Z') AS v(id, at)) s "
        "ON t.id = s.id{}"
    )
    both = " WHEN MATCHED AND s.op = 'u' THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT (id, at, n) VALUES (id, at, 7)"
    done = told(hoodoo.sql(spark, merge.format("", both)))
    assert (done["inserted"], done["updated"]) == (1, 1)
    assert found(made, "id", "n", "at_day") == [(1, 5, dt.date(2026, 3, 1)), (2, 7, dt.date(2026, 3, 2))]
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/Lima")
    try:
        with pytest.raises(hoodoo.ColumnError, match="correct for time zone America/Lima"):
            on = " AND t.at_day = s.at_day WHEN MATCHED THEN DELETE"
            hoodoo.sql(spark, merge.format(", to_date(at) AS at_day", on))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert made.scan().count() == 2


REFUSED = {
    "UPDATE {t} SET city = soundex(city)": "may have another meaning in DuckDB",
    "UPDATE {t} SET n = n / n": r"Write nullif\(n, 0\)",
    "UPDATE {t} SET n = CAST(fare AS INT)": r"Use floor\(\)",
    "UPDATE {t} SET n = TRY_CAST(city AS INT)": "TRY_CAST",
    "UPDATE {t} SET n = (SELECT 1)": "reads more than one row",
    "UPDATE {t} SET nn = 1": "Column 'nn' is not in the table",
    "UPDATE {t} SET n = nn": "did you mean n",
    "UPDATE {t} SET n = 1, N = 2": "more than once",
    "UPDATE {t} SET id = 1": "key",
    "UPDATE {t} SET n = 1 FROM other": "Use MERGE INTO",
    "UPDATE {t} SET n = 1 LIMIT 1": "UPDATE with LIMIT",
    "UPDATE {t} SET n = 1 WHERE n > 0 ORDER BY id LIMIT 1": "UPDATE with ORDER, LIMIT",
    "DELETE FROM {t} LIMIT 1": "DELETE with LIMIT",
    "DELETE FROM {t} WHERE n > 0 ORDER BY id LIMIT 1": "DELETE with ORDER, LIMIT",
    "DELETE FROM {t} USING other WHERE n > 1": "DELETE with USING",
    "DELETE FROM {t}, other": "DELETE with JOINS",
    "DELETE FROM {t} TABLESAMPLE (1 ROWS)": "DELETE with SAMPLE",
    "DELETE FROM {t} VERSION AS OF 'x' WHERE n = 1": "DELETE with VERSION",
    "DELETE FROM {t} WHERE n = 1 RETURNING *": "DELETE with RETURNING",
    "UPDATE {t} SET city = substring(city, 2, -1)": "length of a substring must be a number from 0",
    "INSERT INTO {t} VALUES (7, 'a', 1, 1D), (7, 'b', 2, 2D)": "more than once",
    "DELETE FROM {t} WHERE city LIKE 'a\\\\\\\\_b'": "backslash",
    "DELETE FROM {t} WHERE city LIKE 'a\\_b' ": "no escapes except",
    "UPDATE {t} SET city = 'a' 'b'": "no escapes except",
    "UPDATE {t} SET city = \"a''b\"": "no escapes except",
    "UPDATE {t} SET city = '\\u0041'": "no escapes except",
    "DELETE FROM {t} WHERE id IN (SELECT 1)": "reads more than one row",
    "DELETE FROM {t} WHERE rand() > 0.5": "may have another meaning in DuckDB",
    "DROP TABLE {t}": "Delete the folder",
    "TRUNCATE TABLE {t}": "DELETE FROM without a condition",
    "OPTIMIZE {t}": r"compact\(\) to merge logs",
    "VACUUM {t}": r"\.clean\(\)",
    "RESTORE TABLE {t} TO VERSION AS OF 1": r"\.restore\(to\)",
    "ANALYZE TABLE {t} COMPUTE STATISTICS": "Every write maintains statistics",
    "SHOW TBLPROPERTIES {t}": "DESCRIBE HISTORY",
    "ALTER TABLE {t} UNSET TBLPROPERTIES ('clean_every')": "Use ADD COLUMNS",
    "CACHE TABLE c AS SELECT * FROM {t}": "does not support CACHE",
    "EXPLAIN SELECT * FROM {t}": r"query\).explain\(\)",
    "DELETE FROM {t}; DELETE FROM {t}": "a single statement",
    "MERGE WITH SCHEMA EVOLUTION INTO {t} USING s ON s.id = id WHEN MATCHED THEN DELETE": "ADD COLUMNS first",
    "MERGE INTO {t} t USING s ON": "Cannot parse the statement",
    "ALTER TABLE {t} RENAME TO other": "Use ADD COLUMNS",
    "ALTER TABLE {t} ADD COLUMN c int NOT NULL": "of a new column",
    "ALTER TABLE {t} ALTER COLUMN n COMMENT 'x'": "Use ADD COLUMNS",
    "CREATE TABLE {t} (id bigint)": "needs a key",
    "CREATE TABLE {t} TBLPROPERTIES ('key' = 'id')": "needs columns",
    "CREATE TABLE {t} (id bigint COMMENT 'x') TBLPROPERTIES ('key' = 'id')": "NOT NULL and PRIMARY KEY",
    "CREATE OR REPLACE TABLE {t} (id bigint) TBLPROPERTIES ('key' = 'id')": "OR REPLACE",
    "CREATE TABLE {t} (id bigint) USING parquet TBLPROPERTIES ('key' = 'id')": "got parquet",
    "CREATE TABLE name (id bigint) USING hoodoo TBLPROPERTIES ('key' = 'id')": "LOCATION",
    "CREATE TABLE {t} (id bigint) TBLPROPERTIES ('key' = 'id')": "holds a table already|already",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_carried_out_is_refused_with_what_would_be(spark: Any, table: hoodoo.Table, text: str) -> None:
    before = table.cursor
    with pytest.raises(hoodoo.HoodooError, match=REFUSED[text]):
        hoodoo.sql(spark, text.format(t=f"hoodoo.`{table.path}`"))
    assert table.cursor == before and table.schema == hoodoo.open(table.path).schema


def test_what_sql_needs_is_said(spark: Any) -> None:
    with pytest.raises(hoodoo.EngineError, match="must be a Spark session"):
        hoodoo.sql("SELECT 1", "SELECT 1")  # type: ignore[arg-type]
    for nothing in ("", " -- only a comment", 5):
        with pytest.raises(hoodoo.OptionError, match="Spark SQL statement"):
            hoodoo.sql(spark, nothing)  # type: ignore[arg-type]
    with pytest.raises(hoodoo.OptionError, match="rewrite"):
        hoodoo.sql(spark, "SELECT 1", rewrite="yes")  # type: ignore[arg-type]
    with pytest.raises(hoodoo.TableNotFound):
        hoodoo.sql(spark, "SELECT * FROM hoodoo.`/no/such/table`")


# ---- tables
def test_create_table_makes_a_table_and_with_a_name_a_view(session: Any, tmp_path: Path) -> None:
    path = tmp_path / "made"
    shown = hoodoo.sql(
        session,
        f"CREATE TABLE trips_here (id bigint NOT NULL, day date, s struct<x: int>, d decimal(8,2), ts timestamp) "
        f"USING hoodoo PARTITIONED BY (day) LOCATION '{path}' "
        "TBLPROPERTIES ('key' = 'id', 'hoodoo.order_by' = 'ts, day', 'type' = 'copy_on_write', 'clean_every' = '7')",
    )
    assert said(shown)[1] == ("day", "date", "partition, order_by")
    made = hoodoo.open(path)
    assert (made.key, made.partition_by, made.order_by) == (("id",), ("day",), ("ts", "day"))
    assert made.type == "copy_on_write"
    assert made.options.clean_every == 7 and not made.schema.field("id").nullable
    assert made.schema.field("s").type == pa.struct([("x", pa.int32())])
    hoodoo.sql(
        session, "INSERT INTO trips_here (id, day, ts) VALUES (1, DATE'2026-01-31', TIMESTAMP'2026-01-31 12:00:00')"
    )
    assert said(session.sql("SELECT id FROM trips_here")) == [(1,)]
    text = "SELECT trips_here.id FROM trips_here WHERE trips_here.id = 1 AND trips_here.id IN (TABLE x)"
    assert said(hoodoo.sql(session, f"WITH x AS (SELECT id FROM trips_here) {text}")) == [(1,)]
    hoodoo.sql(session, "UPDATE trips_here SET trips_here.d = 1 WHERE trips_here.id = 1")
    hoodoo.sql(session, f"UPDATE hoodoo.`{tmp_path}/./made` SET d = 2 WHERE id = 1")  # another spelling of the path
    assert said(session.sql("SELECT CAST(d AS int) FROM trips_here")) == [(2,)]
    made.delete(where="id = 1")
    assert said(hoodoo.sql(session, "SELECT id FROM Trips_Here t WHERE t.id > 0")) == []
    assert said(hoodoo.sql(session, "WITH trips_here AS (SELECT 5) SELECT * FROM trips_here")) == [(5,)]
    again = (
        f"CREATE TABLE IF NOT EXISTS trips_here (id int) USING hoodoo LOCATION '{path}' TBLPROPERTIES ('key' = 'id')"
    )
    assert len(hoodoo.sql(session, again).collect()) == 5
    with pytest.raises(hoodoo.TableExists):
        hoodoo.sql(session, again.replace("IF NOT EXISTS", ""))


def test_create_table_takes_transforms_by_sparks_names(session: Any, tmp_path: Path) -> None:
    path = tmp_path / "made"
    parts = "days(at), bucket(4, id), truncate(2, city), city"
    hoodoo.sql(
        session,
        f"CREATE TABLE hoodoo.`{path}` (id bigint, at timestamp, city string) PARTITIONED BY ({parts}) "
        "TBLPROPERTIES ('key' = 'id')",
    )
    made = hoodoo.open(path)
    assert list(made.inspect.transforms.values()) == [
        hoodoo.day("at"),
        hoodoo.bucket(4, "id"),
        hoodoo.truncate(2, "city"),
    ]
    assert made.partition_by == ("at_day", "id_bucket", "city_trunc", "city")
    for part in ("date(at)", "upper(city)", "bucket(id)"):
        with pytest.raises((hoodoo.OptionError, hoodoo.ExpressionError)):
            hoodoo.sql(
                session,
                f"CREATE TABLE hoodoo.`{tmp_path / 'no'}` (id bigint, at timestamp, city string) "
                f"PARTITIONED BY ({part}) TBLPROPERTIES ('key' = 'id')",
            )


def test_create_table_as_select_holds_the_rows(session: Any, table: hoodoo.Table, tmp_path: Path) -> None:
    text = f"CREATE TABLE hoodoo.`{tmp_path / 'c'}` TBLPROPERTIES ('key' = 'id') AS "
    hoodoo.sql(session, text + f"SELECT id, n + 1 AS m FROM hoodoo.`{table.path}`")
    assert found(hoodoo.open(tmp_path / "c")) == [(1, 2), (2, 3), (3, 4)]


def test_alter_table_changes_columns_in_one_commit(session: Any, table: hoodoo.Table) -> None:
    t, before = f"hoodoo.`{table.path}`", table.cursor.seq
    done = told(hoodoo.sql(session, f"ALTER TABLE {t} ADD COLUMNS (a int DEFAULT 5, b string AFTER ID)"))
    assert table.cursor.seq == before + 1 and done["cursor"] == str(table.cursor)
    hoodoo.sql(session, f"ALTER TABLE {t} ALTER COLUMN N TYPE bigint")
    hoodoo.sql(session, f"ALTER TABLE {t} DROP COLUMNS (city)")
    hoodoo.sql(session, f"ALTER TABLE {t} ALTER COLUMN a FIRST")
    hoodoo.sql(session, f"ALTER TABLE {t} ALTER COLUMN b AFTER n")
    assert table.schema.names == ["a", "id", "n", "b", "fare"] and table.schema.field("n").type == pa.int64()
    hoodoo.sql(session, f"INSERT INTO {t} (id) VALUES (9)")
    assert table.scan(where="id = 9").to_arrow()["a"].to_pylist() == [5]
    with pytest.raises(hoodoo.RewriteNeeded):
        hoodoo.sql(session, f"ALTER TABLE {t} RENAME COLUMN fare TO price")
    hoodoo.sql(session, f"ALTER TABLE {t} RENAME COLUMN fare TO price", rewrite=True)
    assert table.schema.names[-1] == "price"
    hoodoo.sql(session, f"ALTER TABLE {t} SET TBLPROPERTIES ('hoodoo.clean_every' = '9')")
    assert hoodoo.open(table.path).options.clean_every == 9


def test_describe_shows_columns_and_history(session: Any, table: hoodoo.Table) -> None:
    t = f"hoodoo.`{table.path}`"
    table.upsert(rows((1, "x", 4, 4.0)))
    assert said(hoodoo.sql(session, f"DESCRIBE {t}")) == [
        ("city", "string", ""),
        ("fare", "double", ""),
        ("id", "bigint", "key"),
        ("n", "int", ""),
    ]
    extended = {row[0]: row[1] for row in hoodoo.sql(session, f"DESCRIBE TABLE EXTENDED {t}").collect()}
    assert extended["Location"] == table.path and extended["Type"] == "merge_on_read"
    history = hoodoo.sql(session, f"DESCRIBE HISTORY {t}").toArrow()
    assert history.num_rows == len(table.history()) > 1 and history["instant"].to_pylist() == [
        one.instant for one in table.history()
    ]
    assert len(hoodoo.sql(session, f"DESC HISTORY {t} LIMIT 1").collect()) == 1


# ---- what goes along to a scan
PUSHED_SCHEMA = pa.schema(
    [("Id", pa.int64()), ("city", pa.string()), ("fare", pa.float64()), ("half", pa.float32())]
    + [("day", pa.date32()), ("ts", pa.timestamp("us", "UTC")), ("price", pa.decimal128(8, 2)), ("ok", pa.bool_())]
)
PUSHED = {
    "SELECT * FROM {t} WHERE id > 1 AND upper(city) = 'X' AND (city = 'a\"b')": """("Id" > 1) AND ("city" = 'a"b')""",
    "SELECT * FROM {t} x WHERE x.ID IN (1, 2) OR x.day >= DATE'2026-01-01'": """IN (1, 2) OR "day" >= CAST(""",
    "SELECT * FROM {t} WHERE fare < 1.5 AND fare > 1 AND NOT fare = 1": """("fare" < 1.5)""",
    "SELECT * FROM {t} WHERE fare BETWEEN 1 AND 2 AND half = 1": """("fare" BETWEEN 1 AND 2)""",
    "SELECT * FROM {t} WHERE half = 1 OR fare >= 1": "",
    "SELECT * FROM {t} WHERE city IS NOT NULL AND city LIKE 'a%' AND ok": """("city" LIKE 'a%') AND ("ok")""",
    "SELECT * FROM {t} WHERE id = '1' AND city = 1 AND price = 1e0 AND id > 1.5": "",
    "SELECT * FROM {t} a JOIN s ON s.id = a.id WHERE a.id > 1 AND id < 3 AND s.x > 1": """("Id" > 1)""",
    "SELECT * FROM {t} a LEFT JOIN s ON s.id = a.id WHERE a.id > 1": """("Id" > 1)""",
    "SELECT * FROM s LEFT JOIN {t} a ON s.id = a.id WHERE a.id > 1": "",
    "SELECT * FROM {t} a RIGHT JOIN s ON s.id = a.id WHERE a.id > 1": "",
    "SELECT * FROM {t} a FULL JOIN s ON s.id = a.id WHERE a.id > 1": "",
    "SELECT * FROM {t} LATERAL VIEW explode(array(1)) e AS id WHERE id > 1": "",
    "SELECT * FROM {t} TABLESAMPLE (10 PERCENT) WHERE id > 1": "",
    "SELECT * FROM {t} AS a(x, id) WHERE id > 1": "",
    "SELECT id FROM {t} GROUP BY id HAVING id > 1": "",
    "SELECT * FROM s WHERE EXISTS (SELECT 1 FROM {t} a WHERE a.id = s.id AND a.id < 5)": """("Id" < 5)""",
    "INSERT INTO other SELECT * FROM {t} WHERE id = 7": """("Id" = 7)""",
}


@pytest.mark.parametrize("text", PUSHED)
def test_conditions_go_along_to_a_scan_where_no_row_is_lost_by_it(text: str) -> None:
    [one] = references(parse_statement(text.format(t="hoodoo.`/p`")), {})
    given = pushable_conditions(one.node, PUSHED_SCHEMA, True)
    assert PUSHED[text] in given and bool(given) == bool(PUSHED[text])


def test_times_go_along_where_the_session_means_utc_by_them() -> None:
    [one] = references(parse_statement("SELECT * FROM hoodoo.`/p` WHERE ts > '2026-01-01' AND id = 1"), {})
    assert "ts" in pushable_conditions(one.node, PUSHED_SCHEMA, True)
    assert pushable_conditions(one.node, PUSHED_SCHEMA, False) == '("Id" = 1)'


def test_a_query_gives_what_spark_gives_of_the_rows_whatever_goes_along(spark: Any, table: hoodoo.Table) -> None:
    """NaN is above all numbers in Spark, and nowhere in a scan."""
    table.scan().to_spark(spark).createOrReplaceTempView("as_spark_has_it")
    for where in (
        "fare > 1",
        "fare < 2",
        "NOT fare > 1",
        "fare = 2 OR n > 2",
        "city IS NULL",
        "n IN (1, 3)",
        "fare >= 1.5",
    ):
        want = said(spark.sql(f"SELECT id FROM as_spark_has_it WHERE {where}"))
        assert said(hoodoo.sql(spark, f"SELECT id FROM hoodoo.`{table.path}` WHERE {where}")) == want, where


# ---- what DuckDB evaluates for Spark
ALIKE = [
    "n + 1", "n - 2 * n", "n / 4", "n div 2", "n % 3", "-n", "abs(-n)", "round(fare, 1)",
    "floor(if(n < 3, fare, 0.5D))", "ceil(if(n < 3, fare, 0.5D))",
    "n / nullif(n - 1, 0)", "upper(city)", "lower(city)", "length(city)", "concat(city, '-', city)", "city || 'x'",
    "substring(city, 2, 2)", "substr(city, 2)", "trim(concat(' ', city, ' '))", "replace(city, 'o', '0')",
    "startswith(city, 'o')", "endswith(city, 'e')", "contains(city, 'sl')", "city LIKE '%o%'", "coalesce(city, 'none')",
    "nvl(city, 'none')", "if(n > 1, 'a', 'b')", "CASE WHEN n > 2 THEN 'big' WHEN n > 1 THEN 'mid' END",
    "greatest(n, 2)", "least(n, NULL, 2)", "n IN (1, 3)", "n BETWEEN 2 AND 3", "city <=> NULL", "city IS NOT NULL",
    "NOT (n > 1 AND fare > 1)", "fare > 1e6", "fare = fare", "n IS DISTINCT FROM 1", "CAST(n AS STRING)", "fare > 1.5D",
    "day + INTERVAL 1 DAY > DATE'2026-01-31'", "date_add(day, 3)", "date_sub(day, 40)",
    "datediff(day, DATE'2025-12-31')",
    "year(day)", "month(day)", "day(day)", "day > DATE'2026-01-30'", "ts > TIMESTAMP'2026-01-31 11:00:00'",
    "ts + INTERVAL 2 HOURS > TIMESTAMP'2026-01-31 13:00:00'", "s.x", "s.x + n", "CAST(n AS DOUBLE)", "'it''s'",
    "\"two\"", "'a\\'b'", "'a\\n\\t\\\\b'",
]  # fmt: skip


def test_every_expression_that_passes_means_the_same_in_duckdb(spark: Any) -> None:
    """The proof of the list of forms in sql_expressions."""
    frame = spark.sql(
        "SELECT id, city, n, fare, CAST(day AS DATE) day, CAST(ts AS TIMESTAMP) ts, named_struct('x', n) s FROM VALUES "
        "(1L, 'oslo', 1, 0.5D, '2026-01-30', '2026-01-31 10:00:00'), (2L, 'Rome', 2, -2.25D, '2024-02-29', NULL), "
        "(3L, NULL, 3, double('NaN'), NULL, '2026-01-31 12:00:00'), (4L, '', NULL, NULL, '2026-12-31', NULL) "
        "AS t(id, city, n, fare, day, ts)"
    )
    rows, scope = frame.toArrow(), Scope((Side("t", "", schema_of_frame(frame)),), "UTC")
    frame.createOrReplaceTempView("expressions")
    for text in ALIKE:
        want = spark.sql(f"SELECT {text} AS v FROM expressions ORDER BY id").toArrow()["v"].to_pylist()
        written = translate_expression(parse_statement(f"SELECT {text}").tree.expressions[0], scope)
        got = sql.read_expression(written, rows.schema, NOW, "set").values(rows).to_pylist()
        assert list(map(plain, got)) == list(map(plain, want)), (text, written)


def plain(value: Any) -> Any:
    """One spelling for values of several types: both columns of a table take them alike."""
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat().removesuffix("T00:00:00")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool):
        return repr(float(value) + 0.0)
    return value


def test_times_mean_the_zone_of_the_session_or_are_refused() -> None:
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("day", pa.date32())])
    scope = Scope((Side("", "", schema),), "Europe/Rome")
    text = translate_expression(sqlglot.parse_one("ts > TIMESTAMP'2026-01-31 12:00:00'", read="spark"), scope)
    assert "2026-01-31 11:00:00+00:00" in text
    for refused, why in (
        ("ts > '2026-01-31'", "Write TIMESTAMP '2026-01-31'"),
        ("year(ts)", "days of the session's time zone Europe/Rome"),
        ("day = current_date()", "days of the session's"),
    ):
        with pytest.raises(hoodoo.ExpressionError, match=why):
            translate_expression(sqlglot.parse_one(refused, read="spark"), scope)


CLOCKS = pa.schema(
    [("ts", pa.timestamp("us", "UTC")), ("tn", pa.timestamp("us")), ("d", pa.date32()), ("amt", pa.decimal128(10, 2))]
)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("ts = DATE'2026-03-08'", "UTC"),
        ("NOT (ts < DATE'2026-03-08')", "UTC"),
        ("tn = TIMESTAMP'2026-03-08 00:00:00'", "UTC"),
        ("ts > d", "UTC"),
        ("tn = ts", "UTC"),
        ("CASE WHEN ts > d THEN 1 ELSE 0 END", "UTC"),
        ("ts + INTERVAL 1 DAY", "UTC"),
        ("ts - INTERVAL 1 MONTH", "UTC"),
        ("ts IN (TIMESTAMP'2026-03-08 00:00:00')", "all"),
        ("d < DATE'2026-03-08'", "all"),
        ("tn > tn", "all"),
        ("ts BETWEEN ts AND ts", "all"),
        ("amt / 3", "none"),
        ("amt * 2", "all"),
        ("amt % -3", "all"),
    ],
)
def test_what_depends_on_the_zone_passes_in_utc_only(text: str, fits: str) -> None:
    node = parse_statement(f"DELETE FROM t WHERE {text}").tree.args["where"].this
    for zone in ("UTC", "America/New_York"):
        scope = Scope((Side("", "", CLOCKS),), zone)
        if fits == "all" or fits == zone:
            assert translate_expression(node, scope)
        else:
            with pytest.raises(hoodoo.ExpressionError):
                translate_expression(node, scope)


# ---- names and keys of tables
def test_after_use_statements_find_tables_of_the_folder_by_name(session: Any, table: hoodoo.Table) -> None:
    folder = str(Path(table.path).parent)
    try:
        hoodoo.use(folder)
        hoodoo.sql(session, "CREATE TABLE gold (id bigint, city string, n int, PRIMARY KEY (id, city)) USING hoodoo")
        assert hoodoo.open(f"{folder}/gold").key == ("id", "city")
        hoodoo.sql(session, "INSERT INTO gold SELECT id, coalesce(city, 'x'), n FROM t")
        hoodoo.use(None)
        hoodoo.use(folder)
        assert said(hoodoo.sql(session, "SELECT g.id FROM GOLD g JOIN t ON g.id = t.id WHERE g.n > 1")) == [(2,), (3,)]
        hoodoo.sql(session, "DELETE FROM t WHERE id = 1")
        assert said(hoodoo.sql(session, "SELECT id FROM t")) == [(2,), (3,)]
        hoodoo.sql(session, "CREATE TEMPORARY VIEW t2 AS SELECT id FROM t")
        assert said(session.table("t2")) == [(2,), (3,)]
        hoodoo.sql(session, "CREATE TEMPORARY VIEW t AS SELECT 7 AS id")
        assert said(hoodoo.sql(session, "SELECT id FROM t")) == [(7,)], "a view of the session hides the table"
    finally:
        hoodoo.use(None)
        for name in ("t", "t2", "gold"):
            session.catalog.dropTempView(name)


@pytest.mark.parametrize(
    "columns",
    [
        "id bigint PRIMARY KEY, n int",
        "id bigint, n int, PRIMARY KEY (id)",
        "id bigint, n int, CONSTRAINT k PRIMARY KEY (id)",
    ],
)
def test_the_primary_key_of_create_table_is_the_key(session: Any, tmp_path: Path, columns: str) -> None:
    hoodoo.sql(session, f"CREATE TABLE hoodoo.`{tmp_path}/k` ({columns})")
    assert hoodoo.open(tmp_path / "k").key == ("id",)
    assert hoodoo.open(tmp_path / "k").schema.names == ["id", "n"]


def test_two_different_keys_of_create_table_are_an_error(session: Any, tmp_path: Path) -> None:
    with pytest.raises(hoodoo.OptionError, match="two keys"):
        hoodoo.sql(
            session, f"CREATE TABLE hoodoo.`{tmp_path}/k` (id bigint PRIMARY KEY, n int) TBLPROPERTIES ('key' = 'n')"
        )
    assert not (tmp_path / "k").exists()
