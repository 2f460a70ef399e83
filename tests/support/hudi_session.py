"""Apache Hudi itself: a Spark 3.5 session with its bundle, with Delta Lake and with Iceberg, and what Hudi reads and
writes there. Only for .venv-interop. `hudi_jars.py` fetches the jars.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hudi_jars import HUDI
from listed_jars import JarList
from pyspark.sql import DataFrame, SparkSession
from spark_settings import QUICK_JVM, local_settings

HUDI_EXTENSION = "org.apache.spark.sql.hudi.HoodieSparkSessionExtension"
DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
"""Without it, Spark passes over deletion vectors of Delta logs and shows dead rows."""
NO_METADATA_TABLE = {"hoodie.metadata.enable": "false"}


def creating(kind: str, **more: str) -> dict[str, str]:
    """Write options with which Hudi creates a table of `kind` with key id, partitions by city and ordering ts; more:
    further properties.
    """
    return NO_METADATA_TABLE | {
        "hoodie.table.name": "theirs",
        "hoodie.datasource.write.table.type": kind.upper(),
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.table.ordering.fields": "ts",
        **more,
    }


@contextmanager
def hudi_session(
    folder: Path, zone: str = "UTC", more: Mapping[str, str] | None = None, jars: JarList = HUDI
) -> Iterator[SparkSession]:
    """Start a session on two cores with Hudi's serializer and catalog and the SQL extensions of Hudi and Delta.

    Its scratch files are in `folder`. more: further settings.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["TZ"] = zone
    time.tzset()  # rows come back as local times
    settings = local_settings(folder, zone) | {
        "spark.jars": jars.class_path().replace(os.pathsep, ","),
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": f"{HUDI_EXTENSION},{DELTA_EXTENSION}",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.driver.extraJavaOptions": f"{QUICK_JVM} -Duser.timezone={zone} -Dderby.system.home={folder}",
        "spark.default.parallelism": "2",
        **(more or {}),
    }
    builder = SparkSession.builder.master("local[2]").appName("hoodoo interop")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def hudi_frame(
    spark: SparkSession,
    path: str | Path,
    *,
    as_of: str | None = None,
    begin: str | None = None,
    end: str | None = None,
    read_optimized: bool = False,
    options: Mapping[str, str] | None = None,
    vectorized: bool = True,
) -> DataFrame:
    """The table as Hudi reads it: its snapshot, as of a requested time, incremental over completion times `(begin,
    end]`, or base files only. vectorized: by Spark's default reader of Parquet.
    """
    chosen = dict(options or {})
    if as_of is not None:
        chosen["as.of.instant"] = as_of
    if begin is not None:
        chosen |= {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": begin}
    if end is not None:
        chosen["hoodie.datasource.read.end.instanttime"] = end
    if read_optimized:
        chosen["hoodie.datasource.query.type"] = "read_optimized"
    # Hudi's merging reads switch this off for the whole session, and so would hide a file that the vectorised reader
    # cannot read.
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", str(vectorized).lower())
    return spark.read.format("hudi").options(**chosen).load(str(path))


def hudi_rows(spark: SparkSession, path: str | Path, *columns: str, **how: Any) -> list[dict[str, Any]]:
    """Rows as dicts, sorted by `columns`' text; all data columns if none are named. `how`: see `hudi_frame`."""
    frame = hudi_frame(spark, path, **how)
    names = columns or [name for name in frame.columns if not name.startswith("_hoodie_")]
    return sorted(
        (row.asDict(recursive=True) for row in frame.select(*(f"`{name}`" for name in names)).collect()), key=repr
    )


def hudi_write(
    spark: SparkSession,
    path: str | Path,
    rows: DataFrame | Iterable[Any],
    schema: str | None = None,
    operation: str = "upsert",
    options: Mapping[str, str] | None = None,
) -> None:
    """One write by Hudi in one task; a table that exists needs no options. `rows` is a DataFrame, or tuples of the DDL
    `schema`.
    """
    frame = rows if isinstance(rows, DataFrame) else spark.createDataFrame(list(rows), schema)
    chosen = {"hoodie.datasource.write.operation": operation} | dict(options or {})
    frame.coalesce(1).write.format("hudi").options(**chosen).mode("append").save(str(path))
