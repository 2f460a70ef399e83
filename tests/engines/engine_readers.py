"""Readers of one engine each, and the comparison of their rows with a manifest of tables.

Run in the environment of an engine: `python engine_readers.py ENGINE FOLDER RESULTS` reads the tables in FOLDER, which
`engine_tables.make_tables` wrote, and writes the JSON file RESULTS.
"""

from __future__ import annotations

import atexit
import datetime as dt
import importlib.metadata
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from engine_values import canonical_rows, difference

ROOT = Path(__file__).resolve().parents[2]
Rows = list[dict[str, Any]]
Read = Callable[[str, str | None, int | None], Rows]
"""Function that returns rows of the table at a path, with a filter in SQL, and of an older version or snapshot."""


@dataclass(frozen=True)
class Engine:
    """Engine under test.

    Attributes:
        version: The version, with the packages that it needs to read tables.
        readers: The readers by format: 'delta', 'iceberg', 'hudi', or 'hudi_base' for the base files of Hudi tables.
        limits: The keys of LIMITS that apply to the engine.
    """

    version: str
    readers: Mapping[str, Read]
    limits: tuple[str, ...] = ()


LIMITS = {
    "newest": "only the newest snapshot was read",
    "no filters": "filters were not tested",
    "local times": "timestamps without a time zone are read as UTC",
    "integer times": "the Hudi connector returns timestamps as integers, as Hive does",
    "null lists": "null lists and maps are read as empty ones",
    "null structs": "null structs are read as structs of nulls",
}
"""Differences between engines that are not faults of an export."""


def newest_metadata(path: str) -> str:
    """Return the newest metadata file of an Iceberg table."""
    folder = Path(path) / "metadata"
    return str(folder / f"v{(folder / 'version-hint.text').read_text()}.metadata.json")


def _version(package: str) -> str:
    return importlib.metadata.version(package)


def _arrow(table: Any) -> Rows:
    rows: Rows = table.to_pylist()
    return rows


def duckdb() -> Engine:
    import duckdb
    from duckdb_extensions import import_extension

    connection = duckdb.connect()
    for name in ("httpfs", "avro", "delta", "iceberg"):
        import_extension(name)
        connection.execute(f"LOAD {name}")
    connection.execute("SET TimeZone='UTC'")

    def select(scan: str, where: str | None) -> Rows:
        query = f"SELECT * FROM {scan} WHERE {where or 'true'}"
        return _arrow(connection.execute(query).to_arrow_table())

    def delta(path: str, where: str | None, version: int | None) -> Rows:
        return select(f"delta_scan('file://{path}'{f', version={version}' if version is not None else ''})", where)

    def iceberg(path: str, where: str | None, snapshot: int | None) -> Rows:
        return select(f"iceberg_scan('{path}'{f', snapshot_from_id={snapshot}' if snapshot else ''})", where)

    return Engine(f"DuckDB {_version('duckdb')}", {"delta": delta, "iceberg": iceberg})


def polars() -> Engine:
    import polars as pl

    def select(frame: Any, where: str | None) -> Rows:
        return _arrow((frame.filter(pl.sql_expr(where)) if where else frame).collect().to_arrow())

    def delta(path: str, where: str | None, version: int | None) -> Rows:
        return select(pl.scan_delta(path, version=version), where)

    def iceberg(path: str, where: str | None, snapshot: int | None) -> Rows:
        return select(pl.scan_iceberg(f"file://{newest_metadata(path)}", snapshot_id=snapshot), where)

    return Engine(f"Polars {_version('polars')}", {"delta": delta, "iceberg": iceberg})


def deltalake() -> Engine:
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    def delta(path: str, where: str | None, version: int | None) -> Rows:
        query = QueryBuilder().register("t", DeltaTable(path, version=version))
        return _arrow(pa.table(query.execute(f"SELECT * FROM t WHERE {where or 'true'}")))

    return Engine(f"deltalake {_version('deltalake')}", {"delta": delta})


