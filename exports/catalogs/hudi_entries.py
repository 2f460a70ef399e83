"""Metastore entries of a Hudi table.

The metastore is a Hive metastore or AWS Glue. A copy-on-write table has one entry. A merge-on-read table has three:
`<name>` and `<name>_rt` show its rows, and `<name>_ro` shows its base files. Other modules write the entries to a
catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from hoodoo.errors import UnsupportedTable
from hoodoo.exports.catalogs.hive_schema import create_spark_parameters, hive_types_by_column
from hoodoo.format.keys import split_partition_path
from hoodoo.format.names import instant_of_ms
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import View

BASE_FILES = "org.apache.hudi.hadoop.HoodieParquetInputFormat"
WITH_LOGS = "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat"
OUTPUT_FORMAT = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
REQUESTED, COMPLETED = "last_commit_time_sync", "last_commit_completion_time_sync"
"""Parameters of a metastore entry that contain the newest commit that it describes."""
SPARKS = "spark.sql.sources."
"""Prefix of the entry parameters that Spark reads."""
Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class WantedEntry:
    """Desired content of one metastore entry.

    Attributes:
        suffix: The suffix of the entry's name, such as '_ro'.
        location: The location of the table.
        columns: Names and types of Hudi's meta columns and of the table's columns, without partition columns.
        keys: Names and types of the partition columns.
        input_format: The Java class with which Hive reads files.
        serde: Parameters of the Java class with which Hive reads rows.
        parameters: Parameters of the entry.
    """

    suffix: str
    location: str
    columns: Columns
    keys: Columns
    input_format: str
    serde: Mapping[str, str]
    parameters: Mapping[str, str]


def create_metastore_entries(config: TableConfig, view: View, location: str) -> list[WantedEntry]:
    """Create the metastore entries of a table.

    Raises:
        SchemaError: Column names differ only in case.
        UnsupportedTable: The partition folders do not contain the values of the partition columns.
    """
    if config.partition_by and not config.folders_contain_partition_values:
        raise UnsupportedTable(
            "The partition folders of this table do not contain the values of its partition columns, because Apache "
            f"Hudi's key generator {config.key_generator or '(unknown)'} created them. Register the table with Hudi's "
            "own sync, and a partition extractor for this key generator.",
            property="hoodie.table.keygenerator.type",
        )
    inner = [field for field in config.file_schema if field.name not in config.partition_by]
    outer = [config.schema.field(name) for name in config.partition_by]
    all_columns = hive_types_by_column([*inner, *outer])
    columns, keys = all_columns[: len(inner)], all_columns[len(inner) :]
    parameters = {
        "EXTERNAL": "TRUE",
        **create_spark_parameters(pa.schema([*inner, *outer]), config.partition_by),
        REQUESTED: view.told or view.instant,
        COMPLETED: instant_of_ms(view.completed_at),
    }

    def entry(suffix: str, input_format: str, read_optimized: bool) -> WantedEntry:
        serde = {
            "serialization.format": "1",
            "path": location,
            "hoodie.query.as.ro.table": str(read_optimized).lower(),
        }
        return WantedEntry(suffix, location, columns, keys, input_format, serde, parameters)

    if not config.merge_on_read:
        return [entry("", BASE_FILES, read_optimized=False)]
    return [
        entry("_ro", BASE_FILES, read_optimized=True),
        entry("_rt", WITH_LOGS, read_optimized=False),
        entry("", WITH_LOGS, read_optimized=False),
    ]


def partitions_of(config: TableConfig, view: View, location: str) -> dict[tuple[str, ...], str]:
    return {
        split_partition_path(path, config.partition_by, config.hive_style, config.url_encode): f"{location}/{path}"
        for path in view.partitions
        if config.partition_by
    }
