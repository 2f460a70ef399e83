"""Creation of tables."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from hoodoo.arguments import check_allowed_value, check_flag, convert_names
from hoodoo.errors import OptionError, TableExists
from hoodoo.format.avro.schema import normalize_schema
from hoodoo.format.keys import check_key_columns
from hoodoo.format.name_mapping import NameMapping, original_names_by_id, replace_invalid_names
from hoodoo.format.table_schema import TableSchema
from hoodoo.hints import takes
from hoodoo.readers.predicate import checks as row_checks
from hoodoo.redact import printable
from hoodoo.storage.store import Store
from hoodoo.storage.store_of_path import open_store
from hoodoo.table.given_schema import SchemaLike, convert_schema
from hoodoo.table.table import Table
from hoodoo.timeline.environment import SYSTEM
from hoodoo.timeline.properties import hoodie_properties, original_names, table_options, transform_properties
from hoodoo.timeline.properties.check_properties import to_properties
from hoodoo.timeline.properties.config import COPY_ON_WRITE, MERGE_ON_READ, TableConfig
from hoodoo.timeline.properties.hoodie_properties import CHANGE_LOGS
from hoodoo.timeline.properties.nesting import require_no_inner_table, require_no_outer_table

if TYPE_CHECKING:
    from hoodoo.table.partitioning import PartitionBy

_TYPES = (MERGE_ON_READ, COPY_ON_WRITE)
_RENAMES = ("snake",)
_IF_EXISTS = ("error", "open")


@takes
def create(
    path: str | os.PathLike[str],
    schema: SchemaLike,
    *,
    key: str | Sequence[str],
    partition_by: PartitionBy | None = None,
    order_by: str | Sequence[str] | None = None,
    type: str = MERGE_ON_READ,
    storage: Mapping[str, object] | None = None,
    name: str | None = None,
    change_log: str | None = None,
    checks: Mapping[str, str] | None = None,
    allow_moving_keys: bool = False,
    rename: str | None = None,
    if_exists: str = "error",
    **options: object,
) -> Table:
    """Create a table and open it.

    Args:
        path: The location of the table: a local folder, such as 'data/trips', or 's3://bucket/prefix'. The folder is
            created if it does not exist.
        schema: The columns: a pyarrow Schema, a Spark StructType, a dict of names and types such as {"id": "string",
            "price": "decimal(10, 2)"}, a string such as "id string, ts bigint", or sample rows in any form that
            `upsert` accepts. Sample rows are not written. A column of a pyarrow Schema with nullable=False rejects
            nulls. The nullable flags of a StructType are ignored, because Spark derives them from its query plan.
        key: The column or columns whose values identify a row within its partition.
        partition_by: The column or columns whose values determine the partition of a row. A transform such as
            `hoodoo.day("ts")` adds a column, here `ts_day`. Every write fills or checks it. Reads with a condition on
            `ts` then skip partitions. None (default): the table is not partitioned.
        order_by: The column or columns that decide which version of a key is newer: the larger value wins. Several
            columns are compared in the given order, and each one breaks ties of the previous ones. None (default): the
            later write wins.
        type: 'merge_on_read' (default) makes writes cheap, 'copy_on_write' makes reads cheap.
        storage: Store options, see `open`. None (default): no options.
        name: The table name in the table properties: 1 to 100 letters, digits and `_`. None (default): the last part of
            the path, with each invalid character replaced by `_`.
        change_log: The content of Hudi's change log, which Hudi's change queries read: 'before_after', 'before' or
            'keys' of each changed row. It costs one more file for each rewritten base file. None (default): no change
            log.
        checks: The conditions that rows must satisfy, by check name, in the syntax of `where`; for example
            {"fare_not_negative": "fare >= 0"}. See `Table.set_checks`. None (default): no checks.
        allow_moving_keys: True allows a transform of an `order_by` column in `partition_by`. A key then has one row in
            each partition that its versions belong to. Default False.
        rename: 'snake' renames columns whose names are invalid in Avro to snake case: "Order ID" becomes order_id. The
            table remembers the original name. Both names are accepted in batches, in `columns`, in `where` (quoted:
            "Order ID" = 5), in schema changes and in the arguments of this call. `scan(names="original")` returns the
            original names. None (default): invalid names raise an error that lists all of them.
        if_exists: 'error' (default) raises TableExists if there is a table at the path. 'open' opens that table, and
            ignores `schema` and `options`. The key, the partitions, `order_by` and `type` of the table must match the
            arguments.
        **options: Table options by name. `Options` describes each.

    Returns:
        The new table, which is empty. Or, with if_exists='open', the existing table.

    Warns:
        UserWarning: A partition column is a timestamp, so every distinct timestamp gets its own folder.

    Raises:
        SchemaError: The schema cannot be stored without loss. Or `key`, `partition_by` or `order_by` names a column
            that is missing, repeated or of an unsupported type. Or the schema already has the column that a transform
            adds.
        OptionError: An argument or an option has an invalid value, an option is unknown, or a transform uses an
            `order_by` column.
        PredicateError: A check cannot be parsed or does not match the columns.
        TableExists: There is already a table at the path. With if_exists='open': its key, partitions, order or type
            differ from the arguments.
        NestedTable: The path is inside another table, or another table is inside the path.
        StoreRefused: The store does not support the operations that commits need, or the path is on a network file
            system.
        BucketNotFound: The bucket does not exist.
        CredentialsError: The store rejects the credentials, or no credentials are available.
    """
    from hoodoo.compactor.cleaning import retention
    from hoodoo.storage.probe import require_safe_store
    from hoodoo.table.partitioning import Partitioning
    from hoodoo.timeline import create_table

    check_allowed_value("type", type, _TYPES)
    check_allowed_value("if_exists", if_exists, _IF_EXISTS)
    if change_log is not None:
        check_allowed_value("change_log", change_log, tuple(CHANGE_LOGS))
    keys, partitioning = convert_names("key", key), Partitioning.parse(partition_by)
    partitions = partitioning.columns
    orders = convert_names("order_by", order_by)
    if not keys:
        raise OptionError("Option key must contain at least one column.", option="key")
    given, rows = convert_schema(schema, key)
    declared = given
    if rename is not None:
        check_allowed_value("rename", rename, _RENAMES)
        declared = pa.schema(replace_invalid_names(given))
        said = _name_mapping(given, normalize_schema(declared))
        keys, orders, partitioning = said.names(keys), said.names(orders), partitioning.with_names(said.names)
        partitions = partitioning.columns
        checks = said.checks(checks)
    fitted = normalize_schema(partitioning.with_columns(normalize_schema(declared)))
    check_key_columns(fitted, keys, partitions, orders)
    partitioning.require_partition_not_ordered(orders, check_flag("allow_moving_keys", allow_moving_keys))
    for text in partitioning.folder_count_warnings(fitted, lambda name: _get_values(rows, given, declared, name)):
        warnings.warn(text, UserWarning, stacklevel=3)  # skip the frame of the argument check
    chosen = retention.check_partition_ttl(table_options.validate_new_options(options), partitions)
    held = {check.name: check.text for check in row_checks.parse_checks({} if checks is None else checks, fitted)}
    store = open_store(path, storage)
    properties = hoodie_properties.create_properties(
        _table_name(name, store),
        fitted,
        keys,
        partitions,
        orders,
        type,
        chosen,
        change_log,
        tuple(field.name for field in declared if not field.nullable),
    )
    properties |= to_properties(held)
    properties |= original_names.to_properties(_name_mapping(given, fitted).originals)
    properties |= transform_properties.to_properties(partitioning.transforms, TableSchema.first(fitted))
    if if_exists == "open" and create_table.exists(store):
        return _open_existing(store, properties)
    require_no_outer_table(store)
    require_no_inner_table(store)
    require_safe_store(store)
    try:
        create_table.create_table(store, properties, SYSTEM)
    except TableExists:
        if if_exists == "open" and create_table.exists(store):  # another process created it at the same time
            return _open_existing(store, properties)
        raise
    table = Table(store)
    table._created = True
    return table


def _open_existing(store: Store, properties: Mapping[str, str]) -> Table:
    """Open the existing table instead of creating it.

    Raises:
        TableExists: The key, partitions, order or type of the table differ from those in `properties`.
    """
    table, wanted = Table(store), hoodie_properties.parse_config(properties)
    there = table.handle.config
    for name in ("key", "partition_by", "order_by", "type"):
        found, expected = getattr(there, name), getattr(wanted, name)
        if found != expected or name == "partition_by" and _transform_texts(there) != _transform_texts(wanted):
            raise TableExists(
                f"The table at {store.uri} has {name} {_for_error(there, found)}: expected "
                f"{_for_error(wanted, expected)}. Pass its {name}, or choose another path.",
                path=store.uri,
                option=name,
            )
    return table


def _transform_texts(config: TableConfig) -> dict[str, str]:
    return {name: str(transform) for name, transform in config.transforms.items()}


def _for_error(config: TableConfig, value: str | tuple[str, ...]) -> str:
    if isinstance(value, str):
        return repr(value)
    names = [_transform_texts(config).get(name, name) for name in value]
    return repr(names[0]) if len(names) == 1 else repr(names) if names else "None"


def _name_mapping(given: pa.Schema, schema: pa.Schema) -> NameMapping:
    columns = TableSchema.first(schema).columns
    return NameMapping(columns, original_names_by_id(given, columns))


def _table_name(name: str | None, store: Store) -> str:
    if name is not None and not isinstance(name, str):
        raise OptionError(f"Option name must be a string, got {printable(name)}.", option="name")
    text = name or re.sub(r"[^A-Za-z0-9_]", "_", store.uri.rstrip("/").rpartition("/")[2]) or "table"
    if not re.fullmatch(r"[A-Za-z_0-9]{1,100}", text):
        raise OptionError(
            f"name may contain only letters, digits and _, at most 100 characters, got {printable(text)}.",
            option="name",
        )
    return text if not text[0].isdigit() else f"t_{text}"


def _get_values(rows: pa.Table | None, given: pa.Schema, declared: pa.Schema, name: str) -> pa.ChunkedArray | None:
    """Return the values of a column in the sample rows.

    Args:
        rows: The sample rows that were passed to `create` as the schema, or None.
        given: The schema of the sample rows.
        declared: The schema with the same columns in the same order, after renaming.
        name: The new name of the column.

    Returns:
        The values, or None without sample rows or if `declared` lacks the column.
    """
    at = declared.get_field_index(name)
    return None if rows is None or at < 0 else rows.column(rows.schema.get_field_index(given.field(at).name))


__all__ = ["create"]
