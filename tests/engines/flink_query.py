"""Queries of Flink, whose rows are written as JSON, because PyFlink cannot return all types. Runs without hoodoo."""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import struct
import subprocess
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_SETTINGS = {
    "parallelism.default": "1",
    "table.local-time-zone": "UTC",
    "rest.bind-address": "127.0.0.1",
    "rest.address": "127.0.0.1",
    "rest.bind-port": "0",
}


def start() -> Any:
    """Return a table environment for batches, whose class path has the jars of Iceberg."""
    jars = sorted(str(jar) for jar in (ROOT / ".jars/engine-flink").glob("*.jar"))
    java_home = subprocess.run([ROOT / "tools/java.sh"], check=True, stdout=subprocess.PIPE, text=True).stdout
    os.environ.update(HADOOP_CLASSPATH=os.pathsep.join(jars), JAVA_HOME=java_home.strip())
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, TableEnvironment

    configuration = Configuration()
    for name, value in _SETTINGS.items():
        configuration.set_string(name, value)
    settings = EnvironmentSettings.new_instance().in_batch_mode().with_configuration(configuration)
    return TableEnvironment.create(settings.build())


def query(environment: Any, sql: str) -> list[dict[str, Any]]:
    """Run a query, and return its rows."""
    table = environment.sql_query(sql)
    schema = table._j_table.getResolvedSchema()
    types = {str(column.getName()): column.getDataType().getLogicalType() for column in schema.getColumns()}
    columns = ", ".join(f"`{name}` {type.copy(True).asSerializableString()}" for name, type in types.items())
    with tempfile.TemporaryDirectory() as folder:
        environment.execute_sql(
            f"CREATE TEMPORARY TABLE rows_as_json ({columns}) WITH ('connector'='filesystem', "
            f"'path'='file://{folder}/rows', 'format'='json', 'json.timestamp-format.standard'='ISO-8601', "
            "'json.encode.decimal-as-plain-number'='true')"
        )
        table.execute_insert("rows_as_json").wait()
        environment.execute_sql("DROP TEMPORARY TABLE rows_as_json")
        lines = [line for file in Path(folder, "rows").glob("*") for line in file.read_text().splitlines()]
    rows = [json.loads(line, parse_float=Decimal) for line in lines]
    return [{name: _value(row.get(name), type) for name, type in types.items()} for row in rows]


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "BinaryType": base64.b64decode,
    "DateType": dt.date.fromisoformat,
    "DecimalType": Decimal,
    "DoubleType": float,
    "FloatType": lambda value: struct.unpack("f", struct.pack("f", float(value)))[0],
    "LocalZonedTimestampType": dt.datetime.fromisoformat,
    "TimestampType": dt.datetime.fromisoformat,
    "VarBinaryType": base64.b64decode,
}
"""Functions that convert a value in JSON, by the class of its type in Flink."""


def _value(value: Any, type: Any) -> Any:
    """Convert a value in JSON to a Python value of a type of Flink."""
    if value is None:
        return None
    kind = type.getClass().getSimpleName()
    if kind == "RowType":
        return {field.getName(): _value(value.get(field.getName()), field.getType()) for field in type.getFields()}
    if kind == "ArrayType":
        return [_value(item, type.getElementType()) for item in value]
    if kind == "MapType":
        return {key: _value(item, type.getValueType()) for key, item in value.items()}
    return _CONVERSIONS.get(kind, lambda value: value)(value)
