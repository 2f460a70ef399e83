"""Trino server in the JVM of this process, with the catalogs `iceberg` and `hudi` for tables on S3.

The catalog `hudi` reads the entries of a Hive metastore, which `register` creates with hoodoo.
"""

from __future__ import annotations

import atexit
import os
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import jpype
from pyiceberg.catalog import load_catalog
from trino.dbapi import Connection
from trino.types import NamedRowTuple

import hoodoo

ROOT = Path(__file__).resolve().parents[2]
_JVM_OPTIONS = (
    "-Xmx1g",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "--add-modules=jdk.incubator.vector",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--enable-native-access=ALL-UNNAMED",
)


def start() -> tuple[str, Connection]:
    """Start a server on the loopback interface, and return its version and a connection to it."""
    java_home = subprocess.run([ROOT / "tools/java.sh", "25"], check=True, stdout=subprocess.PIPE, text=True).stdout
    jars = sorted((ROOT / ".jars/engine-trino").glob("*.jar"))
    jpype.startJVM(
        *_JVM_OPTIONS,
        jvmpath=f"{java_home.strip()}/lib/server/libjvm.so",
        classpath=[str(jar) for jar in jars],
    )
    session = jpype.JClass("io.trino.testing.TestingSession").testSessionBuilder().build()
    server = jpype.JClass("io.trino.testing.DistributedQueryRunner").builder(session).setWorkerCount(0).build()
    atexit.register(server.close)
    server.installPlugin(jpype.JClass("io.trino.plugin.iceberg.IcebergPlugin")())
    server.installPlugin(jpype.JClass("io.trino.plugin.hudi.HudiPlugin")())
    properties = jpype.JClass("java.util.HashMap")
    server.createCatalog("iceberg", "iceberg", properties(_iceberg_properties()))
    server.createCatalog("hudi", "hudi", properties(_s3_properties() | {"hive.metastore.uri": os.environ["METASTORE"]}))
    connection = Connection(host="127.0.0.1", port=server.getCoordinator().getBaseUrl().getPort(), user="test")
    return next(jar.stem.split("-")[-1] for jar in jars if jar.stem.startswith("trino-iceberg-")), connection


def register(path: str) -> None:
    """Create the entries of a Hudi table in the namespace `lake` of the metastore."""
    catalog = load_catalog("metastore", type="hive", uri=os.environ["METASTORE"])
    catalog.create_namespace_if_not_exists("lake")
    hoodoo.open(path).register(f"lake.{path.rsplit('/', 1)[1]}", catalog=catalog)


def _iceberg_properties() -> dict[str, str]:
    """Return the properties of a catalog whose entries are files in a new folder."""
    return _s3_properties() | {
        "iceberg.catalog.type": "TESTING_FILE_METASTORE",
        "hive.metastore.catalog.dir": "local:///metastore",
        "fs.local.enabled": "true",
        "local.location": tempfile.mkdtemp(),
        "iceberg.register-table-procedure.enabled": "true",
    }


def _s3_properties() -> dict[str, str]:
    """Return the properties of a catalog that reads the S3 server of the environment."""
    return {
        "fs.s3.enabled": "true",
        "s3.endpoint": os.environ["AWS_ENDPOINT_URL"],
        "s3.region": os.environ["AWS_REGION"],
        "s3.path-style-access": "true",
        "s3.aws-access-key": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.aws-secret-key": os.environ["AWS_SECRET_ACCESS_KEY"],
    }


def query(connection: Connection, sql: str) -> list[dict[str, Any]]:
    """Run a statement, and return its rows."""
    cursor = connection.cursor()
    cursor.execute(sql)
    rows = cursor.fetchall()
    columns = cursor.description or []
    return [{column[0]: _value(item, column[1]) for column, item in zip(columns, row, strict=True)} for row in rows]


def _value(value: Any, type: str = "") -> Any:
    """Convert rows to dicts, and values of the type real to single precision."""
    if type == "real" and value is not None:
        return struct.unpack("f", struct.pack("f", value))[0]
    if isinstance(value, NamedRowTuple):
        names = value.__annotations__["names"]
        return {name: _value(item) for name, item in zip(names, value, strict=True)}
    if isinstance(value, list):
        return [_value(item) for item in value]
    return value
