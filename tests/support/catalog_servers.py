"""Catalogs as servers of their own, for tests: a Hive metastore, from the jars that pyspark brings, and Iceberg's own
REST catalog, whose jars Ivy fetches once. Both listen on the loopback interface, each as a small program in Java that
opens the server with a socket of its own.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from java_program import ROOT, java
from patience import PATIENCE_S, NotInTime

_HERE = Path(__file__).parent / "java"
_SPARK_JARS = next((ROOT / ".venv").glob("lib/python*/site-packages/pyspark/jars"), Path("pyspark is not installed"))
_REST_JARS = ROOT / ".jars" / "rest"


@contextmanager
def hive_metastore(folder: Path) -> Iterator[str]:
    """Its URI while it runs. folder: where its database and its warehouse lie."""
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": f"file://{folder}/warehouse",
        "hive.async.log.enabled": "false",
    }
    with _served("HiveMetastore.java", folder, [str(folder), f"{_SPARK_JARS}/*"], settings) as port:
        yield f"thrift://127.0.0.1:{port}"


@contextmanager
def rest_catalog(folder: Path) -> Iterator[str]:
    """Its URI while it runs. folder: where its database and its warehouse lie."""
    if not (_REST_JARS / "complete").exists():
        ivy = next(_SPARK_JARS.glob("ivy-*.jar"))
        pattern = f"{_REST_JARS}/[artifact]-[revision](-[classifier]).[ext]"
        fetched = [java(), "-jar", str(ivy), "-ivy", str(_HERE / "rest-ivy.xml"), "-cache", f"{ROOT}/.jars/ivy-rest"]
        subprocess.run([*fetched, "-retrieve", pattern, "-types", "jar", "bundle"], check=True, capture_output=True)
        (_REST_JARS / "complete").touch()
    settings = {"uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    with _served("RestCatalog.java", folder, [f"{_REST_JARS}/*"], settings) as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _served(program: str, folder: Path, classes: list[str], settings: Mapping[str, str]) -> Iterator[str]:
    """The port of a program that writes it into the file it is given, and then serves until it is killed."""
    told, log = folder / "port", folder / "log"
    given = [f"-D{name}={value}" for name, value in settings.items()]
    command = [
        java(),
        "-cp",
        ":".join(classes),
        *given,
        f"-Dderby.system.home={folder}",
        str(_HERE / program),
        str(told),
    ]
    with log.open("wb") as out:
        server = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not told.exists():
            if server.poll() is not None or time.monotonic() > deadline:
                raise NotInTime(f"{program} does not serve: {log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield told.read_text()
    finally:
        server.kill()
        server.wait()
