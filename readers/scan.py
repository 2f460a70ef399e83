"""Scans: a snapshot, or the rows changed in a range, fixed at one slot when asked for.

Pruning by partition values and file statistics, then slices in parallel. A slice without logs is a plain Parquet read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from hoodoo.arguments import names
from hoodoo.engine.local import LocalEngine
from hoodoo.errors import ColumnError, CorruptTable
from hoodoo.format.keys import partition_values
from hoodoo.format.names import META_COLUMNS, RECORD_KEY
from hoodoo.format.parquet import statistics
from hoodoo.readers.cursor import Cursor
from hoodoo.readers.output import Rows
from hoodoo.readers.predicate import tree as predicates
from hoodoo.readers.predicate.filter import Filter, Where, column_ranges
from hoodoo.readers.slices.slice_task import Range, SliceTask
from hoodoo.redact import printable
from hoodoo.timeline.history import History
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import BASE
from hoodoo.timeline.views.view import FileGroup, View

_MANY = 1 << 62  # rows that a partition may have, as far as its name tells


def chosen_columns(columns: Sequence[str] | None, offered: Sequence[str]) -> tuple[str, ...]:
    """`columns`, or all that are `offered`. Raises ColumnError."""
    if columns is None:
        return tuple(offered)
    if isinstance(columns, str):
        raise ColumnError(f"columns takes a list of names, got the text {printable(columns)}.", column=columns[:100])
    columns, known, seen = names("columns", columns), set(offered), set[str]()
    if not columns:
        raise ColumnError("columns is empty; name at least one, or use count().", columns=[])
    for name in columns:
        if name in seen:
            raise ColumnError(f"columns names {printable(name)} twice; name it once.", column=name)
        seen.add(name)
        if name not in known:
            hint = (
                " Pass meta=True for Hudi's meta columns."
                if name in META_COLUMNS
                else f" There are {', '.join(offered)}."
            )
            raise ColumnError(f"The table has no column {printable(name)}.{hint}", column=name)
        seen.add(name)
    return columns


class Scan(Rows):
    """The rows of a table at one slot; `Table.scan` and other methods make it.

    Attributes:
        cursor: The position of the slot.
    """

    def __init__(
        self,
        history: History,
        config: TableConfig,
        view: View,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        meta: bool = False,
        read_optimized: bool = False,
        changed: Range | None = None,
        verified: bool = False,
    ) -> None:
        self._history, self._store, self._config, self._view, self._changed, self._read_optimized = (
            history,
            history.store,
            config,
            view,
            changed,
            read_optimized,
        )
        self._verified, self._seq = verified, view.seq
        self._filter = Filter.of(where, config.file_schema if meta else config.schema)
        self._columns = self._output(columns, meta)
        self.cursor = Cursor(view.table, view.seq)

    def __repr__(self) -> str:
        return f"<hoodoo scan of {self._config.name!r} at slot {self._view.seq}: {len(self._columns)} columns>"

    def _output(self, columns: Sequence[str] | None, meta: bool) -> tuple[str, ...]:
        return chosen_columns(
            columns, [*META_COLUMNS, *self._config.schema.names] if meta else self._config.schema.names
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return pa.schema([self._config.file_schema.field(name) for name in self._columns])

    def tasks(self) -> list[SliceTask]:
        """Split the read into tasks that can run anywhere.

        Returns:
            One task per file slice that may hold rows of this scan.
        """
        return list(self._each_task())

    def _each_task(self) -> Iterator[SliceTask]:
        """As `tasks`, one by one: of a large table nobody holds them, or its file groups, together."""
        partitions = (partition for partition in self._view.partitions if self._may_hold_in(partition))
        for group in map(self._group, self._view.groups(partitions)):
            if group is not None and self._may_hold(group):
                yield SliceTask(
                    self._store, self._config, group, self._columns, self._filter, self._changed, self._verified
                )

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
        files = [
            entry.file for entry in group.files() if entry.file.rows and (entry.file.kind == BASE or entry.file.updates)
        ]
        rows = sum(file.rows for file in files)
        stats = [config.resolution(file).stats(file.stats, file.rows) for file in files]
        ranges = column_ranges(statistics.union(stats, config.schema), rows, config.schema)
        return predicates.may_match(self._filter.tree, ranges | self._folder_ranges(group.partition, rows))

    def _may_hold_in(self, partition: str) -> bool:
        """Tell by the values in its folder's name whether a row of the partition may match.

        Where none may, the statistics of its files are not looked at.
        """
        if self._filter is None or self._filter.tree is None:
            return True
        return predicates.may_match(self._filter.tree, self._folder_ranges(partition, _MANY))

    def _folder_ranges(self, partition: str, rows: int) -> dict[str, predicates.ColumnRange]:
        """Of columns whose values the folder tells; the default partition holds nulls and empty texts alike."""
        values = self._partition_values(partition)
        known = ((name, value) for name, value in values.items() if value is not None)
        return {name: predicates.ColumnRange(value, value, 0, rows) for name, value in known}

    def _partition_values(self, partition: str) -> dict[str, Any]:
        """What the folder tells of its rows' partition columns; nothing where values are not its text."""
        config = self._config
        if not config.folders_tell_values:
            return {}
        try:
            return partition_values(partition, config.partition_by, config.schema, config.hive_style, config.url_encode)
        except CorruptTable:
            if config.table_id:
                raise
            return {}  # another engine's folder: a value with slashes, or a spelling of its own

    def count(self) -> int:
        """Count the rows.

        Without a condition it reads only the file slices with log files, and takes the other numbers from the slots.

        Returns:
            The number of rows.

        Raises:
            SnapshotExpired: A clean deleted files of the snapshot meanwhile.
            CorruptTable: A file is damaged.
        """
        total, to_read = 0, []
        for task in self._each_task():
            if (file := task.plain) is not None:
                total += file.rows
            else:
                to_read.append(replace(task, columns=(RECORD_KEY,)))
        return total + sum(LocalEngine().map(lambda task: len(self._guarded(task)), to_read))
