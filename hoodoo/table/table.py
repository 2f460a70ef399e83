"""Public class `Table`.

This module checks arguments and delegates the work. The base classes of `Table` define the methods for writes, reads,
maintenance, snapshots and exports. Each base class is in its own module.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from hoodoo.errors import OptionError
from hoodoo.hints import TABLE, hint_for, suggest_for_methods, takes
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
from hoodoo.timeline.properties import table_options
from hoodoo.timeline.properties.check_properties import stored
from hoodoo.timeline.properties.config import TableConfig

if TYPE_CHECKING:
    from hoodoo.table.altering import Alter
    from hoodoo.table.inspecting import Inspect
    from hoodoo.table.maintenance import Maintenance
    from hoodoo.table.quarantine import Quarantine
    from hoodoo.table.savepoints import Savepoints

_LINE = 110  # maximum number of characters in a repr line


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


def _keys_may_move(config: TableConfig) -> bool:
    """Return whether several partitions can contain one key.

    This is the case if a partition column is neither a key column nor derived from a key column.
    """
    made = {name: one.column for name, one in config.transforms.items()}
    return any(made.get(name, name) not in config.key for name in config.partition_by)


def _in_namespaces() -> dict[str, str]:
    """List the methods of the namespaces of a table."""
    from hoodoo.table.altering import Alter
    from hoodoo.table.inspecting import Inspect
    from hoodoo.table.maintenance import Maintenance

    return {
        name: f"{kind.NAMESPACE}.{name}" + ("" if isinstance(member, property) else "(...)")
        for kind in (Alter, Inspect, Maintenance)
        for name, member in vars(kind).items()
        if name[0].islower()
    }


@suggest_for_methods
class Table(Writable, Readable, Maintained, Restorable, Exportable):
    """Table that can be read and written.

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

        def __getattr__(self, name: str) -> None:
            """Suggest the method to call instead of an unknown one."""
            raise AttributeError(hint_for(name, type(self), "table", _in_namespaces() | TABLE))

        def __getitem__(self, name: object) -> None:
            """Explain that a table has no subscripts."""
            raise TypeError("Table is not subscriptable. Use scan(columns=[...]), scan(where=...) or get(keys).")

        def __iter__(self) -> None:
            """Explain how to iterate over rows."""
            raise TypeError("Table is not iterable. Use scan().to_pandas(), scan().to_arrow() or scan().batches().")

    def __repr__(self) -> str:
        """Describe the table without access to the store."""
        from hoodoo.notebook import truncate_text

        config, _, view = self.handle.seen
        parts = f", partitioned by {', '.join(config.partition_by)}" if config.partition_by else ""
        order = f", ordered by {', '.join(config.order_by)}" if config.order_by else ""
        new = self._created and view.seq == 1
        within = " (a key in two partitions is two rows)" if new and _keys_may_move(config) else ""
        what = f"key {', '.join(config.key)}{parts}{within}{order}, slot {view.seq}"
        columns = ", ".join(f"{field.name} {field.type}" for field in config.declared_schema)
        return (
            f"<hoodoo {config.type} table {config.name!r} at {self.path}, {truncate_text(what, _LINE)}>\n"
            f"{truncate_text(f'{len(config.declared_schema)} columns: {columns}', _LINE)}"
        )

    def _repr_html_(self) -> str:
        from hoodoo.notebook import format_html_table

        config, _, view = self.handle.seen
        roles = {
            "key": config.key,
            "partition": config.partition_by,
            "ordering": config.order_by,
        }
        return format_html_table(
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
        """The name of the table."""
        return self.handle.config.name

    @property
    def type(self) -> str:
        """The table type: 'merge_on_read' or 'copy_on_write'."""
        return self.handle.config.type

    @property
    def schema(self) -> pa.Schema:
        """The current schema of the table.

        Columns that were created with nullable=False are marked as not nullable.
        """
        return self.handle.newest_config().declared_schema

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns, which identify a row within its partition."""
        return self.handle.config.key

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns of the table."""
        return self.handle.config.partition_by

    @property
    def order_by(self) -> tuple[str, ...]:
        """The ordering columns, which decide which version of a row is newer.

        Empty if the later write wins.
        """
        return self.handle.config.order_by

    @property
    def options(self) -> table_options.Options:
        """The current table options."""
        return self.handle.newest_config().options

    @property
    def cursor(self) -> Cursor:
        """The position of the newest commit."""
        view = self.handle.look().view
        return cursor_of(view)

    def set_options(self, **options: object) -> None:
        """Change options of the table.

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

        table_options.validate_new_options(options)
        partition_by, timeline = self.handle.config.partition_by, self.handle.context().timeline
        settings.change_options(timeline, options, lambda changed: retention.check_partition_ttl(changed, partition_by))
        self.handle.look()

    @property
    def checks(self) -> dict[str, str]:
        """The checks that rows must satisfy, such as "fare >= 0"."""
        return stored(self.handle.newest_config().raw)

    def set_checks(self, checks: Mapping[str, str]) -> None:
        """Replace the checks that rows must satisfy.

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
            return {check.name: check.text for check in row_checks.parse_checks(said, config.schema)}

        settings.replace_checks(self.handle.context().timeline, held)
        self.handle.look()

    @property
    def alter(self) -> Alter:
        """Methods that change columns, such as `alter.add_column(...)`."""
        from hoodoo.table.altering import Alter

        return Alter(self.handle)

    @property
    def savepoints(self) -> Savepoints:
        """Methods that create, list and delete savepoints."""
        from hoodoo.table.savepoints import Savepoints

        return Savepoints(self.handle)

    @property
    def maintenance(self) -> Maintenance:
        """Methods that maintain the table, such as `maintenance.clean()`."""
        from hoodoo.table.maintenance import Maintenance

        return Maintenance(self)

    @property
    def inspect(self) -> Inspect:
        """Methods that list metadata, such as `inspect.files()`."""
        from hoodoo.table.inspecting import Inspect

        return Inspect(self.handle)

    def quarantine(self) -> Quarantine[Table]:
        """Return the quarantine of the table.

        Writes with on_bad_rows="quarantine" store their bad rows there. You can read the quarantined rows, write them
        again, or discard them.

        Returns:
            The quarantine of the table.
        """
        from hoodoo.table.quarantine import Quarantine

        return Quarantine(self)


__all__ = ["Table", "open"]
