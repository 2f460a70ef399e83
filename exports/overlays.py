"""Overlay files, which show the changes in logs to Delta and Iceberg readers.

Readers of base files see the changes as overlays. An overlay belongs to a file group with logs. It lists the dead rows
of the base file, which logs replace or delete. It also has a small Parquet file with the rows that the logs wrote. A
reader that skips the dead rows and adds the overlay rows gets the merged rows.

Each format stores the dead rows in its own way. The Parquet file is below `.hoodie`, because Hudi readers would treat a
Parquet file in a partition folder as a base file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hoodoo.engine.local import LocalEngine
from hoodoo.exports.writing import MetadataFileWriter
from hoodoo.format.names import COMMIT_TIME, META_COLUMNS, PARTITION_PATH, RECORD_KEY
from hoodoo.format.parquet import base_file, statistics
from hoodoo.merge.kernels import KeyedChanges
from hoodoo.readers.slices import slices
from hoodoo.storage.store import Store
from hoodoo.timeline.history import History
from hoodoo.timeline.layout import OVERLAYS, VECTORS
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import BASE, DataFile
from hoodoo.timeline.views.file_group import AddedFile
from hoodoo.timeline.views.view import FileGroup, View

_GROUP_DIGITS = 16
_NAME = re.compile(r"([0-9a-f]{16})([0-9a-f]{10})[0-9a-f]{6}")
_DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class LogFileChanges:
    """Changes of a base file that its log files contain.

    The log files belong to one file group.

    Attributes:
        name: The name, which identifies the files of the file group and the columns of the table.
        base: The base file, or None if the file group only has logs.
        dead: Positions of the base rows that logs replace or delete: int64, ascending.
        rows: The file with the rows that the logs wrote, or None if there are no such rows.
    """

    name: str
    base: AddedFile | None
    dead: np.ndarray
    rows: AddedFile | None


def derive_changes_name(config: TableConfig, group: FileGroup) -> str:
    """Derive a file name for the changes in log files.

    The name of an overlay changes with the files and the columns. The name consists of the file group, the newest slot
    of its files, and the id of the columns. Each part has a fixed number of hexadecimal digits, so that the name is
    also a valid UUID.
    """
    return f"{_group_hash(group)}{_newest_slot(group):010x}{config.schema_id % (1 << 24):06x}"


def _group_hash(group: FileGroup) -> str:
    # The file id alone is not enough, because other engines may use one file id in two partitions.
    return hashlib.sha256(f"{group.partition}\n{group.file_id}".encode()).hexdigest()[:_GROUP_DIGITS]


def _newest_slot(group: FileGroup) -> int:
    # This slot identifies the current files of the group.
    return max(entry.seq for entry in group.files())


def covered(view: View) -> list[FileGroup]:
    with_logs = [group for group in view.groups() if group.logs]
    return sorted(with_logs, key=lambda group: (group.file_id, group.partition))


class LogFileChangesCache:
    """Cache of log file changes that an export writes.

    Each overlay is built once for all formats.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._made: dict[str, LogFileChanges] = {}
        self._keys: set[str] = set()  # keys of the written files

    def compute_changes(
        self, writing: MetadataFileWriter, config: TableConfig, groups: Iterable[FileGroup]
    ) -> list[LogFileChanges]:
        """Compute and write the changes of log files.

        Builds the overlays of file groups, and writes the Parquet files with their rows. Raises CorruptTable if a file
        of a file group is damaged.
        """
        groups_by_name = {derive_changes_name(config, group): group for group in groups}
        missing = [(name, group) for name, group in groups_by_name.items() if name not in self._made]

        def make(item: tuple[str, FileGroup]) -> LogFileChanges:
            name, group = item
            dead, rows = _compute_overlay(self._store, config, group)
            return LogFileChanges(
                name, group.base, dead, _write_overlay_file(writing, config, group, f"{OVERLAYS}{name}.parquet", rows)
            )

        self._keys |= {f"{OVERLAYS}{name}.parquet" for name, _ in missing}
        self._made |= {overlay.name: overlay for overlay in LocalEngine().map(make, missing)}
        return [self._made[name] for name in groups_by_name]

    @staticmethod
    def merged_rows_path(config: TableConfig, group: FileGroup) -> str:
        return f"{OVERLAYS}whole_{derive_changes_name(config, group)}.parquet"

    def write_merged_rows(self, writing: MetadataFileWriter, config: TableConfig, group: FileGroup) -> AddedFile | None:
        """Write all merged rows to one file.

        The rows belong to one file group. This is for readers that cannot skip rows of its base file.

        Returns None for a file group without rows. Raises CorruptTable if one of its files is damaged.
        """
        names = [RECORD_KEY, *(column.name for column in config.columns.columns)]
        rows = slices.read_file_slice(self._store, config, group, slices.schema_of(config, names), verified=True)
        self._keys.add(key := self.merged_rows_path(config, group))
        return _write_overlay_file(writing, config, group, key, _add_partition_column(group, rows))

    def delete_unused_files(self, history: History) -> None:
        """Delete files that no readable snapshot of this export needs.

        No readable snapshot needs these overlay files. A concurrent purge may have searched for its keys before these
        files were written.
        """
        if self._keys:
            history.head()
            for key, _ in unused_overlay_files(self._store, create_unused_file_test(history)):
                if key in self._keys:
                    self._store.delete(key)


