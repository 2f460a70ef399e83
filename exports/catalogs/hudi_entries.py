"""What a metastore's entries of a table say, as Apache Hudi's own sync makes them: a copy-on-write table has one entry,
a merge-on-read table three, of which `<name>` and `<name>_rt` show its rows and `<name>_ro` its base files.

It knows a table and what its entries say. How a catalog is told, it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from hoodoo.errors import UnsupportedTable
from hoodoo.exports.catalogs.hive_schema import hive_columns, spark_parameters
from hoodoo.format.keys import partition_texts
from hoodoo.format.names import instant_of_ms
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import View

BASE_FILES = "org.apache.hudi.hadoop.HoodieParquetInputFormat"
WITH_LOGS = "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat"
OUTPUT_FORMAT = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
REQUESTED, COMPLETED = "last_commit_time_sync", "last_commit_completion_time_sync"
"""Parameters: up to which commit an entry describes the table."""
SPARKS = "spark.sql.sources."
"""How the names of the parameters begin that Spark reads."""
Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class WantedEntry:
    """One entry of a table, as it is to be.

    Attributes:
        suffix: What stands behind the table's name in the catalog.
        location: Where the table is.
        columns: Names and types of Hudi's meta columns and of the table's but for its partition columns.
        keys: Names and types of the partition columns.
        input_format: The class by which Hive reads files.
        serde: Parameters of the class by which Hive reads rows.
        parameters: Parameters of the entry.
    """

    suffix: str
    location: str
    columns: Columns
    keys: Columns
    input_format: str
    serde: Mapping[str, str]
    parameters: Mapping[str, str]


def entries_of(config: TableConfig, view: View, location: str) -> list[WantedEntry]:
    """Return the entries of a table, as of a view.

    Raises:
        SchemaError: Names of columns differ in case only.
        UnsupportedTable: The folders of partitions do not tell the values of the partition columns.
    """
    if config.partition_by and not config.folders_tell_values:
        raise UnsupportedTable(
            "The folders of this table's partitions do not tell the values of its partition columns: Apache Hudi's key "
            f"generator {config.key_generator or 'of it'} made them. Register it by Hudi's own sync, with the "
            "partition extractor that fits.",
            property="hoodie.table.keygenerator.type",
        )
    inner = [field for field in config.file_schema if field.name not in config.partition_by]
    outer = [config.schema.field(name) for name in config.partition_by]
    described = hive_columns([*inner, *outer])
    columns, keys = described[: len(inner)], described[len(inner) :]
    parameters = {
        "EXTERNAL": "TRUE",
        **spark_parameters(pa.schema([*inner, *outer]), config.partition_by),
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
    """Return the values of each partition with files, as text, and where it is. Raises CorruptTable."""
    return {
        partition_texts(path, config.partition_by, config.hive_style, config.url_encode): f"{location}/{path}"
        for path in view.partitions
        if config.partition_by
    }
