"""Reader for single rows by position.

The logs must record the positions of the base rows that they change. Lookups use this module, because the index returns
row positions. Change feeds use it to compare two snapshots with the same base file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from hoodoo.format.parquet import base_file
from hoodoo.format.rows import take_rows
from hoodoo.merge.kernels import KeyedChanges, concat_changes
from hoodoo.readers.slices import slices
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import DataFile
from hoodoo.timeline.views.view import FileGroup

_Read = Callable[[DataFile], list[KeyedChanges]]


def read_current_rows(
    store: Store, config: TableConfig, group: FileGroup, wanted: pa.Schema, rows: np.ndarray
) -> pa.Table:
    """Read current rows by their positions in the base file.

    Args:
        store: The store of the table.
        config: The configuration of the table.
        group: The file group of the slice, for which `slices.has_row_positions` must be true.
        wanted: The columns to return.
        rows: int64[n], positions in the base file, ascending and without duplicates.

    Raises:
        CorruptTable: A file is damaged or missing.
    """
    assert group.base is not None
    schema = _add_merge_columns(config, wanted)
    base = read_rows(store, config, group.base.file, schema, rows)
    parts = slices.read_log_blocks(store, config, group, schema, by_row=True)
    return _apply_log_changes(config, base, rows, parts).select(wanted.names)


def find_rows_changed_in_logs(
    store: Store, config: TableConfig, before: FileGroup, after: FileGroup, wanted: pa.Schema
) -> tuple[pa.Table, pa.Table] | None:
    """Find the rows that logs changed between two snapshots.

    Args:
        store: The store of the table.
        config: The configuration of the table.
        before: The file group in the older snapshot.
        after: The file group in the newer snapshot.
        wanted: The columns to return.

    Returns:
        The rows before and the rows after. None unless both snapshots have the same base file, and all logs record
        row positions.

    Raises:
        CorruptTable: A file is damaged or missing.
    """
    if not before.base or not after.base or before.base.file.path != after.base.file.path:
        return None
    if not slices.has_row_positions(before) or not slices.has_row_positions(after):
        return None
    old_logs, new_logs = (slices.sort_logs_by_instant(group) for group in (before, after))
    paths = {file.path for file in old_logs} ^ {file.path for file in new_logs}
    schema = _add_merge_columns(config, wanted)
    read = _create_cached_reader(store, config, schema)
    positions = [_row_positions(part) for file in (*old_logs, *new_logs) if file.path in paths for part in read(file)]
    rows = np.unique(np.concatenate([np.empty(0, np.int64), *positions]))
    base = read_rows(store, config, after.base.file, schema, rows)
    sides = ([part for file in files for part in read(file)] for files in (old_logs, new_logs))
    was, is_now = (_apply_log_changes(config, base, rows, parts).select(wanted.names) for parts in sides)
    return was, is_now


def read_logged_rows(
    store: Store, config: TableConfig, group: FileGroup, wanted: pa.Schema, chosen: Callable[[pa.Table], np.ndarray]
) -> pa.Table:
    """Read the rows whose newest version is in a log.

    Args:
        store: The store of the table.
        config: The configuration of the table.
        group: The file group of the slice, for which `slices.has_row_positions` must be true.
        wanted: The columns to return.
        chosen: Function that returns a mask of the logged rows to read. It receives the logged rows with the wanted
            columns. A column that the log does not set is null.

    Raises:
        CorruptTable: A file is damaged or missing.
    """
    assert group.base is not None
    schema = _add_merge_columns(config, wanted)
    parts = slices.read_log_blocks(store, config, group, schema, by_row=True)
    changes = config.merge_policy.collapse(concat_changes(parts))
    selected = changes.take(np.flatnonzero(chosen(changes.rows) & ~changes.delete))
    partial = selected.partial
    full, partial_rows = (selected.take(np.flatnonzero(mask)) for mask in (~partial, partial))
    partial_rows = partial_rows.take(np.argsort(_row_positions(partial_rows)))
    needed = slices.schema_of(config, [name for name in wanted.names if name in partial_rows.unset])
    stored = (
        read_rows(store, config, group.base.file, needed, _row_positions(partial_rows))
        if len(partial_rows)
        else needed.empty_table()
    )
    merged = config.merge_policy.applied_by_row(stored, partial_rows, np.arange(len(partial_rows)))
    columns = [merged[name] if name in partial_rows.unset else partial_rows.rows[name] for name in wanted.names]
    return pa.concat_tables([full.rows.select(wanted.names), pa.table(columns, schema=wanted)])


def read_rows(store: Store, config: TableConfig, file: DataFile, schema: pa.Schema, rows: np.ndarray) -> pa.Table:
    """Read the rows at some positions of a base file.

    Memory holds these rows and one row group. Raises CorruptTable.
    """
    tables = [schema.empty_table()]
    with slices.opened(store, file) as source:
        groups = base_file.RowGroupReader(
            source, file.path, schema, slices.get_expected_footer(file), config.resolution(file)
        )
        counts = [groups.metadata.row_group(number).num_rows for number in range(groups.metadata.num_row_groups)]
        starts = np.cumsum([0, *counts])
        for number, (begin, end) in enumerate(np.searchsorted(rows, np.stack([starts[:-1], starts[1:]], axis=1))):
            if end > begin:
                tables.append(take_rows(groups.decode(number), rows[begin:end] - starts[number]))
    return pa.concat_tables(tables).unify_dictionaries()


def _add_merge_columns(config: TableConfig, wanted: pa.Schema) -> pa.Schema:
    # Merging needs the record key and the ordering columns. A log may be older than every wanted column.
    extra = [name for name in config.merge_policy.needed_columns if wanted.get_field_index(name) < 0]
    return pa.schema([*wanted, *slices.schema_of(config, extra)])


def _create_cached_reader(store: Store, config: TableConfig, schema: pa.Schema) -> _Read:
    cache: dict[str, list[KeyedChanges]] = {}

    def read(file: DataFile) -> list[KeyedChanges]:
        if file.path not in cache:
            cache[file.path] = list(slices.read_log(store, config, file, schema, by_row=True))
        return cache[file.path]

    return read


def _apply_log_changes(
    config: TableConfig, base: pa.Table, rows: np.ndarray, logged: Sequence[KeyedChanges]
) -> pa.Table:
    parts = []
    for part in logged:
        matching = np.flatnonzero(np.isin(_row_positions(part), rows))
        if len(matching):
            parts.append(part.take(matching))
    if not parts:
        return base
    changes = config.merge_policy.collapse(concat_changes(parts))
    return config.merge_policy.applied_by_row(base, changes, np.searchsorted(rows, _row_positions(changes)))


def _row_positions(changes: KeyedChanges) -> np.ndarray:
    assert changes.at is not None  # requested when the log was read
    return changes.at


__all__ = ["find_rows_changed_in_logs", "read_current_rows", "read_logged_rows", "read_rows"]
