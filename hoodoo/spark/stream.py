"""Streams of rows and row changes from hoodoo to Spark.

A micro-batch is determined by its two offsets. An offset is a table and a slot. Within the initial snapshot, it also
contains the number of file groups read so far, in the order of partition and file id. Spark stores offsets in its
checkpoint and repeats interrupted micro-batches, so rows are delivered exactly once. readers/progress.py decides where
a micro-batch ends.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from hoodoo.engine.spark_types import arrow_schema_of, schema_to_ddl
from hoodoo.errors import PositionError, SchemaError, StoreDenied, StoreFull, StoreRefused, StoreUnavailable
from hoodoo.readers.changes.changes import Changes
from hoodoo.readers.changes.incremental import IncrementalRows
from hoodoo.readers.cursor import Cursor, cursor_of_commit_number, require_same_commit
from hoodoo.readers.output import Rows
from hoodoo.readers.progress import (
    MicroBatchSize,
    StreamLimits,
    StreamPosition,
    find_next_batch_end,
    find_snapshot_batch_end,
)
from hoodoo.readers.scan import Scan
from hoodoo.readers.slices.slice_task import CommitRange
from hoodoo.spark.parts import ReadPart, get_read_schema, read_part, split_read
from hoodoo.spark.source_options import CHANGES, ReadOptions
from hoodoo.table import Table
from hoodoo.table.reading import read_changed_rows
from hoodoo.timeline.holds import leases
from hoodoo.timeline.holds.leases import Lease
from hoodoo.timeline.slots.slot import Slot
from hoodoo.timeline.views.view import FileGroup, View

_HOLD_HOURS = 24.0  # protection time of the initial snapshot after the newest trigger
_RENEW_S = 3600.0
_MUCH = 1 << 62


class HoodooStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a Spark stream, `spark.readStream.format("hoodoo")`.

    Spark runs it in a separate planner process. Its method `read` runs in tasks.
    """

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self.options, self.schema = options, schema
        self._opened: Table | None = None
        self._target: int | None = None
        self._lease: Lease | None = None
        self._leased_at = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        return HoodooStream, (self.options, self.schema)

    @property
    def _table(self) -> Table:
        if self._opened is None:
            self._opened = self.options.open()
        return self._opened

    # ---- offsets
    def initialOffset(self) -> dict[str, Any]:
        """Return the offset of a new streaming query.

        Returns:
            The offset.

        Raises:
            PositionError: The option `since` is not a position of the table.
            SnapshotExpired: Cleaning deleted the snapshot at the option `since`.
        """
        table, options = self._table, self.options
        start = table.handle.slot_of(table.handle.look().history, self._start(), exclusive=True)
        if options.consumer is not None:
            start = table.consumer(options.consumer, Cursor(table.cursor.table, start)).position.seq
        if not start and not self._groups(first := self._first_snapshot(table.handle.history.head())):
            start = first.seq
        return self._offset(StreamPosition(start))

    def _offset(self, position: StreamPosition) -> dict[str, Any]:
        at = cursor_of_commit_number(self._table.handle.history, position.slot)
        return position.to_json(at.table, at.digest)

    def _position(self, offset: dict[str, Any], head: View) -> StreamPosition:
        """Parse a stream position."""
        found = StreamPosition.from_json(offset, head.table)
        if found.slot > head.seq:
            raise PositionError(
                f"The checkpoint of the stream is at slot {found.slot}, but the newest slot is {head.seq}: the "
                "table was restored from a backup. Start the query with a new checkpoint."
            )
        require_same_commit(self._table.handle.history, found.slot, found.digest, "The checkpoint of the stream")
        return found

    def _start(self) -> Any:
        if self.options.since is not None and self.options.since.lower() == "latest":
            return self._table.cursor
        return self.options.since or "earliest"

    def prepareForTriggerAvailableNow(self) -> None:
        """Stop the query at the newest commit."""
        self._target = self._table.cursor.seq

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the row limit of a micro-batch.

        Spark passes it to `latestOffset`, which then applies the limits in the options. Spark itself cannot limit
        commits, and supports only one limit at a time.

        Returns:
            A limit of rows if the options contain any limit, otherwise no limit.
        """
        return (
            ReadAllAvailable()
            if self.options.limits == StreamLimits()
            else ReadMaxRows(self.options.limits.rows or _MUCH)
        )

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the offset at which the next micro-batch ends.

        Args:
            start: The offset at which it starts.
            limit: The limit of the micro-batch, as `getDefaultReadLimit` returned it.

        Returns:
            The offset, or `start` if there is nothing to read.

        Raises:
            PositionError: The checkpoint belongs to another table, or is after the newest slot.
            RangeUndone: Another engine rolled back the slot of `start`.
            SchemaError: The columns of the table changed while the query ran.
        """
        head = self._head()
        here = self._position(start, head)
        self._table.handle.history.require_not_rolled_back(here.slot)
        limits = StreamLimits() if isinstance(limit, ReadAllAvailable) else self.options.limits
        if not here.slot or here.groups is not None:
            found = self._next_of_snapshot(here, head, limits)
        else:
            end = head.seq if self._target is None else min(head.seq, self._target)
            found = (
                find_next_batch_end(
                    here.slot, end, self._written(head, here.slot, end), limits, min(head.min_readable, end)
                )
                if end > here.slot
                else here
            )
        return start if found == here else self._offset(found)

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the position of the newest commit.

        Returns:
            The offset.

        Raises:
            SchemaError: The columns of the table changed while the query ran.
        """
        head = self._head()
        return self._offset(StreamPosition(head.seq))

    def _head(self) -> View:
        table = self._table
        head: View = table.handle.look().view
        if (now := schema_to_ddl(get_read_schema(table, self.options))) != (
            planned := schema_to_ddl(arrow_schema_of(self.schema))
        ):
            raise SchemaError(
                f"The columns of the table changed while the stream was running: expected {planned}, got "
                f"{now}. Restart the query. Its checkpoint stays valid."
            )
        return head

    def _next_of_snapshot(self, here: StreamPosition, head: View, limits: StreamLimits) -> StreamPosition:
        seq = here.slot or self._first_snapshot(head).seq
        if limits != StreamLimits():
            self._protect_snapshot(seq)
        return find_snapshot_batch_end(
            seq, here.groups or 0, [_weight_of_group(group) for group in self._groups(self._snapshot(seq))], limits
        )

    def _first_snapshot(self, head: View) -> View:
        """Return the snapshot that the stream reads before it reads changes.

        This is the newest snapshot, or the oldest readable one if the stream reads commit by commit.
        """
        by_commit = self.options.versions == "all" or self.options.limits.commits is not None
        seq = max(1, head.min_readable) if by_commit else head.seq
        view: View = self._table.handle.history.view(seq if self._target is None else min(seq, self._target))
        return view

    @staticmethod
    def _groups(view: View) -> list[FileGroup]:
        return sorted(view.groups(), key=lambda group: (group.partition, group.file_id))

    def _written(self, head: View, after: int, up_to: int) -> Iterator[tuple[int, MicroBatchSize]]:
        for seq in range(after + 1, up_to + 1):
            slot = self._table.handle.history.slot(seq)
            if slot.writes_rows and not head.is_rolled_back_by_other_engine(seq):
                yield seq, _weight_of_slot(slot)

    # ---- rows
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Split a micro-batch into Spark partitions.

        Args:
            start: The offset at which the micro-batch starts.
            end: The offset at which the micro-batch ends.

        Returns:
            The Spark partitions.

        Raises:
            SnapshotExpired: Cleaning deleted files that the micro-batch needs.
            SchemaError: The columns of the table changed while the query ran.
        """
        head = self._head()
        first, last = self._position(start, head), self._position(end, head)
        if first == last:
            return []
        if not first.slot or first.groups is not None:
            return self._parts_of_snapshot(first, last)
        self._table.handle.history.require_not_rolled_back(first.slot)
        since = self._before_first_change(head, first.slot, last.slot)
        if since == last.slot:
            return []
        rows = self._rows_between(since, last.slot)
        return split_read(rows, self._table, (since, last.slot) if self._compares else (last.slot,))

    @property
    def _compares(self) -> bool:
        return self.options.mode == CHANGES or self.options.deletes

    @property
    def _columns(self) -> list[str] | None:
        return None if self.options.columns is None else list(self.options.columns)

    def _before_first_change(self, head: View, after: int, up_to: int) -> int:
        """Skip commits that changed no rows.

        The returned commit has the same rows as commit `after`, and stays readable for longer.
        """
        return next((seq - 1 for seq, _ in self._written(head, after, up_to)), up_to)

    def _rows_between(self, since: int, until: int) -> Rows:
        handle, options = self._table.handle, self.options
        newest = handle.look()
        seen = newest._replace(view=newest.history.view(until))
        if options.mode == CHANGES:
            return Changes(seen.history, seen.config, since, seen.view, self._columns, options.where, options.versions)
        return read_changed_rows(seen, since, self._columns, options.where, options.meta, options.deletes)

    def _parts_of_snapshot(self, first: StreamPosition, last: StreamPosition) -> list[ReadPart]:
        view = self._snapshot(last.slot)
        groups = self._groups(view)[first.groups or 0 : last.groups]
        some: dict[str, dict[str, FileGroup]] = {}
        for group in groups:
            some.setdefault(group.partition, {})[group.file_id] = group
        return split_read(self._rows_of_snapshot(replace(view, partitions=some)), self._table, (last.slot,))

    def _rows_of_snapshot(self, view: View) -> Rows:
        """Read a snapshot as changes of a stream."""
        history, options = self._table.handle.history, self.options
        config = self._table.handle.config.knowing(view.schemas)
        if options.mode == CHANGES:
            return Changes(history, config, 0, view, self._columns, options.where)
        scan = Scan(history, config, view, self._columns, options.where, options.meta, changed=CommitRange(0, None))
        return IncrementalRows(history, config, scan, 0, view, options.where, options.meta) if options.deletes else scan

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one Spark partition.

        Args:
            partition: The partition.

        Returns:
            The rows, in batches.
        """
        return read_part(partition, self.schema)

    # ---- what is held
    def _snapshot(self, seq: int) -> View:
        """Return the snapshot at a commit.

        Raises:
            SnapshotExpired: The snapshot is neither readable nor protected.
        """
        history = self._table.handle.history
        held = not history.head().readable(seq) and seq in leases.list_protected_commits(self._table.handle.store)
        view: View = history.state(seq) if held else history.view(seq)
        return view

    def _protect_snapshot(self, seq: int) -> None:
        """Protect a snapshot from cleaning.

        Without write permission, only retention protects the snapshot. A stopped query leaves its lease, so it can be
        restarted until the lease expires.
        """
        if self._lease is not None and self._lease.seq == seq and time.monotonic() - self._leased_at < _RENEW_S:
            return
        self._snapshot(seq)
        old, self._leased_at = self._lease, time.monotonic()
        with suppress(StoreDenied, StoreFull, StoreRefused, StoreUnavailable):
            self._lease = Lease(self._table.handle.store, self._table.handle.environment, seq, _HOLD_HOURS)
            if old is not None:
                old.release()

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge a processed offset.

        Spark calls this method after it has processed all rows up to an offset.

        Args:
            end: The offset.
        """
        table = self._table
        done = StreamPosition.from_json(end, table.cursor.table)
        if done.groups is not None:
            return
        if self._lease is not None:
            self._lease.release()
            self._lease = None
        if self.options.consumer is not None:
            here = cursor_of_commit_number(table.handle.history, done.slot)
            consumer = table.consumer(self.options.consumer, here)
            if consumer.position.seq < done.slot:  # after a restart, the consumer may be ahead of the checkpoint
                consumer.commit(here)


def _weight_of_slot(slot: Slot) -> MicroBatchSize:
    counted = sum(slot.counts.get(name, 0) for name in ("inserts", "updates", "deletes", "removed"))
    rows = counted or sum(file.inserts + file.updates + file.deletes for file in slot.files)
    return MicroBatchSize(1, len(slot.files) + len(slot.replaced), rows)


def _weight_of_group(group: FileGroup) -> MicroBatchSize:
    """Return the number of files and rows of a file group.

    The rows of log files are all counted, because the number of rows that they replace is unknown.
    """
    files = [entry.file for entry in group.files()]
    return MicroBatchSize(0, len(files), sum(file.rows for file in files))