def _compute_overlay(store: Store, config: TableConfig, group: FileGroup) -> tuple[np.ndarray, pa.Table]:
    # Returns the positions of the base rows that logs replace or delete, and the rows that the logs wrote. The rows
    # include record keys and partitions, because a purge searches for them.
    names = [RECORD_KEY, *(column.name for column in config.columns.columns)]
    # includes logs that set none of the table's columns
    needed = slices.columns_to_decode(config, [*names, COMMIT_TIME], merging=True)
    parts = slices.read_log_blocks(store, config, group, slices.schema_of(config, needed))
    has_whole_rows = not any(part.columns is not None or part.unset for part in parts)
    dead, rows = (
        _overlay_of_full_rows(store, config, group, parts)
        if has_whole_rows
        else _overlay_by_merging(store, config, group, parts)
    )
    return dead, _add_partition_column(group, rows.select(names))


def _add_partition_column(group: FileGroup, rows: pa.Table) -> pa.Table:
    # The first column of the rows is the record key.
    return rows.add_column(1, PARTITION_PATH, base_file.constant(group.partition, len(rows)))


def _overlay_of_full_rows(
    store: Store, config: TableConfig, group: FileGroup, parts: Sequence[KeyedChanges]
) -> tuple[np.ndarray, pa.Table]:
    # The logs have no partial updates, so only keys and ordering values of the base file are read.
    pending = config.merge_policy.start_streaming_merge(parts)
    dead = np.empty(0, np.int64)
    if group.base:
        needed = slices.schema_of(config, config.merge_policy.needed_columns)
        dead, _ = pending.find_changed_rows(slices.read_base(store, config, group.base.file, needed))
    return dead, pending.changes.rows.filter(pa.array(pending.live()))


def _overlay_by_merging(
    store: Store, config: TableConfig, group: FileGroup, parts: Sequence[KeyedChanges]
) -> tuple[np.ndarray, pa.Table]:
    # The logs have partial updates, so all rows whose keys occur in the logs are merged.
    keys = pa.concat_arrays([chunk for part in parts for chunk in part.rows[RECORD_KEY].chunks]).unique()
    dead = np.empty(0, np.int64)
    if group.base:
        stored = slices.read_base(store, config, group.base.file, slices.schema_of(config, [RECORD_KEY]))
        dead = np.flatnonzero(slices.among(stored[RECORD_KEY], keys))
    schema = slices.schema_of(config, [RECORD_KEY, *(column.name for column in config.columns.columns)])
    return dead, slices.read_file_slice(store, config, group, schema, keys=keys)


def _write_overlay_file(
    writing: MetadataFileWriter, config: TableConfig, group: FileGroup, key: str, rows: pa.Table
) -> AddedFile | None:
    # None if there are no rows.
    if not len(rows):
        return None
    schema = pa.schema([config.columns.arrow_fields_with_ids[name] for name in rows.schema.names])
    sink = pa.BufferOutputStream()
    collected: list[pq.FileMetaData] = []
    with pq.ParquetWriter(
        sink,
        schema,
        compression=config.options.compression,
        write_page_checksum=True,
        store_schema=False,
        metadata_collector=collected,
    ) as writer:
        writer.write_table(rows.cast(schema))
    size = writing.create_and_measure(key, sink.getvalue())
    table_columns = pa.schema([field for field in schema if field.name not in META_COLUMNS])
    stats = statistics.statistics_from_footer(collected[0], table_columns)
    file = DataFile(
        key, group.partition, group.file_id, BASE, size, "", len(rows), stats=stats, schema=config.schema_id
    )
    return AddedFile(_newest_slot(group), file)


def digest_of(config: TableConfig, groups: Iterable[FileGroup]) -> str:
    return hashlib.sha256("\n".join(derive_changes_name(config, group) for group in groups).encode()).hexdigest()[:32]


def create_unused_file_test(history: History) -> Callable[[str], bool]:
    """Create a test for unused files with log file changes.

    The function receives the name of an overlay. An export uses the overlay of a file group at the exported slot. An
    overlay is therefore unused if it is older than the overlay of its file group at the oldest readable slot.
    """
    readable = max(history.known_head().min_readable, 1)
    newest = {_group_hash(group): _newest_slot(group) for group in history.state(readable).groups()}

    def passed(name: str) -> bool:
        parsed = _NAME.fullmatch(name)
        return parsed is not None and int(parsed[2], 16) < newest.get(parsed[1], readable + 1)

    return passed


def delete_old_unused_overlays(store: Store, passed: Callable[[str], bool], now_ms: int) -> None:
    for key, _ in unused_overlay_files(store, passed):
        if (store.modified_ms(key) or now_ms) < now_ms - _DAY_MS:
            store.delete(key)


def unused_overlay_files(store: Store, passed: Callable[[str], bool]) -> list[tuple[str, int]]:
    return [
        (key, size)
        for key, size in (*store.list(OVERLAYS), *store.list(VECTORS))
        if passed(key.rpartition("/")[2].partition(".")[0].rpartition("_")[2].replace("-", ""))
    ]