def pyiceberg() -> Engine:
    from pyiceberg.table import StaticTable

    def iceberg(path: str, where: str | None, snapshot: int | None) -> Rows:
        table = StaticTable.from_metadata(f"file://{newest_metadata(path)}")
        scan = (
            table.scan(row_filter=where.replace("DATE ", ""), snapshot_id=snapshot)
            if where
            else table.scan(snapshot_id=snapshot)
        )
        return _arrow(scan.to_arrow())

    return Engine(f"PyIceberg {_version('pyiceberg')}", {"iceberg": iceberg}, ("null lists",))


def datafusion() -> Engine:
    from datafusion import SessionContext
    from pyiceberg_core.datafusion import IcebergDataFusionTable

    def iceberg(path: str, where: str | None, snapshot: int | None) -> Rows:
        table = IcebergDataFusionTable(
            identifier=("lake", "t"), metadata_location=f"file://{newest_metadata(path)}", file_io_properties={}
        )
        context = SessionContext()
        context.register_table("t", table)
        return _arrow(context.sql(f"SELECT * FROM t WHERE {where or 'true'}").to_arrow_table())

    return Engine(
        f"DataFusion {_version('datafusion')} (pyiceberg-core {_version('pyiceberg-core')})",
        {"iceberg": iceberg},
        ("newest",),
    )


def clickhouse() -> Engine:
    import chdb

    def select(function: str, path: str, where: str | None, setting: str) -> Rows:
        query = f"SELECT * FROM {function}('{path}') WHERE {where or 'true'}"
        settings = " SETTINGS output_format_arrow_string_as_string=0" + setting
        return [_decoded(row) for row in _arrow(chdb.query(query + settings, "ArrowTable"))]

    def delta(path: str, where: str | None, version: int | None) -> Rows:
        setting = "" if version is None else f", delta_lake_snapshot_version={version}"
        return select("deltaLakeLocal", path, where, setting)

    def iceberg(path: str, where: str | None, snapshot: int | None) -> Rows:
        setting = "" if snapshot is None else f", iceberg_snapshot_id={snapshot}"
        return select("icebergLocal", path, where, setting)

    version = str(chdb.query("SELECT version()", "TSV")).strip()
    return Engine(
        f"ClickHouse {version} (chdb {_version('chdb')})",
        {"delta": delta, "iceberg": iceberg},
        ("local times", "null lists", "null structs"),
    )


def _decoded(value: Any, name: str = "") -> Any:
    """Decode strings of ClickHouse, which are bytes. The tables have one column of bytes."""
    if isinstance(value, bytes):
        return value if name == "bytes" else value.decode()
    if isinstance(value, dict):
        return {key: _decoded(item, key) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_decoded(item) for item in value)
    return value


def sail() -> Engine:
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    atexit.register(server.stop)  # also keeps the server from being collected as garbage
    port = server.listening_address[1]
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return Engine(
        f"Sail (pysail {_version('pysail')})",
        {
            "delta": _spark_reader(spark, "delta", "versionAsOf"),
            "iceberg": _spark_reader(spark, "iceberg", "snapshotId"),
        },
    )


def _spark_reader(spark: Any, format: str, version: str) -> Read:
    """Return a reader by a Spark session. `version` is the option for an older version or snapshot."""

    def read(path: str, where: str | None, at: int | None) -> Rows:
        options = {} if at is None else {version: str(at)}
        frame = spark.read.format(format).options(**options).load(path)
        return _arrow((frame.where(re.sub(r"(?<=\w)''(?=\w)", r"\\'", where)) if where else frame).toArrow())

    return read


