"""What a Hive metastore, or Glue, has of a Hudi table: an entry with its partitions, in one form for both."""

from __future__ import annotations

import json
from typing import Any

from pyiceberg.catalog import Catalog

VOLATILE = ("transient_lastDdlTime", "totalSize", "numFiles", "hudi_writer_version")
"""Parameters that a metastore adds by itself, or a sync says of itself."""
_PART = "spark.sql.sources.schema.part."


def entry(catalog: Catalog, name: str, database: str = "lake") -> dict[str, Any]:
    """columns, keys, location, formats, serde and its parameters; parameters without `VOLATILE` and Spark's
    description, which is `spark`, with its parts in `parts`; partitions: values -> [location, columns, input format].
    """
    return _in_glue(catalog, database, name) if hasattr(catalog, "glue") else _in_hive(catalog, database, name)


def names(catalog: Catalog, database: str = "lake") -> list[str]:
    """The names of all entries, whatever they are."""
    if hasattr(catalog, "glue"):
        return sorted(one["Name"] for one in catalog.glue.get_tables(DatabaseName=database)["TableList"])
    with catalog._client as client:
        return sorted(client.get_all_tables(database))


def drop(catalog: Catalog, name: str, database: str = "lake") -> None:
    """Take an entry out of the catalog."""
    if hasattr(catalog, "glue"):
        catalog.glue.delete_table(DatabaseName=database, Name=name)
        return
    with catalog._client as client:
        client.drop_table(database, name, False)


def _in_hive(catalog: Catalog, database: str, name: str) -> dict[str, Any]:
    with catalog._client as client:
        table = client.get_table(database, name)
        partitions = client.get_partitions(database, name, -1) if table.partitionKeys else []
    sd = table.sd
    return {
        "type": table.tableType,
        "columns": [(one.name, one.type) for one in sd.cols],
        "keys": [(one.name, one.type) for one in table.partitionKeys],
        "location": sd.location,
        "formats": (sd.inputFormat, sd.outputFormat, sd.serdeInfo.serializationLib),
        "serde": dict(sd.serdeInfo.parameters),
        "partitions": {
            tuple(one.values): [one.sd.location, [(c.name, c.type) for c in one.sd.cols], one.sd.inputFormat]
            for one in partitions
        },
        **_parameters(table.parameters),
    }


def _in_glue(catalog: Any, database: str, name: str) -> dict[str, Any]:
    table = catalog.glue.get_table(DatabaseName=database, Name=name)["Table"]
    partitions = catalog.glue.get_partitions(DatabaseName=database, TableName=name)["Partitions"]
    sd = table["StorageDescriptor"]
    return {
        "type": table["TableType"],
        "columns": _glue_columns(sd),
        "keys": [(one["Name"], one["Type"]) for one in table["PartitionKeys"]],
        "location": sd["Location"],
        "formats": (sd["InputFormat"], sd["OutputFormat"], sd["SerdeInfo"]["SerializationLibrary"]),
        "serde": sd["SerdeInfo"]["Parameters"],
        "partitions": {
            tuple(one["Values"]): [
                one["StorageDescriptor"]["Location"],
                _glue_columns(one["StorageDescriptor"]),
                one["StorageDescriptor"]["InputFormat"],
            ]
            for one in partitions
        },
        **_parameters(table["Parameters"]),
    }


def _glue_columns(descriptor: Any) -> list[tuple[str, str]]:
    return [(one["Name"], one["Type"]) for one in descriptor["Columns"]]


def _parameters(found: dict[str, str]) -> dict[str, Any]:
    parts = {int(key.removeprefix(_PART)): text for key, text in found.items() if key.startswith(_PART)}
    ordered = [parts[number] for number in sorted(parts)]
    kept = {key: text for key, text in found.items() if not key.startswith(_PART) and key not in VOLATILE}
    return {"parameters": kept, "parts": [len(text) for text in ordered], "spark": json.loads("".join(ordered))}
