"""Properties file of a table, `hoodie.properties`."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from functools import lru_cache

import pyarrow as pa

from hoodoo.errors import CorruptTable, TableNotFound, UnsupportedTable
from hoodoo.format import properties as java
from hoodoo.format.avro.schema import convert_to_arrow_schema, create_avro_schema
from hoodoo.format.log import change_log_block as change_logs
from hoodoo.format.log.change_log_block import change_log_mode
from hoodoo.format.names import META_COLUMNS
from hoodoo.format.table_schema import TableSchema
from hoodoo.storage.store import Store
from hoodoo.timeline.layout import PROPERTIES, PROPERTIES_BACKUP, SLOTS
from hoodoo.timeline.properties import table_options
from hoodoo.timeline.properties.config import BY_COMMIT, BY_EVENT, LAYOUT_OF, NOT_NULL, TableConfig
from hoodoo.timeline.properties.schema_history import SchemaHistory
from hoodoo.timeline.properties.table_options import Options

CHANGE_LOGS = {
    "before_after": change_logs.DATA_BEFORE_AFTER,
    "before": change_logs.DATA_BEFORE,
    "keys": change_logs.OP_KEY_ONLY,
}
"""Hudi's supplemental logging mode for each value of `create(change_log=...)`."""
READABLE_VERSIONS = ("6", "8", "9")
_MERGE_PROPERTY = "hoodie.record.merge.property."
_CHANGES_MERGING = ("hoodie.table.partial.update.mode", "hoodie.payload.delete.field", "hoodie.payload.delete.marker")
_PAYLOADS = {
    "DefaultHoodieRecordPayload": BY_EVENT,
    "EventTimeAvroPayload": BY_EVENT,
    "OverwriteWithLatestAvroPayload": BY_COMMIT,
}
"""Merge mode by supported payload class, for properties without a merge mode."""
_DATABASE = "default"


def create_properties(
    name: str,
    schema: pa.Schema,
    key: tuple[str, ...],
    partition_by: tuple[str, ...],
    order_by: tuple[str, ...],
    table_type: str,
    options: Options,
    change_log: str | None = None,
    not_null: tuple[str, ...] = (),
) -> dict[str, str]:
    """Create the properties of a new table.

    See docs/format.md 3.3. `change_log` is a key of CHANGE_LOGS, or None. `not_null` contains the non-nullable columns.
    """
    values = {
        "hoodie.table.name": name,
        "hoodie.database.name": _DATABASE,
        "hoodie.table.type": table_type.upper(),
        "hoodie.table.version": "9",
        "hoodie.table.initial.version": "9",
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "archived",
        "hoodie.table.recordkey.fields": ",".join(key),
        "hoodie.table.keygenerator.type": key_generator_for(key, partition_by),
        "hoodie.record.merge.mode": BY_EVENT if order_by else BY_COMMIT,
        "hoodie.table.create.schema": json.dumps(create_avro_schema(name, schema, False), separators=(",", ":")),
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.populate.meta.fields": "true",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "true",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.table.format": "native",
        "hoodie.table.checksum": java.checksum(_DATABASE, name),
    }
    if partition_by:
        values["hoodie.table.partition.fields"] = ",".join(partition_by)
    if order_by:
        values["hoodie.table.ordering.fields"] = ",".join(order_by)
    if not_null:
        values[NOT_NULL] = ",".join(not_null)
    if change_log:
        values |= {change_logs.ENABLED: "true", change_logs.MODE: CHANGE_LOGS[change_log]}
    return values | table_options.to_properties(options)


def key_generator_for(key: tuple[str, ...], partition_by: tuple[str, ...]) -> str:
    if not partition_by:
        return "NON_PARTITION"
    return "SIMPLE" if len(key) == 1 and len(partition_by) == 1 else "COMPLEX"


def with_settings(values: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in {**values, **settings}.items() if text or name not in settings}


def render(values: Mapping[str, str], now_ms: int) -> bytes:
    moment = dt.datetime.fromtimestamp(now_ms / 1000, dt.timezone.utc)
    return java.format_properties(values, moment.strftime("%a %b %d %H:%M:%S UTC %Y"))


def apply_settings(config: TableConfig, settings: Mapping[str, str], schemas: SchemaHistory) -> TableConfig:
    changed = parse_config(with_settings(config.raw, settings)) if settings else config
    return changed.with_schemas(schemas)


def load(store: Store) -> TableConfig:
    return parse_config(read_properties(store))


def read_properties(store: Store) -> dict[str, str]:
    """Read the table properties.

    The backup is used if the file is missing.

    Raises:
        TableNotFound: The table does not exist.
        CorruptTable: The properties are damaged, or both files of an existing table are missing.
    """
    for key in (PROPERTIES, PROPERTIES_BACKUP):
        try:
            values = java.parse_properties(store.get(key))
        except FileNotFoundError:
            continue
        java.check(values)
        return values
    if any(True for _ in store.list(SLOTS)):
        raise CorruptTable(
            f"File {PROPERTIES} of table {store.uri} is missing, but the table's commits exist. Restore the file from "
            "a backup. Do not create the table again.",
            file=PROPERTIES,
            path=store.uri,
        )
    raise TableNotFound(
        f"Path {store.uri} is not a table: it has no {PROPERTIES}. Check whether a table was deleted or moved, or "
        "create a table with hoodoo.create(path, schema, key=...).",
        path=store.uri,
    )


def parse_config(values: Mapping[str, str]) -> TableConfig:
    """Parse the table configuration from table properties.

    Raises CorruptTable if a property is missing, and UnsupportedTable if a property requires an unsupported feature.
    """
    return _parsed(tuple(values.items()))


