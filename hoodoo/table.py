"""A table as its users see it: create, open, write, read, maintain. Checks what is asked and delegates all the rest."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from hoodoo.arguments import Transaction, application_version, flag, names, one_of
from hoodoo.compactor import inline
from hoodoo.compactor.cleaning import retention
from hoodoo.compactor.compaction import plans
from hoodoo.compactor.status import lag
from hoodoo.compactor.worker import ServiceTarget
from hoodoo.engine.local import LocalEngine
from hoodoo.errors import (
    ColumnError,
    OptionError,
    PartitionValueError,
    StoreDenied,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    TableNotFound,
)
from hoodoo.format.avro.schema import normalise
from hoodoo.format.keys import check_key_columns, partition_paths
from hoodoo.index import index_of
from hoodoo.maintenance import Maintained
from hoodoo.readers.positions import Cursor
from hoodoo.reading import Readable
from hoodoo.results import WriteResult
from hoodoo.spark.sink import Sink
from hoodoo.storage.probe import require_conforming, require_conforming_once
from hoodoo.storage.redact import printable
from hoodoo.storage.store import Store, open_store
from hoodoo.timeline import config as configuration
from hoodoo.timeline import create_table, settings
from hoodoo.timeline import options as table_options
from hoodoo.timeline.config import CHANGE_LOGS, COPY_ON_WRITE, MERGE_ON_READ, TableConfig
from hoodoo.timeline.environment import SYSTEM, Environment
from hoodoo.timeline.history import History
from hoodoo.timeline.hudi.foreign import CompletedInstant, ForeignHistory, Overlay, unfinished_adoptions
from hoodoo.timeline.instant import RESTORE
from hoodoo.timeline.nesting import require_place_of_its_own
from hoodoo.timeline.state import TableState
from hoodoo.timeline.transaction import Timeline
from hoodoo.timeline.view import View
from hoodoo.writers import operations
from hoodoo.writers.adopt import Adopter
from hoodoo.writers.batch import Batch, prepare
from hoodoo.writers.input import to_arrow
from hoodoo.writers.operations import Committed, Context, InProcess, Source

_TYPES = (MERGE_ON_READ, COPY_ON_WRITE)


def create(
    path: str | os.PathLike[str],
    schema: Any,
    key: str | Sequence[str],
    partition_by: str | Sequence[str] | None = None,
    order_by: str | None = None,
    type: str = MERGE_ON_READ,
    storage: Mapping[str, Any] | None = None,
    name: str | None = None,
    change_log: str | None = None,
    **options: Any,
) -> Table:
    """Create a table and open it.

    path: a local folder or s3://bucket/prefix. schema: pyarrow Schema, whose columns with nullable=False take no null,
    or Spark StructType, whose flags say what a plan found and are not kept. key, partition_by: one or
    several columns.
    order_by: the column that decides which version of a key is newer; without one, the later write wins.
    type: 'merge_on_read' (cheap writes) or 'copy_on_write' (cheapest reads). storage: see `open`. options:
    hoodoo.timeline.options.Options.
    change_log: keep Hudi's change log, one more file per rewrite, for Hudi's own change queries: 'before_after',
    'before' or 'keys' say what of a row. Raises SchemaError, OptionError, TableExists, StoreRefused.
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
    require_place_of_its_own(store)
    require_conforming(store)
    create_table.create(store, properties, SYSTEM)
    return Table(store)


