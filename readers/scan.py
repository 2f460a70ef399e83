"""Scans of a table.

A scan is fixed at one slot when it is created. It skips partitions and files by partition values and statistics. The
remaining file slices are read in parallel. A file slice without logs is read as plain Parquet.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from hoodoo.arguments import convert_names
from hoodoo.engine.local import LocalEngine
from hoodoo.errors import ColumnError
from hoodoo.format.names import META_COLUMNS, RECORD_KEY
from hoodoo.nearest import suggest_name
from hoodoo.notebook import format_html_table, truncate_text
from hoodoo.readers.cursor import cursor_of
from hoodoo.readers.output import Rows
from hoodoo.readers.predicate.filter import Filter, Params, Where, add_pruning_condition
from hoodoo.readers.predicate.tree import Predicate, renamed
from hoodoo.readers.pruning import FilePruning
from hoodoo.readers.slices.slice_task import CommitRange, SliceTask
from hoodoo.readers.task import Task
from hoodoo.redact import printable
from hoodoo.timeline.history import History
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import FileGroup, View

_LINE = 110  # maximum length of a line in a repr


def validate_columns(columns: Sequence[str] | None, offered: Sequence[str]) -> tuple[str, ...]:
    """Validate the columns that a read requests.

    Returns their names. None means all `offered` columns. Raises ColumnError.
    """
    if columns is None:
        return tuple(offered)
    if isinstance(columns, str):
        raise ColumnError(
            f"Option columns is invalid: expected a list of names, got the string {printable(columns)}. Write "
            f"columns=[{printable(columns)}].",
            column=columns[:100],
        )
    columns, available, seen = convert_names("columns", columns), set(offered), set[str]()
    if not columns:
        raise ColumnError("Option columns is empty. Name at least one column, or use count().", columns=[])
    for name in columns:
        if name in seen:
            raise ColumnError(f"Option columns contains {printable(name)} twice. Name each column once.", column=name)
        seen.add(name)
        if name not in available:
            meta = "pass meta=True to read Hudi's meta columns."
            advice = meta if name in META_COLUMNS else suggest_name(name, offered)
            raise ColumnError(f"Column {printable(name)} is not in the table; {advice}", column=name)
        seen.add(name)
    return columns


class Scan(Rows):
    """Rows of a table at one commit.

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
        changed: CommitRange | None = None,
        verified: bool = False,
        params: Params | None = None,
    ) -> None:
        self._history, self._store, self._config, self._view, self._changed, self._read_optimized = (
            history,
            history.store,
            config,
            view,
            changed,
            read_optimized,
        )
        self._verified, self._seq, self._where = verified, view.seq, where
        offered = config.file_schema if meta else config.schema
        self._filter = Filter.parse(config.name_mapping.text(where), offered, params=params)
        self._columns = self._validate_columns(columns, meta)
        self.cursor = cursor_of(view)

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name} {field.type}" for field in self.schema)
        return f"<hoodoo {self._title()}>\n{truncate_text(f'{len(self._columns)} columns: {columns}', _LINE)}"

    def _title(self) -> str:
        kind = "scan" if self._changed is None else f"rows changed after slot {self._changed.since}"
        where = f", where {printable(self._where, _LINE // 2)}" if self._where is not None else ""
        optimized = ", base files only" if self._read_optimized else ""
        return f"{kind} of {self._config.name!r} at slot {self._view.seq}{where}{optimized}"

    def _repr_html_(self) -> str:
        # Rows are not shown, because reading them may be expensive.
        schema = self.schema
        return format_html_table(
            f"hoodoo {self._title()}; head() reads a few rows",
            ("column", "type"),
            ((field.name, str(field.type)) for field in schema),
        )

    def _validate_columns(self, columns: Sequence[str] | None, meta: bool) -> tuple[str, ...]:
        return validate_columns(
            self._config.name_mapping.names(columns),
            [*META_COLUMNS, *self._config.schema.names] if meta else self._config.schema.names,
        )

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows."""
        return self._rename_schema(pa.schema([self._config.file_schema.field(name) for name in self._columns]))

    def _narrowed(self, columns: Sequence[str], tree: Predicate | None) -> Scan:
        scan, stored = copy.copy(self), dict(zip(self.schema.names, self._columns, strict=True))
        scan._columns = tuple(stored[name] for name in columns) or (
            RECORD_KEY,
        )  # a table without columns has no row count
        scan._filter = add_pruning_condition(self._filter, None if tree is None else renamed(tree, stored))
        return scan

    def tasks(self) -> list[Task]:
        """Split the scan into tasks that can run anywhere.

        Returns:
            One task per file slice that may contain rows of this scan.
        """
        return list(self._each_task())

    def _each_task(self) -> Iterator[Task]:
        return map(self._rename_task, self._each_slice())

    def _each_slice(self) -> Iterator[SliceTask]:
        pruning = FilePruning(
            self._config, self._filter.tree if self._filter else None, own=not self._view.foreign_rows
        )
        partitions = (partition for partition in self._view.partitions if pruning.may_match_in(partition))
        for group in map(self._without_logs, self._view.groups(partitions)):
            if group is not None and self._may_have_changed(group) and pruning.may_match(group):
                yield SliceTask(
                    self._store, self._config, group, self._columns, self._filter, self._changed, self._verified
                )

    def _without_logs(self, group: FileGroup) -> FileGroup | None:
        if not self._read_optimized:
            return group
        return FileGroup(group.partition, group.file_id, group.base) if group.base else None

    def _may_have_changed(self, group: FileGroup) -> bool:
        changed = self._changed
        return changed is None or any(entry.seq > changed.since for entry in group.files())

    def count(self) -> int:
        """Count the rows of the scan.

        Files are only read where necessary. Without a condition, only file slices with log files are read. The other
        row counts come from the slots.

        Returns:
            The number of rows.

        Raises:
            SnapshotExpired: Cleaning deleted files of the snapshot during the read.
            CorruptTable: A file is damaged.
        """
        total, to_read = 0, []
        for task in self._each_slice():
            if (file := task.plain) is not None:
                total += file.rows
            else:
                to_read.append(replace(task, columns=(RECORD_KEY,)))
        return total + sum(LocalEngine().map(lambda task: len(self._convert_errors(task)), to_read))
