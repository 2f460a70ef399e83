"""A table as its users see it: create, open, write, read, maintain. Checks what is asked and delegates all the rest."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from hoodoo.altering import Alterable
from hoodoo.arguments import flag, names, one_of
from hoodoo.compactor.cleaning import retention
from hoodoo.errors import ColumnError, OptionError
from hoodoo.format.avro.schema import normalise
from hoodoo.format.keys import check_key_columns
from hoodoo.handle import TableHandle
from hoodoo.maintenance import Maintained
from hoodoo.quarantine import Quarantine
from hoodoo.readers.cursor import Cursor
from hoodoo.readers.predicate import checks as row_checks
from hoodoo.reading import Readable
from hoodoo.storage.probe import require_conforming
from hoodoo.storage.redact import printable
from hoodoo.storage.store import Store
from hoodoo.storage.store_of_path import open_store
from hoodoo.timeline import config as configuration
from hoodoo.timeline import create_table, settings
from hoodoo.timeline import table_options as table_options
from hoodoo.timeline.check_properties import stored, to_properties
from hoodoo.timeline.config import CHANGE_LOGS, COPY_ON_WRITE, MERGE_ON_READ, TableConfig
from hoodoo.timeline.environment import SYSTEM, Environment
from hoodoo.timeline.history import History
from hoodoo.timeline.nesting import require_no_table_inside, require_place_of_its_own
from hoodoo.writing import Writable

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SchemaLike: TypeAlias = "pa.Schema | StructType"
_TYPES = (MERGE_ON_READ, COPY_ON_WRITE)


def create(
    path: str | os.PathLike[str],
    schema: SchemaLike,
    key: str | Sequence[str],
    partition_by: str | Sequence[str] | None = None,
    order_by: str | None = None,
    type: str = MERGE_ON_READ,
    storage: Mapping[str, object] | None = None,
    name: str | None = None,
    change_log: str | None = None,
    checks: Mapping[str, str] | None = None,
    **options: object,
) -> Table:
    """Create a table and open it.

    path: a local folder or s3://bucket/prefix. schema: pyarrow Schema, whose columns with nullable=False take no null,
    or Spark StructType, whose flags say what a plan found and are not kept. key, partition_by: one or
    several columns.
    order_by: the column that decides which version of a key is newer; without one, the later write wins.
    type: 'merge_on_read' (cheap writes) or 'copy_on_write' (cheapest reads). storage: see `open`. options:
    hoodoo.timeline.table_options.Options.
    change_log: keep Hudi's change log, one more file per rewrite, for Hudi's own change queries: 'before_after',
    'before' or 'keys' say what of a row.
    checks: name -> condition in the language of `where`, such as {"fare_not_negative": "fare >= 0"}; see `set_checks`.
    Raises SchemaError, OptionError, PredicateError, TableExists, StoreRefused.
    """
    one_of("type", type, _TYPES)
    if change_log is not None:
        one_of("change_log", change_log, tuple(CHANGE_LOGS))
    keys, partitions = names("key", key), names("partition_by", partition_by)
    if order_by is not None and not isinstance(order_by, str):
        raise OptionError(f"order_by takes the name of one column, got {printable(order_by)}.", option="order_by")
    if not keys:
        raise OptionError("key needs at least one column.", option="key")
    declared = _arrow_schema(schema)
    fitted = normalise(declared)
    check_key_columns(fitted, keys, partitions, order_by)
    chosen = retention.check(table_options.with_options(options), partitions)
    held = {check.name: check.text for check in row_checks.parsed({} if checks is None else checks, fitted)}
    store = open_store(path, storage)
    properties = configuration.new_properties(
        _table_name(name, store),
        fitted,
        keys,
        partitions,
        order_by,
        type,
        chosen,
        change_log,
        tuple(field.name for field in declared if not field.nullable),
    )
    properties |= to_properties(held)
    require_place_of_its_own(store)
    require_no_table_inside(store)
    require_conforming(store)
    create_table.create(store, properties, SYSTEM)
    return Table(store)


def open(
    path: str | os.PathLike[str],
    storage: Mapping[str, object] | None = None,
    disable_metadata_table: bool = False,
) -> Table:
    """Open the table at `path`, a local folder or s3://bucket/prefix.

    storage: for S3 endpoint, region, access_key, secret_key, session_token, allow_http; default: the ambient
    credentials of this process. For a path allow_network_fs: a file system that several machines share is refused
    without it.
    disable_metadata_table: remove Hudi's metadata table if a foreign writer made one (Hudi rebuilds it), so that hoodoo
    may write. Raises TableNotFound, UnsupportedTable, CorruptTable.
    """
    store = open_store(path, storage)
    if flag("disable_metadata_table", disable_metadata_table):
        configuration.disable_metadata_table(store, SYSTEM.now_ms())
    return Table(store)


def _table_name(name: str | None, store: Store) -> str:
    if name is not None and not isinstance(name, str):
        raise OptionError(f"name takes text, got {printable(name)}.", option="name")
    text = name or re.sub(r"[^A-Za-z0-9_]", "_", store.uri.rstrip("/").rpartition("/")[2]) or "table"
    if not re.fullmatch(r"[A-Za-z_0-9]{1,100}", text):
        raise OptionError(
            f"name takes letters, digits and _, at most 100 of them, got {printable(text)}.", option="name"
        )
    return text if not text[0].isdigit() else f"t_{text}"


def _arrow_schema(schema: SchemaLike) -> pa.Schema:
    if isinstance(schema, pa.Schema):
        return schema
    if type(schema).__module__.startswith("pyspark."):
        from hoodoo.engine.spark_types import arrow_schema_of

        return arrow_schema_of(schema)
    raise OptionError(
        f"schema takes a pyarrow Schema or a Spark StructType, got {type(schema).__name__}.", option="schema"
    )


class Table(Writable, Readable, Maintained, Alterable):
    """An open table. It pins nothing: every read and write looks at the newest slot. Safe in threads; pickles."""

    def __init__(self, store: Store, environment: Environment = SYSTEM) -> None:
        if not isinstance(store, Store) or not isinstance(environment, Environment):
            raise OptionError(
                f"Open a table with hoodoo.open(path), not with Table(...); got {printable(store)}.", option="store"
            )
        self.handle = TableHandle(store, environment)

    def __repr__(self) -> str:
        config = self.handle.config
        parts = f", partitioned by {', '.join(config.partition_by)}" if config.partition_by else ""
        return f"<hoodoo {config.type} table {config.name!r} at {self.path}, key {', '.join(config.key)}{parts}>"

    def __reduce__(self) -> tuple[type[Table], tuple[Store]]:
        return Table, (self.handle.store,)

    @property
    def _history(self) -> History:
        """`handle.history`, for programs that looked below a table before there was a handle."""
        return self.handle.history

    # ---- what it is
    @property
    def name(self) -> str:
        """The table's name in its properties."""
        return self.handle.config.name

    @property
    def type(self) -> str:
        """'merge_on_read' or 'copy_on_write'."""
        return self.handle.config.type

    @property
    def schema(self) -> pa.Schema:
        """Of the rows that the table takes: columns created with nullable=False are not nullable."""
        return self.handle.newest_config().declared_schema

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns, in the order of the key."""
        return self.handle.config.key

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The columns that partition the table; none: ()."""
        return self.handle.config.partition_by

    @property
    def order_by(self) -> str | None:
        """The column that says which version of a key is newer; None: the later write wins."""
        return self.handle.config.order_by

    @property
    def options(self) -> table_options.Options:
        """What may be changed with set_options."""
        return self.handle.newest_config().options

    @property
    def cursor(self) -> Cursor:
        """The newest slot, as a position."""
        view = self.handle.look().view
        return Cursor(view.table, view.seq)

    def set_options(self, **options: object) -> None:
        """Change options of the table for every writer from now on. Raises OptionError."""
        table_options.with_options(options)
        partition_by, timeline = self.handle.config.partition_by, self.handle.context().timeline
        settings.change(timeline, options, lambda changed: retention.check(changed, partition_by))
        self.handle.look()

    @property
    def checks(self) -> dict[str, str]:
        """Name and text of each check that rows have to pass."""
        return stored(self.handle.newest_config().raw)

    def set_checks(self, checks: Mapping[str, str]) -> None:
        """Have every write from now on, also one that is under way, refuse rows that fail one of `checks`, which
        replace those there are: name -> condition in the language of `where`, such as {"not_negative": "fare >= 0"}.

        A row fails where the condition is false; null passes, and so does what deletes. Rows that are stored already,
        or come from another engine, are not looked at: verify() reports them. Raises OptionError, PredicateError.
        """

        def held(config: TableConfig) -> dict[str, str]:
            return {check.name: check.text for check in row_checks.parsed(checks, config.schema)}

        settings.change_checks(self.handle.context().timeline, held)
        self.handle.look()

    def quarantine(self) -> Quarantine[Table]:
        """The rows that writes with on_bad_rows="quarantine" set aside: to look at, to try again, to give up."""
        return Quarantine(self)


__all__ = ["ColumnError", "Table", "create", "open"]
