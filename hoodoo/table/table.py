"""Public API to create, open, describe and configure a table.

This module checks arguments and delegates the work. The base classes of `Table` define the methods for writes, reads,
maintenance, snapshots and exports. Each base class is in its own module.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from hoodoo.arguments import flag, names, one_of
from hoodoo.errors import OptionError, SchemaError, TableExists
from hoodoo.format.avro.schema import normalise
from hoodoo.format.keys import check_key_columns
from hoodoo.format.name_mapping import NameMapping, originals_of, with_allowed_names
from hoodoo.format.table_schema import TableSchema
from hoodoo.hints import TABLE, explained, hint_for, takes
from hoodoo.nearest import listed
from hoodoo.readers.cursor import Cursor, cursor_of
from hoodoo.readers.predicate import checks as row_checks
from hoodoo.redact import printable
from hoodoo.storage.store import Store
from hoodoo.storage.store_of_path import open_store
from hoodoo.table.exporting import Exportable
from hoodoo.table.handle import TableHandle
from hoodoo.table.maintenance import Maintained
from hoodoo.table.reading import Readable
from hoodoo.table.snapshots import Restorable
from hoodoo.table.writing import Writable
from hoodoo.timeline.environment import SYSTEM, Environment
from hoodoo.timeline.properties import hoodie_properties, original_names, table_options, transform_properties
from hoodoo.timeline.properties.check_properties import stored, to_properties
from hoodoo.timeline.properties.config import COPY_ON_WRITE, MERGE_ON_READ, TableConfig
from hoodoo.timeline.properties.hoodie_properties import CHANGE_LOGS
from hoodoo.timeline.properties.nesting import require_no_table_inside, require_place_of_its_own
from hoodoo.writers.batches.input import ArrowLike, to_arrow

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from hoodoo.table.altering import Alter
    from hoodoo.table.inspecting import Inspect
    from hoodoo.table.maintenance import Maintenance
    from hoodoo.table.partitioning import PartitionBy
    from hoodoo.table.quarantine import Quarantine
    from hoodoo.table.savepoints import Savepoints

SchemaLike: TypeAlias = "pa.Schema | StructType | Mapping[str, pa.DataType | type | str] | ArrowLike"
"""Columns of a table: a pyarrow or Spark schema, a dict of names and types such as {"id": int, "fare": "decimal(9,2)"},
a string such as "id string, ts bigint", or rows that have the columns.
"""
_TYPES = (MERGE_ON_READ, COPY_ON_WRITE)
_RENAMES = ("snake",)
_PYTHON_TYPES: dict[type, str] = {
    int: "bigint",
    float: "double",
    str: "string",
    bool: "boolean",
    bytes: "binary",
    dt.date: "date",
    dt.datetime: "timestamp",
    dt.time: "time",
}
"""Column types by Python type, for schemas such as {"id": int}."""
_IF_EXISTS = ("error", "open")
_LINE = 110  # maximum number of characters in a repr line


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
    from hoodoo.storage.probe import require_conforming
    from hoodoo.table.partitioning import Partitioning
    from hoodoo.timeline import create_table

    one_of("type", type, _TYPES)
    one_of("if_exists", if_exists, _IF_EXISTS)
    if change_log is not None:
        one_of("change_log", change_log, tuple(CHANGE_LOGS))
    keys, partitioning = names("key", key), Partitioning.of(partition_by)
    partitions = partitioning.columns
    orders = names("order_by", order_by)
    if not keys:
        raise OptionError("key must contain at least one column.", option="key")
    given, rows = _columns_of(schema, key)
    declared = given
    if rename is not None:
        one_of("rename", rename, _RENAMES)
        declared = pa.schema(with_allowed_names(given))
        said = _name_mapping(given, normalise(declared))
        keys, orders, partitioning = said.names(keys), said.names(orders), partitioning.with_names(said.names)
        partitions = partitioning.columns
        checks = said.checks(checks)
    fitted = normalise(partitioning.with_columns(normalise(declared)))
    check_key_columns(fitted, keys, partitions, orders)
    partitioning.require_lasting(orders, flag("allow_moving_keys", allow_moving_keys))
    for text in partitioning.many_folders(fitted, lambda name: _values(rows, given, declared, name)):
        warnings.warn(text, UserWarning, stacklevel=3)  # skip the frame of the argument check
    chosen = retention.check(table_options.with_options(options), partitions)
    held = {check.name: check.text for check in row_checks.parsed({} if checks is None else checks, fitted)}
    store = open_store(path, storage)
    properties = hoodie_properties.new_properties(
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
        return _opened(store, properties)
    require_place_of_its_own(store)
    require_no_table_inside(store)
    require_conforming(store)
    try:
        create_table.create(store, properties, SYSTEM)
    except TableExists:
        if if_exists == "open" and create_table.exists(store):  # another process created it at the same time
            return _opened(store, properties)
        raise
    table = Table(store)
    table._created = True
    return table


@takes
def open(
    path: str | os.PathLike[str],
    *,
    storage: Mapping[str, object] | None = None,
) -> Table:
    """Open an existing table.

    Args:
        path: The location of the table: a local folder or 's3://bucket/prefix'.
        storage: Store options by name. For S3: the strings `endpoint`, `region`, `access_key`, `secret_key` and
            `session_token`, and the boolean `allow_http`. For a local path: `allow_network_fs`; True accepts a file
            system that several machines share, which raises StoreRefused by default. None (default): the credentials
            from the environment of this process.

    Returns:
        The table.

    Raises:
        OptionError: An argument has an invalid value.
        TableNotFound: There is no table at the path.
        UnsupportedTable: The table has a version or a feature that hoodoo does not support.
        CorruptTable: The table properties or the newest slots are damaged.
        StoreRefused: The path is on a network file system.
        BucketNotFound: The bucket does not exist.
        CredentialsError: The store rejects the credentials, or no credentials are available.
    """
    return Table(open_store(path, storage))


def _opened(store: Store, properties: Mapping[str, str]) -> Table:
    """Open the existing table for `create(if_exists='open')`.

    Raises:
        TableExists: The key, partitions, order or type of the table differ from those in `properties`.
    """
    table, wanted = Table(store), hoodie_properties.parse(properties)
    there = table.handle.config
    for name in ("key", "partition_by", "order_by", "type"):
        found, expected = getattr(there, name), getattr(wanted, name)
        if found != expected or name == "partition_by" and _transforms(there) != _transforms(wanted):
            raise TableExists(
                f"The table at {store.uri} has {name} {_shown(there, found)}: expected {_shown(wanted, expected)}. "
                f"Pass its {name}, or choose another path.",
                path=store.uri,
                option=name,
            )
    return table


def _transforms(config: TableConfig) -> dict[str, str]:
    """Return the transforms of derived partition columns as strings such as 'day(ts)', by partition column name."""
    return {name: str(transform) for name, transform in config.transforms.items()}


def _shown(config: TableConfig, value: str | tuple[str, ...]) -> str:
    """Format a table property for an error message. A derived partition column appears as its transform."""
    if isinstance(value, str):
        return repr(value)
    names = [_transforms(config).get(name, name) for name in value]
    return repr(names[0]) if len(names) == 1 else repr(names) if names else "None"


def _name_mapping(given: pa.Schema, schema: pa.Schema) -> NameMapping:
    """Return the mapping between the names of renamed columns in `schema` and their original names in `given`."""
    columns = TableSchema.first(schema).columns
    return NameMapping(columns, originals_of(given, columns))


def _table_name(name: str | None, store: Store) -> str:
    if name is not None and not isinstance(name, str):
        raise OptionError(f"name must be a string, got {printable(name)}.", option="name")
    text = name or re.sub(r"[^A-Za-z0-9_]", "_", store.uri.rstrip("/").rpartition("/")[2]) or "table"
    if not re.fullmatch(r"[A-Za-z_0-9]{1,100}", text):
        raise OptionError(
            f"name may contain only letters, digits and _, at most 100 characters, got {printable(text)}.",
            option="name",
        )
    return text if not text[0].isdigit() else f"t_{text}"


def _values(rows: pa.Table | None, given: pa.Schema, declared: pa.Schema, name: str) -> pa.ChunkedArray | None:
    """Return the values of a renamed column in sample rows, which still have the original column names.

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


