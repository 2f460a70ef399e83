"""What every Spark session of the tests is set to: two cores, loopback only, no UI, nothing left outside its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of the JVM: tests run much code a few times, so that compiling it well takes longer than it saves."""


def local_settings(folder: Path, zone: str = "UTC") -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": zone,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }


def connect_settings() -> dict[str, str]:
    """Makes a session serve Spark Connect as well, on a port of its own choice (`connect_port`), so that both kinds are
    tested in one JVM.
    """
    return {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }


def connect_port(session: Any) -> int:
    """The port on which the JVM of a classic session serves Spark Connect."""
    service = session._jvm.java.lang.Class.forName("org.apache.spark.sql.connect.service.SparkConnectService$")
    return int(service.getField("MODULE$").get(None).localPort())  # a Scala object: its one instance
