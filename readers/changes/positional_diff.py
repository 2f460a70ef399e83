"""Difference between base files, compared by row position.

If the key columns of both files consist of identical bytes, each row has the same position in both files. Otherwise
this module returns None, and the caller compares the rows by key.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hoodoo.format.names import COMMIT_TIME, RECORD_KEY
from hoodoo.format.parquet import base_file
from hoodoo.format.rows import take_rows
from hoodoo.readers.slices import slices
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import DataFile


def find_changed_rows(
    store: Store, config: TableConfig, before: DataFile, after: DataFile, wanted: pa.Schema
) -> tuple[pa.Table, pa.Table] | None:
    """Find the rows that differ between two base files.

    Args:
        store: The store of the table.
        config: The configuration of the table.
        before: The older base file.
        after: The newer base file of the same file group.
        wanted: The columns to return. They must include the record key and the commit time.

    Returns:
        The differing rows of the older file and of the newer file. None if the files cannot be compared by position.

    Raises:
        CorruptTable: A file is damaged or missing.
    """
    if before.external or after.external or before.schema != after.schema or after.schema != config.schema_id:
        return None
    with slices.opened(store, before) as old_bytes, slices.opened(store, after) as new_bytes:
        old, new = _OpenBaseFile(old_bytes, before, wanted), _OpenBaseFile(new_bytes, after, wanted)
        if not all(new.has_same_bytes(old, group, [RECORD_KEY]) for group in range(old.groups)):
            return None
        was, now = [wanted.empty_table()], [wanted.empty_table()]
        for group in range(new.groups):
            if group >= old.groups:
                now.append(new.rows.decode(group))
            elif not new.has_same_bytes(old, group, [COMMIT_TIME]):
                for rows_so_far, rows in zip((was, now), _differing_rows(old, new, group, wanted), strict=True):
                    rows_so_far.append(rows)
    return pa.concat_tables(was), pa.concat_tables(now)


def _differing_rows(old: _OpenBaseFile, new: _OpenBaseFile, group: int, wanted: pa.Schema) -> tuple[pa.Table, pa.Table]:
    # A column with identical bytes in both files is decoded once.
    same = [name for name in wanted.names if new.has_same_bytes(old, group, [name])]
    now = new.rows.decode(group)
    was = old.rows.decode(group, [name for name in wanted.names if name not in same])
    positions = np.flatnonzero(pc.not_equal(was[COMMIT_TIME], now[COMMIT_TIME]).to_numpy())
    columns = [now[name] if name in same else was[name] for name in wanted.names]
    return take_rows(pa.table(columns, schema=wanted), positions), take_rows(now, positions)


class _OpenBaseFile:
    def __init__(self, source: pa.NativeFile, file: DataFile, wanted: pa.Schema) -> None:
        self.rows = base_file.RowGroupReader(source, file.path, wanted, slices.get_expected_footer(file))
        self._metadata = self.rows.metadata
        self.groups = self._metadata.num_row_groups
        self._leaves: dict[str, list[int]] = {}
        for leaf in range(self._metadata.num_columns):
            top = self._metadata.schema.column(leaf).path.partition(".")[0]
            self._leaves.setdefault(top, []).append(leaf)

    def has_same_bytes(self, other: _OpenBaseFile, group: int, columns: Sequence[str]) -> bool:
        if group >= min(self.groups, other.groups):
            return False
        mine, theirs = self._metadata.row_group(group), other._metadata.row_group(group)
        return mine.num_rows == theirs.num_rows and all(
            self._chunk_formats(mine, column) == other._chunk_formats(theirs, column)
            and self._chunk_bytes(group, column) == other._chunk_bytes(group, column)
            for column in columns
        )

    def _chunk_formats(self, group: pq.RowGroupMetaData, column: str) -> list[tuple[str, str, int]]:
        chunks = (group.column(leaf) for leaf in self._leaves.get(column, ()))
        return [(chunk.physical_type, chunk.compression, chunk.total_compressed_size) for chunk in chunks]

    def _chunk_bytes(self, group: int, column: str) -> list[bytes]:
        return [self.rows.read_column_chunk(group, leaf) for leaf in self._leaves.get(column, ())]


__all__ = ["find_changed_rows"]