def _columns_of(schema: SchemaLike, key: object) -> tuple[pa.Schema, pa.Table | None]:
    """Convert the `schema` argument of `create` to a pyarrow schema. Also return its sample rows, if it has any.

    Args:
        schema: The schema, or rows that have the columns.
        key: The key columns. An index level of a pandas DataFrame with one of these names is a column, too.

    Raises:
        OptionError: `schema` does not describe columns.
        SchemaError: A column contains only nulls or empty lists, so its type is unknown.
        ColumnError: The rows cannot be read as columns.
    """
    from hoodoo.format.column_text import parse_columns
    from hoodoo.format.known_types import known_type
    from hoodoo.readers.output import Rows
    from hoodoo.writers.batches.arrow_layouts import plain_type
    from hoodoo.writers.batches.row_files import is_file_name, schema_in

    if isinstance(schema, pa.Schema):
        return schema, None
    if type(schema).__module__.startswith("pyspark."):
        from hoodoo.engine.spark_types import arrow_schema_of

        found: pa.Schema = arrow_schema_of(getattr(schema, "schema", schema))  # schema of a DataFrame, or a StructType
        return found, None
    if isinstance(schema, (str, os.PathLike)):
        path = os.fspath(schema)
        return (schema_in(path) if is_file_name(path) else parse_columns(path)), None
    if isinstance(schema, Mapping) and all(isinstance(kind, (str, type, pa.DataType)) for kind in schema.values()):
        return pa.schema([(name, _kind(kind, name)) for name, kind in schema.items()]), None
    rows: Any = schema
    unread = isinstance(rows, (pa.RecordBatchReader, Rows))  # not read: the caller inserts its rows later
    said = [key] if isinstance(key, str) else key if isinstance(key, (list, tuple)) else ()
    index = dict.fromkeys(name for name in said if isinstance(name, str))
    here = None if unread else to_arrow(rows, pa.schema([(name, pa.null()) for name in index]))
    known: pa.Schema = rows.schema if here is None else here.schema
    if not len(known):
        raise OptionError(
            f"schema must be a pyarrow or Spark schema, a dict of names and types such as {{'id': 'string'}}, "
            f"or rows with the columns, got {printable(schema)}.",
            option="schema",
        )
    for field in known:
        if known_type(field.type) is None:
            raise SchemaError(
                f"Column {field.name!r} contains only nulls or empty lists, so its type is unknown. Give the "
                "column a type, or pass a schema.",
                column=field.name,
            )
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in known]), here


