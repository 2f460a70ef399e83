"""Engines that run the demo: this process, or PySpark.

The job is the same on both engines.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import EngineError
from hoodoo.readers.output import Rows

_QUIET = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""  # log4j2; the gateway's own level keeps Spark from announcing that it sets one
Groups = dict[str, tuple[int, float | None]]


class DemoEngine(Protocol):
    """Interface of an engine that runs the demo."""

    name: str

    def frame(self, rows: pa.Table) -> Any:
        """Convert an Arrow table to the engine's input type."""

    def rows(self, scan: Rows) -> pa.Table:
        """Read all rows of a scan as an Arrow table."""

    def groups(self, scan: Rows, by: str) -> Groups:
        """Count rows and average arrival delays, grouped by a column.

        The mean is None for a group without arrival delays.
        """

    def stop(self) -> None:
        """Stop the engine, and delete its temporary files."""


class LocalDemoEngine:
    name = "this process"

    def frame(self, rows: pa.Table) -> pa.Table:
        return rows

    def rows(self, scan: Rows) -> pa.Table:
        return scan.to_arrow()

    def groups(self, scan: Rows, by: str) -> Groups:
        found = scan.to_arrow().group_by(by).aggregate([([], "count_all"), ("arr_delay", "mean")])
        return _groups(found[by], found["count_all"], found["arr_delay_mean"])

    def stop(self) -> None:
        pass  # nothing was started


def _groups(names: Any, counts: Any, means: Any) -> Groups:
    return dict(
        zip(
            names.to_pylist(),
            zip(counts.to_pylist(), pc.cast(means, pa.float64()).to_pylist(), strict=True),
            strict=True,
        )
    )


class SparkDemoEngine:
    """Engine that runs the demo on PySpark.

    Only a new session is stopped at the end.
    """

    def __init__(self) -> None:
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        from pyspark.sql import SparkSession

        self._folder = Path(tempfile.mkdtemp(prefix="hoodoo-demo-"))
        found = SparkSession.getActiveSession()
        try:
            self.session = found or self._start(SparkSession.builder)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._ours = found is None
        self.name = f"PySpark {self.session.version}"

    def _start(self, builder: Any) -> Any:
        # workers would start the first python3 on PATH
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        quiet = self._folder / "log4j2.properties"
        quiet.write_text(_QUIET)
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet.as_uri()}",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            "spark.local.dir": str(self._folder / "local"),
        }
        builder = builder.master("local[2]").appName("hoodoo demo")
        for name, value in settings.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()

    def frame(self, rows: pa.Table) -> Any:
        return self.session.createDataFrame(rows)

    def rows(self, scan: Rows) -> pa.Table:
        return scan.to_spark(self.session).toArrow()

    def groups(self, scan: Rows, by: str) -> Groups:
        from pyspark.sql import functions as f

        found = (
            scan.to_spark(self.session)
            .groupBy(by)
            .agg(f.count("*").alias("n"), f.avg("arr_delay").alias("mean"))
            .toArrow()
        )
        return _groups(found[by], found["n"], found["mean"])

    def stop(self) -> None:
        if self._ours:
            self.session.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def choose_engine(wanted: str) -> tuple[DemoEngine, str]:
    """Choose the engine of the demo.

    Args:
        wanted: 'auto' (Spark if it is available, otherwise this process), 'spark' or 'local'.

    Returns:
        The engine; and the reason why 'auto' does not use Spark, otherwise ''.

    Raises:
        EngineError: `wanted` is 'spark', and Spark is not available.
    """
    if wanted == "local":
        return LocalDemoEngine(), ""
    missing = _missing()
    if not missing:
        try:
            return SparkDemoEngine(), ""
        except Exception as problem:  # any error of PySpark or Java
            missing = (
                f"Spark did not start ({type(problem).__name__}: "
                f"{str(problem).splitlines()[0] if str(problem) else ''})"
            )
    if wanted == "spark":
        raise EngineError(f"{missing}. Run the demo with --engine local, which needs neither Java nor PySpark.")
    return LocalDemoEngine(), missing


def _missing() -> str:
    home = os.environ.get("JAVA_HOME")
    if not ((home and Path(home, "bin", "java").exists()) or shutil.which("java")):
        return "No Java runtime was found (JAVA_HOME, or java on PATH)"
    try:
        import pyspark  # noqa: F401  fails if PySpark is not installed
    except ImportError:
        return "PySpark is not installed (pip install 'pyspark>=4')"
    return ""
