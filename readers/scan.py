"""Scans: a snapshot, or the rows changed in a range, fixed at one slot when asked for; and every form its rows come out in.

Pruning by partition values and file statistics, then slices in parallel. A slice without logs is a plain Parquet read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.engine.local import LocalEngine
from hoodoo.errors import ColumnError, CorruptTable, EngineError, OptionError, PredicateError
from hoodoo.format import statistics
from hoodoo.format.keys import partition_values
from hoodoo.format.names import COMMIT_TIME, META_COLUMNS, RECORD_KEY
from hoodoo.merge.changes import beats
from hoodoo.readers import predicate as predicates
from hoodoo.readers import slices
from hoodoo.readers.positions import Cursor
from hoodoo.storage.store import Store
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.history import History
from hoodoo.timeline.slot import BASE
from hoodoo.timeline.view import FileGroup, View

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

_BATCH_ROWS = 65_536


@dataclass(frozen=True)
class Filter:
    """`where`: a parsed string (prunes, and works on Spark natively) or an opaque Arrow expression."""

    tree: predicates.Predicate | None
    expression: pc.Expression
    columns: frozenset[str]  # that it may look at; for an opaque expression all there are

    @staticmethod
    def of(where: Any, schema: pa.Schema) -> Filter | None:
        if where is None:
            return None
        if isinstance(where, str):
            tree = predicates.parse(where, schema)
            return Filter(tree, predicates.to_arrow(tree), frozenset(predicates.columns(tree)))
        if isinstance(where, pc.Expression):
            try:
                schema.empty_table().filter(where)
            except (pa.ArrowException, ValueError, TypeError) as problem:
                raise PredicateError(f"The expression does not fit the table: {str(problem).splitlines()[0]}.") from None
            return Filter(None, where, frozenset(schema.names))
        raise OptionError(f"where takes a string or a pyarrow expression, got {type(where).__name__}.", option="where")


@dataclass(frozen=True)
class Range:
    """Rows changed by slots in (since, until]: `instants` are the commit times those slots gave their rows; None: all."""

    since: int
    instants: frozenset[str] | None


@dataclass(frozen=True)
class SliceTask:
    """Reads one slice; picklable, so it runs on Spark as well."""

    store: Store
    config: TableConfig
    group: FileGroup
    columns: tuple[str, ...]
    where: Filter | None
    changed: Range | None
    verified: bool = False

    def __call__(self) -> pa.Table:
        needed = list(self.columns)
        if self.where is not None:
            needed += [name for name in sorted(self.where.columns) if name not in needed]
        if self.changed is None or self.changed.instants is None:
            plain = self.group.logs or not self._prunes()
            rows = slices.read_slice(self.store, self.config, self.group, self._schema(needed), self.verified) if plain else self._pruned(needed)
        else:
            rows = self._changed(needed, pa.array(sorted(self.changed.instants), pa.string()))
        if self.where is not None:
            rows = rows.filter(self.where.expression)
        return rows.select(list(self.columns))

    def _schema(self, columns: list[str]) -> pa.Schema:
        return slices.schema_of(self.config, columns)

    def _prunes(self) -> bool:
        return self.where is not None and self.where.tree is not None and self.group.base is not None

    def _pruned(self, needed: list[str]) -> pa.Table:
        """Only the row groups that may hold a matching row."""
        assert self.group.base is not None and self.where is not None and self.where.tree is not None
        tree, columns = self.where.tree, self.config.schema

        def may_match(stats: statistics.Stats, rows: int) -> bool:
            return predicates.may_match(tree, column_ranges(stats, rows, columns))

        return slices.read_base(self.store, self.group.base.file, self._schema(needed), may_match, self.verified)

    def _changed(self, needed: list[str], instants: pa.Array) -> pa.Table:
        assert self.changed is not None
        wanted = list(dict.fromkeys([*needed, COMMIT_TIME]))
        if self.group.base is None or self.group.base.seq > self.changed.since:
            rows = slices.read_slice(self.store, self.config, self.group, self._schema(wanted))
            return rows.filter(pc.is_in(rows[COMMIT_TIME], value_set=instants))
        return self._changed_in_logs(wanted, instants)

    def _changed_in_logs(self, wanted: list[str], instants: pa.Array) -> pa.Table:
        """The base is older than the range: its rows are out, and it is read only where a logged row could lose to it."""
        assert self.group.base is not None
        config, base = self.config, self.group.base.file
        columns = slices.columns_for(config, wanted, merging=True)
        parts = slices.read_logs(self.store, config, self.group, self._schema(columns))
        if len(parts) != 1 or parts[0].columns is not None:
            rows = slices.read_slice(self.store, config, self.group, self._schema(wanted))
            return rows.filter(pc.is_in(rows[COMMIT_TIME], value_set=instants))
        changes = parts[0]
        rows = changes.rows.filter(pa.array(~changes.delete))
        rows = rows.filter(pc.is_in(rows[COMMIT_TIME], value_set=instants))
        if not len(rows) or not config.by_event_time or config.order_by is None:
            return rows
        low, high = pc.min(rows[config.order_by]), base.stats.get(config.order_by, [None, None])[1]
        if high is not None and low.is_valid and low.as_py() >= statistics.from_json(high, config.schema.field(config.order_by).type):
            return rows
        old = slices.read_base(self.store, base, self._schema([RECORD_KEY, config.order_by]))
        place = pc.index_in(rows[RECORD_KEY], value_set=old[RECORD_KEY].combine_chunks())
        known = rows.filter(place.is_valid())
        wins = beats(known[config.order_by], old[config.order_by].take(place.drop_null()))
        return pa.concat_tables([rows.filter(place.is_null()), known.filter(pa.array(wins))])


def column_ranges(stats: statistics.Stats, rows: int, schema: pa.Schema) -> dict[str, predicates.ColumnRange]:
    """What `stats` of `rows` rows say of the columns of `schema`, as typed values."""
    ranges = {}
    for name, (low, high, nulls) in stats.items():
        if name in schema.names:
            kind = schema.field(name).type
            ranges[name] = predicates.ColumnRange(statistics.from_json(low, kind), statistics.from_json(high, kind), nulls, rows)
    return ranges


class Scan:
    """Rows of a table at one slot. Nothing is read before a `to_...` method is called; each of them gives the same snapshot."""

    def __init__(
        self,
        history: History,
        config: TableConfig,
        view: View,
        columns: Sequence[str] | None = None,
        where: Any = None,
        meta: bool = False,
        read_optimized: bool = False,
        changed: Range | None = None,
        verified: bool = False,
    ) -> None:
        self._history, self._store, self._config, self._view, self._changed, self._read_optimized = history, history.store, config, view, changed, read_optimized
        self._verified = verified
        self._filter = Filter.of(where, config.file_schema if meta else config.schema)
        self._columns = self._output(columns, meta)
        self.cursor = Cursor(view.table, view.seq)

    def __repr__(self) -> str:
        return f"<hoodoo scan of {self._config.name!r} at slot {self._view.seq}: {len(self._columns)} columns>"

    def _output(self, columns: Sequence[str] | None, meta: bool) -> tuple[str, ...]:
        offered = [*META_COLUMNS, *self._config.schema.names] if meta else self._config.schema.names
        if columns is None:
            return tuple(offered)
        if not columns:
            raise ColumnError("columns is empty; name at least one, or use count().")
        if isinstance(columns, str):
            raise ColumnError(f"columns takes a list of names, got the text {columns!r}.", column=columns)
        for name in columns:
            if name not in offered:
                hint = " Pass meta=True for Hudi's meta columns." if name in META_COLUMNS else f" Columns: {', '.join(offered)}."
                raise ColumnError(f"The table has no column {name!r}.{hint}", column=name)
        return tuple(columns)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([self._config.file_schema.field(name) for name in self._columns])

    def tasks(self) -> list[SliceTask]:
        """One task per file slice that may hold rows of this scan."""
        groups = (self._group(group) for group in self._view.groups())
        wanted = [group for group in groups if group is not None and self._may_hold(group)]
        return [SliceTask(self._store, self._config, group, self._columns, self._filter, self._changed, self._verified) for group in wanted]

    def _group(self, group: FileGroup) -> FileGroup | None:
        if not self._read_optimized:
            return group
        return FileGroup(group.partition, group.file_id, group.base) if group.base else None

    def _may_hold(self, group: FileGroup) -> bool:
        if self._changed and not any(entry.seq > self._changed.since for entry in group.files()):
            return False
        if self._filter is None or self._filter.tree is None:
            return True
        config = self._config
        known = partition_values(group.partition, config.partition_by, config.schema, config.hive_style, config.url_encode) if config.partition_by else {}
        files = [entry.file for entry in group.files() if entry.file.rows and (entry.file.kind == BASE or entry.file.updates)]
        rows = sum(file.rows for file in files)
        ranges = column_ranges(statistics.union([file.stats for file in files], config.schema), rows, config.schema)
        for name, value in known.items():
            if value is not None:  # the default partition holds nulls and empty texts alike
                ranges[name] = predicates.ColumnRange(value, value, 0, rows)
        return predicates.may_match(self._filter.tree, ranges)

    # ---- rows
    def to_arrow(self) -> pa.Table:
        """All rows as one pyarrow Table."""
        parts = LocalEngine().map(self._read, self.tasks())
        return pa.concat_tables(parts) if parts else self.schema.empty_table()

    def _read(self, task: SliceTask) -> pa.Table:
        try:
            return task()
        except CorruptTable:
            self._history.head()
            self._history.require_readable(self._view.seq)  # a file that a clean took is an expired snapshot, not damage
            raise

    def batches(self, rows: int = _BATCH_ROWS) -> pa.RecordBatchReader:
        """A reader of batches of at most `rows` rows, one slice in memory at a time."""

        def read() -> Iterator[pa.RecordBatch]:
            for task in self.tasks():
                yield from self._read(task).to_batches(rows)

        return pa.RecordBatchReader.from_batches(self.schema, read())

    def count(self) -> int:
        """How many rows; from statistics alone where no log is over a base and nothing is filtered."""
        total, to_read = 0, []
        for task in self.tasks():
            if task.group.base and not task.group.logs and self._filter is None and self._changed is None and not self._verified:
                total += task.group.base.file.rows
            else:
                to_read.append(SliceTask(task.store, task.config, task.group, (RECORD_KEY,), task.where, task.changed, task.verified))
        return total + sum(len(part) for part in LocalEngine().map(self._read, to_read))

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All rows as a pandas DataFrame; options go to pyarrow's to_pandas."""
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> pl.DataFrame:
        """All rows as a polars DataFrame."""
        try:
            import polars
        except ImportError:
            raise EngineError("to_polars() needs polars: pip install polars.") from None
        return polars.from_arrow(self.to_arrow())  # type: ignore[return-value]

    def to_duckdb(self, connection: Any = None) -> duckdb.DuckDBPyRelation:
        """All rows as a DuckDB relation on `connection` (default: DuckDB's own)."""
        try:
            import duckdb
        except ImportError:
            raise EngineError("to_duckdb() needs duckdb: pip install duckdb.") from None
        return (connection or duckdb.default_connection()).from_arrow(self.to_arrow())

    def to_spark(self, spark: Any) -> Any:
        """The rows as a Spark DataFrame: slices without logs through Spark's own Parquet scan, the others merged in Python tasks."""
        from hoodoo.readers.spark import to_spark  # only those who use Spark import it

        return to_spark(self, spark)