def _keys_may_move(config: TableConfig) -> bool:
    """Return whether two partitions of the table can contain the same key.

    This is the case if a partition column is neither a key column nor derived from a key column.
    """
    made = {name: one.column for name, one in config.transforms.items()}
    return any(made.get(name, name) not in config.key for name in config.partition_by)


def _kind(kind: pa.DataType | type | str, name: str) -> pa.DataType:
    """Return the Arrow type of a type in a schema: an Arrow type, a name such as 'bigint', or a Python type."""
    from hoodoo.format.column_text import parse_type

    if isinstance(kind, type):
        if kind not in _PYTHON_TYPES:
            raise SchemaError(
                f"Column {printable(name)}: {printable(kind.__name__)} is not a supported type: expected "
                f"{listed(sorted(one.__name__ for one in _PYTHON_TYPES))}. Pass an Arrow type or a name such as "
                "'decimal(18,2)' or 'list<string>'.",
                column=printable(name),
            )
        return parse_type(_PYTHON_TYPES[kind], name)
    return parse_type(kind, name) if isinstance(kind, str) else kind


def _in_namespaces() -> dict[str, str]:
    """Map each method name of a table namespace to its call, such as 'clean' to 'maintenance.clean(...)'.

    `Table.__getattr__` forwards the names of earlier versions that are used on the table itself.
    """
    from hoodoo.table.altering import Alter
    from hoodoo.table.inspecting import Inspect
    from hoodoo.table.maintenance import Maintenance

    return {
        name: f"{kind.NAMESPACE}.{name}" + ("" if isinstance(member, property) else "(...)")
        for kind in (Alter, Inspect, Maintenance)
        for name, member in vars(kind).items()
        if name[0].islower()
    }