def spark_session() -> Any:
    """Return a session of Spark with the jars of Iceberg and Delta Lake."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": ",".join(_spark_jars()),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _spark_jars() -> list[str]:
    return sorted(str(jar) for jar in (ROOT / ".jars/engine-spark").glob("*.jar"))


def spark() -> Engine:
    session = spark_session()
    iceberg, delta = (
        next(_release(jar) for jar in _spark_jars() if name in Path(jar).name) for name in ("iceberg", "delta-spark")
    )
    return Engine(
        f"Spark {session.version} (Iceberg {iceberg}, Delta {delta})",
        {
            "delta": _spark_reader(session, "delta", "versionAsOf"),
            "iceberg": _spark_reader(session, "iceberg", "snapshot-id"),
        },
    )


def _release(jar: str) -> str:
    """Return the version in the file name of a jar."""
    return Path(jar).stem.rsplit("-", 1)[1]


def flink() -> Engine:
    import flink_query

    environment = flink_query.start()
    runtime = next((ROOT / ".jars/engine-flink").glob("iceberg-flink-runtime-*.jar"))
    warehouses: set[str] = set()

    def iceberg(path: str, where: str | None, snapshot: int | None) -> Rows:
        warehouse, database, table = path.rsplit("/", 2)
        if warehouse not in warehouses:
            properties = f"'type'='iceberg', 'catalog-type'='hadoop', 'warehouse'='file://{warehouse}'"
            environment.execute_sql(f"CREATE CATALOG iceberg WITH ({properties})")
            warehouses.add(warehouse)
        hint = f" /*+ OPTIONS('snapshot-id'='{snapshot}') */" if snapshot else ""
        condition = re.sub(r"\bday\b", "`day`", where or "true")  # a reserved word of Flink
        sql = f"SELECT * FROM iceberg.`{database}`.`{table}`{hint} WHERE {condition}"
        return flink_query.query(environment, sql)

    return Engine(f"Flink {_version('apache-flink')} (Iceberg {_release(str(runtime))})", {"iceberg": iceberg})


def daft() -> Engine:
    import daft
    from pyiceberg.table import StaticTable

    def select(frame: Any, where: str | None) -> Rows:
        return _arrow((frame.where(where) if where else frame).to_arrow())

    def delta(path: str, where: str | None, version: int | None) -> Rows:
        return select(daft.read_deltalake(path, version=version), where)

    def iceberg(path: str, where: str | None, snapshot: int | None) -> Rows:
        table = StaticTable.from_metadata(f"file://{newest_metadata(path)}")
        return select(daft.read_iceberg(table, snapshot_id=snapshot), where)

    return Engine(f"Daft {_version('daft')}", {"delta": delta, "iceberg": iceberg})


def hudi_rs() -> Engine:
    import pyarrow as pa
    from hudi import HudiTableBuilder

    def hudi(path: str, where: str | None, at: int | None) -> Rows:
        table = pa.Table.from_batches(HudiTableBuilder.from_base_uri(path).build().read())
        return _arrow(table)

    return Engine(f"hudi-rs (hudi {_version('hudi')})", {"hudi": hudi}, ("newest", "no filters"))


def trino() -> Engine:
    import trino_server

    version, connection = trino_server.start()
    registered: set[str] = set()

    def select(table: str, where: str | None) -> Rows:
        return trino_server.query(connection, f"SELECT * FROM {table} WHERE {where or 'true'}")

    def iceberg(path: str, where: str | None, snapshot: int | None) -> Rows:
        schema, table = path.split("/")[-2:]
        if path not in registered:
            trino_server.query(connection, f"CREATE SCHEMA IF NOT EXISTS iceberg.{schema}")
            entry = f"schema_name => '{schema}', table_name => '{table}', table_location => '{path}'"
            trino_server.query(connection, f"CALL iceberg.system.register_table({entry})")
            registered.add(path)
        return select(f"iceberg.{schema}.{table}" + (f" FOR VERSION AS OF {snapshot}" if snapshot else ""), where)

    def hudi_base(path: str, where: str | None, at: int | None) -> Rows:
        if path not in registered:
            trino_server.register(path)
            registered.add(path)
        table = path.rsplit("/", 1)[1]
        return select(f"hudi.lake.{table}" + ("_ro" if table.endswith("merge_on_read") else ""), where)

    return Engine(f"Trino {version}", {"iceberg": iceberg, "hudi_base": hudi_base}, ("integer times",))


ENGINES: dict[str, Callable[[], Engine]] = {
    "duckdb": duckdb,
    "polars": polars,
    "deltalake": deltalake,
    "pyiceberg": pyiceberg,
    "datafusion": datafusion,
    "clickhouse": clickhouse,
    "sail": sail,
    "daft": daft,
    "hudi_rs": hudi_rs,
    "spark": spark,
    "flink": flink,
    "trino": trino,
}


def results(engine: Engine, folder: Path) -> dict[str, Any]:
    """Read all tables of the manifest in `folder`.

    Returns:
        The version and the limits of the engine, the number of right outcomes by kind of case, and every other outcome
        by case.
    """
    tables = json.loads((folder / "manifest.json").read_text())
    outcomes = {case: outcome for table in tables for case, outcome in _cases(engine, table)}
    right = Counter(_kind(case) for case, outcome in outcomes.items() if outcome == "right")
    faults = {case: outcome for case, outcome in outcomes.items() if outcome != "right"}
    limits = [LIMITS[name] for name in engine.limits]
    return {"version": engine.version, "limits": limits, "right": dict(right), "faults": faults}


def _kind(case: str) -> str:
    """Return the format, the mode and the kind of a case, such as 'delta merged filter'."""
    format, mode, _, kind = case.split()[:4]
    return f"{format} {mode} {kind}"


def _cases(engine: Engine, table: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for format in sorted(engine.readers.keys() & set(table["formats"])):
        read = engine.readers[format]
        name, path = f"{format} {table['mode']} {table['name']}", table["path"]
        outcome = _outcome(engine, format, partial(read, path, None, None), table["rows"])
        yield f"{name} rows", outcome
        if outcome != "right":
            continue  # filters and snapshots of a table that cannot be read add nothing
        for where, keys in table["filters"].items() if "no filters" not in engine.limits else ():
            yield f"{name} filter {where}", _outcome_of_filter(partial(read, path, where, None), keys)
        for number, snapshot in enumerate(table["snapshots"] if "newest" not in engine.limits else ()):
            outcome = _outcome(engine, format, partial(read, path, None, snapshot[format]), snapshot["rows"])
            yield f"{name} snapshot {number}", outcome


def _outcome(engine: Engine, format: str, read: Callable[[], Rows], expected: Rows) -> str:
    try:
        rows = canonical_rows(read())
    except BaseException as problem:  # a panic of an engine in Rust is not an Exception
        return _refused(problem)
    wrong = difference(_adapted(engine, format, rows), _adapted(engine, format, expected))
    return f"wrong: {wrong}" if wrong else "right"


def _outcome_of_filter(read: Callable[[], Rows], keys: list[str]) -> str:
    try:
        found = sorted(str(row["id"]) for row in read())
    except BaseException as problem:
        return _refused(problem)
    return "right" if found == keys else f"wrong: {len(found)} rows instead of {len(keys)}"


def _refused(problem: BaseException) -> str:
    """Return the outcome for an exception of an engine. Raises the exception again if it ends the program."""
    if isinstance(problem, (KeyboardInterrupt, SystemExit)):
        raise problem
    print(" ".join(str(problem).split())[:1000], file=sys.stderr)
    return f"refused: {type(problem).__name__}"


def _adapted(engine: Engine, format: str, rows: Rows) -> Rows:
    """Replace the values that the engine cannot distinguish."""
    text = json.dumps(rows)
    if "integer times" in engine.limits and format == "hudi_base":
        text = re.sub(r'"(?:utc|local) ([^"]*)"', lambda match: str(_microseconds(match[1])), text)
    if "local times" in engine.limits:
        text = text.replace('"local ', '"utc ')
    if "null lists" in engine.limits:
        text = text.replace("[]", "null")
    adapted = json.loads(text, object_hook=_without_empty_structs if "null structs" in engine.limits else None)
    return sorted(adapted, key=repr)


def _microseconds(timestamp: str) -> int:
    """Return the microseconds since 1970 of a timestamp in ISO format."""
    return (dt.datetime.fromisoformat(timestamp) - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)


def _without_empty_structs(struct: dict[str, Any]) -> dict[str, Any] | None:
    return struct if any(value is not None for value in struct.values()) else None


if __name__ == "__main__":
    name, tables, output = sys.argv[1:]
    found = results(ENGINES[name](), Path(tables))
    Path(output).write_text(json.dumps(found))