def open(
    path: str | os.PathLike[str],
    storage: Mapping[str, Any] | None = None,
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


def _arrow_schema(schema: Any) -> pa.Schema:
    if isinstance(schema, pa.Schema):
        return schema
    if type(schema).__module__.startswith("pyspark."):
        from hoodoo.engine.spark_types import arrow_schema_of

        return arrow_schema_of(schema)
    raise OptionError(
        f"schema takes a pyarrow Schema or a Spark StructType, got {type(schema).__name__}.", option="schema"
    )


def _is_spark(data: Any) -> bool:
    return type(data).__module__.startswith("pyspark.sql")


class Seen(NamedTuple):
    """What a table looked like last: one value, so that threads never see a part of one look and a part of another."""

    config: TableConfig
    history: History


class Table(Readable, Maintained):
    """An open table. It pins nothing: every read and write looks at the newest slot. Safe in threads; pickles."""

    def __init__(self, store: Store, environment: Environment = SYSTEM) -> None:
        if not isinstance(store, Store) or not isinstance(environment, Environment):
            raise OptionError(
                f"Open a table with hoodoo.open(path), not with Table(...); got {printable(store)}.", option="store"
            )
        store.require_private()
        self._store, self._environment = store, environment
        self._index = index_of(store)
        self._timeline = Timeline(store, self._index.key_hashes, environment, self._adopt)
        self._seen = self._opened()
        self._alone = False  # not known to be in a folder of no other table

    def __repr__(self) -> str:
        parts = f", partitioned by {', '.join(self._config.partition_by)}" if self._config.partition_by else ""
        return (
            f"<hoodoo {self._config.type} table {self._config.name!r} at {self._store.uri}, key "
            f"{', '.join(self._config.key)}{parts}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Table, (self._store,)

    @property
    def _config(self) -> TableConfig:
        return self._seen.config

    @property
    def _history(self) -> History:
        return self._seen.history

    def _opened(self) -> Seen:
        """The first look: crashed writers' commits are published where this process may write."""
        ours = self._timeline.history
        try:
            state = self._timeline.heal()
        except TableNotFound:
            return self._foreign(configuration.load(self._store))
        except (StoreDenied, StoreFull, StoreRefused, StoreUnavailable):  # who may only read leaves it to who may write
            state = self._timeline.look()
        found = unfinished_adoptions(ours) or state.foreign
        return self._overlaid(state, found) if found else Seen(state.config, ours)

    def _foreign(self, config: TableConfig) -> Seen:
        """A table that has only Hudi's timeline, until the first write adopts it."""
        theirs = ForeignHistory(self._store)
        if not theirs.head().seq:
            raise TableNotFound(
                f"{self._store.uri} has properties but no commit: its creation was interrupted. Call create again.",
                path=self._store.uri,
            )
        return Seen(replace(config, schema=theirs.schema()), theirs)

    def _overlaid(self, state: TableState, found: Sequence[CompletedInstant]) -> Seen:
        """Our slots and what another engine did since, until the next write adopts that."""
        if any(one.action == RESTORE for one in found):  # then positions of ours mean nothing until a write adopts it
            return self._foreign(state.config)
        overlay = Overlay(self._timeline.history)
        overlay.head()
        return Seen(replace(state.config, schema=overlay.schema() or state.config.schema), overlay)

    def _look(self) -> View:
        """The newest view, whoever wrote it; configuration and history fit it from now on."""
        ours = self._timeline.history
        try:
            state = self._timeline.look(properties=False)
        except TableNotFound:
            if not isinstance(self._seen.history, ForeignHistory):
                raise
            view = self._seen.history.head()  # of a table that nobody has adopted yet
            self._seen = Seen(replace(self._seen.config, schema=self._seen.history.schema()), self._seen.history)
            return view
        found = state.foreign and (unfinished_adoptions(ours) or state.foreign)
        self._seen = self._overlaid(state, found) if found else Seen(state.config, ours)
        return self._seen.history.known_head()

    def _adopt(self, found: CompletedInstant) -> None:
        Adopter(self._timeline.history, LocalEngine(), self._environment.now_ms()).newer(found)

    def _context(self, engine: Any = None) -> Context:
        """What a write works with; what another engine wrote is adopted first. Raises UnsupportedTable where that
        cannot be.
        """
        require_conforming_once(self._store)
        if not self._alone:
            require_place_of_its_own(self._store)
            self._alone = True
        ours = self._timeline.history
        if self._history is not ours:
            if not ours.begun():
                Adopter(ours, engine or LocalEngine(), self._environment.now_ms()).whole_table()
            while ours.begun() and (found := unfinished_adoptions(ours)):
                self._adopt(found[0])
            self._timeline.ready()
        self._seen = Seen(self._timeline.known().config, ours)

        def run_plans(view: Any) -> None:
            plans.run_open(context, view)

        context = Context(self._store, self._timeline, self._index, engine or LocalEngine(), run_plans)
        return context

    def _services(self) -> ServiceTarget:
        """What a compaction worker needs of this table."""
        store, environment = self._store, self._environment
        return ServiceTarget(
            self.path, self._context, self._newest_config, lambda: Table(store, environment)._services()
        )

    def _newest_config(self) -> TableConfig:
        self._look()
        return self._config

    # ---- what it is
    @property
    def path(self) -> str:
        return self._store.uri

    @property
    def name(self) -> str:
        return self._config.name

    @property
    def type(self) -> str:
        return self._config.type

    @property
    def schema(self) -> pa.Schema:
        """Of the rows that the table takes: columns created with nullable=False are not nullable."""
        return self._config.declared_schema

    @property
    def key(self) -> tuple[str, ...]:
        return self._config.key

    @property
    def partition_by(self) -> tuple[str, ...]:
        return self._config.partition_by

    @property
    def order_by(self) -> str | None:
        return self._config.order_by

    @property
    def options(self) -> table_options.Options:
        return self._config.options

    @property
    def cursor(self) -> Cursor:
        """The newest slot, as a position."""
        view = self._look()
        return Cursor(view.table, view.seq)

    def set_options(self, **options: Any) -> None:
        """Change options of the table for every writer from now on. Raises OptionError."""
        table_options.with_options(options, self._config.options)
        partition_by, timeline = self._config.partition_by, self._context().timeline
        settings.change(timeline, options, lambda changed: retention.check(changed, partition_by))
        self._look()

    # ---- writing
    def upsert(self, data: Any, duplicates: str = "newest", transaction: Transaction | None = None) -> WriteResult:
        """Insert new keys and replace the rows of known ones; a row with a smaller ordering value than the stored one
        is dropped as stale.

        data: pyarrow Table or RecordBatchReader, pandas or polars DataFrame, or Spark DataFrame (evaluated once). A
        boolean column `_hoodie_is_deleted` deletes rows by the same ordering rule. duplicates: 'newest' or 'fail'.
        transaction: (application, growing version): a version at or below the newest committed one is skipped.
        """
        return self._write(
            data,
            lambda context, source: operations.upsert(context, source, transaction=application_version(transaction)),
            duplicates=duplicates,
        )

    def insert(
        self, data: Any, existing: str = "fail", duplicates: str = "newest", transaction: Transaction | None = None
    ) -> WriteResult:
        """Insert new keys only. existing: 'fail' raises KeyExists before anything is written, 'keep' leaves stored rows
        as they are.
        """
        one_of("existing", existing, ("fail", "keep"))
        return self._write(
            data,
            lambda context, source: operations.insert(
                context, source, existing, False, application_version(transaction)
            ),
            duplicates=duplicates,
        )

    def bulk_insert(
        self, data: Any, existing: str = "fail", duplicates: str = "newest", transaction: Transaction | None = None
    ) -> WriteResult:
        """`insert` into new, sorted, well-sized file groups only: for large first loads."""
        one_of("existing", existing, ("fail", "keep"))
        return self._write(
            data,
            lambda context, source: operations.insert(
                context, source, existing, True, application_version(transaction)
            ),
            duplicates=duplicates,
        )

    def delete(self, data: Any, transaction: Transaction | None = None) -> WriteResult:
        """Delete rows by key, whatever their ordering value. `data` has the key and partition columns; others are
        ignored, as are unknown keys.
        """
        return self._write(
            data,
            lambda context, source: operations.upsert(context, source, "DELETE", application_version(transaction)),
            delete=True,
        )

    def insert_overwrite(
        self, data: Any, whole_table: bool = False, duplicates: str = "newest", transaction: Transaction | None = None
    ) -> WriteResult:
        """Replace the partitions that occur in `data` (an unpartitioned table: all of it), or with whole_table
        everything, by its rows.
        """

        flag("whole_table", whole_table)

        def write(context: Context, source: Source) -> Committed:
            used = source.partitions_used()
            everything = whole_table or (not self._config.partition_by and used)
            return operations.overwrite(
                context,
                source,
                None if everything else used,
                "INSERT_OVERWRITE_TABLE" if whole_table else "INSERT_OVERWRITE",
                application_version(transaction),
            )

        return self._write(data, write, duplicates=duplicates)

    def delete_partitions(self, partitions: Sequence[Any], transaction: Transaction | None = None) -> WriteResult:
        """Drop whole partitions, given by value, or by dicts of values where several columns partition. Absent ones are
        ignored.
        """
        context = self._context()
        return self._finish(
            context,
            operations.overwrite(
                context, None, self._paths_of(partitions), "DELETE_PARTITION", application_version(transaction)
            ),
        )

    def sink(self, name: str, operation: str = "upsert", **arguments: Any) -> Sink:
        """For `writeStream.foreachBatch(...)`: a function of a DataFrame and its batch number that makes one commit of
        each micro-batch, exactly once.

        name: remembered in the table with the newest batch number, so that a stream with a new checkpoint needs a new
        name.
        operation: 'upsert', 'insert', 'bulk_insert', 'delete' or 'insert_overwrite'; arguments are those of that
        method. Raises OptionError.
        """
        return Sink(self, name, operation, **arguments)

    def _paths_of(self, partitions: Sequence[Any]) -> list[str]:
        columns = self._config.partition_by
        if not columns:
            raise PartitionValueError(
                "The table has no partitions; delete rows, or use insert_overwrite(..., whole_table=True)."
            )
        if isinstance(partitions, (str, bytes, Mapping)) or not isinstance(partitions, Iterable):
            raise PartitionValueError(
                f"partitions takes a list of values or dicts, even for one partition, got {printable(partitions)}.",
                columns=columns,
            )
        rows = []
        for given in partitions:
            row = given if isinstance(given, Mapping) else {columns[0]: given}
            if set(row) != set(columns):
                raise PartitionValueError(
                    f"A partition of this table is a dict with {', '.join(columns)}, got {printable(given)}.",
                    columns=columns,
                )
            rows.append(row)
        schema = pa.schema([self.schema.field(name) for name in columns])
        try:
            table = pa.Table.from_pylist(rows, schema=schema)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as problem:
            why = printable(str(problem).rstrip(".")).strip("\"'")
            raise PartitionValueError(
                f"A partition value does not fit its column: {why}. Give it as {schema.field(0).type}.",
                columns=columns,
            ) from None
        return partition_paths(table, columns, self._config.hive_style, self._config.url_encode).dictionary.to_pylist()

    def _write(
        self,
        data: Any,
        write: Callable[[Context, Source], Committed],
        delete: bool = False,
        duplicates: str = "newest",
    ) -> WriteResult:
        one_of("duplicates", duplicates, ("newest", "fail"))
        context = self._context()
        config = self._config
        config.require_no_metadata_table()
        if isinstance(data, InProcess):  # Spark's tasks prepared it
            return self._finish(context, write(context, data))
        if _is_spark(data):
            from hoodoo.writers.staged import staged

            config = self._timeline.ready().config  # staging is dear: not for columns that are none any more
            with staged(context, config, data, delete, duplicates) as (context, source):
                return self._finish(context, write(context, source))
        return self._finish(context, write(context, InProcess(self._prepared(data, delete, duplicates))))

    def _prepared(self, data: Any, delete: bool, duplicates: str) -> Batch:
        """The batch for the columns that this handle knows; where it does not fit, for those that there are now."""
        known = self._config
        given = to_arrow(data, known.schema.names)
        try:
            return prepare(given, known, delete, duplicates)
        except ColumnError:
            if (now := self._timeline.ready().config).schema == known.schema:
                raise
            return prepare(given, now, delete, duplicates)

    def _finish(self, context: Context, done: Committed) -> WriteResult:
        self._seen = Seen(self._timeline.known().config, self._timeline.history)
        waited_s = inline.after_commit(context, self._config, done.slot) if done.instant else 0.0
        view, config = self._history.known_head(), self._config
        counts = {name: value for name, value in vars(done).items() if name != "slot"}
        measure = partial(lag.measure, self._timeline, view, config)
        return WriteResult(Cursor(view.table, done.slot), **counts, waited_s=waited_s, _measure=measure)


__all__ = ["ColumnError", "Table", "create", "open"]