@explained
class Table(Writable, Readable, Maintained, Restorable, Exportable):
    """Open table, with the methods to read, write, maintain and configure it. `create` and `open` return it.

    A table does not pin a snapshot: every read and every write looks for the newest slot first. Threads can share a
    table, and it can be pickled.
    """

    def __init__(self, store: Store, environment: Environment = SYSTEM) -> None:
        if not isinstance(store, Store) or not isinstance(environment, Environment):
            raise OptionError(
                f"Table(...) cannot open a table, got {printable(store)}. Call hoodoo.open(path).", option="store"
            )
        self.handle = TableHandle(store, environment)
        self._created = False  # set by `create`: the repr of a new table explains its key until the first write

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report unknown attributes

        def __getattr__(self, name: str) -> object:
            """Return the method of a namespace that had this name on the table itself, with a DeprecationWarning.

            Raises:
                AttributeError: The name is unknown. The message suggests the hoodoo method to call instead.
            """
            moved = _in_namespaces()
            if name not in moved:
                raise AttributeError(hint_for(name, type(self), "table", moved | TABLE))
            warnings.warn(f"Table.{name} is deprecated. Use table.{moved[name]}.", DeprecationWarning, stacklevel=2)
            return getattr(getattr(self, moved[name].partition(".")[0]), name)

        def __getitem__(self, name: object) -> None:
            """Raise a TypeError for `table[...]`. Its message names the methods to call instead."""
            raise TypeError("Table is not subscriptable. Use scan(columns=[...]), scan(where=...) or get(keys).")

        def __iter__(self) -> None:
            """Raise a TypeError for iteration over a table. Its message names the methods that iterate over rows."""
            raise TypeError("Table is not iterable. Use scan().batches(), or scan().to_arrow().to_pylist().")

    def __repr__(self) -> str:
        """Describe the table as this process last read it, without access to the store."""
        from hoodoo.notebook import cut

        config, _, view = self.handle.seen
        parts = f", partitioned by {', '.join(config.partition_by)}" if config.partition_by else ""
        order = f", ordered by {', '.join(config.order_by)}" if config.order_by else ""
        new = self._created and view.seq == 1
        within = " (a key in two partitions is two rows)" if new and _keys_may_move(config) else ""
        what = f"key {', '.join(config.key)}{parts}{within}{order}, slot {view.seq}"
        columns = ", ".join(f"{field.name} {field.type}" for field in config.declared_schema)
        return (
            f"<hoodoo {config.type} table {config.name!r} at {self.path}, {cut(what, _LINE)}>\n"
            f"{cut(f'{len(config.declared_schema)} columns: {columns}', _LINE)}"
        )

    def _repr_html_(self) -> str:
        from hoodoo.notebook import html_table

        config, _, view = self.handle.seen
        roles = {
            "key": config.key,
            "partition": config.partition_by,
            "ordering": config.order_by,
        }
        return html_table(
            f"hoodoo {config.type} table {config.name!r} at {self.path}, slot {view.seq}; head() reads a few rows",
            ("column", "type", "null", "role"),
            (
                (
                    field.name,
                    str(field.type),
                    "yes" if field.nullable else "no",
                    ", ".join(role for role, names in roles.items() if field.name in names),
                )
                for field in config.declared_schema
            ),
        )

    def __reduce__(self) -> tuple[type[Table], tuple[Store]]:
        return Table, (self.handle.store,)

    @property
    def name(self) -> str:
        """The name of the table, from its table properties."""
        return self.handle.config.name

    @property
    def type(self) -> str:
        """The table type: 'merge_on_read' or 'copy_on_write'."""
        return self.handle.config.type

    @property
    def schema(self) -> pa.Schema:
        """The current schema of the table, without Hudi's meta columns.

        Columns that were created with nullable=False are marked as not nullable.
        """
        return self.handle.newest_config().declared_schema

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key columns, whose values identify a row within its partition."""
        return self.handle.config.key

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The names of the partition columns, or () for an unpartitioned table."""
        return self.handle.config.partition_by

    @property
    def order_by(self) -> tuple[str, ...]:
        """The names of the columns that decide which version of a key is newer, in comparison order.

        Empty if the later write wins.
        """
        return self.handle.config.order_by

    @property
    def options(self) -> table_options.Options:
        """The table options, with their current values. Use `set_options` to change them."""
        return self.handle.newest_config().options

    @property
    def cursor(self) -> Cursor:
        """The position of the newest slot of the table. Pass it to reads as `as_of` or `since`."""
        view = self.handle.look().view
        return cursor_of(view)

    def set_options(self, **options: object) -> None:
        """Change table options, such as retention, for all writers of the table.

        Args:
            **options: The new option values by name, as `Options` describes them. Other options stay unchanged.

        Raises:
            OptionError: An option is unknown or has an invalid value, or `partition_ttl_hours` is set for an
                unpartitioned table.
            CommitConflict: Other writers committed first more than 20 times. Nothing was changed.
            CommitUnknown: The store did not confirm in time that the commit succeeded. Call `resolve()` of the error to
                find out.
        """
        from hoodoo.compactor.cleaning import retention
        from hoodoo.timeline import settings

        table_options.with_options(options)
        partition_by, timeline = self.handle.config.partition_by, self.handle.context().timeline
        settings.change(timeline, options, lambda changed: retention.check(changed, partition_by))
        self.handle.look()

    @property
    def checks(self) -> dict[str, str]:
        """The checks that rows must satisfy: conditions such as "fare >= 0", by check name."""
        return stored(self.handle.newest_config().raw)

    def set_checks(self, checks: Mapping[str, str]) -> None:
        """Replace the checks of the table, which are conditions that rows must satisfy.

        Writes that commit after this call reject rows that fail a check, including writes that are already running. A
        row fails a check if the condition is false, and passes if the condition is null. Deletes are not checked. Rows
        that are already stored, or that another engine wrote, stay in the table. `verify` reports rows that fail.

        Args:
            checks: The condition of each check by check name, in the syntax of `where`; for example
                {"fare_not_negative": "fare >= 0"}. A name has at most 64 letters, digits and `_`, and does not start
                with a digit. {} removes all checks.

        Raises:
            OptionError: `checks` is not a dict of valid names and condition strings.
            PredicateError: A condition cannot be parsed or does not match the columns.
            CommitConflict: Other writers committed first more than 20 times. Nothing was changed.
            CommitUnknown: The store did not confirm in time that the commit succeeded. Call `resolve()` of the error to
                find out.
        """

        from hoodoo.timeline import settings

        def held(config: TableConfig) -> dict[str, str]:
            said = config.name_mapping.checks(checks)
            return {check.name: check.text for check in row_checks.parsed(said, config.schema)}

        settings.change_checks(self.handle.context().timeline, held)
        self.handle.look()

    @property
    def alter(self) -> Alter:
        """Methods that change the columns of the table, such as `alter.add_column(...)`."""
        from hoodoo.table.altering import Alter

        return Alter(self.handle)

    @property
    def savepoints(self) -> Savepoints:
        """Methods that create, list and delete savepoints."""
        from hoodoo.table.savepoints import Savepoints

        return Savepoints(self.handle)

    @property
    def maintenance(self) -> Maintenance:
        """Methods that run table services or repair the table, such as `maintenance.clean()`."""
        from hoodoo.table.maintenance import Maintenance

        return Maintenance(self)

    @property
    def inspect(self) -> Inspect:
        """Methods that list metadata of the table, such as `inspect.files()`."""
        from hoodoo.table.inspecting import Inspect

        return Inspect(self.handle)

    def quarantine(self) -> Quarantine[Table]:
        """Return the quarantine of the table, where writes with on_bad_rows="quarantine" store their bad rows.

        You can read the quarantined rows, write them again, or discard them.

        Returns:
            The quarantine of the table.
        """
        from hoodoo.table.quarantine import Quarantine

        return Quarantine(self)


__all__ = ["Table", "create", "open"]
