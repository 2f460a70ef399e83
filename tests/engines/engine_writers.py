"""Writes of one engine to exported tables, which hoodoo's safeguards refuse or hoodoo detects.

Run in the environment of an engine: `python engine_writers.py ENGINE PATHS RESULTS` tries one statement on each table
of the JSON file PATHS, and writes the outcome and the path of each statement into the JSON file RESULTS.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from engine_readers import newest_metadata

Write = Callable[[str], object]
"""Function that tries to write to the table at a path."""
ROW = "('new', 9, 9.0, 'note')"


def trino() -> dict[str, Write]:
    import trino_server

    _, connection = trino_server.start()

    def write(sql: str, path: str) -> object:
        schema, table = path.split("/")[-2:]
        trino_server.query(connection, f"CREATE SCHEMA IF NOT EXISTS iceberg.{schema}")
        entry = f"schema_name => '{schema}', table_name => '{table}', table_location => '{path}'"
        trino_server.query(connection, f"CALL iceberg.system.register_table({entry})")
        return trino_server.query(connection, sql.format(f"iceberg.{schema}.{table}"))

    return {
        "INSERT": partial(write, f"INSERT INTO {{}} (id, ts, fare, note) VALUES {ROW}"),
        "UPDATE": partial(write, "UPDATE {} SET fare = 0 WHERE id = 'k003'"),
        "DELETE": partial(write, "DELETE FROM {} WHERE id = 'k003'"),
        "DELETE all": partial(write, "DELETE FROM {}"),
        "TRUNCATE": partial(write, "TRUNCATE TABLE {}"),
        "ADD COLUMN": partial(write, "ALTER TABLE {} ADD COLUMN extra bigint"),
        "optimize": partial(write, "ALTER TABLE {} EXECUTE optimize"),
        "expire_snapshots": partial(write, "ALTER TABLE {} EXECUTE expire_snapshots(retention_threshold => '7d')"),
        "DROP TABLE": partial(write, "DROP TABLE {}"),
        "remove_orphan_files": partial(
            write, "ALTER TABLE {} EXECUTE remove_orphan_files(retention_threshold => '7d')"
        ),
    }


def spark() -> dict[str, Write]:
    from engine_readers import spark_session

    session = spark_session()

    def iceberg(sql: str, path: str) -> object:
        warehouse, database, table = path.rsplit("/", 2)
        session.conf.set("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        session.conf.set("spark.sql.catalog.lake.type", "hadoop")
        session.conf.set("spark.sql.catalog.lake.warehouse", f"file://{warehouse}")
        return session.sql(sql.format(f"lake.{database}.`{table}`")).collect()

    def delta(sql: str, path: str) -> object:
        return session.sql(sql.format(f"delta.`{path}`")).collect()

    return {
        "Iceberg INSERT": partial(iceberg, f"INSERT INTO {{}} (id, ts, fare, note) VALUES {ROW}"),
        "Iceberg DELETE": partial(iceberg, "DELETE FROM {} WHERE id = 'k003'"),
        "Iceberg DELETE all": partial(iceberg, "DELETE FROM {}"),
        "Iceberg ADD COLUMN": partial(iceberg, "ALTER TABLE {} ADD COLUMN extra bigint"),
        "Delta INSERT": partial(delta, f"INSERT INTO {{}} (id, ts, fare, note) VALUES {ROW}"),
        "Delta UPDATE": partial(delta, "UPDATE {} SET fare = 0 WHERE id = 'k003'"),
        "Delta DELETE": partial(delta, "DELETE FROM {} WHERE id = 'k003'"),
        "Delta OPTIMIZE": partial(delta, "OPTIMIZE {}"),
        "Delta VACUUM": partial(delta, "VACUUM {}"),
        "Delta ADD COLUMN": partial(delta, "ALTER TABLE {} ADD COLUMN extra bigint"),
    }


def flink() -> dict[str, Write]:
    import flink_query

    environment = flink_query.start()

    def write(sql: str, path: str) -> object:
        warehouse, database, table = path.rsplit("/", 2)
        properties = f"'type'='iceberg', 'catalog-type'='hadoop', 'warehouse'='file://{warehouse}'"
        environment.execute_sql(f"CREATE CATALOG IF NOT EXISTS lake WITH ({properties})")
        return environment.execute_sql(sql.format(f"lake.`{database}`.`{table}`")).wait()

    insert = "INSERT INTO {} (id, ts, fare, note) VALUES " + ROW
    return {
        "INSERT": partial(write, insert),
        "ADD COLUMN": partial(write, "ALTER TABLE {} ADD extra BIGINT"),
    }


def pyiceberg() -> dict[str, Write]:
    import pyarrow as pa
    from pyiceberg.catalog import load_catalog
    from pyiceberg.table import Table

    folder = tempfile.mkdtemp()
    catalog = load_catalog("test", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("lake")

    def on_table(write: Callable[[Table], object], path: str) -> object:
        name = f"lake.{Path(path).name}"
        return write(catalog.register_table(name, f"file://{newest_metadata(path)}"))

    def append(table: Table) -> object:
        return table.append(pa.table({"id": ["new"], "ts": [9], "fare": [9.0], "note": ["note"]}))

    def add_column(table: Table) -> object:
        from pyiceberg.types import LongType

        with table.update_schema() as update:
            return update.add_column("extra", LongType())

    return {
        "append": partial(on_table, append),
        "delete": partial(on_table, lambda table: table.delete("id = 'k003'")),
        "delete all": partial(on_table, lambda table: table.delete()),
        "add column": partial(on_table, add_column),
    }


def deltalake() -> dict[str, Write]:
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    row = pa.table({"id": ["new"], "ts": [9], "fare": [9.0], "note": ["note"]})
    return {
        "append": lambda path: write_deltalake(path, row, mode="append", schema_mode="merge"),
        "overwrite": lambda path: write_deltalake(path, row, mode="overwrite", schema_mode="overwrite"),
        "update": lambda path: DeltaTable(path).update(updates={"fare": "0"}, predicate="id = 'k003'"),
        "delete": lambda path: DeltaTable(path).delete("id = 'k003'"),
        "optimize": lambda path: DeltaTable(path).optimize.compact(),
        "vacuum": lambda path: DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False),
    }


WRITERS: dict[str, Callable[[], dict[str, Write]]] = {
    "trino": trino,
    "spark": spark,
    "flink": flink,
    "pyiceberg": pyiceberg,
    "deltalake": deltalake,
}


def _outcome(write: Write, path: str) -> str:
    try:
        write(path)
    except Exception as problem:
        print(path, " ".join(str(problem).split())[:500], file=sys.stderr)
        return "refused"
    return "done"


if __name__ == "__main__":
    engine, paths, output = sys.argv[1:]
    writes = zip(WRITERS[engine]().items(), json.loads(Path(paths).read_text()), strict=False)
    results = {statement: [_outcome(write, path), path] for (statement, write), path in writes}
    Path(output).write_text(json.dumps(results))