@lru_cache(maxsize=64)  # properties are parsed on each access to a table, but rarely change
def _parsed(properties: tuple[tuple[str, str], ...]) -> TableConfig:
    values = dict(properties)
    _require_supported(values)
    order_text = values.get("hoodie.table.ordering.fields", values.get("hoodie.table.precombine.field", ""))
    order = tuple(name.strip() for name in order_text.split(",") if name.strip())
    # tables created by Spark have the schema only in commits
    schema = (
        convert_to_arrow_schema(values["hoodie.table.create.schema"])
        if "hoodie.table.create.schema" in values
        else pa.schema([])
    )
    config = TableConfig(
        name=values["hoodie.table.name"],
        type=values["hoodie.table.type"].lower(),
        key=tuple(name for name in values.get("hoodie.table.recordkey.fields", "").split(",") if name),
        partition_by=tuple(
            name.split(":")[0] for name in values.get("hoodie.table.partition.fields", "").split(",") if name
        ),
        order_by=order,
        merge_mode=values.get("hoodie.record.merge.mode") or _derive_merge_mode(values, bool(order)),
        created=TableSchema.first(own_columns(schema), values.get(NOT_NULL, "").split(",")),
        hive_style=values.get("hoodie.datasource.write.hive_style_partitioning", "false") == "true",
        url_encode=values.get("hoodie.datasource.write.partitionpath.urlencode", "false") == "true",
        options=table_options.from_properties(values),
        raw=values,
    )
    _require_known_key_encoding(config)
    return config


def _derive_merge_mode(values: Mapping[str, str], ordered: bool) -> str:
    # These are the rules of Hudi 1.2.
    return _PAYLOADS.get(_payload_of(values)) or (BY_EVENT if ordered else BY_COMMIT)


def _payload_of(values: Mapping[str, str]) -> str:
    return values.get("hoodie.compaction.payload.class", "").rpartition(".")[2]


def own_columns(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name not in META_COLUMNS])


def _require_supported(values: Mapping[str, str]) -> None:
    change_log_mode(values)
    for name in ("hoodie.table.name", "hoodie.table.type", "hoodie.table.version"):
        if name not in values:
            raise CorruptTable(
                f"Property {name} is missing in hoodie.properties. Restore the file from a backup.", property=name
            )
    version, layout = values["hoodie.table.version"], values.get("hoodie.timeline.layout.version")
    if version not in READABLE_VERSIONS:
        upgraded = (
            " Apache Hudi 1.3 and later upgrades a table when it writes to it. Downgrade the table to version 9 with "
            "Hudi's command line, and set hoodie.write.auto.upgrade=false and hoodie.write.table.version=9 in every "
            "Hudi writer."
        )
        newer = version.isdecimal() and int(version) > int(READABLE_VERSIONS[-1])
        raise UnsupportedTable(
            f"Hudi table version {version} is not supported: expected {', '.join(READABLE_VERSIONS[:-1])} or "
            f"{READABLE_VERSIONS[-1]}.{upgraded if newer else ''}",
            property="hoodie.table.version",
        )
    if layout not in (None, wanted := LAYOUT_OF.get(version, "2")):
        raise UnsupportedTable(
            f"Table property hoodie.timeline.layout.version={layout} is not supported: expected {wanted} in a table of "
            f"version {version}. Correct it with Hudi.",
            property="hoodie.timeline.layout.version",
        )
    if values.get("hoodie.bootstrap.base.path"):
        raise UnsupportedTable(
            "Table was bootstrapped: some of its rows are in another folder "
            f"(hoodie.bootstrap.base.path={values['hoodie.bootstrap.base.path']}), which hoodoo cannot read. "
            "Cluster or rewrite all partitions with Hudi.",
            property="hoodie.bootstrap.base.path",
        )
    if values.get("hoodie.record.merge.mode") not in (None, BY_EVENT, BY_COMMIT):
        raise UnsupportedTable(
            f"Record merge mode {values['hoodie.record.merge.mode']} is not supported: expected {BY_EVENT} or "
            f"{BY_COMMIT}."
        )
    _require_supported_merging(values)
    for name, wanted in (
        ("hoodie.table.base.file.format", "PARQUET"),
        ("hoodie.datasource.write.drop.partition.columns", "false"),
    ):
        if values.get(name, wanted).lower() != wanted.lower():
            raise UnsupportedTable(
                f"Table property {name}={values[name]} is not supported: expected {wanted}. Rewrite the table with "
                "Hudi.",
                property=name,
            )


def _require_known_key_encoding(config: TableConfig) -> None:
    # Hudi releases encode the record keys of deletes in two ways, and a table with virtual keys does not store them.
    if config.virtual_keys and config.merge_on_read and config.key_generator == "COMPLEX" and len(config.key) == 1:
        raise UnsupportedTable(
            "Table without meta columns (hoodie.populate.meta.fields=false) and with the complex key generator and "
            "one key column is not supported, because releases of Hudi encode its deleted keys differently. Copy it "
            "with Hudi to a table with meta columns.",
            property="hoodie.populate.meta.fields",
        )


def _require_supported_merging(values: Mapping[str, str]) -> None:
    for name, value in values.items():
        if value and (name in _CHANGES_MERGING or name.startswith(_MERGE_PROPERTY)):
            raise UnsupportedTable(
                f"Table property {name}={value} is not supported: hoodoo would merge rows differently from Apache "
                "Hudi. Read and write this table with Hudi.",
                property=name,
            )
    payload = values.get("hoodie.compaction.payload.class", "")
    if payload and _payload_of(values) not in _PAYLOADS:
        raise UnsupportedTable(
            f"Payload class {payload} is not supported: hoodoo would merge rows differently from Apache Hudi. Read and "
            "write this table with Hudi.",
            property="hoodie.compaction.payload.class",
        )
